//! One level of listing and bounded reads on a store: all that this crate asks of one.
//!
//! Paths are the store's own spelling (`/a/b`, `file:/a/b`, later `s3a://bucket/b`) and are never
//! URL-decoded or encoded: a folder named `od%41d` exists literally.

mod local;
mod mounts;
mod threads;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};

pub use local::LocalListing;
pub use threads::{HUNG_PER_MOUNT_MAX, LISTING_THREADS_MAX, ReadThreads};

/// One file or folder of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The last segment of the path, as the store spells it.
    pub name: String,
    /// True for a folder (or a prefix of an object store).
    pub is_folder: bool,
    /// Size in bytes; 0 for folders.
    pub size: u64,
    /// Time of the last change; `None` where the store keeps none (prefixes of object stores).
    pub modified: Option<DateTime<Utc>>,
    /// The store's mark of the content, where it has one.
    pub etag: Option<String>,
}

/// What a caller can do about a [`ListingError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListingErrorKind {
    /// The store answered that there is no such file or folder.
    NotFound,
    /// The store answered that the caller may not see it.
    PermissionDenied,
    /// The store did not answer, or its answer could not be understood.
    Unreachable,
    /// The file or the number of entries is over a limit.
    TooLarge,
    /// The path is not one of this store.
    Unsupported,
}

/// An error of a store, with the three answers kept apart that a caller must never mix up:
/// not there, not allowed, no answer.
#[derive(Debug)]
pub struct ListingError {
    kind: ListingErrorKind,
    path: String,
    detail: String,
}

impl ListingError {
    /// Makes an error about `path`.
    pub fn new(kind: ListingErrorKind, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, path: path.into(), detail: detail.into() }
    }

    /// Which of the answers it was.
    pub fn kind(&self) -> ListingErrorKind {
        self.kind
    }

    /// The file or folder that was asked for.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the store said.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for ListingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.detail)
    }
}

impl std::error::Error for ListingError {}

/// A store of files, as small as the reader needs it.
#[async_trait]
pub trait Listing: fmt::Debug + Send + Sync + 'static {
    /// Refuses, without asking the store, while a former question about something in `folder` hangs.
    ///
    /// # Errors
    /// `Unreachable`, with what hangs.
    fn check(&self, _folder: &str) -> Result<(), ListingError> {
        Ok(())
    }

    /// Lists one level of `folder`, in any order.
    ///
    /// # Behavior
    /// - a folder that is not there is `NotFound` where the store can tell; an object store answers an empty list
    /// - an entry that vanishes while the folder is listed is left out, never an error
    async fn list(&self, folder: &str) -> Result<Vec<Entry>, ListingError>;

    /// Reads a whole file of at most `bytes_max` bytes.
    ///
    /// # Behavior
    /// - a larger file is `TooLarge`, without having been read whole
    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, ListingError>;

    /// Reads `length` bytes from `offset`; fewer at the end of the file.
    async fn read_range(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, ListingError>;

    /// Where a folder really lies, when its path leads there by links; `None` when it is no other path, and for stores
    /// without links.
    async fn real_path(&self, _folder: &str) -> Result<Option<String>, ListingError> {
        Ok(None)
    }

    /// Looks one file or folder up; `None` when the store answers that it is not there.
    async fn head(&self, path: &str) -> Result<Option<Entry>, ListingError>;
}
