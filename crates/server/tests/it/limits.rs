//! Values that would blind clients, and bodies that would keep others waiting.

use std::sync::Arc;

use serde_json::{Value, json};
use tms_core::model::action::Action;
use tms_core::timeline::hudi::HudiTimelines;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Running, base_path, segment};

const RUN: &str = "0123456789abcdef0123456789abcdef";
const T: &str = "20260101000000000";
const BEYOND: u64 = 1 << 63;

/// The numbers of an answer that a client with 64 bits and a sign cannot hold.
fn unfit(value: &Value) -> Vec<String> {
    match value {
        Value::Number(n) if n.as_i64().is_none() => vec![n.to_string()],
        Value::Array(items) => items.iter().flat_map(unfit).collect(),
        Value::Object(entries) => entries.values().flat_map(unfit).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn what_a_driver_or_a_plan_says_fits_every_client() {
    let server = Running::start(&[]).await;
    server.plan("/data/j", Action::Compaction, T);
    server.timelines.table(&base_path("/data/j"), |t| {
        let size = &mut t.sight.pending[0].content.as_mut().unwrap().size;
        size.bytes = Some(u64::MAX);
        size.file_groups = Some(BEYOND);
        t.sight.facts.layout = u32::MAX;
    });
    server.commit("/data/j").await.ok();
    let job = server.job(1).await;
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/instances/{id}");
    server.until(&path, |i| i["attempt"]["state"] == "accepted").await;
    server.drive(&job, "leave", json!({"run_id": RUN, "stage": "start"})).await.ok();
    let said = json!({"run_id": RUN, "phase": "x", "tasks_done": BEYOND, "tasks_total": u64::MAX});
    server.drive(&job, "progress", said).await.ok();
    let shown = server.get(&path).await.ok();
    assert_eq!(shown["attempt"]["progress"]["tasks_done"], 1_000_000_000_000_u64, "{shown}");
    assert_eq!(shown["attempt"]["progress"]["tasks_total"], 1_000_000_000_000_u64);
    assert_eq!(
        (&shown["plan"]["bytes"], &shown["plan"]["file_groups"]),
        (&json!(i64::MAX), &json!(i64::MAX))
    );
    let tables = server.get("/api/v1/tables").await.ok();
    assert_eq!(tables["items"][0]["facts"]["layout"], i32::MAX, "{tables}");
    for answer in [shown, tables, server.get("/api/v1/instances").await.ok()] {
        assert_eq!(unfit(&answer), Vec::<String>::new());
    }
    server.stop().await;
}

#[tokio::test]
async fn settings_beyond_their_range_are_refused_with_the_range() {
    let server = Running::start(&[]).await;
    for (key, value, range) in [
        ("foreign_grace_secs", json!(BEYOND), "120 to 315360000"),
        ("foreign_grace_secs", json!(315_360_001), "120 to 315360000"),
        ("clean_after_commits", json!(1_u32 << 31), "2147483647"),
    ] {
        let body = json!({"base_path": "/data/s", "settings": {key: value}});
        let answer = server.post("/api/v1/tables", body).await;
        assert_eq!(answer.problem(400), "invalid", "{key}");
        assert!(answer.json()["hint"].as_str().unwrap().contains(range), "{}", answer.text);
    }
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"], json!([]));
    for key in ["limit", "weight"] {
        let answer = server.put("/api/v1/queues/q", json!({key: 1_u32 << 31})).await;
        assert_eq!(answer.problem(400), "invalid", "{key}");
    }
    let most = json!({"base_path": "/data/s", "settings": {"foreign_grace_secs": 315_360_000}});
    server.post("/api/v1/tables", most).await.ok();
    server.stop().await;
}

/// Sends the head of a request with a body to come, and returns what is answered while it does not come.
async fn answer_without_body(server: &Running, path: &str, token: &str) -> String {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{token}content-type: application/json\r\n\
         content-length: 100\r\n\r\n{{\"run_id\":"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    // To its end: the connection is closed, so nobody keeps it by a body that never comes.
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_driver_without_its_token_is_answered_before_its_body_comes() {
    let server = Running::start(&[]).await;
    server.plan("/data/j", Action::Compaction, T);
    server.commit("/data/j").await.ok();
    let job = server.job(1).await;
    for route in ["leave", "progress", "end"] {
        for (tag, token, status) in [
            (job.tag.to_string(), "", "401"),
            (job.tag.to_string(), "authorization: Bearer wrong\r\n", "401"),
            ("nonsense".to_owned(), "authorization: Bearer wrong\r\n", "404"),
        ] {
            let answer = answer_without_body(&server, &format!("/v1/job/{tag}/{route}"), token).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{route} {answer}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn only_paths_that_can_be_read_are_registered_but_every_writer_is_answered() {
    let server = Running::start_with(&[], |_| Arc::new(HudiTimelines::local())).await;
    for path in ["s3://bucket/t", "hdfs://ns1/t", "http://h/t"] {
        let answer = server.post("/api/v1/tables", json!({"base_path": path})).await;
        assert_eq!(answer.problem(422), "unsupported", "{path}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("reads no tables of such paths"));
        assert!(answer.json()["hint"].as_str().unwrap().contains("local path"), "{}", answer.text);
    }
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"], json!([]));
    server.post("/api/v1/tables", json!({"base_path": "/nowhere/t"})).await.ok();
    server.commit("s3a://bucket/t").await.ok();
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"].as_array().unwrap().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn two_slashes_at_the_start_of_a_path_are_one() {
    let server = Running::start(&[]).await;
    server.commit("//lake/t").await.ok();
    server.get("/v1/hoodie/service/compact?basepath=%2F%2Flake%2Ft").await.ok();
    let table = server.post("/api/v1/tables", json!({"base_path": "///lake/t"})).await.ok();
    assert_eq!((&table["base_path"], &table["spelling"]), (&json!("file:/lake/t"), &json!("/lake/t")));
    server.get(&format!("/api/v1/tables/{}", segment("//lake/t"))).await.ok();
    server.get(&format!("/api/v1/instances?table={}", segment("//lake/t"))).await.ok();
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_lock_that_locks_nothing_is_refused_with_the_reason() {
    let server = Running::start(&[]).await;
    for (class, why) in [("InProcessLockProvider", "one JVM"), ("NoopLockProvider", "locks nothing")] {
        let provider = format!("org.apache.hudi.client.transaction.lock.{class}");
        let settings =
            json!({"concurrency": "locked", "hudi_options": {"hoodie.write.lock.provider": provider}});
        let body = json!({"base_path": "/data/l", "settings": settings});
        let answer = server.post("/api/v1/tables", body).await;
        assert_eq!(answer.problem(400), "invalid", "{class}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(why), "{}", answer.text);
    }
    server.stop().await;
}

#[tokio::test]
async fn the_way_out_of_no_lock_is_a_command() {
    let server = Running::start(&[]).await;
    server.plan("/data/n", Action::Compaction, T);
    server.timelines.table(&base_path("/data/n"), |t| t.sight.facts.metadata_table = Some((9, 2)));
    server.commit("/data/n").await.ok();
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    let parked = server.until_state(&id, "parked").await;
    assert_eq!(parked["reason"], "no_lock");
    let way_out = parked["way_out"].as_str().unwrap();
    assert!(way_out.contains("`tms table register file:/data/n --concurrency locked`"), "{way_out}");
    server.stop().await;
}
