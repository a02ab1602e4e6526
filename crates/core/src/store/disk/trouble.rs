//! What is done after an error of the disk: longer and longer rests, and one line of the log for each change.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

/// Rest after the first error of the disk before a write is tried again; it doubles from error to error.
pub const REST_FIRST: Duration = Duration::from_millis(100);
/// Longest rest. After it a full disk that has room again is noticed; each trial makes the backend check its files.
pub const REST_MAX: Duration = Duration::from_secs(5);

/// Errors of the disk since the last write that went well.
#[derive(Debug, Default)]
pub struct Trouble {
    n_failed: u32,
    /// When a write is tried again. Each one that fails closes the store, which is checked when it is opened.
    write_not_before: Option<Instant>,
    /// When an opening that failed is tried again. The first one comes at once, so that reads go on.
    open_not_before: Option<Instant>,
    is_lost: bool,
}

impl Trouble {
    /// Tells whether a write may be tried.
    ///
    /// # Errors
    /// How long not.
    pub fn may_write(&self) -> Result<(), Duration> {
        rested(self.write_not_before)
    }

    /// Tells whether the file may be opened.
    ///
    /// # Errors
    /// How long not.
    pub fn may_open(&self) -> Result<(), Duration> {
        rested(self.open_not_before)
    }

    /// Notes that an error closed the file, or closed it for writes.
    pub fn closed(&mut self, file: &Path, cause: &impl Display) {
        let rest = self.rest();
        self.write_not_before = Some(Instant::now() + rest);
        if self.n_failed == 1 {
            tracing::error!(
                file = %file.display(),
                error = %cause,
                "The disk of the store failed: look at its space and at the system's log. It is tried again by itself."
            );
        }
    }

    /// Notes that the file could not be opened again.
    pub fn failed_to_open(&mut self) {
        let not_before = Instant::now() + self.rest();
        self.open_not_before = Some(not_before);
        self.write_not_before = Some(not_before);
    }

    /// Notes that the file was opened again.
    pub fn opened(&mut self) {
        self.open_not_before = None;
    }

    /// Notes a write that went well.
    pub fn wrote(&mut self, file: &Path) {
        if self.n_failed > 0 {
            tracing::info!(file = %file.display(), n_failed = self.n_failed, "The store takes writes again.");
            *self = Self::default();
        }
    }

    /// Notes whether the file stands where it should, or why not.
    pub fn placed(&mut self, file: &Path, lost: Option<&str>) {
        match lost {
            Some(lost) if !self.is_lost => {
                tracing::error!(file = %file.display(), error = lost, "The file of the store is gone.");
            }
            None if self.is_lost => tracing::info!(file = %file.display(), "The file of the store is back."),
            _ => {}
        }
        self.is_lost = lost.is_some();
    }

    fn rest(&mut self) -> Duration {
        let rest = REST_FIRST.saturating_mul(2_u32.saturating_pow(self.n_failed)).min(REST_MAX);
        self.n_failed = self.n_failed.saturating_add(1);
        rest
    }
}

fn rested(not_before: Option<Instant>) -> Result<(), Duration> {
    let wait = not_before.map(|at| at.saturating_duration_since(Instant::now())).unwrap_or_default();
    if wait.is_zero() { Ok(()) } else { Err(wait) }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rests_grow_to_their_limit_and_end_with_a_write_that_goes_well() {
        let file = Path::new("f");
        let mut trouble = Trouble::default();
        let mut n_tried = 0;
        for _ in 0..6_000 {
            if trouble.may_write().is_ok() {
                n_tried += 1;
                // Opened at once, so that reads go on, and closed by the write.
                trouble.may_open().unwrap();
                trouble.opened();
                trouble.closed(file, &"full");
            }
            advance(Duration::from_millis(10)).await;
        }
        // 0.1, 0.2, 0.4, ... 3.2 s, then every 5 s of a minute.
        assert!((15..=20).contains(&n_tried), "{n_tried}");
        advance(REST_MAX).await;
        trouble.may_write().unwrap();
        trouble.wrote(file);
        trouble.closed(file, &"full");
        assert_eq!(trouble.may_write(), Err(REST_FIRST));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_opened_rests_too() {
        let mut trouble = Trouble::default();
        trouble.failed_to_open();
        assert_eq!(trouble.may_open(), Err(REST_FIRST));
        assert_eq!(trouble.may_write(), Err(REST_FIRST));
        advance(REST_FIRST).await;
        trouble.may_open().unwrap();
        trouble.failed_to_open();
        assert_eq!(trouble.may_open(), Err(REST_FIRST * 2));
    }
}
