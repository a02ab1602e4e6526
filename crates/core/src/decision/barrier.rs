//! May anything be submitted? Not while jobs may live that the store does not know: it was restored from a copy, or is
//! newer or older than they are. Pure: the rounds of questions come from outside.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::id::EngineName;

/// What one round of questions to all engines found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Engines that did not answer.
    pub unanswered: BTreeSet<EngineName>,
    /// Living jobs that the store does not know.
    pub n_unknown: usize,
}

/// What follows from a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is submitted: unknown jobs live.
    Unknown,
    /// Nothing is submitted: an engine did not answer.
    Unanswered,
    /// Nothing is submitted: no unknown job lives, for too short a time.
    Quiet {
        /// How long it is still to last.
        left: Duration,
    },
    /// Submissions go on, but for engines that did not answer.
    Open,
}

/// The barrier of one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    is_held: bool,
    quiet: Duration,
    quiet_since: Option<Duration>,
}

impl Barrier {
    /// Makes the barrier of a term. `is_held`: the store says that it holds submissions back. `quiet`: how long no unknown
    /// job may have been seen until a hold ends; a job that was given leave may have nothing to show yet.
    #[must_use]
    pub fn new(is_held: bool, quiet: Duration) -> Self {
        Self { is_held, quiet, quiet_since: None }
    }

    /// Takes the result of a round that began at `now`, on the monotonic clock of the term.
    pub fn after(&mut self, round: &Round, now: Duration) -> Standing {
        if round.n_unknown > 0 {
            self.is_held = true;
        }
        if !self.is_held {
            return Standing::Open;
        }
        if round.n_unknown > 0 || !round.unanswered.is_empty() {
            self.quiet_since = None;
            return if round.n_unknown > 0 { Standing::Unknown } else { Standing::Unanswered };
        }
        let since = *self.quiet_since.get_or_insert(now);
        match self.quiet.checked_sub(now.saturating_sub(since)).filter(|left| !left.is_zero()) {
            Some(left) => Standing::Quiet { left },
            None => {
                self.is_held = false;
                Standing::Open
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUIET: Duration = Duration::from_secs(120);

    fn round(n_unknown: usize, is_answered: bool) -> Round {
        let silent = (!is_answered).then(|| "silent".parse().unwrap());
        Round { unanswered: silent.into_iter().collect(), n_unknown }
    }

    fn at(barrier: &mut Barrier, secs: u64, round: &Round) -> Standing {
        barrier.after(round, Duration::from_secs(secs))
    }

    #[test]
    fn a_store_that_knows_every_job_is_open_at_once() {
        let mut barrier = Barrier::new(false, QUIET);
        assert_eq!(at(&mut barrier, 0, &round(0, true)), Standing::Open);
        assert_eq!(at(&mut barrier, 1, &round(0, false)), Standing::Open, "one engine stops no other");
    }

    #[test]
    fn a_restored_store_waits_for_every_engine_and_a_quiet_time() {
        let mut barrier = Barrier::new(true, QUIET);
        assert_eq!(at(&mut barrier, 0, &round(1, true)), Standing::Unknown);
        assert_eq!(at(&mut barrier, 9, &round(0, false)), Standing::Unanswered);
        assert_eq!(at(&mut barrier, 10, &round(0, true)), Standing::Quiet { left: QUIET });
        assert_eq!(at(&mut barrier, 129, &round(0, true)), Standing::Quiet { left: Duration::from_secs(1) });
        assert_eq!(at(&mut barrier, 130, &round(0, true)), Standing::Open);
        assert_eq!(at(&mut barrier, 131, &round(0, true)), Standing::Open);
    }

    #[test]
    fn a_job_that_appears_in_the_quiet_time_starts_it_anew() {
        let mut barrier = Barrier::new(true, QUIET);
        assert_eq!(at(&mut barrier, 0, &round(0, true)), Standing::Quiet { left: QUIET });
        assert_eq!(at(&mut barrier, 60, &round(1, true)), Standing::Unknown);
        assert_eq!(at(&mut barrier, 119, &round(0, true)), Standing::Quiet { left: QUIET });
        assert_eq!(at(&mut barrier, 121, &round(0, false)), Standing::Unanswered);
        assert_eq!(at(&mut barrier, 200, &round(0, true)), Standing::Quiet { left: QUIET });
    }

    #[test]
    fn unknown_jobs_hold_any_store() {
        let mut barrier = Barrier::new(false, QUIET);
        assert_eq!(at(&mut barrier, 0, &round(2, true)), Standing::Unknown);
        assert_eq!(at(&mut barrier, 1, &round(0, true)), Standing::Quiet { left: QUIET });
        assert_eq!(at(&mut barrier, 121, &round(0, true)), Standing::Open);
    }

    proptest! {
        /// Whatever the rounds find: a held barrier opens only after clean rounds over the whole quiet time.
        #[test]
        fn it_never_opens_within_the_quiet_time(rounds in proptest::collection::vec((0..40_u64, 0..2_usize, any::<bool>()), 1..40)) {
            let mut barrier = Barrier::new(true, QUIET);
            let (mut now, mut clean_since) = (0, None);
            for (step, n_unknown, is_answered) in rounds {
                now += step;
                let standing = at(&mut barrier, now, &round(n_unknown, is_answered));
                let is_clean = n_unknown == 0 && is_answered;
                clean_since = if is_clean { clean_since.or(Some(now)) } else { None };
                let is_due = clean_since.is_some_and(|since| now - since >= QUIET.as_secs());
                prop_assert_eq!(standing == Standing::Open, is_due);
                if is_due {
                    break;
                }
            }
        }
    }
}
