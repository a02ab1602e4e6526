//! When what a driver left behind is ended. It was started for the attempt and keeps the attempt's name, so it could touch
//! the table, but it is no driver: after a wait it is asked to end, and after another one it is killed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tms_core::model::id::Tag;

/// Pace of further kills, for a process that the kernel does not let go.
const KILL_EVERY: Duration = Duration::from_secs(5);
/// How long an attempt is remembered that nobody looks at any more.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// What is done now about what a driver left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// It is seen for the first time.
    Note,
    /// It is asked to end.
    Terminate,
    /// It is killed, for the first time or again.
    Kill {
        /// For the first time.
        is_first: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    last: Due,
    /// Monotonic time of what was done last.
    at: Duration,
    /// Monotonic time of the last look.
    looked: Duration,
}

/// Attempts whose driver has ended and left something behind, as this process has seen them.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    watched: Mutex<BTreeMap<Tag, Watched>>,
}

impl Sweep {
    /// Returns what is due for an attempt that has something left. A person who says that it is over does not wait.
    pub(crate) fn due(&self, tag: &Tag, now: Duration, wait: Duration, is_said_over: bool) -> Due {
        let mut all = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, w| now.saturating_sub(w.looked) < REMEMBERED_FOR);
        let before = all.get(tag).copied();
        let is_over = |w: Watched, wait: Duration| now.saturating_sub(w.at) >= wait;
        let due = match before {
            Some(w) if matches!(w.last, Due::Kill { .. }) => {
                if is_over(w, KILL_EVERY) {
                    Due::Kill { is_first: false }
                } else {
                    Due::Nothing
                }
            }
            _ if is_said_over => Due::Kill { is_first: true },
            None => Due::Note,
            Some(w) if !is_over(w, wait) => Due::Nothing,
            Some(w) if w.last == Due::Note => Due::Terminate,
            Some(_) => Due::Kill { is_first: true },
        };
        let (last, at) = match (due, before) {
            (Due::Nothing, Some(w)) => (w.last, w.at),
            _ => (due, now),
        };
        all.insert(tag.clone(), Watched { last, at, looked: now });
        due
    }

    /// Nothing is left of it, or a driver of it lives.
    pub(crate) fn forget(&self, tag: &Tag) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(tag);
    }
}

#[cfg(test)]
mod tests {
    use tms_core::model::id::{Incarnation, InstanceId};

    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn tag() -> Tag {
        Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1)
    }

    fn at(sweep: &Sweep, tag: &Tag, seconds: u64) -> Due {
        sweep.due(tag, Duration::from_secs(seconds), WAIT, false)
    }

    #[test]
    fn what_is_left_is_asked_after_the_wait_and_killed_after_another() {
        let (sweep, tag) = (Sweep::default(), tag());
        let said: Vec<Due> = [100, 101, 129, 130, 159, 160, 161, 165].map(|s| at(&sweep, &tag, s)).into();
        let (first, again) = (Due::Kill { is_first: true }, Due::Kill { is_first: false });
        let wanted =
            [Due::Note, Due::Nothing, Due::Nothing, Due::Terminate, Due::Nothing, first, Due::Nothing, again];
        assert_eq!(said, wanted);
    }

    #[test]
    fn a_driver_that_is_seen_again_starts_the_wait_anew() {
        let (sweep, tag) = (Sweep::default(), tag());
        assert_eq!(at(&sweep, &tag, 100), Due::Note);
        sweep.forget(&tag);
        assert_eq!(at(&sweep, &tag, 200), Due::Note);
        assert_eq!(at(&sweep, &tag, 210), Due::Nothing);
        // Nobody looked for long: what is known of it may be old.
        assert_eq!(at(&sweep, &tag, 210 + REMEMBERED_FOR.as_secs()), Due::Note);
    }

    #[test]
    fn a_person_does_not_wait() {
        let (sweep, tag) = (Sweep::default(), tag());
        assert_eq!(at(&sweep, &tag, 100), Due::Note);
        let over = |seconds| sweep.due(&tag, Duration::from_secs(seconds), WAIT, true);
        assert_eq!(over(101), Due::Kill { is_first: true });
        assert_eq!(over(102), Due::Nothing);
        assert_eq!(over(106), Due::Kill { is_first: false });
    }
}
