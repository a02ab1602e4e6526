//! What the conformance suite cannot see: bounds, preconditions, and rows that cannot be read.

use std::sync::Arc;

use super::*;
use crate::ErrorKind;
use crate::clock::Timestamp;
use crate::model::action::Action;
use crate::model::id::{InstanceId, NodeName, TableId, Term};
use crate::model::instance::{Instance, InstanceKey, InstanceState};
use crate::model::path::PathRules;
use crate::model::request::{HandOver, Trigger};
use crate::model::table::{LookState, UNSERVED_MAX, Unserved};
use crate::store::memory::{MemoryKv, open_memory};
use crate::store::{
    BATCH_MAX, Expect, InstanceFilter, InstanceWrite, Intent, LookCommit, PruneRule, RequestStore, Store,
};

fn hand_over(name: &str, instants: std::ops::Range<usize>) -> HandOver {
    HandOver {
        base_path: PathRules::default().canonical(&format!("/lake/{name}")).unwrap(),
        spelling: String::new(),
        database: None,
        table_name: None,
        hints: instants.map(|n| (Action::Compaction, n.to_string().parse().unwrap())).collect(),
        queue: None,
        execution_engine: None,
        trigger: Trigger::Callback,
        at: Timestamp::UNIX_EPOCH,
        touch: true,
    }
}

fn table(name: &str) -> TableId {
    TableId::of(&hand_over(name, 0..0).base_path)
}

fn key(name: &str, text: &str) -> InstanceKey {
    InstanceKey { table: table(name), action: Action::Compaction, instant: Some(text.parse().unwrap()) }
}

fn ended(key: InstanceKey, state: InstanceState) -> InstanceWrite {
    let after = Instance::new(key, state, Trigger::Callback, Timestamp::UNIX_EPOCH);
    InstanceWrite { expect: Expect::Absent, after, events: Vec::new(), past_attempt: None }
}

async fn begin(store: &dyn Store) -> Term {
    store.begin_term(0, &NodeName::default()).await.unwrap()
}

#[test]
fn prefix_range_ends_behind_the_prefix() {
    assert_eq!(KeyRange::prefix(b"ab").end, Bound::Excluded(b"ac".to_vec()));
    assert_eq!(KeyRange::prefix(b"a\xff").end, Bound::Excluded(b"b".to_vec()));
    assert_eq!(KeyRange::prefix(b"\xff\xff").end, Bound::Unbounded);
    assert_eq!(KeyRange::prefix(b"").end, Bound::Unbounded);
}

#[test]
fn range_that_holds_nothing_says_so() {
    assert!(KeyRange::prefix(b"a").after(b"b").is_empty());
    assert!(KeyRange::prefix(b"a").before(b"a").is_empty());
    assert!(!KeyRange::prefix(b"a").is_empty());
    assert!(!KeyRange::prefix(b"").is_empty());
}

/// Two stores with a writer lock each: only the preconditions of the batches keep them from each other's
/// work.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stores_that_share_a_map_lose_nothing() {
    let kv = Arc::new(MemoryKv::default());
    let stores: Vec<_> = (0..4).map(|_| open_memory(Arc::clone(&kv)).unwrap()).collect();
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&stores[n % 4]);
        writers.spawn(async move {
            for round in 0..20 {
                let first = n / 2 * 100 + round;
                store.accept(&[hand_over("t", first..first + 1)]).await.unwrap();
                store.put_intent(Intent::Instance(InstanceId::new())).await.unwrap();
                store.begin_term(0, &NodeName::default()).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let record = stores[0].get_table(table("t")).await.unwrap().unwrap();
    assert_eq!(record.touch.touch, 320);
    assert_eq!(stores[1].live_of_table(table("t")).await.unwrap().len(), 160);
    let (term, _) = stores[2].current_term().await.unwrap().unwrap();
    assert_eq!(term, Term(320));
    assert_eq!(stores[3].change_seq().await.unwrap(), 320);

    let mut takers = tokio::task::JoinSet::new();
    for store in stores {
        takers.spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..40 {
                taken.extend(store.take_intents(term, 9).await.unwrap());
            }
            taken
        });
    }
    let mut taken: Vec<String> = takers.join_all().await.concat().iter().map(|i| format!("{i:?}")).collect();
    taken.sort();
    assert_eq!(taken.len(), 320);
    taken.dedup();
    assert_eq!(taken.len(), 320, "an intent was taken twice");
}

