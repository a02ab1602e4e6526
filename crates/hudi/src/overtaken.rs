//! The loss guard: has a write touched the file groups of a clustering plan since the plan was made?
//!
//! Executing such a plan silently undoes the write (measured, 0.15.0 and 1.2.0: upserts were lost, and the rows
//! that an insert overwrite had replaced came back). Whatever cannot be read makes the answer unknown.

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::archive::BlockDecoder;
use crate::error::{Error, ErrorKind};
use crate::history::{self, ByteBudget, HistoryEntry};
use crate::listing::Entry;
use crate::lsm::{self, LsmFile, LsmRow, RowLimits};
use crate::names::{self, HudiAction, InstantState, TimelineName, parse_timeline_name};
use crate::plan::{Plan, PlanAction};
use crate::snapshot::Snapshot;
use crate::store::Patience;
use crate::table::HudiTable;
use crate::writes::{GroupName, WriteFacts};

const OPERATION: &str = "read what a write touched";
/// Most bytes of write facts kept in memory per table; what does not fit is read again when needed.
const FACTS_WEIGHT_MAX: usize = 16 * 1024 * 1024;
/// Store clocks are coarse (S3 keeps seconds): a history file this much older than the plan still counts as newer.
const HISTORY_SLACK_SECS: i64 = 10;

/// Execution strategies of consistent-hashing resize plans. While such a plan is pending its writers write to the
/// old and the new file groups on purpose.
const DOUBLE_WRITING_STRATEGIES: [&str; 3] = [
    "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy",
    "org.apache.hudi.client.clustering.run.strategy.SingleSparkJobConsistentHashingExecutionStrategy",
    "org.apache.hudi.client.clustering.run.strategy.SingleSparkConsistentBucketClusteringExecutionStrategy",
];

/// The answer for one clustering plan. Only [`Overtaken::No`] allows the plan to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overtaken {
    /// No completed write touched the plan's file groups.
    No,
    /// Executing the plan would silently undo this write.
    Yes {
        /// Requested time of the write.
        instant: String,
        /// `<partition>/<file id>` of the file group it touched.
        file_group: String,
    },
    /// It could not be told; never counts as no.
    Unknown {
        /// What stood in the way, with the file's name.
        reason: String,
    },
}

/// What is remembered between two questions.
#[derive(Debug, Default)]
pub(crate) struct OvertakenCache {
    /// Facts of active writes, by the completed file's name.
    facts: HashMap<String, Arc<WriteFacts>>,
    weight: usize,
    /// History files that hold nothing against a plan: (plan, file, size).
    cleared: HashSet<(String, String, u64)>,
    /// Last certain answer of a plan, with a mark of the listing it was given for.
    answers: HashMap<String, (u64, Overtaken)>,
}

impl OvertakenCache {
    fn keep(&mut self, name: &str, facts: &Arc<WriteFacts>) {
        let weight = facts.weight();
        if self.weight + weight <= FACTS_WEIGHT_MAX {
            self.weight += weight;
            self.facts.insert(name.to_owned(), Arc::clone(facts));
        }
    }

    /// Drops what belongs to files and plans that are no longer there.
    fn forget_the_gone(&mut self, snapshot: &Snapshot) {
        let is_there =
            |name: &str| snapshot.files.binary_search_by(|file| file.name.as_str().cmp(name)).is_ok();
        self.facts.retain(|name, _| is_there(name));
        self.weight = self.facts.values().map(|facts| facts.weight()).sum();
        let is_pending = |plan: &str| snapshot.pending_plan(PlanAction::Clustering, plan).is_some();
        self.cleared.retain(|(plan, _, _)| is_pending(plan));
        self.answers.retain(|plan, _| is_pending(plan));
    }
}

/// A plan's file groups: what it lists, and how old its slice is.
struct Guarded {
    instant: String,
    groups: HashMap<GroupName, Slice>,
    /// Oldest slice of the plan; empty when one of them does not tell its age.
    oldest: String,
    is_double_written: bool,
}

#[derive(Default)]
struct Slice {
    files: HashSet<String>,
    /// Oldest instant of the group's slice, `None` when it is not told.
    instant: Option<String>,
}

