//! What the disk gives: a program that appends batches to one file and forces each to the disk, and does nothing else.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::machine::{now, pause_until};

/// Bytes that stand for one hand-over: about what the stores write for it.
pub(crate) const ROW_BYTES: usize = 512;
/// Most rows of one batch, as of the server.
const BATCH_ROWS_MAX: usize = 2_000;

/// A file that batches are appended to.
#[derive(Debug)]
pub(crate) struct Raw {
    file: File,
    rows: Vec<u8>,
}

impl Raw {
    /// Opens a new file in a folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let file = File::create(folder.join("raw.log")).context("cannot make the file of `raw`")?;
        Ok(Self { file, rows: vec![b'x'; ROW_BYTES * BATCH_ROWS_MAX] })
    }

    fn append(&mut self, n_rows: usize) -> Result<()> {
        let n_bytes = n_rows.clamp(1, BATCH_ROWS_MAX) * ROW_BYTES;
        self.file.write_all(&self.rows[..n_bytes]).context("cannot append")?;
        self.file.sync_data().context("cannot sync")
    }

    /// Appends batches of one size without pause; returns rows per second.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn steady(&mut self, batch_rows: usize, time: Duration) -> Result<f64> {
        let started = now();
        let mut n_rows = 0usize;
        while now() - started < time {
            self.append(batch_rows)?;
            n_rows += batch_rows;
        }
        Ok(n_rows as f64 / (now() - started).as_secs_f64())
    }

    /// Appends rows that become due at a steady rate; those that are due go together, as hand-overs do. Returns the
    /// time of each from its due time to the end of its sync, in milliseconds.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn replay(&mut self, rate: f64, time: Duration) -> Result<Vec<f64>> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds of rows")]
        let n_rows = (rate * time.as_secs_f64()) as usize;
        let started = now();
        let due = |row: usize| started + Duration::from_secs_f64(row as f64 / rate);
        let mut latencies = Vec::with_capacity(n_rows);
        let mut next = 0;
        while next < n_rows {
            pause_until(due(next));
            let at = now();
            let n_due =
                (next..n_rows.min(next + BATCH_ROWS_MAX)).take_while(|row| due(*row) <= at).count().max(1);
            self.append(n_due)?;
            let done = now();
            let of_batch = next..next + n_due;
            latencies.extend(of_batch.map(|row| done.saturating_sub(due(row)).as_secs_f64() * 1e3));
            next += n_due;
        }
        Ok(latencies)
    }

    /// Syncs one row at a time without pause; returns the time of each, in milliseconds.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn single_syncs(&mut self, n: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(n);
        for _ in 0..n {
            let started = now();
            self.append(1)?;
            times.push((now() - started).as_secs_f64() * 1e3);
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_times_every_row_from_its_due_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut raw = Raw::new(folder.path()).unwrap();
        let latencies = raw.replay(2_000.0, Duration::from_millis(100)).unwrap();
        assert_eq!(latencies.len(), 200);
        assert!(latencies.iter().all(|ms| *ms > 0.0));
        assert_eq!(std::fs::metadata(folder.path().join("raw.log")).unwrap().len(), (200 * ROW_BYTES) as u64);
    }
}
