//! Which instances may start now.

use std::collections::{BTreeMap, HashSet};

use crate::clock::Timestamp;
use crate::decision::board::engine::engine_of;
use crate::decision::board::lane::LaneId;
use crate::decision::board::order::{self, Contender, Turn};
use crate::decision::board::{Board, Limits, Waiting};
use crate::model::id::{EngineName, InstanceId, QueueName, TableId};

/// Most tables that one pass leaves alone because they are kept for an instance that has no room now. Beyond it such an
/// instance is passed over once more, so that a pass stays short.
pub const SKIPS_MAX: usize = 64;

/// One instance that may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which.
    pub id: InstanceId,
    /// Engine that it runs on.
    pub engine: EngineName,
    /// Instances of other actions of its table that it goes before, one per action; count it for them once it is submitted.
    pub passed_over: Vec<InstanceId>,
}

/// The result of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// What may start, in this order.
    pub start: Vec<Choice>,
    /// What no configured engine takes: to be parked.
    pub no_engine: Vec<InstanceId>,
    /// Entries of ready sets that the pass looked at.
    pub n_visited: usize,
}

/// Whether work of a lane may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Yes.
    Open,
    /// Not until something ends.
    Full,
    /// Not until a person changes something.
    Closed,
}

/// A lane that takes part in a pass.
struct OpenLane<'b> {
    id: LaneId,
    queue: &'b QueueName,
    weight: u32,
    engine: &'b EngineName,
    ready: std::iter::Peekable<std::collections::btree_set::Iter<'b, (i64, TableId)>>,
}

/// One pass over the ready sets. What it chooses counts as running at once.
pub(super) struct Pass<'b> {
    board: &'b Board,
    limits: Limits<'b>,
    added_by_engine: BTreeMap<&'b EngineName, u32>,
    added_by_queue: BTreeMap<&'b QueueName, u32>,
    added_by_share: BTreeMap<(&'b EngineName, &'b QueueName), u32>,
    taken: HashSet<TableId>,
    n_skips: usize,
    chosen: Chosen,
}

impl Board {
    /// Returns up to `n_max` instances that may start now, and up to `n_max` that no engine takes.
    ///
    /// Takes up at most [`super::DUE_MOVES_MAX`] ended back-offs first, hence `&mut`. The board does not note what it chose:
    /// reserve each choice, or put it in its new state, before the next call.
    ///
    /// A queue that is paused starts nothing; neither one with as many live attempts as its limit, nor an engine with as
    /// many as it runs at once. A table with a live attempt starts nothing. While there is not room for all, the queue with
    /// the fewest live attempts of its engine per weight goes first, then what waits longest, priority counted in.
    pub fn choose(&mut self, limits: &Limits<'_>, now: Timestamp, n_max: usize) -> Chosen {
        self.take_up_due(now);
        Pass::new(self, limits).run(n_max)
    }
}

impl<'b> Pass<'b> {
    pub(super) fn new(board: &'b Board, limits: &Limits<'b>) -> Self {
        Self {
            board,
            limits: *limits,
            added_by_engine: BTreeMap::new(),
            added_by_queue: BTreeMap::new(),
            added_by_share: BTreeMap::new(),
            taken: HashSet::new(),
            n_skips: 0,
            chosen: Chosen::default(),
        }
    }

    fn run(mut self, n_max: usize) -> Chosen {
        let mut lanes = Vec::new();
        for id in self.board.lanes.with_ready() {
            let lane = self.board.lanes.get(id);
            let Some(engine) = engine_of(&lane.queue, lane.execution_engine.as_deref(), &self.limits) else {
                self.report_no_engine(id, n_max);
                continue;
            };
            let weight = self.limits.queues.get(&lane.queue).map_or(1, |queue| queue.weight.max(1));
            let ready = lane.ready.iter().peekable();
            lanes.push(OpenLane { id, queue: &lane.queue, weight, engine, ready });
        }
        while self.chosen.start.len() < n_max {
            lanes.retain_mut(|lane| self.room(lane.id) == Room::Open && self.has_next(lane));
            let Some(next) = (0..lanes.len()).min_by(|a, b| self.compare(&mut lanes, *a, *b)) else { break };
            let Some((_, table)) = lanes[next].ready.next() else { break };
            self.chosen.n_visited += 1;
            self.take_turn(*table);
        }
        self.chosen
    }

