//! The folder of one quick start: tables, the server's data, logs. It goes when the run ends well; what did not end
//! well leaves its logs.
//!
//! A run never touches what a person may still use: a folder that was kept whole, and one of a run that still runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::remove;
use crate::time::wait_until;

/// Runs of which only logs stay, the new one counted.
const RUNS_KEPT: usize = 5;
const PREFIX: &str = "run-";
/// A process id comes back; more folders of one id than this mean that something else is wrong.
const NAMES_MAX: usize = 1_000;
const LOGS: &str = "logs";
/// Held locked while its run lives. It goes when the run has decided what stays, so one that nobody holds is of a run
/// that was killed before it could decide.
const RUNNING: &str = "running";
/// In the parent: one run at a time makes its folder and clears up.
const LOCK: &str = "lock";
/// Clearing up takes milliseconds, a big table seconds.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(50);
/// A process that is being ended may still write into a folder while it is removed.
const REMOVE_LIMIT: Duration = Duration::from_secs(5);
const REMOVE_EVERY: Duration = Duration::from_millis(200);

/// What stays of a run's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Logs,
    All,
}

/// One run's folder; cleaned up when dropped.
#[derive(Debug)]
pub(crate) struct RunFolder {
    pub(crate) root: PathBuf,
    kept: Kept,
    /// Unlocked by the kernel when closed, also after a crash.
    _running: File,
}

fn cannot_create(folder: &Path) -> String {
    format!("cannot create {}; set CARGO_TARGET_DIR to a folder that can be written", folder.display())
}

impl RunFolder {
    /// Makes the folder below `parent`, and clears up there: killed runs keep their logs, and of runs with nothing but
    /// logs the oldest go. Its logs stay until [`Self::keep`] says else.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| cannot_create(parent))?;
        // A table behind a link is run by TMS under its real path only.
        let parent =
            &fs::canonicalize(parent).with_context(|| format!("cannot find {}", parent.display()))?;
        let _alone = lock(parent)?;
        clear_up(parent);
        let root = new_folder(parent, std::process::id())?;
        let running = root.join(RUNNING);
        let file = File::create(&running).with_context(|| cannot_create(&running))?;
        file.try_lock().with_context(|| format!("cannot lock {}", running.display()))?;
        let run = Self { root, kept: Kept::Logs, _running: file };
        for folder in [run.tables(), run.data(), run.logs()] {
            fs::create_dir_all(&folder).with_context(|| cannot_create(&folder))?;
        }
        Ok(run)
    }

    pub(crate) fn tables(&self) -> PathBuf {
        self.root.join("tables")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join(LOGS)
    }

    /// Spark makes this folder, used or not, where it is started unless it is named.
    pub(crate) fn warehouse(&self) -> PathBuf {
        self.root.join("spark-warehouse")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("tms.toml")
    }

    /// Says what stays when the run has ended. What is kept whole is safe from other runs from now on, whatever becomes
    /// of this one.
    pub(crate) fn keep(&mut self, kept: Kept) -> Result<()> {
        if kept == Kept::All {
            remove(&self.root.join(RUNNING))?;
        }
        self.kept = kept;
        Ok(())
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        match self.kept {
            // What cannot be removed now is cleared up by a later run.
            Kept::Nothing => drop(remove_stubbornly(&self.root)),
            Kept::Logs => drop(leave_logs(&self.root)),
            Kept::All => {}
        }
    }
}

/// Removes all but the logs; the mark of a running run goes last, so that a half-done removal is taken up again.
pub(crate) fn leave_logs(root: &Path) -> Result<()> {
    for path in entries(root) {
        if path.file_name().is_some_and(|name| name != LOGS && name != RUNNING) {
            remove_stubbornly(&path)?;
        }
    }
    remove(&root.join(RUNNING))
}

fn remove_stubbornly(path: &Path) -> Result<()> {
    wait_until(REMOVE_LIMIT, REMOVE_EVERY, || remove(path).ok()).map_or_else(|| remove(path), Ok)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn lock(parent: &Path) -> Result<File> {
    let path = parent.join(LOCK);
    let file = File::create(&path).with_context(|| cannot_create(&path))?;
    let locked = wait_until(LOCK_LIMIT, LOCK_LOOK_EVERY, || file.try_lock().ok());
    locked.with_context(|| {
        format!("another quick start has held {} for {} s; end it", path.display(), LOCK_LIMIT.as_secs())
    })?;
    Ok(file)
}

/// A process id comes back, and its former folder may be one that was kept.
fn new_folder(parent: &Path, pid: u32) -> Result<PathBuf> {
    for n in 1..=NAMES_MAX {
        let name = if n == 1 { format!("{PREFIX}{pid}") } else { format!("{PREFIX}{pid}-{n}") };
        let root = parent.join(name);
        match fs::create_dir(&root) {
            Ok(()) => return Ok(root),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| cannot_create(&root)),
        }
    }
    anyhow::bail!("{NAMES_MAX} runs of process {pid} lie in {}; remove some", parent.display())
}

