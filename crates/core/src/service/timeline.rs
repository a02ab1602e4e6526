//! Looks at touched, silent and due tables, and turns pending plans into instances. Only it makes live instances of plans.

mod recheck;
mod search;
mod standing;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::search::{Search, gather};
use crate::alert::{Alert, AlertKind};
use crate::clock::Timestamp;
use crate::decision::reconcile::{Reconciled, Seen, reconcile};
use crate::decision::retry::{backoff, is_to_come};
use crate::decision::transition::{Change, Ending};
use crate::error::{Error, ErrorKind};
use crate::fail_point::{self, FailPoint};
use crate::model::action::Action;
use crate::model::id::{InstanceId, TableId};
use crate::model::instance::{Instance, InstanceKey, InstanceState};
use crate::model::path::BasePath;
use crate::model::policy::{Effective, RetryPolicy};
use crate::model::table::{LookTrouble, TableRecord};
use crate::service::leader::{Age, Leader};
use crate::service::monitor::conclude;
use crate::service::turn::Turn;
use crate::service::{Held, LeaderService, Loop};
use crate::store::PAGE_MAX;
use crate::timeline::Sight;

/// Looks at once; bounds the load on storage.
pub const LOOKS_AT_ONCE_MAX: usize = 32;
/// Tables that are queued for a look at most; the rest is found again by level.
const QUEUE_MAX: usize = 10_000;
/// Back-off of a table that cannot be read.
const TROUBLE_FIRST: Duration = Duration::from_secs(2);
pub(crate) const TROUBLE_MAX: Duration = Duration::from_secs(600);
/// After so long without a single look that could read the table, what was named on it is let go.
const NEVER_READ_MAX: Duration = Duration::from_secs(24 * 3600);
/// Pause before instances are looked up again that gave no verdict although their table could be read.
const PARTLY_AGAIN: TimeDelta = TimeDelta::seconds(60);
/// Failed looks after which people are told.
const TROUBLE_ALARM_AFTER: u32 = 3;
/// Pause before a look is repeated that ended without a word.
const FAILED_AGAIN: TimeDelta = TimeDelta::seconds(5);
/// Pause after a pass that the store failed.
const FAILED_PAUSE: Duration = Duration::from_millis(500);
/// Longest sleep without a pass.
const PASS_EVERY_MAX: Duration = Duration::from_secs(60);
/// Pause before what could not be read, or was changed by somebody else meanwhile, is tried again.
const AGAIN_SOON: TimeDelta = TimeDelta::milliseconds(500);

/// Looks at tables.
#[derive(Debug, Default)]
pub struct TimelineService;

#[async_trait]
impl LeaderService for TimelineService {
    fn name(&self) -> &'static str {
        "timeline"
    }

    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error> {
        let held = Arc::clone(leader);
        Ok(Box::new(Loop::start(self.name(), leader, |stop| run(held, stop))))
    }
}

