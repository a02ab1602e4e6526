//! Somebody else completes the plan, rolls it back, or seems to run it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use tms_e2e::driver::Driver;
use tms_e2e::lab::uri;
use tms_e2e::node::{JOB_MAX, Node};
use tms_e2e::world::{Base, Case, announce, instants, lock_lines, timeline};

use crate::{USUAL, on};

const LOOK_MAX: Duration = Duration::from_secs(60);

/// The only planned compaction of a table.
fn planned(case: &Case) -> Result<String> {
    let name = instants(&case.table, ".compaction.requested").pop().context("no plan")?;
    Ok(name.split('.').next().unwrap_or_default().to_owned())
}

fn submitted(node: &Node) -> Result<Driver> {
    let running =
        node.until("compaction", "an attempt exists", LOOK_MAX, |i| i["attempt"]["tag"].is_string())?;
    Driver::of(running["attempt"]["tag"].as_str().unwrap_or_default(), LOOK_MAX)
}

#[test]
fn a_plan_completed_by_somebody_else_is_not_run() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        node.tell_ok("/api/v1/queues/default/pause", &json!({}))?;
        announce(&node, &case)?;
        node.until_state("compaction", "pending", LOOK_MAX)?;
        let options: Vec<String> = lock_lines().iter().map(|(k, v)| format!("{k}={v}")).collect();
        let path = uri(&case.table);
        let instant = planned(&case)?;
        world.lab.sql(&format!(
            "call run_compaction(op => 'run', path => '{path}', timestamp => {instant}, options => '{}')",
            options.join(",")
        ))?;
        node.tell_ok("/api/v1/queues/default/resume", &json!({}))?;
        let ended = node.until_state("compaction", "succeeded", LOOK_MAX)?;
        ensure!(ended["n_attempts"] == 0, "{ended}");
        world.expect_rows(&case, &before)
    });
}

#[test]
fn a_plan_rolled_back_after_the_submission_is_left_alone() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = submitted(&node)?;
        driver.signal(Signal::STOP)?;
        ensure!(instants(&case.table, ".compaction.inflight").is_empty(), "the driver was stopped too late");
        let plan = timeline(&case.table).join(format!("{}.compaction.requested", planned(&case)?));
        std::fs::remove_file(plan).context("cannot take the plan away")?;
        // On layout 1 the log files written since belong to the plan's slices and are not read without it.
        let before = world.lab.read_both(&case.table)?;
        driver.signal(Signal::CONT)?;
        let ended = node.until_state("compaction", "obsolete", JOB_MAX)?;
        ensure!(instants(&case.table, ".commit").is_empty(), "something was committed: {ended}");
        world.expect_rows(&case, &before)
    });
}

#[test]
fn a_foreign_inflight_is_left_alone_until_a_person_takes_it_over() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let inflight = timeline(&case.table).join(format!("{}.compaction.inflight", planned(&case)?));
        std::fs::write(inflight, "").context("cannot make the inflight")?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let waiting = node.until_state("compaction", "waiting_foreign", LOOK_MAX)?;
        ensure!(waiting["n_attempts"] == 0, "{waiting}");
        let id = waiting["id"].as_str().unwrap_or_default();
        let retry = format!("/api/v1/instances/{id}/retry");
        ensure!(node.tell(&retry, &json!({"take_over": false}))? >= 400, "taken over without being told to");
        node.tell_ok(&retry, &json!({"take_over": true}))?;
        node.until_state("compaction", "succeeded", JOB_MAX)?;
        world.expect_rows(&case, &before)
    });
}
