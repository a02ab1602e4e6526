//! What engine and timeline say, and how urgent an end is.

use std::time::Duration;

use crate::engine::JobState;

/// What the engine says about an attempt: the rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineSays {
    /// It waits for resources.
    FoundQueued,
    /// It runs; unknown words of an engine are this.
    FoundRunning,
    /// Something has our tag but another identity.
    FoundOther,
    /// It ended, in whatever way.
    Ended,
    /// The engine does not know it, which proves nothing.
    AbsentNoProof,
    /// The engine does not know it, and no driver of it can ever run.
    AbsentProven,
    /// The engine did not answer.
    Unreachable,
}

impl EngineSays {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::FoundQueued,
        Self::FoundRunning,
        Self::FoundOther,
        Self::Ended,
        Self::AbsentNoProof,
        Self::AbsentProven,
        Self::Unreachable,
    ];

    /// Tells whether driver and workers are said to be gone; the settle time comes on top.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Ended | Self::AbsentProven)
    }
}

impl From<&JobState> for EngineSays {
    fn from(state: &JobState) -> Self {
        match state {
            JobState::Queued => Self::FoundQueued,
            JobState::Running => Self::FoundRunning,
            JobState::Other { .. } => Self::FoundOther,
            JobState::Ended { .. } => Self::Ended,
            JobState::Absent { is_proof: false, .. } => Self::AbsentNoProof,
            JobState::Absent { is_proof: true, .. } => Self::AbsentProven,
            JobState::Unreachable { .. } => Self::Unreachable,
        }
    }
}

/// How far a plan is on the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanState {
    /// `.requested` alone.
    Requested,
    /// An `.inflight` stands beside it.
    Inflight,
}

/// What a look says about the instant. It must be newer than what it is to explain: the end of the job above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimelineSays {
    /// No such look was made.
    NotLooked,
    /// The plan stands.
    Pending(PlanState),
    /// It is completed, with this many completed files; more than one is the loudest alarm.
    Completed {
        /// Completed files of the instant.
        files: u32,
    },
    /// It is absent from the active timeline and the history, confirmed by a second look after the grace.
    Gone,
    /// It is absent, not confirmed yet.
    Missing,
    /// The table could not be read.
    Unreadable,
}

/// For how long an attempt has been wanted to end, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// It may still end by itself; a driver that speaks is told `stop`.
    #[default]
    Stop,
    /// The engine asks it to end, so that it can give the table lock back.
    Gentle,
    /// The engine ends it.
    Kill,
}

/// Time that a driver gets to end by itself. A Spark driver lived 7.9 s after its completed file (measured, hudi-lab 9.7),
/// and hears `stop` with its next progress report.
pub const STOP_WAIT: Duration = Duration::from_secs(30);

/// Time after which a gentle cancel becomes a kill, counted from the first wish. A commit under the table lock takes
/// seconds; a driver killed with the lock in hand stops every writer until the lock expires.
pub const KILL_WAIT: Duration = Duration::from_secs(120);

/// Returns how urgent the end of an attempt is, from the time since it was first wanted: since `cancel_asked`, since the
/// timeline was seen completed or gone, or since the attempt was overdue.
#[must_use]
pub fn urgency(wanted_for: Duration) -> Urgency {
    if wanted_for >= KILL_WAIT {
        Urgency::Kill
    } else if wanted_for >= STOP_WAIT {
        Urgency::Gentle
    } else {
        Urgency::Stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_grows_with_time() {
        assert_eq!(urgency(Duration::ZERO), Urgency::Stop);
        assert_eq!(urgency(STOP_WAIT), Urgency::Gentle);
        assert_eq!(urgency(KILL_WAIT), Urgency::Kill);
    }

    #[test]
    fn every_word_of_an_engine_has_its_row() {
        let text = String::new;
        for (state, expected) in [
            (JobState::Queued, EngineSays::FoundQueued),
            (JobState::Running, EngineSays::FoundRunning),
            (JobState::Other { what: text() }, EngineSays::FoundOther),
            (JobState::Ended { how: text(), is_settled: false }, EngineSays::Ended),
            (JobState::Absent { is_proof: false, what: text() }, EngineSays::AbsentNoProof),
            (JobState::Absent { is_proof: true, what: text() }, EngineSays::AbsentProven),
            (JobState::Unreachable { reason: text() }, EngineSays::Unreachable),
        ] {
            assert_eq!(EngineSays::from(&state), expected);
        }
    }
}
