//! Cleans: due by policy, and beside a write that is running.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tms_e2e::lab::{Lab, write_command};
use tms_e2e::node::{JOB_MAX, Settings};
use tms_e2e::wait;
use tms_e2e::world::{Base, Case, World, announce, clustering_writer, instants, joined, lock_lines, pairs};

use crate::{USUAL, on};

const LOOK_MAX: Duration = Duration::from_secs(60);

fn cleaning(world: &World, concurrency: &'static str) -> Settings {
    let mut settings = world.settings();
    settings.concurrency = Some(concurrency);
    settings.clean_after_commits = 3;
    settings.options.extend(pairs(&[("hoodie.cleaner.commits.retained", "1")]));
    settings
}

fn data_files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|e| match e.file_type() {
            Ok(t) if t.is_dir() && e.file_name() != ".hoodie" => data_files(&e.path()),
            Ok(t) if t.is_file() && e.file_name().to_string_lossy().ends_with(".parquet") => 1,
            _ => 0,
        })
        .sum()
}

#[test]
fn a_clean_is_planned_and_run_after_so_many_commits() {
    on(&USUAL, |world| {
        let case = world.case(Base::Clean)?;
        let before = world.lab.read_both(&case.table)?;
        let n_files = data_files(&case.table);
        let node = world.node(&case, &cleaning(world, "locked"))?;
        announce(&node, &case)?;
        node.until_state("clean", "succeeded", JOB_MAX)?;
        ensure!(
            instants(&case.table, ".clean").len() == 1,
            "no completed clean: {:?}",
            instants(&case.table, "")
        );
        ensure!(data_files(&case.table) < n_files, "nothing was cleaned");
        world.expect_rows(&case, &before)?;
        world.writer_goes_on(&case, &clustering_writer(false), (0, 99, 9, None))
    });
}

/// A write that is stopped in its middle: its own session, halted while it is inflight.
struct SlowWrite {
    lab: Lab,
    jvm: Pid,
}

impl SlowWrite {
    fn begin(world: &World, case: &Case, options: &[(String, String)]) -> Result<Self> {
        let mut lab = Lab::start(&world.tools, &world.release, &case.folder.join("slow.log"))?;
        let jvm = child_of(lab.pid()).context("the writer has no JVM")?;
        let before = instants(&case.table, "");
        lab.send(&write_command(&case.table, options, &[(0, 99, 8, None)]))?;
        let begun = || instants(&case.table, ".inflight").iter().any(|n| !before.contains(n)).then_some(());
        wait::until_at_once("the write is inflight", Duration::from_secs(180), begun)?;
        kill_process(jvm, Signal::STOP).context("cannot stop the writer")?;
        Ok(Self { lab, jvm })
    }

    fn finish(mut self) -> Result<()> {
        kill_process(self.jvm, Signal::CONT).context("cannot wake the writer")?;
        self.lab.answer().map(|_| ())
    }
}

fn child_of(parent: u32) -> Option<Pid> {
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let ppid: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let is_java = line.split(|b| *b == 0).next().is_some_and(|a| a.ends_with(b"java"));
        (ppid == parent && is_java).then(|| Pid::from_raw(pid)).flatten()
    })
}

/// A writer on Hudi's defaults: no lock, failed writes cleaned eagerly.
fn default_writer() -> Vec<(String, String)> {
    let locks = lock_lines();
    clustering_writer(false).into_iter().filter(|(k, _)| !locks.iter().any(|(l, _)| l == k)).collect()
}

fn default_case(world: &mut World) -> Result<Case> {
    let case = world.case(Base::Clean)?;
    world.lab.write(&case.table, &default_writer(), &[(0, 99, 6, None)])?;
    Ok(case)
}

#[test]
fn an_exclusive_clean_leaves_a_default_writers_running_write_alone() {
    on(&USUAL, |world| {
        let case = default_case(world)?;
        let slow = SlowWrite::begin(world, &case, &default_writer())?;
        let node = world.node(&case, &cleaning(world, "exclusive"))?;
        announce(&node, &case)?;
        node.until_state("clean", "succeeded", JOB_MAX)?;
        slow.finish().context("the running write was lost")?;
        let rows = world.lab.read_both(&case.table)?;
        ensure!(rows.min_ts == 8 && rows.count == 100, "{rows:?}");
        Ok(())
    });
}

#[test]
fn a_locked_clean_is_parked_when_a_writer_turns_out_not_to_be_locked() {
    on(&USUAL, |world| {
        let case = default_case(world)?;
        let slow = SlowWrite::begin(world, &case, &default_writer())?;
        let node = world.node(&case, &cleaning(world, "locked"))?;
        announce(&node, &case)?;
        let is_parked = |i: &serde_json::Value| i["state"] == "parked" && i["reason"] == "unlocked_writer";
        let parked = node.until("clean", "it is parked as unlocked_writer", LOOK_MAX, is_parked)?;
        ensure!(parked["n_attempts"] == 0, "{parked}");
        slow.finish().context("the running write was lost")?;
        let rows = world.lab.read_both(&case.table)?;
        ensure!(rows.min_ts == 8, "{rows:?}");
        Ok(())
    });
}

#[test]
fn a_locked_clean_leaves_a_locked_writers_running_write_alone() {
    on(&USUAL, |world| {
        let case = world.case(Base::Clean)?;
        let writer = joined(&[clustering_writer(false)]);
        let slow = SlowWrite::begin(world, &case, &writer)?;
        let node = world.node(&case, &cleaning(world, "locked"))?;
        announce(&node, &case)?;
        node.until_state("clean", "succeeded", JOB_MAX)?;
        slow.finish().context("the running write was lost")?;
        let rows = world.lab.read_both(&case.table)?;
        ensure!(rows.min_ts == 8 && rows.count == 100, "{rows:?}");
        Ok(())
    });
}
