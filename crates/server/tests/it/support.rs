//! A server in the test's process, with a store in memory, an engine and tables under the test's control.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde_json::Value;
use tms_core::clock::SystemClock;
use tms_core::engine::scripted::ScriptedEngine;
use tms_core::engine::{Engines, Job};
use tms_core::model::action::{Action, Instant};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::store::memory::memory_store;
use tms_core::timeline::TimelineSource;
use tms_core::timeline::scripted::ScriptedTimelines;
use tms_server::assembly::{Backends, install_tls};
use tms_server::config::log::LogConfig;
use tms_server::config::{self, Loaded, Sources};
use tms_server::server::{Server, ServerError, bind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) engine: Arc<ScriptedEngine>,
    pub(crate) timelines: Arc<ScriptedTimelines>,
    pub(crate) http: reqwest::Client,
    stop: CancellationToken,
    task: JoinSet<Result<(), ServerError>>,
}

/// An answer with its body as text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The body, once the status is 200.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The code, once the status is this one.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()["code"].as_str().expect("a problem has a code").to_owned()
    }
}

/// Reads a configuration of flags alone.
pub(crate) fn loaded(flags: &[(&str, &str)]) -> Loaded {
    let mut all = vec![("server.listen".to_owned(), "127.0.0.1:0".to_owned())];
    all.extend(flags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    config::load(&Sources { flags: all, ..Sources::default() }).unwrap_or_else(|e| panic!("{e}"))
}

impl Running {
    pub(crate) async fn start(flags: &[(&str, &str)]) -> Self {
        Self::start_with(flags, |timelines| timelines).await
    }

    /// Starts a server that reads tables through something in between.
    pub(crate) async fn start_with(
        flags: &[(&str, &str)],
        between: impl FnOnce(Arc<ScriptedTimelines>) -> Arc<dyn TimelineSource>,
    ) -> Self {
        install_tls();
        let loaded = loaded(flags);
        let engine = ScriptedEngine::new();
        let timelines = Arc::new(ScriptedTimelines::default());
        let engines: Engines = [("default".parse().unwrap(), Arc::clone(&engine) as _)].into();
        let between = between(Arc::clone(&timelines));
        let backends = Backends { store: memory_store(), engines, timelines: between };
        let listener = bind(&loaded.config).await.unwrap();
        let server =
            Server::with_backends(&loaded, listener, backends, Arc::new(SystemClock::default())).unwrap();
        let url = format!("http://{}", server.address());
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(server.run(stop.clone()));
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { url, engine, timelines, http, stop, task }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.unwrap().unwrap();
        }
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let answer = request.send().await.unwrap();
        Answer { status: answer.status().as_u16(), text: answer.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.http.get(format!("{}{path}", self.url))).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.http.post(format!("{}{path}", self.url)).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.http.put(format!("{}{path}", self.url)).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.http.delete(format!("{}{path}", self.url))).await
    }

    /// A driver's request.
    pub(crate) async fn drive(&self, job: &Job, route: &str, body: Value) -> Answer {
        use secrecy::ExposeSecret;
        let url = format!("{}/v1/job/{}/{route}", self.url, job.tag);
        self.send(self.http.post(url).bearer_auth(job.token.expose_secret()).json(&body)).await
    }

    /// Waits until an instance has this state.
    pub(crate) async fn until_state(&self, id: &str, state: &str) -> Value {
        self.until(&format!("/api/v1/instances/{id}"), |i| i["state"] == state).await
    }

    /// The only instance, once there is one.
    pub(crate) async fn only_instance(&self) -> Value {
        let list = self.until("/api/v1/instances", |l| !l["items"].as_array().unwrap().is_empty()).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
        list["items"][0].clone()
    }

    /// A writer's callback for this table.
    pub(crate) async fn commit(&self, path: &str) -> Answer {
        let body = serde_json::json!({"commitTime": "20260101000000000", "tableName": "t", "basePath": path});
        self.post("/v1/hoodie/callback", body).await
    }

    /// Puts a plan on a table's timeline.
    pub(crate) fn plan(&self, path: &str, action: Action, instant: &str) {
        self.timelines.table(&base_path(path), |t| t.plan(action, &instant_of(instant)));
    }

    /// The answer to a GET, once it is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let answer = self.get(path).await;
                if answer.status == 200 {
                    last = answer.json();
                    if wanted(&last) {
                        return last.clone();
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        found.unwrap_or_else(|_| panic!("{path} did not become as wanted"))
    }

    /// Waits until the n-th job was submitted, and returns it.
    pub(crate) async fn job(&self, n: u64) -> Job {
        tokio::time::timeout(PATIENCE, self.engine.wait_for_submits(n)).await.expect("nothing was submitted");
        self.engine.jobs().last().cloned().expect("a job")
    }
}

pub(crate) fn base_path(text: &str) -> BasePath {
    PathRules::default().canonical(text).unwrap()
}

pub(crate) fn instant_of(text: &str) -> Instant {
    text.parse().unwrap()
}

/// A text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Log lines, kept for the test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn every_level() -> LogConfig {
    LogConfig { level: "trace".to_owned(), ..LogConfig::default() }
}

/// While there is one subscriber only, a place in the code that another thread comes to first, without one, is taken for
/// one that nobody listens to.
static SECOND: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tms_server::logging::subscriber(&every_level(), std::io::sink)));

/// Keeps all log lines of this thread, at every level. The runtime of a test has one thread.
pub(crate) fn keep_lines() -> (Lines, tracing::subscriber::DefaultGuard) {
    LazyLock::force(&SECOND);
    let lines = Lines::default();
    let made = lines.clone();
    let config = every_level();
    let subscriber = tms_server::logging::subscriber(&config, move || made.clone());
    (lines, tracing::subscriber::set_default(subscriber))
}
