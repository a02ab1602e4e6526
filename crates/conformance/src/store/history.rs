//! Cases of events, past attempts and pruning in `InstanceStore`.

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::attempt::AttemptState;
use tms_core::model::instance::InstanceState;
use tms_core::model::table::Unserved;
use tms_core::store::{ATTEMPTS_MAX, EVENTS_MAX, InstanceFilter, PruneRule, Store};

use super::StoreHarness;
use super::samples::*;

/// events come back in the order of the changes
pub async fn events_come_in_order(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut write = insert(pending(key("t", Action::Compaction, Some("1"))));
    let mut expected = Vec::new();
    for n in 0..12 {
        let events = vec![event(&format!("{n} first")), event(&format!("{n} second"))];
        expected.extend(events.clone());
        write.events = events;
        let stored = apply(&*store, write).await;
        write = change(if n == 5 { in_state(stored, InstanceState::Failed, 1) } else { stored });
    }
    assert_eq!(store.events(write.after.id).await.unwrap(), expected);
}

/// of too many events the first and the newest stay
pub async fn too_many_events(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut write = insert(pending(key("t", Action::Compaction, Some("1"))));
    let n_all = EVENTS_MAX + 30;
    for from in (0..n_all).step_by(10) {
        write.events = (from..from + 10).map(|n| event(&n.to_string())).collect();
        write = change(apply(&*store, write).await);
    }
    let kept = store.events(write.after.id).await.unwrap();
    let reasons: Vec<usize> = kept.iter().map(|event| event.reason.parse().unwrap()).collect();
    let newest = n_all - EVENTS_MAX + 1..n_all;
    assert_eq!(reasons, [0].into_iter().chain(newest).collect::<Vec<_>>());
}

/// past attempts come back in order
pub async fn past_attempts_come_in_order(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    for number in [1, 2, 3, 10, 11] {
        let mut write = change(stored);
        write.past_attempt = Some(attempt(write.after.id, number, AttemptState::Over));
        stored = apply(&*store, write).await;
    }
    let numbers: Vec<_> =
        store.past_attempts(stored.id).await.unwrap().iter().map(|one| one.number).collect();
    assert_eq!(numbers, [1, 2, 3, 10, 11]);
}

/// of too many past attempts the newest stay
pub async fn too_many_past_attempts(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let n_all = u32::try_from(ATTEMPTS_MAX).unwrap() + 3;
    for number in 1..=n_all {
        let mut write = change(stored);
        write.past_attempt = Some(attempt(write.after.id, number, AttemptState::Over));
        stored = apply(&*store, write).await;
    }
    let numbers: Vec<_> =
        store.past_attempts(stored.id).await.unwrap().iter().map(|one| one.number).collect();
    assert_eq!(numbers, (4..=n_all).collect::<Vec<_>>());
}

/// Stores `n` instances that end one second after the other, and a live one.
async fn store_history(store: &dyn Store, n: i64) {
    announce(store, "t").await;
    for secs in 1..=n {
        put_ended(store, key("t", Action::Compaction, Some(&secs.to_string())), secs).await;
    }
    put_pending(store, key("t", Action::Clustering, Some("1"))).await;
}

async fn instants_left(store: &dyn Store) -> Vec<String> {
    let filter = InstanceFilter { is_live: Some(false), ..InstanceFilter::default() };
    let page = store.list_instances(&filter, None, 1_000).await.unwrap();
    page.items.into_iter().rev().map(|instance| instance.key.instant.unwrap().to_string()).collect()
}

/// pruning removes ended instances only, the oldest first
pub async fn prune_takes_the_oldest_ended(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    store_history(&*store, 6).await;
    let gone = store.find_instance(&key("t", Action::Compaction, Some("1"))).await.unwrap().unwrap();
    let rule = PruneRule { before: at(4), ..no_pruning() };
    assert_eq!(store.prune(term, rule).await.unwrap(), 3);
    assert_eq!(instants_left(&*store).await, ["4", "5", "6"]);
    assert!(store.get_instance(gone.id).await.unwrap().is_none());
    assert!(store.find_instance(&gone.key).await.unwrap().is_none());
    let of_table = InstanceFilter { table: Some(table_id("t")), ..InstanceFilter::default() };
    assert_eq!(all_instances(&*store, &of_table, 10).await.len(), 4);
    let everything = PruneRule { before: at(1_000), keep_count: 0, batch_max: 100 };
    assert_eq!(store.prune(term, everything).await.unwrap(), 3);
    assert_eq!(all_live(&*store, 10).await.len(), 1);
    assert_eq!(store.prune(term, everything).await.unwrap(), 0);
}

/// pruning removes ended instances beyond the number to keep, whatever their age
pub async fn prune_takes_what_is_too_many(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    store_history(&*store, 6).await;
    let rule = PruneRule { keep_count: 4, ..no_pruning() };
    assert_eq!(store.prune(term, rule).await.unwrap(), 2);
    assert_eq!(instants_left(&*store).await, ["3", "4", "5", "6"]);
    assert_eq!(store.prune(term, rule).await.unwrap(), 0);
    // What is reopened or removed is not counted any more.
    let reopened = store.find_instance(&key("t", Action::Compaction, Some("3"))).await.unwrap().unwrap();
    apply(&*store, change(in_state(reopened, InstanceState::Hinted, 9))).await;
    let removed = store.find_instance(&key("t", Action::Compaction, Some("4"))).await.unwrap().unwrap();
    store.remove_instance(removed.id, removed.version, false).await.unwrap();
    let rule = PruneRule { keep_count: 2, ..no_pruning() };
    assert_eq!(store.prune(term, rule).await.unwrap(), 0);
    assert_eq!(instants_left(&*store).await, ["5", "6"]);
}

/// pruning removes at most the batch
pub async fn prune_is_bounded(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    store_history(&*store, 7).await;
    let rule = PruneRule { before: at(1_000), keep_count: 0, batch_max: 3 };
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(store.prune(term, rule).await.unwrap());
    }
    assert_eq!(counts, [3, 3, 1, 0]);
}

/// pruning keeps an instance whose plan the last look saw unserved
pub async fn prune_keeps_unserved_plans(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    store_history(&*store, 4).await;
    let mut seen = look("t", 1);
    let unserved = |action, text: &str| Unserved { action, instant: instant(text), since: at(0) };
    seen.state.unserved = vec![unserved(Action::Compaction, "2"), unserved(Action::Clustering, "3")];
    store.commit_look(term, seen).await.unwrap();
    let everything = PruneRule { before: at(1_000), keep_count: 0, batch_max: 100 };
    assert_eq!(store.prune(term, everything).await.unwrap(), 3);
    assert_eq!(instants_left(&*store).await, ["2"]);
    store.commit_look(term, look("t", 1)).await.unwrap();
    assert_eq!(store.prune(term, everything).await.unwrap(), 1);
}

/// pruning is refused with `Fenced` when the term is older than the newest one seen
pub async fn prune_with_a_stale_term_is_fenced(h: &impl StoreHarness) {
    let store = h.store();
    let old = begin(&*store).await;
    store_history(&*store, 2).await;
    begin(&*store).await;
    let everything = PruneRule { before: at(1_000), keep_count: 0, batch_max: 100 };
    assert_eq!(refused(store.prune(old, everything).await), ErrorKind::Fenced);
    assert_eq!(instants_left(&*store).await.len(), 2);
}
