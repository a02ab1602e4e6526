//! `tms table list`

use clap::Args;

use crate::arguments::PageArguments;
use crate::commands::table::table_of;
use crate::context::Context;
use crate::failure::Failure;

/// Which page.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    page: PageArguments,
}

/// Lists tables.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let mut request = ctx.client.list_tables();
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
