//! `cargo xtask job`: the jar that runs inside Spark.

use anyhow::Result;

use crate::components::Components;
use crate::environment::Environment;
use crate::repo::Repo;

/// Build the Spark job's jar and put a copy beside tms-server.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(env: &Environment, repo: &Repo, _: &Arguments) -> Result<()> {
    let components = Components::set_up(env, repo, &[])?;
    println!("{}", components.job_jar.display());
    Ok(())
}
