//! `start`: how soon a server answers and submits, and what memory it takes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tms_core::clock::{Clock, SystemClock, Timestamp};
use tms_core::model::path::{BasePath, PathRules};

use crate::fill;
use crate::lake::Lake;
use crate::machine::{fresh_folder, memory_mib, now, pause, wait_for};
use crate::report::{Report, Side};
use crate::server::{Server, Settings};
use crate::stores::Kind;

const RUNS: usize = 3;
/// Tables that lie on disk with their plans: those of the oldest instances, which are the first to be chosen.
const REAL_TABLES: u64 = 2_000;
/// Longest wait for a submission.
const SUBMIT_MAX: Duration = Duration::from_secs(120);
/// Longest wait until the live set is read.
const LOAD_MAX: Duration = Duration::from_secs(300);
/// Time after which memory is read: what a start needs for a moment is gone, what stays is not.
const SETTLE: Duration = Duration::from_secs(5);
/// How often the engine's folder is looked at while nothing is timed.
const JOB_STEP: Duration = Duration::from_millis(20);
/// Time for jobs of the last run to end.
const JOBS_END: Duration = Duration::from_secs(2);
const ENGINE: &str = "run_time = \"200ms\"\nstart_delay = \"20ms\"\n";

/// Time to the first answer and to the first submission, and memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The release server with the feature of the store.
    #[arg(long)]
    server: PathBuf,
    /// The server's store.
    #[arg(long, value_enum, default_value_t)]
    store: Kind,
    /// Folder on the disk that is measured.
    #[arg(long, default_value = ".")]
    work: PathBuf,
    /// Tables of both stores; the smaller one has a live instance for each.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    tables: u64,
    /// Live instances of the large store.
    #[arg(long, default_value_t = 1_000_000)]
    live: u64,
}

/// Runs it.
///
/// # Errors
/// The server does not start, or never submits.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let mut report = Report::new(format!("start-{}", arguments.store.word()));
    idle(arguments, &mut report)?;
    memory(arguments, &mut report)?;
    large(arguments, &mut report)?;
    report.note(format!(
        "the store of {} live instances has {} tables; the oldest {REAL_TABLES} lie on disk with their plans",
        arguments.live, arguments.tables
    ));
    Ok(report)
}

fn start(arguments: &Arguments, folder: &Path) -> Result<Server> {
    Server::start(&arguments.server, folder, arguments.store, &Settings { more: ENGINE.to_owned() })
}

fn idle(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let (mut ready, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let folder = fresh_folder(&arguments.work)?;
        let server = start(arguments, folder.path())?;
        ready.push(server.ready_after);
        pause(SETTLE);
        memory.push(memory_mib(server.pid(), "VmRSS")?);
    }
    report.figure("empty store: API ready", "s", &ready);
    let memory = report.figure("empty store: memory, idle", "MiB", &memory);
    report.bar("memory, idle", "MiB", memory, Side::Most, 64.0);
    Ok(())
}

/// The path of a table: the oldest ones lie on disk.
fn path_of(lake: &Path, number: u64) -> Result<BasePath> {
    if number < REAL_TABLES {
        let path = format!("file:{}/t{number}", lake.display());
        return PathRules::default().canonical(&path).context("a bad path");
    }
    fill::path(number)
}

/// Fills a store with so many live instances in turn over the tables.
async fn fill(
    kind: Kind,
    data: &Path,
    lake: &Path,
    n_tables: u64,
    n_live: u64,
    zero: Timestamp,
) -> Result<()> {
    let store = kind.open(data).await.context("cannot open the store")?;
    let tables = fill::tables(&store, n_tables, zero, |number| path_of(lake, number)).await?;
    let of = |number: u64| tables[usize::try_from(number).unwrap_or(0) % tables.len()];
    fill::instances(&store, 0, n_live, |number| fill::waiting(of(number), number, zero)).await
}

