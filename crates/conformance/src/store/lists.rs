//! Cases of the lists of `InstanceStore`.

use std::collections::BTreeSet;

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::attempt::AttemptState;
use tms_core::model::id::InstanceId;
use tms_core::model::instance::{InstanceState, WaitReason};
use tms_core::store::InstanceFilter;
use tms_core::store::kv::{Batch, KeyRange, Keyspace};

use super::StoreHarness;
use super::samples::*;

/// pages of instances are complete and without repeats while others write
pub async fn pages_of_instances_are_complete(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut stored = Vec::new();
    for n in 1..=40 {
        stored.push(put_pending(&*store, key("t", Action::Compaction, Some(&n.to_string()))).await);
    }
    let expected: BTreeSet<InstanceId> = stored.iter().map(|instance| instance.id).collect();
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    for n in 0.. {
        let page = store.list_instances(&InstanceFilter::default(), cursor.as_deref(), 6).await.unwrap();
        seen.extend(page.items.iter().map(|instance| instance.id));
        // Between two pages one ends that was not shown yet, one that was, and a new one comes.
        for ending in [stored.remove(0), stored.remove(stored.len() - 1)] {
            end(&*store, ending, InstanceState::Succeeded, n).await;
        }
        put_pending(&*store, key("t", Action::Clustering, Some(&n.to_string()))).await;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(without_repeats(&seen), expected);
    assert!(seen.iter().rev().is_sorted(), "the newest come first");
}

/// Lists of more live and ended instances than one step reads of each are complete, whatever their mixture.
pub async fn long_lists_are_complete(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut expected = Vec::new();
    // 300 that end, 300 that live, then both in turns.
    for (n, is_ended) in (0..900).map(|n| (n, n < 300 || (n >= 600 && n % 2 == 0))) {
        let mut instance = pending(key("t", Action::Compaction, Some(&n.to_string())));
        if is_ended {
            instance = in_state(instance, InstanceState::Succeeded, n);
        }
        expected.push(insert(instance));
    }
    store.write(None, expected.clone()).await.unwrap();
    let ids: Vec<InstanceId> = expected.iter().rev().map(|write| write.after.id).collect();
    for limit in [7, 250, 1_000] {
        assert_eq!(all_instances(&*store, &InstanceFilter::default(), limit).await, ids, "by {limit}");
    }
}

/// a page of instances holds at most the limit
pub async fn page_of_instances_holds_the_limit(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    for n in 1..=4 {
        put_ended(&*store, key("t", Action::Compaction, Some(&n.to_string())), n).await;
    }
    let filter = InstanceFilter::default();
    let page = store.list_instances(&filter, None, 3).await.unwrap();
    assert_eq!(page.items.len(), 3);
    let rest = store.list_instances(&filter, page.next.as_deref(), 3).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert_eq!(store.list_instances(&filter, None, 4).await.unwrap().next, None);
    let of_table = InstanceFilter { table: Some(table_id("t")), ..filter };
    let page = store.list_instances(&of_table, None, 3).await.unwrap();
    assert_eq!((page.items.len(), page.next.is_some()), (3, true));
}

/// a filter leaves out what does not match
pub async fn filter_leaves_out(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let t1 = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let t2 = put_ended(&*store, key("t", Action::Clean, None), 2).await;
    let u1 = put_ended(&*store, key("u", Action::Compaction, Some("1")), 3).await;
    let mut queued = pending(key("u", Action::Clustering, Some("2")));
    queued.queue = "etl".parse().unwrap();
    let u2 = apply(&*store, insert(queued)).await;

    let any = InstanceFilter::default;
    let word = |text: &str| vec![text.to_owned()];
    let cases = [
        (any(), vec![u2.id, u1.id, t2.id, t1.id]),
        (InstanceFilter { table: Some(table_id("t")), ..any() }, vec![t2.id, t1.id]),
        (InstanceFilter { table: Some(table_id("unknown")), ..any() }, vec![]),
        (InstanceFilter { actions: vec![Action::Compaction], ..any() }, vec![u1.id, t1.id]),
        (InstanceFilter { actions: vec![Action::Clean, Action::Clustering], ..any() }, vec![u2.id, t2.id]),
        (InstanceFilter { states: word("succeeded"), ..any() }, vec![u1.id, t2.id]),
        (InstanceFilter { states: word("pending"), ..any() }, vec![u2.id, t1.id]),
        (InstanceFilter { states: word("active"), ..any() }, vec![]),
        (InstanceFilter { queue: Some("etl".parse().unwrap()), ..any() }, vec![u2.id]),
        (InstanceFilter { is_live: Some(true), ..any() }, vec![u2.id, t1.id]),
        (InstanceFilter { is_live: Some(false), ..any() }, vec![u1.id, t2.id]),
        (InstanceFilter { is_live: Some(false), states: word("pending"), ..any() }, vec![]),
        (InstanceFilter { table: Some(table_id("u")), is_live: Some(false), ..any() }, vec![u1.id]),
    ];
    for (filter, expected) in cases {
        for limit in [1, 2, 100] {
            let found = all_instances(&*store, &filter, limit).await;
            assert_eq!(found, expected, "{filter:?} by {limit}");
        }
    }
}

/// every live instance is on exactly one page of live instances
pub async fn every_live_instance_is_on_one_page(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut live = BTreeSet::new();
    for n in 1..=25 {
        let of = key("t", Action::Compaction, Some(&n.to_string()));
        if n % 3 == 0 {
            put_ended(&*store, of, n).await;
        } else {
            live.insert(put_pending(&*store, of).await.id);
        }
    }
    for limit in [1, 4, 17, 100] {
        assert_eq!(without_repeats(&all_live(&*store, limit).await), live);
    }
}

/// every instance with a live attempt is on exactly one page of live attempts
pub async fn every_live_attempt_is_on_one_page(h: &impl StoreHarness) {
    let store = h.store();
    let mut live = BTreeSet::new();
    for n in 1..=12 {
        let name = format!("t{n}");
        announce(&*store, &name).await;
        let instance = put_pending(&*store, key(&name, Action::Compaction, Some("1"))).await;
        put_pending(&*store, key(&name, Action::Compaction, Some("2"))).await;
        if n % 2 == 0 {
            live.insert(make_active(&*store, instance).await.id);
        }
    }
    for limit in [1, 5, 6, 100] {
        assert_eq!(without_repeats(&all_live_attempts(&*store, limit).await), live);
    }
}

/// an instance whose attempt is over is on no page of live attempts
pub async fn attempt_that_is_over_is_on_no_page(h: &impl StoreHarness) {
    let store = h.store();
    for name in ["t", "u"] {
        announce(&*store, name).await;
    }
    let ends = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let waits = put_pending(&*store, key("u", Action::Compaction, Some("1"))).await;
    let mut ends = make_active(&*store, ends).await;
    let mut waits = make_active(&*store, waits).await;
    assert_eq!(all_live_attempts(&*store, 10).await.len(), 2);
    ends.attempt = Some(Box::new(attempt(ends.id, 1, AttemptState::Over)));
    end(&*store, ends, InstanceState::Succeeded, 9).await;
    waits.attempt = Some(Box::new(attempt(waits.id, 1, AttemptState::Over)));
    waits.state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    apply(&*store, change(waits)).await;
    assert_eq!(all_live_attempts(&*store, 10).await, []);
}

/// the live instances of a table are those of the table only
pub async fn live_of_a_table_only(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let first = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    put_pending(&*store, key("u", Action::Compaction, Some("1"))).await;
    put_ended(&*store, key("t", Action::Compaction, Some("2")), 1).await;
    let second = put_pending(&*store, key("t", Action::Clean, None)).await;
    assert_eq!(store.live_of_table(table_id("t")).await.unwrap(), [first, second]);
    assert!(store.live_of_table(table_id("unknown")).await.unwrap().is_empty());
}

/// a cursor that no list gave is refused with `Invalid`
pub async fn foreign_cursor_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    for cursor in ["", "x", "../../etc", "é"] {
        let listed = store.list_instances(&InstanceFilter::default(), Some(cursor), 10).await;
        assert_eq!(refused(listed), ErrorKind::Invalid);
        assert_eq!(refused(store.live_instances(Some(cursor), 10).await), ErrorKind::Invalid);
        assert_eq!(refused(store.live_attempts(Some(cursor), 10).await), ErrorKind::Invalid);
        assert_eq!(refused(store.list_tables(Some(cursor), 10).await), ErrorKind::Invalid);
    }
}