/// What cannot be removed costs disk, not the run, so its faults are passed over.
fn clear_up(parent: &Path) {
    let is_run = |path: &PathBuf| {
        path.is_dir() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    };
    let mut runs: Vec<PathBuf> = entries(parent).into_iter().filter(is_run).collect();
    runs.retain(|run| {
        let running = run.join(RUNNING);
        match File::open(&running) {
            // Its lock is free: nobody has decided what stays of it, and nobody will.
            Ok(file) if file.try_lock().is_ok() => leave_logs(run).is_ok(),
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound && has_only_logs(run),
        }
    });
    runs.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
    let n_over = (runs.len() + 1).saturating_sub(RUNS_KEPT);
    runs.iter().take(n_over).for_each(|run| drop(remove(run)));
}

fn has_only_logs(run: &Path) -> bool {
    entries(run).iter().all(|path| path.file_name().is_some_and(|name| name == LOGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old_run(parent: &Path, name: &str, files: &[&str]) -> PathBuf {
        let root = parent.join(format!("{PREFIX}{name}"));
        for file in files {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        root
    }

    #[test]
    fn as_much_stays_as_was_said() {
        let parent = tempfile::tempdir().unwrap();
        for kept in [None, Some(Kept::Nothing), Some(Kept::All)] {
            let mut run = RunFolder::create(parent.path()).unwrap();
            kept.into_iter().for_each(|kept| run.keep(kept).unwrap());
            let (root, logs) = (run.root.clone(), run.logs());
            fs::write(run.config(), "x").unwrap();
            fs::create_dir(run.warehouse()).unwrap();
            fs::write(logs.join("server.log"), "x").unwrap();
            drop(run);
            let is_all = kept == Some(Kept::All);
            assert_eq!(logs.join("server.log").exists(), kept.is_none() || is_all, "{kept:?}");
            for name in ["tms.toml", "data", "tables", "spark-warehouse"] {
                assert_eq!(root.join(name).exists(), is_all, "{name}, {kept:?}");
            }
            assert_eq!(root.exists(), kept != Some(Kept::Nothing));
            assert!(!root.join(RUNNING).exists());
        }
    }

    #[test]
    fn oldest_logs_go_and_other_folders_do_not() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("mine")).unwrap();
        let runs: Vec<PathBuf> =
            (0..8).map(|n| old_run(parent.path(), &format!("x{n}"), &["logs/server.log"])).collect();
        let run = RunFolder::create(parent.path()).unwrap();
        assert_eq!(runs.iter().filter(|run| run.exists()).count(), RUNS_KEPT - 1);
        assert!(parent.path().join("mine").exists() && run.root.exists());
    }

    #[test]
    fn run_that_was_kept_whole_outlives_all_later_runs() {
        let parent = tempfile::tempdir().unwrap();
        let mut kept = RunFolder::create(parent.path()).unwrap();
        fs::write(kept.data().join("db"), "x").unwrap();
        kept.keep(Kept::All).unwrap();
        let root = kept.root.clone();
        // Killed before it could end: what was said to be kept is safe already.
        std::mem::forget(kept);
        let of_old = old_run(parent.path(), "1", &["logs/server.log", "data/db", "tms.toml"]);
        for _ in 0..RUNS_KEPT * 2 {
            let run = RunFolder::create(parent.path()).unwrap();
            assert_ne!(run.root, root, "the process id came back");
        }
        assert!(root.join("data/db").exists() && of_old.join("data/db").exists());
        let n_runs = entries(parent.path()).iter().filter(|path| path.is_dir()).count();
        assert_eq!(n_runs, RUNS_KEPT + 2);
    }

    #[test]
    fn run_that_still_runs_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let first = RunFolder::create(parent.path()).unwrap();
        fs::write(first.data().join("db"), "x").unwrap();
        for _ in 0..RUNS_KEPT * 2 {
            drop(RunFolder::create(parent.path()).unwrap());
        }
        assert!(first.data().join("db").exists() && first.tables().exists());
    }

    #[test]
    fn killed_run_keeps_its_logs_only() {
        let parent = tempfile::tempdir().unwrap();
        let killed = old_run(parent.path(), "1", &[RUNNING, "logs/server.log", "data/db", "tms.toml"]);
        drop(RunFolder::create(parent.path()).unwrap());
        assert!(killed.join("logs/server.log").exists());
        assert!(has_only_logs(&killed), "{:?}", entries(&killed));
    }
}
