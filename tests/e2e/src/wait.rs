//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the time; tests own no clock of TMS.
#[must_use]
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the limit of a wait, outside the product")]
    Instant::now()
}

/// The one pause of every wait.
pub fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the pause between two looks at a condition")]
    std::thread::sleep(time);
}

/// Waits until `look` answers something.
///
/// # Errors
/// The limit passed; the text of `describe` says what was there instead.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Option<T>,
    describe: impl FnOnce() -> String,
) -> Result<T> {
    let deadline = now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if now() > deadline {
            bail!("not within {limit:?}: {what}\n{}", describe());
        }
        pause(PAUSE);
    }
}

/// As [`until`], looking as often as the machine can: for windows of a fraction of a second.
///
/// # Errors
/// The limit passed.
pub fn until_at_once<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if now() > deadline {
            bail!("not within {limit:?}: {what}");
        }
        pause(Duration::from_millis(2));
    }
}
