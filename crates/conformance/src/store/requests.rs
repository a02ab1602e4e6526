//! Cases of `RequestStore`.

use tms_core::model::action::Action;
use tms_core::model::instance::InstanceState;
use tms_core::model::request::{Accepted, HandOver, Trigger};
use tms_core::store::InstanceFilter;

use super::StoreHarness;
use super::samples::*;

/// an unknown table becomes known with its spelling and labels
pub async fn unknown_table_becomes_known(h: &impl StoreHarness) {
    let store = h.store();
    let one = HandOver {
        spelling: "s3a://lake/orders/".to_owned(),
        database: Some("sales".to_owned()),
        table_name: Some("orders".to_owned()),
        at: at(7),
        ..hand_over("orders")
    };
    let accepted = store.accept(&[one]).await.unwrap();
    assert_eq!(accepted, [Accepted { touch: 1, n_hinted: 0, is_new_table: true }]);
    let record = store.get_table(table_id("orders")).await.unwrap().unwrap();
    assert_eq!(record.table.base_path, path("orders"));
    assert!(!record.table.is_registered);
    assert_eq!(record.table.created_at, at(7));
    assert_eq!(record.touch.spelling, "s3a://lake/orders/");
    assert_eq!(record.touch.database.as_deref(), Some("sales"));
    assert_eq!(record.touch.name.as_deref(), Some("orders"));
    assert_eq!(record.touch.last_heard, Some(at(7)));
}

/// each hand-over of a table raises its touch number
pub async fn hand_over_raises_touch(h: &impl StoreHarness) {
    let store = h.store();
    for touch in 1..=3 {
        let accepted = store.accept(&[hand_over("t")]).await.unwrap();
        assert_eq!(accepted, [Accepted { touch, n_hinted: 0, is_new_table: touch == 1 }]);
    }
    assert_eq!(store.get_table(table_id("t")).await.unwrap().unwrap().touch.touch, 3);
}

/// the spelling announced last is kept beside the canonical path
pub async fn last_spelling_is_kept(h: &impl StoreHarness) {
    let store = h.store();
    for spelling in ["/lake/t", "file:///lake/t/"] {
        store.accept(&[HandOver { spelling: spelling.to_owned(), ..hand_over("t") }]).await.unwrap();
        let record = store.get_table(table_id("t")).await.unwrap().unwrap();
        assert_eq!(record.spelling(), spelling);
        assert_eq!(record.table.base_path, path("t"));
    }
}

/// what told of a table last is kept
pub async fn last_trigger_is_kept(h: &impl StoreHarness) {
    let store = h.store();
    for trigger in [Trigger::Callback, Trigger::Client, Trigger::Api] {
        store.accept(&[HandOver { trigger, ..hand_over("t") }]).await.unwrap();
        let record = store.get_table(table_id("t")).await.unwrap().unwrap();
        assert_eq!(record.touch.trigger, Some(trigger));
    }
    // A registration that asks for no look tells of no work.
    store.accept(&[HandOver { touch: false, ..hand_over("t") }]).await.unwrap();
    let record = store.get_table(table_id("t")).await.unwrap().unwrap();
    assert_eq!(record.touch.trigger, Some(Trigger::Api));
}

/// a named instant becomes one hinted instance
pub async fn named_instant_becomes_hinted(h: &impl StoreHarness) {
    let store = h.store();
    let one = HandOver {
        queue: Some("etl".parse().unwrap()),
        execution_engine: Some("spark".to_owned()),
        ..naming("t", Action::Compaction, &["20240101000000000"])
    };
    let accepted = store.accept(&[one]).await.unwrap();
    assert_eq!(accepted[0].n_hinted, 1);
    let found = store.find_instance(&key("t", Action::Compaction, Some("20240101000000000"))).await.unwrap();
    let instance = found.unwrap();
    assert_eq!(instance.state, InstanceState::Hinted);
    assert_eq!(instance.queue.as_str(), "etl");
    assert_eq!(instance.execution_engine.as_deref(), Some("spark"));
    assert_eq!(instance.trigger, Trigger::Client);
    assert_eq!(instance.version.0, 1);
    assert_eq!(store.live_of_table(table_id("t")).await.unwrap(), std::slice::from_ref(&instance));
    let events = store.events(instance.id).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].from.as_str(), events[0].to.as_str()), ("", "hinted"));
}

