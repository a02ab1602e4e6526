//! Whether this term may submit, as the barrier found last; see [`crate::service::barrier`].

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::lock;
use crate::clock::Timestamp;
use crate::model::id::EngineName;

/// The door to submissions. Closed until the engines were asked for living jobs.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_open: bool,
    /// Engines that gave no answer yet.
    unasked: BTreeSet<EngineName>,
    /// Until when plans may have been completed by jobs of ours that the store does not know.
    excused_until: Option<Timestamp>,
}

impl Gate {
    /// Makes a closed gate. `is_held`: the store holds submissions back.
    pub(super) fn closed(is_held: bool) -> Self {
        let excused_until = is_held.then_some(Timestamp::MAX_UTC);
        Self { state: Mutex::new(State { is_open: false, unasked: BTreeSet::new(), excused_until }) }
    }

    pub(crate) fn is_open(&self) -> bool {
        lock(&self.state).is_open
    }

    /// Tells whether nothing is submitted to this engine, for it was not asked yet.
    pub(crate) fn is_unasked(&self, engine: &EngineName) -> bool {
        lock(&self.state).unasked.contains(engine)
    }

    /// Opens it, except for some engines; tells whether it was closed.
    pub(crate) fn open(&self, unasked: BTreeSet<EngineName>, now: Timestamp) -> bool {
        let mut state = lock(&self.state);
        state.unasked = unasked;
        state.excused_until = state.excused_until.map(|until| until.min(now));
        !std::mem::replace(&mut state.is_open, true)
    }

    /// Closes it.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_open = false;
        state.excused_until = Some(Timestamp::MAX_UTC);
    }

    /// Returns the time before which a plan was made that may have been completed by a job of ours that the store does not
    /// know; none when every such job is known.
    pub(crate) fn excused_until(&self) -> Option<Timestamp> {
        lock(&self.state).excused_until
    }
}
