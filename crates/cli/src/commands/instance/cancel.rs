//! `tms instance cancel`

use clap::Args;

use crate::arguments::WaitArguments;
use crate::commands::instance::{ended, table_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::wait;

/// Which instance.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the instance.
    id: String,
    #[command(flatten)]
    wait: WaitArguments,
}

/// Stops an instance.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let instance = ctx.client.cancel_instance().id(&arguments.id).send().await?.into_inner();
    if !arguments.wait.wait {
        return ctx.out.result(&instance, |i| table_of(std::slice::from_ref(i)));
    }
    let instance = wait::for_end(ctx, &arguments.id, &arguments.wait).await?;
    ended(ctx, &instance, "cancelled")
}
