//! The store of a single node on RocksDB: the ordered key-value trait of `tms-core`, one column family per keyspace.
//!
//! It must not know what the bytes mean; the aggregates are `tms_core::store::kv`.

mod config;
mod errors;
mod home;
mod kv;
mod mark;
mod open;
mod options;
mod records;
mod snapshot;
mod statistics;

use std::path::Path;
use std::sync::Arc;

use tms_core::store::Store;
use tms_core::store::kv::KvStore;
use tms_core::{Error, ErrorKind};

pub use config::{CACHE_BYTES, FOLDER_NAME, MARK_NAME, MEMTABLE_BYTES, WAL_BYTES};
pub use kv::RocksKv;

/// Opens the store in the folder `path`; makes folder (mode 0700) and store when there is none.
///
/// # Errors
/// - `Unavailable` when another process holds the store, or the disk refuses
/// - `Unsupported` when a newer TMS or another RocksDB wrote it
/// - `Unexpected` when it is damaged, or holds less than was acknowledged
pub async fn open(path: &Path) -> Result<Arc<dyn Store>, Error> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        let kv: Arc<RocksKv> = Arc::new(RocksKv::open_blocking(&path)?);
        let store: Arc<dyn Store> = Arc::new(KvStore::open_blocking(kv)?);
        Ok(store)
    })
    .await;
    opened.map_err(|e| Error::new(ErrorKind::Unexpected, "open the store").caused_by(e))?
}
