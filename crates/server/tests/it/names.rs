//! C22: odd names and paths through every route. A path is the identity of a table and comes back as it was.

use serde_json::json;
use tms_core::model::action::Action;

use crate::support::{Running, base_path, segment};

const T: &str = "20260101000000000";

fn odd_paths() -> Vec<String> {
    let mut paths: Vec<String> = [
        "/lake/back`tick",
        "/lake/quo'te\"s",
        "/lake/semi;colon -- comment",
        "/lake/blank in name",
        "/lake/per%20cent%2Fnot%decoded",
        "/lake/plus+and&amp=1?x#y",
        "/lake/ünïcode/表/🧀",
        "/lake/dots...and.a..b",
        "/lake/$(rm -rf)${HOME}`id`",
        "/lake/<script>alert(1)</script>",
        "/lake/back\\slash\\n",
        "/lake/{json: \"x\"}",
        "/lake/'; DROP TABLE t; --",
        "s3a://bucket/ä b/c+d",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.push(format!("/lake/{}", "x".repeat(255)));
    paths.push(format!("/lake/{}", "表".repeat(85)));
    paths
}

#[tokio::test]
async fn odd_paths_are_one_table_through_every_route() {
    let server = Running::start(&[]).await;
    server.post("/api/v1/queues/default/pause", json!({})).await.ok();
    for path in odd_paths() {
        let canonical = base_path(&path).to_string();
        server.plan(&path, Action::Compaction, T);
        let body = json!({"commitTime": T, "tableName": "na`me'\";🧀", "basePath": path});
        let by_callback = server.post("/v1/hoodie/callback", body).await.ok()["table"].clone();
        let query = format!("basepath={}&table_name={}&instant={T}", segment(&path), segment("na`me'\";🧀"));
        let by_client =
            server.get(&format!("/v1/hoodie/service/compact?{query}")).await.ok()["table"].clone();
        let added = json!({"table": path, "action": "compaction", "instant": T});
        let by_api = server.post("/api/v1/instances", added).await.ok();
        let registered = server.post("/api/v1/tables", json!({"base_path": path})).await.ok();
        assert_eq!(by_callback, by_client, "{path}");
        assert_eq!(by_callback, by_api["table_id"], "{path}");
        assert_eq!(by_callback, registered["id"], "{path}");
        let shown = server.get(&format!("/api/v1/tables/{}", segment(&path))).await.ok();
        assert_eq!(shown["base_path"], canonical.as_str(), "{path}");
        assert_eq!(shown["spelling"], path.as_str(), "{path}");
        assert_eq!(shown["name"], "na`me'\";🧀", "{path}");
        let listed = server.get(&format!("/api/v1/instances?table={}", segment(&path))).await.ok();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{path}");
        assert_eq!(listed["items"][0]["base_path"], canonical.as_str());
    }
    let tables = server.get("/api/v1/tables?limit=1000").await.ok();
    assert_eq!(tables["items"].as_array().unwrap().len(), odd_paths().len());
    server.stop().await;
}

#[tokio::test]
async fn a_driver_gets_an_odd_path_as_it_was_announced_and_a_tag_without_it() {
    let server = Running::start(&[]).await;
    let path = "/lake/b`l a'n\"k;🧀%20";
    server.plan(path, Action::Compaction, T);
    server.commit(path).await.ok();
    let job = server.job(1).await;
    assert!(job.tag.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
    assert_eq!(job.base_path, path);
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    server.until(&format!("/api/v1/instances/{id}"), |i| i["attempt"]["state"] == "accepted").await;
    let body = json!({"run_id": "0123456789abcdef0123456789abcdef", "stage": "start"});
    assert_eq!(server.drive(&job, "leave", body).await.ok()["base_path"], path);
    server.stop().await;
}

#[tokio::test]
async fn labels_never_tell_tables_apart_and_long_ones_do_no_harm() {
    let server = Running::start(&[]).await;
    for name in ["a", "", "b", &"n".repeat(100_000)] {
        let body = json!({"tableName": name, "basePath": "/lake/one"});
        server.post("/v1/hoodie/callback", body).await.ok();
    }
    let tables = server.get("/api/v1/tables").await.ok();
    assert_eq!(tables["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}
