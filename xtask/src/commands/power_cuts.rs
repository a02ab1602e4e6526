//! `cargo xtask power-cuts`: stores lose what they had not synced, and must hold all that they acknowledged.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cargo::build_tests;
use crate::commands::crash::Store;
use crate::components::rocksdb::{self, Effort};
use crate::environment::Environment;
use crate::errors::Usage;
use crate::process::{self, command};
use crate::repo::Repo;

/// Name of the test program in each store's package.
const TARGET: &str = "power";
const CUT_LIMIT: Duration = Duration::from_secs(10);
/// Longest time of few cuts.
const LIMIT_MIN: Duration = Duration::from_secs(600);
const CUTS_MAX: u32 = 100_000;

/// Cut the power of stores, and check that all that was acknowledged is there; a mutant without the sync must be caught.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many times the power of each store is cut.
    #[arg(long, default_value_t = 30)]
    cuts: u32,
    /// Only this store.
    #[arg(long, value_enum)]
    store: Option<Store>,
    /// Where the random numbers begin; printed by each run.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let n_cuts = arguments.cuts;
    ensure!((1..=CUTS_MAX).contains(&n_cuts), Usage(format!("--cuts must be 1 to {CUTS_MAX}")));
    let stores = arguments.store.map_or(Store::ALL.to_vec(), |store| vec![store]);
    if stores.iter().any(|store| store.needs_rocksdb()) {
        rocksdb::set_up(env, repo, Effort::Compile)?;
    }
    let programs = build_tests(env, repo)?;
    let mut failed = Vec::new();
    for store in stores {
        let package = format!("tms-store-{}", store.word());
        let program = programs.iter().find(|program| program.package == package && program.target == TARGET);
        let program = program.with_context(|| format!("{package} has no test program {TARGET}"))?;
        let mut cuts = command(&program.program);
        cuts.current_dir(&program.folder).args(["--cuts", &n_cuts.to_string()]);
        if let Some(seed) = arguments.seed {
            cuts.args(["--seed", &seed.to_string()]);
        }
        let limit = CUT_LIMIT.saturating_mul(n_cuts).max(LIMIT_MIN);
        if let Err(error) = process::run(&mut cuts, limit) {
            process::check_interrupted()?;
            eprintln!("power cuts of {}: {error:#}", store.word());
            failed.push(store.word());
        }
    }
    ensure!(failed.is_empty(), "the power cuts of {failed:?} failed");
    Ok(())
}
