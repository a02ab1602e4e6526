//! The leader's live set in memory: which instances live, which of them may start now, and why the others wait.
//!
//! Every index is kept with each change, so that choosing costs what is chosen and not what exists: a pass looks at one
//! entry per choice and at no more than [`choose::SKIPS_MAX`] besides. The board decides nothing about attempts and holds
//! nothing that could not be rebuilt by putting the stored live instances into a new one.
//!
//! How an instance gets its turn: work of one table stands in the order of [`order`]; a table that is free stands, by the
//! most urgent of its instances, in the ready set of each *lane* (a queue and the engine asked for) that it has work in;
//! lanes take turns by their queues' weighted shares.

pub mod choose;
pub mod engine;
mod lane;
mod order;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
pub mod why;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::decision::board::lane::{LaneId, Lanes};
use crate::decision::board::order::sortable;
use crate::model::action::Action;
use crate::model::id::{EngineName, InstanceId, QueueName, TableId};
use crate::model::instance::{Instance, InstanceState};

pub use self::choose::{Choice, Chosen};
pub use self::engine::{EngineLimit, Limits, engine_for, no_engine_for};
pub use self::order::PASSED_OVER_MAX;
pub use self::why::{WaitCause, WaitsFor};

/// Waiting time that weighs as much as one step of priority, in milliseconds: ten minutes. An instance overtakes only those
/// that became ready less than this, times the difference in priority, before it; so nobody waits for ever.
pub const AGEING_STEP_MS: i64 = 600_000;

/// Largest priority that counts, in either direction: bounds the time that priority can hold others back to 33 hours.
pub const PRIORITY_MAX: i32 = 100;

/// Most instances whose back-off ended that one pass takes up; the rest follows in the next pass, oldest first.
pub const DUE_MOVES_MAX: usize = 1_000;

/// Most different pairs of lane and action that are compared per table; further ones wait until these are done.
const HEADS_MAX: usize = 64;

/// What live instances are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// State, as a word.
    pub state: &'static str,
    /// Action.
    pub action: Action,
    /// Queue.
    pub queue: QueueName,
}

/// An instance that could start as far as itself is concerned, in the order in which the work of a table is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    table: TableId,
    lane: LaneId,
    rank: u8,
    n_passed_over: Reverse<u32>,
    instant: u128,
    id: InstanceId,
}

/// The live set with its indexes.
#[derive(Debug, Default)]
pub struct Board {
    instances: HashMap<InstanceId, Box<Instance>>,
    by_table: BTreeSet<(TableId, InstanceId)>,
    by_state: BTreeSet<(&'static str, InstanceId)>,
    cancel_asked: BTreeSet<InstanceId>,
    /// Instances that take their table's slot, reserved ones included.
    busy: BTreeSet<(TableId, InstanceId)>,
    /// Those of them that are not just reserved.
    live: BTreeSet<InstanceId>,
    /// Chosen ones that are being started, and where.
    reserved: BTreeMap<InstanceId, EngineName>,
    counts: BTreeMap<CountKey, usize>,
    running: Running,
    /// Pending ones whose time has not come, or was not taken up yet.
    due: BTreeSet<(Timestamp, InstanceId)>,
    waiting: BTreeSet<Waiting>,
    lanes: Lanes,
    /// Where each free table stands in the ready sets.
    placed: HashMap<TableId, Vec<(LaneId, i64)>>,
}

/// Live attempts by engine and by queue.
#[derive(Clone, Debug, Default)]
struct Running {
    by_engine: BTreeMap<EngineName, u32>,
    by_queue: BTreeMap<QueueName, u32>,
    by_share: BTreeMap<(EngineName, QueueName), u32>,
}

impl Running {
    fn engine(&self, name: &EngineName) -> u32 {
        self.by_engine.get(name).copied().unwrap_or(0)
    }

    fn queue(&self, name: &QueueName) -> u32 {
        self.by_queue.get(name).copied().unwrap_or(0)
    }

    fn add(&mut self, engine: Option<&EngineName>, queue: &QueueName) {
        *self.by_queue.entry(queue.clone()).or_default() += 1;
        if let Some(engine) = engine {
            *self.by_engine.entry(engine.clone()).or_default() += 1;
            *self.by_share.entry((engine.clone(), queue.clone())).or_default() += 1;
        }
    }

