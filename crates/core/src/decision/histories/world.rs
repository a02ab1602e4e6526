//! The world outside the leader: timelines, writers, the engine, drivers, people; and what must hold of it all.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta};

use crate::clock::Timestamp;
use crate::decision::board::{Board, EngineLimit};
use crate::decision::transition::{Change, Closing, Conclusion, Next, Refused, apply};
use crate::engine::JobState;
use crate::model::action::{Action, Instant};
use crate::model::attempt::{AttemptEnd, Holder, JobReport};
use crate::model::id::{EngineName, InstanceId, QueueName, RunId, TableId, Tag};
use crate::model::instance::{CancelAsked, Instance, InstanceKey, InstanceState, WaitReason};
use crate::model::queue::Queue;
use crate::model::request::Trigger;

/// Live attempts at once.
pub(super) const RUNNING_MAX: u32 = 2;
/// Silence after which a driver is no longer known to be alive.
pub(super) const SILENCE: TimeDelta = TimeDelta::seconds(60);

/// How the engine answers a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubmitMood {
    Accept,
    AcceptQueued,
    LoseAfterStart,
    LoseBeforeStart,
    LoseAndStartLate,
    Refuse,
}

/// How the engine answers questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineMood {
    Honest,
    Unreachable,
    /// It was restarted and knows nothing.
    Forgetful,
    /// It ignores cancels.
    Stubborn,
    /// It takes another job for ours.
    ForeignTag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanStatus {
    Requested,
    Inflight,
    Completed,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Started,
    HasLeave,
    /// Between its call and its end: the only phase that touches the table.
    Touching,
    Leaving,
    Dead,
}

#[derive(Clone, Debug)]
struct Driver {
    tag: Tag,
    run: RunId,
    phase: Phase,
    is_told_to_stop: bool,
}

/// The whole world.
pub(super) struct World {
    pub(super) now: Timestamp,
    /// What is durable.
    pub(super) store: BTreeMap<InstanceId, Instance>,
    /// What the leader has in memory.
    pub(super) board: Board,
    pub(super) plans: BTreeMap<InstanceKey, PlanStatus>,
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) engines: BTreeMap<EngineName, EngineLimit>,
    pub(super) engine_mood: EngineMood,
    pub(super) is_readable: bool,
    drivers: Vec<Driver>,
    /// Submissions whose answer was lost and that may still start.
    late: Vec<Tag>,
    /// Runs that ever had leave, by attempt.
    holders: BTreeMap<Tag, BTreeSet<String>>,
    tags: BTreeSet<Tag>,
    n_made: u32,
}

fn table(n: u8) -> TableId {
    TableId::from_bytes([n; 16])
}

impl World {
    pub(super) fn new() -> Self {
        let engine = EngineLimit { running_max: RUNNING_MAX, families: &["spark"], is_simulation: false };
        let queue = Queue::new(QueueName::default());
        Self {
            now: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
            store: BTreeMap::new(),
            board: Board::new(),
            plans: BTreeMap::new(),
            queues: BTreeMap::from([(queue.name.clone(), queue)]),
            engines: BTreeMap::from([(EngineName::default(), engine)]),
            engine_mood: EngineMood::Honest,
            is_readable: true,
            drivers: Vec::new(),
            late: Vec::new(),
            holders: BTreeMap::new(),
            tags: BTreeSet::new(),
            n_made: 0,
        }
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now += TimeDelta::seconds(seconds);
    }

    pub(super) fn pause(&mut self, is_paused: bool) {
        self.queues.values_mut().for_each(|queue| queue.is_paused = is_paused);
    }

    /// Stores a change as the store would, and shows it to the leader.
    pub(super) fn change(&mut self, id: InstanceId, change: Change) -> Result<(), Refused> {
        let before = &self.store[&id];
        let mut after = apply(before, change, self.now)?.after;
        after.version = before.version.next();
        self.board.put(after.clone());
        self.store.insert(id, after);
        Ok(())
    }

    pub(super) fn insert(&mut self, key: InstanceKey, state: InstanceState) {
        let has_live = self.store.values().any(|i| i.key == key && !i.state.is_ended());
        assert!(!has_live, "the store refuses a second live instance of one key");
        let instance = Instance::new(key, state, Trigger::Callback, self.now);
        self.board.put(instance.clone());
        self.store.insert(instance.id, instance);
    }

    /// Returns the newest instance of a key.
    pub(super) fn newest(&self, key: &InstanceKey) -> Option<&Instance> {
        self.store.values().filter(|i| i.key == *key).max_by_key(|i| i.id)
    }

    pub(super) fn status(&self, key: &InstanceKey) -> Option<PlanStatus> {
        self.plans.get(key).copied()
    }

