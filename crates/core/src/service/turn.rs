//! One flow at a time per table: a look, a submission or a judgement takes the table's turn and gives it back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::id::TableId;
use crate::wake::Wakes;

/// Who has the turn of which table. A flow that finds it taken leaves; the end of the turn wakes all Services.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Value: somebody came while the turn was taken.
    taken: Arc<Mutex<HashMap<TableId, bool>>>,
    wakes: Wakes,
}

/// The turn of one table; given back when dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    table: TableId,
}

impl Turns {
    /// Makes the turns of one term.
    #[must_use]
    pub fn new(wakes: Wakes) -> Self {
        Self { taken: Arc::default(), wakes }
    }

    /// Takes the turn of a table, unless somebody has it.
    #[must_use]
    pub fn try_take(&self, table: TableId) -> Option<Turn> {
        let mut taken = self.lock();
        if let Some(was_missed) = taken.get_mut(&table) {
            *was_missed = true;
            return None;
        }
        taken.insert(table, false);
        Some(Turn { turns: self.clone(), table })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TableId, bool>> {
        self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let was_missed = self.turns.lock().remove(&self.table).unwrap_or(false);
        if was_missed {
            self.turns.wakes.timeline.wake();
            self.turns.wakes.dispatch.wake();
            self.turns.wakes.monitor.wake();
        }
    }
}
