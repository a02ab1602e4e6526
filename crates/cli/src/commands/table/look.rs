//! `tms table look`

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tms_client::types::Table;

use crate::arguments::WaitArguments;
use crate::commands::table::{named, of_detail, table_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::wait::Waiting;

/// Which table.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path or id of the table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    table: String,
    #[command(flatten)]
    wait: LookWait,
}

/// Whether and how long the command waits.
#[derive(Debug, Args)]
struct LookWait {
    /// Waits until the look was made; ends with 1 when the table cannot be read.
    #[arg(long)]
    wait: bool,
    /// Longest time for the whole command, such as 90s or 2h; then the exit code is 124.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "wait")]
    timeout: Option<Duration>,
}

/// Has the server look at a table now.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let LookWait { wait, timeout } = arguments.wait;
    let waiting = Waiting::new(ctx.out, &WaitArguments { wait, timeout });
    let asked = waiting
        .call(async { Ok(ctx.client.look_at_table().id(named(&arguments.table)).send().await?.into_inner()) })
        .await?;
    if !wait {
        return ctx.out.result(&asked, |t| table_of(std::slice::from_ref(t)));
    }
    let table = looked_at(ctx, &asked, waiting).await?;
    ctx.out.result(&table, |t| table_of(std::slice::from_ref(t)))?;
    match &table.trouble {
        Some(trouble) => Err(Failure::refused(format!("the table cannot be read: {}", trouble.error))),
        None => Ok(()),
    }
}

/// Waits until a look has covered the touch, or has failed since.
async fn looked_at(ctx: &Context, asked: &Table, mut waiting: Waiting) -> Result<Table, Failure> {
    let failed_before = asked.trouble.as_ref().map_or(0, |t| t.n_failed);
    loop {
        match waiting.call(async { Ok(ctx.client.show_table().id(&asked.id).send().await?) }).await {
            Ok(answer) => {
                let table = of_detail(&answer.into_inner())?;
                let has_failed = table.trouble.as_ref().is_some_and(|t| t.n_failed > failed_before);
                if table.looked >= asked.touch || has_failed {
                    waiting.end();
                    return Ok(table);
                }
                waiting.tell(format!("waits for the look at {}", table.base_path));
            }
            Err(failure) => waiting.forgive(failure)?,
        }
        waiting.pause().await?;
    }
}
