//! A whole node in one test: everything real but the engine and the tables.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use secrecy::ExposeSecret;
use tms_core::alert::{Alert, AlertKind, AlertSink};
use tms_core::clock::{Clock, Timestamp};
use tms_core::election::SingleNode;
use tms_core::engine::scripted::ScriptedEngine;
use tms_core::engine::{Engine, Engines, Job};
use tms_core::manager::attempt::{LeaveAnswer, LeaveAsk, LeaveStage};
use tms_core::manager::request::Announcement;
use tms_core::manager::{ManagerParts, Managers};
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::JobReport;
use tms_core::model::id::{EngineName, NodeName, RunId, TableId, Tag};
use tms_core::model::instance::{Instance, InstanceKey};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::policy::{Concurrency, RetryPolicy, TableDefaults};
use tms_core::model::request::Trigger;
use tms_core::service::Leading;
use tms_core::service::leader::{LeaderParts, Policies};
use tms_core::service::node::{NodeParts, run_node};
use tms_core::store::coalescer::{Coalescer, CoalescerLimits};
use tms_core::store::memory::memory_store;
use tms_core::store::{NodeRow, Store};
use tms_core::timeline::scripted::{ScriptedTable, ScriptedTimelines};
use tms_core::wake::Wakes;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest wait for a condition, in paused time.
const WAIT_MAX: Duration = Duration::from_secs(4 * 3600);

/// Follows tokio's time, which the tests pause.
#[derive(Debug)]
pub struct TestClock {
    start: tokio::time::Instant,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let base = DateTime::from_timestamp_millis(1_800_000_000_000).unwrap();
        base + TimeDelta::milliseconds(i64::try_from(self.start.elapsed().as_millis()).unwrap())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Remembers alarms.
#[derive(Debug, Default)]
pub struct TestAlerts {
    raised: std::sync::Mutex<Vec<Alert>>,
}

impl AlertSink for TestAlerts {
    fn raise(&self, alert: &Alert) {
        self.raised.lock().unwrap().push(alert.clone());
    }

    fn clear(&self, _kind: AlertKind, _subject: &str) {}
}

impl TestAlerts {
    pub fn has(&self, kind: AlertKind) -> bool {
        self.raised.lock().unwrap().iter().any(|a| a.kind == kind)
    }
}

/// A node and what it stands on.
pub struct Rig {
    pub store: Arc<dyn Store>,
    pub engine: Arc<ScriptedEngine>,
    pub timelines: Arc<ScriptedTimelines>,
    pub managers: Managers,
    pub clock: Arc<TestClock>,
    pub alerts: Arc<TestAlerts>,
    pub policies: Policies,
    wakes: Wakes,
    engines: Engines,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    keep: CancellationToken,
    coalescer_task: JoinSet<()>,
}

impl Rig {
    pub async fn start() -> Self {
        Self::start_over(memory_store()).await
    }

    /// Starts a node over a store that may have a past.
    pub async fn start_over(store: Arc<dyn Store>) -> Self {
        let defaults = TableDefaults { concurrency: Some(Concurrency::Locked), ..TableDefaults::default() };
        let retry = RetryPolicy {
            max_attempts: 3,
            backoff_first: Duration::from_secs(10),
            backoff_max: Duration::from_secs(100),
        };
        let policies =
            Policies { defaults: defaults.clone(), retry, job_url: "http://127.0.0.1:1".to_owned(), ..Policies::default() };
        let engine = ScriptedEngine::new();
        let as_engine: Arc<dyn Engine> = engine.clone();
        let engines: Engines = [("default".parse::<EngineName>().unwrap(), as_engine)].into();
        let timelines = Arc::new(ScriptedTimelines::default());
        let clock = Arc::new(TestClock { start: tokio::time::Instant::now() });
        let wakes = Wakes::default();
        let keep = CancellationToken::new();
        let (coalescer, task) = Coalescer::new(Arc::clone(&store) as _, CoalescerLimits::default());
        let mut coalescer_task = JoinSet::new();
        let until = keep.clone();
        coalescer_task.spawn(async move { task.run(until).await });
        let managers = Managers::new(&ManagerParts {
            store: Arc::clone(&store),
            coalescer,
            engines: engines.clone(),
            timelines: timelines.clone(),
            clock: clock.clone(),
            wakes: wakes.clone(),
            rules: PathRules::default(),
            roots: Vec::new(),
            defaults,
            writer_wait: Duration::from_secs(5),
        });
        let mut rig = Self {
            store,
            engine,
            timelines,
            managers,
            clock,
            alerts: Arc::new(TestAlerts::default()),
            policies,
            wakes,
            engines,
            shutdown: CancellationToken::new(),
            tasks: JoinSet::new(),
            keep,
            coalescer_task,
        };
        rig.start_node();
        rig
    }