async fn run(leader: Arc<Leader>, stop: CancellationToken) {
    let mut looks: JoinSet<TableId> = JoinSet::new();
    let mut waiting: VecDeque<TableId> = VecDeque::new();
    // Tables that wait for their look or are being looked at.
    let mut known: HashSet<TableId> = HashSet::new();
    let mut search = Search::new(leader.clock.monotonic());
    let mut is_scheduled = false;
    loop {
        if !is_scheduled {
            match schedule_silent(&leader).await {
                Ok(()) => is_scheduled = true,
                Err(error) => {
                    tracing::warn!(%error, "Failed to schedule looks at silent tables; it is tried again.")
                }
            }
        }
        // While enough waits, more of it would only be read again and again.
        let has_room = waiting.len() < LOOKS_AT_ONCE_MAX;
        if has_room && leader.clock.monotonic() >= search.not_before {
            search.begin(leader.clock.monotonic());
            match gather(&leader, &mut search, &known).await {
                Ok(found) => {
                    for table in found {
                        if waiting.len() >= QUEUE_MAX {
                            leader.plan_look(table, leader.clock.now() + AGAIN_SOON);
                        } else if known.insert(table) {
                            waiting.push_back(table);
                        }
                    }
                }
                Err(error) => {
                    leader.heed(&error);
                    tracing::warn!(%error, "Failed to find tables to look at.");
                    tokio::time::sleep(FAILED_PAUSE).await;
                }
            }
        }
        while looks.len() < LOOKS_AT_ONCE_MAX {
            let Some(table) = waiting.pop_front() else { break };
            let Some(turn) = leader.turns.try_take(table) else {
                known.remove(&table);
                leader.plan_look(table, leader.clock.now() + TimeDelta::milliseconds(200));
                continue;
            };
            let held = Arc::clone(&leader);
            looks.spawn(async move {
                look_at(&held, table, turn).await;
                table
            });
        }
        let has_room = waiting.len() < LOOKS_AT_ONCE_MAX;
        let sleep = if !is_scheduled {
            FAILED_PAUSE
        } else if search.is_asked && has_room {
            search.not_before.saturating_sub(leader.clock.monotonic())
        } else {
            pause(&leader, search.next_touched.min(search.next_scan), !waiting.is_empty())
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = leader.wakes.timeline.woken(), if !search.is_asked => search.is_asked = true,
            Some(ended) = looks.join_next(), if !looks.is_empty() => match ended {
                Ok(table) => {
                    known.remove(&table);
                }
                // Which one panicked is not told; a table that is known wrongly would never be looked at again.
                Err(_) => {
                    let waiting: HashSet<TableId> = waiting.iter().copied().collect();
                    let again = leader.clock.now() + FAILED_AGAIN;
                    for table in known.difference(&waiting) {
                        leader.plan_look(*table, again);
                    }
                    known = waiting;
                }
            },
            () = tokio::time::sleep(sleep) => {}
        }
    }
    looks.shutdown().await;
}

fn pause(leader: &Leader, next_scan: Duration, is_busy: bool) -> Duration {
    let until_scan = next_scan.saturating_sub(leader.clock.monotonic());
    let until_due = leader.until_due().unwrap_or(PASS_EVERY_MAX);
    // With all look slots taken the end of a look comes first; a due table must not make the loop spin.
    let floor = if is_busy { Duration::from_millis(100) } else { Duration::from_millis(5) };
    until_scan.min(until_due).min(PASS_EVERY_MAX).max(floor)
}

/// Plans the looks that need no trigger: silent tables past their heartbeat time-out, spread by their ids.
async fn schedule_silent(leader: &Leader) -> Result<(), Error> {
    let mut cursor: Option<String> = None;
    loop {
        let page = leader.store.list_tables(cursor.as_deref(), PAGE_MAX).await?;
        for record in &page.items {
            let now = leader.clock.now();
            leader.note_age(record.table.id, Age::of(&record.look));
            standing_alarms(leader, record);
            let trouble = record.look.trouble.as_ref();
            let again = trouble.map(|t| if has_back_off(t, now) { t.not_before } else { now });
            leader.look_by(record.table.id, again.unwrap_or_else(|| heartbeat_due(leader, record)));
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
        }
    }
}

fn heartbeat_due(leader: &Leader, record: &TableRecord) -> Timestamp {
    let last = [record.touch.last_heard, record.look.looked_at].into_iter().flatten().max();
    // Not later than now: a clock that was set back must not keep the table silent for longer.
    let last = last.unwrap_or(record.table.created_at).min(leader.clock.now());
    let timeout = TimeDelta::from_std(leader.policies.look.heartbeat_timeout).unwrap_or(TimeDelta::MAX);
    let share = i32::from(record.table.id.as_bytes()[15]);
    // Up to a tenth later, by the table's id, so that tables registered together are not looked at together.
    last + timeout + timeout / 2560 * share
}

/// Tells whether a table that cannot be read is still to be left alone.
pub(crate) fn has_back_off(trouble: &LookTrouble, now: Timestamp) -> bool {
    is_to_come(trouble.not_before, TROUBLE_MAX, now)
}

