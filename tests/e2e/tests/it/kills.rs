//! The server killed, the job killed, the job killed with the table lock in hand.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use tms_e2e::driver::Driver;
use tms_e2e::lab::Contents;
use tms_e2e::node::{JOB_MAX, Node};
use tms_e2e::tools::{is_whole_list, table_version};
use tms_e2e::wait;
use tms_e2e::world::{Base, Case, World, announce, compaction_writer, instants};

use crate::{DIFFERS, USUAL, on};

/// A driver starts within this time.
const DRIVER_MAX: Duration = Duration::from_secs(90);

fn wait_for_inflight(node: &Node, case: &Case) -> Result<()> {
    let found = || (!instants(&case.table, ".compaction.inflight").is_empty()).then_some(());
    wait::until_at_once("the compaction is inflight", JOB_MAX, found)
        .map_err(|e| e.context(node.story("compaction")))
}

fn driver_of(node: &Node) -> Result<Driver> {
    let running =
        node.until("compaction", "an attempt exists", DRIVER_MAX, |i| i["attempt"]["tag"].is_string())?;
    Driver::of(running["attempt"]["tag"].as_str().unwrap_or_default(), DRIVER_MAX)
}

fn ends_well(world: &mut World, node: &Node, case: &Case, before: &Contents) -> Result<serde_json::Value> {
    let ended = node.until_state("compaction", "succeeded", JOB_MAX)?;
    ensure!(instants(&case.table, ".compaction.requested").len() == 1, "a plan appeared or vanished");
    world.expect_rows(case, before)?;
    Ok(ended)
}

#[test]
fn a_stock_writers_compaction_is_run_after_its_callback() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let node = world.node(&case, &world.settings())?;
        let mut writer = compaction_writer();
        writer.extend(tms_e2e::world::pairs(&[
            ("hoodie.write.commit.callback.on", "true"),
            ("hoodie.write.commit.callback.http.url", &format!("{}/v1/hoodie/callback", node.url())),
        ]));
        world.lab.write(&case.table, &writer, &[(0, 9, 9, None)])?;
        let before = world.lab.read_both(&case.table)?;
        let ended = ends_well(world, &node, &case, &before)?;
        ensure!(ended["n_attempts"] == 1 && ended["trigger"] == "callback", "{ended}");
        world.writer_goes_on(&case, &compaction_writer(), (0, 199, 10, None))
    });
}

#[test]
fn a_server_killed_during_a_job_adopts_it() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let mut node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = driver_of(&node)?;
        wait_for_inflight(&node, &case)?;
        node.kill();
        ensure!(driver.is_alive(), "the driver died with the server");
        node.restart()?;
        let ended = ends_well(world, &node, &case, &before)?;
        ensure!(ended["n_attempts"] == 1, "{ended}");
        Ok(())
    });
}

/// A job that was killed in its call.
struct Killed {
    case: Case,
    node: Node,
    before: Contents,
}

impl Killed {
    fn new(world: &mut World, is_lock_in_hand: bool) -> Result<Self> {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = driver_of(&node)?;
        wait_for_inflight(&node, &case)?;
        let lock = case.table.join(".hoodie/lock");
        if is_lock_in_hand {
            wait::until_at_once("the job holds the lock", JOB_MAX, || lock.exists().then_some(()))?;
        }
        driver.signal(Signal::KILL)?;
        ensure!(
            !is_lock_in_hand || lock.exists(),
            "the lock was given back before the kill: the case shows nothing"
        );
        Ok(Self { case, node, before })
    }

    fn is_run_again(&self, world: &mut World) -> Result<()> {
        let ended = ends_well(world, &self.node, &self.case, &self.before)?;
        ensure!(
            ended["n_failed"] == 1,
            "the kill counts once, a refusal for the dead runner's heartbeat never: {ended}"
        );
        Ok(())
    }
}

/// Both wait for minutes, for Hudi's heartbeat or the lock's expiry, so they wait together.
#[test]
fn a_killed_job_is_run_again_also_one_with_the_table_lock_in_hand() {
    on(&DIFFERS, |world| {
        let plain = Killed::new(world, false)?;
        let locked = if table_version(&world.release) == 9 || is_whole_list() {
            Some(Killed::new(world, true)?)
        } else {
            None
        };
        plain.is_run_again(world)?;
        locked.map_or(Ok(()), |locked| locked.is_run_again(world))
    });
}

#[test]
fn a_cancelled_job_gives_the_lock_back_and_keeps_its_plan() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = driver_of(&node)?;
        wait_for_inflight(&node, &case)?;
        let id = node.instances("compaction")?[0]["id"].as_str().unwrap_or_default().to_owned();
        node.tell_ok(&format!("/api/v1/instances/{id}/cancel"), &json!({}))?;
        let ended = node.until("compaction", "it has ended", JOB_MAX, |i| i["is_live"] == false)?;
        wait::until(
            "the driver is gone",
            Duration::from_secs(90),
            || (!driver.is_alive()).then_some(()),
            || ended.to_string(),
        )?;
        ensure!(!case.table.join(".hoodie/lock").exists(), "the lock was left behind");
        // The cancel may come after the commit; then the instance has succeeded.
        if ended["state"] == "cancelled" {
            ensure!(instants(&case.table, ".commit").is_empty(), "cancelled, yet completed");
            node.tell_ok(&format!("/api/v1/instances/{id}/retry"), &json!({"take_over": false}))?;
        }
        ends_well(world, &node, &case, &before).map(|_| ())
    });
}
