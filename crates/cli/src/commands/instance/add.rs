//! `tms instance add`

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tms_client::types::AddInstance;

use crate::arguments::WaitArguments;
use crate::commands::instance::{ended, table_of};
use crate::commands::table::named;
use crate::context::Context;
use crate::failure::Failure;
use crate::wait::{self, Waiting};
use crate::words;

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path or id of the table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    table: String,
    /// compaction, clustering or clean.
    #[arg(long, value_parser = words::action)]
    action: String,
    /// Requested time of the plan; a clean may have none.
    #[arg(long, value_parser = words::instant)]
    instant: Option<String>,
    /// Queue.
    #[arg(long, value_parser = words::queue)]
    queue: Option<String>,
    /// Higher first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    #[command(flatten)]
    wait: WaitArguments,
}

/// Asks for one instance.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let body = AddInstance {
        table: named(&arguments.table),
        action: arguments.action.clone(),
        instant: arguments.instant.clone(),
        queue: arguments.queue.clone(),
        priority: arguments.priority,
    };
    let waiting = Waiting::new(ctx.out, &arguments.wait);
    let instance =
        waiting.call(async { Ok(ctx.client.add_instance().body(body).send().await?.into_inner()) }).await?;
    if !instance.is_live && matches!(instance.state.as_str(), "cancelled" | "failed") {
        ctx.out.aside(&format!(
            "it is known and {}: only `tms instance retry {}` runs it",
            instance.state, instance.id
        ));
    }
    if !arguments.wait.wait {
        return ctx.out.result(&instance, |i| table_of(std::slice::from_ref(i)));
    }
    let instance = wait::for_end(ctx, &instance.id.to_string(), waiting).await?;
    ended(ctx, &instance, "succeeded")
}
