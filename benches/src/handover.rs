//! `handover`: the durable hand-over over HTTP, beside a bare echo and beside what the disk gives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::load::{self, Done};
use crate::machine::{cpu_seconds, fresh_folder, wait_for};
use crate::raw::Raw;
use crate::report::{Report, Side, median, quantile};
use crate::server::{Server, Settings};
use crate::stores::Kind;
use crate::writer::{Tables, Writer};

/// Interleaved runs, of which the medians count.
const RUNS: usize = 3;
/// Connections of the maximum.
const CONNECTIONS: usize = 512;
/// Tables of the case where each hand-over must be written: so few that looks are rare beside hand-overs.
const KNOWN_TABLES: u64 = 2_000;
/// Tables of the case where a durable touch covers most.
const FEW_TABLES: u64 = 64;
/// Connections that make tables known before anything is measured.
const WARM_CONNECTIONS: u64 = 64;
/// Looks at each table before anything is measured: the next ones are a minute away then.
const LOOKS_BEFORE: f64 = 5.0;
const PREPARE_MAX: Duration = Duration::from_secs(300);
/// `raw` before and after may differ by so much.
const RAW_DRIFT_MAX: f64 = 1.5;

/// Durable hand-overs per second and their latency, beside a bare echo and beside the disk.
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
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// The figures of all runs.
#[derive(Debug, Default)]
struct Figures {
    echo_rate: Vec<f64>,
    echo_cpu: Vec<f64>,
    echo_p99: Vec<f64>,
    raw_rate: Vec<f64>,
    raw_p99: Vec<f64>,
    raw_drift: Vec<f64>,
    half_rate: Vec<f64>,
    half_p50: Vec<f64>,
    half_p99: Vec<f64>,
    half_cpu: Vec<f64>,
    batch: Vec<f64>,
    known: Case,
    few: Case,
    new: Case,
}

/// The maximum of one kind of tables.
#[derive(Debug, Default)]
struct Case {
    rate: Vec<f64>,
    cpu: Vec<f64>,
    covered: Vec<f64>,
    looks: Vec<f64>,
}

/// Runs it.
///
/// # Errors
/// A program does not start, or a hand-over is not answered with 200.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let mut report = Report::new(format!("handover-{}", arguments.store.word()));
    let mut figures = Figures::default();
    let folder = fresh_folder(&arguments.work)?;
    prepare(arguments, folder.path())?;
    let mut next = KNOWN_TABLES;
    for number in 1..=RUNS {
        println!("Run {number} of {RUNS}");
        next = one_run(arguments, folder.path(), next, &mut figures)?;
    }
    tell(&figures, &mut report);
    Ok(report)
}

/// What a load cost the server.
struct Cost {
    cpu_micros: f64,
    covered_share: f64,
    looks_per_hand_over: f64,
    batch: f64,
}

/// Runs a load and reads the server's own counts around it.
fn costed<T>(server: &Server, load: impl FnOnce() -> Result<(Done, T)>) -> Result<(Done, T, Cost)> {
    let read = || -> Result<[f64; 5]> {
        Ok([
            cpu_seconds(server.pid())?,
            server.metric("tms_hand_overs_covered_total")?,
            server.metric("tms_looks_total")?,
            server.metric("tms_store_batch_size_sum")?,
            server.metric("tms_store_batch_size_count")?,
        ])
    };
    let before = read()?;
    let (done, more) = load()?;
    let after = read()?;
    let grown = |at: usize| after[at] - before[at];
    let n = done.latencies.len().max(1) as f64;
    let cost = Cost {
        cpu_micros: grown(0) * 1e6 / n,
        covered_share: grown(1) / n,
        looks_per_hand_over: grown(2) / n,
        batch: grown(3) / grown(4).max(1.0),
    };
    Ok((done, more, cost))
}

