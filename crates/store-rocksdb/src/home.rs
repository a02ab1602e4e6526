//! The folder of a store, held open. RocksDB opens, makes and removes its files by name, in the background and when it is
//! closed too. Were the folder moved and another server's put in its place, it would do that to the other's files; so
//! it gets a name that means this very folder, wherever it lies.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rocksdb::ErrorKind as RocksKind;
use tms_core::store::disk::FileId;

/// Where Linux shows the open files of a process by their numbers.
const OPEN_FILES: &str = "/proc/self/fd";

/// An open folder with the name that RocksDB gets.
#[derive(Debug)]
pub(crate) struct Home {
    folder: PathBuf,
    path: PathBuf,
    /// What `path` means.
    _open: File,
}

impl Home {
    pub(crate) fn open(folder: &Path) -> std::io::Result<Self> {
        let open = File::open(folder)?;
        let held = PathBuf::from(format!("{OPEN_FILES}/{}", open.as_raw_fd()));
        let id = FileId::of_open(&open.metadata()?);
        // Other systems, and a Linux without its process folder, have only the name.
        let path = if FileId::of(&held).is_ok_and(|found| found == id) { held } else { folder.to_owned() };
        Ok(Self { folder: folder.to_owned(), path, _open: open })
    }

    /// The folder as a person knows it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder as RocksDB is told.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what RocksDB said, with the folder's name as a person knows it.
    pub(crate) fn told(&self, error: &rocksdb::Error) -> Told {
        let text = error.as_ref().replace(&*self.path.to_string_lossy(), &self.folder.to_string_lossy());
        Told { kind: error.kind(), text }
    }
}

/// An error of RocksDB.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) kind: RocksKind,
    pub(crate) text: String,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Told {}
