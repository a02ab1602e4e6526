//! What stock writers send.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use tms_server::http::TARGET_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Running, base_path, keep_lines, segment};

#[tokio::test]
async fn a_request_of_the_client_is_taken_in_any_form() {
    let server = Running::start(&[]).await;
    for (i, query) in [
        "execution_engine=spark&extra_params&db_name&resource=spark%3A4g%2C4g&basepath=file%3A%2Fdata%2Fx&parallelism=100&action=REQUEST&table_name=t1&queue=etl&instant=&username=alice",
        "basepath=%2Fdata%2Fx",
        "instant=20260101000000000%2C20260101000000001&basepath=%2Fdata%2Fx&db_name=&action=REQUEST",
        "basepath=%2Fdata%2Fx&execution_engine=HAL9000&resource=lots&extra_params=%3B%3B&queue=a+b&instant=no,20260101000000000",
        "basepath=%2Fdata%2Fx&action=CANCEL&instant=20260101000000009",
        "&&=&basepath=file%3A%2F%2F%2Fdata%2Fx%2F&",
    ]
    .iter()
    .enumerate()
    {
        for service in ["compact", "cluster", "clean"] {
            let answer = server.get(&format!("/v1/hoodie/service/{service}?{query}")).await.ok();
            assert_eq!(answer["status"], "ok", "{i}");
        }
    }
    let tables = server.get("/api/v1/tables").await.ok();
    assert_eq!(tables["items"].as_array().unwrap().len(), 1);
    let instances = server.get("/api/v1/instances?action=compaction").await.ok();
    let mut instants: Vec<&str> =
        instances["items"].as_array().unwrap().iter().map(|i| i["instant"].as_str().unwrap()).collect();
    instants.sort_unstable();
    assert_eq!(instants, ["20260101000000000", "20260101000000001"]);
    server.stop().await;
}

