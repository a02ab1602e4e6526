//! A simulated table: a local folder with a timeline like Hudi's, in both layouts. Only timeline files are written,
//! never data. Bodies are the least that a reader accepts.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::io_error;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::model::action::{Action, Instant};
use crate::model::attempt::Expected;

/// Most names that are read of one timeline.
pub const NAMES_MAX: usize = 1_000_000;
/// Tries to find a free instant for a new plan, one per millisecond.
const INSTANT_TRIES_MAX: u32 = 1_000;

/// What a driver was given leave for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Action.
    pub action: Action,
    /// Table, as leave spells it.
    pub base_path: String,
    /// Instant; `None` for a clean that plans itself.
    pub instant: Option<Instant>,
    /// What the timeline must show.
    pub expected: Expected,
}

/// The folder of the locks that tell who holds which plan.
#[must_use]
pub fn held(engine_folder: &Path) -> PathBuf {
    engine_folder.join("held")
}

/// The right to touch one plan among all simulated drivers. Held until dropped, by the kernel: a killed driver holds nothing.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

/// Takes the right to touch one plan; `None` when another live driver has it, which must never be.
///
/// # Errors
/// `Unavailable` when that cannot be told.
pub fn hold(engine_folder: &Path, work: &Work) -> Result<Option<Held>, Error> {
    let instant = work.instant.as_ref().map_or("next", Instant::as_str);
    let name = format!("{}\0{}\0{instant}", work.base_path, work.action);
    let path = held(engine_folder).join(hex::encode(Sha256::digest(name)));
    let file = File::create(&path).map_err(|e| io_error("hold a simulated plan", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Held { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(io_error("hold a simulated plan", &path, e)),
    }
}

/// The timeline of one simulated table.
#[derive(Clone, Debug)]
pub struct SimulatedTimeline {
    folder: PathBuf,
    is_layout_2: bool,
}

impl SimulatedTimeline {
    /// Opens the timeline of the table at `base_path`.
    ///
    /// # Errors
    /// `Unsupported` for a path that is not local, `NotFound` when no table is there.
    pub fn open(base_path: &str) -> Result<Self, Error> {
        let local = local_path(base_path).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "open a simulated table")
                .with("path", base_path)
                .hint("the simulated engine works on local folders only")
        })?;
        let meta = local.join(".hoodie");
        let timeline = meta.join("timeline");
        if timeline.is_dir() {
            return Ok(Self { folder: timeline, is_layout_2: true });
        }
        if meta.is_dir() {
            return Ok(Self { folder: meta, is_layout_2: false });
        }
        Err(Error::new(ErrorKind::NotFound, "open a simulated table").with("path", meta.display()))
    }

    /// Tells whether the timeline shows what leave said.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be listed.
    pub fn shows(&self, work: &Work) -> Result<bool, Error> {
        let names = self.names()?;
        let pending = self.pending_word(work.action);
        let Some(instant) = &work.instant else {
            let is_pending = |n: &String| {
                n.strip_suffix(".requested")
                    .or(n.strip_suffix(".inflight"))
                    .is_some_and(|n| n.ends_with(".clean"))
            };
            return Ok(work.expected == Expected::None && !names.iter().any(is_pending));
        };
        let has = |name: String| names.contains(&name);
        let is_requested = has(format!("{instant}.{pending}.requested"));
        let is_inflight = has(format!("{instant}.{pending}.inflight"));
        let is_completed = self.completed_names(&names, instant, work.action) > 0;
        Ok(!is_completed
            && match work.expected {
                Expected::Requested => is_requested && !is_inflight,
                Expected::InflightOfOurs => is_requested,
                Expected::None => false,
            })
    }

    /// Writes the inflight file, and for a clean without instant the plan before it; returns the instant.
    ///
    /// # Errors
    /// `Unavailable` when it may not be on disk.
    pub fn begin(&self, work: &Work, now: Timestamp) -> Result<Instant, Error> {
        let word = self.pending_word(work.action);
        let instant = match &work.instant {
            Some(instant) => instant.clone(),
            None => self.plan_clean(now)?,
        };
        // Empty in real tables too, except for a clean; an old one of ours is left as it is.
        let path = self.folder.join(format!("{instant}.{word}.inflight"));
        let body =
            if work.action == Action::Clean { avro_file(CLEAN_PLAN_SCHEMA, CLEAN_PLAN) } else { Vec::new() };
        match File::create_new(&path).and_then(|mut f| f.write_all(&body).and_then(|()| f.sync_data())) {
            Ok(()) => Ok(instant),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(instant),
            Err(e) => Err(io_error("write an inflight file", &path, e)),
        }
    }

    /// Writes the completed file; returns how many completed files the instant has now, which must be 1.
    ///
    /// # Errors
    /// `Unavailable` when it may not be on disk.
    pub fn complete(&self, action: Action, instant: &Instant, now: Timestamp) -> Result<usize, Error> {
        let word = completed_word(action);
        let name = if self.is_layout_2 {
            format!("{instant}_{}.{word}", after(instant, now))
        } else {
            format!("{instant}.{word}")
        };
        let body = match (action, self.is_layout_2) {
            (Action::Clean, _) => avro_file(CLEAN_METADATA_SCHEMA, &avro_text(&after(instant, now))),
            (action, true) => avro_file(COMMIT_METADATA_SCHEMA, &avro_text(operation_word(action))),
            (action, false) => {
                let operation = operation_word(action);
                format!(
                    r#"{{"partitionToWriteStats":{{}},"extraMetadata":{{}},"operationType":"{operation}"}}"#
                )
                .into_bytes()
            }
        };
        // Written beside and renamed, as Hudi does; such names are no part of a timeline.
        let part = self.folder.join(format!("{name}.{}", uuid::Uuid::new_v4()));
        let path = self.folder.join(&name);
        let write = || -> std::io::Result<()> {
            let mut file = File::create_new(&part)?;
            file.write_all(&body)?;
            file.sync_data()?;
            std::fs::rename(&part, &path)
        };
        write().map_err(|e| io_error("write a completed file", &path, e))?;
        Ok(self.completed_names(&self.names()?, instant, action))
    }

    fn plan_clean(&self, now: Timestamp) -> Result<Instant, Error> {
        for later in 0..INSTANT_TRIES_MAX {
            let at = now + chrono::TimeDelta::milliseconds(i64::from(later));
            let instant: Instant = instant_text(at).parse()?;
            let path = self.folder.join(format!("{instant}.clean.requested"));
            match File::create_new(&path)
                .and_then(|mut f| f.write_all(&avro_file(CLEAN_PLAN_SCHEMA, CLEAN_PLAN)))
            {
                Ok(()) => return Ok(instant),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io_error("write a clean plan", &path, e)),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "find a free instant").with("path", self.folder.display()))
    }

    fn completed_names(&self, names: &[String], instant: &Instant, action: Action) -> usize {
        let word = completed_word(action);
        let is_it = |name: &&String| {
            let Some(times) = name.strip_suffix(word).and_then(|n| n.strip_suffix('.')) else { return false };
            times.split('_').next() == Some(instant.as_str())
        };
        names.iter().filter(is_it).count()
    }

    fn pending_word(&self, action: Action) -> &'static str {
        match action {
            Action::Compaction => "compaction",
            Action::LogCompaction => "logcompaction",
            Action::Clustering if self.is_layout_2 => "clustering",
            Action::Clustering => "replacecommit",
            Action::Clean => "clean",
        }
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let list = || -> std::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&self.folder)?.take(NAMES_MAX) {
                if let Ok(name) = entry?.file_name().into_string() {
                    names.push(name);
                }
            }
            Ok(names)
        };
        list().map_err(|e| io_error("list a simulated timeline", &self.folder, e))
    }
}

