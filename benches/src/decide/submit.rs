//! How long a new instance takes to its submission while many others wait: a node with a full engine and its queue, and
//! another engine with room.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use chrono::TimeDelta;
use tms_core::clock::{Clock, SystemClock, Timestamp};
use tms_core::engine::{
    Capabilities, Engine, Engines, Force, Found, Job, JobNeed, JobRef, JobState, LivingJob, LogTail,
    NotReady, SubmitOutcome,
};
use tms_core::error::Error;
use tms_core::model::action::Action;
use tms_core::model::id::{EngineName, InstanceId, QueueName, Tag};
use tms_core::model::queue::Queue;
use tms_core::store::Store;

use crate::day::lake::Lake;
use crate::fill;
use crate::node::{self, Node, Parts};
use crate::raw::Raw;
use crate::report::{Report, Side, quantile};
use crate::stores::Kind;

/// Instances that wait for the full engine, each on a table of its own.
const QUEUED: usize = 10_000;
/// Instances that are measured, and their pace: slow enough that they do not wait for each other.
const MEASURED: usize = 300;
const PACE: Duration = Duration::from_millis(20);
const SYNCS: usize = 500;
const LOOKED_MAX: Duration = Duration::from_secs(300);
const SUBMITTED_MAX: Duration = Duration::from_secs(30);

/// The wall clock in full precision; the machine's is cut to milliseconds, which is what is measured here.
#[derive(Debug, Default)]
struct FineClock {
    monotonic: SystemClock,
}

impl Clock for FineClock {
    fn now(&self) -> Timestamp {
        fill::day_zero() + TimeDelta::from_std(self.monotonic.monotonic()).unwrap_or(TimeDelta::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.monotonic.monotonic()
    }
}

/// An engine that notes when it was called; its jobs run for ever.
#[derive(Debug)]
struct Probe {
    running_max: u32,
    clock: Arc<FineClock>,
    called: Mutex<HashMap<InstanceId, Timestamp>>,
}

impl Probe {
    fn new(running_max: u32, clock: &Arc<FineClock>) -> Arc<Self> {
        Arc::new(Self { running_max, clock: Arc::clone(clock), called: Mutex::default() })
    }

    fn called(&self) -> HashMap<InstanceId, Timestamp> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Engine for Probe {
    fn kind(&self) -> &'static str {
        "probe"
    }

    fn families(&self) -> &'static [&'static str] {
        &[]
    }

    fn capabilities(&self) -> Capabilities {
        let long = Duration::from_secs(3600);
        Capabilities {
            is_fenced: true,
            finds_by_tag: true,
            refuses_duplicates: true,
            has_logs: false,
            is_simulation: true,
            settle: Duration::ZERO,
            running_max: self.running_max,
            heartbeat_silence: long,
            run_timeout: long,
            submit_timeout: long,
        }
    }

    async fn ready(&self, _need: JobNeed) -> Result<(), NotReady> {
        Ok(())
    }

    async fn health(&self) -> Result<(), NotReady> {
        Ok(())
    }

    async fn submit(&self, job: &Job) -> SubmitOutcome {
        let now = self.clock.now();
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        called.entry(job.tag.instance()).or_insert(now);
        SubmitOutcome::Accepted(job.tag.to_string())
    }

    async fn find(&self, tag: &Tag, _handle: Option<&str>) -> Found {
        Found { state: JobState::Running, handle: Some(tag.to_string()) }
    }

    async fn living(&self) -> Result<Vec<LivingJob>, Error> {
        // The store is new when its node begins, so a job of this engine is one that it knows.
        Ok(Vec::new())
    }

    async fn poll(&self, jobs: &[JobRef]) -> Vec<JobState> {
        jobs.iter().map(|_| JobState::Running).collect()
    }

    async fn cancel(&self, _job: &JobRef, _force: Force) -> Result<(), Error> {
        Ok(())
    }

    async fn logs(&self, _job: &JobRef, _bytes_max: usize) -> Result<LogTail, Error> {
        Ok(LogTail::default())
    }
}