impl Guarded {
    fn new(instant: &str, plan: &Plan) -> Self {
        let mut groups: HashMap<GroupName, Slice> = HashMap::new();
        let mut oldest = plan.groups.first().and_then(|group| group.base_instant.clone()).unwrap_or_default();
        for group in &plan.groups {
            let base_instant = group.base_instant.clone().unwrap_or_default();
            if base_instant < oldest {
                oldest.clone_from(&base_instant);
            }
            let slice = groups.entry(GroupName::new(&group.partition, &group.file_id)).or_default();
            slice.files.extend(group.files().filter_map(|file| file.rsplit('/').next()).map(str::to_owned));
            slice.instant =
                Some(slice.instant.take().map_or(base_instant.clone(), |had| had.min(base_instant)));
        }
        let is_double_written =
            plan.strategy_class.as_deref().is_some_and(|class| DOUBLE_WRITING_STRATEGIES.contains(&class));
        Self { instant: instant.to_owned(), groups, oldest, is_double_written }
    }

    /// True when a completed write could have come after the plan. Only layout 2 tells completion times; without
    /// one, every write not older than the plan's oldest slice counts.
    fn may_be_later(&self, requested: &str, completed: Option<&str>) -> bool {
        if requested == self.instant {
            return false;
        }
        match completed {
            Some(completed) => completed >= self.instant.as_str(),
            None => requested >= self.oldest.as_str(),
        }
    }

    /// What a write that may be later did to the plan's groups.
    fn judge(&self, write: &WriteName, facts: &WriteFacts) -> Overtaken {
        let yes = |group: &GroupName| Overtaken::Yes {
            instant: write.requested.clone(),
            file_group: format!("{}/{}", group.partition, group.file_id),
        };
        if let Some(group) = facts.replaced.iter().find(|group| self.groups.contains_key(group)) {
            return yes(group);
        }
        if self.is_double_written {
            return Overtaken::No;
        }
        let mut unnamed = None;
        for (group, file) in &facts.files {
            let Some(slice) = self.groups.get(group) else { continue };
            match file {
                Some(file) if slice.files.contains(file) => {}
                Some(file) if write.completed.is_none() && slice.is_newer_than(file) => {}
                Some(_) => return yes(group),
                None => unnamed = Some(group),
            }
        }
        match unnamed {
            Some(group) => Overtaken::Unknown {
                reason: format!(
                    "the write {} touched {}/{} and does not say which file it wrote",
                    write.requested, group.partition, group.file_id
                ),
            },
            None => Overtaken::No,
        }
    }
}

impl Slice {
    /// In layout 1 the instant in a file's name is that of its slice: a file of an older slice than the plan's was
    /// superseded before the plan was made, whenever its write completed.
    fn is_newer_than(&self, file: &str) -> bool {
        match (names::instant_of_data_file(file), self.instant.as_deref()) {
            (Some(of_file), Some(of_slice)) => of_file < of_slice,
            _ => false,
        }
    }
}

struct WriteName {
    requested: String,
    completed: Option<String>,
}

pub(crate) async fn overtaken(table: &HudiTable, snapshot: &Snapshot, instant: &str) -> Overtaken {
    let unknown = |reason: String| Overtaken::Unknown { reason };
    let Some(pending) = snapshot.pending_plan(PlanAction::Clustering, instant) else {
        return unknown(format!("there is no pending clustering plan {instant} on the timeline: look again"));
    };
    let plan = match &pending.plan {
        Ok(plan) => plan,
        Err(e) => return unknown(e.to_string()),
    };
    let mark = mark_of(snapshot);
    let known = table.with_caches(|caches| {
        caches.overtaken.forget_the_gone(snapshot);
        caches
            .overtaken
            .answers
            .get(instant)
            .filter(|(had, _)| *had == mark)
            .map(|(_, answer)| answer.clone())
    });
    if let Some(answer) = known {
        return answer;
    }
    let guarded = Arc::new(Guarded::new(instant, plan));
    let mut budget = ByteBudget::new(table.limits().overtaken_bytes_max);
    let answer = match by_active_writes(table, snapshot, &guarded, &mut budget).await {
        Ok(Overtaken::No) => by_history(table, snapshot, &guarded, &mut budget).await,
        other => other,
    };
    let answer = answer.unwrap_or_else(|e| unknown(e.to_string()));
    if !matches!(answer, Overtaken::Unknown { .. }) {
        table.with_caches(|caches| {
            caches.overtaken.answers.insert(instant.to_owned(), (mark, answer.clone()))
        });
    }
    answer
}

