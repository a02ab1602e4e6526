//! The state of one term: the live set, the turns of tables, what is due, and the one way to change an instance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

mod ages;
mod due;
mod gate;
mod transitions;

pub(crate) use self::ages::{Age, Ages};
use self::due::Due;
pub(crate) use self::gate::Gate;

use crate::alert::AlertSink;
use crate::clock::{Clock, Timestamp};
use crate::decision::board::{Board, EngineLimit};
use crate::decision::transition::{Change, apply, state_word};
use crate::engine::Engines;
use crate::error::{Error, ErrorKind};
use crate::model::attempt::{Attempt, AttemptState};
use crate::model::event::{Actor, Event, cut};
use crate::model::id::{EngineName, Incarnation, InstanceId, QueueName, TableId, Tag, Term};
use crate::model::instance::{Instance, InstanceState};
use crate::model::policy::{HistoryPolicy, LookPolicy, RetryPolicy, TableDefaults};
use crate::model::queue::Queue;
use crate::model::table::{LookState, TableRecord};
use crate::preflight::engine_limits;
use crate::preflight::{Moment, SignWatch};
use crate::service::alarms;
use crate::service::turn::Turns;
use crate::store::{Expect, InstanceWrite, LookCommit, PAGE_MAX, Store};
use crate::timeline::TimelineSource;
use crate::wake::Wakes;

/// What the Services follow.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// What tables follow when they say nothing themselves.
    pub defaults: TableDefaults,
    /// How failed attempts are repeated.
    pub retry: RetryPolicy,
    /// When tables are looked at without a trigger.
    pub look: LookPolicy,
    /// How long ended instances are kept.
    pub history: HistoryPolicy,
    /// Address that jobs ask for leave at.
    pub job_url: String,
    /// How long no job may have been found alive that the store does not know, until a hold ends.
    pub restore_quiet: Duration,
}

/// What the leader remembers of a live attempt, on the monotonic clock of this term.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// Since when the table of the attempt could not be read.
    pub(crate) unreadable_table: Option<Duration>,
    /// When this term saw the attempt first, or called the engine.
    pub since: Duration,
    /// When the engine or the job was first seen ended.
    pub ended: Option<Duration>,
    /// When the driver was last heard, and the wall-clock mark of it in the store.
    pub heard: Option<(Duration, Timestamp)>,
    /// When this term first saw that a driver had leave.
    pub leave_since: Option<Duration>,
    /// Since when the engine says that it runs while no driver has asked for leave.
    pub running_since: Option<Duration>,
    /// When its end was first wanted.
    pub end_wanted: Option<Duration>,
    /// When a readable look first missed its instant.
    pub missing: Option<Duration>,
    /// When the engine was asked to end it last.
    pub cancel_sent: Option<Duration>,
    /// Time that the engine could not be reached; it counts for no grace.
    pub unreachable: Duration,
    /// When the engine was first not reached, while it is so.
    pub unreachable_since: Option<Duration>,
    /// The timeline contradicts the attempt: look at its table from then on.
    pub look_at: Option<Duration>,
    /// No other look at its table before then: the last one gave no verdict.
    pub look_not_before: Option<Duration>,
}

/// A job of a revoked attempt that may still be alive. It can touch nothing; it is ended and then forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    /// Engine that has it.
    pub(crate) engine: EngineName,
    /// What the engine calls it, when known.
    pub(crate) handle: Option<String>,
    /// Its instance, for people.
    pub(crate) instance: InstanceId,
    /// When it was revoked.
    pub(crate) since: Duration,
    /// When it was first found alive after that.
    pub(crate) alive_since: Option<Duration>,
    /// When it is looked up next.
    pub(crate) look_at: Duration,
}

/// Watches beyond twice the live attempts that are kept before they are tidied.
const WATCHES_SPARE: usize = 64;
/// Orphans that are remembered; a further one still gets no leave, and ends by itself.
const ORPHANS_MAX: usize = 10_000;