/// Makes the tables known, and waits until their back-offs are so long that looks do not disturb: they cannot be read.
fn prepare(arguments: &Arguments, folder: &Path) -> Result<()> {
    let server = Server::start(&arguments.server, folder, arguments.store, &Settings::default())?;
    let address = server.address.to_string();
    for (tables, n) in
        [(Tables::Changing(KNOWN_TABLES), KNOWN_TABLES), (Tables::Same(FEW_TABLES), FEW_TABLES)]
    {
        load::all(server.address, &Writer::new(&address, tables)?, WARM_CONNECTIONS, 0, n)?;
    }
    let wanted = LOOKS_BEFORE * (KNOWN_TABLES + FEW_TABLES) as f64;
    println!("Tables are made known; their back-offs grow for about a minute");
    wait_for("the tables are looked at", PREPARE_MAX, Duration::from_millis(500), || {
        server.metric("tms_looks_total").is_ok_and(|n| n >= wanted)
    })
}

fn one_run(arguments: &Arguments, folder: &Path, first: u64, figures: &mut Figures) -> Result<u64> {
    let time = Duration::from_secs(arguments.seconds);
    echo_max(time, figures)?;
    let server = Server::start(&arguments.server, folder, arguments.store, &Settings::default())?;
    let address = server.address.to_string();
    let known = Writer::new(&address, Tables::Changing(KNOWN_TABLES))?;
    let (rate, next, batch) = maximum(&server, &known, first, time, &mut figures.known)?;
    figures.batch.push(batch);

    let mut raw = Raw::new(folder)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of a batch")]
    let batch_rows = (batch.round() as usize).max(1);
    figures.raw_rate.push(raw.steady(batch_rows, time)?);
    let next = half_rate(&server, &known, next, (rate / 2.0, time), &mut raw, figures)?;

    let few = Writer::new(&address, Tables::Same(FEW_TABLES))?;
    maximum(&server, &few, 0, time, &mut figures.few)?;
    drop(server);

    // A store of its own: what it leaves, tables that nobody can read, would be looked at during the next run.
    let fresh = fresh_folder(&arguments.work)?;
    let server = Server::start(&arguments.server, fresh.path(), arguments.store, &Settings::default())?;
    let new = Writer::new(&server.address.to_string(), Tables::New)?;
    maximum(&server, &new, 0, time, &mut figures.new)?;
    Ok(next)
}

fn echo_max(time: Duration, figures: &mut Figures) -> Result<()> {
    let echo = Server::echo()?;
    let writer = Writer::new(&echo.address.to_string(), Tables::New)?;
    let before = cpu_seconds(echo.pid())?;
    let (done, _) = load::closed(echo.address, &writer, CONNECTIONS, 0, time)?;
    let cpu = (cpu_seconds(echo.pid())? - before) * 1e6 / done.latencies.len().max(1) as f64;
    figures.echo_rate.push(done.rate());
    figures.echo_cpu.push(cpu);
    figures.echo_p99.push(quantile(&done.latencies, 0.99));
    println!("  echo: {:.0} a second, {cpu:.1} us of CPU each", done.rate());
    Ok(())
}

/// Measures the most that the server takes of one kind of tables; returns the rate, the next number and the mean batch.
fn maximum(
    server: &Server,
    writer: &Writer,
    first: u64,
    time: Duration,
    case: &mut Case,
) -> Result<(f64, u64, f64)> {
    let (done, next, cost) =
        costed(server, || load::closed(server.address, writer, CONNECTIONS, first, time))?;
    println!(
        "  maximum: {:.0} a second, {:.1} us of CPU each, batches of {:.1}, {:.0} % covered, {:.3} looks each",
        done.rate(),
        cost.cpu_micros,
        cost.batch,
        cost.covered_share * 100.0,
        cost.looks_per_hand_over
    );
    case.rate.push(done.rate());
    case.cpu.push(cost.cpu_micros);
    case.covered.push(cost.covered_share * 100.0);
    case.looks.push(cost.looks_per_hand_over);
    Ok((done.rate(), next, cost.batch))
}

