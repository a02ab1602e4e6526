//! Compares what writers and engine wrote down. It asks TMS nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use tms_core::engine::simulated::records::{ACTS_FILE, Record, STARTS_FILE, What, read};

use crate::crash::lake::Lake;
use crate::crash::writers::Diary;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hand-overs that were acknowledged.
    pub acknowledged: usize,
    /// Acknowledged plans that were not completed.
    pub lost: Vec<String>,
    /// What must never be: two holders, two completed files, two drivers at once.
    pub doubled: Vec<String>,
    /// Drivers that started.
    pub starts: usize,
    /// Drivers that held a plan.
    pub holders: usize,
    /// Plans completed.
    pub completed: usize,
    /// Attempts that the engine ended without completing.
    pub failed: usize,
}

/// Reads the records and counts.
///
/// # Errors
/// Records cannot be read.
pub fn count(lake: &Lake, diary: &Diary, records: &Path) -> Result<Counts> {
    let starts = read(records, STARTS_FILE).context("cannot read the starts")?;
    let acts = read(records, ACTS_FILE).context("cannot read the acts")?;
    let mut counts =
        Counts { acknowledged: diary.acknowledged.len(), starts: starts.len(), ..Counts::default() };
    for entry in &diary.acknowledged {
        match lake.completed(entry.table, &entry.instant) {
            0 => counts.lost.push(format!("t{} {}", entry.table, entry.instant)),
            1 => counts.completed += 1,
            n => counts.doubled.push(format!("t{} {}: {n} completed files", entry.table, entry.instant)),
        }
    }
    for entry in &diary.unanswered {
        if lake.completed(entry.table, &entry.instant) > 1 {
            counts.doubled.push(format!("t{} {}: completed twice", entry.table, entry.instant));
        }
    }
    doubled_drivers(&acts, &mut counts);
    Ok(counts)
}

/// One holder per attempt, one driver at a time per plan.
fn doubled_drivers(acts: &[Record], counts: &mut Counts) {
    let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut at_work: BTreeMap<(String, String), String> = BTreeMap::new();
    for act in acts {
        let plan = || {
            let instant = act.instant.as_ref().map_or_else(|| "next".to_owned(), ToString::to_string);
            (act.base_path.clone().unwrap_or_default(), instant)
        };
        match act.what {
            What::Double | What::CompletedTwice => {
                counts.doubled.push(format!("{:?} {:?}", act.what, plan()))
            }
            What::Holding => {
                counts.holders += 1;
                let runs = holders.entry(act.tag.to_string()).or_default();
                runs.insert(act.run_id.to_string());
                if runs.len() > 1 {
                    counts.doubled.push(format!("two holders of {}", act.tag));
                }
                let other = at_work.insert(plan(), act.run_id.to_string());
                if other.is_some_and(|other| other != act.run_id.as_str()) {
                    counts.doubled.push(format!("two drivers at once on {:?}", plan()));
                }
            }
            What::Failed | What::Stopped => {
                counts.failed += 1;
                at_work.remove(&plan());
            }
            What::Released | What::Completed => {
                at_work.remove(&plan());
            }
            What::Start | What::Touch | What::Exit => {}
        }
    }
}
