//! `day`: a day of a very large lake on a simulated engine, in compressed time. The whole node runs in this process, on a
//! clock that jumps to the next thing that is to happen whenever nothing is left to do.

mod engine;
pub(crate) mod lake;
mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::TimeDelta;
use tms_core::clock::{Clock, Timestamp};
use tms_core::manager::Managers;
use tms_core::model::action::{Action, Instant};
use tms_core::model::id::QueueName;
use tms_core::model::path::BasePath;
use tms_core::model::queue::Queue;
use tms_core::store::Store;
use tokio::task::JoinSet;

use crate::day::engine::DayEngine;
use crate::day::lake::{Lake, Planned};
use crate::day::plan::{Commit, Shape, commits, is_hot};
use crate::fill;
use crate::machine::{fresh_folder, memory_mib, now};
use crate::node::{self, Node, Parts};
use crate::report::{Report, Side, quantile};
use crate::stores::Kind;

/// The seed of the committed day.
const SEED: u64 = 20_270_101;
/// Weights of the queues; table n is in the queue n mod 5.
const WEIGHTS: [u32; 5] = [1, 1, 2, 4, 8];
/// Of three services one is a clustering, the others are compactions.
const CLUSTERING_ONE_IN: usize = 3;
const DAY: Duration = Duration::from_secs(86_400);
/// Time in which the last jobs' ends are followed up, so that every instance can end.
const NIGHT: Duration = Duration::from_secs(600);
/// Time after the day for what still waits.
const EVENING: Duration = Duration::from_secs(12 * 3600);
const EVENING_STEP: Duration = Duration::from_secs(60);
/// Hand-overs under way at once.
const HAND_OVERS_MAX: usize = 1_000;
/// A folder in memory: the day is about decisions, not about the disk, which `handover` measures.
const MEMORY_FOLDER: &str = "/dev/shm";
const MINUTES_MAX: f64 = 10.0;

/// A day of 19,500 tables with 350,000 commits and 70,000 table services, in compressed time.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The node's store.
    #[arg(long, value_enum, default_value_t)]
    store: Kind,
    /// Folder of the store where the machine has no folder in memory.
    #[arg(long, default_value = ".")]
    work: PathBuf,
    /// Tables.
    #[arg(long, default_value_t = 19_500, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    tables: u32,
    /// Commits.
    #[arg(long, default_value_t = 350_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    commits: u32,
    /// Commits that schedule a table service.
    #[arg(long, default_value_t = 70_000)]
    services: u32,
    /// What all draws start from.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
}

/// Follows tokio's time, which is paused and jumps.
#[derive(Debug)]
struct DayClock {
    start: tokio::time::Instant,
}

impl Clock for DayClock {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        fill::day_zero() + TimeDelta::milliseconds(millis)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Runs it.
///
/// # Errors
/// The node cannot be put together.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let shape = Shape {
        length: DAY,
        tables: usize::try_from(arguments.tables)?,
        commits: usize::try_from(arguments.commits)?,
        services: usize::try_from(arguments.services.min(arguments.commits))?,
        seed: arguments.seed,
    };
    let in_memory = Path::new(MEMORY_FOLDER);
    let folder = fresh_folder(if in_memory.is_dir() { in_memory } else { &arguments.work })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let started = now();
    let runtime = runtime.context("cannot start the runtime")?;
    let day = runtime.block_on(live(arguments.store, folder.path(), &shape))?;
    let minutes = (now() - started).as_secs_f64() / 60.0;
    let mut report = Report::new(format!("day-{}", arguments.store.word()));
    tell(&day, &shape, minutes, &mut report);
    Ok(report)
}

/// What is left of a day.
struct Day {
    plans: Vec<(usize, Action, Planned)>,
    doubled: Vec<String>,
    n_refused_hand_overs: usize,
    n_failed_instances: usize,
    engine: engine::Counts,
    lasted: Duration,
}

/// The node and what it stands on.
struct World {
    node: Node,
    store: Arc<dyn Store>,
    lake: Arc<Lake>,
    engine: Arc<DayEngine>,
    clock: Arc<DayClock>,
}

impl World {
    async fn start(kind: Kind, folder: &Path, paths: &[BasePath], seed: u64) -> Result<Self> {
        let store = node::store(kind, folder).await?;
        let clock = Arc::new(DayClock { start: tokio::time::Instant::now() });
        let lake = Arc::new(Lake::new(paths));
        let engine = DayEngine::new(Arc::clone(&lake), clock.clone(), seed);
        for (number, weight) in WEIGHTS.into_iter().enumerate() {
            let queue = Queue { weight, ..Queue::new(queue_name(number)?) };
            store.put_queue(queue, None).await.context("cannot make a queue")?;
        }
        node::register(&store, paths, clock.now(), |number| queue_name(number % WEIGHTS.len())).await?;
        let parts = Parts {
            store: Arc::clone(&store),
            timelines: lake.clone(),
            engines: engine::only(&engine),
            clock: clock.clone(),
        };
        let node = Node::start(&parts)?;
        engine.connect(node.managers.attempts.clone());
        Ok(Self { node, store, lake, engine, clock })
    }
}

