//! Writers are answered while engines, storage and looks are stuck: a hand-over waits for the store and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tms_core::clock::Timestamp;
use tms_core::engine::scripted::Answer;
use tms_core::error::Error;
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::VersionsSeen;
use tms_core::model::path::BasePath;
use tms_core::timeline::scripted::ScriptedTimelines;
use tms_core::timeline::{Overtaken, Sight, TimelineSource};
use tms_server::api::tables::ADVICE_AT_ONCE_MAX;
use tokio::sync::Semaphore;

use crate::support::{Running, base_path, segment};

const T: &str = "20260101000000000";
/// Longest wait for an answer that must not wait for what is stuck; far below every time limit of a look or submission.
const SOON: Duration = Duration::from_secs(10);

/// Tables whose storage does not answer until it is let.
#[derive(Debug)]
struct Stuck {
    tables: Arc<ScriptedTimelines>,
    gate: Semaphore,
    n_waiting: AtomicUsize,
}

impl Stuck {
    fn new(tables: Arc<ScriptedTimelines>) -> Arc<Self> {
        Arc::new(Self { tables, gate: Semaphore::new(0), n_waiting: AtomicUsize::new(0) })
    }

    async fn wait(&self) {
        self.n_waiting.fetch_add(1, Ordering::SeqCst);
        let passed = self.gate.acquire().await;
        self.n_waiting.fetch_sub(1, Ordering::SeqCst);
        drop(passed.unwrap());
    }

    /// Waits until a call waits for the storage.
    async fn until_stuck(&self) {
        let stuck = async {
            while self.n_waiting.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, stuck).await.expect("no look began");
    }
}

#[async_trait]
impl TimelineSource for Stuck {
    async fn look(&self, path: &BasePath) -> Result<Arc<Sight>, Error> {
        self.wait().await;
        self.tables.look(path).await
    }

    async fn overtaken(&self, path: &BasePath, instant: &Instant) -> Overtaken {
        self.wait().await;
        self.tables.overtaken(path, instant).await
    }

    async fn completed_in_history(
        &self,
        path: &BasePath,
        action: Action,
        instant: &Instant,
    ) -> Result<bool, Error> {
        self.wait().await;
        self.tables.completed_in_history(path, action, instant).await
    }

    async fn sign_of_life(&self, path: &BasePath, instant: &Instant) -> Result<Option<Timestamp>, Error> {
        self.wait().await;
        self.tables.sign_of_life(path, instant).await
    }

    async fn lock_since(&self, path: &BasePath) -> Result<Option<Timestamp>, Error> {
        self.wait().await;
        self.tables.lock_since(path).await
    }

    async fn writes_without_heartbeat(&self, path: &BasePath) -> Result<Vec<String>, Error> {
        self.wait().await;
        self.tables.writes_without_heartbeat(path).await
    }

    async fn versions(&self, path: &BasePath) -> Result<VersionsSeen, Error> {
        self.wait().await;
        self.tables.versions(path).await
    }

    async fn rollbacks_of(&self, path: &BasePath, instant: &Instant) -> Result<Vec<String>, Error> {
        self.wait().await;
        self.tables.rollbacks_of(path, instant).await
    }
}

/// Hands over this table and many others by both protocols, and sees that each is answered and stored.
async fn assert_answers(server: &Running, path: &str) {
    let mut paths: Vec<String> = (0..20).map(|n| format!("/data/other{n}")).collect();
    paths.push(path.to_owned());
    for path in &paths {
        let answered = tokio::time::timeout(SOON, async {
            let by_callback = server.commit(path).await.ok();
            let query = format!("basepath={}&instant={T}", segment(path));
            let by_client = server.get(&format!("/v1/hoodie/service/compact?{query}")).await.ok();
            assert_eq!(by_callback["table"], by_client["table"], "{path}");
            let shown = server.get(&format!("/api/v1/tables/{}", segment(path))).await.ok();
            assert_eq!(shown["id"], by_callback["table"], "{path}");
        });
        answered.await.unwrap_or_else(|_| panic!("{path} was not answered"));
    }
}

