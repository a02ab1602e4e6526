//! The folder of one attempt: `<folder>/<tag>/`.
//!
//! | file | by | what |
//! |---|---|---|
//! | `alive` | submitter | empty; locked from before the wrapper starts until the last process that inherited it is gone |
//! | `plan.json` | submitter | the command; no secret is in it |
//! | `claim.json` | whoever comes first | the wrapper: "I run it"; the engine: "nobody ever will". Made whole and only once |
//! | `jvm.json` | the driver's process, before it becomes the driver | its pid and start time |
//! | `exit.json` | wrapper | how the driver ended, and whether anything of it was left then |
//! | `over` | a person | empty: "no process of it lives", where TMS cannot see that itself; where it sees what a driver left behind, that is ended at once |
//! | `output.log`, `output.log.1` | wrapper | the newest output of the driver; the engine adds what it did to what a driver left behind |

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fstatfs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tms_core::model::id::Tag;

use crate::place::Place;
use crate::proc::ProcessMark;
use crate::survey::LOCK_FILE;

/// Longest small file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// File systems on which a lock is this kernel's own affair, so that a free one is proof: ext2 to ext4, XFS, Btrfs, F2FS,
/// ZFS, bcachefs, tmpfs (numbers: `include/uapi/linux/magic.h` and each one's source). Not here are those of a network,
/// FUSE, and overlayfs, whose locks belong to one mount of it.
const LOCAL_FILE_SYSTEMS: [u64; 7] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0xCA45_1A4E, 0x0102_1994];

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
    /// The wrapper saw that no process of the attempt but itself was left. Absent in old records.
    #[serde(default)]
    pub left_nothing: bool,
    /// When, in milliseconds since 1970.
    pub ended_at_ms: i64,
}

/// What the lock of an attempt tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSeen {
    /// A process of it lives, here or on another machine.
    Held,
    /// None of those that inherited it lives on this kernel, in whatever container.
    Free,
    /// Nobody is seen to hold it, on a file system where that proves nothing.
    FreeWithoutProof,
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
            Ok(()) if is_local(&file) => Ok(LockSeen::Free),
            Ok(()) => Ok(LockSeen::FreeWithoutProof),
            Err(TryLockError::WouldBlock) => Ok(LockSeen::Held),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Returns the path of the file by which a person says that no process of the attempt lives.
    #[must_use]
    pub fn over(&self) -> PathBuf {
        self.path.join("over")
    }

    /// Tells whether a person said so.
    ///
    /// # Errors
    /// That cannot be told.
    pub fn is_said_over(&self) -> io::Result<bool> {
        fs::exists(self.over())
    }

    fn alive(&self) -> PathBuf {
        self.path.join(LOCK_FILE)
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
        fs::rename(&part, self.path.join(name)).inspect_err(|_| drop(fs::remove_file(&part)))
    }

    /// Writes beside the file, under a name that nobody else uses.
    fn write_part(&self, name: &str, value: &impl Serialize) -> io::Result<PathBuf> {
        static PARTS: AtomicU64 = AtomicU64::new(0);
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        let part = self.path.join(format!(".{name}.{}.{number}", std::process::id()));
        let bytes = serde_json::to_vec(value).map_err(io::Error::other)?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        match file.write_all(&bytes).and_then(|()| file.sync_all()) {
            Ok(()) => Ok(part),
            Err(e) => {
                // Nobody would ever look for it again; the error that counts is the first one.
                drop(fs::remove_file(&part));
                Err(e)
            }
        }
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

fn is_local(file: &File) -> bool {
    let kind = fstatfs(file).ok().and_then(|s| u64::try_from(s.f_type).ok());
    kind.is_some_and(|kind| LOCAL_FILE_SYSTEMS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tms_core::model::id::{Incarnation, InstanceId};

    use super::*;

    fn attempt() -> (TempDir, AttemptFolder) {
        let folder = TempDir::new().unwrap();
        let attempt = AttemptFolder::of(folder.path(), &attempt_tag());
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

    /// Set for the process that a test starts: the folder of the attempt that it is to claim.
    const CHILD_FOLDER: &str = "TMS_ATTEMPT_TEST_FOLDER";

    /// Claims an attempt where nothing can be written. Passes at once when nobody asks for it.
    #[test]
    fn child_whose_disk_is_full() {
        let Some(folder) = std::env::var_os(CHILD_FOLDER) else { return };
        let attempt = AttemptFolder::at(folder.into());
        let claim = Claim::Abandoned { why: "x".to_owned() };
        assert_eq!(attempt.claim(&claim).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        attempt
            .write_plan(&Plan { tag: attempt_tag(), program: "p".into(), args: vec![], log_bytes_max: 1 })
            .unwrap_err();
        println!("REFUSED");
    }

    fn attempt_tag() -> Tag {
        Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1)
    }

    #[test]
    fn a_full_disk_leaves_no_parts_behind() {
        let (_folder, attempt) = attempt();
        attempt.make().unwrap();
        // No file may have a byte; the signal that this brings is ignored, so that the write fails instead.
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap());
        shell.args([
            "attempt::tests::child_whose_disk_is_full",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ]);
        let output = shell.env(CHILD_FOLDER, attempt.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("REFUSED"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_dir(attempt.path()).unwrap().count(), 0);
        assert!(attempt.claim(&Claim::Abandoned { why: "x".to_owned() }).unwrap(), "it can be claimed later");
    }

    #[test]
    fn the_lock_lasts_as_long_as_its_holder() {
        let (_folder, attempt) = attempt();
        attempt.make().unwrap();
        assert_eq!(attempt.look_at_lock().unwrap(), LockSeen::Missing);
        let held = attempt.lock_alive().unwrap();
        assert_eq!(attempt.look_at_lock().unwrap(), LockSeen::Held);
        drop(held);
        let free = attempt.look_at_lock().unwrap();
        assert!(matches!(free, LockSeen::Free | LockSeen::FreeWithoutProof), "{free:?}");
    }

    #[test]
    fn a_free_lock_is_proof_on_file_systems_of_this_kernel_only() {
        // Where a test can count on one of each: shared memory, and what the kernel makes up.
        let shared = TempDir::new_in("/dev/shm").unwrap();
        assert!(is_local(&File::create(shared.path().join("alive")).unwrap()));
        assert!(!is_local(&File::open("/proc/self/stat").unwrap()));
    }

    #[test]
    fn a_record_of_an_end_from_before_says_nothing_of_what_was_left() {
        let old: ExitRecord = serde_json::from_str(r#"{"code":0,"signal":null,"ended_at_ms":1}"#).unwrap();
        assert!(!old.left_nothing);
    }

    #[test]
    fn a_person_says_that_it_is_over_by_one_file() {
        let (_folder, attempt) = attempt();
        assert!(!attempt.is_said_over().unwrap());
        attempt.make().unwrap();
        assert!(!attempt.is_said_over().unwrap());
        fs::write(attempt.over(), "").unwrap();
        assert!(attempt.is_said_over().unwrap());
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
