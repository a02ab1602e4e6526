//! What is fixed about the store: names and limits.

use tms_core::store::kv::Keyspace;

/// Name of the store's folder in the folder `store.path`.
pub const FOLDER_NAME: &str = "tms.rocksdb";

/// Name of the file that says what was acknowledged last, in the store's folder.
pub const MARK_NAME: &str = "ACKNOWLEDGED";

/// Most bytes of blocks, indexes and filters that are kept in memory, for all families together.
pub const CACHE_BYTES: usize = 64 * 1024 * 1024;

/// Most bytes of all memtables together: beyond it the largest is written out.
pub const MEMTABLE_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of one family's memtable at which it is written out.
pub(crate) const FAMILY_MEMTABLE_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of the write-ahead log beyond which the memtables that hold it back are written out. It bounds how much a
/// start after a kill has to read.
pub const WAL_BYTES: u64 = 64 * 1024 * 1024;

/// Most files of the store that are open at once; those of the hot families are few.
pub(crate) const OPEN_FILES_MAX: i32 = 256;

/// Most of RocksDB's own logs that are kept, and the bytes of each.
pub(crate) const INFO_LOGS_MAX: usize = 4;
pub(crate) const INFO_LOG_BYTES: usize = 1024 * 1024;

/// Bytes at which the list of files is begun anew.
pub(crate) const MANIFEST_BYTES: usize = 1024 * 1024;

/// Bytes of the disk that are taken for the list of files before it holds them.
pub(crate) const MANIFEST_AHEAD_BYTES: usize = 64 * 1024;

/// Threads of RocksDB that flush and compact.
pub(crate) const BACKGROUND_JOBS: i32 = 2;

/// Bytes of one block of a hot family, read as a whole: its rows are looked up one by one.
pub(crate) const HOT_BLOCK_BYTES: usize = 4 * 1024;

/// Bytes of one block of the history: larger ones compress better.
pub(crate) const COLD_BLOCK_BYTES: usize = 16 * 1024;

/// Bits per key of the Bloom filters: one look-up in a hundred reads a file in vain.
pub(crate) const BLOOM_BITS: f64 = 10.0;

/// Bytes that must be free on the disk before a store that failed is opened again for writing: what the memtables hold
/// is written out then.
pub(crate) const PROBE_BYTES: u64 = 8 * 1024 * 1024;

/// Returns the number of bytes that keys of one object share, where scans stay within one object: a kind and an id, or
/// an id. Filters know them, so that such a scan skips files that hold nothing of the object.
pub(crate) fn prefix_bytes(keyspace: Keyspace) -> Option<usize> {
    match keyspace {
        Keyspace::Live | Keyspace::Index => Some(17),
        Keyspace::Details => Some(16),
        Keyspace::Meta | Keyspace::Tables | Keyspace::Touches | Keyspace::History | Keyspace::Settings => {
            None
        }
    }
}

/// Tells whether a keyspace grows with the history.
pub(crate) fn is_cold(keyspace: Keyspace) -> bool {
    matches!(keyspace, Keyspace::History | Keyspace::Details)
}
