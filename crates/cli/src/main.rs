//! `tms`: shows and changes what a TMS server holds, by its API alone, and inspects tables without any server.

mod arguments;
mod commands;
mod context;
mod failure;
mod show;
mod table;
mod wait;
mod words;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Cli;
use crate::failure::Failure;

fn main() -> ExitCode {
    // Clap itself ends with 2 for a wrong command line and 0 for help.
    let cli = Cli::parse();
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(commands::run(cli)),
        Err(error) => Err(Failure::refused(format!("cannot start: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell when standard error is closed.
            drop(writeln!(std::io::stderr(), "tms: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}
