//! Cases with a long history. Stores over the key-value trait also show how many rows each call read, and what is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tms_core::model::action::Action;
use tms_core::model::instance::InstanceState;
use tms_core::store::kv::{Batch, KeyRange, Keyspace, KvError, KvSnapshot, KvStore, OrderedKv, Pair};
use tms_core::store::{InstanceFilter, PruneRule, Store};

use super::StoreHarness;
use super::samples::*;

/// Ended instances, by tables.
const ENDED_TABLES: usize = 10;
const ENDED_EACH: usize = 1_000;
const LIVE: usize = 20;
/// Rows that a call reads for each row that it returns or removes, and besides.
const ROWS_EACH: usize = 8;
const ROWS_BESIDES: usize = 40;
/// Pruning reads its index in steps of so many rows.
const PRUNE_STEP: usize = 512;

/// Counts the rows that are read and the largest batch.
#[derive(Debug)]
struct Counting {
    kv: Arc<dyn OrderedKv>,
    n_read: AtomicUsize,
    n_largest: AtomicUsize,
}

impl Counting {
    /// Returns the rows read since the last call.
    fn read(&self) -> usize {
        self.n_read.swap(0, Ordering::SeqCst)
    }
}

impl OrderedKv for Counting {
    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        Ok(Box::new(CountingView { view: self.kv.snapshot()?, n_read: &self.n_read }))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        self.n_largest.fetch_max(batch.puts.len() + batch.deletes.len(), Ordering::SeqCst);
        self.kv.commit(batch)
    }
}

struct CountingView<'a> {
    view: Box<dyn KvSnapshot + 'a>,
    n_read: &'a AtomicUsize,
}

impl KvSnapshot for CountingView<'_> {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.n_read.fetch_add(1, Ordering::SeqCst);
        self.view.get(keyspace, key)
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: usize,
        is_reverse: bool,
    ) -> Result<Vec<Pair>, KvError> {
        let rows = self.view.scan(keyspace, range, limit, is_reverse)?;
        self.n_read.fetch_add(rows.len(), Ordering::SeqCst);
        Ok(rows)
    }
}

/// Returns the store to use, and the counter where there is one.
fn counted(h: &impl StoreHarness) -> (Arc<dyn Store>, Option<Arc<Counting>>) {
    let Some(kv) = h.kv() else { return (h.store(), None) };
    let counting = Arc::new(Counting { kv, n_read: AtomicUsize::new(0), n_largest: AtomicUsize::new(0) });
    let store = KvStore::open_blocking(Arc::clone(&counting) as Arc<dyn OrderedKv>).unwrap();
    (Arc::new(store), Some(counting))
}

fn name(table: usize) -> String {
    format!("long{table}")
}

/// Stores a long history, one batch per table.
async fn store_long_history(store: &dyn Store) {
    for table in 0..ENDED_TABLES {
        announce(store, &name(table)).await;
        let ended = (0..ENDED_EACH).map(|n| {
            let number = n * ENDED_TABLES + table;
            let live = pending(key(&name(table), Action::Compaction, Some(&number.to_string())));
            let after = in_state(live, InstanceState::Succeeded, i64::try_from(number).unwrap());
            let mut write = insert(after);
            write.events = vec![event("ended")];
            write
        });
        store.write(None, ended.collect()).await.unwrap();
    }
}

/// C19: what is live costs the same beside ten thousand ended instances as beside none.
pub async fn long_history_costs_live_work_nothing(h: &impl StoreHarness) {
    let (store, counting) = counted(h);
    let read = || counting.as_ref().map_or(0, |counting| counting.read());
    let mut costs = Vec::new();
    for round in 0..2 {
        let live = format!("live{round}");
        announce(&*store, &live).await;
        for n in 0..LIVE {
            put_pending(&*store, key(&live, Action::Compaction, Some(&n.to_string()))).await;
        }
        read();
        let n_live = all_live(&*store, 1_000).await.len();
        assert_eq!(n_live, LIVE * (round + 1));
        let listing = read();
        assert!(listing <= ROWS_EACH * n_live + ROWS_BESIDES, "{listing} rows for {n_live} live instances");
        assert_eq!(store.live_of_table(table_id(&live)).await.unwrap().len(), LIVE);
        let of_table = read();
        store.accept(&[naming(&live, Action::Compaction, &["999"])]).await.unwrap();
        let handing_over = read();
        let one = store.find_instance(&key(&live, Action::Compaction, Some("999"))).await.unwrap().unwrap();
        end(&*store, one, InstanceState::Failed, 0).await;
        let ending = read();
        costs.push([of_table, handing_over, ending]);
        if round == 0 {
            store_long_history(&*store).await;
        }
    }
    assert_eq!(costs[0], costs[1], "rows read without and with a history");
    let filter = InstanceFilter { is_live: Some(false), ..InstanceFilter::default() };
    read();
    let page = store.list_instances(&filter, None, 100).await.unwrap();
    assert_eq!(page.items.len(), 100);
    let listing = read();
    assert!(listing <= ROWS_EACH * 100 + ROWS_BESIDES, "{listing} rows for a page of 100");
}

