//! Two drivers of one attempt, and the driver of an attempt that is over.

use std::time::Duration;

use anyhow::{Result, ensure};
use tms_e2e::driver::{Driver, Twin};
use tms_e2e::node::{JOB_MAX, Node};
use tms_e2e::world::{Base, Case, World, announce, instants};
use tms_e2e::{lab::Contents, wait};

use crate::{DIFFERS, USUAL, on};

const DRIVER_MAX: Duration = Duration::from_secs(90);
/// The job's exit code when it got no leave.
const NO_LEAVE: i32 = 10;

fn tag_of(node: &Node) -> Result<String> {
    let running =
        node.until("compaction", "an attempt exists", DRIVER_MAX, |i| i["attempt"]["tag"].is_string())?;
    Ok(running["attempt"]["tag"].as_str().unwrap_or_default().to_owned())
}

/// One of the two held leave; the other left untouched.
fn one_ran(world: &mut World, node: &Node, case: &Case, before: &Contents, twin: Twin) -> Result<()> {
    let ended = node.until_state("compaction", "succeeded", JOB_MAX)?;
    let code = twin.wait()?.code();
    // The twin may have been first; then the driver that TMS started is the one without leave.
    ensure!(
        code == Some(NO_LEAVE) || code == Some(0),
        "the twin ended with {code:?}\n{}",
        node.story("compaction")
    );
    ensure!(ended["n_attempts"] == 1 || code == Some(NO_LEAVE), "{ended}");
    ensure!(
        instants(&case.table, ".commit").len() == 1,
        "two completed files: {:?}",
        instants(&case.table, "")
    );
    world.expect_rows(case, before)
}

#[test]
fn two_drivers_of_one_attempt_at_once_have_one_holder() {
    on(&DIFFERS, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = Driver::of(&tag_of(&node)?, DRIVER_MAX)?;
        let twin = driver.run_again(&case.folder.join("twin.log"))?;
        one_ran(world, &node, &case, &before, twin)
    });
}

#[test]
fn a_second_driver_ten_seconds_later_exits_untouched() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = Driver::of(&tag_of(&node)?, DRIVER_MAX)?;
        wait::pause(Duration::from_secs(10));
        let twin = driver.run_again(&case.folder.join("twin.log"))?;
        one_ran(world, &node, &case, &before, twin)
    });
}

#[test]
fn the_job_of_a_finished_attempt_exits_untouched() {
    on(&USUAL, |world| {
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let node = world.node(&case, &world.settings())?;
        announce(&node, &case)?;
        let driver = Driver::of(&tag_of(&node)?, DRIVER_MAX)?;
        node.until_state("compaction", "succeeded", JOB_MAX)?;
        let files = instants(&case.table, "");
        let twin = driver.run_again(&case.folder.join("twin.log"))?;
        let code = twin.wait()?.code();
        ensure!(code == Some(NO_LEAVE), "the job of a finished attempt ended with {code:?}");
        ensure!(instants(&case.table, "") == files, "the timeline changed");
        world.expect_rows(&case, &before)
    });
}
