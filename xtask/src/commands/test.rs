//! `cargo xtask test`: everything that CI checks, with its own set-up, and one closing line over all of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cargo::{TestProgram, build_crash_server, build_tests, cargo, has_libraries, selection};
use crate::commands::faults::RELEASES;
use crate::commands::{crash, quickstart, tidy};
use crate::components::Components;
use crate::components::rocksdb::{self, Effort};
use crate::environment::Environment;
use crate::errors::exit_code;
use crate::libtest::{Counts, Show, Tally};
use crate::marks;
use crate::process::{check_interrupted, command, stream};
use crate::repo::Repo;
use crate::time::{Shown, Stopwatch};

/// The package of tests with real Hudi and Spark.
pub(crate) const E2E: &str = "tms-e2e";
/// Tests of the Spark job; they end with the same closing line as we do.
const JOB_TESTS: &str = "jobs/spark/test/run.py";
const JOB_RELEASES: [&str; 1] = ["1.2.0"];
const CRASH: &str = "crash";
const CRASH_ROUNDS: u32 = 50;
const CRASH_ROUNDS_QUICK: u32 = 10;
const UNIT_LIMIT: Duration = Duration::from_secs(15 * 60);
const REAL_SPARK_LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Run all tests, with their set-up; ends with the line `N passed, N failed, N skipped`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// No Spark, fewer crash rounds: a few minutes.
    #[arg(long)]
    quick: bool,
    /// Only Rust tests whose name contains this; leaves formatting, lints, tidy, crash rounds and quick start
    /// out.
    #[arg(long)]
    filter: Option<String>,
}

/// How test programs are called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Libtest {
    pub(crate) filter: Option<String>,
    /// Releases for the whole list of faults; the tests' own choice when absent.
    pub(crate) faults: Option<String>,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let mut plan = Plan { env, repo, arguments, stages: Vec::new() };
    plan.all()?;
    plan.close()
}

struct Stage {
    name: String,
    counts: Counts,
    took: Shown,
}

struct Plan<'a> {
    env: &'a Environment,
    repo: &'a Repo,
    arguments: &'a Arguments,
    stages: Vec<Stage>,
}

