//! `tms node list`

use clap::Args;
use tms_client::types::Node;

use crate::context::Context;
use crate::failure::Failure;
use crate::show;
use crate::table::Rows;

/// Nothing to choose: nodes are few.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Lists nodes.
pub(crate) async fn run(ctx: &Context, _arguments: &Arguments) -> Result<(), Failure> {
    let page = ctx.client.list_nodes().send().await?.into_inner();
    ctx.out.result(&page.items, |items| table_of(items))
}

fn table_of(nodes: &[Node]) -> String {
    let mut rows = Rows::new(&["NAME", "LEADS", "VERSION", "STARTED", "SEEN", "URL"]);
    for node in nodes {
        rows.add([
            node.name.clone(),
            node.term.map_or_else(|| "-".to_owned(), |term| format!("term {term}")),
            node.program_version.clone(),
            show::time(&node.started_at),
            show::time(&node.seen_at),
            node.url.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    rows.text()
}