    fn take(&mut self, engine: Option<&EngineName>, queue: &QueueName) {
        lower(&mut self.by_queue, queue);
        if let Some(engine) = engine {
            lower(&mut self.by_engine, engine);
            lower(&mut self.by_share, &(engine.clone(), queue.clone()));
        }
    }
}

fn lower<K: Ord, N: Copy + PartialOrd + std::ops::SubAssign + From<u8>>(
    counts: &mut BTreeMap<K, N>,
    key: &K,
) {
    if let Some(n) = counts.get_mut(key) {
        if *n > N::from(1) {
            *n -= N::from(1);
        } else {
            counts.remove(key);
        }
    }
}

/// Tells whether an instance takes its table's slot: an attempt is live, or was when the row was written.
fn is_busy(instance: &Instance) -> bool {
    instance.takes_slot() || matches!(instance.state, InstanceState::Active | InstanceState::Succeeding)
}

/// Tells whether an instance could start as far as itself is concerned, and from when.
fn may_start(instance: &Instance) -> Option<Option<Timestamp>> {
    match instance.state {
        InstanceState::Pending { not_before, .. }
            if instance.cancel_asked.is_none() && !is_busy(instance) =>
        {
            Some(not_before)
        }
        _ => None,
    }
}

fn of_table_range(table: TableId) -> std::ops::RangeInclusive<(TableId, InstanceId)> {
    (table, InstanceId(Uuid::nil()))..=(table, InstanceId(Uuid::max()))
}

impl Board {
    /// Makes an empty board.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts or replaces an instance. An ended one without a live attempt leaves the board.
    pub fn put(&mut self, instance: Instance) {
        let id = instance.id;
        if let Some(old) = self.instances.get_mut(&id)
            && has_same_place(old, &instance)
        {
            **old = instance;
            return;
        }
        let mut tables = Vec::with_capacity(2);
        if let Some(old) = self.instances.remove(&id) {
            self.leave_indexes(&old);
            tables.push(old.key.table);
        }
        if !instance.state.is_ended() || is_busy(&instance) {
            if !tables.contains(&instance.key.table) {
                tables.push(instance.key.table);
            }
            self.enter_indexes(&instance);
            self.instances.insert(id, Box::new(instance));
        } else {
            self.reserved.remove(&id);
        }
        for table in tables {
            self.place(table);
        }
    }

    /// Takes an instance off the board.
    pub fn remove(&mut self, id: InstanceId) -> Option<Instance> {
        let old = self.instances.remove(&id)?;
        self.leave_indexes(&old);
        self.reserved.remove(&id);
        self.place(old.key.table);
        Some(*old)
    }

    /// Counts a chosen instance as running on `engine` while it is being checked and submitted, so that no other pass
    /// chooses it, its table or its place. Lasts until [`Self::release`], whatever is put meanwhile; not stored.
    pub fn reserve(&mut self, id: InstanceId, engine: &EngineName) {
        self.change_reservation(id, Some(engine.clone()));
    }

    /// Ends a reservation. From now on only a live attempt keeps the place.
    pub fn release(&mut self, id: InstanceId) {
        self.change_reservation(id, None);
    }

    fn change_reservation(&mut self, id: InstanceId, engine: Option<EngineName>) {
        let Some(instance) = self.instances.remove(&id) else { return };
        self.leave_indexes(&instance);
        match engine {
            Some(engine) => self.reserved.insert(id, engine),
            None => self.reserved.remove(&id),
        };
        self.enter_indexes(&instance);
        let table = instance.key.table;
        self.instances.insert(id, instance);
        self.place(table);
    }

    /// Returns one instance.
    #[must_use]
    pub fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(&id).map(AsRef::as_ref)
    }

    /// Returns the instances of a table, the oldest id first.
    pub fn of_table(&self, table: TableId) -> impl Iterator<Item = &Instance> {
        self.by_table.range(of_table_range(table)).filter_map(|(_, id)| self.get(*id))
    }

    /// Returns the instances whose attempt is live, or that are active or succeeding.
    pub fn with_live_attempt(&self) -> impl Iterator<Item = &Instance> {
        self.live.iter().filter_map(|id| self.get(*id))
    }