/// C19: a long history is pruned in bounded batches, whose cost is theirs and not the history's.
pub async fn long_history_is_pruned_in_bounded_batches(h: &impl StoreHarness) {
    const BATCH: usize = 250;
    let (store, counting) = counted(h);
    let term = begin(&*store).await;
    store_long_history(&*store).await;
    let n_ended = ENDED_TABLES * ENDED_EACH;
    let rule = PruneRule { before: at(1_000_000), keep_count: n_ended as u64, batch_max: BATCH };
    let mut n_left = n_ended;
    while n_left > 0 {
        if let Some(counting) = &counting {
            counting.read();
            counting.n_largest.store(0, Ordering::SeqCst);
        }
        assert_eq!(store.prune(term, rule).await.unwrap(), BATCH.min(n_left));
        n_left -= BATCH.min(n_left);
        if let Some(counting) = &counting {
            let n_read = counting.read();
            let most = ROWS_EACH * BATCH + PRUNE_STEP + ROWS_BESIDES;
            assert!(n_read <= most, "{n_read} rows were read to remove {BATCH} of {n_left}");
            let n_changed = counting.n_largest.load(Ordering::SeqCst);
            assert!(n_changed <= ROWS_EACH * BATCH + ROWS_BESIDES, "{n_changed} changes for {BATCH}");
        }
    }
    assert_eq!(store.prune(term, rule).await.unwrap(), 0);
    assert!(all_instances(&*store, &InstanceFilter::default(), 1_000).await.is_empty());
    if let Some(counting) = &counting {
        for keyspace in [Keyspace::History, Keyspace::Details, Keyspace::Live] {
            assert_eq!(n_rows(&**counting, keyspace), 0, "{keyspace:?}");
        }
    }
}

fn all_rows(kv: &dyn OrderedKv, keyspace: Keyspace) -> Vec<Pair> {
    kv.snapshot().unwrap().scan(keyspace, &KeyRange::prefix(b""), usize::MAX, false).unwrap()
}

fn n_rows(kv: &dyn OrderedKv, keyspace: Keyspace) -> usize {
    all_rows(kv, keyspace).len()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// C19: a removed table leaves no row, however many instances it had, and takes none of another table.
pub async fn removed_table_with_a_long_history_leaves_no_row(h: &impl StoreHarness) {
    let (store, counting) = counted(h);
    store_long_history(&*store).await;
    let gone = name(3);
    let id = table_id(&gone);
    put_pending(&*store, key(&gone, Action::Clustering, Some("7"))).await;
    let removed = put_pending(&*store, key(&gone, Action::Clean, Some("8"))).await;
    store.remove_instance(removed.id, removed.version, true).await.unwrap();
    store.remove_table(id).await.unwrap();
    assert!(store.get_table(id).await.unwrap().is_none());
    let of_table = InstanceFilter { table: Some(id), ..InstanceFilter::default() };
    assert!(all_instances(&*store, &of_table, 1_000).await.is_empty());
    let n_left = all_instances(&*store, &InstanceFilter::default(), 1_000).await.len();
    assert_eq!(n_left, (ENDED_TABLES - 1) * ENDED_EACH);
    let Some(counting) = counting else { return };
    let shown = id.to_string();
    for keyspace in Keyspace::ALL {
        for (row, value) in all_rows(&*counting, keyspace) {
            let is_of_table = [&row, &value].into_iter().any(|bytes| {
                holds(bytes, &id.as_bytes()[..])
                    || holds(bytes, shown.as_bytes())
                    || holds(bytes, gone.as_bytes())
            });
            assert!(!is_of_table, "{keyspace:?} has a row of the table: {row:?}");
        }
    }
    assert_eq!(n_rows(&*counting, Keyspace::History), n_left);
    assert_eq!(n_rows(&*counting, Keyspace::Live), 0);
}