fn mark_of(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in &snapshot.files {
        (&file.name, file.size, file.modified, &file.etag).hash(&mut hasher);
    }
    hasher.finish()
}

/// What an action's completed file can hold.
enum Kind {
    Write,
    NoWrite,
    Unknown,
}

fn kind_of(action: &HudiAction) -> Kind {
    match action.finished() {
        HudiAction::Commit | HudiAction::DeltaCommit | HudiAction::ReplaceCommit => Kind::Write,
        HudiAction::Other(_) => Kind::Unknown,
        _ => Kind::NoWrite,
    }
}

/// Writes on the active timeline, newest first, one file in memory at a time.
async fn by_active_writes(
    table: &HudiTable,
    snapshot: &Snapshot,
    guarded: &Arc<Guarded>,
    budget: &mut ByteBudget,
) -> Result<Overtaken, Error> {
    let is_layout_2 = snapshot.properties.layout >= 2;
    let mut later: Vec<(TimelineName, &Entry)> = snapshot
        .files
        .iter()
        .filter_map(|file| parse_timeline_name(&file.name).map(|name| (name, file)))
        .map(|(mut name, file)| {
            name.completed = name.completed.filter(|_| is_layout_2);
            (name, file)
        })
        .filter(|(name, _)| name.state == InstantState::Completed)
        .filter(|(name, _)| guarded.may_be_later(&name.requested, name.completed.as_deref()))
        .collect();
    later.sort_by(|(a, _), (b, _)| {
        let newest = |name: &TimelineName| {
            (name.completed.clone().unwrap_or(name.requested.clone()), name.requested.clone())
        };
        newest(b).cmp(&newest(a))
    });
    let patience = Patience::new();
    for (name, file) in later {
        match kind_of(&name.action) {
            Kind::NoWrite => continue,
            Kind::Unknown => {
                let reason =
                    format!("the instant {} has the unknown action {:?}", file.name, name.action.as_str());
                return Ok(Overtaken::Unknown { reason });
            }
            Kind::Write => {}
        }
        let facts = facts_of(table, snapshot, file, &patience, budget).await?;
        let write = WriteName { requested: name.requested, completed: name.completed };
        match guarded.judge(&write, &facts) {
            Overtaken::No => {}
            other => return Ok(other),
        }
    }
    Ok(Overtaken::No)
}

async fn facts_of(
    table: &HudiTable,
    snapshot: &Snapshot,
    file: &Entry,
    patience: &Patience,
    budget: &mut ByteBudget,
) -> Result<Arc<WriteFacts>, Error> {
    if let Some(facts) = table.with_caches(|caches| caches.overtaken.facts.get(&file.name).map(Arc::clone)) {
        return Ok(facts);
    }
    let relative = format!("{}/{}", snapshot.properties.timeline_path, file.name);
    budget.spend(file.size, OPERATION, &table.store().path(&relative))?;
    let bytes_max = table.limits().metadata_bytes_max;
    let facts =
        table.store().read_decoded(&relative, bytes_max, OPERATION, patience, WriteFacts::decode).await?;
    let facts = Arc::new(facts);
    table.with_caches(|caches| caches.overtaken.keep(&file.name, &facts));
    Ok(facts)
}

/// Writes that were archived after the plan was made. A history file older than the plan's own file holds only
/// instants that had been completed before the plan, so that the planner saw them.
async fn by_history(
    table: &HudiTable,
    snapshot: &Snapshot,
    guarded: &Arc<Guarded>,
    budget: &mut ByteBudget,
) -> Result<Overtaken, Error> {
    let folder = &snapshot.properties.history_path;
    let Some(entries) = table.store().list_if_there(folder, OPERATION).await? else {
        return Ok(Overtaken::No);
    };
    let since = plan_written(snapshot, &guarded.instant);
    let is_newer = |file: &Entry| match (since, file.modified) {
        (Some(since), Some(modified)) => modified >= since,
        _ => true,
    };
    let is_layout_2 = snapshot.properties.layout >= 2;
    let files: Vec<Entry> = if is_layout_2 {
        entries.into_iter().filter(|file| !file.is_folder && file.name.ends_with(".parquet")).collect()
    } else {
        history::archive_files(entries)
    };
    let mut files: Vec<Entry> = files.into_iter().filter(is_newer).collect();
    if is_layout_2 {
        let newest = |file: &Entry| lsm::time_range(&file.name).map(|(_, max)| max.to_owned());
        files.sort_by_key(|file| Reverse(newest(file)));
    }
    for file in files {
        let key = (guarded.instant.clone(), file.name.clone(), file.size);
        if table.with_caches(|caches| caches.overtaken.cleared.contains(&key)) {
            continue;
        }
        let answer = if is_layout_2 {
            judge_lsm_file(table, folder, &file, guarded, budget).await
        } else {
            judge_archive_file(table, folder, &file, guarded, budget).await
        };
        match answer {
            Ok(Overtaken::No) => {
                table.with_caches(|caches| caches.overtaken.cleared.insert(key));
            }
            // Merged into another file since the listing, which this answer did not see.
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(e.with_hint("look again")),
            other => return other,
        }
    }
    Ok(Overtaken::No)
}

