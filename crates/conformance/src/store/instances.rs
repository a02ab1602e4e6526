//! Cases of changes in `InstanceStore`.

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::attempt::AttemptState;
use tms_core::model::id::{InstanceId, Term, Version};
use tms_core::model::instance::{CancelAsked, Instance, InstanceState};
use tms_core::store::kv::Keyspace;

use super::StoreHarness;
use super::lists::damage;
use super::samples::*;

/// an unknown instance is none
pub async fn unknown_instance_is_none(h: &impl StoreHarness) {
    let store = h.store();
    assert!(store.get_instance(InstanceId::new()).await.unwrap().is_none());
    assert!(store.events(InstanceId::new()).await.unwrap().is_empty());
    assert!(store.past_attempts(InstanceId::new()).await.unwrap().is_empty());
}

/// an instance is found by table, action and instant
pub async fn instance_is_found_by_key(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let next = put_pending(&*store, key("t", Action::Clean, None)).await;
    let find = async |name, action, text| store.find_instance(&key(name, action, text)).await.unwrap();
    assert_eq!(find("t", Action::Compaction, Some("1")).await, Some(stored.clone()));
    assert_eq!(find("t", Action::Clean, None).await, Some(next.clone()));
    assert_eq!(find("t", Action::Clustering, Some("1")).await, None);
    assert_eq!(find("t", Action::Compaction, Some("11")).await, None);
    assert_eq!(find("t", Action::Compaction, None).await, None);
    assert_eq!(find("u", Action::Compaction, Some("1")).await, None);

    let ended = end(&*store, stored, InstanceState::Succeeded, 1).await;
    assert_eq!(find("t", Action::Compaction, Some("1")).await, Some(ended));
    let first = end(&*store, next, InstanceState::Obsolete, 2).await;
    assert_eq!(find("t", Action::Clean, None).await, Some(first.clone()));
    let second = put_pending(&*store, key("t", Action::Clean, None)).await;
    assert_eq!(find("t", Action::Clean, None).await, Some(second.clone()));
    let second = end(&*store, second, InstanceState::Obsolete, 3).await;
    assert_eq!(find("t", Action::Clean, None).await, Some(second), "the newest of those that ended");
    assert_eq!(store.get_instance(first.id).await.unwrap(), Some(first));
}

/// an instance is inserted only when its id and its key are free
pub async fn insert_needs_free_id_and_key(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let first = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    assert_eq!(first.version, Version(1));
    let mut same_id = pending(key("t", Action::Compaction, Some("2")));
    same_id.id = first.id;
    assert_eq!(refused(store.write(None, vec![insert(same_id)]).await), ErrorKind::Conflict);
    let same_key = pending(first.key.clone());
    assert_eq!(refused(store.write(None, vec![insert(same_key.clone())]).await), ErrorKind::Conflict);
    // An ended one still is the instance of its plan: it is reopened, never doubled.
    end(&*store, first, InstanceState::Obsolete, 1).await;
    assert_eq!(refused(store.write(None, vec![insert(same_key)]).await), ErrorKind::Conflict);
    let twins = vec![
        insert(pending(key("t", Action::Compaction, Some("3")))),
        insert(pending(key("t", Action::Compaction, Some("3")))),
    ];
    assert_eq!(refused(store.write(None, twins).await), ErrorKind::Conflict);
}

/// a change is refused with `Conflict` when the version differs
pub async fn stale_version_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let first = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let mut wanted = first.clone();
    wanted.priority = 5;
    let second = apply(&*store, change(wanted)).await;
    assert_eq!((second.version, second.priority), (Version(2), 5));
    assert_eq!(refused(store.write(None, vec![change(first.clone())]).await), ErrorKind::Conflict);
    let mut ahead = first;
    ahead.version = Version(3);
    assert_eq!(refused(store.write(None, vec![change(ahead)]).await), ErrorKind::Conflict);
    assert_eq!(store.get_instance(second.id).await.unwrap(), Some(second));
    let unknown = pending(key("t", Action::Compaction, Some("2")));
    assert_eq!(refused(store.write(None, vec![change(unknown)]).await), ErrorKind::Conflict);
}

