//! A server in the test's process, with tables and an engine under the test's control, and the program beside it.

use std::io::{BufRead, Read, Write};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tms_core::clock::SystemClock;
use tms_core::engine::scripted::ScriptedEngine;
use tms_core::model::action::{Action, Instant};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::store::memory::memory_store;
use tms_core::timeline::TimelineSource;
use tms_core::timeline::scripted::ScriptedTimelines;
use tms_server::assembly::{Backends, install_tls};
use tms_server::config::{self, Sources};
use tms_server::server::{Server, bind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) engine: Arc<ScriptedEngine>,
    pub(crate) timelines: Arc<ScriptedTimelines>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The output as JSON, once the exit code is 0.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs the program with an environment of its own.
pub(crate) fn tms_with(environment: &[(&str, &str)], args: &[&str]) -> Said {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_tms"))
        .args(args)
        .env_clear()
        .env("USER", "tester")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
}

impl Running {
    pub(crate) async fn start(flags: &[(&str, &str)]) -> Self {
        Self::start_on(flags, |timelines| timelines).await
    }

    /// Starts a server that reads tables through something else.
    pub(crate) async fn start_on(
        flags: &[(&str, &str)],
        source: impl FnOnce(Arc<ScriptedTimelines>) -> Arc<dyn TimelineSource>,
    ) -> Self {
        install_tls();
        let mut all = vec![("server.listen".to_owned(), "127.0.0.1:0".to_owned())];
        all.extend(flags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let loaded =
            config::load(&Sources { flags: all, ..Sources::default() }).unwrap_or_else(|e| panic!("{e}"));
        let engine = ScriptedEngine::new();
        let timelines = Arc::new(ScriptedTimelines::default());
        let backends = Backends {
            store: memory_store(),
            engines: [("default".parse().unwrap(), Arc::clone(&engine) as _)].into(),
            timelines: source(Arc::clone(&timelines)),
        };
        let listener = bind(&loaded.config).await.unwrap();
        let server =
            Server::with_backends(&loaded, listener, backends, Arc::new(SystemClock::default())).unwrap();
        let url = format!("http://{}", server.address());
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let stopped = stop.clone();
        task.spawn(async move { server.run(stopped).await.unwrap() });
        Self { url, engine, timelines, stop, task }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.unwrap();
        }
    }

    /// Runs the program against this server.
    pub(crate) async fn tms(&self, args: &[&str]) -> Said {
        let url = self.url.clone();
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let run = move || {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            tms_with(&[("TMS_URL", &url)], &args)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// Runs the program again and again until its JSON is as wanted.
    pub(crate) async fn until(&self, args: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let said = self.tms(args).await;
                if said.code == 0 {
                    let value = said.json();
                    if wanted(&value) {
                        return value;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        found.unwrap_or_else(|_| panic!("{args:?} did not become as wanted"))
    }

    pub(crate) fn plan(&self, path: &str, action: Action, instant: &str) {
        self.timelines.table(&base_path(path), |t| t.plan(action, &instant_of(instant)));
    }

    /// Completes the plan and ends its job as soon as it was submitted.
    pub(crate) async fn complete(&self, path: &str, action: Action, instant: &str) {
        tokio::time::timeout(PATIENCE, self.engine.wait_for_submits(1)).await.expect("nothing was submitted");
        self.timelines.table(&base_path(path), |t| t.complete(action, &instant_of(instant)));
        let tag = self.engine.tags().pop().unwrap();
        self.engine.end(&tag, "exit 0");
    }
}

/// A server that takes connections and never answers. It lasts as long as what is returned.
pub(crate) fn silent_server() -> (String, std::net::TcpListener) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    (format!("http://{}", listener.local_addr().unwrap()), listener)
}

/// A server that gives these answers, one for each request, whatever is asked.
pub(crate) fn canned_server(answers: Vec<(u16, Value)>) -> (String, std::thread::JoinHandle<()>) {
    let (url, listener) = silent_server();
    let serve = move || {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            read_request(&mut stream);
            let body = body.to_string();
            let kind = if status < 400 { "application/json" } else { "application/problem+json" };
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    };
    (url, std::thread::spawn(serve))
}

fn read_request(stream: &mut std::net::TcpStream) {
    let mut reader = std::io::BufReader::new(stream);
    let mut n_body = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            n_body = n.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; n_body]).unwrap();
}

pub(crate) fn base_path(text: &str) -> BasePath {
    PathRules::default().canonical(text).unwrap()
}

fn instant_of(text: &str) -> Instant {
    text.parse().unwrap()
}
