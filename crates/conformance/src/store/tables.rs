//! Cases of `TableStore`.

use std::collections::BTreeSet;

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::id::{TableId, Version};
use tms_core::model::instance::InstanceState;
use tms_core::model::policy::TableSettings;
use tms_core::store::InstanceFilter;

use super::StoreHarness;
use super::samples::*;

/// an unknown table is none
pub async fn unknown_table_is_none(h: &impl StoreHarness) {
    let store = h.store();
    assert!(store.get_table(table_id("t")).await.unwrap().is_none());
    announce(&*store, "other").await;
    assert!(store.get_table(table_id("t")).await.unwrap().is_none());
}

/// pages of tables are complete and without repeats while others write
pub async fn pages_of_tables_are_complete(h: &impl StoreHarness) {
    let store = h.store();
    let names: Vec<String> = (0..50).map(|n| format!("t{n}")).collect();
    let batch: Vec<_> = names.iter().map(|name| hand_over(name)).collect();
    store.accept(&batch).await.unwrap();
    let expected: BTreeSet<TableId> = names.iter().map(|name| table_id(name)).collect();

    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    for n in 0.. {
        let page = store.list_tables(cursor.as_deref(), 7).await.unwrap();
        seen.extend(page.items.iter().map(|record| record.table.id));
        // Between two pages a table comes, others are touched, and one that was shown goes.
        store.accept(&[hand_over(&format!("new{n}")), hand_over("t1")]).await.unwrap();
        if n == 1 {
            store.remove_table(seen[0]).await.unwrap();
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert!(without_repeats(&seen).is_superset(&expected));
    assert!(seen.is_sorted(), "tables come by id");
}

/// a page of tables holds at most the limit
pub async fn page_of_tables_holds_the_limit(h: &impl StoreHarness) {
    let store = h.store();
    for name in ["a", "b", "c", "d"] {
        announce(&*store, name).await;
    }
    let page = store.list_tables(None, 3).await.unwrap();
    assert_eq!(page.items.len(), 3);
    let rest = store.list_tables(page.next.as_deref(), 3).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert_eq!(store.list_tables(None, 4).await.unwrap().next, None, "a full page may be the last");
}

/// a table is inserted only when it is absent and no version is expected
pub async fn table_is_inserted_once(h: &impl StoreHarness) {
    let store = h.store();
    assert_eq!(refused(store.put_table(table("t"), Some(Version(1))).await), ErrorKind::Conflict);
    assert!(store.get_table(table_id("t")).await.unwrap().is_none());
    let stored = store.put_table(table("t"), None).await.unwrap();
    assert_eq!(stored.version, Version(1));
    assert_eq!(store.get_table(table_id("t")).await.unwrap().unwrap().table, stored);
    assert_eq!(refused(store.put_table(table("t"), None).await), ErrorKind::AlreadyExists);
    announce(&*store, "announced").await;
    assert_eq!(refused(store.put_table(table("announced"), None).await), ErrorKind::AlreadyExists);
}

/// replacing a table is refused with `Conflict` when the version differs
pub async fn stale_table_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    let first = store.put_table(table("t"), None).await.unwrap();
    let mut wanted = first.clone();
    wanted.settings = TableSettings { priority: Some(3), ..TableSettings::default() };
    let second = store.put_table(wanted.clone(), Some(first.version)).await.unwrap();
    assert_eq!(second.version, Version(2));
    for stale in [Version(0), first.version, Version(3)] {
        assert_eq!(refused(store.put_table(first.clone(), Some(stale)).await), ErrorKind::Conflict);
    }
    let stored = store.get_table(table_id("t")).await.unwrap().unwrap().table;
    assert_eq!(stored.settings.priority, Some(3));
    assert_eq!(stored.version, Version(2));
}

/// replacing a table keeps its touch and its look
pub async fn replacing_keeps_touch_and_look(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let term = begin(&*store).await;
    store.commit_look(term, look("t", 1)).await.unwrap();
    announce(&*store, "t").await;
    let before = store.get_table(table_id("t")).await.unwrap().unwrap();
    let mut wanted = before.table.clone();
    wanted.is_registered = true;
    store.put_table(wanted, Some(before.table.version)).await.unwrap();
    let after = store.get_table(table_id("t")).await.unwrap().unwrap();
    assert!(after.table.is_registered);
    assert_eq!((after.touch, after.look), (before.touch, before.look));
    assert_eq!(store.touched(None, 10).await.unwrap(), [table_id("t")]);
}

/// a change of a table raises the change sequence
pub async fn change_of_a_table_raises_the_sequence(h: &impl StoreHarness) {
    let store = h.store();
    let before = store.change_seq().await.unwrap();
    let stored = store.put_table(table("t"), None).await.unwrap();
    let inserted = store.change_seq().await.unwrap();
    assert!(inserted > before);
    store.put_table(stored.clone(), Some(stored.version)).await.unwrap();
    let replaced = store.change_seq().await.unwrap();
    assert!(replaced > inserted);
    refused(store.put_table(stored.clone(), Some(stored.version)).await);
    assert_eq!(store.change_seq().await.unwrap(), replaced, "a refused change is none");
    store.remove_table(stored.id).await.unwrap();
    assert!(store.change_seq().await.unwrap() > replaced);
}

/// removing a table is refused with `Conflict` while an attempt of it is live
pub async fn table_with_a_live_attempt_stays(h: &impl StoreHarness) {
    let store = h.store();
    let id = announce(&*store, "t").await;
    let instance = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    put_ended(&*store, key("t", Action::Compaction, Some("0")), 1).await;
    let active = make_active(&*store, instance).await;
    assert_eq!(refused(store.remove_table(id).await), ErrorKind::Conflict);
    assert!(store.get_table(id).await.unwrap().is_some());
    assert_eq!(all_instances(&*store, &InstanceFilter::default(), 10).await.len(), 2);
    end(
        &*store,
        {
            let mut over = active;
            over.attempt = None;
            over
        },
        InstanceState::Cancelled,
        2,
    )
    .await;
    store.remove_table(id).await.unwrap();
    assert!(store.get_table(id).await.unwrap().is_none());
}

/// removing a table removes all rows that belong to it
pub async fn removed_table_leaves_nothing(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let id = announce(&*store, "t").await;
    announce(&*store, "other").await;
    store.commit_look(term, look("t", 0)).await.unwrap();
    // More instances than one step of a removal may take.
    let mut ids = Vec::new();
    for n in 1..=450 {
        let live = pending(key("t", Action::Compaction, Some(&n.to_string())));
        let mut write = insert(if n % 2 == 0 { in_state(live, InstanceState::Succeeded, n) } else { live });
        write.events = vec![event("made")];
        ids.push(apply(&*store, write).await.id);
    }
    let gone = put_pending(&*store, key("t", Action::Clean, None)).await;
    store.remove_instance(gone.id, gone.version, true).await.unwrap();
    let kept = put_pending(&*store, key("other", Action::Clean, None)).await;

    store.remove_table(id).await.unwrap();
    assert!(store.get_table(id).await.unwrap().is_none());
    assert!(store.live_of_table(id).await.unwrap().is_empty());
    assert_eq!(all_instances(&*store, &InstanceFilter::default(), 100).await, [kept.id]);
    assert_eq!(all_live(&*store, 100).await, [kept.id]);
    for id in ids {
        assert!(store.get_instance(id).await.unwrap().is_none());
        assert!(store.events(id).await.unwrap().is_empty());
    }
    assert!(store.find_instance(&key("t", Action::Compaction, Some("1"))).await.unwrap().is_none());
    assert!(!store.has_tombstone(&key("t", Action::Clean, None)).await.unwrap());
    assert_eq!(store.touched(None, 10).await.unwrap(), [table_id("other")]);
    let rule = tms_core::store::PruneRule { before: at(10_000), ..no_pruning() };
    assert_eq!(store.prune(term, rule).await.unwrap(), 0, "nothing of it is left to prune");
    assert_eq!(store.get_instance(kept.id).await.unwrap(), Some(kept));
}

/// removing an unknown table is refused with `NotFound`
pub async fn removing_an_unknown_table_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    assert_eq!(refused(store.remove_table(table_id("t")).await), ErrorKind::NotFound);
    let id = announce(&*store, "t").await;
    store.remove_table(id).await.unwrap();
    assert_eq!(refused(store.remove_table(id).await), ErrorKind::NotFound);
}