/// a change is refused with `Fenced` when the term is older than the newest one seen
pub async fn stale_term_is_fenced(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let old = begin(&*store).await;
    let one = insert(pending(key("t", Action::Compaction, Some("1"))));
    let new = begin(&*store).await;
    assert_eq!(refused(store.write(Some(old), vec![one.clone()]).await), ErrorKind::Fenced);
    assert!(store.get_instance(one.after.id).await.unwrap().is_none());
    let stored = store.write(Some(new), vec![one]).await.unwrap().remove(0);
    // A Manager has no term: the version alone guards what it writes.
    apply(&*store, change(stored)).await;
}

/// a term that never began is refused with `Fenced`
pub async fn term_that_never_began_is_fenced(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let one = insert(pending(key("t", Action::Compaction, Some("1"))));
    assert_eq!(refused(store.write(Some(Term(1)), vec![one.clone()]).await), ErrorKind::Fenced);
    let term = begin(&*store).await;
    let ahead = Term(term.0 + 1);
    assert_eq!(refused(store.write(Some(ahead), vec![one.clone()]).await), ErrorKind::Fenced);
    store.write(Some(term), vec![one]).await.unwrap();
}

/// one refused change refuses the whole batch
pub async fn refused_change_refuses_the_batch(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let mut good = change(in_state(stored.clone(), InstanceState::Succeeded, 1));
    good.events = vec![event("done")];
    let bad = change(pending(key("t", Action::Compaction, Some("2"))));
    for writes in [vec![good.clone(), bad.clone()], vec![bad, good.clone()]] {
        assert_eq!(refused(store.write(None, writes).await), ErrorKind::Conflict);
        assert_eq!(store.get_instance(stored.id).await.unwrap(), Some(stored.clone()));
        assert!(store.events(stored.id).await.unwrap().is_empty());
        assert_eq!(all_live(&*store, 10).await, [stored.id]);
    }
    apply(&*store, good).await;
}

/// moving to an ended state takes the instance out of the live index in the same transaction
pub async fn ending_leaves_the_live_index(h: &impl StoreHarness) {
    let store = h.store();
    let table = announce(&*store, "t").await;
    for (n, state) in
        [InstanceState::Succeeded, InstanceState::Failed, InstanceState::Cancelled, InstanceState::Obsolete]
            .into_iter()
            .enumerate()
    {
        let live = put_pending(&*store, key("t", Action::Compaction, Some(&n.to_string()))).await;
        assert_eq!(all_live(&*store, 10).await, [live.id]);
        let ended = end(&*store, live, state, 1).await;
        assert!(all_live(&*store, 10).await.is_empty());
        assert!(store.live_of_table(table).await.unwrap().is_empty());
        assert_eq!(store.get_instance(ended.id).await.unwrap(), Some(ended));
    }
}

/// moving out of an ended state puts the instance into the live index again
pub async fn reopening_enters_the_live_index(h: &impl StoreHarness) {
    let store = h.store();
    let table = announce(&*store, "t").await;
    let term = begin(&*store).await;
    let ended = put_ended(&*store, key("t", Action::Compaction, Some("1")), 1).await;
    let again = in_state(ended, InstanceState::Hinted, 2);
    let reopened = apply(&*store, change(again)).await;
    assert_eq!(reopened.version, Version(3));
    assert_eq!(all_live(&*store, 10).await, [reopened.id]);
    assert_eq!(store.live_of_table(table).await.unwrap(), std::slice::from_ref(&reopened));
    let everything = tms_core::store::PruneRule { before: at(100), keep_count: 0, batch_max: 10 };
    assert_eq!(store.prune(term, everything).await.unwrap(), 0, "it is no history any more");
    assert_eq!(store.get_instance(reopened.id).await.unwrap(), Some(reopened));
}

/// one live instance per key, and of a key without instant too
pub async fn one_live_instance_per_key(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    for text in [Some("1"), None] {
        let of = key("t", Action::Clean, text);
        let live = put_pending(&*store, of.clone()).await;
        let second = pending(of.clone());
        assert_eq!(refused(store.write(None, vec![insert(second)]).await), ErrorKind::Conflict);
        put_pending(&*store, key("u", Action::Clean, text)).await;
        if text.is_none() {
            let ended = end(&*store, live, InstanceState::Cancelled, 1).await;
            let second = put_pending(&*store, of).await;
            let again = change(in_state(ended.clone(), InstanceState::Hinted, 2));
            assert_eq!(refused(store.write(None, vec![again.clone()]).await), ErrorKind::Conflict);
            end(&*store, second, InstanceState::Cancelled, 3).await;
            apply(&*store, again).await;
        }
    }
}

