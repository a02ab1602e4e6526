//! The program itself: its exit codes, its output, its signals.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tms-server"));
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

pub(crate) fn output(args: &[&str], folder: &Path) -> (i32, String, String) {
    let Output { status, stdout, stderr } = program().args(args).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// Starts a server and waits until it serves; returns its address and the rest of its log.
fn serving(args: &[&str], folder: &Path) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let mut child = program()
        .args(["--listen", "127.0.0.1:0"])
        .args(args)
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        if line.contains("Serving") {
            let address =
                line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
            return (child, format!("http://{address}"), log);
        }
        line.clear();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it did not start");
}

pub(crate) fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[expect(clippy::disallowed_methods, reason = "the pause and limit of a wait for a real process")]
pub(crate) fn ended_within(child: &mut Child, most: Duration) -> i32 {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(begun.elapsed() < most, "it did not end within {most:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_faulty_configuration_ends_with_2_and_names_every_fault() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, error) = output(&["--set", "store.knid=x", "--set", "retry.max_attempts=0"], dir.path());
    assert_eq!(code, 2);
    assert!(
        error.contains("store.knid") && error.contains("retry.max_attempts") && error.contains("2 faults"),
        "{error}"
    );
    let (code, _, error) = output(&["--config", "nowhere.toml"], dir.path());
    assert!(
        code == 2 && error.contains("nowhere.toml: No such file") && !error.contains("allowed"),
        "{error}"
    );
    assert_eq!(output(&["--set", "nonsense"], dir.path()).0, 2);
    assert_eq!(output(&["--nonsense"], dir.path()).0, 2);
}

#[test]
fn the_printed_configuration_is_the_one_in_use() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tms.toml"), "[retry]\nmax_attempts = 3\n").unwrap();
    let (code, text, _) = output(&["--print-config", "--listen", "127.0.0.1:7"], dir.path());
    assert_eq!(code, 0);
    assert!(text.contains("max_attempts = 3") && text.contains("listen = \"127.0.0.1:7\""), "{text}");
    assert!(!dir.path().join("tms-data").exists(), "printing made a store");
}

#[test]
fn what_is_generated_goes_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let (code, text, _) = output(&["generate", "openapi"], dir.path());
    assert_eq!(code, 0);
    assert_eq!(text, tms_server::api::openapi_json());
    assert_eq!(output(&["generate", "config-reference"], dir.path()).0, 0);
    assert_eq!(output(&["generate", "preset", "embedded-redb"], dir.path()).0, 0);
    assert_eq!(output(&["generate", "preset", "none"], dir.path()).0, 2);
}

#[tokio::test]
async fn sigterm_ends_it_with_0_and_what_was_acknowledged_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let preset = dir.path().join("tms.toml");
    std::fs::write(&preset, tms_server::config::reference::preset("embedded-redb").unwrap()).unwrap();
    tms_server::assembly::install_tls();
    let http = reqwest::Client::new();
    let (mut child, url, _log) = serving(&[], dir.path());
    let body = serde_json::json!({"basePath": "/data/kept", "tableName": "t"});
    let answer = http.post(format!("{url}/v1/hoodie/callback")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let ready = http.get(format!("{url}/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 200, "without Spark it is ready all the same");
    signal(&child, "-TERM");
    assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0);

    let (mut child, url, _log) = serving(&[], dir.path());
    let tables: serde_json::Value = serde_json::from_str(
        &http.get(format!("{url}/api/v1/tables")).send().await.unwrap().text().await.unwrap(),
    )
    .unwrap();
    assert_eq!(tables["items"][0]["base_path"], "file:/data/kept");
    signal(&child, "-INT");
    assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0);
}