    // Writers and people.

    pub(super) fn plan(&mut self, n_table: u8, action: u8, hinted: bool) {
        self.n_made += 1;
        let action = [Action::Compaction, Action::Clustering, Action::Clean][usize::from(action) % 3];
        let instant: Instant = format!("{:017}", self.n_made).parse().unwrap();
        let key = InstanceKey { table: table(n_table), action, instant: Some(instant) };
        self.plans.insert(key.clone(), PlanStatus::Requested);
        if hinted {
            self.insert(key, InstanceState::Hinted);
        }
    }

    fn pick_plan(&self, which: u8) -> Option<InstanceKey> {
        self.plans.keys().nth(usize::from(which) % self.plans.len().max(1)).cloned()
    }

    pub(super) fn vanish(&mut self, which: u8) {
        let Some(key) = self.pick_plan(which) else { return };
        if matches!(self.plans[&key], PlanStatus::Requested | PlanStatus::Inflight) {
            self.plans.insert(key, PlanStatus::Gone);
        }
    }

    pub(super) fn complete_elsewhere(&mut self, which: u8) {
        let Some(key) = self.pick_plan(which) else { return };
        if self.plans[&key] == PlanStatus::Requested {
            self.plans.insert(key, PlanStatus::Completed);
        }
    }

    fn pick_instance(&self, which: u8) -> Option<InstanceId> {
        self.store.keys().nth(usize::from(which) % self.store.len().max(1)).copied()
    }

    pub(super) fn cancel(&mut self, which: u8) {
        let Some(id) = self.pick_instance(which) else { return };
        let ask = CancelAsked { by: "somebody".to_owned(), at: self.now };
        drop(self.change(id, Change::AskCancel(ask)));
    }

    pub(super) fn retry(&mut self, which: u8) {
        let Some(id) = self.pick_instance(which) else { return };
        let instance = &self.store[&id];
        let is_newest = self.newest(&instance.key).is_some_and(|newest| newest.id == id);
        let is_parked = matches!(instance.state, InstanceState::Parked { .. });
        if is_newest && (is_parked || instance.state.is_ended()) {
            drop(self.change(id, Change::Reopen { take_over: true }));
        }
    }

    // The engine.

    /// Takes a submission; tells whether the answer is known and says yes.
    pub(super) fn take_submission(&mut self, tag: &Tag, mood: SubmitMood) {
        assert!(self.tags.insert(tag.clone()), "{tag} was submitted twice");
        match mood {
            SubmitMood::Accept | SubmitMood::LoseAfterStart => self.start_driver(tag, Phase::Started),
            SubmitMood::AcceptQueued => self.start_driver(tag, Phase::Queued),
            SubmitMood::LoseAndStartLate => self.late.push(tag.clone()),
            SubmitMood::LoseBeforeStart | SubmitMood::Refuse => {}
        }
    }

    fn start_driver(&mut self, tag: &Tag, phase: Phase) {
        let run = format!("{:032x}", self.drivers.len()).parse().unwrap();
        self.drivers.push(Driver { tag: tag.clone(), run, phase, is_told_to_stop: false });
    }

    pub(super) fn start_late(&mut self, which: u8) {
        if !self.late.is_empty() {
            let tag = self.late.remove(usize::from(which) % self.late.len());
            self.start_driver(&tag, Phase::Started);
        }
    }

    pub(super) fn start_double(&mut self, which: u8) {
        if let Some(tag) = self.pick_driver(which).map(|n| self.drivers[n].tag.clone()) {
            self.start_driver(&tag, Phase::Started);
        }
    }

    /// What the engine says about an attempt. It never lies about death, whatever its mood.
    pub(super) fn engine_says(&self, tag: &Tag) -> JobState {
        let what = String::new();
        match self.engine_mood {
            EngineMood::Unreachable => return JobState::Unreachable { reason: what },
            EngineMood::Forgetful => return JobState::Absent { is_proof: false, what },
            EngineMood::ForeignTag => return JobState::Other { what },
            EngineMood::Honest | EngineMood::Stubborn => {}
        }
        let phases: Vec<Phase> = self.drivers.iter().filter(|d| d.tag == *tag).map(|d| d.phase).collect();
        let has_ended = phases.iter().all(|phase| *phase == Phase::Dead);
        match () {
            () if phases.is_empty() => {
                JobState::Absent { is_proof: !self.late.contains(tag) && self.tags.contains(tag), what }
            }
            () if has_ended => JobState::Ended { how: "exit 1".to_owned(), is_settled: true },
            () if phases.iter().all(|p| matches!(p, Phase::Queued | Phase::Dead)) => JobState::Queued,
            () => JobState::Running,
        }
    }

