//! `cargo xtask features`: every set of backends that a person may choose compiles, and an empty one says why
//! not.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cargo::cargo;
use crate::environment::Environment;
use crate::process::{capture, run as run_command};
use crate::repo::{Repo, packages};

const CHECK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Check the server with its default features, with each pair of store and engine, and without either.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(env: &Environment, repo: &Repo, _: &Arguments) -> Result<()> {
    println!("default features");
    run_command(&mut cargo(env, repo, &["build", "--package", "tms-server"]), CHECK_LIMIT)?;
    let features = features(repo);
    for pair in pairs(&features) {
        println!("only {pair}");
        let arguments = [
            "clippy",
            "--package",
            "tms-server",
            "--no-default-features",
            "--features",
            &pair,
            "--",
            "-D",
            "warnings",
        ];
        run_command(&mut cargo(env, repo, &arguments), CHECK_LIMIT)?;
    }
    for (kind, feature) in [("engine", first(&features, "store-")), ("store", first(&features, "engine-"))] {
        println!("no {kind}: must be refused");
        refused(env, repo, kind, feature)?;
    }
    Ok(())
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
    }
}