/// One look at one table, whatever comes of it.
async fn look_at(leader: &Arc<Leader>, table: TableId, turn: Turn) {
    let started = leader.clock.monotonic();
    let done = look_or_trouble(leader, table).await;
    drop(turn);
    let outcome = if matches!(done, Ok(true)) { "ok" } else { "error" };
    metrics::counter!("tms_looks_total", "outcome" => outcome).increment(1);
    metrics::histogram!("tms_look_seconds")
        .record(leader.clock.monotonic().saturating_sub(started).as_secs_f64());
    match done {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::Fenced => {}
        Err(error) => {
            tracing::warn!(table = %table, error = error.chain(), "A look failed; it is repeated.");
            leader.look_by(table, leader.clock.now() + FAILED_AGAIN);
            // Its place is kept that long: what could not be stored as trouble has no back-off.
            tokio::time::sleep(FAILED_PAUSE).await;
        }
    }
}

/// Tells whether the table could be read. What stopped the look stands on the table, with a back-off.
async fn look_or_trouble(leader: &Arc<Leader>, table: TableId) -> Result<bool, Error> {
    let Some(record) = leader.table(table).await? else { return Ok(true) };
    match look(leader, &record).await {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Fenced) => Err(e),
        Err(error) => trouble(leader, &record, &error).await.map(|()| false),
    }
}

async fn look(leader: &Arc<Leader>, record: &TableRecord) -> Result<(), Error> {
    let table = record.table.id;
    let effective = leader.policies.defaults.effective(&record.table.settings);
    let path = &record.table.base_path;
    let sight = leader.timelines.look(path).await?;
    let live = leader.store.live_of_table(table).await?;
    // By level too: an instance whose write was done and whose answer was lost is not in the live set yet.
    leader.catch_up(&live);
    let mut ended = BTreeMap::new();
    let mut tombstones = BTreeSet::new();
    for plan in &sight.pending {
        let key = InstanceKey { table, action: plan.action, instant: Some(plan.instant.clone()) };
        let is_of_ours = plan.action == Action::Clean || effective.actions.contains(&plan.action);
        if !is_of_ours || live.iter().any(|i| i.key == key) {
            continue;
        }
        if leader.store.has_tombstone(&key).await? {
            tombstones.insert(key);
        } else if let Some(instance) = leader.store.find_instance(&key).await? {
            ended.insert(key, instance);
        }
    }
    let history = read_history(leader, path, &live, &sight).await;
    let grace = TimeDelta::from_std(leader.policies.look.gone_grace).unwrap_or(TimeDelta::MAX);
    let plans = standing::candidates(leader, record, &live, &sight, &tombstones).await?;
    let is_looked_for = |action| action == Action::Clean || effective.actions.contains(&action);
    let now = leader.clock.now();
    let standing = standing::follow(plans, &sight, &tombstones, is_looked_for, table, grace, now);
    let is_clean_live = live.iter().any(|i| i.key.action == Action::Clean);
    let last_clean = if effective.clean_after_commits > 0 && !is_clean_live {
        leader.store.find_instance(&InstanceKey { table, action: Action::Clean, instant: None }).await?
    } else {
        None
    };
    let lock_since = leader.timelines.lock_since(path).await.unwrap_or(None);
    let seen = Seen {
        record,
        effective: &effective,
        live: &live,
        ended: &ended,
        tombstones: &tombstones,
        in_history: &history.completed,
        last_clean: last_clean.as_ref(),
        sight: &sight,
        policy: &leader.policies.look,
        touch: record.touch.touch,
        lock_since,
        excused_until: leader.gate.excused_until(),
        now: leader.clock.now(),
    };
    let mut found = reconcile(&seen);
    // No verdict for those whose history cannot be read; the others go on.
    found.changes.retain(|(instance, ..)| !history.unread.contains(&instance.id));
    found.contradicted.retain(|id| !history.unread.contains(id));
    found.state.foreign = standing::foreign(&sight, &effective);
    found.look_again = [found.look_again, standing.look_again].into_iter().flatten().min();
    for plan in &standing.gone {
        leader.store.clear_tombstone(&standing::key_of(table, plan)).await?;
    }
    found.state.removed = standing.removed;
    if !finish(leader, record, found).await? {
        return Ok(());
    }
    let Some(record) = leader.table(table).await? else { return Ok(()) };
    leader.look_by(table, heartbeat_due(leader, &record));
    for instance in leader.board(|board| running_of(board, table)) {
        conclude::note_rollbacks(leader, &instance).await?;
    }
    let unchecked = recheck::recheck(leader, &record, &effective).await?;
    partly_read(leader, &record, history.error.or(unchecked).as_ref());
    Ok(())
}

