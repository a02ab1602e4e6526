//! `tms instance cancel`

use clap::Args;

use crate::arguments::WaitArguments;
use crate::commands::instance::{ended, table_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::wait::{self, Waiting};
use crate::words;

/// Which instance.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the instance.
    #[arg(value_parser = words::instance_id)]
    id: String,
    #[command(flatten)]
    wait: WaitArguments,
}

/// Stops an instance.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let waiting = Waiting::new(ctx.out, &arguments.wait);
    let instance = waiting
        .call(async { Ok(ctx.client.cancel_instance().id(&arguments.id).send().await?.into_inner()) })
        .await?;
    if !arguments.wait.wait {
        return ctx.out.result(&instance, |i| table_of(std::slice::from_ref(i)));
    }
    let instance = wait::for_end(ctx, &arguments.id, waiting).await?;
    ended(ctx, &instance, "cancelled")
}