/// The state of one term.
#[derive(Debug)]
pub struct Leader {
    /// Store.
    pub store: Arc<dyn Store>,
    /// Engines of this node.
    pub engines: Engines,
    /// Reads tables.
    pub timelines: Arc<dyn TimelineSource>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Tells people.
    pub alerts: Arc<dyn AlertSink>,
    /// Signals.
    pub wakes: Wakes,
    /// What the Services follow.
    pub policies: Policies,
    /// The term.
    pub term: Term,
    /// Mark of the store's life.
    pub incarnation: Incarnation,
    /// One flow at a time per table.
    pub turns: Turns,
    /// Cancelled when the term ends, whoever notices first.
    pub stop: CancellationToken,
    engine_limits: BTreeMap<EngineName, EngineLimit>,
    board: Mutex<Board>,
    queues: Mutex<BTreeMap<QueueName, Queue>>,
    watches: Mutex<HashMap<InstanceId, Watch>>,
    due: Mutex<Due>,
    ages: Mutex<Ages>,
    orphans: Mutex<BTreeMap<Tag, Orphan>>,
    signs: SignWatch,
    /// Whether anything may be submitted.
    pub(crate) gate: Gate,
    /// Whether every live instance was read once.
    is_whole: AtomicBool,
}

/// What a term starts with.
#[derive(Clone, Debug)]
pub struct LeaderParts {
    /// Store.
    pub store: Arc<dyn Store>,
    /// Engines of this node.
    pub engines: Engines,
    /// Reads tables.
    pub timelines: Arc<dyn TimelineSource>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Tells people.
    pub alerts: Arc<dyn AlertSink>,
    /// Signals.
    pub wakes: Wakes,
    /// What the Services follow.
    pub policies: Policies,
}

impl Leader {
    /// Loads what a term needs before anything of it runs: the live attempts and the queues. The rest of the live set is
    /// read beside the Services, by [`crate::service::live_set`].
    ///
    /// # Errors
    /// The store's. One bad row does not stop it: the store leaves it out and reports it.
    pub async fn load(parts: &LeaderParts, term: Term, stop: CancellationToken) -> Result<Arc<Self>, Error> {
        let leader = Arc::new(Self {
            store: Arc::clone(&parts.store),
            engines: parts.engines.clone(),
            timelines: Arc::clone(&parts.timelines),
            clock: Arc::clone(&parts.clock),
            alerts: Arc::clone(&parts.alerts),
            wakes: parts.wakes.clone(),
            policies: parts.policies.clone(),
            term,
            incarnation: parts.store.incarnation().await?,
            turns: Turns::new(parts.wakes.clone()),
            stop,
            engine_limits: engine_limits(&parts.engines),
            board: Mutex::default(),
            queues: Mutex::default(),
            watches: Mutex::default(),
            due: Mutex::default(),
            ages: Mutex::default(),
            orphans: Mutex::default(),
            signs: SignWatch::default(),
            gate: Gate::closed(parts.store.hold().await?.is_some()),
            is_whole: AtomicBool::new(false),
        });
        let mut cursor: Option<String> = None;
        loop {
            let page = leader.store.live_attempts(cursor.as_deref(), PAGE_MAX).await?;
            leader.catch_up(&page.items);
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        leader.reload_queues().await?;
        Ok(leader)
    }

    /// Reads the live set anew. Others go on meanwhile, so what they wrote is kept.
    pub(crate) async fn sweep(&self) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.store.live_instances(cursor.as_deref(), PAGE_MAX).await?;
            seen.extend(page.items.iter().map(|instance| instance.id));
            self.catch_up(&page.items);
            self.wakes.dispatch.wake();
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        self.is_whole.store(true, Ordering::SeqCst);
        let unseen: Vec<InstanceId> = self.board(|board| {
            let all = InstanceState::WORDS.iter().flat_map(|word| board.in_state(word));
            all.map(|i| i.id).filter(|id| !seen.contains(id)).collect()
        });
        for id in unseen {
            self.refresh(id).await?;
        }
        Ok(())
    }

