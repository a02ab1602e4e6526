//! What is fixed about the file.

/// Name of the store's file in the folder `store.path`.
pub const FILE_NAME: &str = "tms.redb";

/// Most bytes of pages that are kept in memory. redb's own default is 1 GiB; live data of 100,000 instances
/// is about 150 MB, of which a working day touches a small part.
pub const CACHE_BYTES: usize = 128 * 1024 * 1024;
