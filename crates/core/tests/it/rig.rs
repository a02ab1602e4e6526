//! A whole node in one test: everything real but the engine and the tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use secrecy::ExposeSecret;
use tms_core::alert::{Alert, AlertKind, AlertSink};
use tms_core::clock::{Clock, Timestamp};
use tms_core::election::SingleNode;
use tms_core::engine::scripted::{DRIVER_PID, ScriptedEngine};
use tms_core::engine::{Engine, Engines, Job};
use tms_core::error::Error;
use tms_core::manager::attempt::{LeaveAnswer, LeaveAsk, LeaveStage};
use tms_core::manager::request::Announcement;
use tms_core::manager::{ManagerParts, Managers};
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::{JobReport, Progress};
use tms_core::model::id::{EngineName, InstanceId, NodeName, RunId, TableId, Tag};
use tms_core::model::instance::{Instance, InstanceKey, InstanceState, ParkReason};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::policy::{Concurrency, RetryPolicy, TableDefaults, TableSettings};
use tms_core::model::request::Trigger;
use tms_core::model::table::TableRecord;
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

use crate::watched::WatchedTimelines;

/// Instants of the tests, oldest first.
pub(crate) const T1: &str = "20270101000000001";
pub(crate) const T2: &str = "20270101000000002";
pub(crate) const T3: &str = "20270101000000003";

/// Longest wait for a condition, in paused time.
const WAIT_MAX: Duration = Duration::from_secs(90 * 60);

/// Follows tokio's time, which the tests pause.
#[derive(Debug)]
pub(crate) struct TestClock {
    start: tokio::time::Instant,
    /// By how many seconds somebody set the wall clock; the monotonic one knows nothing of it.
    set_by: std::sync::atomic::AtomicI64,
}

impl TestClock {
    /// Makes the wall clock stand so many seconds from where it would be untouched; 0 sets it right.
    pub(crate) fn jump(&self, seconds: i64) {
        self.set_by.store(seconds, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Where the clock of every test begins.
pub(crate) fn day_zero() -> Timestamp {
    DateTime::from_timestamp_millis(1_800_000_000_000).unwrap()
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let set_by = TimeDelta::seconds(self.set_by.load(std::sync::atomic::Ordering::SeqCst));
        day_zero()
            + set_by
            + TimeDelta::milliseconds(i64::try_from(self.start.elapsed().as_millis()).unwrap())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Remembers alarms: those that stand, and how often each began.
#[derive(Debug, Default)]
pub(crate) struct TestAlerts {
    standing: std::sync::Mutex<BTreeMap<(AlertKind, String), String>>,
    begun: std::sync::Mutex<Vec<Alert>>,
}

impl AlertSink for TestAlerts {
    fn raise(&self, alert: &Alert) {
        let key = (alert.kind, alert.subject.clone());
        if self.standing.lock().unwrap().insert(key, alert.text.clone()).is_none() {
            self.begun.lock().unwrap().push(alert.clone());
        }
    }

    fn clear(&self, kind: AlertKind, subject: &str) {
        self.standing.lock().unwrap().remove(&(kind, subject.to_owned()));
    }
}

impl TestAlerts {
    /// Tells whether an alarm of this kind stands.
    pub(crate) fn stands(&self, kind: AlertKind) -> bool {
        self.standing.lock().unwrap().keys().any(|(k, _)| *k == kind)
    }

    /// Returns how many alarms of this kind stand.
    pub(crate) fn n_standing(&self, kind: AlertKind) -> usize {
        self.standing.lock().unwrap().keys().filter(|(k, _)| *k == kind).count()
    }

    /// Forgets everything, as a new process does.
    pub(crate) fn forget(&self) {
        self.standing.lock().unwrap().clear();
    }

    /// Returns how often an alarm of this kind began.
    pub(crate) fn n_begun(&self, kind: AlertKind) -> usize {
        self.begun.lock().unwrap().iter().filter(|a| a.kind == kind).count()
    }

    /// Returns the text of a standing alarm.
    pub(crate) fn text(&self, kind: AlertKind) -> Option<String> {
        self.standing.lock().unwrap().iter().find(|((k, _), _)| *k == kind).map(|(_, text)| text.clone())
    }
}

/// What a rig is made of.
pub(crate) struct Setup {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policies: Policies,
    pub(crate) engines: Engines,
    pub(crate) timelines: Arc<ScriptedTimelines>,
}

/// A node and what it stands on.
pub(crate) struct Rig {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Arc<ScriptedEngine>,
    pub(crate) timelines: Arc<ScriptedTimelines>,
    pub(crate) looks: Arc<WatchedTimelines>,
    pub(crate) managers: Managers,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) alerts: Arc<TestAlerts>,
    pub(crate) policies: Policies,
    pub(crate) wakes: Wakes,
    pub(crate) engines: Engines,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    keep: CancellationToken,
    coalescer_task: JoinSet<()>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Starts a node over what `change` made of the usual parts; [`Rig::engine`] is the engine `default`.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut rig = Self::idle_with(change);
        rig.start_node();
        // The first pass of each Service is over.
        tokio::time::sleep(Duration::from_millis(1)).await;
        rig
    }

    /// As [`Self::start_with`], but no node runs yet.
    pub(crate) fn idle_with(change: impl FnOnce(&mut Setup)) -> Self {
        let engine = ScriptedEngine::new();
        let mut setup = usual_setup(&engine);
        change(&mut setup);
        let Setup { store, policies, engines, timelines } = setup;
        let looks = Arc::new(WatchedTimelines::new(Arc::clone(&timelines)));
        let clock = Arc::new(TestClock { start: tokio::time::Instant::now(), set_by: 0.into() });
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
            timelines: looks.clone(),
            clock: clock.clone(),
            wakes: wakes.clone(),
            rules: PathRules::default(),
            roots: Vec::new(),
            defaults: policies.defaults.clone(),
            writer_wait: Duration::from_secs(5),
        });
        Self {
            store,
            engine,
            timelines,
            looks,
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
        }
    }