    /// Reads what lives on a table, unless the live set is known to be whole; tells whether it had not all of it. So the
    /// order of a table's work holds while the live set is still being read.
    pub(crate) async fn completes_table(&self, table: TableId) -> Result<bool, Error> {
        if self.is_whole.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let live = self.store.live_of_table(table).await?;
        Ok(self.catch_up(&live))
    }

    /// Reads the queues anew.
    pub(crate) async fn reload_queues(&self) -> Result<(), Error> {
        let queues = self.store.queues().await?;
        *lock(&self.queues) = queues.into_iter().map(|q| (q.name.clone(), q)).collect();
        Ok(())
    }

    /// Brings the live set up to what Managers wrote. What cannot be read now is read by the next pass.
    pub(crate) async fn absorb(&self) -> Result<(), Error> {
        let (changed, is_overflown) = self.wakes.take_instances();
        if is_overflown {
            self.wakes.sweep.wake();
        }
        let mut done = Ok(());
        for id in changed {
            if let Err(error) = self.refresh(id).await {
                // A row that can never be read must not be asked for again and again.
                if error.is_transient() {
                    self.wakes.put_back(id);
                }
                done = Err(error);
            }
        }
        done
    }

    /// Reads one instance anew; the store is the truth.
    pub(crate) async fn refresh(&self, id: InstanceId) -> Result<Option<Instance>, Error> {
        let found = self.store.get_instance(id).await?;
        match &found {
            Some(instance) => {
                if self.take_newer(instance) {
                    alarms::of_instance(&*self.alerts, instance);
                }
            }
            None => {
                self.board(|board| board.remove(id));
                alarms::forget_instance(&*self.alerts, id);
            }
        }
        Ok(found)
    }

    /// Puts live rows that were just read into the live set, where it has none or older ones; tells whether there was any.
    pub(crate) fn catch_up(&self, rows: &[Instance]) -> bool {
        let mut is_news = false;
        for row in rows {
            if self.take_newer(row) {
                is_news = true;
                alarms::of_instance(&*self.alerts, row);
            }
        }
        is_news
    }

    /// Puts a row that was read into the live set; no when the set has it already, or newer: a slower reader may come late.
    fn take_newer(&self, row: &Instance) -> bool {
        self.board(|board| {
            let is_newer = board.get(row.id).is_none_or(|known| known.version < row.version);
            if is_newer {
                board.put(row.clone());
            }
            is_newer
        })
    }

