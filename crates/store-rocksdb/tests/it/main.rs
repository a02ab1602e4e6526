//! The store suite over RocksDB, and what only files can show: a second process, damaged files, a full disk.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod child;
mod damage;
mod figures;
mod file;
mod rows;
mod scans;
mod statistics;

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;
use tms_conformance::disk::DiskHarness;
use tms_conformance::kv::KvHarness;
use tms_conformance::store::StoreHarness;
use tms_core::Error;
use tms_core::store::Store;
use tms_core::store::kv::{KvStore, OrderedKv};
use tms_store_rocksdb::RocksKv;

type Open = (Arc<RocksKv>, Arc<dyn Store>);

struct RocksHarness {
    folder: TempDir,
    open: Mutex<Option<Open>>,
}

impl RocksHarness {
    fn open_again(&self) -> Result<(), Error> {
        // Closed first: the file's lock would refuse the second opening.
        let mut open = self.open.lock().unwrap();
        *open = None;
        let kv = Arc::new(RocksKv::open_blocking(self.folder.path())?);
        let store = KvStore::open_blocking(Arc::clone(&kv) as Arc<dyn OrderedKv>)?;
        *open = Some((kv, Arc::new(store)));
        Ok(())
    }
}

#[async_trait]
impl StoreHarness for RocksHarness {
    async fn open() -> Self {
        let harness = Self { folder: tempfile::tempdir().unwrap(), open: Mutex::new(None) };
        harness.open_again().unwrap();
        harness
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.open.lock().unwrap().as_ref().unwrap().1)
    }

    async fn reopen(&self) {
        self.open_again().unwrap();
    }

    async fn try_reopen(&self) -> Result<(), Error> {
        self.open_again()
    }

    fn kv(&self) -> Option<Arc<dyn OrderedKv>> {
        let open = self.open.lock().unwrap();
        Some(Arc::clone(&open.as_ref().unwrap().0) as Arc<dyn OrderedKv>)
    }
}

tms_conformance::store_suite!(RocksHarness);

#[async_trait]
impl KvHarness for RocksHarness {
    async fn open() -> Self {
        <Self as StoreHarness>::open().await
    }

    fn kv(&self) -> Arc<dyn OrderedKv> {
        StoreHarness::kv(self).unwrap()
    }

    async fn reopen(&self) {
        StoreHarness::reopen(self).await;
    }
}

tms_conformance::kv_suite!(RocksHarness);

impl DiskHarness for RocksHarness {
    const FINDS_FLIPPED_BITS: bool = true;

    fn open(folder: &Path) -> Result<Arc<dyn Store>, Error> {
        let kv = Arc::new(RocksKv::open_blocking(folder)?);
        Ok(Arc::new(KvStore::open_blocking(kv)?))
    }
}

tms_conformance::disk_suite!(RocksHarness);
