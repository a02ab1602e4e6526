//! `cargo xtask features`: every set of backends that a person may choose compiles and holds nothing of the others, and
//! an empty one says why not.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cargo::cargo;
use crate::components::rocksdb::{self, Effort};
use crate::environment::Environment;
use crate::process::{capture, run as run_command, stdout_of};
use crate::repo::{Repo, packages};

const CHECK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Check the server with its default features, with each pair of store and engine, and without either.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// What a backend leaves in a server that has it and in no other: a crate of its tree, and a piece of its debug binary (the
/// folder of a source, in the text of a panic).
struct Backend {
    feature: &'static str,
    krate: &'static str,
    mark: &'static str,
}

const BACKENDS: [Backend; 3] = [
    Backend { feature: "store-redb", krate: "redb", mark: "/redb-" },
    Backend { feature: "store-rocksdb", krate: "librocksdb-sys", mark: "rocksdb::DBImpl::" },
    Backend { feature: "engine-spark", krate: "tms-engine-spark", mark: "engine-spark/src/" },
];
/// A word of the tests' fail points: in no server that is built without them.
const FAIL_POINT_MARK: &str = "Kills the server when it passes";
/// What no set of features brings into a server yet.
const NEVER: [&str; 3] = ["sqlx", "openssl-sys", "native-tls"];

pub(crate) fn run(env: &Environment, repo: &Repo, _: &Arguments) -> Result<()> {
    rocksdb::set_up(env, repo, Effort::Compile)?;
    let features = features(repo);
    for feature in features.iter().filter(|name| name.starts_with("store-") || name.starts_with("engine-")) {
        ensure!(BACKENDS.iter().any(|known| known.feature == feature), "features.rs does not know {feature}");
    }
    let default = ["store-redb", "engine-spark"];
    println!("default features");
    run_command(&mut cargo(env, repo, &["build", "--package", "tms-server"]), CHECK_LIMIT)?;
    holds_only(env, repo, &default, &[])?;
    for set in pairs(&features).into_iter().chain([all(&features)]) {
        println!("only {set}");
        let chosen = ["--package", "tms-server", "--no-default-features", "--features", &set];
        let lints = ["--all-targets", "--", "-D", "warnings"];
        run_command(&mut cargo(env, repo, &[&["clippy"], &chosen[..], &lints].concat()), CHECK_LIMIT)?;
        run_command(&mut cargo(env, repo, &[&["build"], &chosen[..]].concat()), CHECK_LIMIT)?;
        let backends: Vec<&str> = set.split(',').collect();
        holds_only(env, repo, &backends, &chosen[2..])?;
    }
    // The default one again: others expect it in the build folder.
    run_command(&mut cargo(env, repo, &["build", "--package", "tms-server"]), CHECK_LIMIT)?;
    for (kind, feature) in [("engine", first(&features, "store-")), ("store", first(&features, "engine-"))] {
        println!("no {kind}: must be refused");
        refused(env, repo, kind, feature)?;
    }
    Ok(())
}

/// Checks the tree and the binary that were just built: all of the chosen backends, nothing of the others.
fn holds_only(env: &Environment, repo: &Repo, backends: &[&str], chosen: &[&str]) -> Result<()> {
    let listed =
        ["tree", "--package", "tms-server", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let tree = stdout_of(&mut cargo(env, repo, &[&listed, chosen].concat()), CHECK_LIMIT)?;
    let program = repo.built("tms-server");
    let binary = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    for Backend { feature, krate, mark } in BACKENDS {
        let is_chosen = backends.contains(&feature);
        ensure!(has_crate(&tree, krate) == is_chosen, "{backends:?}: {krate} in the tree: {}", !is_chosen);
        ensure!(holds(&binary, mark) == is_chosen, "{backends:?}: {mark:?} in the binary: {}", !is_chosen);
    }
    for krate in NEVER {
        ensure!(!has_crate(&tree, krate), "{backends:?}: {krate} is in the tree");
    }
    ensure!(!holds(&binary, FAIL_POINT_MARK), "{backends:?}: fail points are in the binary");
    Ok(())
}

/// Whether what `cargo tree` printed, one `name vVERSION` a line, names a crate.
fn has_crate(tree: &str, krate: &str) -> bool {
    tree.lines().any(|line| line.split_whitespace().next() == Some(krate))
}

fn holds(binary: &[u8], mark: &str) -> bool {
    binary.windows(mark.len()).any(|window| window == mark.as_bytes())
}

fn features(repo: &Repo) -> BTreeSet<String> {
    let server = packages(&repo.metadata).filter(|package| package["name"] == "tms-server");
    server
        .flat_map(|server| server["features"].as_object().into_iter().flat_map(|all| all.keys().cloned()))
        .collect()
}

fn first<'a>(features: &'a BTreeSet<String>, family: &str) -> Option<&'a String> {
    features.iter().find(|name| name.starts_with(family))
}

/// Each store with each engine, as cargo wants them.
fn pairs(features: &BTreeSet<String>) -> Vec<String> {
    let stores = features.iter().filter(|name| name.starts_with("store-"));
    let engines = |store: &String| {
        let store = store.clone();
        features
            .iter()
            .filter(|name| name.starts_with("engine-"))
            .map(move |engine| format!("{store},{engine}"))
            .collect::<Vec<_>>()
    };
    stores.flat_map(engines).collect()
}

/// All backends at once.
fn all(features: &BTreeSet<String>) -> String {
    let backends = features.iter().filter(|name| name.starts_with("store-") || name.starts_with("engine-"));
    backends.cloned().collect::<Vec<_>>().join(",")
}

fn refused(env: &Environment, repo: &Repo, kind: &str, feature: Option<&String>) -> Result<()> {
    let mut cargo = cargo(env, repo, &["check", "--package", "tms-server", "--no-default-features"]);
    cargo.args(feature.into_iter().flat_map(|feature| ["--features", feature.as_str()]));
    let said = capture(&mut cargo, CHECK_LIMIT)?;
    ensure!(!said.is_ok(), "a server without any {kind} compiles");
    let message = said.stderr.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
    ensure!(message.contains(kind), "the error does not say that a {kind} is missing:\n{}", said.tail(20));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_meets_each_engine() {
        let features = ["default", "store-a", "store-b", "engine-x", "election-z"].map(str::to_owned).into();
        assert_eq!(pairs(&features), ["store-a,engine-x", "store-b,engine-x"]);
        assert_eq!(first(&features, "engine-").map(String::as_str), Some("engine-x"));
        assert_eq!(all(&features), "engine-x,store-a,store-b");
    }

    #[test]
    fn a_crate_is_told_from_one_whose_name_begins_like_it() {
        assert!(has_crate("tms-core v0.1.0 (/x)\nredb v4.6.0\n", "redb"));
        assert!(!has_crate("redb-derive v1.0.0\n", "redb"));
        assert!(holds(b"a panic in /r/redb-4.6.0/src", "/redb-"));
        assert!(!holds(b"kind = redb", "/redb-"));
    }
}
