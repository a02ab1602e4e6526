//! A batch or a part of one: equal hand-overs merged, sorted by table, with those who wait for the answer.

use super::{Answer, Item, OPERATION, Permits};
use crate::error::Error;
use crate::model::request::{Accepted, HandOver};

/// Hand-overs and, at the same positions, who waits for their answers.
#[derive(Debug)]
pub(super) struct Part {
    hand_overs: Vec<HandOver>,
    callers: Vec<Vec<Caller>>,
}

/// Who waits. Its room in the queue is free when it has its answer.
#[derive(Debug)]
struct Caller {
    answer: Answer,
    _permits: Permits,
}

impl Caller {
    fn tell(self, result: Result<Accepted, Error>) {
        // A caller that went away needs no answer.
        drop(self.answer.send(result));
    }
}

impl Part {
    /// Sorts by table, so that writes go in the order of keys, and merges neighbours that ask for the same.
    /// What comes of one table stays in the order that it came in: the spelling announced last counts.
    pub(super) fn merged(mut items: Vec<Item>) -> Self {
        items.sort_by_key(|item| item.table);
        let mut part = Self { hand_overs: Vec::new(), callers: Vec::new() };
        for item in items {
            let caller = Caller { answer: item.answer, _permits: item.permits };
            match (part.hand_overs.last_mut(), part.callers.last_mut()) {
                (Some(last), Some(callers)) if asks_the_same(last, &item.hand_over) => {
                    merge(last, item.hand_over);
                    callers.push(caller);
                }
                _ => {
                    part.hand_overs.push(item.hand_over);
                    part.callers.push(vec![caller]);
                }
            }
        }
        part
    }

    pub(super) fn hand_overs(&self) -> &[HandOver] {
        &self.hand_overs
    }

    /// Takes the second half away; none when there is only one hand-over.
    pub(super) fn split(&mut self) -> Option<Self> {
        let middle = self.hand_overs.len().div_ceil(2);
        if middle == self.hand_overs.len() {
            return None;
        }
        Some(Self { hand_overs: self.hand_overs.split_off(middle), callers: self.callers.split_off(middle) })
    }

    /// Answers each caller. Of those that were merged the first has made what is new.
    pub(super) fn answer(self, accepted: Vec<Accepted>) {
        for (callers, accepted) in self.callers.into_iter().zip(accepted) {
            let repeated = Accepted { touch: accepted.touch, n_hinted: 0, is_new_table: false };
            let mut next = Some(accepted);
            for caller in callers {
                caller.tell(Ok(next.take().unwrap_or_else(|| repeated.clone())));
            }
        }
    }

    /// Tells each caller why its hand-over was not stored.
    pub(super) fn refuse(self, error: &Error) {
        for caller in self.callers.into_iter().flatten() {
            let mut copy = Error::new(error.kind(), OPERATION).caused_by(error.chain());
            if let Some(hint) = error.hint_text() {
                copy = copy.hint(hint);
            }
            caller.tell(Err(copy));
        }
    }
}

fn asks_the_same(a: &HandOver, b: &HandOver) -> bool {
    a.base_path == b.base_path
        && a.hints == b.hints
        && a.queue == b.queue
        && a.execution_engine == b.execution_engine
        && a.trigger == b.trigger
        && a.touch == b.touch
}

fn merge(into: &mut HandOver, later: HandOver) {
    if !later.spelling.is_empty() {
        into.spelling = later.spelling;
    }
    into.database = later.database.or(into.database.take());
    into.table_name = later.table_name.or(into.table_name.take());
    into.at = into.at.max(later.at);
}