/// a look that began before a removal covers nothing of the table that comes back
pub async fn look_before_a_removal_covers_nothing_after(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let id = announce(&*store, "t").await;
    announce(&*store, "t").await;
    let late = look("t", store.get_table(id).await.unwrap().unwrap().touch.touch);
    store.remove_table(id).await.unwrap();
    announce(&*store, "t").await;
    store.commit_look(term, late).await.unwrap();
    assert_eq!(store.touched(None, 10).await.unwrap(), [id]);
    let record = store.get_table(id).await.unwrap().unwrap();
    assert!(record.touch.touch > record.look.looked);
}

/// a touched table is found until a look covers its touch
pub async fn touched_until_a_look_covers_it(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let mut ids: Vec<TableId> = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        ids.push(announce(&*store, name).await);
    }
    ids.sort_unstable();
    assert_eq!(store.touched(None, 10).await.unwrap(), ids);
    assert_eq!(store.touched(None, 2).await.unwrap(), ids[..2]);
    assert_eq!(store.touched(Some(ids[1]), 2).await.unwrap(), ids[2..4]);
    assert!(store.touched(Some(ids[4]), 2).await.unwrap().is_empty());
    store.commit_look(term, look("c", 1)).await.unwrap();
    ids.retain(|id| *id != table_id("c"));
    assert_eq!(store.touched(None, 10).await.unwrap(), ids);
    assert_eq!(store.get_table(table_id("c")).await.unwrap().unwrap().look, look("c", 1).state);
    announce(&*store, "c").await;
    assert_eq!(store.touched(None, 10).await.unwrap().len(), 5);
}

