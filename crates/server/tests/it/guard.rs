//! Who is let in.

use serde_json::json;

use crate::support::{Running, keep_lines};

fn secret(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[tokio::test]
async fn a_web_page_cannot_start_work() {
    let server = Running::start(&[]).await;
    let get = "/v1/hoodie/service/compact?basepath=%2Fd%2Ft&instant=20260101000000000";
    for (name, value, code) in [
        ("host", "evil.example:9091", "unknown_host"),
        ("origin", "http://evil.example", "cross_site"),
        ("origin", "null", "cross_site"),
        ("sec-fetch-site", "cross-site", "cross_site"),
        ("referer", "http://127.0.0.1:1/page", "cross_site"),
    ] {
        for path in [get, "/api/v1/instances", "/metrics", "/healthz"] {
            let request = server.http.get(format!("{}{path}", server.url)).header(name, value);
            assert_eq!(server.send(request).await.problem(403), code, "{name} {value} {path}");
        }
        let request = server.http.post(format!("{}/v1/hoodie/callback", server.url)).header(name, value);
        assert_eq!(server.send(request.json(&json!({"basePath": "/d/t"}))).await.problem(403), code);
    }
    assert_eq!(server.get("/api/v1/tables").await.ok()["items"], json!([]));
    let own = server.http.get(format!("{}/api/v1/tables", server.url)).header("origin", &server.url);
    server.send(own).await.ok();
    server.stop().await;
}

#[tokio::test]
async fn a_host_name_can_be_allowed() {
    let server = Running::start(&[("server.hosts", "tms.local")]).await;
    let request = server.http.get(format!("{}/healthz", server.url)).header("host", "TMS.local:80");
    server.send(request).await.ok();
    server.stop().await;
}

#[tokio::test]
async fn the_token_opens_the_api_and_nothing_else_does() {
    let (_a, token) = secret("the-token-of-the-api\n");
    let (_b, key) = secret("the-key-of-writers");
    let server = Running::start(&[("server.token_file", &token), ("server.callback_key_file", &key)]).await;
    for path in ["/api/v1/instances", "/metrics", "/api/openapi.json", "/api/v1/nodes"] {
        assert_eq!(server.get(path).await.problem(401), "denied", "{path}");
        for wrong in ["the-key-of-writers", "", "the-token-of-the-apl", "hudi_write_commit_http_callback"] {
            let request = server.http.get(format!("{}{path}", server.url)).bearer_auth(wrong);
            assert_eq!(server.send(request).await.problem(401), "denied", "{path} {wrong}");
        }
        let request = server.http.get(format!("{}{path}", server.url)).bearer_auth("the-token-of-the-api");
        assert_eq!(server.send(request).await.status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn writers_show_their_key_once_there_is_one() {
    let (_b, key) = secret("the-key-of-writers");
    let server = Running::start(&[("server.callback_key_file", &key)]).await;
    let callback = |key: &str| {
        let request = server.http.post(format!("{}/v1/hoodie/callback", server.url));
        request.header("HUDI-CALLBACK-KEY", key).json(&json!({"basePath": "/d/t"}))
    };
    assert_eq!(server.send(callback("hudi_write_commit_http_callback")).await.problem(401), "denied");
    assert_eq!(server.commit("/d/t").await.problem(401), "denied");
    server.send(callback("the-key-of-writers")).await.ok();
    let service = |token: &str| format!("/v1/hoodie/service/clean?token={token}&basepath=%2Fd%2Ft&instant=");
    assert_eq!(server.get(&service("wrong")).await.problem(401), "denied");
    server.get(&service("the-key-of-writers")).await.ok();
    server.get("/api/v1/tables").await.ok();
    server.stop().await;
}

#[tokio::test]
async fn refused_writers_are_told_where_the_key_stands_and_logged_once_a_minute() {
    let (lines, _guard) = keep_lines();
    let (_a, token) = secret("the-token-of-the-api");
    let (_b, key) = secret("the-key-of-writers");
    for (flag, file) in [("server.token_file", &token), ("server.callback_key_file", &key)] {
        let before = lines.text().matches("Refused a writer").count();
        let server = Running::start(&[(flag, file)]).await;
        for _ in 0..3 {
            let refused = server.commit("/d/t").await;
            assert_eq!(refused.problem(401), "denied");
            let hint = refused.json()["hint"].as_str().unwrap().to_owned();
            assert!(hint.ends_with(&format!("stands in {flag}")), "{hint}");
        }
        assert_eq!(lines.text().matches("Refused a writer").count(), before + 1, "{flag}");
        server.stop().await;
    }
}