    /// Now, by both clocks, with what is remembered of other runners.
    pub(crate) fn moment(&self) -> Moment<'_> {
        Moment { now: self.clock.now(), signs: Some((&self.signs, self.clock.monotonic())) }
    }

    /// Works on the live set; short, without waiting.
    pub(crate) fn board<T>(&self, work: impl FnOnce(&mut Board) -> T) -> T {
        work(&mut lock(&self.board))
    }

    /// Works on the live set with the limits of queues and engines.
    pub(crate) fn board_with_limits<T>(
        &self,
        work: impl FnOnce(&mut Board, &crate::decision::board::Limits<'_>) -> T,
    ) -> T {
        let queues = lock(&self.queues).clone();
        let limits = crate::decision::board::Limits { queues: &queues, engines: &self.engine_limits };
        work(&mut lock(&self.board), &limits)
    }

    /// Works on what is remembered of a live attempt.
    pub(crate) fn watch<T>(&self, id: InstanceId, work: impl FnOnce(&mut Watch) -> T) -> T {
        let now = self.clock.monotonic();
        work(lock(&self.watches).entry(id).or_insert_with(|| Watch { since: now, ..Watch::default() }))
    }

    /// Forgets what was remembered of an attempt.
    pub(crate) fn forget_watch(&self, id: InstanceId) {
        lock(&self.watches).remove(&id);
    }

    /// Forgets what a flow that came late remembered of attempts that are over.
    pub(crate) fn tidy_watches(&self, live: &[Instance]) {
        let mut watches = lock(&self.watches);
        if watches.len() > 2 * live.len() + WATCHES_SPARE {
            let live: BTreeSet<InstanceId> = live.iter().map(|i| i.id).collect();
            watches.retain(|id, _| live.contains(id));
        }
    }

    /// Has a table looked at not later than `at`.
    pub(crate) fn look_by(&self, table: TableId, at: Timestamp) {
        if self.plan_look(table, at) {
            self.wakes.timeline.wake();
        }
    }

    /// Notes that a table is to be looked at not later than `at`, without a wake; tells whether that is news.
    pub(crate) fn plan_look(&self, table: TableId, at: Timestamp) -> bool {
        let wait = (at - self.clock.now()).to_std().unwrap_or_default();
        lock(&self.due).plan(table, self.clock.monotonic().saturating_add(wait))
    }

    /// Leaves a table alone until then, whoever asks for it, and has it looked at afterwards: it cannot be read.
    pub(crate) fn rest_table(&self, table: TableId, until: Timestamp) {
        let wait = (until - self.clock.now()).to_std().unwrap_or_default();
        lock(&self.due).rest(table, self.clock.monotonic().saturating_add(wait));
    }

    /// Has what is stored of a table read again before it is left alone.
    pub(crate) fn unrest_table(&self, table: TableId) {
        lock(&self.due).unrest(table);
    }

    /// Tells whether a table is left alone, as far as is known without reading it.
    pub(crate) fn is_resting(&self, table: TableId) -> bool {
        lock(&self.due).is_resting(table, self.clock.monotonic())
    }

    /// Takes away the tables whose look is due, at most `limit`.
    pub(crate) fn take_due(&self, limit: usize) -> Vec<TableId> {
        lock(&self.due).take(self.clock.monotonic(), limit)
    }

    /// Returns the time until the next look is due.
    pub(crate) fn until_due(&self) -> Option<Duration> {
        lock(&self.due).first().map(|at| at.saturating_sub(self.clock.monotonic()))
    }

    /// Notes what a table's look saw that only time turns into an alarm.
    pub(crate) fn note_age(&self, table: TableId, age: Age) {
        if lock(&self.ages).note(table, age) {
            alarms::forget_age(&*self.alerts, table);
        }
    }

    /// Forgets a table that was removed.
    pub(crate) fn forget_table(&self, table: TableId) {
        lock(&self.ages).note(table, Age::default());
        alarms::forget_table(&*self.alerts, table);
    }

    /// Works on what stands for long; short, without waiting.
    pub(crate) fn ages<T>(&self, work: impl FnOnce(&Ages) -> T) -> T {
        work(&lock(&self.ages))
    }

    /// Makes the write of one change, or none when the state does not allow it.
    pub(crate) fn write_of(&self, before: &Instance, change: Change, reason: &str) -> Option<InstanceWrite> {
        let at = self.clock.now();
        match apply(before, change, at) {
            Ok(applied) => {
                let events = if applied.is_event {
                    vec![self.event(before, &applied.after, reason, at)]
                } else {
                    Vec::new()
                };
                Some(InstanceWrite {
                    expect: Expect::Version(before.version),
                    after: applied.after,
                    events,
                    past_attempt: applied.past_attempt,
                })
            }
            Err(refused) => {
                tracing::debug!(instance = %before.id, term = %self.term, %refused, reason, "A change was refused.");
                None
            }
        }
    }

    fn event(&self, before: &Instance, after: &Instance, reason: &str, at: Timestamp) -> Event {
        Event {
            at,
            actor: Actor::Service(self.term),
            from: state_word(before),
            to: state_word(after),
            attempt: after.attempt.as_ref().map(|a| a.number),
            reason: cut(reason, crate::model::event::REASON_BYTES_MAX),
        }
    }

    /// The first event of a new instance.
    pub(crate) fn write_new(&self, instance: Instance, reason: &str) -> InstanceWrite {
        let event = Event {
            at: instance.created_at,
            actor: Actor::Service(self.term),
            from: String::new(),
            to: state_word(&instance),
            attempt: None,
            reason: reason.to_owned(),
        };
        InstanceWrite { expect: Expect::Absent, after: instance, events: vec![event], past_attempt: None }
    }

    /// Changes one instance. `None`: the state does not allow it, and the flow ends.
    ///
    /// # Errors
    /// `Conflict` when somebody else changed it (the live set is brought up to date), `Fenced` when the term is over.
    pub(crate) async fn step(
        &self,
        before: &Instance,
        change: Change,
        reason: &str,
    ) -> Result<Option<Instance>, Error> {
        let Some(write) = self.write_of(before, change, reason) else {
            self.refresh(before.id).await?;
            return Ok(None);
        };
        let written = self.noted(self.store.write(Some(self.term), vec![write.clone()]).await, &[write])?;
        match written {
            Some(mut instances) => Ok(instances.pop()),
            None => {
                self.refresh(before.id).await?;
                Err(Error::new(ErrorKind::Conflict, "change the instance").with("instance", before.id))
            }
        }
    }

    /// Stores a look state with changes, in one transaction. `None`: somebody else changed one of them.
    pub(crate) async fn commit(
        &self,
        table: TableId,
        state: LookState,
        writes: Vec<InstanceWrite>,
    ) -> Result<Option<Vec<Instance>>, Error> {
        let age = Age::of(&state);
        let look = LookCommit { table, state, writes: writes.clone() };
        let written = self.noted(self.store.commit_look(self.term, look).await, &writes)?;
        if written.is_some() {
            self.note_age(table, age);
            return Ok(written);
        }
        for write in &writes {
            self.refresh(write.after.id).await?;
        }
        Ok(None)
    }

    /// Brings the live set up to what was written, and logs each transition.
    fn noted(
        &self,
        result: Result<Vec<Instance>, Error>,
        writes: &[InstanceWrite],
    ) -> Result<Option<Vec<Instance>>, Error> {
        let written = match result {
            Ok(written) => written,
            Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::AlreadyExists) => {
                metrics::counter!("tms_store_conflicts_total").increment(1);
                return Ok(None);
            }
            Err(e) => {
                self.heed(&e);
                return Err(e);
            }
        };
        for (instance, write) in written.iter().zip(writes) {
            for event in &write.events {
                tracing::info!(
                    instance = %instance.id, table = %instance.key.table, action = %instance.key.action,
                    instant = instance.key.instant.as_ref().map_or("next", |i| i.as_str()),
                    attempt = event.attempt, term = %self.term, from = event.from, to = event.to,
                    "Instance changed: {}.", event.reason
                );
                transitions::count(instance, event);
            }
            self.board(|board| board.put(instance.clone()));
            if !instance.takes_slot() {
                self.forget_watch(instance.id);
            }
            if let Some(attempt) = &write.past_attempt {
                self.note_orphan(instance.id, attempt);
            }
            alarms::of_instance(&*self.alerts, instance);
        }
        Ok(Some(written))
    }

    /// Ends the term when the store says that a newer one has begun, whatever call it was.
    pub(crate) fn heed(&self, error: &Error) {
        if error.kind() == ErrorKind::Fenced && !self.stop.is_cancelled() {
            tracing::warn!(term = %self.term, "This term is over: another leader writes.");
            self.stop.cancel();
        }
    }

    /// Remembers the job of an attempt that was revoked while its engine may still run it.
    fn note_orphan(&self, instance: InstanceId, attempt: &Attempt) {
        if attempt.state != AttemptState::Revoked || attempt.called_at.is_none() || attempt.ended_at.is_some()
        {
            return;
        }
        let mut orphans = lock(&self.orphans);
        if orphans.len() < ORPHANS_MAX {
            let since = self.clock.monotonic();
            let orphan = Orphan {
                engine: attempt.engine.clone(),
                handle: attempt.handle.clone(),
                instance,
                since,
                alive_since: None,
                look_at: since,
            };
            orphans.insert(attempt.tag.clone(), orphan);
        }
    }

    /// Works on the orphans; short, without waiting.
    pub(crate) fn orphans<T>(&self, work: impl FnOnce(&mut BTreeMap<Tag, Orphan>) -> T) -> T {
        work(&mut lock(&self.orphans))
    }

    /// Returns a table, or none when it was removed.
    pub(crate) async fn table(&self, id: TableId) -> Result<Option<TableRecord>, Error> {
        self.store.get_table(id).await
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