    /// Starts the node's leader part again, as after a restart.
    pub fn start_node(&mut self) {
        self.shutdown = CancellationToken::new();
        let now = self.clock.now();
        let parts = NodeParts {
            leader: LeaderParts {
                store: Arc::clone(&self.store),
                engines: self.engines.clone(),
                timelines: self.timelines.clone(),
                clock: self.clock.clone(),
                alerts: self.alerts.clone(),
                wakes: self.wakes.clone(),
                policies: self.policies.clone(),
            },
            election: Arc::new(SingleNode::default()),
            node: NodeRow {
                name: "n1".parse::<NodeName>().unwrap(),
                start_id: "1".to_owned(),
                url: None,
                program_version: "0".to_owned(),
                started_at: now,
                seen_at: now,
            },
            leading: Arc::new(Leading::default()),
        };
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(run_node(parts, shutdown));
    }

    /// Ends the leader part cleanly.
    pub async fn stop_node(&mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends everything.
    pub async fn stop(mut self) {
        self.stop_node().await;
        self.keep.cancel();
        while self.coalescer_task.join_next().await.is_some() {}
    }

    pub fn path(name: &str) -> BasePath {
        PathRules::default().canonical(&format!("/lake/{name}")).unwrap()
    }

    pub fn table<T>(&self, name: &str, change: impl FnOnce(&mut ScriptedTable) -> T) -> T {
        self.timelines.table(&Self::path(name), change)
    }

    /// A writer's commit callback.
    pub async fn callback(&self, name: &str) {
        self.hand_over(name, Vec::new()).await;
    }

    pub async fn hand_over(&self, name: &str, hints: Vec<(Action, String)>) {
        let announcement = Announcement {
            base_path: format!("/lake/{name}"),
            database: None,
            table_name: Some(name.to_owned()),
            hints,
            queue: None,
            execution_engine: None,
            trigger: Trigger::Callback,
            waits: true,
        };
        self.managers.requests.hand_over(announcement).await.unwrap();
    }

    pub fn key(name: &str, action: Action, instant: &str) -> InstanceKey {
        InstanceKey { table: TableId::of(&Self::path(name)), action, instant: Some(instant.parse().unwrap()) }
    }

    pub async fn find(&self, key: &InstanceKey) -> Option<Instance> {
        self.store.find_instance(key).await.unwrap()
    }

    /// Waits until the instance is as wanted; panics with its state and events when that never comes.
    pub async fn until(&self, key: &InstanceKey, what: &str, wanted: impl Fn(&Instance) -> bool) -> Instance {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        loop {
            let found = self.find(key).await;
            if let Some(instance) = found.as_ref().filter(|i| wanted(i)) {
                return instance.clone();
            }
            if tokio::time::Instant::now() > deadline {
                let events = match &found {
                    Some(i) => self.store.events(i.id).await.unwrap(),
                    None => Vec::new(),
                };
                panic!("never {what}: {found:#?}\n{events:#?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn until_state(&self, key: &InstanceKey, word: &str) -> Instance {
        self.until(key, word, |i| i.state.as_str() == word).await
    }

    /// Waits for the nth submission and returns its job.
    pub async fn job(&self, n: usize) -> Job {
        self.engine.wait_for_submits(n as u64).await;
        self.engine.jobs()[n - 1].clone()
    }

    pub async fn ask(&self, job: &Job, run: &RunId, stage: LeaveStage) -> LeaveAnswer {
        let ask = LeaveAsk {
            tag: job.tag.clone(),
            token: job.token.expose_secret().to_owned(),
            run_id: run.clone(),
            stage,
            pid: None,
            host: None,
        };
        self.managers.attempts.leave(&ask).await.unwrap()
    }

    /// Asks for leave twice, as a driver does, and panics when it is refused.
    pub async fn take_leave(&self, job: &Job, run: &RunId) {
        for stage in [LeaveStage::Start, LeaveStage::Call] {
            let answer = self.ask(job, run, stage).await;
            assert!(matches!(answer, LeaveAnswer::Given(_)), "{answer:?}");
        }
    }

    pub async fn report(&self, job: &Job, run: &RunId, outcome: &str, exit_code: i32, error: &[&str]) {
        let report = JobReport {
            outcome: outcome.to_owned(),
            exit_code,
            error: error.iter().map(|e| (*e).to_owned()).collect(),
            rows: Vec::new(),
            at: self.clock.now(),
        };
        let token = job.token.expose_secret();
        self.managers.attempts.end(&job.tag, token, run, report).await.unwrap();
    }
}

pub fn run_id(n: u8) -> RunId {
    format!("{n:032x}").parse().unwrap()
}

pub fn instant(text: &str) -> Instant {
    text.parse().unwrap()
}

pub fn attempt_number(tag: &Tag) -> u32 {
    tag.attempt()
}