/// Measures latencies at half the maximum, with `raw` at the same moments before and after.
fn half_rate(
    server: &Server,
    writer: &Writer,
    first: u64,
    (rate, time): (f64, Duration),
    raw: &mut Raw,
    figures: &mut Figures,
) -> Result<u64> {
    let before = quantile(&raw.replay(rate, time)?, 0.99);
    let (done, next, cost) =
        costed(server, || load::open(server.address, writer, CONNECTIONS, first, rate, time))?;
    let after = quantile(&raw.replay(rate, time)?, 0.99);
    let p99 = quantile(&done.latencies, 0.99);
    println!("  at {rate:.0} a second: p99 {p99:.2} ms; raw {before:.2} ms before, {after:.2} ms after");
    figures.half_rate.push(rate);
    figures.half_p50.push(quantile(&done.latencies, 0.5));
    figures.half_p99.push(p99);
    figures.half_cpu.push(cost.cpu_micros);
    figures.raw_p99.push(f64::midpoint(before, after));
    figures.raw_drift.push(before.max(after) / before.min(after));
    Ok(next)
}

fn tell(figures: &Figures, report: &mut Report) {
    let echo = report.figure("echo: most", "requests/s", &figures.echo_rate);
    let echo_cpu = report.figure("echo: server CPU", "us/request", &figures.echo_cpu);
    report.figure("echo: p99 at its most", "ms", &figures.echo_p99);
    let raw = report.figure("raw: most, the server's batches", "rows/s", &figures.raw_rate);
    report.figure("mean batch at the most", "hand-overs", &figures.batch);
    let mut case = |name: &str, case: &Case| {
        let rate = report.figure(format!("{name}: most"), "hand-overs/s", &case.rate);
        let cpu = report.figure(format!("{name}: server CPU"), "us/hand-over", &case.cpu);
        report.figure(format!("{name}: covered by a durable touch"), "%", &case.covered);
        report.figure(format!("{name}: looks"), "per hand-over", &case.looks);
        (rate, cpu)
    };
    let (rate, cpu) = case("known tables", &figures.known);
    let (few_rate, few_cpu) = case("few tables", &figures.few);
    case("new tables", &figures.new);
    report.figure("open loop: rate, half the most", "hand-overs/s", &figures.half_rate);
    report.figure("open loop: p50", "ms", &figures.half_p50);
    let p99 = report.figure("open loop: p99", "ms", &figures.half_p99);
    report.figure("open loop: server CPU", "us/hand-over", &figures.half_cpu);
    let raw_p99 = report.figure("raw at the same moments: p99", "ms", &figures.raw_p99);
    report.figure("raw: before and after differ", "times", &figures.raw_drift);

    report.bar("CPU of a hand-over, in echoes (known tables)", "times", cpu / echo_cpu, Side::Most, 2.5);
    report.bar("CPU of a hand-over, in echoes (few tables)", "times", few_cpu / echo_cpu, Side::Most, 2.5);
    let wanted = (echo * 0.5).min(raw * 0.8);
    report.bar("most on 512 connections (known tables)", "hand-overs/s", rate, Side::Least, wanted);
    report.bar("most on 512 connections (few tables)", "hand-overs/s", few_rate, Side::Least, wanted);
    report.bar("p99 at half the most", "ms", p99, Side::Most, raw_p99.mul_add(3.0, 2.0));
    let drift = median(&figures.raw_drift);
    if drift > RAW_DRIFT_MAX {
        report.note(format!("`raw` before and after differ {drift:.2} times: the p99 is void, run it again"));
    }
    report.note(
        "CPU of known and new tables holds the looks that the hand-overs caused; the tables cannot be read",
    );
    report.note("the load generator shares the machine with the server and with the echo alike");
}
