//! The store suite over redb, and what only a file can show: a second process, a damaged file, modes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod figures;
mod file;

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
use tms_store_redb::RedbKv;

type Open = (Arc<RedbKv>, Arc<dyn Store>);

struct RedbHarness {
    folder: TempDir,
    open: Mutex<Option<Open>>,
}

impl RedbHarness {
    fn open_again(&self) -> Result<(), Error> {
        // Closed first: the file's lock would refuse the second opening.
        let mut open = self.open.lock().unwrap();
        *open = None;
        let kv = Arc::new(RedbKv::open_blocking(self.folder.path())?);
        let store = KvStore::open_blocking(Arc::clone(&kv) as Arc<dyn OrderedKv>)?;
        *open = Some((kv, Arc::new(store)));
        Ok(())
    }
}

#[async_trait]
impl StoreHarness for RedbHarness {
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

tms_conformance::store_suite!(RedbHarness);

#[async_trait]
impl KvHarness for RedbHarness {
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

tms_conformance::kv_suite!(RedbHarness);

impl DiskHarness for RedbHarness {
    /// redb checks what it reads only where a file was not closed.
    const FINDS_FLIPPED_BITS: bool = false;

    fn open(folder: &Path) -> Result<Arc<dyn Store>, Error> {
        let kv = Arc::new(RedbKv::open_blocking(folder)?);
        Ok(Arc::new(KvStore::open_blocking(kv)?))
    }
}

tms_conformance::disk_suite!(RedbHarness);
