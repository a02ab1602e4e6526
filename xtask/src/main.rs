//! Build, test and release tasks of TMS: `cargo xtask <command>`.
//!
//! It uses none of our crates: what only the server knows (OpenAPI, the config reference, presets) the server
//! is asked for. Exit codes: 0; 1 failed; 2 usage; 3 a component is missing; 130 interrupted.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "xtask talks to the person who runs it")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::environment::Environment;
use crate::repo::Repo;

mod cache;
mod cargo;
mod commands;
mod components;
mod environment;
mod errors;
mod libtest;
mod marks;
mod openapi;
mod process;
mod quickstart;
mod repo;
mod tidy;
mod time;

/// Build, test and release tasks of TMS.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Quickstart(commands::quickstart::Arguments),
    Test(commands::test::Arguments),
    Tidy(commands::tidy::Arguments),
    Bench(commands::bench::Arguments),
    Crash(commands::crash::Arguments),
    Faults(commands::faults::Arguments),
    Features(commands::features::Arguments),
    Job(commands::job::Arguments),
    Openapi(commands::openapi::Arguments),
    PowerCuts(commands::power_cuts::Arguments),
    Presets(commands::presets::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = process::watch_signals().and_then(|()| {
        let env = Environment::read()?;
        let repo = Repo::open(&env)?;
        match arguments.command {
            Command::Quickstart(arguments) => commands::quickstart::run(&env, &repo, &arguments),
            Command::Test(arguments) => commands::test::run(&env, &repo, &arguments),
            Command::Tidy(arguments) => commands::tidy::run(&env, &repo, &arguments),
            Command::Bench(arguments) => commands::bench::run(&env, &repo, &arguments),
            Command::Crash(arguments) => commands::crash::run(&env, &repo, &arguments),
            Command::Faults(arguments) => commands::faults::run(&env, &repo, &arguments),
            Command::Features(arguments) => commands::features::run(&env, &repo, &arguments),
            Command::Job(arguments) => commands::job::run(&env, &repo, &arguments),
            Command::Openapi(arguments) => commands::openapi::run(&env, &repo, &arguments),
            Command::PowerCuts(arguments) => commands::power_cuts::run(&env, &repo, &arguments),
            Command::Presets(arguments) => commands::presets::run(&env, &repo, &arguments),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if process::is_interrupted() => ExitCode::from(130),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(errors::exit_code(&error))
        }
    }
}
