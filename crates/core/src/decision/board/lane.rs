//! Lanes: waiting work that the same queue and the same wish for an engine decide about, so that one look tells whether
//! all of it may start. A lane exists while work waits in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::id::{QueueName, TableId};

/// Number of a lane; used again after its lane is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId(usize);

impl LaneId {
    /// The smallest one.
    pub(super) const MIN: Self = Self(0);
}

/// One lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Its queue.
    pub(super) queue: QueueName,
    /// Engine that its work asked for.
    pub(super) execution_engine: Option<String>,
    /// Free tables that have work in it, by turn.
    pub(super) ready: BTreeSet<(i64, TableId)>,
    n_waiting: usize,
}

/// All lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    ids: BTreeMap<QueueName, BTreeMap<Option<String>, LaneId>>,
    lanes: Vec<Lane>,
    free: Vec<LaneId>,
    /// Lanes that lost their last waiting instance.
    unused: Vec<LaneId>,
    /// Lanes with a free table.
    ready: BTreeSet<LaneId>,
}

impl Lanes {
    /// Returns a lane that exists.
    pub(super) fn find(&self, queue: &QueueName, execution_engine: Option<&str>) -> Option<LaneId> {
        let of_queue = self.ids.get(queue)?;
        match execution_engine {
            None => of_queue.get(&None).copied(),
            Some(wanted) => of_queue.get(&Some(wanted.to_owned())).copied(),
        }
    }

    /// Returns the lane for one more waiting instance; makes it when needed.
    pub(super) fn acquire(&mut self, queue: &QueueName, execution_engine: Option<&str>) -> LaneId {
        let id = self.find(queue, execution_engine).unwrap_or_else(|| self.make(queue, execution_engine));
        self.lanes[id.0].n_waiting += 1;
        id
    }

    fn make(&mut self, queue: &QueueName, execution_engine: Option<&str>) -> LaneId {
        let execution_engine = execution_engine.map(str::to_owned);
        let lane = Lane {
            queue: queue.clone(),
            execution_engine: execution_engine.clone(),
            ready: BTreeSet::new(),
            n_waiting: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.lanes[id.0] = lane;
                id
            }
            None => {
                self.lanes.push(lane);
                LaneId(self.lanes.len() - 1)
            }
        };
        self.ids.entry(queue.clone()).or_default().insert(execution_engine, id);
        id
    }

    /// Gives back the place of one waiting instance.
    pub(super) fn release(&mut self, id: LaneId) {
        let lane = &mut self.lanes[id.0];
        lane.n_waiting = lane.n_waiting.saturating_sub(1);
        if lane.n_waiting == 0 {
            self.unused.push(id);
        }
    }

    /// Forgets lanes without waiting instances; called once the ready sets are right again.
    pub(super) fn free_unused(&mut self) {
        while let Some(id) = self.unused.pop() {
            let lane = &self.lanes[id.0];
            // One that was freed already may stand here twice, and its number may name another lane by now.
            let is_current = self.find(&lane.queue, lane.execution_engine.as_deref()) == Some(id);
            if !is_current || lane.n_waiting > 0 || !lane.ready.is_empty() {
                continue;
            }
            let Lane { queue, execution_engine, .. } = std::mem::take(&mut self.lanes[id.0]);
            self.free.push(id);
            if let Some(of_queue) = self.ids.get_mut(&queue) {
                of_queue.remove(&execution_engine);
                if of_queue.is_empty() {
                    self.ids.remove(&queue);
                }
            }
        }
    }

    /// Puts a table into the ready set.
    pub(super) fn enter_ready(&mut self, id: LaneId, turn: i64, table: TableId) {
        self.lanes[id.0].ready.insert((turn, table));
        self.ready.insert(id);
    }

    /// Takes a table out of the ready set.
    pub(super) fn leave_ready(&mut self, id: LaneId, turn: i64, table: TableId) {
        let ready = &mut self.lanes[id.0].ready;
        ready.remove(&(turn, table));
        if ready.is_empty() {
            self.ready.remove(&id);
        }
    }

    /// Returns one lane.
    pub(super) fn get(&self, id: LaneId) -> &Lane {
        &self.lanes[id.0]
    }

    /// Returns the lanes with a free table.
    pub(super) fn with_ready(&self) -> impl Iterator<Item = LaneId> {
        self.ready.iter().copied()
    }

    /// Returns the number of lanes that exist.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.values().map(BTreeMap::len).sum()
    }
}
