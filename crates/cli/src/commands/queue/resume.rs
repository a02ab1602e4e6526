//! `tms queue resume`

use clap::Args;

use crate::commands::queue::table_of;
use crate::context::Context;
use crate::failure::Failure;
use crate::words;

/// Which queue.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Name of the queue.
    #[arg(value_parser = words::queue)]
    name: String,
}

/// Resumes a queue.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let queue = ctx.client.resume_queue().name(&arguments.name).send().await?.into_inner();
    ctx.out.result(&queue, |q| table_of(std::slice::from_ref(q)))
}
