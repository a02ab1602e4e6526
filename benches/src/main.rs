//! Benches of TMS: each measures its peers and its limits in the same run, prints a table with bars and verdicts, and
//! writes the figures as JSON. A missed bar is told, never an error. `docs/dev/benches.md` says what they compare.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "benches talk to the person who runs them")]

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod day;
mod decide;
mod echo;
mod fill;
mod handover;
mod lake;
mod load;
mod machine;
mod node;
mod raw;
mod reader;
mod report;
mod server;
mod start;
mod stores;
mod writer;

/// Benches of TMS; `cargo xtask bench` builds what they need and calls them.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder of the JSON files.
    #[arg(long, global = true, default_value = "bench")]
    out: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Handover(handover::Arguments),
    Decide(decide::Arguments),
    Start(start::Arguments),
    Day(day::Arguments),
    Reader(reader::Arguments),
    #[command(hide = true)]
    Echo,
    #[command(hide = true)]
    Passes(decide::passes::Arguments),
}

fn main() -> Result<()> {
    let Arguments { out, command } = Arguments::parse();
    match command {
        Command::Handover(arguments) => handover::run(&arguments)?.finish(&out),
        Command::Decide(arguments) => decide::run(&arguments)?.finish(&out),
        Command::Start(arguments) => start::run(&arguments)?.finish(&out),
        Command::Day(arguments) => day::run(&arguments)?.finish(&out),
        Command::Reader(arguments) => reader::run(&arguments)?.finish(&out),
        Command::Echo => echo::run(),
        Command::Passes(arguments) => decide::passes::run(&arguments),
    }
}