    pub(super) fn engine_cancels(&mut self, tag: &Tag, is_kill: bool) {
        if matches!(self.engine_mood, EngineMood::Stubborn | EngineMood::Unreachable) {
            return;
        }
        for driver in self.drivers.iter_mut().filter(|d| d.tag == *tag) {
            if is_kill || driver.phase != Phase::Touching {
                driver.phase = Phase::Dead;
            } else {
                driver.is_told_to_stop = true;
            }
        }
    }

    pub(super) fn tell_to_stop(&mut self, tag: &Tag) {
        self.drivers.iter_mut().filter(|d| d.tag == *tag).for_each(|d| d.is_told_to_stop = true);
    }

    // Drivers.

    fn pick_driver(&self, which: u8) -> Option<usize> {
        let alive: Vec<usize> =
            (0..self.drivers.len()).filter(|n| self.drivers[*n].phase != Phase::Dead).collect();
        alive.get(usize::from(which) % alive.len().max(1)).copied()
    }

    pub(super) fn kill(&mut self, which: u8) {
        if let Some(n) = self.pick_driver(which) {
            self.drivers[n].phase = Phase::Dead;
        }
    }

    pub(super) fn step_driver(&mut self, which: u8, luck: u8) {
        let Some(n) = self.pick_driver(which) else { return };
        let id = self.drivers[n].tag.instance();
        let key = self.store[&id].key.clone();
        let phase = self.drivers[n].phase;
        self.drivers[n].phase = match phase {
            Phase::Queued => Phase::Started,
            Phase::Started if self.ask_for_leave(n, false) => Phase::HasLeave,
            Phase::HasLeave if self.ask_for_leave(n, true) => Phase::Touching,
            Phase::Started | Phase::HasLeave | Phase::Leaving | Phase::Dead => Phase::Dead,
            Phase::Touching => self.touch(n, &key, luck),
        };
    }

    /// Asks for leave, once the check of the timeline was repeated.
    fn ask_for_leave(&mut self, n: usize, is_call: bool) -> bool {
        let Driver { tag, run, .. } = self.drivers[n].clone();
        let instance = &self.store[&tag.instance()];
        let is_current = instance.live_attempt().is_some_and(|a| a.tag == tag);
        let may_run = match self.status(&instance.key) {
            Some(PlanStatus::Requested) => true,
            Some(PlanStatus::Inflight) => instance.has_called,
            _ => false,
        };
        if !is_current || !may_run || !self.is_readable {
            return false;
        }
        let leave = self.change(instance.id, Change::Leave { run: run.clone(), is_call, place: None });
        if leave.is_ok() {
            self.holders.entry(tag).or_default().insert(run.to_string());
        }
        leave.is_ok()
    }

    /// One step of a call: the plan becomes inflight, then completed; or the call throws, stops, or just goes on.
    fn touch(&mut self, n: usize, key: &InstanceKey, luck: u8) -> Phase {
        let status = self.plans[key];
        if self.drivers[n].is_told_to_stop {
            return self.report(n, "stopped", 3);
        }
        match status {
            PlanStatus::Completed | PlanStatus::Gone => self.report(n, "threw", 3),
            _ if luck % 8 == 7 => self.report(n, "threw", 3),
            PlanStatus::Requested => {
                self.plans.insert(key.clone(), PlanStatus::Inflight);
                self.heartbeat(n)
            }
            PlanStatus::Inflight if luck.is_multiple_of(4) => self.heartbeat(n),
            PlanStatus::Inflight => {
                self.plans.insert(key.clone(), PlanStatus::Completed);
                if luck % 16 == 3 { Phase::Dead } else { self.report(n, "returned", 0) }
            }
        }
    }

    fn heartbeat(&mut self, n: usize) -> Phase {
        let id = self.drivers[n].tag.instance();
        if self.is_holder(n) {
            self.change(id, Change::Heard(None)).unwrap();
        }
        Phase::Touching
    }

    fn report(&mut self, n: usize, outcome: &str, exit_code: i32) -> Phase {
        let id = self.drivers[n].tag.instance();
        let (error, rows) = (Vec::new(), Vec::new());
        let report = JobReport { outcome: outcome.to_owned(), exit_code, error, rows, at: self.now };
        if self.is_holder(n) {
            self.change(id, Change::Report(report)).unwrap();
        }
        Phase::Leaving
    }

    fn is_holder(&self, n: usize) -> bool {
        let driver = &self.drivers[n];
        self.store[&driver.tag.instance()]
            .live_attempt()
            .is_some_and(|a| a.tag == driver.tag && a.holder == Holder::Run(driver.run.clone()))
    }

    // What must hold.