/// a look that covers an older touch leaves the table touched
pub async fn older_look_leaves_it_touched(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let id = announce(&*store, "t").await;
    announce(&*store, "t").await;
    store.commit_look(term, look("t", 1)).await.unwrap();
    assert_eq!(store.touched(None, 10).await.unwrap(), [id]);
    store.commit_look(term, look("t", 2)).await.unwrap();
    assert!(store.touched(None, 10).await.unwrap().is_empty());
}

/// a look is refused with `Fenced` when the term is older than the newest one seen
pub async fn stale_term_look_is_fenced(h: &impl StoreHarness) {
    let store = h.store();
    let id = announce(&*store, "t").await;
    let old = begin(&*store).await;
    let new = begin(&*store).await;
    assert_eq!(refused(store.commit_look(old, look("t", 1)).await), ErrorKind::Fenced);
    assert_eq!(store.touched(None, 10).await.unwrap(), [id]);
    store.commit_look(new, look("t", 1)).await.unwrap();
}

/// a look and its changes are stored together or not at all
pub async fn look_is_whole_or_nothing(h: &impl StoreHarness) {
    let store = h.store();
    let id = announce(&*store, "t").await;
    let term = begin(&*store).await;
    let first = pending(key("t", Action::Compaction, Some("1")));
    let second = pending(key("t", Action::Compaction, Some("2")));
    let mut both = look("t", 1);
    both.writes = vec![insert(first.clone()), change(second.clone())];
    assert_eq!(refused(store.commit_look(term, both.clone()).await), ErrorKind::Conflict);
    assert_eq!(store.touched(None, 10).await.unwrap(), [id]);
    assert!(store.get_instance(first.id).await.unwrap().is_none());
    assert_eq!(store.get_table(id).await.unwrap().unwrap().look.looked, 0);

    both.writes = vec![insert(first.clone()), insert(second.clone())];
    let stored = store.commit_look(term, both).await.unwrap();
    assert_eq!(stored.iter().map(|instance| instance.id).collect::<Vec<_>>(), [first.id, second.id]);
    assert!(store.touched(None, 10).await.unwrap().is_empty());
    assert_eq!(store.live_of_table(id).await.unwrap().len(), 2);
    assert_eq!(store.get_table(id).await.unwrap().unwrap().look.looked, 1);
}

/// a look at a removed table is refused with `NotFound`
pub async fn look_at_a_removed_table_is_refused(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    let id = announce(&*store, "t").await;
    store.remove_table(id).await.unwrap();
    assert_eq!(refused(store.commit_look(term, look("t", 1)).await), ErrorKind::NotFound);
    assert!(store.get_table(id).await.unwrap().is_none());
}
