//! The only file of xtask that looks at a clock or waits.
//!
//! xtask drives real processes in real time, so there is no `Clock` to inject; everything here is monotonic.

use std::fmt;
use std::time::{Duration, Instant};

/// A point in time to measure from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "xtask measures real processes")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Time since the start, for people.
    pub(crate) fn shown(self) -> Shown {
        Shown(self.elapsed())
    }
}

/// Waits a short time between two looks at something outside this process.
///
/// Every caller has a limit for the whole wait; see [`wait_until`].
#[allow(clippy::disallowed_methods, reason = "polling a foreign process; bounded by the caller's limit")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Looks every `every` until `ready` gives a value or `limit` has passed.
pub(crate) fn wait_until<T>(
    limit: Duration,
    every: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<T> {
    let watch = Stopwatch::start();
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if watch.elapsed() >= limit {
            return None;
        }
        pause(every);
    }
}

/// A duration as people read it: `3.2 s`, `4 min 05 s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown(pub(crate) Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let text = if seconds < 100 {
            format!("{:.1} s", self.0.as_secs_f64())
        } else {
            format!("{} min {:02} s", seconds / 60, seconds % 60)
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(Shown(Duration::from_millis(3_240)).to_string(), "3.2 s");
        assert_eq!(Shown(Duration::from_secs(245)).to_string(), "4 min 05 s");
        assert_eq!(format!("{:>8}", Shown(Duration::from_secs(1))), "   1.0 s");
    }

    #[test]
    fn waiting_ends_at_the_limit_and_at_the_first_value() {
        let mut looks = 0;
        let never: Option<()> = wait_until(Duration::from_millis(20), Duration::from_millis(5), || {
            looks += 1;
            None
        });
        assert!(never.is_none() && looks >= 2, "{looks}");
        assert_eq!(wait_until(Duration::from_secs(5), Duration::from_secs(5), || Some(7)), Some(7));
    }
}
