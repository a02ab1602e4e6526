//! Cases of `LeadershipStore`.

use tms_core::model::id::NodeName;
use tms_core::store::NodeRow;

use super::StoreHarness;
use super::samples::*;

fn node(name: &str, secs: i64) -> NodeRow {
    NodeRow {
        name: name.parse().unwrap(),
        start_id: format!("start-{secs}"),
        url: Some(format!("http://{name}:9091")),
        program_version: "0.1.0".to_owned(),
        started_at: at(secs),
        seen_at: at(secs),
    }
}

/// the incarnation stays the same when the store is opened again
pub async fn incarnation_stays(h: &impl StoreHarness) {
    let before = h.store().incarnation().await.unwrap();
    assert_eq!(before.0.len(), 8);
    assert!(before.0.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()));
    h.reopen().await;
    assert_eq!(h.store().incarnation().await.unwrap(), before);
}

/// each term is higher than all before it and than the number of the election backend
pub async fn terms_grow(h: &impl StoreHarness) {
    let store = h.store();
    let name = NodeName::default();
    let mut terms = Vec::new();
    for backend_number in [0, 0, 41, 0, 40, 1_000_000_000_000] {
        terms.push(store.begin_term(backend_number, &name).await.unwrap().0);
    }
    assert_eq!(terms, [1, 2, 42, 43, 44, 1_000_000_000_001]);
    drop(store);
    h.reopen().await;
    assert_eq!(h.store().begin_term(0, &name).await.unwrap().0, 1_000_000_000_002);
}

/// the newest term is known with its leader
pub async fn newest_term_is_known(h: &impl StoreHarness) {
    let store = h.store();
    assert_eq!(store.current_term().await.unwrap(), None);
    for name in ["a", "b"] {
        let name: NodeName = name.parse().unwrap();
        let term = store.begin_term(0, &name).await.unwrap();
        assert_eq!(store.current_term().await.unwrap(), Some((term, name)));
    }
}

/// a node has one row however often it is stored
pub async fn node_has_one_row(h: &impl StoreHarness) {
    let store = h.store();
    for secs in 1..=3 {
        store.put_node(node("n1", secs)).await.unwrap();
        store.put_node(node("n1", secs)).await.unwrap();
    }
    assert_eq!(store.nodes().await.unwrap(), [node("n1", 3)]);
}

/// nodes come back by name
pub async fn nodes_come_by_name(h: &impl StoreHarness) {
    let store = h.store();
    for name in ["n2", "n10", "n1"] {
        store.put_node(node(name, 1)).await.unwrap();
    }
    let names: Vec<String> = store.nodes().await.unwrap().iter().map(|n| n.name.to_string()).collect();
    assert_eq!(names, ["n1", "n10", "n2"]);
}

/// a healthy store answers the check
pub async fn healthy_store_answers(h: &impl StoreHarness) {
    let store = h.store();
    for _ in 0..3 {
        store.check().await.unwrap();
    }
}
