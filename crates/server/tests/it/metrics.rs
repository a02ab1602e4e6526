//! Metrics: each has its help, and those of the domain move through a simulated run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tms_core::engine::Job;
use tms_core::model::action::Action;

use crate::support::{Running, base_path, instant_of, segment};

const RUN: &str = "0123456789abcdef0123456789abcdef";
const T: &str = "20260101000000000";

/// Names of metrics in the source of a folder.
fn names_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names_in(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for call in ["counter!(", "gauge!(", "histogram!("] {
                let calls = text.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
                found.extend(calls.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_metric_has_its_help() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut used = BTreeSet::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            names_in(&source, &mut used);
        }
    }
    let described: Vec<String> = tms_server::metrics::names().map(str::to_owned).collect();
    assert!(used.contains("tms_run_seconds") && used.contains("tms_queue_depth"), "{used:?}");
    assert_eq!(described.iter().cloned().collect::<BTreeSet<_>>(), used);
    assert_eq!(described.len(), used.len(), "a metric is described twice");
    let of_domain = |name: &str| name.starts_with("tms_");
    assert!(used.iter().all(|name| of_domain(name)), "{used:?}");
}

/// The value of a line, once its name and labels are these.
fn value(shown: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    shown.lines().find_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (of, given) = series.split_once('{').unwrap_or((series, ""));
        let has = |(k, v): &(&str, &str)| given.contains(&format!("{k}=\"{v}\""));
        (of == name && labels.iter().all(has)).then(|| value.parse().unwrap())
    })
}

async fn until(handle: &PrometheusHandle, what: &str, holds: impl Fn(&str) -> bool) {
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds(&handle.render()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("{what}:\n{}", handle.render()));
}

async fn begins(server: &Running, n: u64) -> Job {
    let job = server.job(n).await;
    let accepted = |i: &serde_json::Value| i["attempt"]["state"] == "accepted";
    server.until(&format!("/api/v1/instances/{}", job.tag.instance()), accepted).await;
    for stage in ["start", "call"] {
        let leave = server.drive(&job, "leave", json!({"run_id": RUN, "stage": stage})).await.ok();
        assert_eq!(leave["leave"], true, "{leave}");
    }
    job
}

async fn ends(server: &Running, job: &Job, outcome: &str, exit_code: i32) {
    let end = json!({"run_id": RUN, "outcome": outcome, "exit_code": exit_code, "rows": [], "error": ["x"]});
    server.drive(job, "end", end).await.ok();
    server.engine.end(&job.tag, &format!("exit {exit_code}"));
}

#[tokio::test]
async fn the_metrics_of_the_domain_move_through_a_simulated_run() {
    // The runtime of a test has one thread, so nothing of other tests is counted.
    let recorder = tms_server::metrics::recorder().unwrap();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = Running::start(&[
        ("storage.roots", "/data"),
        ("tables.default_actions", "compaction"),
        ("retry.max_attempts", "2"),
        ("retry.backoff_first", "1ms"),
        ("retry.backoff_max", "1ms"),
    ])
    .await;
    // One that succeeds at once.
    server.plan("/data/good", Action::Compaction, T);
    server.commit("/data/good").await.ok();
    let job = begins(&server, 1).await;
    server.timelines.table(&base_path("/data/good"), |t| t.complete(Action::Compaction, &instant_of(T)));
    ends(&server, &job, "returned", 0).await;
    server.until_state(&job.tag.instance().to_string(), "succeeded").await;
    // One that fails twice.
    server.plan("/data/bad", Action::Compaction, T);
    server.commit("/data/bad").await.ok();
    let job = begins(&server, 2).await;
    ends(&server, &job, "threw", 1).await;
    let job = begins(&server, 3).await;
    ends(&server, &job, "threw", 1).await;
    server.until_state(&job.tag.instance().to_string(), "failed").await;
    server.commit("/elsewhere/t").await.ok();

    let shown = handle.render();
    let of_run = [("action", "compaction"), ("engine", "default")];
    for (name, wanted) in [
        ("tms_attempts_total", 3.0),
        ("tms_retries_total", 1.0),
        ("tms_succeeded_total", 1.0),
        ("tms_failed_total", 1.0),
        ("tms_run_seconds_count", 1.0),
        ("tms_submission_seconds_count", 3.0),
        // One of each instance: the wait for a retry is none for an engine.
        ("tms_scheduling_seconds_count", 2.0),
    ] {
        assert_eq!(value(&shown, name, &of_run), Some(wanted), "{name}\n{shown}");
    }
    assert_eq!(value(&shown, "tms_requests_outside_roots_total", &[]), Some(1.0));
    for name in ["tms_run_seconds_bucket", "tms_scheduling_seconds_bucket", "tms_submission_seconds_bucket"] {
        assert!(value(&shown, name, &[("le", "86400")]).is_some_and(|n| n >= 1.0), "{name}\n{shown}");
    }
    assert!(value(&shown, "tms_handover_seconds_bucket", &[("le", "0.0005")]).is_some());
    gauges_move(&server, &handle).await;
    let shown = handle.render();
    for line in shown.lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        let text = shown.lines().find_map(|l| l.strip_prefix(&format!("# HELP {name} ")));
        assert!(text.is_some_and(|t| !t.is_empty()), "{name} has no help");
    }
    server.stop().await;
}

/// Gauges follow a slow pass of the leader; its clock is put forward once everything is in place.
async fn gauges_move(server: &Running, handle: &PrometheusHandle) {
    let waiting = [("queue", "default")];
    let plan = [("action", "compaction")];
    server.post("/api/v1/queues/default/pause", json!({})).await.ok();
    server.plan("/data/waits", Action::Compaction, T);
    server.commit("/data/waits").await.ok();
    server.until("/api/v1/instances?state=pending", |l| l["items"].as_array().unwrap().len() == 1).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    until(handle, "no gauge moved", |shown| {
        value(shown, "tms_queue_depth", &waiting) == Some(1.0)
            && value(shown, "tms_oldest_unserved_plan_seconds", &plan).is_some_and(|age| age > 0.0)
    })
    .await;
    server.post("/api/v1/queues/default/resume", json!({})).await.ok();
    let job = begins(server, 4).await;
    for path in ["/data/waits", "/data/bad"] {
        server.timelines.table(&base_path(path), |t| t.complete(Action::Compaction, &instant_of(T)));
        server.commit(path).await.ok();
        server.until(&format!("/api/v1/tables/{}", segment(path)), |t| t["looked"] == t["touch"]).await;
    }
    ends(server, &job, "returned", 0).await;
    server.until_state(&job.tag.instance().to_string(), "succeeded").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    until(handle, "the gauges did not move back", |shown| {
        value(shown, "tms_queue_depth", &waiting) == Some(0.0)
            && value(shown, "tms_oldest_unserved_plan_seconds", &plan) == Some(0.0)
    })
    .await;
}