impl Plan<'_> {
    fn all(&mut self) -> Result<()> {
        let is_whole = self.arguments.filter.is_none();
        let components = if self.arguments.quick { None } else { self.set_up()? };
        let has_rocksdb = self.set_up_rocksdb()?;
        if is_whole {
            self.check("format", &["fmt", "--all", "--check"])?;
        }
        let mut programs = Vec::new();
        let (env, repo) = (self.env, self.repo);
        let is_built = self.stage("build", || {
            if is_whole {
                build_crash_server(env, repo)?;
            }
            programs = build_tests(env, repo)?;
            Ok(Counts::default())
        })?;
        if is_whole {
            let (selection, strict) =
                (selection(env, repo), ["--all-targets", "--quiet", "--", "-D", "warnings"]);
            self.check("lints", &[&["clippy"], selection, &strict].concat())?;
            self.stage("tidy", || {
                tidy::run(env, repo, &tidy::Arguments::default()).map(|()| Counts::ONE_PASSED)
            })?;
        }
        if !is_built {
            println!("\nNothing else is run: the build failed.");
            return Ok(());
        }
        self.rust_tests(&programs, components.as_ref())?;
        if is_whole && repo.has_program(E2E, CRASH) {
            let rounds = if self.arguments.quick { CRASH_ROUNDS_QUICK } else { CRASH_ROUNDS };
            for store in crash::Store::ALL.into_iter().filter(|store| has_rocksdb || !store.needs_rocksdb()) {
                let name = format!("crash rounds on {}", store.word());
                self.stage(&name, || crash::rounds_of(repo, store, rounds).map(|()| Counts::ONE_PASSED))?;
            }
        }
        if let Some(components) = components {
            self.real_spark(&programs, &components)?;
        }
        Ok(())
    }

    /// Sets up Spark; without it the tests that need it are skipped loudly, or fail on CI.
    fn set_up(&mut self) -> Result<Option<Components>> {
        let mut components = None;
        let (env, repo) = (self.env, self.repo);
        self.stage("set-up", || {
            println!(
                "Java, Python, Spark, Hudi bundles and the job jar; downloads are kept in {}",
                env.cache.display()
            );
            match Components::set_up(env, repo, &RELEASES) {
                Ok(found) => components = Some(found),
                Err(error) if exit_code(&error) == 3 && !env.is_ci => {
                    println!("SKIPPED all tests with real Spark: {error:#}");
                    return Ok(Counts::ONE_SKIPPED);
                }
                Err(error) => return Err(error),
            }
            Ok(Counts::default())
        })?;
        Ok(components)
    }

    /// Sets up RocksDB; without it its store is skipped loudly, or fails on CI.
    fn set_up_rocksdb(&mut self) -> Result<bool> {
        let (env, repo) = (self.env, self.repo);
        let is_short = self.arguments.quick || self.arguments.filter.is_some();
        let effort = if is_short && !env.is_ci { Effort::Quick } else { Effort::Compile };
        self.stage("RocksDB", || match rocksdb::set_up(env, repo, effort) {
            Ok(()) => Ok(Counts::default()),
            Err(error) if exit_code(&error) == 3 && !env.is_ci => {
                println!("SKIPPED the RocksDB store: {error:#}");
                Ok(Counts::ONE_SKIPPED)
            }
            Err(error) => Err(error),
        })?;
        Ok(rocksdb::is_there(env, repo))
    }

    fn rust_tests(&mut self, programs: &[TestProgram], components: Option<&Components>) -> Result<()> {
        let libtest = Libtest { filter: self.arguments.filter.clone(), faults: None };
        let (repo, is_quick) = (self.repo, self.arguments.quick);
        for program in programs.iter().filter(|program| program.package != E2E) {
            self.stage(&format!("{} ({})", program.package, program.target), || {
                run_program(program, &libtest, UNIT_LIMIT, |command| {
                    if is_quick {
                        // Spark is left out on purpose, so its tests may skip on CI as well.
                        command.env_remove("CI");
                    }
                    components.into_iter().for_each(|found| give_components(repo, found, command));
                })
            })?;
        }
        let env = self.env;
        if has_libraries(repo) && self.arguments.filter.is_none() {
            self.stage("examples in docs", || doc_tests(env, repo))?;
        }
        Ok(())
    }

    fn real_spark(&mut self, programs: &[TestProgram], components: &Components) -> Result<()> {
        let libtest = Libtest { filter: self.arguments.filter.clone(), faults: None };
        let (env, repo) = (self.env, self.repo);
        for program in programs.iter().filter(|program| program.package == E2E) {
            let name = format!("real Spark ({})", program.target);
            self.stage(&name, || real_spark(repo, components, program, &libtest))?;
        }
        if self.arguments.filter.is_none() {
            self.stage("Spark job", || job_tests(repo, components, &JOB_RELEASES, &["--smoke"]))?;
            self.stage("quick start", || quickstart::for_test(env, repo).map(|()| Counts::ONE_PASSED))?;
        }
        Ok(())
    }

    fn check(&mut self, name: &str, arguments: &[&str]) -> Result<bool> {
        let (env, repo) = (self.env, self.repo);
        self.stage(name, || crate::cargo::run(env, repo, arguments).map(|()| Counts::ONE_PASSED))
    }

    /// Runs one stage, whatever became of those before; fails only when interrupted.
    fn stage(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) -> Result<bool> {
        check_interrupted()?;
        println!("\n== {name}");
        let watch = Stopwatch::start();
        let counts = work().unwrap_or_else(|error| {
            eprintln!("{name} failed: {error:#}");
            Counts::ONE_FAILED
        });
        check_interrupted()?;
        let took = watch.shown();
        println!("== {name}: {counts} ({took})");
        self.stages.push(Stage { name: name.to_owned(), counts, took });
        Ok(counts.failed == 0)
    }

    fn close(&self) -> Result<()> {
        let mut total = Counts::default();
        println!("\n== All stages");
        for stage in &self.stages {
            println!("{:>10}  {:<40} {}", stage.took, stage.name, stage.counts);
            total += stage.counts;
        }
        println!("\n{total}");
        ensure!(!total.is_empty(), "no test was run");
        ensure!(total.failed == 0, "{} failed", total.failed);
        Ok(())
    }
}

