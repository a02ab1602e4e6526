//! The suites over the memory store and the single-node election: they test the suites too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tms_conformance::election::ElectionHarness;
use tms_conformance::kv::KvHarness;
use tms_conformance::store::StoreHarness;
use tms_core::Error;
use tms_core::election::{Election, SingleNode};
use tms_core::store::Store;
use tms_core::store::kv::OrderedKv;
use tms_core::store::memory::{MemoryKv, memory_store, open_memory};

struct MemoryHarness {
    kv: Arc<MemoryKv>,
    store: Mutex<Arc<dyn Store>>,
}

#[async_trait]
impl StoreHarness for MemoryHarness {
    async fn open() -> Self {
        let kv = Arc::new(MemoryKv::default());
        let store = open_memory(Arc::clone(&kv)).unwrap();
        Self { kv, store: Mutex::new(store) }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store.lock().unwrap())
    }

    async fn reopen(&self) {
        self.try_reopen().await.unwrap();
    }

    async fn try_reopen(&self) -> Result<(), Error> {
        *self.store.lock().unwrap() = open_memory(Arc::clone(&self.kv))?;
        Ok(())
    }

    fn kv(&self) -> Option<Arc<dyn OrderedKv>> {
        Some(Arc::clone(&self.kv) as Arc<dyn OrderedKv>)
    }
}

tms_conformance::store_suite!(MemoryHarness);

#[async_trait]
impl KvHarness for MemoryHarness {
    async fn open() -> Self {
        <Self as StoreHarness>::open().await
    }

    fn kv(&self) -> Arc<dyn OrderedKv> {
        Arc::clone(&self.kv) as Arc<dyn OrderedKv>
    }

    async fn reopen(&self) {
        StoreHarness::reopen(self).await;
    }
}

tms_conformance::kv_suite!(MemoryHarness);

struct SingleNodeHarness(Arc<SingleNode>);

#[async_trait]
impl ElectionHarness for SingleNodeHarness {
    async fn open() -> Self {
        Self(Arc::new(SingleNode::default()))
    }

    fn node(&self) -> Arc<dyn Election> {
        Arc::clone(&self.0) as Arc<dyn Election>
    }
}

tms_conformance::election_suite!(SingleNodeHarness);

#[tokio::test]
async fn stores_in_memory_share_nothing() {
    let (a, b) = (memory_store(), memory_store());
    assert_ne!(a.incarnation().await.unwrap(), b.incarnation().await.unwrap());
}