/// What the history says of live instances that the active timeline does not show.
#[derive(Default)]
struct History {
    /// Those that it holds as completed.
    completed: BTreeSet<InstanceKey>,
    /// Those of which nothing is known.
    unread: BTreeSet<InstanceId>,
    /// Why not.
    error: Option<Error>,
}

async fn read_history(leader: &Leader, path: &BasePath, live: &[Instance], sight: &Sight) -> History {
    let mut history = History::default();
    for instance in live {
        let Some(instant) = &instance.key.instant else { continue };
        let action = instance.key.action;
        if sight.pending(action, instant).is_some() || sight.completed_files(action, instant) > 0 {
            continue;
        }
        match leader.timelines.completed_in_history(path, action, instant).await {
            Ok(true) => {
                history.completed.insert(instance.key.clone());
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(instance = %instance.id, error = error.chain(), "The history cannot be read: no verdict.");
                history.unread.insert(instance.id);
                history.error.get_or_insert(error);
            }
        }
    }
    history
}

/// Tells people when the table could be read but not all that its instances need; those are looked up again soon.
fn partly_read(leader: &Leader, record: &TableRecord, error: Option<&Error>) {
    let subject = record.table.id.to_string();
    let Some(error) = error else { return leader.alerts.clear(AlertKind::TableUnreadable, &subject) };
    leader.look_by(record.table.id, leader.clock.now() + PARTLY_AGAIN);
    leader.alerts.raise(&Alert {
        kind: AlertKind::TableUnreadable,
        subject,
        text: format!(
            "instances of {} wait, since a part of it cannot be read: {error}",
            record.table.base_path
        ),
    });
}

/// Stores what a look found, and tells people; no when somebody wrote in between, and the look is repeated.
async fn finish(leader: &Leader, record: &TableRecord, found: Reconciled) -> Result<bool, Error> {
    let table = record.table.id;
    let mut writes = Vec::new();
    for instance in found.create {
        let reason = if instance.key.instant.is_some() { "its plan was found" } else { "a clean is due" };
        writes.push(leader.write_new(instance, reason));
    }
    for (before, change, reason) in found.changes {
        writes.extend(leader.write_of(&before, change, &reason));
    }
    alarms(leader, record, &found.state, found.is_not_handed_over);
    fail_point::pass(FailPoint::LookSeen);
    if leader.commit(table, found.state.clone(), writes).await?.is_none() {
        // Somebody wrote in between: the same look again, on what is stored now.
        leader.look_by(table, leader.clock.now() + AGAIN_SOON);
        return Ok(false);
    }
    fail_point::pass(FailPoint::LookStored);
    for id in found.contradicted {
        let now = leader.clock.monotonic();
        leader.watch(id, |watch| watch.look_at.get_or_insert(now).to_owned());
    }
    leader.wakes.dispatch.wake();
    leader.wakes.monitor.wake();
    if found.has_more {
        leader.look_by(table, leader.clock.now());
    }
    if let Some(at) = found.look_again {
        leader.look_by(table, at);
    }
    Ok(true)
}

/// The instances of a table whose driver was told to make its call.
fn running_of(board: &crate::decision::board::Board, table: TableId) -> Vec<Instance> {
    let has_called = |i: &&Instance| i.live_attempt().is_some_and(|a| a.call_at.is_some());
    board.of_table(table).filter(has_called).cloned().collect()
}

fn alarms(
    leader: &Leader,
    record: &TableRecord,
    state: &crate::model::table::LookState,
    is_not_handed_over: bool,
) {
    let subject = record.table.id.to_string();
    match &state.damage {
        Some(damage) => damage_alarm(leader, record, &damage.reason),
        None => leader.alerts.clear(AlertKind::DamageSuspected, &subject),
    }
    if is_not_handed_over {
        leader.alerts.raise(&Alert {
            kind: AlertKind::NotHandedOver,
            subject,
            text: format!(
                "somebody else executes plans of {}: hand over only what no writer executes",
                record.table.base_path
            ),
        });
    }
}

