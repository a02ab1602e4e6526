//! Cargo, called so that every command of xtask builds the same things the same way.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::commands::bench;
use crate::components::rocksdb;
use crate::environment::Environment;
use crate::process::{self, From, command, stream};
use crate::repo::{Repo, is_kind};

/// A cold build of everything on two cores takes about ten minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The server of the crash rounds, in the build folder beside the default one.
pub(crate) const CRASH_SERVER: &str = "tms-server-crash";
const CRASH_FEATURE: &str = "tms-server/fail-points";
const ROCKSDB_FEATURE: &str = "tms-server/store-rocksdb";

/// `cargo` in the checkout's root, without what the caller's shell would change.
pub(crate) fn cargo(env: &Environment, repo: &Repo, arguments: &[&str]) -> Command {
    let mut cargo = command(&env.cargo);
    for name in Environment::names_of_our_package() {
        cargo.env_remove(name);
    }
    cargo.current_dir(&repo.root).args(arguments);
    rocksdb::apply(env, repo, &mut cargo);
    cargo
}

/// Runs cargo with its output shown.
pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &[&str]) -> Result<()> {
    process::run(&mut cargo(env, repo, arguments), BUILD_LIMIT)
}

/// Builds `tms-server` and `tms` only: what a person needs who wants to see TMS work.
pub(crate) fn build_programs(env: &Environment, repo: &Repo) -> Result<()> {
    run(env, repo, &["build", "--package", "tms-server", "--package", "tms-cli", "--bins"])
}

/// Which packages are built: all, without the RocksDB store and the benches of it while RocksDB is not there.
pub(crate) fn selection(env: &Environment, repo: &Repo) -> &'static [&'static str] {
    if rocksdb::is_there(env, repo) {
        &["--workspace"]
    } else {
        &["--workspace", "--exclude", rocksdb::PACKAGE, "--exclude", bench::PACKAGE]
    }
}

/// Builds all programs of the workspace.
pub(crate) fn build_workspace(env: &Environment, repo: &Repo) -> Result<()> {
    run(env, repo, &[&["build"], selection(env, repo), &["--bins"]].concat())
}

/// Builds the server of the crash rounds: with fail points and, when RocksDB is there, with its store. The default one has
/// to be built after it.
///
/// From the same packages as the default build, so that their dependencies are compiled once.
pub(crate) fn build_crash_server(env: &Environment, repo: &Repo) -> Result<()> {
    let mut features = vec!["--bins", "--features", CRASH_FEATURE];
    if rocksdb::is_there(env, repo) {
        features.extend(["--features", ROCKSDB_FEATURE]);
    }
    run(env, repo, &[&["build"], selection(env, repo), &features].concat())?;
    let (made, kept) = (repo.built("tms-server"), repo.built(CRASH_SERVER));
    // By another name first: a server that runs from the former file keeps it.
    let fresh = kept.with_extension("new");
    std::fs::copy(&made, &fresh)
        .and_then(|_| std::fs::rename(&fresh, &kept))
        .with_context(|| format!("cannot copy {} to {}", made.display(), kept.display()))
}

/// One compiled test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    /// Target name, as `tms_core` or `it`.
    pub(crate) target: String,
    pub(crate) program: PathBuf,
    /// The package's folder: cargo runs tests there.
    pub(crate) folder: PathBuf,
}

/// Compiles all programs and tests of the workspace, and names the test programs.
///
/// They are run by xtask itself, one at a time: `cargo test -p` would compile the dependencies once more with
/// another set of features, and would not bound a test program in time.
pub(crate) fn build_tests(env: &Environment, repo: &Repo) -> Result<Vec<TestProgram>> {
    // Programs and tests in one call, so that both get the same features of their dependencies.
    let selection = selection(env, repo);
    run(env, repo, &[&["build"], selection, &["--bins", "--tests"]].concat())?;
    let arguments =
        [&["test"], selection, &["--no-run", "--message-format", "json-render-diagnostics"]].concat();
    let mut cargo = cargo(env, repo, &arguments);
    let mut programs = Vec::new();
    let status = stream(cargo.stdin(Stdio::null()), BUILD_LIMIT, |from, line| match from {
        From::Stdout => programs.extend(test_program(line)),
        From::Stderr => eprintln!("{line}"),
    })?;
    if !status.success() {
        bail!("the tests do not compile");
    }
    programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(programs)
}

fn test_program(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    Some(TestProgram {
        package: package_name(message["package_id"].as_str()?)?.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        program: message["executable"].as_str()?.into(),
        folder,
    })
}

/// `path+file:///x/crates/core#tms-core@0.1.0` or, when folder and package have one name,
/// `path+file:///x/xtask#0.1.0`.
fn package_name(id: &str) -> Option<&str> {
    let (url, version) = id.split_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

/// Names of the workspace's packages that have a library, so that there may be doc tests.
pub(crate) fn has_libraries(repo: &Repo) -> bool {
    let mut targets = crate::repo::packages(&repo.metadata)
        .flat_map(|found| found["targets"].as_array().into_iter().flatten());
    targets.any(|target| is_kind(target, "lib"))
}

/// What `cargo tree` prints for one package's normal dependencies, one crate a line.
pub(crate) fn tree(env: &Environment, repo: &Repo, package: &str) -> Result<String> {
    let arguments =
        ["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    process::stdout_of(&mut cargo(env, repo, &arguments), BUILD_LIMIT).context("cannot list the dependencies")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_told_from_other_artifacts() {
        let line = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///r/crates/core#tms-core@0.1.0",
                "manifest_path":"/r/crates/core/Cargo.toml","target":{{"kind":["lib"],"name":"tms_core"}},
                "profile":{{"test":{test}}},"executable":"/t/debug/deps/tms_core-1"}}"#
            )
            .replace('\n', "")
        };
        let found = test_program(&line(true)).unwrap();
        assert_eq!((found.package.as_str(), found.target.as_str()), ("tms-core", "tms_core"));
        assert_eq!(found.folder, PathBuf::from("/r/crates/core"));
        assert_eq!(test_program(&line(false)), None);
        assert_eq!(test_program("warning: no JSON"), None);
    }

    #[test]
    fn package_name_stands_in_the_id_or_is_the_folder() {
        assert_eq!(package_name("path+file:///r/tests/e2e#tms-e2e@0.1.0"), Some("tms-e2e"));
        assert_eq!(package_name("path+file:///r/xtask#0.1.0"), Some("xtask"));
        assert_eq!(package_name("nonsense"), None);
    }
}
