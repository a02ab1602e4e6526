//! The loss guard: a clustering plan that a write has overtaken is never executed.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use tms_e2e::driver::Driver;
use tms_e2e::node::{JOB_MAX, Node};
use tms_e2e::wait;
use tms_e2e::world::{Base, Case, World, announce, clustering_writer, instants, joined, pairs};

use crate::{DIFFERS, USUAL, on};

const LOOK_MAX: Duration = Duration::from_secs(60);
const DRIVER_MAX: Duration = Duration::from_secs(90);

fn parked_as_overtaken(node: &Node, limit: Duration) -> Result<serde_json::Value> {
    node.until("clustering", "it is parked as overtaken", limit, |i| {
        i["state"] == "parked" && i["reason"] == "overtaken"
    })
}

#[test]
fn a_planned_clustering_runs() {
    on(&USUAL, |world| {
        let case = world.case(Base::Clustering)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        node.until_state("clustering", "succeeded", JOB_MAX)?;
        world.expect_rows(&case, &before)?;
        world.writer_goes_on(&case, &clustering_writer(false), (0, 99, 9, None))
    });
}

#[test]
fn a_clustering_overtaken_by_an_upsert_before_its_start_never_runs() {
    on(&USUAL, |world| overtaken_before_the_start(world, "upsert"));
}

#[test]
fn a_clustering_overtaken_by_an_insert_overwrite_before_its_start_never_runs() {
    on(&USUAL, |world| overtaken_before_the_start(world, "insert_overwrite"));
}

fn overtaken_before_the_start(world: &mut World, operation: &str) -> Result<()> {
    let case = world.case(Base::Clustering)?;
    let writer =
        joined(&[clustering_writer(false), pairs(&[("hoodie.datasource.write.operation", operation)])]);
    let written = world.lab.write(&case.table, &writer, &[(0, 99, 7, Some("a"))]);
    if let Err(refused) = written {
        // Hudi refuses some of these writes itself; then nothing was overtaken and the case shows nothing.
        anyhow::bail!("the writer refused its {operation}: {refused:#}");
    }
    let before = world.lab.read_both(&case.table)?;
    let node = world.node(&case, &world.settings())?;
    announce(&node, &case)?;
    let parked = parked_as_overtaken(&node, LOOK_MAX)?;
    ensure!(parked["n_attempts"] == 0, "{parked}");
    world.expect_rows(&case, &before)
}

/// The driver of the first attempt, once its clustering is inflight.
fn driver_at_work(node: &Node, case: &Case) -> Result<Driver> {
    let running =
        node.until("clustering", "an attempt exists", LOOK_MAX, |i| i["attempt"]["tag"].is_string())?;
    let driver = Driver::of(running["attempt"]["tag"].as_str().unwrap_or_default(), DRIVER_MAX)?;
    let suffixes = [".clustering.inflight", ".replacecommit.inflight"];
    let is_inflight = || suffixes.iter().any(|s| !instants(&case.table, s).is_empty()).then_some(());
    wait::until_at_once("the clustering is inflight", JOB_MAX, is_inflight)?;
    Ok(driver)
}

/// Two runs of one clustering plan destroy a table: the killed one must be over before the next begins.
#[test]
fn a_killed_clustering_is_run_again() {
    on(&USUAL, |world| {
        let case = world.case(Base::Clustering)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        driver_at_work(&node, &case)?.signal(Signal::KILL)?;
        let ended = node.until_state("clustering", "succeeded", JOB_MAX)?;
        ensure!(ended["n_failed"] == 1, "{ended}");
        let completed = instants(&case.table, ".replacecommit");
        ensure!(completed.len() == 1, "two completed files: {completed:?}");
        world.expect_rows(&case, &before)?;
        world.writer_goes_on(&case, &clustering_writer(false), (0, 99, 9, None))
    });
}

#[test]
fn a_clustering_overtaken_while_it_runs_refuses_its_own_commit() {
    on(&DIFFERS, |world| {
        let case = world.case(Base::Clustering)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = driver_at_work(&node, &case)?;
        driver.signal(Signal::STOP)?;
        let written = world.lab.write(&case.table, &clustering_writer(false), &[(0, 399, 7, None)]);
        let before = world.lab.read_both(&case.table);
        driver.signal(Signal::CONT)?;
        written?;
        let before = before?;
        ensure!(before.max_ts == 7, "the update is not there: {before:?}");
        parked_as_overtaken(&node, JOB_MAX)?;
        world.expect_rows(&case, &before)
    });
}