    /// Passes tables that got their turn through another lane.
    fn has_next(&mut self, lane: &mut OpenLane<'_>) -> bool {
        while let Some((_, table)) = lane.ready.peek() {
            if !self.taken.contains(table) {
                return true;
            }
            self.chosen.n_visited += 1;
            lane.ready.next();
        }
        false
    }

    fn compare(&self, lanes: &mut [OpenLane<'b>], a: usize, b: usize) -> std::cmp::Ordering {
        let share = |lane: &OpenLane<'b>| u64::from(self.share(lane.engine, lane.queue));
        let left = share(&lanes[a]) * u64::from(lanes[b].weight);
        let right = share(&lanes[b]) * u64::from(lanes[a].weight);
        left.cmp(&right)
            .then_with(|| lanes[a].ready.peek().copied().cmp(&lanes[b].ready.peek().copied()))
            .then_with(|| lanes[a].queue.cmp(lanes[b].queue))
    }

    /// Lets a table start what stands first on it.
    fn take_turn(&mut self, table: TableId) {
        let may_exceed = self.n_skips >= SKIPS_MAX;
        let (heads, turn) = self.turn_of(table, may_exceed);
        let Turn::Take { index, passed_over } = turn else {
            self.n_skips += 1;
            return;
        };
        let lane = self.board.lanes.get(heads[index].lane);
        let Some(engine) = engine_of(&lane.queue, lane.execution_engine.as_deref(), &self.limits) else {
            return;
        };
        self.taken.insert(table);
        *self.added_by_engine.entry(engine).or_default() += 1;
        *self.added_by_queue.entry(&lane.queue).or_default() += 1;
        *self.added_by_share.entry((engine, &lane.queue)).or_default() += 1;
        self.chosen.start.push(Choice {
            id: heads[index].id,
            engine: engine.clone(),
            passed_over: passed_over.into_iter().map(|n| heads[n].id).collect(),
        });
    }

    /// Returns the first waiting instances of a table that are not shut out, and whose turn it is.
    pub(super) fn turn_of(&self, table: TableId, may_exceed: bool) -> (Vec<Waiting>, Turn) {
        let mut heads = Vec::new();
        let mut contenders = Vec::new();
        for head in self.board.heads(table) {
            let room = self.room(head.lane);
            if room == Room::Closed {
                continue;
            }
            heads.push(head);
            contenders.push(Contender {
                rank: head.rank,
                n_passed_over: head.n_passed_over.0,
                instant: head.instant,
                is_open: room == Room::Open,
            });
        }
        let turn = order::turn(&contenders, may_exceed);
        (heads, turn)
    }

    pub(super) fn room(&self, id: LaneId) -> Room {
        let lane = self.board.lanes.get(id);
        let Some(engine) = engine_of(&lane.queue, lane.execution_engine.as_deref(), &self.limits) else {
            return Room::Closed;
        };
        let queue = self.limits.queues.get(&lane.queue);
        if queue.is_some_and(|queue| queue.is_paused) {
            return Room::Closed;
        }
        let of_queue = self.board.running.queue(&lane.queue) + count(&self.added_by_queue, &&lane.queue);
        if queue.is_some_and(|queue| queue.limit > 0 && of_queue >= queue.limit) {
            return Room::Full;
        }
        let of_engine = self.board.running.engine(engine) + count(&self.added_by_engine, &engine);
        let running_max = self.limits.engines.get(engine).map_or(0, |engine| engine.running_max);
        if of_engine >= running_max { Room::Full } else { Room::Open }
    }

    fn share(&self, engine: &'b EngineName, queue: &'b QueueName) -> u32 {
        let stored = self.board.running.by_share.get(&(engine.clone(), queue.clone())).copied().unwrap_or(0);
        stored + count(&self.added_by_share, &(engine, queue))
    }

    fn report_no_engine(&mut self, id: LaneId, n_max: usize) {
        for (_, table) in &self.board.lanes.get(id).ready {
            for head in self.board.heads(*table).iter().filter(|head| head.lane == id) {
                if self.chosen.no_engine.len() >= n_max {
                    return;
                }
                self.chosen.n_visited += 1;
                self.chosen.no_engine.push(head.id);
            }
        }
    }
}

fn count<K: Ord>(counts: &BTreeMap<K, u32>, key: &K) -> u32 {
    counts.get(key).copied().unwrap_or(0)
}
