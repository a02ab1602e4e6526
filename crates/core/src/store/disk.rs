//! What the embedded stores share: whether their files still stand where they were opened, how long they rest after an
//! error of the disk, and what is said when they cannot be opened.
//!
//! Nothing here may know a backend.

mod place;
mod trouble;

use std::fs::DirBuilder;
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

pub use place::FileId;
pub use trouble::{REST_FIRST, REST_MAX, Trouble};

use super::kv::KvError;
use crate::error::{Error, ErrorKind};

/// Mode of a store's folder, when it is made here: the rows name tables, and the folders of attempts lie beside
/// them.
pub const FOLDER_MODE: u32 = 0o700;
/// Mode of a store's file.
pub const FILE_MODE: u32 = 0o600;

const OPEN: &str = "open the store";

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Makes the folder of a store, for its owner only, when it is not there.
///
/// # Errors
/// `Unavailable` when it cannot be made, or is no folder.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(|e| folder_error(folder, e))
}

/// Says that the folder of a store cannot be used.
#[must_use]
pub fn folder_error(folder: &Path, cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, OPEN)
        .with("path", folder.display())
        .hint("store.path must be a folder that the server may write")
        .caused_by(cause)
}

/// Says that another process holds the store.
#[must_use]
pub fn held_error(file: &Path, cause: impl Into<Cause>) -> Error {
    Error::new(ErrorKind::Unavailable, OPEN)
        .with("file", file.display())
        .hint("it is held by another process: end the other tms-server, or use another store.path")
        .caused_by(cause)
}

/// Says why a store's file cannot be opened, and what to do.
#[must_use]
pub fn open_error(file: &Path, error: KvError) -> Error {
    let error_of = |kind| Error::new(kind, OPEN).with("file", file.display());
    match error {
        KvError::Unavailable(cause) => error_of(ErrorKind::Unavailable)
            .hint("look at the disk of store.path: space, permissions, and errors in the system's log")
            .caused_by(cause),
        KvError::Damaged(cause) => error_of(ErrorKind::Unexpected)
            .hint("the file is damaged: restore it from a backup; do not delete it before a copy is kept")
            .caused_by(cause),
        KvError::Unexpected(cause) => error_of(ErrorKind::Unexpected).caused_by(cause),
        other @ KvError::Conflict { .. } => {
            error_of(ErrorKind::Unexpected).with("reason", format!("{other:?}"))
        }
    }
}

/// Says that the disk is not tried before some time has passed.
#[must_use]
pub fn resting(wait: Duration) -> KvError {
    let text = format!("the disk failed before: the file is tried again in {} ms", wait.as_millis());
    KvError::Unavailable(text.into())
}

/// Maps an error of a file.
#[must_use]
pub fn of_io(error: std::io::Error) -> KvError {
    match error.kind() {
        IoKind::InvalidData | IoKind::UnexpectedEof => KvError::Damaged(error.into()),
        _ => KvError::Unavailable(error.into()),
    }
}
