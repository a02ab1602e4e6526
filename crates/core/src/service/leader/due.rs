//! Which table is looked at next, without a trigger.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::model::id::TableId;

/// On the monotonic clock, so that no look is lost or hurried when the wall clock is set.
#[derive(Debug, Default)]
pub(super) struct Due {
    by_time: BTreeSet<(Duration, TableId)>,
    by_table: HashMap<TableId, Duration>,
}

impl Due {
    /// Notes that a table is to be looked at not later than `at`; tells whether that is news.
    pub(super) fn plan(&mut self, table: TableId, at: Duration) -> bool {
        match self.by_table.get(&table).copied() {
            Some(old) if old <= at => return false,
            Some(old) => {
                self.by_time.remove(&(old, table));
            }
            None => {}
        }
        self.by_table.insert(table, at);
        self.by_time.insert((at, table));
        true
    }

    /// Takes away the tables whose time has come, at most `limit`.
    pub(super) fn take(&mut self, now: Duration, limit: usize) -> Vec<TableId> {
        let found: Vec<(Duration, TableId)> =
            self.by_time.iter().take_while(|(at, _)| *at <= now).take(limit).copied().collect();
        for entry in &found {
            self.by_time.remove(entry);
            self.by_table.remove(&entry.1);
        }
        found.into_iter().map(|(_, table)| table).collect()
    }

    /// Returns when the next one is due.
    pub(super) fn first(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }
}
