//! `tms queue pause`

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

/// Pauses a queue; one that is not known yet is made, and that is said.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let known = ctx.client.list_queues().send().await?.into_inner();
    let queue = ctx.client.pause_queue().name(&arguments.name).send().await?.into_inner();
    if !known.items.iter().any(|k| k.name == queue.name) {
        ctx.out.aside(&format!("{} is a new queue: it is held before its first use", queue.name));
    }
    ctx.out.result(&queue, |q| table_of(std::slice::from_ref(q)))
}
