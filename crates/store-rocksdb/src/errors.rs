//! What RocksDB says, in the words of TMS.

use rocksdb::ErrorKind as RocksKind;
use tms_core::store::disk::{held_error, open_error};
use tms_core::store::kv::KvError;
use tms_core::{Error, ErrorKind};

use crate::home::{Home, Told};

const OPEN: &str = "open the store";

/// Maps an error of a store that is open.
pub(crate) fn of_rocks(error: Told) -> KvError {
    match error.kind {
        RocksKind::Corruption | RocksKind::NotFound => KvError::Damaged(error.into()),
        RocksKind::IOError if is_missing_file(&error) => KvError::Damaged(error.into()),
        RocksKind::IOError
        | RocksKind::Busy
        | RocksKind::TimedOut
        | RocksKind::Incomplete
        | RocksKind::ShutdownInProgress
        | RocksKind::Aborted
        | RocksKind::Expired
        | RocksKind::TryAgain
        | RocksKind::CompactionTooLarge => KvError::Unavailable(error.into()),
        RocksKind::NotSupported
        | RocksKind::InvalidArgument
        | RocksKind::MergeInProgress
        | RocksKind::ColumnFamilyDropped
        | RocksKind::Unknown => KvError::Unexpected(error.into()),
    }
}

/// Maps an error of a write. A file that is missing then says nothing of rows: the folder may have been away while
/// something was written out. The opening that follows tells whether it is damaged.
pub(crate) fn of_write(error: Told) -> KvError {
    match error.kind {
        RocksKind::IOError => KvError::Unavailable(error.into()),
        _ => of_rocks(error),
    }
}

/// Maps what RocksDB says when it cannot open a store.
pub(crate) fn refused(home: &Home, error: &rocksdb::Error) -> Error {
    let (folder, error) = (home.folder(), home.told(error));
    let said = &error.text;
    if said.contains("While lock file") || said.contains("lock hold by current process") {
        return held_error(folder, error);
    }
    let unsupported = |hint, error: Told| {
        Error::new(ErrorKind::Unsupported, OPEN).with("file", folder.display()).hint(hint).caused_by(error)
    };
    match error.kind {
        RocksKind::InvalidArgument if said.contains("olumn families not opened") => unsupported(
            "a newer TMS wrote this store: start that version, or give this one another store.path",
            error,
        ),
        RocksKind::NotSupported => {
            unsupported("another release of RocksDB wrote this store: use another store.path", error)
        }
        // A family is missing, or there is no store where one was.
        RocksKind::InvalidArgument => open_error(folder, KvError::Damaged(error.into())),
        _ => open_error(folder, of_rocks(error)),
    }
}

/// RocksDB opens only files that its own list names: one that is not there was lost.
fn is_missing_file(error: &Told) -> bool {
    error.text.contains("No such file or directory")
}
