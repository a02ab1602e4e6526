//! The engine's own record of what drivers did, for a checker that must not trust TMS. One JSON line per event,
//! appended in one write and forced to disk, so that it holds over any kill.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::io_error;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::model::action::{Action, Instant};
use crate::model::id::{RunId, Tag};

/// File of the starts, in the engine's folder.
pub const STARTS_FILE: &str = "starts.jsonl";
/// File of everything after a start, in the engine's folder.
pub const ACTS_FILE: &str = "acts.jsonl";
/// Longest file of records that [`read`] takes, in bytes; a record has about 350.
pub const RECORDS_BYTES_MAX: u64 = 1 << 30;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A driver started.
    Start,
    /// It is about to touch a table; it has leave.
    Holding,
    /// It was about to touch a plan that another live driver holds. Must never be seen.
    Double,
    /// It wrote to the timeline for the first time.
    Touch,
    /// It wrote the completed file.
    Completed,
    /// It found a completed file beside the one that it wrote. Must never be seen.
    CompletedTwice,
    /// It was told to stop and left the plan inflight.
    Stopped,
    /// It ended the work without completing, as its fate wanted.
    Failed,
    /// It touches nothing any more.
    Released,
    /// Its last word, with its exit code.
    Exit,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, by the driver's clock; lines of one file are in the order of their writing.
    pub at: Timestamp,
    /// What.
    pub what: What,
    /// Attempt.
    pub tag: Tag,
    /// Driver.
    pub run_id: RunId,
    /// Its process.
    pub pid: u32,
    /// Table, as leave spelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_path: Option<String>,
    /// Action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instant: Option<Instant>,
    /// Exit code, of an exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Appends one record.
///
/// # Errors
/// `Unavailable` when it may not be on disk; what it announces must not be done then.
pub fn append(folder: &Path, record: &Record) -> Result<(), Error> {
    let path = folder.join(if record.what == What::Start { STARTS_FILE } else { ACTS_FILE });
    let mut line = serde_json::to_vec(record)
        .map_err(|e| Error::new(ErrorKind::Unexpected, "write a record").caused_by(e))?;
    line.push(b'\n');
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
        file.write_all(&line)?;
        file.sync_data()
    };
    write().map_err(|e| io_error("write a record", &path, e))
}

/// Returns the records of one file, in the order of their writing; none when nothing was ever recorded.
///
/// # Errors
/// `Unavailable` when it cannot be read, `Invalid` when a whole line is no record.
pub fn read(folder: &Path, file: &str) -> Result<Vec<Record>, Error> {
    let path: PathBuf = folder.join(file);
    let text = match read_capped(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io_error("read records", &path, e)),
    };
    // What follows the last line end is a write that a kill cut off, hence nothing that was acted upon.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line| {
        serde_json::from_str(line)
            .map_err(|e| Error::new(ErrorKind::Invalid, "read a record").with("line", line).caused_by(e))
    };
    whole.lines().filter(|l| !l.is_empty()).map(parse).collect()
}

fn read_capped(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(File::open(path)?, RECORDS_BYTES_MAX), &mut text)?;
    Ok(text)
}
