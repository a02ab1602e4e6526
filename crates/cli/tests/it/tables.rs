//! `tms table`.

use std::sync::Arc;

use serde_json::json;
use tms_core::model::action::Action;
use tms_core::timeline::hudi::HudiTimelines;

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
async fn a_flag_that_is_not_given_keeps_what_the_table_has() {
    let server = Running::start(&[]).await;
    server.timelines.table(&base_path("/data/s"), |_| {});
    let register = |flags: &'static [&'static str]| {
        let server = &server;
        async move {
            let all = [&["table", "register", "/data/s", "-o", "json"], flags].concat();
            server.tms(&all).await.json()["settings"].clone()
        }
    };
    let first = register(&[
        "--concurrency",
        "locked",
        "--foreign-grace",
        "120500ms",
        "--option",
        "hoodie.memory.merge.max.size=1",
    ])
    .await;
    assert_eq!((&first["concurrency"], &first["foreign_grace_secs"]), (&json!("locked"), &json!(121)));
    assert_eq!(register(&["--look"]).await, first);
    let more =
        register(&["--priority", "-2", "--queue", "etl", "--option", "hoodie.parquet.max.file.size=2"]).await;
    assert_eq!((&more["concurrency"], &more["priority"]), (&json!("locked"), &json!(-2)));
    assert_eq!(more["hudi_options"].as_object().unwrap().len(), 2);
    let text = server.tms(&["table", "show", "/data/s"]).await.out;
    let fact = |key: &str, value: &str| {
        text.lines().any(|l| l.strip_prefix(key).is_some_and(|rest| rest.trim() == value))
    };
    assert!(fact("queue", "etl") && fact("priority", "-2") && fact("foreign grace", "2m 1s"), "{text}");
    assert_eq!(
        register(&["--replace", "--concurrency", "exclusive"]).await,
        json!({"concurrency": "exclusive"})
    );
    assert_eq!(register(&["--replace"]).await, json!({}));
    server.stop().await;
}

#[tokio::test]
async fn what_would_lose_data_or_never_run_is_refused() {
    let server = Running::start(&[]).await;
    for (flags, hint) in
        [(["--foreign-grace", "900ms"], "use 120 to"), (["--foreign-grace", "0s"], "use 120 to")]
    {
        let said = server.tms(&[&["table", "register", "/data/q"], &flags[..]].concat()).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(hint), "{said:?}");
    }
    let provider = "hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.InProcessLockProvider";
    let locked = ["table", "register", "/data/q", "--concurrency", "locked", "--option", provider, "--look"];
    let said = server.tms(&locked).await;
    assert!(said.code == 1 && said.err.contains("inside one JVM only"), "{said:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_table_that_cannot_be_read_is_registered_and_told() {
    let server = Running::start(&[]).await;
    server.timelines.table(&base_path("/data/n"), |t| t.is_unreadable = true);
    let said = server.tms(&["table", "register", "/data/n", "--look"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("registered, but it cannot be read: "), "{said:?}");
    assert!(said.out.contains("file:/data/n"), "{said:?}");
    let said = server.tms(&["table", "register", "/data/n", "--look", "-o", "json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &shown["advice"], &shown["is_registered"]), (1, &json!(null), &json!(true)));
    server.stop().await;
}

#[tokio::test]
async fn the_reason_why_a_table_cannot_be_read_is_told() {
    let lake = tempfile::tempdir().unwrap();
    let hoodie = lake.path().join("t/.hoodie");
    std::fs::create_dir_all(&hoodie).unwrap();
    std::fs::write(hoodie.join("hoodie.properties"), "hoodie.table.name=t\nhoodie.table.version=nine\n")
        .unwrap();
    let path = lake.path().join("t").display().to_string();
    let server = Running::start_on(&[], |_| Arc::new(HudiTimelines::local())).await;
    let said = server.tms(&["table", "register", &path, "--look"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    for part in ["registered, but it cannot be read: ", "hoodie.properties", "hoodie.table.version"] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    assert!(said.err.contains(&format!("`tms table remove {path}`")), "{said:?}");
    let said = server.tms(&["table", "register", "s3://bucket/t"]).await;
    assert!(said.code == 1 && said.err.contains("local path"), "{said:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_name_forges_no_row() {
    let server = Running::start(&[]).await;
    let name = "x\ny FAKE ROW\tz";
    let body = json!({"commitTime": "20260101000000000", "tableName": name, "basePath": "/data/x"});
    let url = format!("{}/v1/hoodie/callback", server.url);
    assert!(reqwest::Client::new().post(url).json(&body).send().await.unwrap().status().is_success());
    let list = server.tms(&["table", "list"]).await.out;
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("x\\ny FAKE ROW\\tz"), "{list}");
    let shown = server.tms(&["table", "show", "/data/x"]).await.out;
    assert!(shown.contains("x\\ny FAKE ROW\\tz"), "{shown}");
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
