//! `tms queue`: what queues have in common.

pub(crate) mod list;
pub(crate) mod pause;
pub(crate) mod resume;

use clap::Subcommand;
use tms_client::types::Queue;

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Rows;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists queues.
    List(list::Arguments),
    /// Pauses a queue: nothing is started; what runs goes on.
    Pause(pause::Arguments),
    /// Resumes a queue.
    Resume(resume::Arguments),
}

/// Runs one of the commands.
pub(crate) async fn run(ctx: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list::run(ctx, &arguments).await,
        Command::Pause(arguments) => pause::run(ctx, &arguments).await,
        Command::Resume(arguments) => resume::run(ctx, &arguments).await,
    }
}

/// Queues for people.
pub(crate) fn table_of(queues: &[Queue]) -> String {
    let mut rows = Rows::new(&["NAME", "STATE", "ENGINE", "LIMIT", "WEIGHT"]);
    for queue in queues {
        rows.add([
            queue.name.clone(),
            if queue.is_paused { "paused" } else { "running" }.to_owned(),
            queue.engine.clone().unwrap_or_else(|| "not fixed".to_owned()),
            if queue.limit == 0 { "none".to_owned() } else { queue.limit.to_string() },
            queue.weight.to_string(),
        ]);
    }
    rows.text()
}