#[tokio::test]
async fn what_no_retry_can_mend_is_refused() {
    let server = Running::start(&[]).await;
    for query in [
        "",
        "basepath",
        "basepath=",
        "basepath=relative",
        "basepath=%2Fa%2F..%2Fb",
        "basepath=%ff",
        "basepath=%2Fa%0Ab",
    ] {
        let answer = server.get(&format!("/v1/hoodie/service/compact?{query}")).await;
        assert_eq!(answer.problem(400), "invalid", "{query}");
    }
    assert_eq!(server.get("/v1/hoodie/service/vacuum?basepath=%2Fa").await.problem(404), "not_found");
    for body in ["", "[]", "{", "{\"tableName\":\"t\"}", "{\"basePath\":\"relative\"}"] {
        let request = server.http.post(format!("{}/v1/hoodie/callback", server.url)).body(body);
        assert_eq!(server.send(request).await.problem(400), "invalid", "{body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_table_outside_the_roots_is_answered_and_stored_nowhere() {
    let server = Running::start(&[("storage.roots", "/lake")]).await;
    let answer = server.commit("file:///elsewhere/t").await.ok();
    assert!(answer["warnings"][0].as_str().unwrap().contains("storage.roots"), "{answer}");
    let answer = server.get("/v1/hoodie/service/compact?basepath=%2Flake2%2Ft&instant=1").await.ok();
    assert!(answer.get("table").is_none(), "{answer}");
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"], json!([]));
    server.commit("file:///lake/t").await.ok();
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

/// A body in pieces, with write statistics of this many bytes before or after the fields that count.
fn long_callback(n_bytes: usize, is_first: bool) -> reqwest::Body {
    let fields = r#""commitTime":"1","tableName":"long","basePath":"file:///data/long""#;
    let stat = format!(r#"{{"path":"{}"}}"#, "x".repeat(64 * 1024));
    let n_stats = n_bytes / stat.len() + 1;
    let (head, tail) = match is_first {
        true => (format!("{{{fields},\"hoodieWriteStat\":["), "null]}".to_owned()),
        false => ("{\"hoodieWriteStat\":[".to_owned(), format!("null],{fields}}}")),
    };
    let middle = (0..n_stats).map(move |_| format!("{stat},"));
    let pieces = std::iter::once(head).chain(middle).chain(std::iter::once(tail));
    reqwest::Body::wrap_stream(futures::stream::iter(pieces.map(Ok::<_, std::io::Error>)))
}

#[tokio::test]
async fn a_long_callback_is_read_to_its_end_wherever_the_fields_stand() {
    let server = Running::start(&[]).await;
    for is_first in [true, false] {
        let request = server.http.post(format!("{}/v1/hoodie/callback", server.url));
        server.send(request.body(long_callback(9 * 1024 * 1024, is_first))).await.ok();
    }
    assert_eq!(server.get(&format!("/api/v1/tables/{}", segment("/data/long"))).await.ok()["touch"], 2);
    server.stop().await;
}

#[tokio::test]
async fn a_callback_beyond_the_limit_counts_when_its_fields_came_before() {
    let server = Running::start(&[]).await;
    let most = tms_server::api::writers::CALLBACK_BYTES_MAX;
    let url = format!("{}/v1/hoodie/callback", server.url);
    let first = server.http.post(&url).body(long_callback(most + 1024 * 1024, true)).send().await;
    // The server answers before the body is whole; the client may see the answer or a closed connection. What is answered
    // stands in the tests of the route.
    if let Ok(answer) = first {
        assert_eq!(answer.status(), 200);
    }
    server.until(&format!("/api/v1/tables/{}", segment("/data/long")), |t| t["touch"] == 1).await;
    let last = server.http.post(&url).body(long_callback(most + 1024 * 1024, false)).send().await;
    if let Ok(answer) = last {
        assert_eq!(answer.status(), 413);
    }
    assert_eq!(server.get(&format!("/api/v1/tables/{}", segment("/data/long"))).await.ok()["touch"], 1);
    server.stop().await;
}

/// A body as a person sees it, indented, is read like one of a writer.
#[tokio::test]
async fn the_example_bodies_are_taken() {
    let server = Running::start(&[]).await;
    for (n, version) in ["0.15.0", "1.2.0"].into_iter().enumerate() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/wire")
            .join(format!("callback-example-{version}.json"));
        let body = std::fs::read_to_string(path).unwrap();
        let wanted: Value = serde_json::from_str(&body).unwrap();
        assert!(wanted["hoodieWriteStat"].as_array().is_some_and(|s| !s.is_empty()), "{version}");
        let request = server.http.post(format!("{}/v1/hoodie/callback", server.url)).body(body);
        server.send(request).await.ok();
        let path = segment(wanted["basePath"].as_str().unwrap());
        let table = server.get(&format!("/api/v1/tables/{path}")).await.ok();
        assert_eq!(table["spelling"], wanted["basePath"], "{version}");
        assert_eq!(table["name"], wanted["tableName"], "{version}");
        assert_eq!(table["touch"], n + 1, "{version}");
    }
    server.stop().await;
}

/// The HTTP library limits path and query to less than a head may have.
#[tokio::test]
async fn a_request_names_instants_up_to_the_length_of_a_target() {
    let server = Running::start(&[]).await;
    let before = "/v1/hoodie/service/compact?basepath=%2Fdata%2Flong&instant=";
    let with = |n: usize| {
        let instants: Vec<String> = (0..n).map(|i| format!("2026010100000{i:07}")).collect();
        format!("{before}{}", instants.join("%2C"))
    };
    assert!(with(2_500).len() < TARGET_BYTES_MAX - 4_096);
    let answer = server.get(&with(2_500)).await.ok();
    let n_taken = tms_core::model::request::HINTS_MAX;
    assert!(answer["warnings"][0].as_str().unwrap().contains(&n_taken.to_string()), "{answer}");
    // The client of these tests has the same limit, with the server's address in it.
    let host = server.url.strip_prefix("http://").unwrap();
    for (length, status) in [(TARGET_BYTES_MAX, "HTTP/1.1 200"), (TARGET_BYTES_MAX + 1, "HTTP/1.1 414")] {
        let rest = "x".repeat(length - before.len() - 3);
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        let head = format!("GET {before}&x={rest} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(status), "{length}: {answer}");
    }
    server.stop().await;
}

fn recorded(version: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/wire")
        .join(format!("tsm-{version}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a recorded GET names.
fn named(line: &str) -> Option<(String, String, Vec<String>)> {
    let (path, query) = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?.split_once('?')?;
    let action = match path.rsplit('/').next()? {
        "compact" => "compaction",
        "cluster" => "clustering",
        other => other,
    };
    let value = |name: &str| {
        let found = query.split('&').find_map(|p| p.strip_prefix(&format!("{name}=")))?;
        Some(percent_encoding::percent_decode_str(found).decode_utf8().unwrap().into_owned())
    };
    let instants = value("instant").unwrap_or_default();
    let instants = instants.split(',').filter(|i| !i.is_empty()).map(str::to_owned).collect();
    Some((base_path(&value("basepath")?).to_string(), action.to_owned(), instants))
}

async fn replay(version: &str) {
    let (lines, _guard) = keep_lines();
    let server = Running::start(&[]).await;
    let mut tables = BTreeSet::new();
    let mut instances = BTreeSet::new();
    for request in recorded(version) {
        let line = request["requestLine"].as_str().unwrap();
        let (method, rest) = line.split_once(' ').unwrap();
        let path = rest.strip_suffix(" HTTP/1.1").unwrap();
        let path = if path == "/callback" { "/v1/hoodie/callback" } else { path };
        let mut sent = server.http.request(method.parse().unwrap(), format!("{}{path}", server.url));
        for header in request["headers"].as_array().unwrap() {
            let (name, value) = (header[0].as_str().unwrap(), header[1].as_str().unwrap());
            if !name.eq_ignore_ascii_case("host") && !name.eq_ignore_ascii_case("content-length") {
                sent = sent.header(name, value);
            }
        }
        let answer = server.send(sent.body(request["body"].as_str().unwrap().to_owned())).await;
        assert_eq!(answer.status, 200, "{line}: {}", answer.text);
        assert!(!answer.text.is_empty(), "{line}");
        match named(line) {
            Some((table, action, instants)) => {
                instances.extend(instants.into_iter().map(|i| (table.clone(), action.clone(), i)));
                tables.insert(table);
            }
            None => {
                let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
                tables.insert(base_path(body["basePath"].as_str().unwrap()).to_string());
            }
        }
    }
    assert!(tables.len() > 3 && instances.len() > 3, "the recording is empty");
    let mut cursor = String::new();
    let mut found = Vec::new();
    loop {
        let page = server.get(&format!("/api/v1/instances?limit=7{cursor}")).await.ok();
        for i in page["items"].as_array().unwrap() {
            let text = |key: &str| i[key].as_str().unwrap().to_owned();
            found.push((text("base_path"), text("action"), text("instant")));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", segment(next)),
            None => break,
        }
    }
    assert_eq!(found.len(), instances.len(), "repeats made instances of their own");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), instances);
    let known = server.get("/api/v1/tables?limit=1000").await.ok();
    let known: BTreeSet<String> = known["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["base_path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(known, tables);
    // None of the tables is there: that is told, and does no harm.
    server
        .until("/api/v1/tables?limit=1000", |t| {
            t["items"].as_array().unwrap().iter().all(|t| t["trouble"].is_object())
        })
        .await;
    server.stop().await;
    let text = lines.text();
    assert!(text.contains("/v1/hoodie/callback"), "the log was not kept");
    assert!(!text.contains("token=abc") && !text.contains("\"abc\""), "the token is in the log");
}

#[tokio::test]
async fn every_recorded_request_of_0_15_0_is_answered() {
    replay("0.15.0").await;
}

#[tokio::test]
async fn every_recorded_request_of_1_2_0_is_answered() {
    replay("1.2.0").await;
}