fn queue_name(number: usize) -> Result<QueueName> {
    format!("q{number}").parse().context("a bad name")
}

async fn live(kind: Kind, folder: &Path, shape: &Shape) -> Result<Day> {
    let paths = (0..shape.tables as u64).map(fill::path).collect::<Result<Vec<BasePath>>>()?;
    let world = World::start(kind, folder, &paths, shape.seed).await?;
    let begin = tokio::time::Instant::now();
    let day = commits(shape);
    let (mut n_plans, mut n_refused) = (0, 0);
    let mut hand_overs: JoinSet<bool> = JoinSet::new();
    let started = now();
    for (number, commit) in day.iter().enumerate() {
        tokio::time::sleep_until(begin + commit.at).await;
        let planned = if commit.plans { Some(plan(&world, commit, n_plans, begin)?) } else { None };
        n_plans += usize::from(commit.plans);
        let ended = |done: Option<Result<bool, _>>| usize::from(!matches!(done, Some(Ok(true))));
        while hand_overs.len() >= HAND_OVERS_MAX {
            n_refused += ended(hand_overs.join_next().await);
        }
        while let Some(done) = hand_overs.try_join_next() {
            n_refused += ended(Some(done));
        }
        let (managers, lake) = (world.node.managers.clone(), Arc::clone(&world.lake));
        let (table, path) = (commit.table, paths[commit.table].clone());
        hand_overs.spawn(async move { hand_over(&managers, &lake, table, &path, planned).await });
        if number % (shape.commits / 24).max(1) == 0 {
            let hours = commit.at.as_secs_f64() / 3600.0;
            let seconds = (now() - started).as_secs_f64();
            println!("  {hours:.1} h of the day after {seconds:.0} s, {} plans open", world.lake.n_open());
        }
    }
    while let Some(done) = hand_overs.join_next().await {
        n_refused += usize::from(!matches!(done, Ok(true)));
    }
    let evening = tokio::time::Instant::now() + EVENING;
    while world.lake.n_open() > 0 && tokio::time::Instant::now() < evening {
        tokio::time::sleep(EVENING_STEP).await;
    }
    let lasted = begin.elapsed();
    tokio::time::sleep(NIGHT).await;
    let n_failed_instances = not_ended_well(&world.store).await?;
    world.node.stop().await;
    let (plans, doubled) = world.lake.close();
    Ok(Day {
        plans,
        doubled,
        n_refused_hand_overs: n_refused,
        n_failed_instances,
        engine: world.engine.counts(),
        lasted,
    })
}

/// Puts the plan of a commit on its timeline.
fn plan(
    world: &World,
    commit: &Commit,
    n_plans: usize,
    begin: tokio::time::Instant,
) -> Result<(Action, Instant)> {
    let is_clustering = n_plans.is_multiple_of(CLUSTERING_ONE_IN);
    let action = if is_clustering { Action::Clustering } else { Action::Compaction };
    // The wall clock of the day with a number behind it, so that no two plans share one.
    let time = world.clock.now().format("%Y%m%d%H%M%S");
    let instant: Instant = format!("{time}{:06}", n_plans % 1_000_000).parse().context("a bad instant")?;
    world.lake.plan(commit.table, action, &instant, begin.elapsed());
    Ok((action, instant))
}

async fn hand_over(
    managers: &Managers,
    lake: &Lake,
    table: usize,
    path: &BasePath,
    planned: Option<(Action, Instant)>,
) -> bool {
    let is_stored = managers.requests.hand_over(node::callback(path)).await.is_ok();
    if let Some((action, instant)) = planned.filter(|_| is_stored) {
        lake.acknowledge(table, action, &instant);
    }
    is_stored
}

/// Counts live instances and instances that ended other than succeeded.
async fn not_ended_well(store: &Arc<dyn Store>) -> Result<usize> {
    let mut n = 0;
    for states in [vec!["failed", "cancelled", "obsolete"], vec!["pending", "parked", "active", "succeeding"]]
    {
        let filter = tms_core::store::InstanceFilter {
            states: states.into_iter().map(str::to_owned).collect(),
            ..Default::default()
        };
        let mut cursor: Option<String> = None;
        loop {
            let page = store.list_instances(&filter, cursor.as_deref(), 1_000).await;
            let page = page.context("cannot list instances")?;
            n += page.items.len();
            let Some(next) = page.next else { break };
            cursor = Some(next);
        }
    }
    Ok(n)
}

/// Jain's index: 1 when all have the same, 1/n when one has all.
fn evenness(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), v| (sum + v, squares + v * v));
    sum * sum / (values.len() as f64 * squares)
}

fn waits(day: &Day, is_of: impl Fn(usize) -> bool) -> Vec<f64> {
    let of = day.plans.iter().filter(|(table, ..)| is_of(*table));
    let wait = |plan: &Planned| plan.submitted_at.or(plan.called_at).map(|at| at.saturating_sub(plan.at));
    of.filter_map(|(_, _, plan)| wait(plan)).map(|wait| wait.as_secs_f64()).collect()
}

