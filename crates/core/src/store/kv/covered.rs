//! Touches that a durable one covers: a table that is touched already, and that nothing has read since, will be looked at
//! after now, so that another hand-over of it has nothing to add and needs no write.
//!
//! Valid only since this process alone writes the store, so that all looks read through it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::id::TableId;
use crate::model::request::{Accepted, HandOver};

/// Tables whose last touch is remembered at most, some 8 MB; beyond it all are forgotten, which costs a write each.
const MARKS_MAX: usize = 100_000;
/// Tables share counters of their reads: a read of one makes some others write once more.
const N_STRIPES: usize = 4_096;

/// The last touches that are durable and unread.
#[derive(Debug)]
pub(super) struct Covered {
    reads: Vec<AtomicU64>,
    marks: Mutex<HashMap<TableId, Mark>>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Reads of the table's stripe before the touch was made.
    n_reads: u64,
    touch: u64,
    told: u64,
}

impl Covered {
    pub(super) fn new() -> Self {
        Self {
            reads: (0..N_STRIPES).map(|_| AtomicU64::new(0)).collect(),
            marks: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    fn stripe(&self, table: TableId) -> &AtomicU64 {
        let [a, b, ..] = *table.as_bytes();
        &self.reads[usize::from(u16::from_be_bytes([a, b])) % N_STRIPES]
    }

    /// Everything of a hand-over that a touch stores, but its time.
    fn told(&self, one: &HandOver) -> u64 {
        self.hasher.hash_one((&one.spelling, &one.database, &one.table_name, one.trigger))
    }

    /// To be called after a view of the touch was opened and before anything is done with it: what is announced from
    /// now on may be later than what a look sees.
    pub(super) fn was_read(&self, table: TableId) {
        self.stripe(table).fetch_add(1, Ordering::SeqCst);
    }

    /// To be called before the transaction of a touch begins; [`Self::stored`] takes the answer.
    pub(super) fn n_reads(&self, table: TableId) -> u64 {
        self.stripe(table).load(Ordering::SeqCst)
    }

    /// To be called once a hand-over is durable.
    pub(super) fn stored(&self, one: &HandOver, n_reads: u64, accepted: &Accepted) {
        if !one.touch {
            return;
        }
        let mark = Mark { n_reads, touch: accepted.touch, told: self.told(one) };
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() >= MARKS_MAX {
            marks.clear();
        }
        marks.insert(TableId::of(&one.base_path), mark);
    }

    /// Returns the answer to a hand-over that a durable touch covers.
    pub(super) fn answer(&self, one: &HandOver) -> Option<Accepted> {
        if !one.touch || !one.hints.is_empty() {
            return None;
        }
        let table = TableId::of(&one.base_path);
        let mark = *self.marks.lock().unwrap_or_else(PoisonError::into_inner).get(&table)?;
        let is_unread = self.n_reads(table) == mark.n_reads;
        (is_unread && mark.told == self.told(one)).then_some(Accepted {
            touch: mark.touch,
            n_hinted: 0,
            is_new_table: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::action::Action;
    use crate::model::path::PathRules;
    use crate::model::request::Trigger;

    fn one() -> HandOver {
        let spelling = "file:/lake/t";
        HandOver {
            base_path: PathRules::default().canonical(spelling).unwrap(),
            spelling: spelling.to_owned(),
            database: None,
            table_name: Some("t".to_owned()),
            hints: Vec::new(),
            queue: None,
            execution_engine: None,
            trigger: Trigger::Callback,
            at: "2024-01-01T00:00:00Z".parse().unwrap(),
            touch: true,
        }
    }

    fn touched(covered: &Covered) -> u64 {
        let n_reads = covered.n_reads(TableId::of(&one().base_path));
        covered.stored(&one(), n_reads, &Accepted { touch: 7, n_hinted: 0, is_new_table: true });
        n_reads
    }

    #[test]
    fn an_unread_touch_covers_what_tells_the_same() {
        let covered = Covered::new();
        assert_eq!(covered.answer(&one()), None);
        touched(&covered);
        let answer = covered.answer(&one()).unwrap();
        assert_eq!((answer.touch, answer.is_new_table), (7, false));
        let others = [
            HandOver { touch: false, ..one() },
            HandOver { spelling: "file:///lake/t".to_owned(), ..one() },
            HandOver { table_name: None, ..one() },
            HandOver { database: Some("d".to_owned()), ..one() },
            HandOver { trigger: Trigger::Api, ..one() },
            HandOver { hints: vec![(Action::Clean, "20240101000000000".parse().unwrap())], ..one() },
        ];
        for other in others {
            assert_eq!(covered.answer(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_touch_that_was_read_covers_nothing() {
        let covered = Covered::new();
        touched(&covered);
        covered.was_read(TableId::of(&one().base_path));
        assert_eq!(covered.answer(&one()), None);
    }

    #[test]
    fn a_touch_that_was_read_while_it_was_stored_covers_nothing() {
        let covered = Covered::new();
        let table = TableId::of(&one().base_path);
        let n_reads = covered.n_reads(table);
        covered.was_read(table);
        covered.stored(&one(), n_reads, &Accepted { touch: 7, n_hinted: 0, is_new_table: false });
        assert_eq!(covered.answer(&one()), None);
    }
}
