//! `tms instance remove`

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::words;

/// Which instance.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the instance.
    #[arg(value_parser = words::instance_id)]
    id: String,
}

/// Forgets an instance.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    ctx.client.remove_instance().id(&arguments.id).send().await?;
    ctx.out.done(&format!("removed {}", arguments.id))
}
