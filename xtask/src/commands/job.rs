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
    println!("job jar     {}", components.job_jar.display());
    println!("            and a copy beside each tms-server that is built");
    println!("spark_home  {}", components.tools.spark_home.display());
    println!("java_home   {}", components.tools.java_home.display());
    Ok(())
}
