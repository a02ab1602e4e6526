//! The files of one simulated job: what it was told, whether its drivers live, how it ended.
//!
//! `jobs/<tag>/`: `spec.json`, `alive.<n>` (locked by driver n for its whole life), `started`, `exit.json`, `cancel`, `log`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fate::End;
use super::io_error;
use crate::engine::{Force, LogTail};
use crate::error::{Error, ErrorKind};
use crate::model::id::Tag;

/// Longest small file of a job that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Most folders of jobs that are listed.
pub const JOBS_MAX: usize = 1_000_000;
/// Most drivers of one job.
pub const DRIVERS_MAX: u32 = 2;

/// What a driver is told. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverSpec {
    /// Attempt.
    pub tag: Tag,
    /// Random name of this launch; the engine's handle.
    pub launch: String,
    /// How long it works on the table.
    pub run_time_ms: u64,
    /// How long it waits before it asks for leave.
    pub start_delay_ms: u64,
    /// The engine does not know the job before its driver speaks.
    pub is_late: bool,
    /// How it ends when nobody stops it.
    pub end: End,
    /// Drivers of this launch.
    pub n_drivers: u32,
}

/// How the last driver ended, by its own word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitWord {
    /// Exit code.
    pub exit_code: i32,
}

/// The folder of one job.
#[derive(Clone, Debug)]
pub struct JobFolder {
    path: PathBuf,
}

/// Returns the folder of all jobs.
#[must_use]
pub fn jobs(engine_folder: &Path) -> PathBuf {
    engine_folder.join("jobs")
}

impl JobFolder {
    /// Makes the folder of a new job.
    ///
    /// # Errors
    /// `AlreadyExists` when the tag was submitted before.
    pub fn make(engine_folder: &Path, tag: &Tag) -> Result<Self, Error> {
        let path = jobs(engine_folder).join(tag.as_str());
        std::fs::create_dir(&path).map_err(|e| io_error("make the folder of a simulated job", &path, e))?;
        Ok(Self { path })
    }

    /// Returns the folder of a job, when there is one.
    ///
    /// # Errors
    /// `Unavailable` when that cannot be told.
    pub fn open(engine_folder: &Path, tag: &Tag) -> Result<Option<Self>, Error> {
        let path = jobs(engine_folder).join(tag.as_str());
        match std::fs::metadata(&path) {
            Ok(_) => Ok(Some(Self { path })),
            // The folder of all jobs must be there: without it nothing is proven.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && jobs(engine_folder).is_dir() => Ok(None),
            Err(e) => Err(io_error("open the folder of a simulated job", &path, e)),
        }
    }

