//! One file per command.

pub(crate) mod inspect;
pub(crate) mod instance;
pub(crate) mod node;
pub(crate) mod queue;
pub(crate) mod table;

use crate::arguments::{Cli, Command};
use crate::context::{Context, Out};
use crate::failure::Failure;

/// Runs the command that was given.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let url = cli.global.url();
    let outcome = match cli.command {
        Command::Inspect(arguments) => inspect::run(Out::new(cli.global.output), &arguments).await,
        Command::Instance(command) => instance::run(&Context::new(&cli.global)?, command).await,
        Command::Table(command) => table::run(&Context::new(&cli.global)?, command).await,
        Command::Queue(command) => queue::run(&Context::new(&cli.global)?, command).await,
        Command::Node(command) => node::run(&Context::new(&cli.global)?, command).await,
    };
    outcome.map_err(|failure| failure.at(&url))
}
