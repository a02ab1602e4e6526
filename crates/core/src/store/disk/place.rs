//! Whether the open file is still the one that its name means.

use std::fs::Metadata;
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One file of one file system, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// Returns which file stands under this name.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::of_open(&std::fs::metadata(path)?))
    }

    /// Returns which file these facts are of.
    #[must_use]
    pub fn of_open(meta: &Metadata) -> Self {
        Self { device: meta.dev(), number: meta.ino() }
    }

    /// Checks that this file stands under this name.
    ///
    /// # Errors
    /// What happened to it and what to do.
    pub fn check(self, path: &Path) -> Result<(), String> {
        let path_shown = path.display();
        match Self::of(path) {
            Ok(id) if id == self => Ok(()),
            Ok(_) => Err(format!(
                "{path_shown} was replaced by another file while this server had it open: nothing is written any more; \
                 stop this server, see to it that the right file stands there, and start it again"
            )),
            Err(e) if matches!(e.kind(), IoKind::NotFound | IoKind::NotADirectory) => Err(format!(
                "{path_shown} was removed or moved while this server had it open: nothing is written any more; move it \
                 back if it was moved; else stop this server, restore store.path from a backup, and start it again"
            )),
            Err(e) => Err(format!("cannot see whether {path_shown} is still there: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_itself_and_not_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("f"), folder.path().join("away"));
        std::fs::write(&path, "1").unwrap();
        let id = FileId::of(&path).unwrap();
        id.check(&path).unwrap();
        std::fs::rename(&path, &away).unwrap();
        assert!(id.check(&path).unwrap_err().contains("was removed or moved"));
        std::fs::write(&path, "1").unwrap();
        assert!(id.check(&path).unwrap_err().contains("was replaced"));
        std::fs::rename(&away, &path).unwrap();
        id.check(&path).unwrap();
    }
}