/// When another runner is looked at again: at the end of its grace, and not later than in a minute.
pub(crate) fn next_foreign_look(effective: &Effective, sign: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let grace = TimeDelta::from_std(effective.foreign_grace).unwrap_or(TimeDelta::MAX);
    let soon = now + TimeDelta::seconds(60);
    let end = sign.and_then(|s| s.checked_add_signed(grace)).map(|at| at + TimeDelta::milliseconds(10));
    // The grace is counted on the monotonic clock: its end by the wall clock may be past and it still runs.
    match end {
        Some(at) if at > now => at.clamp(now + TimeDelta::milliseconds(100), soon),
        _ => soon,
    }
}

/// A table that cannot be read gets a back-off, never a hot loop; nothing is concluded. `before` is the table before the
/// look, which may have stored a part of what it found.
async fn trouble(leader: &Leader, before: &TableRecord, error: &Error) -> Result<(), Error> {
    let Some(record) = leader.table(before.table.id).await? else { return Ok(()) };
    let now = leader.clock.now();
    let former = before.look.trouble.as_ref();
    let n_failed = former.map_or(0, |t| t.n_failed).saturating_add(1);
    let policy =
        RetryPolicy { max_attempts: u32::MAX, backoff_first: TROUBLE_FIRST, backoff_max: TROUBLE_MAX };
    let wait = backoff(&policy, n_failed, rand::random());
    let not_before = now + TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX);
    let mut state = record.look.clone();
    let since = former.map_or(now, |t| t.since);
    state.trouble = Some(LookTrouble { error: error.to_string(), n_failed, not_before, since });
    // A touch that no look covered is kept uncovered: the table is still to be looked at.
    leader.commit(record.table.id, state, Vec::new()).await?;
    leader.rest_table(record.table.id, not_before);
    tracing::warn!(table = %record.table.id, n_failed, error = error.chain(), "A table cannot be read.");
    if n_failed >= TROUBLE_ALARM_AFTER {
        unreadable_alarm(leader, &record, since, &error.to_string());
    }
    let is_unknown = record.look.looked_at.is_none();
    if is_unknown && (now - since).to_std().is_ok_and(|unread| unread >= NEVER_READ_MAX) {
        forget_hints(leader, record.table.id).await?;
    }
    Ok(())
}

fn unreadable_alarm(leader: &Leader, record: &TableRecord, since: Timestamp, error: &str) {
    leader.alerts.raise(&Alert {
        kind: AlertKind::TableUnreadable,
        subject: record.table.id.to_string(),
        text: format!("{} cannot be read since {since}: {error}", record.table.base_path),
    });
}

/// Raises what former terms had raised of a table and what stands still: its next look may be far away.
fn standing_alarms(leader: &Leader, record: &TableRecord) {
    if let Some(trouble) = record.look.trouble.as_ref().filter(|t| t.n_failed >= TROUBLE_ALARM_AFTER) {
        unreadable_alarm(leader, record, trouble.since, &trouble.error);
    }
    if let Some(damage) = &record.look.damage {
        damage_alarm(leader, record, &damage.reason);
    }
}

fn damage_alarm(leader: &Leader, record: &TableRecord, reason: &str) {
    leader.alerts.raise(&Alert {
        kind: AlertKind::DamageSuspected,
        subject: record.table.id.to_string(),
        text: format!("{} may be damaged: {reason}. Every clean of it is held", record.table.base_path),
    });
}

/// Ends what was only named on a table that could never be read: most likely there is none. A plan that stands there after
/// all brings its instance back with the first look that can read it.
async fn forget_hints(leader: &Leader, table: TableId) -> Result<(), Error> {
    // From the store: the live set learns of what a Manager made by looks that can read the table.
    let live = leader.store.live_of_table(table).await?;
    for instance in live.into_iter().filter(|i| i.state == InstanceState::Hinted) {
        let reason = "its table could never be read";
        match leader.step(&instance, Change::End(Ending::Obsolete, reason.to_owned()), reason).await {
            Err(e) if e.kind() != ErrorKind::Conflict => return Err(e),
            _ => {}
        }
    }
    Ok(())
}
