//! The folder of one attempt: `<folder>/<tag>/`.
//!
//! | file | by | what |
//! |---|---|---|
//! | `alive` | submitter | empty; locked from before the wrapper starts until the last process that inherited it is gone |
//! | `plan.json` | submitter | the command; no secret is in it |
//! | `claim.json` | whoever comes first | the wrapper: "I run it"; the engine: "nobody ever will". Made whole and only once |
//! | `jvm.json` | the driver's process, before it becomes the driver | its pid and start time |
//! | `exit.json` | wrapper | how the driver ended |
//! | `output.log`, `output.log.1` | wrapper | the newest output of the driver |

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tms_core::model::id::Tag;

use crate::proc::{Place, ProcessMark};

/// Longest small file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What the wrapper is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Attempt.
    pub tag: Tag,
    /// Program.
    pub program: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Most bytes of output that are kept.
    pub log_bytes_max: u64,
}

/// Who decided what becomes of the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Claim {
    /// A wrapper runs it, in a session of its own.
    Wrapper(WrapperClaim),
    /// The engine gave it up before any wrapper came: none can ever run it.
    Abandoned {
        /// Why.
        why: String,
    },
}

/// The wrapper's claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapperClaim {
    /// Attempt.
    pub tag: Tag,
    /// Where it runs.
    pub place: Place,
    /// The session of wrapper and driver.
    pub session: u32,
    /// The wrapper.
    pub wrapper: ProcessMark,
}

/// How the driver ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// What went wrong in the wrapper itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// When, in milliseconds since 1970.
    pub ended_at_ms: i64,
}

/// What the lock of an attempt tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSeen {
    /// A process of it lives.
    Held,
    /// None of those that inherited it lives.
    Free,
    /// There is no such file.
    Missing,
}

/// The folder of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFolder {
    path: PathBuf,
}

impl AttemptFolder {
    /// Names the folder at `path`, which may not exist.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Names the folder of an attempt, which may not exist.
    #[must_use]
    pub fn of(folder: &Path, tag: &Tag) -> Self {
        Self { path: folder.join(tag.as_str()) }
    }

    /// Makes it; the caller is the only one for which this succeeds.
    ///
    /// # Errors
    /// `AlreadyExists` when the tag was submitted before.
    pub fn make(&self) -> io::Result<()> {
        // Only the owner may look: a log can quote anything.
        DirBuilder::new().mode(0o700).create(&self.path)
    }

