//! `tms table remove`

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::commands::table::named;
use crate::context::Context;
use crate::failure::Failure;

/// Which table.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path or id of the table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    table: String,
}

/// Forgets a table with its instances.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    ctx.client.remove_table().id(named(&arguments.table)).send().await?;
    ctx.out.done(&format!("removed {}; it comes back when its writer announces it again", arguments.table))
}
