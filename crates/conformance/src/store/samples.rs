//! Data for the cases.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta};
use tms_core::ErrorKind;
use tms_core::clock::Timestamp;
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::{Attempt, AttemptState};
use tms_core::model::event::{Actor, Event};
use tms_core::model::id::{Incarnation, InstanceId, NodeName, TableId, Tag, Term, Version};
use tms_core::model::instance::{Instance, InstanceKey, InstanceState, WaitReason};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::policy::TableSettings;
use tms_core::model::request::{HandOver, Trigger};
use tms_core::model::table::{LookState, Table};
use tms_core::store::{Expect, InstanceFilter, InstanceWrite, LookCommit, PruneRule, Store};

/// Returns the time `secs` after a fixed one.
#[must_use]
pub fn at(secs: i64) -> Timestamp {
    DateTime::from_timestamp_millis(1_700_000_000_000).unwrap() + TimeDelta::seconds(secs)
}

/// Returns the base path of a sample table.
#[must_use]
pub fn path(name: &str) -> BasePath {
    PathRules::default().canonical(&format!("/lake/{name}")).unwrap()
}

/// Returns the id of a sample table.
#[must_use]
pub fn table_id(name: &str) -> TableId {
    TableId::of(&path(name))
}

/// Returns an instant.
#[must_use]
pub fn instant(text: &str) -> Instant {
    text.parse().unwrap()
}

/// Returns a hand-over of a sample table, as a callback makes it.
#[must_use]
pub fn hand_over(name: &str) -> HandOver {
    HandOver {
        base_path: path(name),
        spelling: format!("file:///lake/{name}"),
        database: None,
        table_name: None,
        hints: Vec::new(),
        queue: None,
        execution_engine: None,
        trigger: Trigger::Callback,
        at: at(0),
        touch: true,
    }
}

/// Returns a hand-over that names instants of one action.
#[must_use]
pub fn naming(name: &str, action: Action, instants: &[&str]) -> HandOver {
    let hints = instants.iter().map(|text| (action, instant(text))).collect();
    HandOver { hints, trigger: Trigger::Client, ..hand_over(name) }
}

/// Makes a table known.
pub async fn announce(store: &dyn Store, name: &str) -> TableId {
    store.accept(&[hand_over(name)]).await.unwrap();
    table_id(name)
}

/// Returns settings of a sample table.
#[must_use]
pub fn table(name: &str) -> Table {
    Table {
        id: table_id(name),
        base_path: path(name),
        is_registered: true,
        settings: TableSettings::default(),
        acknowledged_at: None,
        created_at: at(0),
        version: Version::default(),
    }
}

/// Returns a key; no instant = `next`.
#[must_use]
pub fn key(name: &str, action: Action, text: Option<&str>) -> InstanceKey {
    InstanceKey { table: table_id(name), action, instant: text.map(instant) }
}

/// Returns a new pending instance.
#[must_use]
pub fn pending(key: InstanceKey) -> Instance {
    let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    Instance::new(key, state, Trigger::Callback, at(0))
}

/// Returns an attempt.
#[must_use]
pub fn attempt(instance: InstanceId, number: u32, state: AttemptState) -> Attempt {
    let tag = Tag::of(&Incarnation("0a1b2c3d".to_owned()), instance, number);
    serde_json::from_value(serde_json::json!({
        "number": number,
        "tag": tag,
        "engine": "default",
        "launcher": "procedure",
        "state": state,
        "holder": "none",
        "term": 1,
        "token_hash": "",
        "expected": "requested",
        "intended_at": at(0),
        "n_kills": 0,
    }))
    .unwrap()
}

/// Returns an event.
#[must_use]
pub fn event(reason: &str) -> Event {
    Event {
        at: at(0),
        actor: Actor::User("test".to_owned()),
        from: "pending".to_owned(),
        to: "pending".to_owned(),
        attempt: None,
        reason: reason.to_owned(),
    }
}

/// Returns the insertion of an instance.
#[must_use]
pub fn insert(after: Instance) -> InstanceWrite {
    InstanceWrite { expect: Expect::Absent, after, events: Vec::new(), past_attempt: None }
}