#[tokio::test]
async fn a_start_without_spark_warns_once_raises_the_alarm_and_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("tms.toml"),
        tms_server::config::reference::preset("embedded-redb").unwrap(),
    )
    .unwrap();
    tms_server::assembly::install_tls();
    let (mut child, url, mut log) = serving(&[], dir.path());
    let mut until = |wanted: &str| {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended and never said {wanted}");
        }
        line
    };
    let warned = until("lacks something");
    assert!(warned.contains("WARN") && warned.contains("spark_home"), "{warned}");
    until("engine_trouble");
    let http = reqwest::Client::new();
    let metrics = http.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tms_alerts_standing{kind=\"engine_trouble\"} 1"), "{metrics}");
    let ready = http.get(format!("{url}/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    let body: serde_json::Value = serde_json::from_str(&ready.text().await.unwrap()).unwrap();
    assert!(body["engines"][0]["trouble"].to_string().contains("spark_home"), "{body}");
    signal(&child, "-TERM");
    assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0);
}

#[test]
fn a_cause_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, _, error) = output(&["--listen", &listen], dir.path());
    assert_eq!((code, error.matches("Address already in use").count()), (1, 1), "{error}");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let (code, _, error) = output(&["--listen", "127.0.0.1:0", "--set", "store.path=file/x"], dir.path());
    assert!(code == 1 && error.contains("cannot use the folder"), "{error}");
    assert_eq!(error.matches("(os error").count(), 1, "{error}");
}

#[test]
fn a_second_server_on_one_store_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _, _log) = serving(&[], dir.path());
    let (code, _, error) = output(&["--listen", "127.0.0.1:0"], dir.path());
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("store"), "{error}");
    signal(&child, "-TERM");
    assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0);
}

/// After a kill the former socket may be held for a moment, by a child that has not become its own program.
#[tokio::test(start_paused = true)]
async fn an_address_that_comes_free_soon_is_waited_for_and_one_that_stays_taken_is_told() {
    let former = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = former.local_addr().unwrap().to_string();
    let config = crate::support::loaded(&[("server.listen", listen.as_str())]).config;
    let told = tms_server::server::bind(&config).await.unwrap_err().to_string();
    assert!(told.contains("is another tms-server running"), "{told}");
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move { tms_server::server::bind(&config).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(waiting.try_join_next().is_none());
    drop(former);
    waiting.join_next().await.unwrap().unwrap().unwrap();
}

#[test]
fn json_lines_are_objects() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = program()
        .args(["--listen", "127.0.0.1:0", "--set", "log.format=json"])
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(object["message"].is_string() && object["level"].is_string(), "{line}");
    signal(&child, "-TERM");
    ended_within(&mut child, Duration::from_secs(10));
}

/// What is committed starts as it is; only the port is another.
#[tokio::test]
async fn a_server_starts_on_every_committed_configuration() {
    tms_server::assembly::install_tls();
    let http = reqwest::Client::new();
    for path in ["config/reference.toml", "config/presets/embedded-redb.toml"] {
        let dir = tempfile::tempdir().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        let (mut child, url, _log) = serving(&["--config", file.to_str().unwrap()], dir.path());
        let ready = http.get(format!("{url}/readyz")).send().await.unwrap();
        assert_eq!(ready.status(), 200, "{path}");
        assert!(dir.path().join("tms-data").exists(), "{path}: the store is elsewhere");
        signal(&child, "-TERM");
        assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0, "{path}");
    }
}

/// A writer that stalls in the middle of its request keeps no server.
#[test]
fn sigterm_ends_it_with_0_while_requests_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, url, _log) = serving(&[], dir.path());
    let address = url.strip_prefix("http://").unwrap();
    let request = |rest: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "POST /v1/hoodie/callback HTTP/1.1\r\nHost: {address}\r\n{rest}").unwrap();
        stream
    };
    let open = [
        request("Content-Length: 100000\r\n\r\n{\"hoodieWriteStat\":["),
        request("Transfer-Encoding: chunked\r\n\r\n3\r\n{\"b\r\n"),
        request("Content-"),
    ];
    // One that is answered shows that the ones before it were taken.
    let body = "{\"basePath\":\"/data/t\"}";
    let mut answered = BufReader::new(request(&format!("Content-Length: {}\r\n\r\n{body}", body.len())));
    let mut line = String::new();
    answered.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    signal(&child, "-TERM");
    assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0);
    drop(open);
}
