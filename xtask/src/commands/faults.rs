//! `cargo xtask faults`: the whole list of faults on real Spark, on every Hudi release.

use anyhow::{Result, ensure};

use crate::commands::test::{Libtest, job_tests, real_spark};
use crate::components::Components;
use crate::environment::Environment;
use crate::errors::Usage;
use crate::libtest::Counts;
use crate::repo::Repo;

/// The releases that TMS is tested with: one per table version.
pub(crate) const RELEASES: [&str; 3] = ["0.15.0", "1.0.2", "1.2.0"];

/// Run the whole list of faults on real Spark (an hour or so on two cores).
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Hudi releases to run it on; all three unless given. May be repeated.
    #[arg(long = "release", value_parser = RELEASES)]
    releases: Vec<String>,
    /// Only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let given: Vec<&str> = arguments.releases.iter().map(String::as_str).collect();
    let releases = if given.is_empty() { RELEASES.to_vec() } else { given };
    let components = Components::set_up(env, repo, &RELEASES)?;
    let programs = crate::cargo::build_tests(env, repo)?;
    let libtest = Libtest { filter: arguments.filter.clone(), faults: Some(releases.join(",")) };
    let mut counts = Counts::default();
    if arguments.filter.is_none() {
        counts += job_tests(repo, &components, &releases, &[])?;
    }
    for program in programs.iter().filter(|program| program.package == super::test::E2E) {
        counts += real_spark(repo, &components, program, &libtest)?;
    }
    println!("\n{counts}");
    ensure!(!counts.is_empty(), Usage("no test has that name".into()));
    ensure!(counts.failed == 0, "{} failed", counts.failed);
    Ok(())
}
