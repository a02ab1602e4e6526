//! The folder of one quick start: tables, the server's data, logs. It goes when the run ends well; what did not end
//! well leaves its logs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::remove;

/// Runs whose logs stay.
const RUNS_KEPT: usize = 5;
const PREFIX: &str = "run-";

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
}

fn cannot_create(folder: &Path) -> String {
    format!("cannot create {}; set CARGO_TARGET_DIR to a folder that can be written", folder.display())
}

impl RunFolder {
    /// Makes the folder below `parent`, and removes the oldest ones there. Its logs stay until [`Self::keep`] says else.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| cannot_create(parent))?;
        // A table behind a link is run by TMS under its real path only.
        let parent =
            &fs::canonicalize(parent).with_context(|| format!("cannot find {}", parent.display()))?;
        let root = parent.join(format!("{PREFIX}{}", std::process::id()));
        remove(&root)?;
        prune(parent)?;
        let run = Self { root, kept: Kept::Logs };
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
        self.root.join("logs")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("tms.toml")
    }

    /// Says what stays when the run has ended.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept = kept;
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let goes = match self.kept {
            Kept::Nothing => vec![self.root.clone()],
            Kept::Logs => vec![self.tables(), self.data(), self.config()],
            Kept::All => Vec::new(),
        };
        for path in goes {
            // What stays is removed with the whole folder by a later run.
            drop(remove(&path));
        }
    }
}

fn prune(parent: &Path) -> Result<()> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_run =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let mut runs: Vec<PathBuf> = entries.filter(is_run).collect();
    runs.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
    let n_over = (runs.len() + 1).saturating_sub(RUNS_KEPT);
    runs.iter().take(n_over).try_for_each(|path| remove(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_stays_as_was_said() {
        let parent = tempfile::tempdir().unwrap();
        for kept in [None, Some(Kept::Nothing), Some(Kept::All)] {
            let mut run = RunFolder::create(parent.path()).unwrap();
            kept.into_iter().for_each(|kept| run.keep(kept));
            let (root, logs) = (run.root.clone(), run.logs());
            fs::write(run.config(), "x").unwrap();
            fs::write(logs.join("server.log"), "x").unwrap();
            drop(run);
            let is_all = kept == Some(Kept::All);
            assert_eq!(logs.join("server.log").exists(), kept.is_none() || is_all, "{kept:?}");
            assert_eq!((root.join("tms.toml").exists(), root.join("data").exists()), (is_all, is_all));
            assert_eq!(root.exists(), kept != Some(Kept::Nothing));
        }
    }

    #[test]
    fn old_runs_are_removed_and_other_folders_are_not() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("mine")).unwrap();
        for n in 0..8 {
            fs::create_dir(parent.path().join(format!("{PREFIX}x{n}"))).unwrap();
        }
        let run = RunFolder::create(parent.path()).unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), RUNS_KEPT + 1);
        drop(run);
    }
}
