//! What drivers ask: leave, progress, end.

use serde_json::json;
use tms_core::model::action::Action;

use crate::support::{Running, base_path, instant_of, keep_lines};

const RUN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "ffffffffffffffffffffffffffffffff";
const T: &str = "20260101000000000";

async fn started(server: &Running) -> tms_core::engine::Job {
    server.plan("/data/j", Action::Compaction, T);
    server.commit("file:///data/j").await.ok();
    let job = server.job(1).await;
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    server.until(&format!("/api/v1/instances/{id}"), |i| i["attempt"]["state"] == "accepted").await;
    job
}

#[tokio::test]
async fn leave_names_the_work_and_goes_to_one_driver() {
    let server = Running::start(&[("hudi.options.hoodie.memory.merge.max.size", "1024")]).await;
    let job = started(&server).await;
    let leave = server
        .drive(&job, "leave", json!({"run_id": RUN, "stage": "start", "pid": 7, "host": "h"}))
        .await
        .ok();
    assert_eq!(leave["leave"], true, "{leave}");
    assert_eq!(leave["action"], "compaction");
    assert_eq!(leave["base_path"], "file:///data/j");
    assert_eq!(leave["instant"], T);
    assert_eq!(leave["expected"], "requested");
    assert_eq!(leave["options"]["hoodie.memory.merge.max.size"], "1024");
    assert_eq!(leave["options"]["hoodie.table.service.manager.enabled"], "false");
    assert!(leave["session"].is_object());
    assert!(
        leave["run_timeout_secs"].as_u64().unwrap() > 0 && leave["progress_every_secs"].as_u64().unwrap() > 0
    );
    let again = server
        .drive(&job, "leave", json!({"run_id": RUN, "stage": "call", "spark_version": "3.5.9"}))
        .await
        .ok();
    assert_eq!(again["leave"], true, "{again}");
    let other = server.drive(&job, "leave", json!({"run_id": OTHER, "stage": "start"})).await.ok();
    assert_eq!(other["leave"], false, "{other}");
    assert!(!other["reason"].as_str().unwrap().is_empty() && other.get("options").is_none(), "{other}");
    server.stop().await;
}

#[tokio::test]
async fn progress_and_end_reach_the_instance() {
    let server = Running::start(&[]).await;
    let job = started(&server).await;
    for stage in ["start", "call"] {
        server.drive(&job, "leave", json!({"run_id": RUN, "stage": stage})).await.ok();
    }
    let said = json!({"run_id": RUN, "phase": "running", "tasks_done": 3, "tasks_total": 12, "percent": 250});
    assert_eq!(server.drive(&job, "progress", said).await.ok(), json!({"stop": false}));
    let seen = server.only_instance().await;
    assert_eq!(seen["state"], "active");
    assert_eq!(seen["attempt"]["progress"]["percent"], 99, "{seen}");
    assert_eq!(seen["attempt"]["holder"], RUN);
    server.timelines.table(&base_path("/data/j"), |t| t.complete(Action::Compaction, &instant_of(T)));
    let end = json!({"run_id": RUN, "outcome": "returned", "exit_code": 0, "rows": ["[1]"], "error": [], "app_id": "local-1"});
    assert_eq!(server.drive(&job, "end", end).await.ok(), json!({}));
    server.engine.end(&job.tag, "exit 0");
    let id = seen["id"].as_str().unwrap();
    let done = server.until_state(id, "succeeded").await;
    assert_eq!(done["n_attempts"], 1);
    assert!(done["events"].as_array().unwrap().len() > 3, "{done}");
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_driver_is_told_to_stop() {
    let server = Running::start(&[]).await;
    let job = started(&server).await;
    server.drive(&job, "leave", json!({"run_id": RUN, "stage": "start"})).await.ok();
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    let asked = server.post(&format!("/api/v1/instances/{id}/cancel"), json!({})).await.ok();
    assert!(asked["cancel_asked"].is_object(), "{asked}");
    let said = json!({"run_id": RUN, "phase": "running"});
    assert_eq!(server.drive(&job, "progress", said).await.ok(), json!({"stop": true}));
    server.stop().await;
}

/// Whoever made a change: the leader, a driver, a person.
#[tokio::test]
async fn every_change_is_one_line_with_instance_attempt_and_term() {
    let (lines, _guard) = keep_lines();
    let server = Running::start(&[]).await;
    let job = started(&server).await;
    server.drive(&job, "leave", json!({"run_id": RUN, "stage": "start"})).await.ok();
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    server.post(&format!("/api/v1/instances/{id}/cancel"), json!({})).await.ok();
    server.stop().await;
    let log = lines.text();
    for (from, to, reason) in [
        ("pending", "active/intended", ""),
        ("active/accepted", "active/holding", "a driver got leave"),
        ("active/holding", "active/holding", "asked to cancel it"),
    ] {
        let fields = [
            "Instance changed: ".to_owned(),
            format!("instance={id}"),
            "attempt=1".to_owned(),
            "term=1".to_owned(),
            format!("from=\"{from}\""),
            format!("to=\"{to}\""),
            reason.to_owned(),
        ];
        let found = log.lines().filter(|line| fields.iter().all(|field| line.contains(field))).count();
        assert_eq!(found, 1, "{from} to {to}:\n{log}");
    }
}

#[tokio::test]
async fn only_the_token_of_the_attempt_opens_its_routes() {
    let server = Running::start(&[]).await;
    let job = started(&server).await;
    let bodies = [
        ("leave", json!({"run_id": RUN, "stage": "start"})),
        ("progress", json!({"run_id": RUN})),
        ("end", json!({"run_id": RUN, "outcome": "returned", "exit_code": 0})),
    ];
    for (route, body) in &bodies {
        let url = format!("{}/v1/job/{}/{route}", server.url, job.tag);
        assert_eq!(server.send(server.http.post(&url).json(body)).await.problem(401), "denied", "{route}");
        let wrong = server.http.post(&url).bearer_auth("wrong").json(body);
        assert_eq!(server.send(wrong).await.problem(401), "denied", "{route}");
        for tag in ["tms-00000000-00000000000000000000000000000000-0001", "nonsense", "%ff"] {
            let url = format!("{}/v1/job/{tag}/{route}", server.url);
            let answer = server.send(server.http.post(&url).bearer_auth("x").json(body)).await;
            assert!((400..=404).contains(&answer.status), "{route} {tag} {}", answer.status);
        }
    }
    for body in
        [json!({}), json!({"run_id": "short", "stage": "start"}), json!({"run_id": RUN, "stage": "later"})]
    {
        let answer = server.drive(&job, "leave", body.clone()).await;
        assert_eq!(answer.problem(answer.status), "invalid", "{body}");
        assert!((400..500).contains(&answer.status), "{body}");
    }
    let seen = server.only_instance().await;
    assert_eq!(seen["attempt"]["state"], "accepted", "{seen}");
    server.stop().await;
}
