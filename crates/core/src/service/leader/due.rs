//! Which table is looked at next, without a trigger.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::model::id::TableId;

/// On the monotonic clock, so that no look is lost or hurried when the wall clock is set.
#[derive(Debug, Default)]
pub(super) struct Due {
    by_time: BTreeSet<(Duration, TableId)>,
    by_table: HashMap<TableId, Duration>,
    /// Until when tables are left alone that could not be read. Each of them is due at that time at the latest.
    resting: HashMap<TableId, Duration>,
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

    /// Takes away the tables whose time has come, at most `limit`. One that is left alone becomes due at the end of that.
    pub(super) fn take(&mut self, now: Duration, limit: usize) -> Vec<TableId> {
        let mut found: Vec<(Duration, TableId)> =
            self.by_time.iter().take_while(|(at, _)| *at <= now).take(limit).copied().collect();
        found.retain(|entry| {
            self.by_time.remove(entry);
            self.by_table.remove(&entry.1);
            match self.resting.get(&entry.1).copied() {
                Some(until) if until > now => {
                    self.plan(entry.1, until);
                    false
                }
                _ => {
                    self.resting.remove(&entry.1);
                    true
                }
            }
        });
        found.into_iter().map(|(_, table)| table).collect()
    }

    /// Notes that a table is to be left alone until then, whoever asks for it, and looked at afterwards.
    pub(super) fn rest(&mut self, table: TableId, until: Duration) {
        self.resting.insert(table, until);
        self.plan(table, until);
    }

    /// Lets a table be looked at: what was known of it may be old.
    pub(super) fn unrest(&mut self, table: TableId) {
        self.resting.remove(&table);
    }

    /// Tells whether a table is still left alone.
    pub(super) fn is_resting(&self, table: TableId, now: Duration) -> bool {
        self.resting.get(&table).is_some_and(|until| *until > now)
    }

    /// Returns when the next one is due.
    pub(super) fn first(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_rests_until_its_time_and_is_due_then() {
        let (table, other) = (TableId::from_bytes([1; 16]), TableId::from_bytes([2; 16]));
        let at = Duration::from_secs;
        let mut due = Due::default();
        due.rest(table, at(10));
        assert!(due.is_resting(table, at(9)) && !due.is_resting(other, at(9)));
        assert!(due.take(at(9), 9).is_empty());
        assert!(!due.is_resting(table, at(10)));
        assert_eq!(due.take(at(10), 9), [table]);
        assert!(due.resting.is_empty(), "nothing is kept of a table that is looked at");
    }

    #[test]
    fn who_asks_for_a_resting_table_changes_nothing() {
        let table = TableId::from_bytes([1; 16]);
        let at = Duration::from_secs;
        for asked_first in [true, false] {
            let mut due = Due::default();
            if asked_first {
                due.plan(table, at(5));
            }
            due.rest(table, at(10));
            due.plan(table, at(5));
            assert!(due.take(at(9), 9).is_empty());
            assert_eq!(due.first(), Some(at(10)));
            assert_eq!(due.take(at(10), 9), [table], "it is not forgotten");
        }
    }

    #[test]
    fn a_table_that_changed_rests_no_more() {
        let table = TableId::from_bytes([1; 16]);
        let mut due = Due::default();
        due.rest(table, Duration::from_secs(10));
        due.unrest(table);
        assert!(!due.is_resting(table, Duration::ZERO));
    }
}
