//! `tms queue list`

use clap::Args;

use crate::commands::queue::table_of;
use crate::context::Context;
use crate::failure::Failure;

/// Nothing to choose: queues are few.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Lists queues.
pub(crate) async fn run(ctx: &Context, _arguments: &Arguments) -> Result<(), Failure> {
    let page = ctx.client.list_queues().send().await?.into_inner();
    ctx.out.result(&page.items, |items| table_of(items))
}
