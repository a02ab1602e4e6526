//! `tms table`.

use tms_core::model::action::Action;

use crate::support::{Running, base_path};

const T: &str = "20260101000000001";

#[tokio::test]
async fn register_with_look_says_what_would_run_and_what_is_unsafe() {
    let server = Running::start(&[]).await;
    server.tms(&["queue", "pause", "default"]).await;
    server.plan("/data/r", Action::Compaction, T);
    server.timelines.table(&base_path("/data/r"), |t| t.sight.facts.metadata_table = Some((9, 2)));
    let register = [
        "table",
        "register",
        "/data/r",
        "--actions",
        "compaction,clustering",
        "--option",
        "hoodie.memory.merge.max.size=1024",
        "--look",
    ];
    let said = server.tms(&register).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains(T) && said.out.contains("tables.concurrency"), "{said:?}");
    let mut as_json = register.to_vec();
    as_json.extend(["--concurrency", "locked", "-o", "json"]);
    let table = server.tms(&as_json).await.json();
    assert_eq!(table["base_path"], "file:/data/r");
    assert_eq!(table["advice"]["plans"][0]["instant"], T);
    assert_eq!(table["settings"]["concurrency"], "locked");
    let shown = server
        .until(&["table", "show", "/data/r", "-o", "json"], |t| !t["live"].as_array().unwrap().is_empty())
        .await;
    assert_eq!(shown["id"], table["id"]);
    let text = server.tms(&["table", "show", table["id"].as_str().unwrap()]).await.out;
    assert!(
        text.contains("locked") && text.contains("hoodie.memory.merge.max.size=1024") && text.contains(T),
        "{text}"
    );
    server.stop().await;
}

#[tokio::test]
async fn look_with_wait_returns_once_the_table_was_looked_at() {
    let server = Running::start(&[]).await;
    server.timelines.table(&base_path("/data/k"), |_| {});
    server.tms(&["table", "register", "/data/k"]).await;
    let said = server.tms(&["table", "look", "/data/k", "--wait", "--timeout", "20s", "-o", "json"]).await;
    let table = said.json();
    assert!(table["looked"].as_u64().unwrap() >= 1 && table["trouble"].is_null(), "{table}");
    server.timelines.table(&base_path("/data/k"), |t| t.is_unreadable = true);
    let said = server.tms(&["table", "look", "/data/k", "--wait", "--timeout", "20s"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("cannot be read"), "{said:?}");
    server.stop().await;
}

#[tokio::test]
async fn clear_and_remove_forget_what_waits() {
    let server = Running::start(&[]).await;
    server.tms(&["queue", "pause", "default"]).await;
    server.plan("/data/f", Action::Compaction, T);
    server.tms(&["table", "register", "/data/f", "--look"]).await;
    server
        .until(&["instance", "list", "--state", "pending", "-o", "json"], |l| {
            l.as_array().unwrap().len() == 1
        })
        .await;
    assert_eq!(server.tms(&["table", "clear", "/data/f"]).await.out, "cancelled 1\n");
    let list = server.tms(&["table", "list", "-o", "json"]).await.json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert!(server.tms(&["table", "list"]).await.out.contains("file:/data/f"));
    assert_eq!(server.tms(&["table", "remove", "/data/f"]).await.code, 0);
    assert_eq!(server.tms(&["table", "show", "/data/f"]).await.code, 3);
    server.stop().await;
}
