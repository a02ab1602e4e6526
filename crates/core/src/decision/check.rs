//! May this plan be executed now? The same check stands before a submission and before each leave.

use std::time::Duration;

use chrono::TimeDelta;

use crate::clock::Timestamp;
use crate::decision::job_options::LOCK_LINES;
use crate::model::action::{Action, Instant};
use crate::model::attempt::Expected;
use crate::model::instance::{Instance, ParkReason, WaitReason};
use crate::model::policy::{Concurrency, Effective, TakeOver};
use crate::model::table::LookState;
use crate::timeline::{Overtaken, Sight};

/// Table versions that TMS acts on.
pub const TABLE_VERSIONS: [u32; 3] = [6, 8, 9];
/// Age from which a lock file is no longer that of an ordinary commit. Hudi's own waits end after minutes.
pub const LOCK_AGE_NORMAL: Duration = Duration::from_secs(60);
/// Wait before a held lock, a restore or the like is looked at again.
pub const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How much later than our clock the one of a storage may be.
pub const SIGN_SKEW_MAX: TimeDelta = TimeDelta::seconds(10);
/// The key of the lock file's expiry, in minutes; compared by waiting writers with the file's age
/// (measured on 0.15.0 and 1.2.0).
pub const LOCK_EXPIRE_KEY: &str = "hoodie.write.lock.filesystem.expire";
/// Expiry that jobs get when nothing else is configured, in minutes.
pub const LOCK_EXPIRE_MINUTES: u64 = 30;

/// All that the check looks at.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The instance.
    pub instance: &'a Instance,
    /// The table's settings.
    pub effective: &'a Effective,
    /// What earlier looks saw.
    pub look: &'a LookState,
    /// When a person acknowledged what is wrong with the table.
    pub acknowledged_at: Option<Timestamp>,
    /// The timeline as it is now.
    pub sight: &'a Sight,
    /// Where the table really lies, when its path leads there by links.
    pub real_path: Option<&'a str>,
    /// The history holds the instant as completed.
    pub is_in_history: bool,
    /// Answer of the loss guard; only asked for clustering.
    pub overtaken: Option<&'a Overtaken>,
    /// Newest sign of life of whoever runs an inflight.
    pub sign: Option<Timestamp>,
    /// For how long that sign has been the newest, on the monotonic clock of this term; unset outside the leader.
    pub sign_stood: Option<Duration>,
    /// When the lock file was written.
    pub lock_since: Option<Timestamp>,
    /// Writes under way without a heartbeat.
    pub unlocked_writes: &'a [String],
    /// Now.
    pub now: Timestamp,
}

/// The answer of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it; the job must find this.
    Go(Expected),
    /// It is completed already.
    Completed,
    /// It does not stand on the timeline.
    Missing,
    /// Its action is not handed over any more.
    NotHandedOver,
    /// Hold it.
    Park(ParkReason, String),
    /// Somebody else seems to run it.
    WaitForeign(Option<Timestamp>),
    /// Not now.
    Delay(WaitReason, Timestamp),
}

/// Checks one instance.
#[must_use]
pub fn check(asked: &Asked<'_>) -> Verdict {
    if is_completed(asked) {
        return Verdict::Completed;
    }
    let is_missing = match &asked.instance.key.instant {
        Some(instant) => asked.sight.pending(asked.instance.key.action, instant).is_none(),
        None => false,
    };
    if is_missing {
        return Verdict::Missing;
    }
    let action = asked.instance.key.action;
    if !asked.instance.is_asked_for && !asked.effective.actions.contains(&action) {
        return Verdict::NotHandedOver;
    }
    table_allows(asked)
        .or_else(|| plan_allows(asked))
        .or_else(|| concurrency_allows(asked))
        .or_else(|| overtaking_allows(asked))
        .unwrap_or_else(|| runner_allows(asked))
}

fn is_completed(asked: &Asked<'_>) -> bool {
    let Some(instant) = &asked.instance.key.instant else { return false };
    let action = asked.instance.key.action;
    let is_pending = asked.sight.pending(action, instant).is_some();
    !is_pending && (asked.is_in_history || asked.sight.completed_files(action, instant) > 0)
}

