//! When a failed attempt is repeated, and when it is given up. Jitter is an argument: nothing here is random.

use std::time::Duration;

use chrono::TimeDelta;

use crate::clock::Timestamp;
use crate::model::policy::RetryPolicy;

/// Widest deviation of a wait from its nominal length, in percent; spreads the retries of many tables that failed together.
pub const JITTER_PERCENT: u32 = 20;

/// What follows a failed attempt that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The next attempt, after this wait.
    Retry {
        /// Time until the next attempt may start.
        after: Duration,
    },
    /// The instance is failed.
    GiveUp,
}

/// Returns the wait before the next attempt: exponential in `n_failed`, moved by at most [`JITTER_PERCENT`], never above
/// the policy's longest wait.
///
/// `n_failed` counts the attempt that just failed; 0 is taken as 1. `jitter` lies in 0 to 1 and is clamped; 0.5 = no
/// deviation. For attempts that do not count against the limit, pass the number of those in a row.
#[must_use]
pub fn backoff(policy: &RetryPolicy, n_failed: u32, jitter: f64) -> Duration {
    let longest = policy.backoff_max;
    let doublings = n_failed.saturating_sub(1).min(u32::BITS - 1);
    let nominal = policy.backoff_first.saturating_mul(1_u32 << doublings).min(longest);
    let jitter = if jitter.is_nan() { 0.5 } else { jitter.clamp(0.0, 1.0) };
    let spread = f64::from(JITTER_PERCENT) / 100.0;
    let seconds = nominal.as_secs_f64() * (1.0 - spread + 2.0 * spread * jitter);
    Duration::try_from_secs_f64(seconds).unwrap_or(longest).min(longest)
}

/// Returns what follows a failed attempt; `n_failed` counts it.
#[must_use]
pub fn verdict_after_failure(policy: &RetryPolicy, n_failed: u32, jitter: f64) -> AfterFailure {
    if n_failed >= policy.max_attempts.max(1) {
        return AfterFailure::GiveUp;
    }
    AfterFailure::Retry { after: backoff(policy, n_failed, jitter) }
}

/// Tells whether a stored time is still to come. One that lies further away than the `longest` possible wait was stored by a
/// clock that has been set back since, and counts as past.
#[must_use]
pub fn is_to_come(at: Timestamp, longest: Duration, now: Timestamp) -> bool {
    at > now && at - now <= TimeDelta::from_std(longest).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn policy(first: u64, max: u64) -> RetryPolicy {
        RetryPolicy {
            max_attempts: 3,
            backoff_first: Duration::from_secs(first),
            backoff_max: Duration::from_secs(max),
        }
    }

    #[test]
    fn waits_double_until_the_longest() {
        let waits: Vec<u64> = (0..8).map(|n| backoff(&policy(30, 3600), n, 0.5).as_secs()).collect();
        assert_eq!(waits, [30, 30, 60, 120, 240, 480, 960, 1920]);
        assert_eq!(backoff(&policy(30, 3600), 9, 0.5).as_secs(), 3600);
        assert_eq!(backoff(&policy(30, 3600), u32::MAX, 1.0).as_secs(), 3600);
    }

    #[test]
    fn jitter_moves_a_wait_by_a_fifth_at_most() {
        assert_eq!(backoff(&policy(100, 3600), 1, 0.0).as_secs(), 80);
        assert_eq!(backoff(&policy(100, 3600), 1, 1.0).as_secs(), 120);
        assert_eq!(backoff(&policy(100, 3600), 1, f64::NAN).as_secs(), 100);
        assert_eq!(backoff(&policy(100, 3600), 1, -7.0), backoff(&policy(100, 3600), 1, 0.0));
    }

    #[test]
    fn a_time_beyond_the_longest_wait_is_past() {
        let at = |seconds| chrono::DateTime::from_timestamp(seconds, 0).unwrap();
        let longest = Duration::from_secs(600);
        let found = [99, 100, 101, 700, 701].map(|seconds| is_to_come(at(seconds), longest, at(100)));
        assert_eq!(found, [false, false, true, true, false]);
        assert!(is_to_come(at(1_000_000_000), Duration::MAX, at(100)));
    }

    #[test]
    fn the_last_allowed_failure_gives_up() {
        let policy = policy(30, 3600);
        assert_eq!(
            verdict_after_failure(&policy, 2, 0.5),
            AfterFailure::Retry { after: Duration::from_secs(60) }
        );
        assert_eq!(verdict_after_failure(&policy, 3, 0.5), AfterFailure::GiveUp);
        assert_eq!(verdict_after_failure(&policy, 4, 0.5), AfterFailure::GiveUp);
        let none = RetryPolicy { max_attempts: 0, ..policy };
        assert_eq!(verdict_after_failure(&none, 1, 0.5), AfterFailure::GiveUp);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_above_the_longest_and_grows_with_failures(
            first in 0_u64..u64::MAX / 4, max in 0_u64..u64::MAX, n in 0_u32..u32::MAX, jitter in -0.5_f64..1.5,
        ) {
            let policy = RetryPolicy {
                max_attempts: 5, backoff_first: Duration::from_millis(first), backoff_max: Duration::from_millis(max),
            };
            let wait = backoff(&policy, n, jitter);
            prop_assert!(wait <= policy.backoff_max);
            prop_assert!(wait <= backoff(&policy, n + 1, jitter));
        }
    }
}