    /// Returns the instances in one state, by its word; nothing for an unknown word.
    pub fn in_state(&self, word: &str) -> impl Iterator<Item = &Instance> {
        let known = InstanceState::WORDS.into_iter().find(|known| *known == word).unwrap_or("");
        self.by_state
            .range((known, InstanceId(Uuid::nil()))..=(known, InstanceId(Uuid::max())))
            .filter_map(|(_, id)| self.get(*id))
    }

    /// Returns the instances that somebody asked to cancel.
    pub fn cancel_asked(&self) -> impl Iterator<Item = &Instance> {
        self.cancel_asked.iter().filter_map(|id| self.get(*id))
    }

    /// Returns the number of instances.
    #[must_use]
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Tells whether nothing lives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Returns the numbers of instances by state, action and queue; kept with each change. No entry is 0.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<CountKey, usize> {
        &self.counts
    }

    /// Returns the number of live attempts on an engine, reservations included.
    #[must_use]
    pub fn running_of_engine(&self, engine: &EngineName) -> u32 {
        self.running.engine(engine)
    }

    /// Returns the number of live attempts of a queue, reservations included.
    #[must_use]
    pub fn running_of_queue(&self, queue: &QueueName) -> u32 {
        self.running.queue(queue)
    }

    /// Returns an instance that takes the slot of a table, by its attempt or by a reservation.
    #[must_use]
    pub fn busy_with(&self, table: TableId) -> Option<InstanceId> {
        self.busy.range(of_table_range(table)).next().map(|(_, id)| *id)
    }

    /// Returns when the next back-off ends, at the earliest `now`.
    #[must_use]
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| (*at).max(now))
    }

    /// Returns pending instances whose time lies after `at`, the farthest first, at most `limit`.
    #[must_use]
    pub fn due_after(&self, at: Timestamp, limit: usize) -> Vec<InstanceId> {
        let is_after = |(due, _): &&(Timestamp, InstanceId)| *due > at;
        self.due.iter().rev().take_while(is_after).take(limit).map(|(_, id)| *id).collect()
    }

    fn enter_indexes(&mut self, instance: &Instance) {
        let (table, id) = (instance.key.table, instance.id);
        self.by_table.insert((table, id));
        self.by_state.insert((instance.state.as_str(), id));
        *self.counts.entry(count_key(instance)).or_default() += 1;
        if instance.cancel_asked.is_some() {
            self.cancel_asked.insert(id);
        }
        let reserved = self.reserved.get(&id);
        if is_busy(instance) {
            self.busy.insert((table, id));
            self.live.insert(id);
            self.running.add(engine_of_attempt(instance), &instance.queue);
        } else if reserved.is_some() {
            self.busy.insert((table, id));
            self.running.add(reserved, &instance.queue);
        }
        match may_start(instance) {
            Some(Some(not_before)) => {
                self.due.insert((not_before, id));
            }
            Some(None) => self.enter_waiting(instance),
            None => {}
        }
    }

    fn leave_indexes(&mut self, instance: &Instance) {
        let (table, id) = (instance.key.table, instance.id);
        self.by_table.remove(&(table, id));
        self.by_state.remove(&(instance.state.as_str(), id));
        lower(&mut self.counts, &count_key(instance));
        self.cancel_asked.remove(&id);
        if self.busy.remove(&(table, id)) {
            let is_live = self.live.remove(&id);
            let engine = if is_live { engine_of_attempt(instance) } else { self.reserved.get(&id) };
            self.running.take(engine, &instance.queue);
        }
        if let InstanceState::Pending { not_before: Some(at), .. } = instance.state {
            self.due.remove(&(at, id));
        }
        if let Some(lane) = self.lanes.find(&instance.queue, instance.execution_engine.as_deref())
            && self.waiting.remove(&waiting_key(instance, lane))
        {
            self.lanes.release(lane);
        }
    }

    fn enter_waiting(&mut self, instance: &Instance) {
        let lane = self.lanes.acquire(&instance.queue, instance.execution_engine.as_deref());
        self.waiting.insert(waiting_key(instance, lane));
    }

    /// Takes up pending instances whose time has come.
    fn take_up_due(&mut self, now: Timestamp) {
        for _ in 0..DUE_MOVES_MAX {
            let Some(&(at, id)) = self.due.first() else { return };
            if at > now {
                return;
            }
            self.due.pop_first();
            if let Some(instance) = self.instances.remove(&id) {
                self.enter_waiting(&instance);
                let table = instance.key.table;
                self.instances.insert(id, instance);
                self.place(table);
            }
        }
    }

    /// Returns the first waiting instance of each lane and action of a table.
    fn heads(&self, table: TableId) -> Vec<Waiting> {
        let mut heads: Vec<Waiting> = Vec::new();
        let mut from = first_of(table, LaneId::MIN, 0);
        while heads.len() < HEADS_MAX {
            let Some(head) = self.waiting.range(from..).next().filter(|head| head.table == table) else {
                break;
            };
            heads.push(*head);
            from = first_of(table, head.lane, head.rank + 1);
        }
        heads
    }

    /// Puts a table where it belongs in the ready sets: nowhere while it is busy.
    fn place(&mut self, table: TableId) {
        let mut wanted: Vec<(LaneId, i64)> = Vec::new();
        if self.busy_with(table).is_none() {
            for head in self.heads(table) {
                let Some(turn) = self.get(head.id).map(turn_key) else { continue };
                match wanted.last_mut() {
                    Some((lane, first)) if *lane == head.lane => *first = turn.min(*first),
                    _ => wanted.push((head.lane, turn)),
                }
            }
        }
        let before = self.placed.remove(&table).unwrap_or_default();
        if before != wanted {
            for (lane, turn) in before {
                self.lanes.leave_ready(lane, turn, table);
            }
            for (lane, turn) in &wanted {
                self.lanes.enter_ready(*lane, *turn, table);
            }
        }
        if !wanted.is_empty() {
            self.placed.insert(table, wanted);
        }
        self.lanes.free_unused();
    }
}