/// The job against a fake TMS: real Spark, real bundles, no server.
pub(crate) fn job_tests(
    repo: &Repo,
    components: &Components,
    releases: &[&str],
    more: &[&str],
) -> Result<Counts> {
    let tools = &components.tools;
    let mut python = tools.command(&tools.python);
    python.current_dir(&repo.root).arg("-u").arg(repo.root.join(JOB_TESTS));
    python.arg("--spark-home").arg(&tools.spark_home).arg("--python").arg(&tools.python);
    python.arg("--bundles").arg(&components.bundles).arg("--jar").arg(&components.job_jar);
    python.arg("--tables").arg(repo.target.join("job-tests"));
    python.args(releases.iter().flat_map(|release| ["--release", release])).args(more);
    let mut counts = None;
    let status = stream(marks::mark(&mut python), REAL_SPARK_LIMIT, |_, line| {
        println!("{line}");
        counts = Counts::parse(line).or(counts);
    })?;
    marks::stop_own();
    let counts = counts.context("the tests of the Spark job ended without a closing line")?;
    ensure!(status.success() || counts.failed > 0, "the tests of the Spark job ended with {status}");
    Ok(counts)
}

fn doc_tests(env: &Environment, repo: &Repo) -> Result<Counts> {
    let mut cargo = cargo(env, repo, &[&["test"], selection(env, repo), &["--doc", "--quiet"]].concat());
    let mut tally = Tally::default();
    let status = stream(&mut cargo, UNIT_LIMIT, |_, line| {
        if tally.line(line) == Show::Yes && !line.is_empty() {
            println!("{line}");
        }
    })?;
    // Generated code brings examples that are not meant to be compiled; they are no tests that were skipped.
    Ok(Counts { skipped: 0, ..tally.finish(status.success()) })
}

/// Tells a test program where the components are.
fn give_components(repo: &Repo, components: &Components, command: &mut std::process::Command) {
    let tools = &components.tools;
    tools.apply(command);
    command.env("TMS_SPARK_HOME", &tools.spark_home).env("TMS_PYTHON", &tools.python);
    command.env("TMS_JAVA_HOME", &tools.java_home);
    command.env("TMS_BUNDLE_DIR", &components.bundles).env("TMS_JOB_JAR", &components.job_jar);
    command.env("TMS_SERVER_BIN", repo.built("tms-server")).env("TMS_BIN", repo.built("tms"));
}

/// Runs a test program that needs the components.
pub(crate) fn real_spark(
    repo: &Repo,
    components: &Components,
    program: &TestProgram,
    libtest: &Libtest,
) -> Result<Counts> {
    let counts = run_program(program, libtest, REAL_SPARK_LIMIT, |command| {
        give_components(repo, components, command);
        if let Some(releases) = &libtest.faults {
            command.env("TMS_FAULTS_RELEASES", releases);
        }
        marks::mark(command);
    });
    let left = marks::stop_own();
    if !left.is_empty() {
        println!("left behind, and now ended: {left:?}");
    }
    counts
}

fn run_program(
    program: &TestProgram,
    libtest: &Libtest,
    limit: Duration,
    prepare: impl FnOnce(&mut std::process::Command),
) -> Result<Counts> {
    let mut command = command(&program.program);
    // Tests may find their own package so; cargo would set it.
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.arg("--show-output").args(&libtest.filter);
    prepare(&mut command);
    let mut tally = Tally::default();
    let status = stream(&mut command, limit, |_, line| {
        if tally.line(line) == Show::Yes && !line.is_empty() {
            println!("{line}");
        }
    })?;
    Ok(tally.finish(status.success()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn counts_of(script: &str, limit: Duration) -> Result<Counts> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let program = TestProgram {
            package: "p".to_owned(),
            target: "t".to_owned(),
            program: path,
            folder: folder.path().to_owned(),
        };
        let libtest = Libtest { filter: Some("some name".to_owned()), faults: None };
        run_program(&program, &libtest, limit, |command| {
            command.env("GIVEN", "yes");
        })
    }

    const LONG: Duration = Duration::from_secs(30);
    const RESULT: &str = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured'";

    #[test]
    fn program_is_called_with_the_filter_in_its_folder() {
        let check = "[ \"$*\" = '--show-output some name' ] && [ \"$GIVEN\" = yes ] && [ \"$PWD\" = \"$CARGO_MANIFEST_DIR\" ]";
        let counts = counts_of(&format!("{check} || exit 9\n{RESULT}"), LONG).unwrap();
        assert_eq!(counts, Counts { passed: 2, failed: 0, skipped: 0 });
    }

    #[test]
    fn program_that_dies_or_hangs_is_a_failure() {
        assert_eq!(counts_of("kill -9 $$", LONG).unwrap(), Counts::ONE_FAILED);
        assert_eq!(counts_of(&format!("{RESULT}; exit 3"), LONG).unwrap().failed, 1);
        assert!(counts_of("sleep 60", Duration::from_millis(300)).is_err());
    }
}
