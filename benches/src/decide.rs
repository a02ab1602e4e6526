//! `decide`: what choosing, changing, listing and pruning cost as tables and history grow.

pub(crate) mod passes;
mod pruning;
mod submit;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tms_core::model::event::{Actor, Event};
use tms_core::model::id::NodeName;
use tms_core::model::instance::InstanceState;
use tms_core::service::housekeeping::PRUNE_BATCH_MAX;
use tms_core::store::{Expect, InstanceFilter, InstanceWrite, PruneRule, Store};

use crate::fill;
use crate::machine::{fresh_folder, now};
use crate::report::{Report, Side, median};
use crate::stores::Kind;

const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const RUNS: usize = 3;
const PASSES: u32 = 400;
/// Passes below the counter of instructions, which makes everything some fifty times slower.
const COUNTED_PASSES: u32 = 50;
/// Ended instances of the smallest store; the largest has `--ended`.
const ENDED_FEW: u64 = 10_000;
/// Questions of each kind to a store.
const QUESTIONS: u64 = 200;
/// Time, instructions and rows of decisions, from 1,000 to 1,000,000 tables.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store that is listed and pruned.
    #[arg(long, value_enum, default_value_t)]
    store: Kind,
    /// Folder on the disk that is measured.
    #[arg(long, default_value = ".")]
    work: PathBuf,
    /// Live instances of the large store.
    #[arg(long, default_value_t = 1_000_000)]
    live: u64,
    /// Ended instances of the large store.
    #[arg(long, default_value_t = 1_000_000)]
    ended: u64,
    /// Tables of the largest board; the smallest has 1,000.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    tables_max: u64,
    /// Count no instructions.
    #[arg(long)]
    no_instructions: bool,
}

/// Runs it.
///
/// # Errors
/// A store refuses, or a program cannot be run.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let mut report = Report::new(format!("decide-{}", arguments.store.word()));
    let sizes: Vec<u64> = SIZES.into_iter().filter(|size| *size <= arguments.tables_max).collect();
    let last = sizes.len() - 1;
    let (mut choose, mut visited) = (Vec::new(), 0usize);
    let mut runs: Vec<Vec<passes::Figures>> = vec![Vec::new(); sizes.len()];
    for number in 1..=RUNS {
        println!("Run {number} of {RUNS}");
        for (size, of_size) in sizes.iter().zip(&mut runs) {
            of_size.push(passes::measure(*size, PASSES)?);
        }
    }
    for (size, of_size) in sizes.iter().zip(&runs) {
        let all = |value: fn(&passes::Figures) -> f64| of_size.iter().map(value).collect::<Vec<f64>>();
        let name = |what: &str| format!("{size} tables: {what}");
        choose.push(report.figure(name("choose 64"), "us", &all(|f| f.choose_micros)));
        report.figure(name("one transition on the board"), "us", &all(|f| f.transition_micros));
        report.figure(name("list one table of the board"), "us", &all(|f| f.list_micros));
        report.figure(name("make the board"), "s", &all(|f| f.build_seconds));
        visited = of_size.iter().map(|f| f.visited_most).fold(visited, usize::max);
    }
    let transition = |at: usize| median(&runs[at].iter().map(|f| f.transition_micros).collect::<Vec<_>>());
    let growth = |first: f64, last: f64| last / first;
    report.bar(
        format!("choose, 1,000 to {} tables", sizes[last]),
        "times",
        growth(choose[0], choose[last]),
        Side::Most,
        3.0,
    );
    let changed = growth(transition(0), transition(last));
    report.bar(format!("transition, 1,000 to {} tables", sizes[last]), "times", changed, Side::Most, 3.0);
    let chosen = runs.iter().flatten().map(|f| f.chosen).max().unwrap_or(0);
    report.bar("rows that a choice visits", "rows", visited as f64, Side::Most, 64.0 + chosen as f64);
    if arguments.no_instructions {
        report.note("instructions were not counted: --no-instructions");
    } else {
        instructions(&sizes, &mut report)?;
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let folder = fresh_folder(&arguments.work)?;
    runtime.block_on(submit::measure(arguments.store, folder.path(), &mut report))?;
    runtime.block_on(stored(arguments, &mut report))?;
    Ok(report)
}

/// Counts the instructions of a choice by callgrind.
fn instructions(sizes: &[u64], report: &mut Report) -> Result<()> {
    let mut counted = Vec::new();
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    for size in sizes {
        match callgrind(*size, folder.path())? {
            Some(n) => counted.push(report.figure(format!("{size} tables: choose 64"), "instructions", &[n])),
            None => {
                report.note("instructions were not counted: valgrind is not installed");
                return Ok(());
            }
        }
    }
    if let (Some(first), Some(last)) = (counted.first(), counted.last()) {
        report.bar("instructions of a choice, smallest to largest", "times", last / first, Side::Most, 2.2);
    }
    Ok(())
}

fn callgrind(n_tables: u64, folder: &Path) -> Result<Option<f64>> {
    let program = std::env::current_exe().context("this program has no path")?;
    let out = folder.join(format!("callgrind.{n_tables}"));
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--toggle-collect=*measured_choose*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["passes", "--tables", &n_tables.to_string(), "--passes", &COUNTED_PASSES.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match valgrind.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("cannot run valgrind"),
        Ok(status) => anyhow::ensure!(status.success(), "valgrind failed on {n_tables} tables"),
    }
    let text = std::fs::read_to_string(&out).context("callgrind wrote nothing")?;
    let total = text.lines().find_map(|line| {
        line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:"))?.trim().parse::<f64>().ok()
    });
    Ok(Some(total.context("callgrind names no sum")? / f64::from(COUNTED_PASSES)))
}

