//! `tms instance list`

use clap::Args;

use crate::arguments::PageArguments;
use crate::commands::instance::table_of;
use crate::commands::table::named;
use crate::context::Context;
use crate::failure::Failure;
use crate::words;

/// Which instances are listed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Of this table: its base path or id.
    #[arg(long)]
    table: Option<String>,
    /// Of these actions: compaction, logcompaction, clustering, clean.
    #[arg(long, value_delimiter = ',', value_parser = words::ACTIONS, hide_possible_values = true)]
    action: Vec<String>,
    /// In these states: hinted, pending, waiting_foreign, parked, active, succeeding, succeeded, failed, cancelled,
    /// obsolete.
    #[arg(long, value_delimiter = ',', value_parser = words::STATES, hide_possible_values = true)]
    state: Vec<String>,
    /// Of this queue.
    #[arg(long, value_parser = words::queue)]
    queue: Option<String>,
    /// Only those that have not ended.
    #[arg(long, conflicts_with = "ended")]
    live: bool,
    /// Only those that have ended.
    #[arg(long)]
    ended: bool,
    #[command(flatten)]
    page: PageArguments,
}

/// Lists instances.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let mut request = ctx.client.list_instances();
    if let Some(table) = &arguments.table {
        request = request.table(named(table));
    }
    if !arguments.action.is_empty() {
        request = request.action(arguments.action.join(","));
    }
    if !arguments.state.is_empty() {
        request = request.state(arguments.state.join(","));
    }
    if let Some(queue) = &arguments.queue {
        request = request.queue(queue.clone());
    }
    if arguments.live || arguments.ended {
        request = request.live(arguments.live);
    }
    if let Some(limit) = arguments.page.limit {
        request = request.limit(limit);
    }
    if let Some(cursor) = &arguments.page.cursor {
        request = request.cursor(cursor.clone());
    }
    let page = request.send().await?.into_inner();
    ctx.out.result(&page.items, |items| table_of(items))?;
    ctx.out.next_cursor(page.next_cursor.as_deref());
    Ok(())
}