/// events and past attempts are stored with the change
pub async fn events_and_attempts_go_with_the_change(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let mut write = change(stored.clone());
    write.events = vec![event("one"), event("two")];
    let over = attempt(stored.id, 1, AttemptState::Over);
    write.past_attempt = Some(over.clone());
    apply(&*store, write.clone()).await;
    assert_eq!(store.events(stored.id).await.unwrap(), write.events);
    assert_eq!(store.past_attempts(stored.id).await.unwrap(), [over]);
    assert_eq!(refused(store.write(None, vec![write]).await), ErrorKind::Conflict);
    assert_eq!(store.events(stored.id).await.unwrap().len(), 2);
    assert_eq!(store.past_attempts(stored.id).await.unwrap().len(), 1);
}

/// an instant given to an instance without one changes its key in the same transaction
pub async fn instant_changes_the_key(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let next = key("t", Action::Clean, None);
    let with_instant = key("t", Action::Clean, Some("7"));
    let mut stored = put_pending(&*store, next.clone()).await;
    stored.key = with_instant.clone();
    let stored = apply(&*store, change(stored)).await;
    assert_eq!(store.find_instance(&with_instant).await.unwrap(), Some(stored.clone()));
    assert_eq!(store.find_instance(&next).await.unwrap(), None);
    let mut following = put_pending(&*store, next.clone()).await;
    following.key = with_instant;
    let taken = store.write(None, vec![change(following.clone())]).await;
    assert_eq!(refused(taken), ErrorKind::Conflict, "two instances of one plan");
    following.key = next.clone();
    assert_eq!(store.find_instance(&next).await.unwrap(), Some(following));
}

/// an instance of an unknown table is refused with `NotFound`
pub async fn instance_of_an_unknown_table_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    let one = insert(pending(key("t", Action::Compaction, Some("1"))));
    assert_eq!(refused(store.write(None, vec![one.clone()]).await), ErrorKind::NotFound);
    assert!(store.get_instance(one.after.id).await.unwrap().is_none());
}

/// an instance keeps its table, its action and the instant that it has
pub async fn key_is_kept_for_life(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    for other in [
        key("u", Action::Compaction, Some("1")),
        key("t", Action::Clustering, Some("1")),
        key("t", Action::Compaction, Some("2")),
        key("t", Action::Compaction, None),
    ] {
        let mut moved = stored.clone();
        moved.key = other;
        assert_eq!(refused(store.write(None, vec![change(moved)]).await), ErrorKind::Invalid);
    }
    assert_eq!(store.get_instance(stored.id).await.unwrap(), Some(stored));
}

/// a removed instance leaves a tombstone until it is cleared
pub async fn removed_instance_leaves_a_tombstone(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let of = key("t", Action::Compaction, Some("1"));
    let named = naming("t", Action::Compaction, &["1"]);
    let stored = put_pending(&*store, of.clone()).await;
    assert!(!store.has_tombstone(&of).await.unwrap());
    store.remove_instance(stored.id, stored.version, true).await.unwrap();
    assert!(store.get_instance(stored.id).await.unwrap().is_none());
    assert!(store.has_tombstone(&of).await.unwrap());
    assert!(!store.has_tombstone(&key("t", Action::Compaction, Some("2"))).await.unwrap());
    assert_eq!(store.accept(std::slice::from_ref(&named)).await.unwrap()[0].n_hinted, 0);
    store.clear_tombstone(&of).await.unwrap();
    assert!(!store.has_tombstone(&of).await.unwrap());
    assert_eq!(store.accept(&[named]).await.unwrap()[0].n_hinted, 1);

    let again = store.find_instance(&of).await.unwrap().unwrap();
    store.remove_instance(again.id, again.version, false).await.unwrap();
    assert!(!store.has_tombstone(&of).await.unwrap(), "none was asked for");
}

/// removing an instance is refused with `Conflict` while an attempt of it is live
pub async fn removing_with_a_live_attempt_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let stored = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let mut active = make_active(&*store, stored).await;
    let removed = store.remove_instance(active.id, active.version, true).await;
    assert_eq!(refused(removed), ErrorKind::Conflict);
    assert!(!store.has_tombstone(&active.key).await.unwrap());
    assert_eq!(store.get_instance(active.id).await.unwrap(), Some(active.clone()));
    active.attempt = Some(Box::new(attempt(active.id, 1, AttemptState::Over)));
    let over = apply(&*store, change(active)).await;
    store.remove_instance(over.id, over.version, false).await.unwrap();
    assert!(all_live(&*store, 10).await.is_empty());
}

