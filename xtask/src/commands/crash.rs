//! `cargo xtask crash`: the server is killed at random moments while writers hand work over.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::environment::Environment;
use crate::errors::Usage;
use crate::marks;
use crate::process::{self, command};
use crate::repo::Repo;

const ROUND_LIMIT: Duration = Duration::from_secs(60);
const ROUNDS_MAX: u32 = 100_000;

/// Kill the server at random moments, and check that nothing is lost or run twice.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many times the server is killed.
    #[arg(long, default_value_t = 50)]
    rounds: u32,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let rounds = arguments.rounds;
    ensure!((1..=ROUNDS_MAX).contains(&rounds), Usage(format!("--rounds must be 1 to {ROUNDS_MAX}")));
    crate::cargo::build_workspace(env, repo)?;
    rounds_of(repo, rounds)
}

/// Runs the rounds with what is built already.
pub(crate) fn rounds_of(repo: &Repo, rounds: u32) -> Result<()> {
    let mut crash = command(repo.built("crash"));
    crash.current_dir(&repo.root).args(["--rounds", &rounds.to_string()]);
    crash.env("TMS_SERVER_BIN", repo.built("tms-server")).env("TMS_BIN", repo.built("tms"));
    let done = process::run(marks::mark(&mut crash), ROUND_LIMIT.saturating_mul(rounds.max(5)));
    let left = marks::stop_own();
    done?;
    ensure!(left.is_empty(), "the crash rounds left processes behind (now ended): {left:?}");
    Ok(())
}
