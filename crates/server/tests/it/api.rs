//! The API for people and programs.

use serde_json::{Value, json};
use tms_core::model::action::Action;

use crate::support::{Running, base_path, instant_of, segment};

const T1: &str = "20260101000000001";
const T2: &str = "20260101000000002";

fn ids(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|i| i["id"].as_str().unwrap().to_owned()).collect()
}

async fn paused(flags: &[(&str, &str)]) -> Running {
    let server = Running::start(flags).await;
    let queue = server.post("/api/v1/queues/default/pause", json!({})).await.ok();
    assert_eq!(queue["is_paused"], true);
    server
}

#[tokio::test]
async fn an_instance_is_added_once_listed_shown_and_removed() {
    let server = paused(&[]).await;
    for t in [T1, T2] {
        server.plan("/data/a", Action::Compaction, t);
    }
    let body = json!({"table": "/data/a", "action": "compaction", "instant": T1, "priority": 5});
    let first = server.post("/api/v1/instances", body.clone()).await.ok();
    let again = server.post("/api/v1/instances", body).await.ok();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(again["priority"], 5);
    let all =
        server.until("/api/v1/instances?state=pending", |l| l["items"].as_array().unwrap().len() == 2).await;
    assert_eq!(all["items"][0]["queue"], "default");
    let waits = server.until_state(first["id"].as_str().unwrap(), "pending").await;
    assert!(waits["waits_for"].as_str().unwrap().contains("queue"), "{waits}");
    let id = first["id"].as_str().unwrap();
    assert_eq!(server.delete(&format!("/api/v1/instances/{id}")).await.status, 204);
    assert_eq!(server.get(&format!("/api/v1/instances/{id}")).await.problem(404), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn filters_and_cursors_leave_nothing_out_and_repeat_nothing() {
    let server = paused(&[]).await;
    for n in 0..5 {
        let path = format!("/data/p{n}");
        server.plan(&path, Action::Compaction, T1);
        server.plan(&path, Action::Clustering, T2);
        server.commit(&path).await.ok();
    }
    server.until("/api/v1/instances", |l| l["items"].as_array().unwrap().len() == 10).await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    for _ in 0..10 {
        let page = server.get(&format!("/api/v1/instances?limit=3{cursor}")).await.ok();
        assert!(page["items"].as_array().unwrap().len() <= 3);
        seen.extend(ids(&page));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", segment(next)),
            None => break,
        }
    }
    let n = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((n, seen.len()), (10, 10));
    let count = |query: &str| {
        let path = format!("/api/v1/instances?{query}");
        let server = &server;
        async move { server.get(&path).await.ok()["items"].as_array().unwrap().len() }
    };
    assert_eq!(count("action=clustering").await, 5);
    assert_eq!(count("action=clustering,compaction").await, 10);
    assert_eq!(count(&format!("table={}", segment("file:///data/p3/"))).await, 2);
    assert_eq!(count("live=true&queue=default").await, 10);
    assert_eq!(count("live=false").await, 0);
    assert_eq!(count("queue=other").await, 0);
    for query in [
        "state=running",
        "action=vacuum",
        "limit=0",
        "limit=1001",
        "limit=x",
        "nonsense=1",
        "queue=a%20b",
        "cursor=nonsense",
    ] {
        assert_eq!(
            server.get(&format!("/api/v1/instances?{query}")).await.problem(400),
            "invalid",
            "{query}"
        );
    }
    assert_eq!(server.get("/api/v1/instances?table=%2Fnowhere").await.problem(404), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn cancel_holds_a_plan_until_retry() {
    let server = paused(&[]).await;
    server.plan("/data/c", Action::Compaction, T1);
    server.commit("/data/c").await.ok();
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    server.until_state(&id, "pending").await;
    let path = format!("/api/v1/instances/{id}");
    for _ in 0..2 {
        let cancelled = server.post(&format!("{path}/cancel"), json!({})).await.ok();
        assert_eq!(cancelled["state"], "cancelled");
    }
    server.commit("/data/c").await.ok();
    let table =
        server.until(&format!("/api/v1/tables/{}", segment("/data/c")), |t| t["looked"] == t["touch"]).await;
    assert_eq!(table["unserved"].as_array().unwrap().len(), 1, "{table}");
    assert_eq!(server.get(&path).await.ok()["state"], "cancelled");
    server.post(&format!("{path}/retry"), json!({"take_over": false})).await.ok();
    server.until_state(&id, "pending").await;
    server.post("/api/v1/queues/default/resume", json!({})).await.ok();
    let job = server.job(1).await;
    assert_eq!(server.delete(&path).await.problem(409), "conflict");
    server.timelines.table(&base_path("/data/c"), |t| t.complete(Action::Compaction, &instant_of(T1)));
    server.engine.end(&job.tag, "exit 0");
    server.until_state(&id, "succeeded").await;
    assert_eq!(server.post(&format!("{path}/retry"), json!({})).await.problem(400), "invalid");
    assert_eq!(server.post(&format!("{path}/cancel"), json!({})).await.problem(400), "invalid");
    server.stop().await;
}

#[tokio::test]
async fn a_user_is_named_in_the_history() {
    let server = paused(&[]).await;
    server.plan("/data/u", Action::Compaction, T1);
    server.commit("/data/u").await.ok();
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    server.until_state(&id, "pending").await;
    let request =
        server.http.post(format!("{}/api/v1/instances/{id}/cancel", server.url)).header("tms-user", "alice");
    server.send(request).await.ok();
    let shown = server.get(&format!("/api/v1/instances/{id}")).await.ok();
    let last = shown["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (last["actor"].as_str(), last["actor_detail"].as_str()),
        (Some("user"), Some("alice")),
        "{last}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_table_is_registered_changed_cleared_and_removed() {
    let server = paused(&[]).await;
    for t in [T1, T2] {
        server.plan("/data/r", Action::Compaction, t);
    }
    let body = json!({"base_path": "file:///data/r/", "look": true, "settings": {
        "actions": ["compaction"], "concurrency": "exclusive", "priority": 3, "queue": "default",
        "hudi_options": {"hoodie.memory.merge.max.size": "1024"}}});
    let table = server.post("/api/v1/tables", body).await.ok();
    assert_eq!(table["base_path"], "file:/data/r");
    assert_eq!(table["spelling"], "file:///data/r/");
    assert_eq!(table["is_registered"], true);
    let id = table["id"].as_str().unwrap();
    server.until("/api/v1/instances", |l| l["items"].as_array().unwrap().len() == 2).await;
    let by_path = server.get(&format!("/api/v1/tables/{}", segment("/data/r"))).await.ok();
    assert_eq!(by_path["id"], id);
    assert_eq!(by_path["effective"]["concurrency"], "exclusive");
    assert_eq!(by_path["live"].as_array().unwrap().len(), 2);
    let advice = server.get(&format!("/api/v1/tables/{id}/advice")).await.ok();
    assert_eq!(advice["plans"].as_array().unwrap().len(), 2, "{advice}");
    assert!(advice["unsafe_settings"][0].as_str().unwrap().contains("exclusive"), "{advice}");
    let changed =
        server.put(&format!("/api/v1/tables/{id}/settings"), json!({"take_over": "after_grace"})).await.ok();
    assert_eq!(changed["settings"], json!({"take_over": "after_grace"}));
    for (key, value) in [
        ("actions", json!(["vacuum"])),
        ("actions", json!(["compaction", "logcompaction"])),
        ("foreign_grace_secs", json!(0)),
        ("foreign_grace_secs", json!(119)),
        ("concurrency", json!("maybe")),
        ("take_over", json!("always")),
        ("queue", json!("a b")),
        ("hudi_options", json!({"hoodie.write.lock.x.password": "***"})),
        ("hudi_options", json!({"hoodie.clean.async": "false"})),
    ] {
        let answer = server.put(&format!("/api/v1/tables/{id}/settings"), json!({key: value})).await;
        assert_eq!(answer.problem(400), "invalid", "{key}");
    }
    let odd = server.put(&format!("/api/v1/tables/{id}/settings"), json!({"nonsense": 1})).await;
    assert_eq!(odd.problem(odd.status), "invalid");
    let looked = server.post(&format!("/api/v1/tables/{id}/look"), json!({})).await.ok();
    let touch = looked["touch"].clone();
    server.until(&format!("/api/v1/tables/{id}"), |t| t["looked"].as_u64() >= touch.as_u64()).await;
    assert_eq!(
        server.post(&format!("/api/v1/tables/{id}/clear"), json!({})).await.ok(),
        json!({"n_cancelled": 2})
    );
    assert_eq!(server.delete(&format!("/api/v1/tables/{id}")).await.status, 204);
    assert_eq!(server.get(&format!("/api/v1/tables/{id}")).await.problem(404), "not_found");
    assert_eq!(server.get("/api/v1/instances").await.ok()["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn a_registration_without_settings_keeps_those_of_the_table() {
    let server = paused(&[]).await;
    let register = |body: Value| {
        let server = &server;
        async move { server.post("/api/v1/tables", body).await.ok()["settings"].clone() }
    };
    let first = json!({"concurrency": "locked", "queue": "etl", "foreign_grace_secs": 120,
        "hudi_options": {"hoodie.memory.merge.max.size": "1"}});
    assert_eq!(register(json!({"base_path": "/data/s", "settings": first})).await, first);
    assert_eq!(register(json!({"base_path": "/data/s", "look": true})).await, first);
    let over = json!({"concurrency": "exclusive", "hudi_options": {"hoodie.parquet.max.file.size": "2"}});
    let merged = register(json!({"base_path": "/data/s", "settings": over, "merge": true})).await;
    assert_eq!((&merged["concurrency"], &merged["queue"]), (&json!("exclusive"), &json!("etl")));
    assert_eq!(merged["hudi_options"].as_object().unwrap().len(), 2);
    let shown = server.get(&format!("/api/v1/tables/{}", segment("/data/s"))).await.ok();
    let effective = &shown["effective"];
    assert_eq!((&effective["queue"], &effective["foreign_grace_secs"]), (&json!("etl"), &json!(120)));
    assert_eq!(register(json!({"base_path": "/data/s", "settings": {}})).await, json!({}));
    server.stop().await;
}

#[tokio::test]
async fn a_log_compaction_cannot_be_asked_for() {
    let server = paused(&[]).await;
    let body = json!({"table": "/data/g", "action": "logcompaction", "instant": T1});
    let refused = server.post("/api/v1/instances", body).await;
    assert_eq!(refused.problem(400), "invalid");
    assert!(refused.json()["hint"].as_str().unwrap().contains("no procedure"), "{}", refused.text);
    let body = json!({"table": "/data/g", "action": "bogus", "instant": T1});
    let bogus = server.post("/api/v1/instances", body).await;
    assert_eq!(bogus.problem(400), "invalid");
    assert!(
        bogus.json()["hint"].as_str().unwrap().starts_with("use compaction, clustering or clean"),
        "{}",
        bogus.text
    );
    assert_eq!(server.get("/api/v1/instances?action=logcompaction").await.ok()["items"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn each_way_of_telling_shows_as_what_it_is() {
    let server = paused(&[]).await;
    let path = "/data/w";
    let told_by = |n: usize| {
        let server = &server;
        async move {
            let wanted = |l: &Value| l["items"].as_array().unwrap().len() == n;
            let list = server.until("/api/v1/instances?state=pending", wanted).await;
            let newest = |i: &Value| i["instant"].as_str().unwrap().ends_with(&n.to_string());
            let items = list["items"].as_array().unwrap();
            items.iter().find(|i| newest(i)).unwrap()["trigger"].clone()
        }
    };
    let plan = |n: usize| server.plan(path, Action::Compaction, &format!("2026010100000000{n}"));
    plan(1);
    server.post("/api/v1/tables", json!({"base_path": path, "look": true})).await.ok();
    assert_eq!(told_by(1).await, "api");
    plan(2);
    server.commit(path).await.ok();
    assert_eq!(told_by(2).await, "callback");
    plan(3);
    server.get(&format!("/v1/hoodie/service/compact?action=REQUEST&basepath={path}")).await.ok();
    assert_eq!(told_by(3).await, "client");
    plan(4);
    server.post(&format!("/api/v1/tables/{}/look", segment(path)), json!({})).await.ok();
    assert_eq!(told_by(4).await, "api");
    server.stop().await;
}

#[tokio::test]
async fn only_a_known_queue_is_resumed() {
    let server = Running::start(&[]).await;
    assert_eq!(server.post("/api/v1/queues/nope/resume", json!({})).await.problem(404), "not_found");
    assert_eq!(server.get("/api/v1/queues").await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.post("/api/v1/queues/nope/pause", json!({})).await.ok()["is_paused"], true);
    assert_eq!(server.post("/api/v1/queues/nope/resume", json!({})).await.ok()["is_paused"], false);
    server.stop().await;
}

#[tokio::test]
async fn queues_engines_and_nodes_are_listed() {
    let server = Running::start(&[("server.node_name", "n1")]).await;
    let queue =
        server.put("/api/v1/queues/etl", json!({"limit": 4, "weight": 2, "engine": "default"})).await.ok();
    assert_eq!(
        queue,
        json!({"name": "etl", "engine": "default", "limit": 4, "weight": 2, "is_paused": false})
    );
    let cleared = server.put("/api/v1/queues/etl", json!({"engine": ""})).await.ok();
    assert_eq!((cleared["engine"].clone(), cleared["limit"].clone()), (Value::Null, json!(4)));
    for (name, body) in
        [("etl", json!({"weight": 0})), ("etl", json!({"engine": "none"})), ("a%20b", json!({}))]
    {
        assert_eq!(
            server.put(&format!("/api/v1/queues/{name}"), body).await.problem(400),
            "invalid",
            "{name}"
        );
    }
    let queues = server.get("/api/v1/queues").await.ok();
    let names: Vec<&str> =
        queues["items"].as_array().unwrap().iter().map(|q| q["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "etl"]);
    let engines = server.get("/api/v1/engines").await.ok();
    assert_eq!(engines["items"][0]["name"], "default");
    let nodes = server.until("/api/v1/nodes", |n| n["items"][0]["is_leader"] == true).await;
    assert_eq!(nodes["items"][0]["name"], "n1");
    assert_eq!(nodes["items"][0]["url"], server.url.as_str());
    server.stop().await;
}

#[tokio::test]
async fn readiness_stays_while_an_engine_lacks_something() {
    use tms_core::engine::NotReady;
    use tms_core::model::instance::ParkReason;
    let server = Running::start(&[]).await;
    server
        .engine
        .set_not_ready(Some(NotReady { reason: ParkReason::NoEngine, detail: "no Java".to_owned() }));
    let ready = server.until("/readyz", |r| r["leader"].is_object()).await;
    assert_eq!(ready["status"], "ready");
    assert_eq!(ready["store"]["is_ok"], true);
    assert_eq!(ready["engines"][0]["trouble"], json!({"reason": "no_engine", "detail": "no Java"}));
    assert_eq!(server.get("/healthz").await.ok(), json!({"status": "ok"}));
    server.stop().await;
}

#[tokio::test]
async fn metrics_move_and_have_buckets_but_no_label_of_a_table() {
    let server = Running::start(&[]).await;
    server.plan("/data/metric-table", Action::Compaction, T1);
    server.commit("/data/metric-table").await.ok();
    server.job(1).await;
    server.get("/nowhere").await;
    let text = server.get("/metrics").await.text;
    for part in [
        "tms_handover_seconds_bucket{protocol=\"callback\",le=\"0.005\"}",
        "tms_handover_requests_total{protocol=\"callback\",status=\"200\"}",
        "route=\"/v1/hoodie/callback\"",
        "route=\"none\"",
        "# TYPE tms_http_request_seconds histogram",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(!text.contains("metric-table"), "a label names a table");
    server.stop().await;
}

#[tokio::test]
async fn refusals_of_the_framework_have_the_form_of_all_errors() {
    let server = Running::start(&[]).await;
    assert_eq!(server.get("/nowhere").await.problem(404), "not_found");
    assert_eq!(server.delete("/api/v1/queues").await.problem(405), "method_not_allowed");
    let text = server.http.post(format!("{}/api/v1/instances", server.url)).body("x");
    assert_eq!(server.send(text).await.problem(415), "unsupported_media_type");
    let broken = server
        .http
        .post(format!("{}/api/v1/instances", server.url))
        .header("content-type", "application/json");
    let answer = server.send(broken.body("{")).await;
    assert_eq!(answer.problem(400), "invalid");
    let long = "x".repeat(tms_server::api::API_BODY_BYTES_MAX + 1);
    let answer = server.post("/api/v1/instances", json!({"table": long, "action": "clean"})).await;
    assert_eq!(answer.problem(413), "too_large");
    let bad = server.get("/api/v1/instances/nonsense").await;
    assert_eq!(bad.problem(400), "invalid");
    assert!(bad.json()["hint"].as_str().unwrap().contains("tms instance list"), "{}", bad.text);
    server.stop().await;
}

#[tokio::test]
async fn the_description_that_is_served_is_the_generated_one() {
    let server = Running::start(&[]).await;
    let served = server.get("/api/openapi.json").await;
    assert!(served.text == tms_server::api::openapi_json());
    server.stop().await;
}

#[tokio::test]
async fn the_end_of_a_log_is_shown() {
    let server = Running::start(&[]).await;
    server.plan("/data/l", Action::Compaction, T1);
    server.commit("/data/l").await.ok();
    let job = server.job(1).await;
    server.engine.set_log(&job.tag, "first\nlast\n");
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    let tail = server.get(&format!("/api/v1/instances/{id}/logs?attempt=1&bytes=5")).await.ok();
    assert_eq!((tail["text"].as_str(), tail["is_cut"].as_bool()), (Some("last\n"), Some(true)), "{tail}");
    assert_eq!(server.get(&format!("/api/v1/instances/{id}/logs?attempt=9")).await.problem(404), "not_found");
    server.stop().await;
}