/// Returns a change of an instance that was read with its version.
#[must_use]
pub fn change(after: Instance) -> InstanceWrite {
    InstanceWrite { expect: Expect::Version(after.version), after, events: Vec::new(), past_attempt: None }
}

/// Stores one change by a Manager.
pub async fn apply(store: &dyn Store, write: InstanceWrite) -> Instance {
    store.write(None, vec![write]).await.unwrap().remove(0)
}

/// Inserts a pending instance of a table that is known.
pub async fn put_pending(store: &dyn Store, key: InstanceKey) -> Instance {
    apply(store, insert(pending(key))).await
}

/// Returns the instance in another state.
#[must_use]
pub fn in_state(mut instance: Instance, state: InstanceState, secs: i64) -> Instance {
    instance.ended_at = state.is_ended().then(|| at(secs));
    instance.updated_at = at(secs);
    instance.state = state;
    instance
}

/// Ends an instance at `secs`.
pub async fn end(store: &dyn Store, instance: Instance, state: InstanceState, secs: i64) -> Instance {
    apply(store, change(in_state(instance, state, secs))).await
}

/// Inserts an instance and ends it at `secs`.
pub async fn put_ended(store: &dyn Store, key: InstanceKey, secs: i64) -> Instance {
    let live = put_pending(store, key).await;
    end(store, live, InstanceState::Succeeded, secs).await
}

/// Gives an instance a live attempt.
pub async fn make_active(store: &dyn Store, mut instance: Instance) -> Instance {
    instance.attempt = Some(Box::new(attempt(instance.id, 1, AttemptState::Accepted)));
    instance.state = InstanceState::Active;
    apply(store, change(instance)).await
}

/// Begins a term.
pub async fn begin(store: &dyn Store) -> Term {
    store.begin_term(0, &NodeName::default()).await.unwrap()
}

/// Returns the end of a look that covers `looked` and changes nothing.
#[must_use]
pub fn look(name: &str, looked: u64) -> LookCommit {
    let state = LookState { looked, looked_at: Some(at(1)), ..LookState::default() };
    LookCommit { table: table_id(name), state, writes: Vec::new() }
}

/// Returns a rule that prunes nothing, for a case to change.
#[must_use]
pub fn no_pruning() -> PruneRule {
    PruneRule { before: at(-1_000_000), keep_count: u64::MAX, batch_max: 1_000 }
}

/// Returns the kind of a refusal.
pub fn refused<T: std::fmt::Debug>(result: Result<T, tms_core::Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Returns the ids of all instances that match, by pages of `limit`, in the order of the list.
pub async fn all_instances(store: &dyn Store, filter: &InstanceFilter, limit: usize) -> Vec<InstanceId> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list_instances(filter, cursor.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit);
        ids.extend(page.items.iter().map(|instance| instance.id));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

/// Returns the ids of all live instances, by pages of `limit`.
pub async fn all_live(store: &dyn Store, limit: usize) -> Vec<InstanceId> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.live_instances(cursor.as_deref(), limit).await.unwrap();
        ids.extend(page.items.iter().map(|instance| instance.id));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

/// Returns the ids of all instances with a live attempt, by pages of `limit`.
pub async fn all_live_attempts(store: &dyn Store, limit: usize) -> Vec<InstanceId> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.live_attempts(cursor.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit);
        ids.extend(page.items.iter().map(|instance| instance.id));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

/// Returns the ids of all tables, by pages of `limit`.
pub async fn all_tables(store: &dyn Store, limit: usize) -> Vec<TableId> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list_tables(cursor.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit);
        ids.extend(page.items.iter().map(|record| record.table.id));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

/// Checks that no item is there twice, and returns them as a set.
pub fn without_repeats<T: Ord + Clone + std::fmt::Debug>(items: &[T]) -> BTreeSet<T> {
    let set: BTreeSet<T> = items.iter().cloned().collect();
    assert_eq!(set.len(), items.len(), "repeats in {items:?}");
    set
}
