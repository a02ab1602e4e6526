//! `cargo xtask crash`: the server is killed at random moments while writers hand work over.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cargo::{CRASH_SERVER, build_crash_server, build_workspace};
use crate::components::rocksdb::{self, Effort};
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
    /// The server's store.
    #[arg(long, value_enum, default_value_t)]
    store: Store,
}

/// Stores that the rounds run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    /// The default.
    #[default]
    Redb,
    /// Compiled from source the first time.
    Rocksdb,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Redb, Self::Rocksdb];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Redb => "redb",
            Self::Rocksdb => "rocksdb",
        }
    }

    pub(crate) fn needs_rocksdb(self) -> bool {
        self == Self::Rocksdb
    }
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let rounds = arguments.rounds;
    ensure!((1..=ROUNDS_MAX).contains(&rounds), Usage(format!("--rounds must be 1 to {ROUNDS_MAX}")));
    if arguments.store.needs_rocksdb() {
        rocksdb::set_up(env, repo, Effort::Compile)?;
    }
    build_crash_server(env, repo)?;
    build_workspace(env, repo)?;
    rounds_of(repo, arguments.store, rounds)
}

/// Runs the rounds with what is built already.
pub(crate) fn rounds_of(repo: &Repo, store: Store, rounds: u32) -> Result<()> {
    let mut crash = command(repo.built("crash"));
    crash.current_dir(&repo.root).args(["--rounds", &rounds.to_string(), "--store", store.word()]);
    crash.env("TMS_SERVER_BIN", repo.built(CRASH_SERVER)).env("TMS_BIN", repo.built("tms"));
    let done = process::run(marks::mark(&mut crash), ROUND_LIMIT.saturating_mul(rounds.max(5)));
    let left = marks::stop_own();
    done?;
    ensure!(left.is_empty(), "the crash rounds left processes behind (now ended): {left:?}");
    Ok(())
}
