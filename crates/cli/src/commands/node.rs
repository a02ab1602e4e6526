//! `tms node`

pub(crate) mod list;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists nodes and who leads.
    List(list::Arguments),
}

/// Runs the command.
pub(crate) async fn run(ctx: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list::run(ctx, &arguments).await,
    }
}
