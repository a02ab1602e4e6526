//! The command line. Only here is the environment read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use secrecy::SecretString;

use crate::commands;

/// Address of the server when nobody names one.
const DEFAULT_URL: &str = "http://127.0.0.1:9091";

/// Heading of the options that lead to a server; they stand after the command's own.
const CONNECTION: &str = "Connection";

/// Shows and changes what a TMS server holds.
#[derive(Debug, Parser)]
#[command(name = "tms", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Address of the server; without it the environment variable TMS_URL, else http://127.0.0.1:9091.
    // No default for the parser: its usage line would name the option as if it were needed.
    #[arg(long, global = true, value_name = "URL", help_heading = CONNECTION)]
    server: Option<String>,
    /// File that holds the token; without it the environment variable TMS_TOKEN.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    pub(crate) token_file: Option<PathBuf>,
    /// Tables for people, or JSON for programs.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t = Output::Table,
        value_name = "FORM",
        help_heading = "Output"
    )]
    pub(crate) output: Output,
}

impl Global {
    /// Returns the address of the server.
    pub(crate) fn url(&self) -> String {
        self.server.clone().or_else(|| variable("TMS_URL")).unwrap_or_else(|| DEFAULT_URL.to_owned())
    }
}

/// How things are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// One object, or one array for a list.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Table services that wait, run or have ended.
    #[command(subcommand)]
    Instance(commands::instance::Command),
    /// Hudi tables and what TMS may do with them.
    #[command(subcommand)]
    Table(commands::table::Command),
    /// Named shares of engines.
    #[command(subcommand)]
    Queue(commands::queue::Command),
    /// Running servers.
    #[command(subcommand)]
    Node(commands::node::Command),
    /// Reads a table's timeline, without any server.
    Inspect(commands::inspect::Arguments),
}

/// Which page of a list.
#[derive(Debug, Args)]
pub(crate) struct PageArguments {
    /// Most items, 1 to 1000; 100 when absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1000))]
    pub(crate) limit: Option<i32>,
    /// Where the list goes on: what the page before wrote to standard error.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Whether and how long a command waits.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Waits until it has ended, and shows the progress; ends with 1 when it is parked.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Longest time for the whole command, such as 90s or 2h; then the exit code is 124.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// Returns the token of the environment.
pub(crate) fn token_of_environment() -> Option<SecretString> {
    variable("TMS_TOKEN").map(SecretString::from)
}

/// Returns the name of the person at work, for the history of what is changed.
pub(crate) fn user_of_environment() -> Option<String> {
    variable("USER")
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    std::env::var(name).ok().filter(|v| !v.is_empty())
}