fn completed_word(action: Action) -> &'static str {
    match action {
        Action::Compaction => "commit",
        Action::LogCompaction => "deltacommit",
        Action::Clustering => "replacecommit",
        Action::Clean => "clean",
    }
}

fn operation_word(action: Action) -> &'static str {
    match action {
        Action::Compaction => "COMPACT",
        Action::LogCompaction => "LOG_COMPACT",
        Action::Clustering => "CLUSTER",
        Action::Clean => "UNKNOWN",
    }
}

fn instant_text(at: Timestamp) -> String {
    at.format("%Y%m%d%H%M%S%3f").to_string()
}

/// A completion time is always later than the requested one, also when the plan was made by a clock that runs ahead.
fn after(instant: &Instant, now: Timestamp) -> String {
    let now = instant_text(now);
    if now.as_str() > instant.as_str() {
        return now;
    }
    let width = instant.as_str().len();
    match instant.as_str().parse::<u128>() {
        Ok(number) => format!("{:0width$}", number + 1),
        Err(_) => now,
    }
}

fn local_path(base_path: &str) -> Option<PathBuf> {
    let path = match base_path.strip_prefix("file:") {
        Some(rest) => rest.strip_prefix("//").filter(|r| r.starts_with('/')).unwrap_or(rest),
        None => base_path,
    };
    path.starts_with('/').then(|| PathBuf::from(path))
}

const COMMIT_METADATA_SCHEMA: &str =
    r#"{"type":"record","name":"HoodieCommitMetadata","fields":[{"name":"operationType","type":"string"}]}"#;
const CLEAN_METADATA_SCHEMA: &str =
    r#"{"type":"record","name":"HoodieCleanMetadata","fields":[{"name":"startCleanTime","type":"string"}]}"#;
const CLEAN_PLAN_SCHEMA: &str =
    r#"{"type":"record","name":"HoodieCleanerPlan","fields":[{"name":"policy","type":"string"}]}"#;
/// The Avro text `KEEP_LATEST_COMMITS` (19 bytes; lengths are zigzag numbers).
const CLEAN_PLAN: &[u8] = b"\x26KEEP_LATEST_COMMITS";

/// Encodes one Avro string, of at most 8,191 bytes.
fn avro_text(text: &str) -> Vec<u8> {
    let mut bytes = avro_long(text.len());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Encodes a length as Avro's variable-length zigzag number.
fn avro_long(length: usize) -> Vec<u8> {
    let mut rest = (length as u128) << 1;
    let mut bytes = Vec::new();
    loop {
        let low = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// Makes an Avro container file with one record, uncompressed.
fn avro_file(schema: &str, record: &[u8]) -> Vec<u8> {
    let mark: [u8; 16] = rand::random();
    let mut file = b"Obj\x01".to_vec();
    file.extend(avro_long(1));
    file.extend(avro_text("avro.schema"));
    file.extend(avro_text(schema));
    file.push(0);
    file.extend_from_slice(&mark);
    file.extend(avro_long(1));
    file.extend(avro_long(record.len()));
    file.extend_from_slice(record);
    file.extend_from_slice(&mark);
    file
}

#[cfg(test)]
mod tests;
