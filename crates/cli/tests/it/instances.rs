//! `tms instance`.

use std::time::Duration;

use serde_json::json;
use tms_core::clock::{Clock, SystemClock};
use tms_core::engine::NotReady;
use tms_core::model::action::Action;
use tms_core::model::instance::ParkReason;

use crate::support::{Running, base_path, canned_server, silent_server, tms_with};

const T1: &str = "20260101000000001";
const T2: &str = "20260101000000002";

#[tokio::test]
async fn add_with_wait_follows_an_instance_to_its_end() {
    let server = Running::start(&[]).await;
    server.plan("/data/w", Action::Compaction, T1);
    let add = [
        "instance",
        "add",
        "/data/w",
        "--action",
        "compaction",
        "--instant",
        T1,
        "--wait",
        "--timeout",
        "20s",
        "-o",
        "json",
    ];
    let (said, ()) = tokio::join!(server.tms(&add), server.complete("/data/w", Action::Compaction, T1));
    assert_eq!(said.json()["state"], "succeeded", "{said:?}");
    assert!(said.err.contains("compaction"), "no progress: {said:?}");
    assert!(!said.err.contains('\x1b') && !said.err.contains('\r'), "not for a terminal: {said:?}");
    let id = said.json()["id"].as_str().unwrap().to_owned();
    let shown = server.tms(&["instance", "show", &id, "-o", "json"]).await.json();
    assert_eq!((shown["id"].as_str(), shown["state"].as_str()), (Some(id.as_str()), Some("succeeded")));
    assert!(!shown["events"].as_array().unwrap().is_empty());
    let text = server.tms(&["instance", "show", &id]).await.out;
    assert!(text.contains("succeeded") && text.contains("events") && text.contains("file:/data/w"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn a_wait_beyond_its_limit_ends_with_124() {
    let server = Running::start(&[]).await;
    server.tms(&["queue", "pause", "default"]).await;
    server.plan("/data/l", Action::Compaction, T1);
    let add = [
        "instance",
        "add",
        "/data/l",
        "--action",
        "compaction",
        "--instant",
        T1,
        "--wait",
        "--timeout",
        "700ms",
    ];
    let said = server.tms(&add).await;
    assert_eq!(said.code, 124, "{said:?}");
    assert!(said.err.contains("queue"), "it does not say what it waits for: {said:?}");
    server.stop().await;
}

#[test]
fn a_server_that_never_answers_does_not_outlast_the_limit() {
    let (url, _listener) = silent_server();
    let clock = SystemClock::default();
    let id = "01890000-0000-7000-8000-000000000000";
    for args in [
        vec!["instance", "add", "/t", "--action", "compaction", "--instant", T1],
        vec!["instance", "cancel", id],
        vec!["instance", "retry", id],
        vec!["table", "look", "/t"],
    ] {
        let started = clock.monotonic();
        let all = [args.as_slice(), &["--wait", "--timeout", "500ms"]].concat();
        let said = tms_with(&[("TMS_URL", &url)], &all);
        assert_eq!(said.code, 124, "{args:?} {said:?}");
        // Far below the time-out of a single call; the machine may be busy.
        assert!(clock.monotonic() - started < Duration::from_secs(30), "{args:?}");
    }
}

#[tokio::test]
async fn a_wait_forgives_a_server_that_is_busy_for_a_moment() {
    let server = Running::start(&[]).await;
    server.plan("/data/b", Action::Compaction, T1);
    let add = ["instance", "add", "/data/b", "--action", "compaction", "--instant", T1, "-o", "json"];
    let (added, ()) = tokio::join!(server.tms(&add), server.complete("/data/b", Action::Compaction, T1));
    let id = added.json()["id"].as_str().unwrap().to_owned();
    let show = ["instance", "show", &id, "-o", "json"];
    let ended = server.until(&show, |i| i["state"] == "succeeded").await;
    let busy =
        json!({"status": 503, "code": "unavailable", "title": "Service Unavailable", "detail": "no room"});
    let answers = vec![(200, added.json()), (503, busy.clone()), (503, busy.clone()), (200, ended)];
    let (url, thread) = canned_server(answers);
    let wait = [&add[..], &["--wait", "--timeout", "60s"]].concat();
    let run = |args: Vec<&str>| tms_with(&[("TMS_URL", &url)], &args);
    let said = run(wait);
    assert_eq!(said.json()["state"], "succeeded", "{said:?}");
    thread.join().unwrap();
    // Without a wait it is a refusal.
    let (url, thread) = canned_server(vec![(503, busy)]);
    let said = tms_with(&[("TMS_URL", &url)], &show);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("no room"), "{said:?}");
    thread.join().unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_wait_for_an_end_other_than_succeeded_ends_with_1() {
    let server = Running::start(&[]).await;
    server.tms(&["queue", "pause", "default"]).await;
    server.plan("/data/c", Action::Compaction, T1);
    let id = server
        .tms(&["instance", "add", "/data/c", "--action", "compaction", "--instant", T1, "-o", "json"])
        .await
        .json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    server.until(&["instance", "show", &id, "-o", "json"], |i| i["state"] == "pending").await;
    let cancelled = server.tms(&["instance", "cancel", &id, "--wait", "--timeout", "20s"]).await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let again = [
        "instance",
        "add",
        "/data/c",
        "--action",
        "compaction",
        "--instant",
        T1,
        "--wait",
        "--timeout",
        "20s",
    ];
    let said = server.tms(&again).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("cancelled"), "{said:?}");
    let none = server.tms(&["instance", "logs", &id]).await;
    assert_eq!(none.code, 3);
    assert!(none.err.contains("it has no attempt yet"), "{none:?}");
    assert!(server.tms(&["instance", "show", &id]).await.out.contains("last error"));
    server.tms(&["queue", "resume", "default"]).await;
    let retry = ["instance", "retry", &id, "--wait", "--timeout", "20s"];
    let (said, ()) = tokio::join!(server.tms(&retry), server.complete("/data/c", Action::Compaction, T1));
    assert_eq!(said.code, 0, "{said:?}");
    let again = server.tms(&["instance", "retry", &id]).await;
    assert_eq!(again.code, 1);
    assert!(again.err.contains("cannot retry the instance: it succeeded"), "{again:?}");
    let shown = server.tms(&["instance", "show", &id]).await.out;
    assert!(shown.contains("former error") && !shown.contains("last error"), "{shown}");
    assert!(shown.contains("detail") && shown.contains("the timeline says completed"), "{shown}");
    let table = server.tms(&["table", "show", "/data/c"]).await.out;
    assert!(table.contains("last success") && !table.contains("last error"), "{table}");
    server.stop().await;
}

#[tokio::test]
async fn a_wait_ends_with_1_when_the_instance_is_parked() {
    let server = Running::start(&[]).await;
    let detail = "no Spark is configured: set engines.default.spark_home".to_owned();
    server.engine.set_not_ready(Some(NotReady { reason: ParkReason::NoEngine, detail: detail.clone() }));
    server.plan("/data/p", Action::Compaction, T1);
    let add = ["instance", "add", "/data/p", "--action", "compaction", "--instant", T1, "--wait"];
    // Without an end of its own the wait would last for ever; the limit would end it with 124.
    let said = server.tms(&[&add[..], &["--timeout", "20s", "-o", "json"]].concat()).await;
    assert_eq!(said.code, 1, "{said:?}");
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["state"], "parked");
    assert!(said.err.contains("it is parked (no_engine)") && said.err.contains(&detail), "{said:?}");
    assert!(said.err.contains(ParkReason::NoEngine.way_out()), "{said:?}");
    server.stop().await;
}

#[tokio::test]
async fn show_with_wait_follows_an_instance_that_runs() {
    let server = Running::start(&[]).await;
    server.plan("/data/f", Action::Compaction, T1);
    let add = ["instance", "add", "/data/f", "--action", "compaction", "--instant", T1, "-o", "json"];
    let id = server.tms(&add).await.json()["id"].as_str().unwrap().to_owned();
    let show = ["instance", "show", &id, "--wait", "--timeout", "20s"];
    let (said, ()) = tokio::join!(server.tms(&show), server.complete("/data/f", Action::Compaction, T1));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.out.contains("succeeded") && said.out.contains("attempts") && said.out.contains("events"),
        "{said:?}"
    );
    assert!(said.err.contains("compaction"), "no progress: {said:?}");
    // One that ended otherwise ends the command with 1, as every wait.
    server.plan("/data/g", Action::Compaction, T2);
    server.tms(&["queue", "pause", "default"]).await;
    let add = ["instance", "add", "/data/g", "--action", "compaction", "--instant", T2, "-o", "json"];
    let id = server.tms(&add).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.tms(&["instance", "show", &id, "--wait", "--timeout", "300ms"]).await.code, 124);
    server.tms(&["instance", "cancel", &id, "--wait", "--timeout", "20s"]).await;
    let said = server.tms(&["instance", "show", &id, "--wait", "--timeout", "20s", "-o", "json"]).await;
    assert!(
        said.code == 1 && said.out.contains("\"cancelled\"") && said.err.contains("cancelled"),
        "{said:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn the_reason_of_a_parked_instance_is_printed_once() {
    let server = Running::start(&[]).await;
    server.plan("/data/n", Action::Compaction, T1);
    server.timelines.table(&base_path("/data/n"), |t| t.sight.facts.metadata_table = Some((9, 2)));
    let add = ["instance", "add", "/data/n", "--action", "compaction", "--instant", T1, "-o", "json"];
    let id = server.tms(&add).await.json()["id"].as_str().unwrap().to_owned();
    let parked = server.until(&["instance", "show", &id, "-o", "json"], |i| i["state"] == "parked").await;
    let detail = parked["detail"].as_str().unwrap();
    let shown = server.tms(&["instance", "show", &id]).await.out;
    assert!(detail.len() > 200 && shown.contains(detail), "{shown}");
    assert_eq!(shown.matches(&detail[..100]).count(), 1, "{shown}");
    assert!(shown.contains("`tms table register file:/data/n --concurrency locked`"), "{shown}");
    server.stop().await;
}

