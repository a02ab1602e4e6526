//! The folder of downloads and built things: one filler at a time, and nothing half-made is ever seen.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::check_interrupted;
use crate::time::{Stopwatch, pause};

/// How long one xtask waits for another one that fills the cache; a cold set-up takes a few minutes.
const LOCK_WAIT: Duration = Duration::from_secs(30 * 60);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(200);

/// `$TMS_CACHE`, locked for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// Unlocked by the kernel when closed, also after a crash.
    _lock: File,
}

impl Cache {
    /// Opens the cache and waits, bounded, until no other xtask fills it.
    pub(crate) fn lock(root: &Path) -> Result<Self> {
        Self::lock_within(root, LOCK_WAIT)
    }

    fn lock_within(root: &Path, limit: Duration) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| cannot("create the cache", root))?;
        let path = root.join("lock");
        let file = File::create(&path).with_context(|| cannot("open", &path))?;
        let watch = Stopwatch::start();
        let mut is_told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { root: root.to_owned(), _lock: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| cannot("lock", &path));
                }
            }
            if !is_told {
                println!("  waiting for another xtask that fills {}", root.display());
                is_told = true;
            }
            check_interrupted()?;
            if watch.elapsed() > limit {
                bail!(
                    "another xtask has held {} for {} s; end it or set TMS_CACHE",
                    path.display(),
                    limit.as_secs()
                );
            }
            pause(LOCK_LOOK_EVERY);
        }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// An empty folder to build something in; on the same file system as its later place, removed when
    /// dropped.
    pub(crate) fn staging(&self, name: &str) -> Result<Staging> {
        let folder = self.root.join("staging").join(name);
        remove(&folder).with_context(|| cannot("clear", &folder))?;
        fs::create_dir_all(&folder).with_context(|| cannot("create", &folder))?;
        Ok(Staging { folder })
    }

    /// Puts a finished file or folder to its place in one step; what was there before goes.
    pub(crate) fn install(&self, made: &Path, place: &Path) -> Result<()> {
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        if place.is_dir() {
            remove(place)?;
        }
        fs::rename(made, place)
            .with_context(|| format!("cannot move {} to {}", made.display(), place.display()))
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}; set TMS_CACHE to a folder that can be written", path.display())
}

/// A folder under construction.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) folder: PathBuf,
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A left-over is harmless: the next staging of that name removes it first.
        drop(remove(&self.folder));
    }
}

/// Removes a file or a folder with all it holds; absent is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let done = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_filler_waits_and_gives_up_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let first = Cache::lock(folder.path()).unwrap();
        let error = Cache::lock_within(folder.path(), Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("TMS_CACHE"), "{error}");
        drop(first);
        Cache::lock_within(folder.path(), Duration::from_millis(10)).unwrap();
    }

    #[test]
    fn cache_that_cannot_be_written_names_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        // A folder in the place of the lock fails as a read-only disk does, and also for root.
        fs::create_dir(folder.path().join("lock")).unwrap();
        let no_lock = Cache::lock(folder.path()).unwrap_err();
        fs::write(folder.path().join("file"), "x").unwrap();
        let no_folder = Cache::lock(&folder.path().join("file/cache")).unwrap_err();
        let other = folder.path().join("other");
        let cache = Cache::lock(&other).unwrap();
        fs::write(other.join("staging"), "x").unwrap();
        for error in [no_lock, no_folder, cache.staging("x").unwrap_err()] {
            assert!(error.to_string().contains("set TMS_CACHE to a folder that can be written"), "{error}");
            assert_eq!(crate::errors::exit_code(&error), 1);
        }
    }

    #[test]
    fn installed_things_replace_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::lock(folder.path()).unwrap();
        let place = cache.path("things/one");
        for content in ["old", "new"] {
            let staging = cache.staging("one").unwrap();
            fs::create_dir(staging.folder.join("one")).unwrap();
            fs::write(staging.folder.join("one/file"), content).unwrap();
            cache.install(&staging.folder.join("one"), &place).unwrap();
        }
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "new");
        assert!(!cache.path("staging/one").exists());
    }
}