    /// Tells whether it exists.
    ///
    /// # Errors
    /// That cannot be told, above all because the folder of all attempts is missing.
    pub fn exists(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // A missing parent is a lost disk, and then no absence is proven.
                let parent = self.path.parent().unwrap_or(Path::new("/"));
                fs::metadata(parent).map(|_| false)
            }
            Err(e) => Err(e),
        }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the log that is being written, and of the one before it.
    #[must_use]
    pub fn logs(&self) -> (PathBuf, PathBuf) {
        (self.path.join("output.log"), self.path.join("output.log.1"))
    }

    /// Makes the file that tells whether any process of the attempt lives, locked. It becomes the standard input of
    /// wrapper and driver: an open file is inherited without a gap, and the kernel forgets it with its last holder.
    ///
    /// # Errors
    /// It cannot be made or locked.
    pub fn lock_alive(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.alive())?;
        // Waits at most for a look, which holds it for a moment.
        file.lock()?;
        Ok(file)
    }

    /// Looks whether any process of the attempt lives.
    ///
    /// # Errors
    /// That cannot be told.
    pub fn look_at_lock(&self) -> io::Result<LockSeen> {
        let file = match File::open(self.alive()) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(LockSeen::Missing),
            Err(e) => return Err(e),
        };
        // Shared, so that two looks at once do not see each other.
        match file.try_lock_shared() {
            Ok(()) => Ok(LockSeen::Free),
            Err(TryLockError::WouldBlock) => Ok(LockSeen::Held),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn alive(&self) -> PathBuf {
        self.path.join("alive")
    }

    /// Stores the plan.
    ///
    /// # Errors
    /// It cannot be stored.
    pub fn write_plan(&self, plan: &Plan) -> io::Result<()> {
        self.write("plan.json", plan)
    }

    /// Returns the plan.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_plan(&self) -> io::Result<Option<Plan>> {
        self.read("plan.json")
    }

    /// Claims the attempt: exactly one caller ever succeeds, and the file is whole from its first moment. Returns
    /// whether it was this one.
    ///
    /// # Errors
    /// It cannot be claimed by anybody now.
    pub fn claim(&self, claim: &Claim) -> io::Result<bool> {
        let part = self.write_part("claim.json", claim)?;
        let linked = fs::hard_link(&part, self.path.join("claim.json"));
        fs::remove_file(&part)?;
        match linked {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns the claim, once there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_claim(&self) -> io::Result<Option<Claim>> {
        self.read("claim.json")
    }

    /// Stores which process becomes the driver.
    ///
    /// # Errors
    /// It cannot be stored; the driver must not be started then.
    pub fn write_jvm(&self, jvm: ProcessMark) -> io::Result<()> {
        self.write("jvm.json", &jvm)
    }

    /// Returns which process became the driver.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_jvm(&self) -> io::Result<Option<ProcessMark>> {
        self.read("jvm.json")
    }

    /// Stores how the driver ended.
    ///
    /// # Errors
    /// It cannot be stored.
    pub fn write_exit(&self, exit: &ExitRecord) -> io::Result<()> {
        self.write("exit.json", exit)
    }

    /// Returns how the driver ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_exit(&self) -> io::Result<Option<ExitRecord>> {
        self.read("exit.json")
    }

    fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let part = self.write_part(name, value)?;
        fs::rename(part, self.path.join(name))
    }

    /// Writes beside the file, under a name that nobody else uses.
    fn write_part(&self, name: &str, value: &impl Serialize) -> io::Result<PathBuf> {
        static PARTS: AtomicU64 = AtomicU64::new(0);
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        let part = self.path.join(format!(".{name}.{}.{number}", std::process::id()));
        let bytes = serde_json::to_vec(value).map_err(io::Error::other)?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        Ok(part)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.path.join(name);
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            let text = format!(
                "{} is damaged ({e}): make sure that no process of this attempt lives",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tms_core::model::id::{Incarnation, InstanceId};

    use super::*;

    fn attempt() -> (TempDir, AttemptFolder) {
        let folder = TempDir::new().unwrap();
        let tag = Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1);
        let attempt = AttemptFolder::of(folder.path(), &tag);
        (folder, attempt)
    }

    #[test]
    fn a_folder_is_made_once() {
        let (_folder, attempt) = attempt();
        assert!(!attempt.exists().unwrap());
        attempt.make().unwrap();
        assert!(attempt.exists().unwrap());
        assert_eq!(attempt.make().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_lost_folder_of_attempts_proves_nothing() {
        let (folder, attempt) = attempt();
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(attempt.exists().is_err());
    }

    #[test]
    fn one_of_many_claims_wins_and_is_whole() {
        let (_folder, attempt) = attempt();
        attempt.make().unwrap();
        let claim = |n: usize| Claim::Abandoned { why: "x".repeat(n * 1_000) };
        let won: Vec<usize> = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..8)
                .map(|n| {
                    scope.spawn({
                        let attempt = &attempt;
                        move || attempt.claim(&claim(n)).unwrap()
                    })
                })
                .collect();
            let won = claims.into_iter().map(|c| c.join().unwrap()).enumerate();
            won.filter(|(_, won)| *won).map(|(n, _)| n).collect()
        });
        assert_eq!(won.len(), 1);
        assert_eq!(attempt.read_claim().unwrap(), Some(claim(won[0])));
    }

    #[test]
    fn the_lock_lasts_as_long_as_its_holder() {
        let (_folder, attempt) = attempt();
        attempt.make().unwrap();
        assert_eq!(attempt.look_at_lock().unwrap(), LockSeen::Missing);
        let held = attempt.lock_alive().unwrap();
        assert_eq!(attempt.look_at_lock().unwrap(), LockSeen::Held);
        drop(held);
        assert_eq!(attempt.look_at_lock().unwrap(), LockSeen::Free);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_never_an_absence() {
        let (_folder, attempt) = attempt();
        attempt.make().unwrap();
        for text in ["", "{", "[]", r#"{"by":"nobody"}"#] {
            fs::write(attempt.path().join("claim.json"), text).unwrap();
            assert_eq!(attempt.read_claim().unwrap_err().kind(), io::ErrorKind::InvalidData, "{text}");
        }
    }
}
