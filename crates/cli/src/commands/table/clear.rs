//! `tms table clear`

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tms_client::types::ClearTable;

use crate::commands::table::named;
use crate::context::Context;
use crate::failure::Failure;

/// Which table.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path or id of the table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    table: String,
    /// The running instances too.
    #[arg(long)]
    running: bool,
}

/// Cancels all waiting instances of a table.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let body = ClearTable { running: arguments.running };
    let cleared = ctx.client.clear_table().id(named(&arguments.table)).body(body).send().await?.into_inner();
    ctx.out.result(&cleared, |c| format!("cancelled {}\n", c.n_cancelled))
}