/// a row that cannot be read hides no other
pub async fn one_bad_row_hides_no_other(h: &impl StoreHarness) {
    let Some(kv) = h.kv() else { return };
    let store = h.store();
    let term = begin(&*store).await;
    for name in ["t", "u", "v"] {
        announce(&*store, name).await;
    }
    let mut live = Vec::new();
    let mut ended = Vec::new();
    for n in 1..=3 {
        live.push(put_pending(&*store, key("t", Action::Compaction, Some(&n.to_string()))).await);
        ended.push(put_ended(&*store, key("t", Action::Clustering, Some(&n.to_string())), n).await);
    }
    let (bad_live, bad_ended) = (live.remove(1), ended.remove(1));
    damage(&*kv, Keyspace::Live, bad_live.id.0.as_bytes());
    damage(&*kv, Keyspace::History, bad_ended.id.0.as_bytes());
    damage(&*kv, Keyspace::Tables, table_id("u").as_bytes());
    drop(kv);
    drop(store);
    h.reopen().await;
    let store = h.store();

    let good_live: BTreeSet<_> = live.iter().map(|instance| instance.id).collect();
    assert_eq!(without_repeats(&all_live(&*store, 2).await), good_live);
    assert_eq!(store.live_of_table(table_id("t")).await.unwrap().len(), 2);
    let listed = all_instances(&*store, &InstanceFilter::default(), 2).await;
    assert_eq!(without_repeats(&listed).len(), 4);
    assert_eq!(without_repeats(&all_tables(&*store, 1).await), [table_id("t"), table_id("v")].into());
    let error = store.get_instance(bad_live.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.get("keyspace").is_some() && error.get("key").is_some(), "{error}");

    // The others go on living: changes, hand-overs, pruning.
    apply(&*store, change(live.remove(0))).await;
    store.accept(&[hand_over("t"), hand_over("v")]).await.unwrap();
    let everything = tms_core::store::PruneRule { before: at(100), keep_count: 0, batch_max: 10 };
    assert_eq!(store.prune(term, everything).await.unwrap(), 3, "pruning takes the bad row too");
}

/// Overwrites the one row of a keyspace whose key ends with `id` by something that is no row.
pub(super) fn damage(kv: &dyn tms_core::store::kv::OrderedKv, keyspace: Keyspace, id: &[u8]) {
    let rows = kv.snapshot().unwrap().scan(keyspace, &KeyRange::prefix(b""), 10_000, false).unwrap();
    let row = rows.iter().find(|(key, value)| key.len() == 17 && key.ends_with(id) && !value.is_empty());
    let key = row.expect("the row to damage").0.to_vec();
    let batch = Batch { puts: vec![(keyspace, key, "{\"i\":".into())], ..Batch::default() };
    kv.commit(&batch).unwrap();
}
