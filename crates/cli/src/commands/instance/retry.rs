//! `tms instance retry`

use clap::Args;
use tms_client::types::RetryInstance;

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
    /// Runs it although somebody else seems to: only when it is certain that nobody does.
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    wait: WaitArguments,
}

/// Has an instance tried again.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let body = RetryInstance { take_over: arguments.take_over };
    let waiting = Waiting::new(ctx.out, &arguments.wait);
    let instance = waiting
        .call(async {
            Ok(ctx.client.retry_instance().id(&arguments.id).body(body).send().await?.into_inner())
        })
        .await?;
    if !arguments.wait.wait {
        return ctx.out.result(&instance, |i| table_of(std::slice::from_ref(i)));
    }
    let instance = wait::for_end(ctx, &arguments.id, waiting).await?;
    ended(ctx, &instance, "succeeded")
}