/// What holds for every plan of the table.
fn table_allows(asked: &Asked<'_>) -> Option<Verdict> {
    let is_open = |since| asked.acknowledged_at.is_none_or(|at| at <= since);
    if let Some(damage) = asked.look.damage.as_ref().filter(|d| is_open(d.since)) {
        return Some(Verdict::Park(ParkReason::DamageSuspected, damage.reason.clone()));
    }
    if asked.sight.is_metadata_table {
        return Some(Verdict::Park(ParkReason::MetadataTable, "the table is a metadata table".to_owned()));
    }
    if let Some(real) = asked.real_path {
        // Under its other name it may be known, and worked on, as another table.
        return Some(Verdict::Park(ParkReason::PathAlias, format!("the path leads to {real}")));
    }
    let version = asked.sight.facts.table_version;
    if !TABLE_VERSIONS.contains(&version) {
        return Some(Verdict::Park(ParkReason::TableVersion, format!("hoodie.table.version is {version}")));
    }
    if asked.sight.upheaval.is_some() {
        return Some(Verdict::Delay(WaitReason::Upheaval, asked.now + LOOK_AGAIN));
    }
    None
}

fn plan_allows(asked: &Asked<'_>) -> Option<Verdict> {
    let action = asked.instance.key.action;
    if action == Action::LogCompaction {
        return Some(Verdict::Park(
            ParkReason::LogCompaction,
            "no SQL procedure runs a log compaction".to_owned(),
        ));
    }
    let instant = asked.instance.key.instant.as_ref()?;
    let plan = asked.sight.pending(action, instant)?;
    match &plan.content {
        Err(error) => Some(Verdict::Park(ParkReason::Unreadable, error.clone())),
        Ok(content) => content
            .outside
            .as_ref()
            .map(|path| Verdict::Park(ParkReason::ForeignPaths, format!("the plan names {path}"))),
    }
}

fn concurrency_allows(asked: &Asked<'_>) -> Option<Verdict> {
    match asked.effective.concurrency {
        None if asked.sight.facts.metadata_table.is_some() => Some(Verdict::Park(
            ParkReason::NoLock,
            format!(
                "the table has a metadata table, and without a lock acknowledged rows were lost (measured on 0.15.0); \
                 the lines of a locked writer: {LOCK_LINES}"
            ),
        )),
        Some(Concurrency::Locked) => {
            if let Some(seen) = open_unlocked_writer(asked.look, asked.acknowledged_at) {
                return Some(Verdict::Park(ParkReason::UnlockedWriter, seen.to_owned()));
            }
            let known = asked.look.unlocked_writer.as_ref().map_or(&[][..], |seen| &seen.writes);
            let unknown = asked.unlocked_writes.iter().filter(|write| !known.contains(write));
            let writes = unknown.take(3).cloned().collect::<Vec<_>>().join(", ");
            if !writes.is_empty() {
                return Some(Verdict::Park(
                    ParkReason::UnlockedWriter,
                    format!(
                        "the write {writes} is under way without a heartbeat file: its writer does not clean lazily, or died of \
                         an error; a locked job would roll it back"
                    ),
                ));
            }
            lock_allows(asked)
        }
        _ => None,
    }
}

/// What betrayed a writer as not locked, while nobody has said that it is locked now.
#[must_use]
pub fn open_unlocked_writer(look: &LookState, acknowledged_at: Option<Timestamp>) -> Option<&str> {
    let seen = look.unlocked_writer.as_ref()?;
    acknowledged_at.is_none_or(|at| at <= seen.since).then_some(seen.reason.as_str())
}

/// A lock that is older than an ordinary commit and not past its expiry stops every job: nothing is submitted.
fn lock_allows(asked: &Asked<'_>) -> Option<Verdict> {
    let age = (asked.now - asked.lock_since?).to_std().unwrap_or_default();
    let minutes = asked.effective.hudi_options.get(LOCK_EXPIRE_KEY).and_then(|v| v.parse().ok());
    let expiry = Duration::from_secs(minutes.unwrap_or(LOCK_EXPIRE_MINUTES).saturating_mul(60));
    (age > LOCK_AGE_NORMAL && age < expiry).then(|| {
        let until = (expiry - age).min(LOOK_AGAIN).max(Duration::from_secs(1));
        Verdict::Delay(WaitReason::LockHeld, asked.now + until)
    })
}

/// The loss guard: unknown never counts as no.
fn overtaking_allows(asked: &Asked<'_>) -> Option<Verdict> {
    if asked.instance.key.action != Action::Clustering {
        return None;
    }
    match asked.overtaken {
        Some(Overtaken::No) => None,
        Some(Overtaken::Yes { instant, file_group }) => Some(Verdict::Park(
            ParkReason::Overtaken,
            format!("commit {instant} touched file group {file_group} after the plan was made"),
        )),
        Some(Overtaken::Unknown { reason }) => {
            Some(Verdict::Park(ParkReason::OvertakenUnknown, reason.clone()))
        }
        None => Some(Verdict::Park(ParkReason::OvertakenUnknown, "the loss guard was not asked".to_owned())),
    }
}

