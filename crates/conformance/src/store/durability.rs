//! Cases of opening a store again.

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::attempt::AttemptState;
use tms_core::model::id::Version;
use tms_core::model::instance::InstanceState;
use tms_core::model::queue::Queue;
use tms_core::store::kv::{Batch, Keyspace, SCHEMA_VERSION};
use tms_core::store::{InstanceFilter, Intent, PruneRule};

use super::StoreHarness;
use super::samples::*;

/// Everything that was stored is there after the store was closed and opened again.
pub async fn reopening_keeps_everything(h: &impl StoreHarness) {
    let store = h.store();
    let term = begin(&*store).await;
    store.accept(&[naming("t", Action::Compaction, &["1", "2"]), hand_over("u")]).await.unwrap();
    let mut settings = store.get_table(table_id("u")).await.unwrap().unwrap().table;
    settings.settings.priority = Some(9);
    store.put_table(settings, Some(Version(1))).await.unwrap();
    let live = store.find_instance(&key("t", Action::Compaction, Some("1"))).await.unwrap().unwrap();
    let mut write = change(live);
    write.events = vec![event("changed")];
    write.past_attempt = Some(attempt(write.after.id, 1, AttemptState::Over));
    let live = apply(&*store, write).await;
    let other = store.find_instance(&key("t", Action::Compaction, Some("2"))).await.unwrap().unwrap();
    let ended = end(&*store, other, InstanceState::Failed, 3).await;
    let removed = put_pending(&*store, key("u", Action::Clustering, Some("5"))).await;
    store.remove_instance(removed.id, removed.version, true).await.unwrap();
    store.commit_look(term, look("t", 1)).await.unwrap();
    let queue = store.put_queue(Queue::new("q".parse().unwrap()), None).await.unwrap();
    store.put_intent(Intent::Look(table_id("t"))).await.unwrap();
    let (seq, leader) = (store.change_seq().await.unwrap(), store.current_term().await.unwrap());
    let tables = store.list_tables(None, 10).await.unwrap();
    let events = store.events(live.id).await.unwrap();
    drop(store);

    h.reopen().await;
    let store = h.store();
    assert_eq!(store.list_tables(None, 10).await.unwrap(), tables);
    assert_eq!(store.touched(None, 10).await.unwrap(), [table_id("u")]);
    assert_eq!(store.live_of_table(table_id("t")).await.unwrap(), std::slice::from_ref(&live));
    assert_eq!(all_live(&*store, 10).await, [live.id]);
    assert_eq!(store.get_instance(ended.id).await.unwrap(), Some(ended.clone()));
    assert_eq!(all_instances(&*store, &InstanceFilter::default(), 10).await.len(), 2);
    assert_eq!(store.events(live.id).await.unwrap(), events);
    assert_eq!(store.past_attempts(live.id).await.unwrap().len(), 1);
    assert!(store.has_tombstone(&removed.key).await.unwrap());
    assert_eq!(store.queues().await.unwrap(), [queue]);
    assert_eq!(store.change_seq().await.unwrap(), seq);
    assert_eq!(store.current_term().await.unwrap(), leader);
    assert_eq!(store.take_intents(term, 10).await.unwrap(), [Intent::Look(table_id("t"))]);
    let rule = PruneRule { keep_count: 0, ..no_pruning() };
    assert_eq!(store.prune(term, rule).await.unwrap(), 1, "the count of ended ones is kept too");
}

/// A store that a newer TMS wrote is refused with `Unsupported` and a hint.
pub async fn newer_schema_is_refused(h: &impl StoreHarness) {
    announce(&*h.store(), "t").await;
    h.try_reopen().await.unwrap();
    let Some(kv) = h.kv() else { return };
    let newer = (SCHEMA_VERSION + 1).to_be_bytes().to_vec();
    let row = (Keyspace::Meta, b"schema".to_vec(), newer.into());
    kv.commit(&Batch { puts: vec![row], ..Batch::default() }).unwrap();
    drop(kv);
    let error = h.try_reopen().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hint_text().is_some());
}

/// A store whose restore has not come to its end is refused with `Unsupported` and says so.
pub async fn half_restored_store_is_refused(h: &impl StoreHarness) {
    h.try_reopen().await.unwrap();
    let Some(kv) = h.kv() else { return };
    let row = (Keyspace::Meta, b"schema".to_vec(), vec![0; 8].into());
    kv.commit(&Batch { puts: vec![row], ..Batch::default() }).unwrap();
    drop(kv);
    let error = h.try_reopen().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("restore"), "{error}");
}