/// A backend whose preconditions never hold.
#[derive(Debug, Default)]
struct Contended(MemoryKv, std::sync::atomic::AtomicUsize);

impl OrderedKv for Contended {
    fn is_blocking(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        self.0.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        // The first commit begins the store.
        if self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            return self.0.commit(batch);
        }
        Err(KvError::Conflict { keyspace: Keyspace::Meta, key: Vec::new() })
    }
}

#[tokio::test]
async fn conflicts_without_end_end() {
    let kv = Arc::new(Contended::default());
    let store = KvStore::open_blocking(Arc::clone(&kv) as Arc<dyn OrderedKv>).unwrap();
    let error = store.accept(&[hand_over("t", 0..0)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(kv.1.load(std::sync::atomic::Ordering::SeqCst), 1 + CONFLICT_RETRIES_MAX);
}

#[tokio::test]
async fn filtered_page_ends_at_the_bound_and_the_list_goes_on() {
    let store = open_memory(Arc::default()).unwrap();
    store.accept(&[hand_over("t", 0..0)]).await.unwrap();
    let wanted = ended(key("t", "0"), InstanceState::Failed);
    let id = wanted.after.id;
    store.write(None, vec![wanted]).await.unwrap();
    let others = (1..=LIST_VISITS_MAX).map(|n| ended(key("t", &n.to_string()), InstanceState::Succeeded));
    store.write(None, others.collect()).await.unwrap();
    for of_table in [None, Some(table("t"))] {
        let states = vec!["failed".to_owned()];
        let filter = InstanceFilter { states, table: of_table, ..InstanceFilter::default() };
        let first = store.list_instances(&filter, None, 10).await.unwrap();
        assert!(first.items.is_empty());
        let second = store.list_instances(&filter, first.next.as_deref(), 10).await.unwrap();
        assert_eq!(second.items.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
        assert_eq!(second.next, None);
    }
}

#[tokio::test]
async fn batch_beyond_the_bound_is_invalid() {
    let store = open_memory(Arc::default()).unwrap();
    store.accept(&[hand_over("t", 0..0)]).await.unwrap();
    let one = ended(key("t", "1"), InstanceState::Failed);
    let refused = store.write(None, vec![one; BATCH_MAX + 1]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let named = hand_over("t", 0..1_000);
    let refused = store.accept(&vec![named; 10]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(store.accept(&[hand_over("t", 0..1_001)]).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn plan_behind_a_full_list_of_unserved_ones_is_not_pruned() {
    let store = open_memory(Arc::default()).unwrap();
    let term = begin(&*store).await;
    store.accept(&[hand_over("t", 0..0)]).await.unwrap();
    let instants = ["100", "105", "199", "200", "300"];
    let writes = instants.map(|text| ended(key("t", text), InstanceState::Cancelled)).to_vec();
    store.write(None, writes).await.unwrap();
    let unserved = (100..100 + UNSERVED_MAX).map(|n| Unserved {
        action: Action::Clustering,
        instant: n.to_string().parse().unwrap(),
        since: Timestamp::UNIX_EPOCH,
    });
    let state = LookState { unserved: unserved.collect(), ..LookState::default() };
    store.commit_look(term, LookCommit { table: table("t"), state, writes: Vec::new() }).await.unwrap();
    let everything =
        PruneRule { before: chrono::DateTime::<chrono::Utc>::MAX_UTC, keep_count: 0, batch_max: 100 };
    assert_eq!(store.prune(term, everything).await.unwrap(), 2, "199 is the last that the list holds");
    let left = store.list_instances(&InstanceFilter::default(), None, 10).await.unwrap().items;
    let left: Vec<_> = left.iter().map(|one| one.key.instant.clone().unwrap().to_string()).collect();
    assert_eq!(left, ["300", "200", "199"]);
}

#[tokio::test]
async fn unreadable_look_keeps_the_history_of_its_table() {
    let kv = Arc::new(MemoryKv::default());
    let store = open_memory(Arc::clone(&kv)).unwrap();
    let term = begin(&*store).await;
    store.accept(&[hand_over("t", 0..0), hand_over("u", 0..0)]).await.unwrap();
    let writes =
        vec![ended(key("t", "1"), InstanceState::Failed), ended(key("u", "1"), InstanceState::Failed)];
    store.write(None, writes).await.unwrap();
    let bad = (Keyspace::Tables, keys::of_table(keys::LOOK_ROW, table("t")), Bytes::from_static(b"{"));
    kv.commit(&Batch { puts: vec![bad], ..Batch::default() }).unwrap();
    let everything =
        PruneRule { before: chrono::DateTime::<chrono::Utc>::MAX_UTC, keep_count: 0, batch_max: 100 };
    assert_eq!(store.prune(term, everything).await.unwrap(), 1);
    assert!(store.find_instance(&key("t", "1")).await.unwrap().is_some());
}

#[tokio::test]
async fn unreadable_live_instance_holds_its_table_by_its_slot_only() {
    let kv = Arc::new(MemoryKv::default());
    let store = open_memory(Arc::clone(&kv)).unwrap();
    store.accept(&[hand_over("t", 1..2)]).await.unwrap();
    let id = store.find_instance(&key("t", "1")).await.unwrap().unwrap().id;
    let row = (Keyspace::Live, keys::of_instance(keys::LIVE_ROW, id), Bytes::new());
    let slot = keys::of_table(keys::SLOT, table("t"));
    let held = (Keyspace::Live, slot.clone(), codec::encode(&id).unwrap());
    kv.commit(&Batch { puts: vec![row, held], ..Batch::default() }).unwrap();
    let error = store.remove_table(table("t")).await.unwrap_err();
    assert_eq!((error.kind(), error.get("instance")), (ErrorKind::Conflict, Some(&*id.to_string())));
    assert!(store.get_table(table("t")).await.unwrap().is_some());
    kv.commit(&Batch { deletes: vec![(Keyspace::Live, slot)], ..Batch::default() }).unwrap();
    store.remove_table(table("t")).await.unwrap();
    assert!(store.get_table(table("t")).await.unwrap().is_none());
}

#[test]
fn write_that_changes_nothing_is_left_out() {
    let kv = MemoryKv::default();
    let row = (Keyspace::Meta, b"a".to_vec(), Bytes::from_static(b"1"));
    kv.commit(&Batch { puts: vec![row], ..Batch::default() }).unwrap();
    let snapshot = kv.snapshot().unwrap();
    let mut tx = tx::Tx::new(&*snapshot, "test");
    assert!(tx.has(Keyspace::Meta, b"a").unwrap() && !tx.has(Keyspace::Meta, b"b").unwrap());
    tx.put(Keyspace::Meta, b"a".to_vec(), Bytes::from_static(b"1"));
    tx.delete(Keyspace::Meta, b"b".to_vec());
    assert!(!tx.has(Keyspace::Meta, b"b").unwrap());
    let batch = tx.into_batch();
    assert!(batch.is_empty() && batch.checks.len() == 2);
}

#[test]
fn batch_whose_precondition_fails_changes_nothing() {
    let kv = MemoryKv::default();
    let put = |key: &[u8]| (Keyspace::Meta, key.to_vec(), Bytes::from_static(b"1"));
    let check = |key: &[u8], expected| Check { keyspace: Keyspace::Meta, key: key.to_vec(), expected };
    kv.commit(&Batch { puts: vec![put(b"a")], ..Batch::default() }).unwrap();
    for bad in
        [check(b"a", None), check(b"a", Some(Bytes::from_static(b"2"))), check(b"b", Some(Bytes::new()))]
    {
        let batch =
            Batch { checks: vec![check(b"c", None), bad], puts: vec![put(b"c")], deletes: Vec::new() };
        assert!(matches!(kv.commit(&batch), Err(KvError::Conflict { .. })));
        assert_eq!(kv.snapshot().unwrap().get(Keyspace::Meta, b"c").unwrap(), None);
    }
}

/// Returns how many rows each keyspace of instances holds.
fn n_rows(kv: &MemoryKv) -> Vec<(Keyspace, usize)> {
    let snapshot = kv.snapshot().unwrap();
    [Keyspace::Live, Keyspace::Index, Keyspace::History, Keyspace::Details]
        .map(|keyspace| {
            let rows = snapshot.scan(keyspace, &KeyRange::prefix(b""), usize::MAX, false).unwrap();
            (keyspace, rows.len())
        })
        .to_vec()
}

#[tokio::test]
async fn nothing_is_left_of_what_was_pruned_removed_or_forgotten() {
    let kv = Arc::new(MemoryKv::default());
    let store = open_memory(Arc::clone(&kv)).unwrap();
    let term = begin(&*store).await;
    store.accept(&[hand_over("t", 0..0), hand_over("u", 1..4)]).await.unwrap();
    let empty = n_rows(&MemoryKv::default());
    let writes = ["1", "2"].map(|text| ended(key("t", text), InstanceState::Failed)).to_vec();
    store.write(None, writes).await.unwrap();
    let end_of_time = chrono::DateTime::<chrono::Utc>::MAX_UTC;
    let rule = PruneRule { before: end_of_time, keep_count: 0, batch_max: 1 };
    assert_eq!(store.prune(term, rule).await.unwrap(), 1);
    let left = store.find_instance(&key("t", "2")).await.unwrap().unwrap();
    store.remove_instance(left.id, left.version, true).await.unwrap();
    store.clear_tombstone(&left.key).await.unwrap();
    let named = store.find_instance(&key("u", "1")).await.unwrap().unwrap();
    store.remove_instance(named.id, named.version, true).await.unwrap();
    assert_ne!(n_rows(&kv), empty);
    store.remove_table(table("u")).await.unwrap();
    assert_eq!(n_rows(&kv), empty);
}

/// A backend where somebody else is faster once: right before a commit all intents are gone.
#[derive(Debug)]
struct Overtaken {
    kv: Arc<MemoryKv>,
    is_armed: std::sync::atomic::AtomicBool,
}

impl OrderedKv for Overtaken {
    fn is_blocking(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        self.kv.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        if self.is_armed.swap(false, std::sync::atomic::Ordering::SeqCst) {
            let range = KeyRange::prefix(&[keys::INTENT]);
            let rows = self.kv.snapshot()?.scan(Keyspace::Settings, &range, 100, false)?;
            let deletes = rows.into_iter().map(|(key, _)| (Keyspace::Settings, key.to_vec())).collect();
            self.kv.commit(&Batch { deletes, ..Batch::default() })?;
        }
        self.kv.commit(batch)
    }
}

#[tokio::test]
async fn intent_that_somebody_else_took_meanwhile_is_not_taken_again() {
    let kv = Arc::new(Overtaken { kv: Arc::default(), is_armed: false.into() });
    let store: Arc<dyn Store> =
        Arc::new(KvStore::open_blocking(Arc::clone(&kv) as Arc<dyn OrderedKv>).unwrap());
    let term = begin(&*store).await;
    store.put_intent(Intent::Look(table("t"))).await.unwrap();
    kv.is_armed.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(store.take_intents(term, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_store_of_an_older_format_is_refused_with_what_to_do() {
    let kv = Arc::new(MemoryKv::default());
    drop(open_memory(Arc::clone(&kv)).unwrap());
    let older = Bytes::copy_from_slice(&(SCHEMA_VERSION - 1).to_be_bytes());
    let row = (Keyspace::Meta, keys::meta::SCHEMA.to_vec(), older);
    kv.commit(&Batch { puts: vec![row], ..Batch::default() }).unwrap();
    let error = open_memory(kv).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.get("schema"), Some("1"));
}
