//! Tables whose storage hangs cost threads; the store, which runs on threads of the same pool, never waits for them.
//!
//! A program of its own: it takes all threads of its process that read tables.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tms_core::ErrorKind;
use tms_core::model::id::TableId;
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::request::{HandOver, Trigger};
use tms_core::store::kv::{Batch, KvError, KvSnapshot, KvStore, OrderedKv};
use tms_core::store::memory::MemoryKv;
use tms_core::store::{RequestStore, TableStore};
use tms_core::timeline::TimelineSource;
use tms_core::timeline::hudi::HudiTimelines;
use tms_hudi::listing::{LISTING_THREADS_MAX, ReadThreads};
use tms_hudi::{Entry, Listing, ListingError};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Threads that tokio has for what blocks.
const TOKIO_THREADS: usize = 512;
/// More tables than that.
const N_HUNG: usize = 600;
const SOON: Duration = Duration::from_secs(10);

/// Storage that does not answer until it is opened.
#[derive(Debug, Default)]
struct Dead {
    is_open: Mutex<bool>,
    opened: Condvar,
    n_asked: AtomicUsize,
}

impl Dead {
    async fn read<T: Send + 'static>(self: &Arc<Self>, path: &str, answer: T) -> Result<T, ListingError> {
        let dead = Arc::clone(self);
        let hang = move |_: &str| {
            dead.n_asked.fetch_add(1, Ordering::SeqCst);
            drop(dead.opened.wait_while(dead.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            Ok(answer)
        };
        ReadThreads::of_process().run(path, hang).await
    }
}

#[derive(Debug)]
struct DeadListing(Arc<Dead>);

impl Drop for DeadListing {
    /// The end of the test's runtime waits for the threads.
    fn drop(&mut self) {
        *self.0.is_open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }
}

#[async_trait]
impl Listing for DeadListing {
    async fn list(&self, folder: &str) -> Result<Vec<Entry>, ListingError> {
        self.0.read(folder, Vec::new()).await
    }

    async fn read(&self, path: &str, _: u64) -> Result<Bytes, ListingError> {
        self.0.read(path, Bytes::new()).await
    }

    async fn read_range(&self, path: &str, _: u64, _: u64) -> Result<Bytes, ListingError> {
        self.0.read(path, Bytes::new()).await
    }

    async fn head(&self, path: &str) -> Result<Option<Entry>, ListingError> {
        self.0.read(path, None).await
    }
}

/// A store that works on threads for what blocks, as one on a disk does.
#[derive(Debug)]
struct OnThreads(MemoryKv);

impl OrderedKv for OnThreads {
    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        self.0.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        self.0.commit(batch)
    }
}

fn path(name: &str) -> BasePath {
    PathRules::default().canonical(&format!("/dead/{name}")).unwrap()
}

#[tokio::test]
async fn hand_overs_are_stored_while_hundreds_of_tables_hang() {
    let store = KvStore::open_blocking(Arc::new(OnThreads(MemoryKv::default()))).unwrap();
    let dead = Arc::new(Dead::default());
    let source = Arc::new(HudiTimelines::new(Arc::new(DeadListing(Arc::clone(&dead)))));
    let mut looks = JoinSet::new();
    for n in 0..N_HUNG {
        let source = Arc::clone(&source);
        looks.spawn(async move { source.look(&path(&format!("t{n}"))).await.map(|_| ()) });
    }
    // Those that found no thread say so; the others hang.
    for _ in LISTING_THREADS_MAX..N_HUNG {
        let error = timeout(SOON * 3, looks.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("too many reads of tables hang"), "{error}");
    }
    let all_hang = async {
        while dead.n_asked.load(Ordering::SeqCst) < LISTING_THREADS_MAX.min(TOKIO_THREADS) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, all_hang).await.expect("the tables were not asked");
    assert_eq!(looks.len(), LISTING_THREADS_MAX);
    // Also when their callers give up: no thread comes back by that.
    looks.shutdown().await;
    for n in 0..20 {
        let base_path = path(&format!("announced{n}"));
        let id = TableId::of(&base_path);
        let spelling = base_path.to_string();
        let announced = HandOver {
            base_path,
            spelling,
            database: None,
            table_name: None,
            hints: Vec::new(),
            queue: None,
            execution_engine: None,
            trigger: Trigger::Callback,
            at: chrono::DateTime::UNIX_EPOCH,
            touch: true,
        };
        let stored = async {
            store.accept(&[announced]).await.unwrap();
            store.get_table(id).await.unwrap().expect("it was acknowledged")
        };
        timeout(SOON, stored).await.expect("a hand-over waited for tables");
    }
}