    /// Returns the folders of all jobs, at most [`JOBS_MAX`]; what is named like no tag is no job.
    ///
    /// # Errors
    /// `Unavailable` when they cannot be listed, or are more.
    pub fn all(engine_folder: &Path) -> Result<Vec<(Tag, Self)>, Error> {
        let path = jobs(engine_folder);
        let failed = |e| io_error("list the simulated jobs", &path, e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(tag) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if found.len() >= JOBS_MAX {
                return Err(Error::new(ErrorKind::Unavailable, "list the simulated jobs")
                    .with("path", path.display())
                    .with("most", JOBS_MAX)
                    .hint("remove folders of jobs that have ended"));
            }
            found.push((tag, Self { path: entry.path() }));
        }
        Ok(found)
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores what the drivers are told, before any of them starts.
    ///
    /// # Errors
    /// `Unavailable` when it may not be on disk.
    pub fn write_spec(&self, spec: &DriverSpec) -> Result<(), Error> {
        self.write_whole("spec.json", spec)
    }

    /// Returns what the drivers are told; `None` when the submission died before it was stored.
    ///
    /// # Errors
    /// `Unavailable` or `Invalid`.
    pub fn read_spec(&self) -> Result<Option<DriverSpec>, Error> {
        self.read_whole("spec.json")
    }

    /// Returns the locked file that tells that driver `number` lives.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be made.
    pub fn lock_alive(&self, number: u32) -> Result<File, Error> {
        let path = self.alive(number);
        let lock = || -> std::io::Result<File> {
            let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
            // Waits at most for a look that holds it for a moment.
            file.lock()?;
            Ok(file)
        };
        lock().map_err(|e| io_error("lock the file of a simulated driver", &path, e))
    }

    /// Tells whether any of the first `n_drivers` drivers lives.
    ///
    /// # Errors
    /// `Unavailable` when that cannot be told.
    pub fn is_alive(&self, n_drivers: u32) -> Result<bool, Error> {
        for number in 0..n_drivers.min(DRIVERS_MAX) {
            let path = self.alive(number);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(io_error("open the file of a simulated driver", &path, e)),
            };
            match file.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(true),
                Err(TryLockError::Error(e)) => {
                    return Err(io_error("look at the lock of a simulated driver", &path, e));
                }
            }
        }
        Ok(false)
    }

    fn alive(&self, number: u32) -> PathBuf {
        self.path.join(format!("alive.{number}"))
    }

    /// Notes that a driver spoke.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be noted.
    pub fn note_started(&self) -> Result<(), Error> {
        let path = self.path.join("started");
        File::create(&path).map(drop).map_err(|e| io_error("note the start of a simulated driver", &path, e))
    }

    /// Tells whether a driver spoke.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.path.join("started").exists()
    }

    /// Notes how a driver ends.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be noted.
    pub fn note_exit(&self, exit_code: i32) -> Result<(), Error> {
        self.write_whole("exit.json", &ExitWord { exit_code })
    }

    /// Returns the word for how the job ended.
    ///
    /// # Errors
    /// `Unavailable` or `Invalid`.
    pub fn end_word(&self) -> Result<String, Error> {
        let word: Option<ExitWord> = self.read_whole("exit.json")?;
        Ok(word.map_or_else(|| "vanished".to_owned(), |w| format!("exit {}", w.exit_code)))
    }

    /// Asks the drivers to end; they look for it all the time.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be stored.
    pub fn ask_to_end(&self, force: Force) -> Result<(), Error> {
        let word = match force {
            Force::Gentle => "gentle",
            Force::Kill => "kill",
        };
        self.write_whole("cancel", &word)
    }

    /// Returns how the drivers are asked to end, when they are.
    #[must_use]
    pub fn end_asked(&self) -> Option<Force> {
        match self.read_whole::<String>("cancel").ok()?.as_deref() {
            Some("kill") => Some(Force::Kill),
            Some(_) => Some(Force::Gentle),
            None => None,
        }
    }

    /// Appends one line to the log.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be written.
    pub fn log(&self, line: &str) -> Result<(), Error> {
        let path = self.path.join("log");
        let write = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)?
                .write_all(format!("{line}\n").as_bytes())
        };
        write().map_err(|e| io_error("write the log of a simulated job", &path, e))
    }

    /// Returns the end of the log.
    ///
    /// # Errors
    /// `NotFound` when nothing was logged yet.
    pub fn log_tail(&self, bytes_max: usize) -> Result<LogTail, Error> {
        let path = self.path.join("log");
        let read = || -> std::io::Result<(Vec<u8>, bool)> {
            let mut file = File::open(&path)?;
            let length = file.metadata()?.len();
            let from = length.saturating_sub(u64::try_from(bytes_max).unwrap_or(u64::MAX));
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(length - from).read_to_end(&mut bytes)?;
            Ok((bytes, from > 0))
        };
        let (bytes, is_cut) = read().map_err(|e| io_error("read the log of a simulated job", &path, e))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(LogTail { text, address: Some(path.display().to_string()), is_cut })
    }

    fn write_whole(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let path = self.path.join(name);
        let bytes = serde_json::to_vec(value)
            .map_err(|e| Error::new(ErrorKind::Unexpected, "write a file of a simulated job").caused_by(e))?;
        // Two drivers of one job write the same names at once.
        let part = self.path.join(format!("{name}.{}", hex::encode(rand::random::<[u8; 4]>())));
        let write = || -> std::io::Result<()> {
            let mut file = File::create_new(&part)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            std::fs::rename(&part, &path)
        };
        write().map_err(|e| io_error("write a file of a simulated job", &path, e))
    }

    fn read_whole<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let path = self.path.join(name);
        let mut bytes = Vec::new();
        let read =
            || -> std::io::Result<usize> { File::open(&path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes) };
        let mut read = read;
        match read() {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_error("read a file of a simulated job", &path, e)),
        }
        let value = serde_json::from_slice(&bytes).map_err(|e| {
            Error::new(ErrorKind::Invalid, "read a file of a simulated job")
                .with("path", path.display())
                .caused_by(e)
        })?;
        Ok(Some(value))
    }
}
