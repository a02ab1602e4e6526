//! What is fixed about the file.

use std::time::Duration;

/// Name of the store's file in the folder `store.path`.
pub const FILE_NAME: &str = "tms.redb";

/// Most bytes of pages that are kept in memory. redb's own default is 1 GiB; live data of 100,000 instances
/// is about 150 MB, of which a working day touches a small part.
pub const CACHE_BYTES: usize = 128 * 1024 * 1024;

/// Mode of the folder, when it is made here: the rows name tables, and the folders of attempts lie beside
/// them.
pub(crate) const FOLDER_MODE: u32 = 0o700;

/// Mode of the file.
pub(crate) const FILE_MODE: u32 = 0o600;

/// Rest after the first error of the disk before a write is tried again; it doubles from error to error.
pub(crate) const REST_FIRST: Duration = Duration::from_millis(100);

/// Longest rest. After it a full disk that has room again is noticed; each trial makes redb check the file.
pub(crate) const REST_MAX: Duration = Duration::from_secs(5);
