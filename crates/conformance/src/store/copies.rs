//! Cases of `CopyStore`: copies, and stores made from them.

use std::io::Cursor;
use std::sync::Arc;

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::attempt::{AttemptState, Holder};
use tms_core::model::id::Term;
use tms_core::model::instance::InstanceState;
use tms_core::model::queue::Queue;
use tms_core::store::kv::{OrderedKv, RestoredRows, check_copy_blocking, restore_blocking};
use tms_core::store::memory::{MemoryKv, open_memory};
use tms_core::store::{Hold, HoldCause, InstanceFilter, Store};

use super::StoreHarness;
use super::samples::*;

/// Reads a copy to its end.
async fn copy_of(store: &dyn Store) -> Vec<u8> {
    let mut pieces = store.begin_copy().await.unwrap();
    let mut copy = Vec::new();
    while let Some(piece) = pieces.recv().await {
        copy.extend(piece.unwrap());
    }
    copy
}

/// Makes a store in memory from a copy.
fn restored(copy: &[u8]) -> (Arc<dyn Store>, RestoredRows) {
    let memory = Arc::new(MemoryKv::default());
    let kv: Arc<dyn OrderedKv> = Arc::clone(&memory) as _;
    let rows = restore_blocking(&kv, Cursor::new(copy), at(100)).unwrap();
    (open_memory(memory).unwrap(), rows)
}

fn hold(detail: &str) -> Hold {
    Hold { cause: HoldCause::UnknownJobs, since: at(1), detail: detail.to_owned() }
}

/// a copy holds what was committed before it and nothing that came after
pub async fn copy_is_of_one_moment(h: &impl StoreHarness) {
    let store = h.store();
    let many: Vec<_> = (0..2_500).map(|n| hand_over(&format!("before-{n:04}"))).collect();
    store.accept(&many).await.unwrap();
    let mut pieces = store.begin_copy().await.unwrap();
    for n in 0..10 {
        announce(&*store, &format!("after-{n}")).await;
    }
    let mut copy = Vec::new();
    while let Some(piece) = pieces.recv().await {
        copy.extend(piece.unwrap());
    }
    let (made, rows) = restored(&copy);
    assert_eq!(rows.n_tables, 2_500);
    let mut wanted: Vec<_> = (0..2_500).map(|n| table_id(&format!("before-{n:04}"))).collect();
    wanted.sort_unstable();
    assert_eq!(all_tables(&*made, 1_000).await, wanted);
}