    /// Returns what a term of this node starts with.
    pub(crate) fn leader_parts(&self) -> LeaderParts {
        LeaderParts {
            store: Arc::clone(&self.store),
            engines: self.engines.clone(),
            timelines: self.looks.clone(),
            clock: self.clock.clone(),
            alerts: self.alerts.clone(),
            wakes: self.wakes.clone(),
            policies: self.policies.clone(),
        }
    }

    /// Starts the node's leader part, again as after a restart.
    pub(crate) fn start_node(&mut self) {
        self.shutdown = CancellationToken::new();
        let now = self.clock.now();
        let parts = NodeParts {
            leader: self.leader_parts(),
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
    pub(crate) async fn stop_node(&mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends the leader part as SIGKILL does: whatever is under way stops where it is.
    pub(crate) async fn kill_node(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Kills and starts the node.
    pub(crate) async fn crash(&mut self) {
        self.kill_node().await;
        self.start_node();
    }

    /// Ends everything.
    pub(crate) async fn stop(mut self) {
        self.stop_node().await;
        self.keep.cancel();
        while self.coalescer_task.join_next().await.is_some() {}
    }

    pub(crate) fn path(name: &str) -> BasePath {
        PathRules::default().canonical(&format!("/lake/{name}")).unwrap()
    }

    pub(crate) fn id(name: &str) -> TableId {
        TableId::of(&Self::path(name))
    }

    pub(crate) fn key(name: &str, action: Action, instant: &str) -> InstanceKey {
        InstanceKey { table: Self::id(name), action, instant: Some(instant.parse().unwrap()) }
    }

    pub(crate) fn next_clean(name: &str) -> InstanceKey {
        InstanceKey { table: Self::id(name), action: Action::Clean, instant: None }
    }

    pub(crate) fn table<T>(&self, name: &str, change: impl FnOnce(&mut ScriptedTable) -> T) -> T {
        self.timelines.table(&Self::path(name), change)
    }

    /// A writer's commit callback.
    pub(crate) async fn callback(&self, name: &str) {
        self.hand_over(name, Vec::new()).await;
    }

    pub(crate) async fn hand_over(&self, name: &str, hints: Vec<(Action, String)>) {
        self.table(name, |_| ());
        self.managers.requests.hand_over(announcement(name, hints)).await.unwrap();
    }

    /// A writer plans a service and commits.
    pub(crate) async fn planned(&self, name: &str, action: Action, instant_text: &str) -> InstanceKey {
        self.table(name, |t| t.plan(action, &instant(instant_text)));
        self.callback(name).await;
        Self::key(name, action, instant_text)
    }

    /// Changes the settings of a known table.
    pub(crate) async fn settings(&self, name: &str, change: impl FnOnce(&mut TableSettings)) {
        let record = self.record(name).await;
        let mut settings = record.table.settings.clone();
        change(&mut settings);
        self.managers.tables.update_settings(record.table.id, settings, "test").await.unwrap();
    }

    pub(crate) async fn record(&self, name: &str) -> TableRecord {
        self.managers.tables.load(Self::id(name)).await.unwrap()
    }

    pub(crate) async fn find(&self, key: &InstanceKey) -> Option<Instance> {
        self.store.find_instance(key).await.unwrap()
    }

    pub(crate) async fn get(&self, id: InstanceId) -> Instance {
        self.store.get_instance(id).await.unwrap().unwrap()
    }

    /// Returns the states that an instance went through, by the words of its events.
    pub(crate) async fn states(&self, id: InstanceId) -> Vec<String> {
        self.store.events(id).await.unwrap().into_iter().map(|e| e.to).collect()
    }

    /// Waits until the instance is as wanted; panics with its state and events when that never comes.
    pub(crate) async fn until(
        &self,
        key: &InstanceKey,
        what: &str,
        wanted: impl Fn(&Instance) -> bool,
    ) -> Instance {
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
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) async fn until_state(&self, key: &InstanceKey, word: &str) -> Instance {
        self.until(key, word, |i| i.state.as_str() == word).await
    }

    pub(crate) async fn until_attempt(&self, key: &InstanceKey, word: &str) -> Instance {
        self.until(key, word, |i| i.attempt_state().is_some_and(|s| s.as_str() == word)).await
    }

    pub(crate) async fn until_parked(&self, key: &InstanceKey, wanted: ParkReason) -> Instance {
        let is_it =
            |i: &Instance| matches!(i.state, InstanceState::Parked { reason, .. } if reason == wanted);
        self.until(key, &format!("parked({})", wanted.as_str()), is_it).await
    }

    /// Waits until something holds; panics when it never does.
    pub(crate) async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        while !holds() {
            assert!(tokio::time::Instant::now() < deadline, "never {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the time since the rig was made, in seconds.
    pub(crate) fn clock_secs(&self) -> u64 {
        self.clock.monotonic().as_secs()
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits for the nth submission to the engine `default` and returns its job.
    pub(crate) async fn job(&self, n: usize) -> Job {
        let wanted = self.engine.wait_for_submits(n as u64);
        assert!(tokio::time::timeout(WAIT_MAX, wanted).await.is_ok(), "submission {n} never came");
        self.engine.jobs()[n - 1].clone()
    }

    pub(crate) async fn try_ask(
        &self,
        job: &Job,
        run: &RunId,
        stage: LeaveStage,
    ) -> Result<LeaveAnswer, Error> {
        self.managers.attempts.leave(&leave_ask(job, run, stage)).await
    }

    pub(crate) async fn ask(&self, job: &Job, run: &RunId, stage: LeaveStage) -> LeaveAnswer {
        self.try_ask(job, run, stage).await.unwrap()
    }

    /// Asks and panics unless the answer is no, for this reason.
    pub(crate) async fn refused(&self, job: &Job, run: &RunId, stage: LeaveStage, wanted: &str) {
        let answer = self.ask(job, run, stage).await;
        assert!(
            matches!(&answer, LeaveAnswer::Refused { reason, .. } if reason == wanted),
            "{wanted}: {answer:?}"
        );
    }

    /// Asks for leave twice, as a driver does, and panics when it is refused.
    pub(crate) async fn take_leave(&self, job: &Job, run: &RunId) {
        for stage in [LeaveStage::Start, LeaveStage::Call] {
            let answer = self.ask(job, run, stage).await;
            assert!(matches!(answer, LeaveAnswer::Given(_)), "{stage:?}: {answer:?}");
        }
    }

    /// Waits for the nth job, takes leave with run `n` and begins on the timeline.
    pub(crate) async fn begun(&self, n: usize, name: &str, action: Action, instant_text: &str) -> Job {
        let job = self.job(n).await;
        self.take_leave(&job, &run_id(n)).await;
        self.table(name, |t| t.inflight(action, &instant(instant_text)));
        job
    }

    /// The driver speaks; returns whether it was told to stop.
    pub(crate) async fn speak(&self, job: &Job, run: &RunId, percent: u8) -> bool {
        let progress = Progress { phase: "running".to_owned(), tasks_done: 1, tasks_total: 2, percent };
        self.managers.attempts.progress(&job.tag, job.token.expose_secret(), run, progress).await.unwrap()
    }

    pub(crate) async fn report(&self, job: &Job, run: &RunId, outcome: &str, exit_code: i32, error: &[&str]) {
        let report = report_of(outcome, exit_code, error);
        let token = job.token.expose_secret();
        self.managers.attempts.end(&job.tag, token, run, report).await.unwrap();
    }

    /// The job reports this end and ends.
    pub(crate) async fn ends(&self, job: &Job, n: usize, outcome: &str, exit_code: i32, error: &[&str]) {
        self.report(job, &run_id(n), outcome, exit_code, error).await;
        self.engine.end(&job.tag, &format!("exit {exit_code}"));
    }

    /// The job completes its plan and ends.
    pub(crate) async fn completes(
        &self,
        job: &Job,
        n: usize,
        name: &str,
        action: Action,
        instant_text: &str,
    ) {
        self.table(name, |t| t.complete(action, &instant(instant_text)));
        self.ends(job, n, "returned", 0, &[]).await;
    }
}

fn usual_setup(engine: &Arc<ScriptedEngine>) -> Setup {
    let defaults = TableDefaults { concurrency: Some(Concurrency::Locked), ..TableDefaults::default() };
    let retry = RetryPolicy {
        max_attempts: 3,
        backoff_first: Duration::from_secs(10),
        backoff_max: Duration::from_secs(100),
    };
    let policies =
        Policies { defaults, retry, job_url: "http://127.0.0.1:1".to_owned(), ..Policies::default() };
    let as_engine: Arc<dyn Engine> = engine.clone();
    let engines: Engines = [("default".parse::<EngineName>().unwrap(), as_engine)].into();
    Setup { store: memory_store(), policies, engines, timelines: Arc::default() }
}

pub(crate) fn announcement(name: &str, hints: Vec<(Action, String)>) -> Announcement {
    Announcement {
        base_path: format!("/lake/{name}"),
        database: None,
        table_name: Some(name.to_owned()),
        hints,
        queue: None,
        execution_engine: None,
        trigger: Trigger::Callback,
        waits: true,
    }
}

pub(crate) fn leave_ask(job: &Job, run: &RunId, stage: LeaveStage) -> LeaveAsk {
    LeaveAsk {
        tag: job.tag.clone(),
        token: job.token.expose_secret().to_owned(),
        run_id: run.clone(),
        stage,
        pid: Some(DRIVER_PID),
        host: Some("engine".to_owned()),
    }
}

pub(crate) fn report_of(outcome: &str, exit_code: i32, error: &[&str]) -> JobReport {
    JobReport {
        outcome: outcome.to_owned(),
        exit_code,
        error: error.iter().map(|e| (*e).to_owned()).collect(),
        rows: Vec::new(),
        at: day_zero(),
    }
}

pub(crate) fn run_id(n: usize) -> RunId {
    format!("{n:032x}").parse().unwrap()
}

pub(crate) fn instant(text: &str) -> Instant {
    text.parse().unwrap()
}

pub(crate) fn attempt_number(tag: &Tag) -> u32 {
    tag.attempt()
}