fn tell(day: &Day, shape: &Shape, minutes: f64, report: &mut Report) {
    report.figure("real time", "min", &[minutes]);
    report.figure("time of the day until nothing waited", "h", &[day.lasted.as_secs_f64() / 3600.0]);
    report.figure("commits, a second of real time", "commits/s", &[shape.commits as f64 / minutes / 60.0]);
    for (number, weight) in WEIGHTS.iter().enumerate() {
        let waits = waits(day, |table| table % WEIGHTS.len() == number);
        let name = |what: &str| format!("queue q{number}, weight {weight}: {what}");
        report.figure(name("services started"), "services", &[waits.len() as f64]);
        report.figure(name("wait, p50"), "s", &[quantile(&waits, 0.5)]);
        report.figure(name("wait, p99"), "s", &[quantile(&waits, 0.99)]);
        report.figure(name("wait, longest"), "s", &[quantile(&waits, 1.0)]);
    }
    for (word, hot) in [("hot", true), ("other", false)] {
        let waits = waits(day, |table| is_hot(table) == hot);
        report.figure(format!("{word} tables: wait, p50"), "s", &[quantile(&waits, 0.5)]);
        report.figure(format!("{word} tables: wait, p99"), "s", &[quantile(&waits, 0.99)]);
    }
    fairness(day, report);
    let n_lost = day.plans.iter().filter(|(_, _, p)| p.is_acknowledged && p.n_completed == 0).count();
    report.figure("plans acknowledged", "plans", &[count(day, |p| p.is_acknowledged)]);
    report.figure("plans completed", "plans", &[count(day, |p| p.n_completed > 0)]);
    report.figure("submissions", "jobs", &[day.engine.submits as f64]);
    report.figure("drivers started", "drivers", &[day.engine.starts as f64]);
    report.figure("drivers told to go", "drivers", &[day.engine.refused as f64]);
    report.figure("jobs that failed and were tried again", "jobs", &[day.engine.failed as f64]);
    report.figure("hand-overs refused", "hand-overs", &[day.n_refused_hand_overs as f64]);
    report.figure("instances that did not end as succeeded", "instances", &[day.n_failed_instances as f64]);
    if let Ok(memory) = memory_mib(std::process::id(), "VmHWM") {
        report.figure("most memory, lake and node in one process", "MiB", &[memory]);
    }
    report.bar("real time", "min", minutes, Side::Most, MINUTES_MAX);
    report.bar("lost", "plans", n_lost as f64, Side::Most, 0.0);
    report.bar("doubled", "plans", day.doubled.len() as f64, Side::Most, 0.0);
    for what in day.doubled.iter().take(10) {
        report.note(what.clone());
    }
    report.note(format!(
        "{} tables, {} commits, {} services, {} places, seed {}; the store lies in memory",
        shape.tables,
        shape.commits,
        shape.services,
        engine::RUNNING_MAX,
        shape.seed
    ));
}

fn count(day: &Day, is_so: impl Fn(&Planned) -> bool) -> f64 {
    day.plans.iter().filter(|(_, _, plan)| is_so(plan)).count() as f64
}

/// The worst table, and how even the waits of tables are within each queue.
fn fairness(day: &Day, report: &mut Report) {
    let mut by_table: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (table, _, plan) in &day.plans {
        if let Some(at) = plan.submitted_at.or(plan.called_at) {
            by_table.entry(*table).or_default().push(at.saturating_sub(plan.at).as_secs_f64());
        }
    }
    let mean = |waits: &Vec<f64>| waits.iter().sum::<f64>() / waits.len() as f64;
    for number in 0..WEIGHTS.len() {
        let of_queue = by_table.iter().filter(|(table, _)| *table % WEIGHTS.len() == number);
        let means: Vec<f64> = of_queue.map(|(_, waits)| mean(waits) + 1.0).collect();
        report.figure(format!("queue q{number}: evenness of its tables' waits"), "of 1", &[evenness(&means)]);
    }
    let worst = by_table.iter().max_by(|a, b| mean(a.1).total_cmp(&mean(b.1)));
    if let Some((table, waits)) = worst {
        let word = if is_hot(*table) { "hot" } else { "not hot" };
        report.figure("worst table: mean wait", "s", &[mean(waits)]);
        report.figure("worst table: longest wait", "s", &[quantile(waits, 1.0)]);
        report.note(format!("the worst table is t{table} ({word}) with {} services", waits.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_day_loses_and_doubles_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let length = Duration::from_secs(3600);
        let shape = Shape { length, tables: 100, commits: 600, services: 120, seed: 1 };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let day = runtime.block_on(live(Kind::Redb, folder.path(), &shape)).unwrap();
        assert_eq!(day.plans.len(), 120);
        assert!(day.plans.iter().all(|(_, _, plan)| plan.is_acknowledged && plan.n_completed == 1));
        assert_eq!((day.doubled, day.n_refused_hand_overs, day.n_failed_instances), (Vec::new(), 0, 0));
        assert!(day.engine.submits >= 120);
    }

    #[test]
    fn evenness_falls_when_one_has_all() {
        assert!((evenness(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((evenness(&[6.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
    }
}
