//! What the suites need of a store: to open an empty one, and to open it again.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;
use tms_conformance::kv::KvHarness;
use tms_conformance::store::StoreHarness;
use tms_core::Error;
use tms_core::store::Store;
use tms_core::store::kv::{KvStore, OrderedKv};

use crate::toy::Toy;

type Open = (Arc<dyn OrderedKv>, Arc<dyn Store>);

struct ToyHarness {
    folder: TempDir,
    open: Mutex<Option<Open>>,
}

#[async_trait]
impl StoreHarness for ToyHarness {
    async fn open() -> Self {
        let harness = Self { folder: tempfile::tempdir().unwrap(), open: Mutex::new(None) };
        harness.try_reopen().await.unwrap();
        harness
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.open.lock().unwrap().as_ref().unwrap().1)
    }

    async fn reopen(&self) {
        self.try_reopen().await.unwrap();
    }

    async fn try_reopen(&self) -> Result<(), Error> {
        *self.open.lock().unwrap() = None;
        let kv: Arc<dyn OrderedKv> = Arc::new(Toy::open(&self.folder.path().join("rows")).unwrap());
        let store = Arc::new(KvStore::open_blocking(Arc::clone(&kv))?);
        *self.open.lock().unwrap() = Some((kv, store));
        Ok(())
    }

    fn kv(&self) -> Option<Arc<dyn OrderedKv>> {
        Some(Arc::clone(&self.open.lock().unwrap().as_ref().unwrap().0))
    }
}

#[async_trait]
impl KvHarness for ToyHarness {
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

tms_conformance::kv_suite!(ToyHarness);
tms_conformance::store_suite!(ToyHarness);
