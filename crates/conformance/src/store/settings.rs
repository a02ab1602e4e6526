//! Cases of `SettingsStore`.

use tms_core::ErrorKind;
use tms_core::model::id::{InstanceId, QueueName, Version};
use tms_core::model::queue::Queue;
use tms_core::store::Intent;

use super::StoreHarness;
use super::samples::*;

fn queue(name: &str) -> Queue {
    Queue::new(name.parse::<QueueName>().unwrap())
}

/// queues come back by name
pub async fn queues_come_by_name(h: &impl StoreHarness) {
    let store = h.store();
    assert!(store.queues().await.unwrap().is_empty());
    for name in ["b", "default", "a", "B"] {
        store.put_queue(queue(name), None).await.unwrap();
    }
    let names: Vec<String> = store.queues().await.unwrap().iter().map(|q| q.name.to_string()).collect();
    assert_eq!(names, ["B", "a", "b", "default"]);
}

/// a queue is inserted only when it is absent and no version is expected
pub async fn queue_is_inserted_once(h: &impl StoreHarness) {
    let store = h.store();
    assert_eq!(refused(store.put_queue(queue("q"), Some(Version(1))).await), ErrorKind::Conflict);
    assert!(store.queues().await.unwrap().is_empty());
    let stored = store.put_queue(queue("q"), None).await.unwrap();
    assert_eq!(stored.version, Version(1));
    assert_eq!(refused(store.put_queue(queue("q"), None).await), ErrorKind::AlreadyExists);
    assert_eq!(store.queues().await.unwrap(), [stored]);
}

/// replacing a queue is refused with `Conflict` when the version differs
pub async fn stale_queue_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    let first = store.put_queue(queue("q"), None).await.unwrap();
    let paused = Queue { is_paused: true, limit: 3, ..first.clone() };
    let second = store.put_queue(paused, Some(first.version)).await.unwrap();
    for stale in [Version(0), first.version, Version(3)] {
        assert_eq!(refused(store.put_queue(first.clone(), Some(stale)).await), ErrorKind::Conflict);
    }
    assert_eq!(store.queues().await.unwrap(), [second]);
}

/// a change of a queue raises the change sequence
pub async fn change_of_a_queue_raises_the_sequence(h: &impl StoreHarness) {
    let store = h.store();
    let before = store.change_seq().await.unwrap();
    let stored = store.put_queue(queue("q"), None).await.unwrap();
    let inserted = store.change_seq().await.unwrap();
    assert!(inserted > before);
    store.put_queue(stored.clone(), Some(stored.version)).await.unwrap();
    let replaced = store.change_seq().await.unwrap();
    assert!(replaced > inserted);
    refused(store.put_queue(stored, None).await);
    assert_eq!(store.change_seq().await.unwrap(), replaced, "a refused change is none");
}

/// hand-overs leave the change sequence alone
pub async fn hand_overs_leave_the_sequence(h: &impl StoreHarness) {
    let store = h.store();
    store.put_queue(queue("q"), None).await.unwrap();
    let before = store.change_seq().await.unwrap();
    for _ in 0..3 {
        announce(&*store, "t").await;
    }
    assert_eq!(store.change_seq().await.unwrap(), before);
}

/// intents are taken in the order they were stored
pub async fn intents_come_in_order(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let mut expected = Vec::new();
    for n in 0..300 {
        let intent = if n % 2 == 0 {
            Intent::Look(table_id(&n.to_string()))
        } else {
            Intent::Instance(InstanceId::new())
        };
        let before = store.change_seq().await.unwrap();
        store.put_intent(intent.clone()).await.unwrap();
        assert!(store.change_seq().await.unwrap() > before);
        expected.push(intent);
    }
    assert_eq!(store.take_intents(term, 10_000).await.unwrap(), expected);
}

/// an intent that waits already is not stored twice
pub async fn intent_that_waits_is_not_doubled(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let (first, second) = (Intent::Look(table_id("t")), Intent::Look(table_id("u")));
    for intent in [&first, &second, &first, &first] {
        let before = store.change_seq().await.unwrap();
        store.put_intent(intent.clone()).await.unwrap();
        assert!(store.change_seq().await.unwrap() > before, "it is a signal all the same");
    }
    assert_eq!(store.take_intents(term, 10).await.unwrap(), [first.clone(), second]);
    store.put_intent(first.clone()).await.unwrap();
    assert_eq!(store.take_intents(term, 10).await.unwrap(), [first], "taken, it may come again");
}

/// an intent is taken once
pub async fn intent_is_taken_once(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let intents: Vec<Intent> = (0..5).map(|n| Intent::Look(table_id(&format!("t{n}")))).collect();
    for intent in &intents {
        store.put_intent(intent.clone()).await.unwrap();
    }
    assert_eq!(store.take_intents(term, 2).await.unwrap(), intents[..2]);
    assert_eq!(store.take_intents(term, 10).await.unwrap(), intents[2..]);
    assert!(store.take_intents(term, 10).await.unwrap().is_empty());
}

/// taking intents is refused with `Fenced` when the term is older than the newest one seen
pub async fn taking_with_a_stale_term_is_fenced(h: &impl StoreHarness) {
    let store = h.store();
    let old = begin(&*store).await;
    let intent = Intent::Look(table_id("t"));
    store.put_intent(intent.clone()).await.unwrap();
    let new = begin(&*store).await;
    assert_eq!(refused(store.take_intents(old, 10).await), ErrorKind::Fenced);
    assert_eq!(store.take_intents(new, 10).await.unwrap(), [intent]);
}