/// removing an instance is refused with `Conflict` when the version differs
pub async fn removing_a_stale_version_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let first = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let mut asked = first.clone();
    asked.cancel_asked = Some(CancelAsked { by: "test".to_owned(), at: at(1) });
    let second = apply(&*store, change(asked)).await;
    let removed = store.remove_instance(first.id, first.version, false).await;
    assert_eq!(refused(removed), ErrorKind::Conflict);
    assert_eq!(store.get_instance(first.id).await.unwrap(), Some(second.clone()));
    store.remove_instance(second.id, second.version, false).await.unwrap();
    let removed = store.remove_instance(second.id, second.version, false).await;
    assert_eq!(refused(removed), ErrorKind::NotFound);
}

/// clearing a tombstone that is not there changes nothing
pub async fn clearing_no_tombstone_changes_nothing(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let of = key("t", Action::Compaction, Some("1"));
    let stored = put_pending(&*store, of.clone()).await;
    store.clear_tombstone(&of).await.unwrap();
    store.clear_tombstone(&key("unknown", Action::Clean, None)).await.unwrap();
    assert_eq!(store.find_instance(&of).await.unwrap(), Some(stored));
}

/// a second live attempt on a table is refused with `Conflict`
pub async fn second_live_attempt_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    announce(&*store, "u").await;
    let first = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let second = put_pending(&*store, key("t", Action::Clustering, Some("2"))).await;
    let elsewhere = put_pending(&*store, key("u", Action::Compaction, Some("1"))).await;
    let first = make_active(&*store, first).await;
    make_active(&*store, elsewhere).await;
    let active = |mut instance: Instance| {
        instance.attempt = Some(Box::new(attempt(instance.id, 1, AttemptState::Intended)));
        instance.state = InstanceState::Active;
        change(instance)
    };
    let refusal = refused(store.write(None, vec![active(second.clone())]).await);
    assert_eq!(refusal, ErrorKind::Conflict);
    // What has the slot goes on changing, and gives it away with its end.
    let mut first = apply(&*store, change(first)).await;
    first.attempt = Some(Box::new(attempt(first.id, 1, AttemptState::Over)));
    end(&*store, first, InstanceState::Failed, 9).await;
    store.write(None, vec![active(second)]).await.unwrap();
}

/// of two live attempts on a table in one batch none is made
pub async fn two_live_attempts_in_one_batch_are_refused(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let first = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let second = put_pending(&*store, key("t", Action::Clustering, Some("2"))).await;
    let both = vec![change(activated(first.clone())), change(activated(second))];
    assert_eq!(refused(store.write(None, both).await), ErrorKind::Conflict);
    assert_eq!(store.get_instance(first.id).await.unwrap(), Some(first));
}

fn activated(mut instance: Instance) -> Instance {
    instance.attempt = Some(Box::new(attempt(instance.id, 1, AttemptState::Intended)));
    instance.state = InstanceState::Active;
    instance
}

/// a row with a live attempt that cannot be read keeps the slot of its table
pub async fn unreadable_row_keeps_the_slot(h: &impl StoreHarness) {
    let Some(kv) = h.kv() else { return };
    let store = h.store();
    announce(&*store, "t").await;
    let bad = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let other = put_pending(&*store, key("t", Action::Clustering, Some("2"))).await;
    let bad = make_active(&*store, bad).await;
    damage(&*kv, Keyspace::Live, bad.id.0.as_bytes());
    drop(kv);
    assert_eq!(refused(store.write(None, vec![change(activated(other))]).await), ErrorKind::Conflict);
}

/// a row without a live attempt that cannot be read keeps no slot
pub async fn unreadable_row_without_attempt_keeps_no_slot(h: &impl StoreHarness) {
    let Some(kv) = h.kv() else { return };
    let store = h.store();
    announce(&*store, "t").await;
    let bad = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    let other = put_pending(&*store, key("t", Action::Clustering, Some("2"))).await;
    damage(&*kv, Keyspace::Live, bad.id.0.as_bytes());
    drop(kv);
    store.write(None, vec![change(activated(other))]).await.unwrap();
}
