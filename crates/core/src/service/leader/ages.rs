//! What only time turns into an alarm: plans that stand unserved, and locks that lie around. Kept by look, so that no pass
//! reads all tables for it.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::model::action::Action;
use crate::model::id::TableId;
use crate::model::table::LookState;

/// What stands on one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Age {
    /// Since when the oldest unserved plan of each action stands.
    unserved: BTreeMap<Action, Timestamp>,
    /// Since when its lock file is there.
    lock: Option<Timestamp>,
}

impl Age {
    pub(crate) fn of(look: &LookState) -> Self {
        let mut unserved: BTreeMap<Action, Timestamp> = BTreeMap::new();
        for plan in &look.unserved {
            let oldest = unserved.entry(plan.action).or_insert(plan.since);
            *oldest = plan.since.min(*oldest);
        }
        Self { unserved, lock: look.lock_since }
    }

    fn is_older(&self, unserved_before: Timestamp, lock_before: Timestamp) -> bool {
        self.unserved.values().any(|since| *since < unserved_before)
            || self.lock.is_some_and(|since| since < lock_before)
    }
}

/// The tables on which something stands.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    by_table: BTreeMap<TableId, Age>,
}

impl Ages {
    /// Notes what stands on a table; tells whether something else stood there.
    pub(super) fn note(&mut self, table: TableId, age: Age) -> bool {
        let before = if age == Age::default() {
            self.by_table.remove(&table)
        } else if self.by_table.get(&table) == Some(&age) {
            None
        } else {
            self.by_table.insert(table, age)
        };
        before.is_some()
    }

    /// Returns since when the oldest unserved plan of each action stands.
    pub(crate) fn oldest(&self) -> BTreeMap<Action, Timestamp> {
        let mut oldest: BTreeMap<Action, Timestamp> = BTreeMap::new();
        for (action, since) in self.by_table.values().flat_map(|age| &age.unserved) {
            let known = oldest.entry(*action).or_insert(*since);
            *known = (*since).min(*known);
        }
        oldest
    }

    /// Returns the tables on which something stands since before then.
    pub(crate) fn older(&self, unserved_before: Timestamp, lock_before: Timestamp) -> Vec<TableId> {
        let is_older = |age: &Age| age.is_older(unserved_before, lock_before);
        self.by_table.iter().filter(|(_, age)| is_older(age)).map(|(table, _)| *table).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::table::Unserved;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_timestamp(secs, 0).unwrap()
    }

    fn look(plans: &[(Action, i64)], lock: Option<i64>) -> LookState {
        let unserved = plans.iter().map(|(action, secs)| Unserved {
            action: *action,
            instant: secs.to_string().parse().unwrap(),
            since: at(*secs),
        });
        LookState { unserved: unserved.collect(), lock_since: lock.map(at), ..LookState::default() }
    }

    #[test]
    fn the_oldest_of_each_action_over_all_tables_counts() {
        let (one, two) = (TableId::from_bytes([1; 16]), TableId::from_bytes([2; 16]));
        let mut ages = Ages::default();
        ages.note(
            one,
            Age::of(&look(&[(Action::Compaction, 9), (Action::Compaction, 5), (Action::Clean, 7)], None)),
        );
        ages.note(two, Age::of(&look(&[(Action::Compaction, 6)], Some(20))));
        assert_eq!(ages.oldest(), [(Action::Compaction, at(5)), (Action::Clean, at(7))].into());
        assert_eq!(ages.older(at(6), at(0)), [one]);
        assert_eq!(ages.older(at(7), at(0)), [one, two]);
        assert_eq!(ages.older(at(0), at(21)), [two]);
    }

    #[test]
    fn what_changed_is_told_and_what_is_gone_is_forgotten() {
        let table = TableId::from_bytes([1; 16]);
        let mut ages = Ages::default();
        let first = Age::of(&look(&[(Action::Compaction, 5)], None));
        assert!(!ages.note(table, first.clone()));
        assert!(!ages.note(table, first));
        assert!(ages.note(table, Age::of(&look(&[(Action::Compaction, 8)], None))));
        assert!(ages.note(table, Age::default()));
        assert!(!ages.note(table, Age::default()));
        assert!(ages.oldest().is_empty());
    }
}