fn filled(arguments: &Arguments, folder: &Path, n_live: u64) -> Result<()> {
    let lake = folder.join("lake");
    let tables = Lake::new(&lake)?;
    for number in 0..REAL_TABLES.min(n_live) {
        let table = tables.table(&format!("t{number}"))?;
        for of_table in (number..n_live).step_by(usize::try_from(arguments.tables).unwrap_or(usize::MAX)) {
            tables.plan(&table, fill::instant(of_table)?.as_str())?;
        }
    }
    let started = now();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    // Some minutes ago, so that everything is older than now and nothing silent for too long.
    let zero = SystemClock::default().now() - chrono::TimeDelta::minutes(20);
    runtime.block_on(fill(arguments.store, &folder.join("data"), &lake, arguments.tables, n_live, zero))?;
    println!("  filled {n_live} live instances in {:.0} s", (now() - started).as_secs_f64());
    Ok(())
}

fn wait_until_loaded(server: &Server, n_live: u64) -> Result<()> {
    // Those whose tables can be read may have ended by the time the metric is renewed.
    let wanted = (n_live.saturating_sub(REAL_TABLES)) as f64 * 0.99;
    wait_for("the live set is read", LOAD_MAX, Duration::from_millis(100), || {
        server.metric("tms_live_instances").is_ok_and(|n| n >= wanted)
    })
}

fn memory(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let folder = fresh_folder(&arguments.work)?;
    filled(arguments, folder.path(), arguments.tables)?;
    let (mut settled, mut most) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let server = start(arguments, folder.path())?;
        wait_until_loaded(&server, arguments.tables)?;
        pause(SETTLE);
        settled.push(memory_mib(server.pid(), "VmRSS")?);
        most.push(memory_mib(server.pid(), "VmHWM")?);
    }
    let name = |what: &str| format!("{0} tables, {0} live: {what}", arguments.tables);
    let settled = report.figure(name("memory"), "MiB", &settled);
    report.figure(name("most memory"), "MiB", &most);
    report.bar(name("memory"), "MiB", settled, Side::Most, 400.0);
    Ok(())
}

/// Jobs that the engine was ever given.
fn n_jobs(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("simulated/jobs")).map_or(0, |entries| entries.flatten().count())
}

fn large(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let folder = fresh_folder(&arguments.work)?;
    filled(arguments, folder.path(), arguments.live)?;
    let (mut ready, mut submitted, mut loaded, mut memory) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..=RUNS {
        let before = n_jobs(folder.path());
        let started = now();
        let server = start(arguments, folder.path())?;
        let step = Duration::from_millis(2);
        wait_for("the first submission", SUBMIT_MAX, step, || n_jobs(folder.path()) > before)?;
        submitted.push((now() - started).as_secs_f64());
        ready.push(server.ready_after);
        println!(
            "  run {number}: ready {:.3} s, submitted {:.3} s",
            ready[number - 1],
            submitted[number - 1]
        );
        if number == 1 {
            wait_until_loaded(&server, arguments.live)?;
            loaded.push((now() - started).as_secs_f64());
            memory.push(memory_mib(server.pid(), "VmRSS")?);
        }
        server.stop()?;
        pause(JOBS_END);
    }
    let mut killed = Vec::new();
    for _ in 0..RUNS {
        let server = start(arguments, folder.path())?;
        killed.push(server.ready_after);
        // It has written, and is killed.
        let before = n_jobs(folder.path());
        wait_for("a submission", SUBMIT_MAX, JOB_STEP, || n_jobs(folder.path()) > before)?;
        drop(server);
        pause(JOBS_END);
    }
    // The first of them followed a clean stop.
    let killed = &killed[1..];
    let name = |what: &str| format!("{} live: {what}", arguments.live);
    let ready = report.figure(name("API ready"), "s", &ready);
    let submitted = report.figure(name("first submission"), "s", &submitted);
    report.figure(name("API ready after a kill"), "s", killed);
    report.figure(name("whole live set read"), "s", &loaded);
    report.figure(name("memory"), "MiB", &memory);
    report.bar("API ready", "s", ready, Side::Most, 0.5);
    report.bar("first submission after the start", "s", submitted, Side::Most, 2.0);
    Ok(())
}