/// Who else may be at work on this plan, or on any clean.
fn runner_allows(asked: &Asked<'_>) -> Verdict {
    let instance = asked.instance;
    let action = instance.key.action;
    let own = instance.key.instant.as_ref();
    if action == Action::Clean {
        return clean_allows(asked);
    }
    let Some(plan) = own.and_then(|i| asked.sight.pending(action, i)).filter(|p| p.is_inflight) else {
        return Verdict::Go(Expected::Requested);
    };
    let is_known = instance.has_called || instance.take_over;
    if is_known && !has_newer_runner(asked) {
        return Verdict::Go(Expected::InflightOfOurs);
    }
    foreign(asked, &plan.instant)
}

/// Tells whether somebody gave a sign of life after our last attempt was over and after a person allowed to take the plan
/// over: both say something of what was there then, and nothing of who came later.
fn has_newer_runner(asked: &Asked<'_>) -> bool {
    let instance = asked.instance;
    let ours = instance.attempt.as_ref().map(|a| match a.state.is_live() {
        true => a.intended_at,
        false => a.over_at.unwrap_or(a.intended_at),
    });
    let allowed = instance.take_over_at.filter(|_| instance.take_over);
    let Some(known) = ours.max(allowed) else { return false };
    asked.sign.is_some_and(|sign| sign > known + SIGN_SKEW_MAX)
}

/// Tells whether work that stands on the timeline under this instant was begun by attempts of this instance.
#[must_use]
pub fn explains(instance: &Instance, instant: &Instant) -> bool {
    let taken = instance.attempt.as_ref().and_then(|attempt| attempt.takes.as_ref());
    instance.has_called && (instance.key.instant.as_ref() == Some(instant) || taken == Some(instant))
}

/// One call executes every pending clean, so those of others count too.
fn clean_allows(asked: &Asked<'_>) -> Verdict {
    let instance = asked.instance;
    let own = instance.key.instant.as_ref();
    let pending: Vec<_> = asked.sight.pending.iter().filter(|p| p.action == Action::Clean).collect();
    let verdict = match pending.iter().find(|p| !explains(instance, &p.instant)) {
        None if own.is_some() || !pending.is_empty() => match pending.first() {
            Some(plan) if has_newer_runner(asked) => return foreign(asked, &plan.instant),
            _ => return Verdict::Go(Expected::InflightOfOurs),
        },
        None => return Verdict::Go(Expected::None),
        Some(_) if instance.take_over && !has_newer_runner(asked) => Verdict::Go(Expected::InflightOfOurs),
        Some(plan) => foreign(asked, &plan.instant),
    };
    if matches!(verdict, Verdict::Go(_)) && pending.len() > 1 {
        let instants: Vec<_> = pending.iter().take(3).map(|plan| plan.instant.as_str()).collect();
        return Verdict::Park(
            ParkReason::ForeignRunner,
            format!(
                "{} cleans are pending ({}), and a job can take over one: let Hudi's own cleaner finish them first",
                pending.len(),
                instants.join(", ")
            ),
        );
    }
    verdict
}

/// The clean of somebody else that an instance without an instant takes over.
#[must_use]
pub fn taken_over_clean<'a>(
    instance: &Instance,
    expected: Expected,
    sight: &'a Sight,
) -> Option<&'a Instant> {
    let is_asked =
        instance.key.action == Action::Clean && instance.key.instant.is_none() && expected != Expected::None;
    let plan = sight.pending.iter().find(|plan| plan.action == Action::Clean)?;
    is_asked.then_some(&plan.instant)
}

/// Waits until the other runner was silent for long enough. Without any sign of life that is counted from our first sight
/// of the plan: a `requested` alone has none.
fn foreign(asked: &Asked<'_>, instant: &Instant) -> Verdict {
    let first_seen = asked
        .look
        .unserved
        .iter()
        .find(|u| u.action == asked.instance.key.action && u.instant == *instant)
        .map(|u| u.since);
    let Some(last) = asked.sign.or(first_seen) else { return Verdict::WaitForeign(None) };
    // Two clocks: a jump of the wall clock, or a storage with another, is no silence.
    let by_wall = (asked.now - last).to_std().unwrap_or_default();
    let silence = asked.sign_stood.map_or(by_wall, |stood| by_wall.min(stood));
    if silence < asked.effective.foreign_grace {
        return Verdict::WaitForeign(asked.sign);
    }
    match asked.effective.take_over {
        TakeOver::AfterGrace => Verdict::Go(Expected::InflightOfOurs),
        TakeOver::Ask => Verdict::Park(
            ParkReason::ForeignRunner,
            format!("somebody else has it and was silent since {}", last.format("%Y-%m-%dT%H:%M:%SZ")),
        ),
    }
}

#[cfg(test)]
mod tests;