#[tokio::test]
async fn writers_are_answered_while_storage_does_not_answer() {
    let mut stuck = None;
    let server = Running::start_with(&[], |tables| {
        let made = Stuck::new(tables);
        stuck = Some(Arc::clone(&made));
        made
    })
    .await;
    let stuck = stuck.unwrap();
    server.plan("/data/stuck", Action::Compaction, T);
    server.commit("/data/stuck").await.ok();
    stuck.until_stuck().await;
    assert_answers(&server, "/data/stuck").await;
    assert!(stuck.n_waiting.load(Ordering::SeqCst) > 0, "the storage had answered");
    assert_eq!(server.engine.calls().submit, 0, "a job was started without a look");
    assert_eq!(server.get("/readyz").await.status, 200);
    // What was handed over meanwhile is worked on once it answers.
    stuck.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    assert_eq!(server.job(1).await.base_path, "/data/stuck");
    server.stop().await;
}

#[tokio::test]
async fn writers_are_answered_while_an_engine_does_not_answer() {
    let server = Running::start(&[]).await;
    server.engine.answer_with(Answer::StallBeforeStart);
    server.plan("/data/busy", Action::Compaction, T);
    server.commit("/data/busy").await.ok();
    server.job(1).await;
    let id = server.only_instance().await["id"].as_str().unwrap().to_owned();
    assert_answers(&server, "/data/busy").await;
    let shown = server.get(&format!("/api/v1/instances/{id}")).await.ok();
    assert_eq!(shown["attempt"]["state"], "called", "the engine had answered: {shown}");
    server.engine.release();
    server.until(&format!("/api/v1/instances/{id}"), |i| i["attempt"]["state"] == "accepted").await;
    server.stop().await;
}

#[tokio::test]
async fn writers_are_answered_while_a_table_cannot_be_read() {
    let server = Running::start(&[]).await;
    server.timelines.table(&base_path("/data/bad"), |t| t.is_unreadable = true);
    server.commit("/data/bad").await.ok();
    let table = format!("/api/v1/tables/{}", segment("/data/bad"));
    server.until(&table, |t| t["trouble"].is_object()).await;
    assert_answers(&server, "/data/bad").await;
    assert_eq!(server.get(&table).await.ok()["touch"], json!(3));
    server.stop().await;
}

#[tokio::test]
async fn advice_on_tables_whose_storage_does_not_answer_takes_bounded_room() {
    let mut stuck = None;
    let server = Running::start_with(&[], |tables| {
        let made = Stuck::new(tables);
        stuck = Some(Arc::clone(&made));
        made
    })
    .await;
    let stuck = stuck.unwrap();
    server.timelines.table(&base_path("/data/stuck"), |_| {});
    let table = server.commit("/data/stuck").await.ok()["table"].as_str().unwrap().to_owned();
    let url = format!("{}/api/v1/tables/{table}/advice", server.url);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..ADVICE_AT_ONCE_MAX * 3 {
        let request = server.http.get(&url);
        asked.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    for _ in 0..ADVICE_AT_ONCE_MAX * 2 {
        let answered = tokio::time::timeout(SOON, asked.join_next()).await.expect("it waited for a table");
        assert_eq!(answered.unwrap().unwrap(), 503);
    }
    let refused = server.get(&format!("/api/v1/tables/{table}/advice")).await;
    assert_eq!(refused.problem(503), "unavailable");
    assert_eq!(asked.len(), ADVICE_AT_ONCE_MAX);
    assert_answers(&server, "/data/stuck").await;
    stuck.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    for status in tokio::time::timeout(SOON, asked.join_all()).await.expect("the room is lost") {
        assert_eq!(status, 200);
    }
    assert_eq!(server.get(&format!("/api/v1/tables/{table}/advice")).await.status, 200);
    server.stop().await;
}