/// Measures it on a store in `folder`.
///
/// # Errors
/// The node cannot be put together, or does not submit.
pub(crate) async fn measure(kind: Kind, folder: &Path, report: &mut Report) -> Result<()> {
    let mut raw = Raw::new(folder)?;
    let before = quantile(&raw.single_syncs(SYNCS)?, 0.99);
    let clock = Arc::new(FineClock::default());
    let paths = (0..(QUEUED + MEASURED) as u64).map(fill::path).collect::<Result<Vec<_>>>()?;
    let store = node::store(kind, folder).await?;
    let (full, free) = (Probe::new(1, &clock), Probe::new(1_000, &clock));
    queues(&store).await?;
    node::register(
        &store,
        &paths,
        clock.now(),
        |number| {
            if number < QUEUED { name("full") } else { name("free") }
        },
    )
    .await?;
    let lake = Arc::new(Lake::new(&paths));
    let engines: Engines = BTreeMap::from([
        (engine_name("full")?, Arc::clone(&full) as Arc<dyn Engine>),
        (engine_name("free")?, Arc::clone(&free) as Arc<dyn Engine>),
    ]);
    let parts = Parts { store: Arc::clone(&store), timelines: lake.clone(), engines, clock: clock.clone() };
    let node = Node::start(&parts)?;
    for (number, path) in paths.iter().enumerate().take(QUEUED) {
        lake.plan(number, Action::Compaction, &fill::instant(number as u64)?, Duration::ZERO);
        node.managers.requests.hand_over(node::callback(path)).await.context("cannot hand over")?;
    }
    until_looked(&store).await?;
    let mut answered = Vec::new();
    for (number, path) in paths.iter().enumerate().skip(QUEUED) {
        lake.plan(number, Action::Compaction, &fill::instant(number as u64)?, Duration::ZERO);
        node.managers.requests.hand_over(node::callback(path)).await.context("cannot hand over")?;
        answered.push((tms_core::model::id::TableId::of(path), clock.now()));
        tokio::time::sleep(PACE).await;
    }
    let deadline = clock.monotonic() + SUBMITTED_MAX;
    while free.called().len() < MEASURED {
        ensure!(clock.monotonic() < deadline, "only {} of {MEASURED} were submitted", free.called().len());
        tokio::time::sleep(PACE).await;
    }
    let (mut from_made, mut from_answer) = (Vec::new(), Vec::new());
    let millis = |time: TimeDelta| time.as_seconds_f64() * 1e3;
    let answered: HashMap<_, _> = answered.into_iter().collect();
    for (id, called) in free.called() {
        let instance = store.get_instance(id).await.context("cannot read")?.context("an instance is gone")?;
        from_made.push(millis(called - instance.created_at));
        if let Some(at) = answered.get(&instance.key.table) {
            from_answer.push(millis(called - *at));
        }
    }
    node.stop().await;
    let after = quantile(&raw.single_syncs(SYNCS)?, 0.99);
    tell(&from_made, &from_answer, f64::midpoint(before, after), report);
    Ok(())
}

fn tell(from_made: &[f64], from_answer: &[f64], sync: f64, report: &mut Report) {
    let name = |what: &str| format!("10,000 queued: {what}");
    report.figure(name("instance made to submit entered, p50"), "ms", &[quantile(from_made, 0.5)]);
    let p99 = report.figure(name("instance made to submit entered, p99"), "ms", &[quantile(from_made, 0.99)]);
    report.figure(name("hand-over answered to submit entered, p99"), "ms", &[quantile(from_answer, 0.99)]);
    report.figure("raw: one sync, p99", "ms", &[sync]);
    report.bar(name("instance made to submit entered, p99"), "ms", p99, Side::Most, sync.mul_add(2.0, 10.0));
}

fn name(text: &str) -> Result<QueueName> {
    text.parse().context("a bad name")
}

fn engine_name(text: &str) -> Result<EngineName> {
    text.parse().context("a bad name")
}

/// Each queue has an engine of its own.
async fn queues(store: &Arc<dyn Store>) -> Result<()> {
    for word in ["full", "free"] {
        let queue = Queue { engine: Some(engine_name(word)?), ..Queue::new(name(word)?) };
        store.put_queue(queue, None).await.context("cannot make a queue")?;
    }
    Ok(())
}

/// Waits until every table was looked at.
async fn until_looked(store: &Arc<dyn Store>) -> Result<()> {
    let clock = SystemClock::default();
    while !store.touched(None, 1).await.context("cannot list")?.is_empty() {
        ensure!(clock.monotonic() < LOOKED_MAX, "the tables were not looked at in time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The pass that follows the last look is over.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}