/// When the plan's file was written, by the store's own clock.
fn plan_written(snapshot: &Snapshot, instant: &str) -> Option<DateTime<Utc>> {
    let file = snapshot.files.iter().find(|file| {
        parse_timeline_name(&file.name).is_some_and(|name| {
            name.requested == instant
                && name.state == InstantState::Requested
                && name.action.finished() == HudiAction::ReplaceCommit
        })
    })?;
    file.modified?.checked_sub_signed(TimeDelta::seconds(HISTORY_SLACK_SECS))
}

fn judge_entry(
    guarded: &Guarded,
    entry: &HistoryEntry,
    facts: impl FnOnce() -> Result<WriteFacts, crate::fault::Fault>,
) -> Result<Overtaken, crate::fault::Fault> {
    let is_completed = entry.state == InstantState::Completed;
    if !is_completed || !guarded.may_be_later(&entry.requested, entry.completed.as_deref()) {
        return Ok(Overtaken::No);
    }
    match kind_of(&entry.action) {
        Kind::NoWrite => Ok(Overtaken::No),
        Kind::Unknown => {
            let action = entry.action.as_str();
            let reason =
                format!("the archived instant {} has the unknown action {action:?}", entry.requested);
            Ok(Overtaken::Unknown { reason })
        }
        Kind::Write => {
            let write = WriteName { requested: entry.requested.clone(), completed: entry.completed.clone() };
            Ok(guarded.judge(&write, &facts()?))
        }
    }
}

async fn judge_lsm_file(
    table: &HudiTable,
    folder: &str,
    file: &Entry,
    guarded: &Arc<Guarded>,
    budget: &mut ByteBudget,
) -> Result<Overtaken, Error> {
    let lsm_file = LsmFile { name: file.name.clone(), length: Some(file.size) };
    let may_be_later =
        |entry: &HistoryEntry| guarded.may_be_later(&entry.requested, entry.completed.as_deref());
    let rows = history::lsm_rows(table, folder, &lsm_file, budget).await?;
    if !rows.iter().any(|row| may_be_later(&row.entry)) {
        return Ok(Overtaken::No);
    }
    let limits = table.limits();
    let limits = RowLimits { rows_max: limits.history_entries_max, bytes_max: limits.overtaken_bytes_max };
    let guarded = Arc::clone(guarded);
    let judge = move |answer: &mut Overtaken, row: LsmRow| {
        let facts = || WriteFacts::decode(row.metadata.as_deref().unwrap_or_default());
        *answer = judge_entry(&guarded, &row.entry, facts)?;
        Ok(*answer == Overtaken::No)
    };
    history::each_lsm_row(table, folder, &lsm_file, true, limits, budget, Overtaken::No, judge).await
}

async fn judge_archive_file(
    table: &HudiTable,
    folder: &str,
    file: &Entry,
    guarded: &Arc<Guarded>,
    budget: &mut ByteBudget,
) -> Result<Overtaken, Error> {
    let mut decoder = BlockDecoder::default();
    let mut answer = Overtaken::No;
    history::read_archive(table, folder, file, budget, |block| {
        if answer != Overtaken::No {
            return Ok(());
        }
        for (entry, facts) in decoder.writes(block)? {
            match judge_entry(guarded, &entry, || Ok(facts))? {
                Overtaken::No => {}
                other => {
                    answer = other;
                    break;
                }
            }
        }
        Ok(())
    })
    .await?;
    Ok(answer)
}