/// a named instant that is known already, live or ended or removed, changes nothing
pub async fn known_instant_changes_nothing(h: &impl StoreHarness) {
    let store = h.store();
    let named = naming("t", Action::Compaction, &["1", "2", "3"]);
    assert_eq!(store.accept(std::slice::from_ref(&named)).await.unwrap()[0].n_hinted, 3);
    let find = async |text| store.find_instance(&key("t", Action::Compaction, Some(text))).await.unwrap();
    let (live, ending, removed) =
        (find("1").await.unwrap(), find("2").await.unwrap(), find("3").await.unwrap());
    let ended = end(&*store, ending, InstanceState::Succeeded, 5).await;
    store.remove_instance(removed.id, removed.version, true).await.unwrap();

    let accepted = store.accept(&[named.clone(), named]).await.unwrap();
    assert_eq!(accepted.iter().map(|one| one.n_hinted).sum::<usize>(), 0);
    assert_eq!(find("1").await, Some(live.clone()));
    assert_eq!(find("2").await, Some(ended.clone()));
    assert_eq!(find("3").await, None);
    assert_eq!(store.events(live.id).await.unwrap().len(), 1);
    let listed = all_instances(&*store, &InstanceFilter::default(), 100).await;
    assert_eq!(without_repeats(&listed), [live.id, ended.id].into());
}

/// a hand-over is durable when the call returns
pub async fn hand_over_is_durable(h: &impl StoreHarness) {
    let named = naming("t", Action::Clustering, &["1"]);
    h.store().accept(&[named]).await.unwrap();
    h.reopen().await;
    let store = h.store();
    assert_eq!(store.get_table(table_id("t")).await.unwrap().unwrap().touch.touch, 1);
    assert!(store.find_instance(&key("t", Action::Clustering, Some("1"))).await.unwrap().is_some());
    assert_eq!(store.touched(None, 10).await.unwrap(), [table_id("t")]);
}

/// a hand-over that is no touch registers the table and leaves its touch number alone
pub async fn registration_leaves_the_touch(h: &impl StoreHarness) {
    let store = h.store();
    let accepted = store.accept(&[HandOver { touch: false, ..hand_over("t") }]).await.unwrap();
    assert_eq!(accepted, [Accepted { touch: 0, n_hinted: 0, is_new_table: true }]);
    assert!(store.get_table(table_id("t")).await.unwrap().is_some());
    assert!(store.touched(None, 10).await.unwrap().is_empty());
}

/// Many hand-overs of a few tables in one batch are answered in the order given.
pub async fn batch_of_one_table_counts_each(h: &impl StoreHarness) {
    let store = h.store();
    let batch = [hand_over("a"), hand_over("b"), hand_over("a"), hand_over("a"), hand_over("b")];
    let accepted = store.accept(&batch).await.unwrap();
    let answers: Vec<_> = accepted.iter().map(|one| (one.touch, one.is_new_table)).collect();
    assert_eq!(answers, [(1, true), (1, true), (2, false), (3, false), (2, false)]);
}

/// a hand-over that tells something new is never covered
pub async fn news_are_never_covered(h: &impl StoreHarness) {
    let store = h.store();
    assert_eq!(store.covered(&hand_over("t")), None);
    store.accept(&[hand_over("t")]).await.unwrap();
    let news = [
        hand_over("another"),
        HandOver { spelling: "file:///lake/t/".to_owned(), ..hand_over("t") },
        HandOver { table_name: Some("new".to_owned()), ..hand_over("t") },
        HandOver { trigger: Trigger::Api, ..hand_over("t") },
        HandOver { touch: false, ..hand_over("t") },
        naming("t", Action::Compaction, &["20240101000000000"]),
    ];
    for one in news {
        assert_eq!(store.covered(&one), None, "{one:?}");
    }
    // What covers one is durable, and its table is still to be looked at.
    if let Some(accepted) = store.covered(&hand_over("t")) {
        assert_eq!(accepted, Accepted { touch: 1, n_hinted: 0, is_new_table: false });
        assert_eq!(store.touched(None, 10).await.unwrap(), [table_id("t")]);
    }
}

/// a hand-over is never covered once its table was read
pub async fn read_table_is_never_covered(h: &impl StoreHarness) {
    let store = h.store();
    store.accept(&[hand_over("t")]).await.unwrap();
    store.get_table(table_id("t")).await.unwrap().unwrap();
    assert_eq!(store.covered(&hand_over("t")), None);
    store.accept(&[hand_over("t")]).await.unwrap();
    store.list_tables(None, 10).await.unwrap();
    assert_eq!(store.covered(&hand_over("t")), None);
}

/// a hand-over of a removed table is never covered
pub async fn removed_table_is_never_covered(h: &impl StoreHarness) {
    let store = h.store();
    store.accept(&[hand_over("t")]).await.unwrap();
    store.remove_table(table_id("t")).await.unwrap();
    assert_eq!(store.covered(&hand_over("t")), None);
}