/// A filled store.
struct Filled {
    folder: tempfile::TempDir,
    store: Arc<dyn Store>,
    n_live: u64,
    tables: Vec<tms_core::model::id::TableId>,
}

async fn filled(arguments: &Arguments, n_live: u64, n_ended: u64) -> Result<Filled> {
    let folder = fresh_folder(&arguments.work)?;
    let store = arguments.store.open(folder.path()).await.context("cannot open the store")?;
    let tables = fill::tables(&store, n_live, fill::day_zero(), fill::path).await?;
    let of = |number: u64| tables[usize::try_from(number).unwrap_or(0) % tables.len()];
    fill::instances(&store, 0, n_live, |number| fill::waiting(of(number), number, fill::day_zero())).await?;
    let after = n_live;
    fill::instances(&store, after, after + n_ended, |number| fill::ended(of(number), number)).await?;
    Ok(Filled { folder, store, n_live, tables })
}

async fn stored(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let sizes = [(1_000, ENDED_FEW), (arguments.live, arguments.ended)];
    let mut figures: Vec<[f64; 4]> = Vec::new();
    for (n_live, n_ended) in sizes {
        let started = now();
        let filled = filled(arguments, n_live, n_ended).await?;
        println!("  filled {n_live} live and {n_ended} ended in {:.0} s", (now() - started).as_secs_f64());
        let name = |what: &str| format!("store with {n_live} live, {n_ended} ended: {what}");
        let [mut change, mut page, mut of_table, mut prune] = [const { Vec::new() }; 4];
        for _ in 0..RUNS {
            change.push(transitions(&filled).await?);
            page.push(pages(&filled, false).await?);
            of_table.push(pages(&filled, true).await?);
            prune.push(prunes(&filled).await?);
        }
        if n_live > 1_000 {
            pruning::beside(&filled.store, filled.folder.path(), report).await?;
        }
        figures.push([
            report.figure(name("transition of 10 in one batch"), "ms", &change),
            report.figure(name("first page of 100"), "ms", &page),
            report.figure(name("page of one table"), "ms", &of_table),
            report.figure(name("prune a batch"), "ms", &prune),
        ]);
    }
    for (at, what) in ["transition", "page", "page of one table", "prune"].into_iter().enumerate() {
        let growth = figures[1][at] / figures[0][at];
        report.bar(format!("store: {what}, small to large"), "times", growth, Side::Most, 3.0);
    }
    if arguments.ended < 10_000_000 {
        report.note(format!("the bar speaks of 10 M ended; this store has {} (--ended)", arguments.ended));
    }
    Ok(())
}

async fn transitions(filled: &Filled) -> Result<f64> {
    let mut times = Vec::new();
    for question in 0..QUESTIONS / 4 {
        let mut writes = Vec::new();
        for number in 0..10 {
            let at = (question * 10 + number) * 7_919 % filled.n_live;
            let table = filled.tables[usize::try_from(at).unwrap_or(0)];
            let live = filled.store.live_of_table(table).await.context("cannot read a table")?;
            let Some(mut after) = live.into_iter().next() else { continue };
            if writes.iter().any(|w: &InstanceWrite| w.after.id == after.id) {
                continue;
            }
            let expect = Expect::Version(after.version);
            let event = Event {
                at: fill::day_zero(),
                actor: Actor::User("bench".to_owned()),
                from: after.state.as_str().to_owned(),
                to: "pending".to_owned(),
                reason: "measured".to_owned(),
                attempt: None,
            };
            after.priority += 1;
            after.state = InstanceState::Pending {
                reason: tms_core::model::instance::WaitReason::Backoff,
                not_before: Some(fill::day_zero()),
            };
            writes.push(InstanceWrite { expect, after, events: vec![event], past_attempt: None });
        }
        let started = now();
        filled.store.write(None, writes).await.context("cannot change instances")?;
        times.push((now() - started).as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}

async fn pages(filled: &Filled, is_of_table: bool) -> Result<f64> {
    let mut times = Vec::new();
    for question in 0..QUESTIONS {
        let at = usize::try_from(question * 7_919).unwrap_or(0) % filled.tables.len();
        let table = is_of_table.then(|| filled.tables[at]);
        let filter = InstanceFilter { table, ..InstanceFilter::default() };
        let started = now();
        let page = filled.store.list_instances(&filter, None, 100).await.context("cannot list")?;
        times.push((now() - started).as_secs_f64() * 1e3);
        anyhow::ensure!(!page.items.is_empty(), "a page is empty");
    }
    Ok(median(&times))
}

async fn prunes(filled: &Filled) -> Result<f64> {
    let node: NodeName = "bench".parse().context("a bad name")?;
    let term = filled.store.begin_term(0, &node).await.context("cannot begin a term")?;
    let before = fill::day_zero() + chrono::TimeDelta::days(365);
    let mut times = Vec::new();
    for _ in 0..5 {
        let rule = PruneRule { before, keep_count: u64::MAX, batch_max: PRUNE_BATCH_MAX };
        let started = now();
        let n = filled.store.prune(term, rule).await.context("cannot prune")?;
        times.push((now() - started).as_secs_f64() * 1e3);
        anyhow::ensure!(n == PRUNE_BATCH_MAX, "only {n} instances were pruned");
    }
    // A pause that lets a store's own work in the background end before the next run.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(median(&times))
}