/// a copy is refused with `Unavailable` while another one is made
pub async fn one_copy_at_a_time(h: &impl StoreHarness) {
    let store = h.store();
    let many: Vec<_> = (0..10_000).map(|n| hand_over(&format!("t-{n:05}"))).collect();
    store.accept(&many).await.unwrap();
    // Nobody reads it, so it waits for room.
    let first = store.begin_copy().await.unwrap();
    assert_eq!(refused(store.begin_copy().await), ErrorKind::Unavailable);
    drop(first);
    for _ in 0..500 {
        if store.begin_copy().await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("a copy that nobody reads any more keeps the next one out");
}

/// a store made from a copy has the tables, instances and queues of the copied one
pub async fn copy_brings_everything(h: &impl StoreHarness) {
    let store = h.store();
    begin(&*store).await;
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let live = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let mut write = change(live);
    write.events = vec![event("changed")];
    write.past_attempt = Some(attempt(write.after.id, 1, AttemptState::Over));
    let live = apply(&*store, write).await;
    let ended = put_ended(&*store, key("u", Action::Clustering, Some("2")), 3).await;
    let queue = store.put_queue(Queue::new("q".parse().unwrap()), None).await.unwrap();
    let copy = copy_of(&*store).await;
    let told = RestoredRows { n_tables: 2, n_live: 1, n_ended: 1 };
    assert_eq!(check_copy_blocking(copy.as_slice()).unwrap(), told);
    // From this backend into another one, and from that one back into this.
    let (made, rows) = restored(&copy);
    assert_eq!(rows, told);
    let mut stores = vec![made];
    // Its data lives as long as it does.
    let target = another(h).await;
    if let Some(kv) = target.kv() {
        assert_eq!(restore_blocking(&kv, Cursor::new(copy_of(&*stores[0]).await), at(101)).unwrap(), told);
        stores.push(Arc::new(tms_core::store::kv::KvStore::open_blocking(kv).unwrap()));
    }
    for made in stores {
        assert_eq!(all_tables(&*made, 10).await, all_tables(&*store, 10).await);
        assert_eq!(made.get_instance(live.id).await.unwrap(), Some(live.clone()));
        assert_eq!(made.get_instance(ended.id).await.unwrap(), Some(ended.clone()));
        assert_eq!(made.events(live.id).await.unwrap(), store.events(live.id).await.unwrap());
        assert_eq!(made.past_attempts(live.id).await.unwrap().len(), 1);
        assert_eq!(made.queues().await.unwrap(), std::slice::from_ref(&queue));
        assert_eq!(all_instances(&*made, &InstanceFilter::default(), 10).await.len(), 2);
        assert!(begin(&*made).await > Term(1), "terms go on growing");
    }
}

/// Opens another store of the same kind.
async fn another<H: StoreHarness>(_: &H) -> H {
    H::open().await
}

/// a store made from a copy has another incarnation and knows the former one
pub async fn copy_begins_another_life(h: &impl StoreHarness) {
    let store = h.store();
    let first = store.incarnation().await.unwrap();
    let (second, _) = restored(&copy_of(&*store).await);
    let mark = second.incarnation().await.unwrap();
    assert_ne!(mark, first);
    assert_eq!(second.former_incarnations().await.unwrap(), std::slice::from_ref(&first));
    let (third, _) = restored(&copy_of(&*second).await);
    assert_eq!(third.former_incarnations().await.unwrap(), [first, mark]);
}

/// a store made from a copy holds back submissions and has every table looked at
pub async fn copy_is_held_and_looked_at(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    announce(&*store, "t").await;
    let touch = store.get_table(table_id("t")).await.unwrap().unwrap().touch.touch;
    store.commit_look(term, look("t", touch)).await.unwrap();
    assert!(store.touched(None, 10).await.unwrap().is_empty());
    let (made, _) = restored(&copy_of(&*store).await);
    assert_eq!(made.touched(None, 10).await.unwrap(), [table_id("t")]);
    let hold = made.hold().await.unwrap().unwrap();
    assert_eq!(hold.cause, HoldCause::Restored { from: store.incarnation().await.unwrap() });
    assert_eq!(hold.since, at(100));
    let term = begin(&*made).await;
    made.commit_look(term, look("t", touch)).await.unwrap();
    assert!(made.touched(None, 10).await.unwrap().is_empty());
}

/// a store made from a copy explains no inflight and trusts no missing holder
pub async fn copy_is_distrusted(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let active = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let active = make_active(&*store, active).await;
    let mut waiting = pending(key("u", Action::Compaction, Some("2")));
    waiting.has_called = true;
    let waiting = apply(&*store, insert(waiting)).await;
    let mut failed = pending(key("u", Action::Compaction, Some("3")));
    failed.has_called = true;
    let failed = apply(&*store, insert(failed)).await;
    let failed = end(&*store, failed, InstanceState::Failed, 3).await;
    let (made, _) = restored(&copy_of(&*store).await);
    for id in [waiting.id, failed.id] {
        assert!(!made.get_instance(id).await.unwrap().unwrap().has_called);
    }
    let attempt = made.get_instance(active.id).await.unwrap().unwrap().attempt.unwrap();
    assert!(attempt.is_restored && attempt.state == AttemptState::Holding && attempt.call_at.is_some());
    assert!(matches!(attempt.holder, Holder::Run(_)), "a revoke would free a table that somebody works on");
    assert_eq!(all_live_attempts(&*made, 10).await, [active.id]);
}

/// a copy is refused by a store that holds tables
pub async fn copy_replaces_nothing(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let copy = copy_of(&*store).await;
    let Some(kv) = h.kv() else { return };
    let error = restore_blocking(&kv, Cursor::new(&copy), at(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    // One that is damaged changes nothing, in an empty store either.
    let target = another(h).await;
    let kv = target.kv().unwrap();
    let before = target.store().incarnation().await.unwrap();
    for bad in [&copy[..copy.len() - 1], &copy[..copy.len() / 2], b"nonsense"] {
        restore_blocking(&kv, Cursor::new(bad), at(1)).unwrap_err();
    }
    drop(kv);
    target.reopen().await;
    assert_eq!(target.store().incarnation().await.unwrap(), before);
    assert!(all_tables(&*target.store(), 10).await.is_empty());
}

/// - a new store holds nothing back
/// - a new store has no former incarnations
pub async fn new_store_is_free(h: &impl StoreHarness) {
    assert_eq!(h.store().hold().await.unwrap(), None);
    assert!(h.store().former_incarnations().await.unwrap().is_empty());
}

/// a hold stands until it is lifted, over a restart too
pub async fn hold_stands_until_it_is_lifted(h: &impl StoreHarness) {
    let term = begin(&*h.store()).await;
    for detail in ["one", "two"] {
        h.store().set_hold(term, Some(hold(detail))).await.unwrap();
        assert_eq!(h.store().hold().await.unwrap(), Some(hold(detail)));
    }
    h.reopen().await;
    assert_eq!(h.store().hold().await.unwrap(), Some(hold("two")));
    for _ in 0..2 {
        h.store().set_hold(term, None).await.unwrap();
        assert_eq!(h.store().hold().await.unwrap(), None);
    }
}

/// a hold is refused with `Fenced` when the term is older than the newest one seen
pub async fn hold_of_a_stale_term_is_fenced(h: &impl StoreHarness) {
    let store = h.store();
    let old = begin(&*store).await;
    let new = begin(&*store).await;
    assert_eq!(refused(store.set_hold(old, Some(hold("old"))).await), ErrorKind::Fenced);
    store.set_hold(new, Some(hold("new"))).await.unwrap();
    assert_eq!(refused(store.set_hold(old, None).await), ErrorKind::Fenced);
    assert_eq!(store.hold().await.unwrap(), Some(hold("new")));
}
