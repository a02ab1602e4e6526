//! The only source of time. Decisions take times as arguments; edges ask a [`Clock`].

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// A point of wall-clock time. Shown and stored; it proves nothing about order or death.
pub type Timestamp = DateTime<Utc>;

/// Tells the time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the wall-clock time, in whole milliseconds.
    fn now(&self) -> Timestamp;

    /// Returns the time since some fixed moment of this process; it never goes back.
    fn monotonic(&self) -> Duration;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let now = Utc::now();
        whole_millis(now)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

fn whole_millis(at: Timestamp) -> Timestamp {
    DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}

/// A clock that only moves when told to, for tests.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(Timestamp, Duration)>,
}

impl ManualClock {
    /// Makes a clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { state: Mutex::new((whole_millis(now), Duration::ZERO)) }
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.0 += TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
        state.1 += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).1
    }
}