fn count_key(instance: &Instance) -> CountKey {
    CountKey { state: instance.state.as_str(), action: instance.key.action, queue: instance.queue.clone() }
}

fn engine_of_attempt(instance: &Instance) -> Option<&EngineName> {
    instance.attempt.as_ref().map(|attempt| &attempt.engine)
}

fn waiting_key(instance: &Instance, lane: LaneId) -> Waiting {
    Waiting {
        table: instance.key.table,
        lane,
        rank: order::rank(instance.key.action),
        n_passed_over: Reverse(instance.n_passed_over),
        instant: sortable(instance.key.instant.as_ref()),
        id: instance.id,
    }
}

fn first_of(table: TableId, lane: LaneId, rank: u8) -> Waiting {
    Waiting { table, lane, rank, n_passed_over: Reverse(u32::MAX), instant: 0, id: InstanceId(Uuid::nil()) }
}

/// Returns the place of an instance among the ready ones, the smallest first: the time since when it is ready, moved by its
/// priority. The order of two instances never changes with time, so ageing costs nothing.
///
/// The time counts from the end of the last back-off: what fails again and again does not stand before the others each time.
fn turn_key(instance: &Instance) -> i64 {
    let not_before = match instance.state {
        InstanceState::Pending { not_before, .. } => not_before,
        _ => None,
    };
    let since = not_before.map_or(instance.created_at, |at| at.max(instance.created_at));
    let priority = instance.priority.clamp(-PRIORITY_MAX, PRIORITY_MAX);
    since.timestamp_millis().saturating_sub(i64::from(priority).saturating_mul(AGEING_STEP_MS))
}

/// Tells whether replacing `old` by `new` changes no index, as for a heartbeat.
fn has_same_place(old: &Instance, new: &Instance) -> bool {
    old.key == new.key
        && old.queue == new.queue
        && old.execution_engine == new.execution_engine
        && old.priority == new.priority
        && old.n_passed_over == new.n_passed_over
        && old.created_at == new.created_at
        && old.cancel_asked.is_some() == new.cancel_asked.is_some()
        && old.state.as_str() == new.state.as_str()
        && may_start(old) == may_start(new)
        && is_busy(old) == is_busy(new)
        && engine_of_attempt(old) == engine_of_attempt(new)
        && (!new.state.is_ended() || is_busy(new))
}
