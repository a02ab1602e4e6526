//! C23: secrets that are planted in many spellings must show nowhere: not in the log at its most talkative level, not
//! in answers, not in metrics, not in the printed configuration.

use serde_json::json;
use tms_core::engine::NotReady;
use tms_core::model::action::Action;
use tms_core::model::instance::ParkReason;
use tms_server::config::print;

use crate::support::{Running, base_path, keep_lines, loaded, segment};

const T: &str = "20260101000000000";
const RUN: &str = "0123456789abcdef0123456789abcdef";

/// A marked secret. The mark is what the test looks for.
fn marked(n: u32) -> String {
    format!("S3cr3tMark{n:02}xyz")
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[tokio::test]
async fn planted_secrets_show_nowhere() {
    let (lines, _guard) = keep_lines();
    let (_a, key) = file(&marked(1));
    let options = [
        ("server.callback_key_file", key.as_str()),
        ("hudi.options.hoodie.write.lock.dynamodb.secretKey", &marked(2)),
        ("hudi.options.hoodie.write.lock.zookeeper.password", &marked(3)),
        ("hudi.options.hoodie.write.lock.x.session.token", &marked(4)),
        ("hudi.options.hoodie.write.lock.x.access.key", &marked(5)),
    ];
    let login = format!("u:{}@zk:2181", marked(30));
    let options =
        [&options[..], &[("hudi.options.hoodie.write.lock.zookeeper.url", login.as_str())]].concat();
    let printed = print::to_toml(&loaded(&options).config).unwrap();
    let server = Running::start(&options).await;
    let mut told = vec![printed];

    // Writers: in the key, the query, the path, labels, extra parameters, and fields that nobody asked for.
    let extra = format!("a={};fs.s3a.secret.key={}", marked(6), marked(7));
    let with_user = format!("s3a://AKIDX:{}@bucket/t", marked(8));
    let query = format!(
        "token={}&basepath={}&extra_params={}&username={}&X-Amz-Signature={}",
        marked(1),
        segment(&with_user),
        segment(&extra),
        segment(&format!("password={}", marked(9))),
        marked(10)
    );
    told.push(server.get(&format!("/v1/hoodie/service/compact?{query}")).await.text);
    told.push(server.get(&format!("/v1/hoodie/service/clean?token={}&basepath=%2Fd", marked(11))).await.text);
    let body = json!({"basePath": "/data/s", "tableName": format!("token={}", marked(12)),
        "extraMetadata": {"aws_secret_access_key": marked(13)}});
    let callback = |key: String, body: serde_json::Value| {
        server
            .http
            .post(format!("{}/v1/hoodie/callback", server.url))
            .header("HUDI-CALLBACK-KEY", key)
            .json(&body)
    };
    server.plan("/data/s", Action::Compaction, T);
    told.push(server.send(callback(marked(1), body)).await.text);
    told.push(server.send(callback(marked(14), json!({"basePath": "/data/s"}))).await.text);

    // A driver: its token, what it reports, its log, what its engine says.
    let job = server.job(1).await;
    let id = server
        .until("/api/v1/instances?live=true&state=active", |l| l["items"].as_array().unwrap().len() == 1)
        .await["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    server.until(&format!("/api/v1/instances/{id}"), |i| i["attempt"]["state"] == "accepted").await;
    let token = {
        use secrecy::ExposeSecret;
        job.token.expose_secret().to_owned()
    };
    for stage in ["start", "call"] {
        server
            .drive(
                &job,
                "leave",
                json!({"run_id": RUN, "stage": stage, "host": format!("u:{}@h", marked(15))}),
            )
            .await
            .ok();
    }
    let url = format!("{}/v1/job/{}/progress", server.url, job.tag);
    told.push(
        server.send(server.http.post(&url).bearer_auth(marked(16)).json(&json!({"run_id": RUN}))).await.text,
    );
    let phase = format!("reads jdbc:mysql://root:{}@db", marked(17));
    told.push(server.drive(&job, "progress", json!({"run_id": RUN, "phase": phase})).await.text);
    let error = [
        format!("java.io.IOException: GET https://h/f?X-Amz-Security-Token={}&a=1 failed", marked(18)),
        format!("cannot use fs.s3a.secret.key={}", marked(19)),
        format!("Authorization: Bearer {}", marked(20)),
    ];
    let log =
        format!("--conf spark.hadoop.fs.s3a.access.key={} \"secretKey\":\"{}\"", marked(21), marked(22));
    server.engine.set_log(&job.tag, &log);
    let end = json!({"run_id": RUN, "outcome": "threw", "exit_code": 3, "error": error, "rows": [format!("pwd={}", marked(23))]});
    told.push(server.drive(&job, "end", end).await.text);
    told.push(server.get(&format!("/api/v1/instances/{id}/logs")).await.text);
    server.engine.end(&job.tag, &format!("failed: password={}", marked(24)));
    server.engine.set_not_ready(Some(NotReady {
        reason: ParkReason::NoEngine,
        detail: format!("cannot reach https://u:{}@spark", marked(25)),
    }));
    server.until(&format!("/api/v1/instances/{id}"), |i| i["n_failed"] == 1).await;

    // People: settings, errors, cursors, headers.
    let settings = json!({"hudi_options": {"hoodie.write.lock.hivemetastore.password": marked(26)}});
    let answer = server.put(&format!("/api/v1/tables/{}/settings", segment("/data/s")), settings).await;
    told.push(answer.text);
    let odd = json!({"table": format!("x://u:{}@h/..", marked(27)), "action": "clean"});
    told.push(server.post("/api/v1/instances", odd).await.text);
    told.push(server.get(&format!("/api/v1/instances?cursor=password%3D{}", marked(28))).await.text);
    told.push(server.get(&format!("/nowhere/{}?token={}", marked(29), marked(29))).await.text);

    let table = server.timelines.table(&base_path("/data/s"), |t| {
        t.is_unreadable = true;
        "/api/v1/tables"
    });
    for path in [
        table,
        "/api/v1/instances",
        "/api/v1/queues",
        "/api/v1/engines",
        "/api/v1/nodes",
        "/readyz",
        "/metrics",
        &format!("/api/v1/instances/{id}"),
        &format!("/api/v1/tables/{}", segment("/data/s")),
        &format!("/api/v1/tables/{}", segment(&with_user)),
    ] {
        told.push(server.get(path).await.text);
    }
    server.stop().await;

    let log = lines.text();
    for line in ["a driver got leave", "Gave leave"] {
        assert!(log.contains(line), "{line} was not kept:\n{log}");
    }
    for (what, text) in told.iter().map(|t| ("answer", t)).chain([("log", &log)]) {
        for secret in (1..=30).map(marked).chain([token.clone()]) {
            if let Some(at) = text.find(&secret) {
                let from = text.floor_char_boundary(at.saturating_sub(200));
                panic!("{secret} is in a {what}: …{}", &text[from..at + secret.len()]);
            }
        }
    }
}