    pub(super) fn check(&self) {
        let mut touched = BTreeSet::new();
        for (n, driver) in self.drivers.iter().enumerate() {
            if driver.phase != Phase::Touching {
                continue;
            }
            let instance = &self.store[&driver.tag.instance()];
            assert!(touched.insert(instance.key.table), "two drivers touch one table: {}", self.shown());
            assert!(self.is_holder(n), "a driver touches without leave: {}", self.shown());
        }
        for (tag, runs) in &self.holders {
            assert_eq!(runs.len(), 1, "two holders of {tag}");
        }
        let mut live_keys = BTreeSet::new();
        let mut busy = BTreeSet::new();
        for instance in self.store.values() {
            let is_live = !instance.state.is_ended();
            assert!(is_live || !instance.takes_slot(), "ended with a live attempt: {}", self.shown());
            assert!(!is_live || live_keys.insert(&instance.key), "two live instances of one key");
            assert!(
                !instance.takes_slot() || busy.insert(instance.key.table),
                "two live attempts on one table"
            );
            assert_eq!(self.board.get(instance.id), is_live.then_some(instance), "the board differs");
        }
        assert_eq!(self.board.len(), live_keys.len());
        assert!(u32::try_from(busy.len()).unwrap() <= RUNNING_MAX, "the engine's limit");
        assert_eq!(self.board.running_of_engine(&EngineName::default()) as usize, busy.len());
    }

    /// What must hold when an instance ends.
    pub(super) fn check_ended(&self, id: InstanceId) {
        let instance = &self.store[&id];
        let status = self.status(&instance.key);
        let fits = match instance.state {
            InstanceState::Succeeded => status == Some(PlanStatus::Completed),
            InstanceState::Obsolete => matches!(status, None | Some(PlanStatus::Gone)),
            InstanceState::Cancelled => instance.cancel_asked.is_some(),
            _ => true,
        };
        assert!(fits, "{:?} although the plan is {status:?}", instance.state);
    }

    // The calm end.

    /// Stops the faults. What may still start, starts.
    pub(super) fn calm_down(&mut self) {
        self.engine_mood = EngineMood::Honest;
        self.is_readable = true;
        self.pause(false);
        while !self.late.is_empty() {
            self.start_late(0);
        }
    }

    pub(super) fn calm_round(&mut self) {
        self.wait(60);
        for which in 0..self.drivers.len() {
            if self.drivers[which].phase != Phase::Dead {
                let alive = self.drivers[..which].iter().filter(|d| d.phase != Phase::Dead).count();
                self.step_driver(u8::try_from(alive).unwrap(), 1);
            }
        }
        self.look();
        self.monitor();
        for id in self.store.keys().copied().collect::<Vec<_>>() {
            if matches!(self.store[&id].state, InstanceState::Parked { .. }) {
                drop(self.change(id, Change::Reopen { take_over: true }));
            }
        }
        self.pass(SubmitMood::Accept);
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.board.is_empty() && self.drivers.iter().all(|d| d.phase == Phase::Dead)
    }

    /// Nothing was lost: each plan that was seen has an instance, and what it says is what happened.
    pub(super) fn check_end(&mut self) {
        self.look();
        for (key, status) in &self.plans {
            let instance = self.newest(key);
            let state = instance.map(|i| &i.state);
            let fits = match status {
                PlanStatus::Requested | PlanStatus::Inflight => {
                    matches!(state, Some(s) if !matches!(s, InstanceState::Succeeded | InstanceState::Obsolete))
                }
                PlanStatus::Completed => !matches!(state, Some(InstanceState::Obsolete)),
                PlanStatus::Gone => !matches!(state, Some(InstanceState::Succeeded)),
            };
            assert!(fits, "{key:?} is {status:?}, its instance {state:?}");
        }
    }

    pub(super) fn n_completed(&self) -> usize {
        self.store.values().filter(|i| i.state == InstanceState::Succeeded).count()
    }

    pub(super) fn shown(&self) -> String {
        format!("{:#?}\n{:#?}\n{:?} {:?}", self.store, self.drivers, self.plans, self.engine_mood)
    }

    /// A leader without sense, for the test of the rules.
    pub(super) fn free_slots_without_proof(&mut self) {
        let busy: Vec<InstanceId> = self.board.with_live_attempt().map(|i| i.id).collect();
        for id in busy {
            let conclusion = Conclusion {
                closing: Closing::Over("impatience".to_owned()),
                end: AttemptEnd::Failed,
                next: Next::Pending(WaitReason::Ready, None),
                leaves_work: None,
                reason: String::new(),
            };
            self.change(id, Change::Conclude(conclusion)).unwrap();
        }
    }
}