#[tokio::test]
async fn what_runs_is_neither_removed_nor_tried_again() {
    let server = Running::start(&[]).await;
    server.plan("/data/r", Action::Compaction, T1);
    let add = ["instance", "add", "/data/r", "--action", "compaction", "--instant", T1, "-o", "json"];
    let id = server.tms(&add).await.json()["id"].as_str().unwrap().to_owned();
    server.until(&["instance", "show", &id, "-o", "json"], |i| i["attempt"]["state"] == "accepted").await;
    for verb in ["remove", "retry"] {
        let said = server.tms(&["instance", verb, &id]).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(&format!("cannot {verb} the instance: it runs")), "{said:?}");
        assert!(said.err.contains("`tms instance cancel` it first"), "{said:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_list_is_one_array_and_its_cursor_goes_to_standard_error() {
    let server = Running::start(&[]).await;
    server.tms(&["queue", "pause", "default"]).await;
    for t in [T1, T2] {
        server.plan("/data/i", Action::Compaction, t);
    }
    server.tms(&["table", "register", "/data/i", "--look"]).await;
    let list = ["instance", "list", "-o", "json", "--state", "pending", "--live"];
    server.until(&list, |l| l.as_array().unwrap().len() == 2).await;
    let first = server.tms(&["instance", "list", "-o", "json", "--limit", "1"]).await;
    assert_eq!(first.json().as_array().unwrap().len(), 1);
    let cursor = first.err.split("--cursor ").nth(1).expect("a cursor").trim().to_owned();
    let second = server.tms(&["instance", "list", "-o", "json", "--limit", "1", "--cursor", &cursor]).await;
    assert_eq!(second.json().as_array().unwrap().len(), 1);
    assert_ne!(first.json()[0]["id"], second.json()[0]["id"]);
    let none = server
        .tms(&["instance", "list", "--ended", "-o", "json", "--table", "/data/i", "--action", "clean"])
        .await;
    assert_eq!(none.json().as_array().unwrap().len(), 0);
    let text = server.tms(&["instance", "list"]).await.out;
    assert_eq!(text.lines().count(), 3, "{text}");
    let id = first.json()[0]["id"].as_str().unwrap().to_owned();
    let removed = server.tms(&["instance", "remove", &id]).await;
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(server.tms(&["instance", "show", &id]).await.code, 3);
    server.stop().await;
}

#[tokio::test]
async fn a_log_is_printed_as_it_is_but_steers_no_terminal() {
    let server = Running::start(&[]).await;
    server.plan("/data/g", Action::Compaction, T1);
    let added = server
        .tms(&["instance", "add", "/data/g", "--action", "compaction", "--instant", T1, "-o", "json"])
        .await
        .json();
    let id = added["id"].as_str().unwrap();
    server.until(&["instance", "show", id, "-o", "json"], |i| i["attempt"]["state"] == "accepted").await;
    let tag = server.engine.tags().pop().unwrap();
    server.engine.set_log(&tag, "one\ntwo \x1b[31m\n");
    let said = server.tms(&["instance", "logs", id]).await;
    assert_eq!((said.code, said.out.as_str()), (0, "one\ntwo \\u{1b}[31m\n"), "{said:?}");
    let object =
        server.tms(&["instance", "logs", id, "--attempt", "1", "--bytes", "4096", "-o", "json"]).await.json();
    assert!(object["text"].as_str().unwrap().starts_with("one\n"));
    server.stop().await;
}
