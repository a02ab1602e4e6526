//! `reader`: one look at a timeline of many active instants, beside Hudi's own reader in a warm JVM. Both read the same
//! table: properties, active timeline, pending plans.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tms_hudi::{HudiTable, LocalListing, Look};

use crate::lake::Lake;
use crate::machine::{Guarded, fresh_folder, now};
use crate::report::{Report, Side, median};

const PROGRAM: &str = "java/ReadTimeline.java";
const RUNS: usize = 3;
const WARM_UP: u32 = 30;
const READS: u32 = 20;
/// Memory of the JVM: enough that it does not collect garbage all the time.
const HEAP: &str = "-Xmx2g";

/// One look at a timeline of 10,000 instants, beside Hudi's own reader.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder of a JDK.
    #[arg(long)]
    java_home: PathBuf,
    /// Hudi's Spark bundle, release 1.2.0.
    #[arg(long)]
    bundle: PathBuf,
    /// Folder of Spark: its jars hold Hadoop.
    #[arg(long)]
    spark_home: PathBuf,
    /// Folder that the table is made in.
    #[arg(long, default_value = ".")]
    work: PathBuf,
    /// Active instants.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=300_000))]
    instants: u32,
    /// Pending plans among them.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    plans: u32,
}

/// Runs it.
///
/// # Errors
/// Java does not run, or the two readers see different timelines.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let mut report = Report::new("reader");
    let folder = fresh_folder(&arguments.work)?;
    let table = make_table(folder.path(), arguments.instants, arguments.plans)?;
    let mut hudi = Hudi::start(arguments, folder.path(), &table)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let mut ours = Vec::new();
    let mut ours_again = Vec::new();
    let (mut theirs, mut theirs_again) = (Vec::new(), Vec::new());
    for question in ["first", "again"] {
        hudi.ask(question, WARM_UP)?;
    }
    runtime.block_on(first_looks(&table, 3))?;
    for number in 1..=RUNS {
        println!("Run {number} of {RUNS}");
        let (times, seen) = runtime.block_on(first_looks(&table, READS))?;
        ours.push(median(&times));
        ours_again.push(median(&runtime.block_on(later_looks(&table, READS))?));
        let (times, seen_by_hudi) = hudi.ask("first", READS)?;
        theirs.push(median(&times));
        ensure!(seen == seen_by_hudi, "the readers differ: {seen:?} and {seen_by_hudi:?} instants and plans");
        theirs_again.push(median(&hudi.ask("again", READS)?.0));
    }
    let ours = report.figure("TMS: first look", "ms", &ours);
    let ours_again = report.figure("TMS: look at an unchanged table", "ms", &ours_again);
    let theirs = report.figure("Hudi: meta client, timeline, plans", "ms", &theirs);
    let theirs_again = report.figure("Hudi: timeline reloaded, plans", "ms", &theirs_again);
    report.bar("first look, faster than Hudi", "times", theirs / ours, Side::Least, 5.0);
    report.bar("later look, faster than Hudi's reload", "times", theirs_again / ours_again, Side::Least, 5.0);
    report.note(format!(
        "{} active instants, {} pending plans, local disk with its listing cached",
        arguments.instants, arguments.plans
    ));
    Ok(report)
}

/// Makes a table whose timeline is a real table's, many times over.
fn make_table(folder: &Path, n_instants: u32, n_plans: u32) -> Result<PathBuf> {
    let lake = Lake::new(folder)?;
    let table = lake.table("table")?;
    for number in 0..n_instants {
        // Commits some seconds apart, in the form yyyyMMddHHmmssSSS.
        let second = u64::from(number) * 8;
        let clock = format!("{:02}{:02}{:02}", second / 3600 % 24, second / 60 % 60, second % 60);
        let time = format!("202701{:02}{clock}", 1 + second / 86_400);
        if number >= n_instants - n_plans {
            lake.plan(&table, &format!("{time}001"))?;
        } else {
            lake.commit(&table, &format!("{time}001"), &format!("{time}900"))?;
        }
    }
    Ok(table)
}

/// What a reader saw: instants and pending plans.
type Seen = (u64, u64);

async fn first_looks(table: &Path, n: u32) -> Result<(Vec<f64>, Seen)> {
    let mut times = Vec::new();
    let mut seen = (0, 0);
    for _ in 0..n {
        let started = now();
        let reader = HudiTable::new(Arc::new(LocalListing), table.display().to_string());
        let Look::Changed(snapshot) = reader.look(None).await.context("cannot read the table")? else {
            anyhow::bail!("a first look saw no change");
        };
        times.push((now() - started).as_secs_f64() * 1e3);
        ensure!(snapshot.pending().iter().all(|plan| plan.plan.is_ok()), "a plan cannot be read");
        seen = (snapshot.instants().len() as u64, snapshot.pending().len() as u64);
    }
    Ok((times, seen))
}

async fn later_looks(table: &Path, n: u32) -> Result<Vec<f64>> {
    let reader = HudiTable::new(Arc::new(LocalListing), table.display().to_string());
    let Look::Changed(snapshot) = reader.look(None).await.context("cannot read the table")? else {
        anyhow::bail!("a first look saw no change");
    };
    let mut times = Vec::new();
    for _ in 0..n {
        let started = now();
        let look = reader.look(Some(&snapshot)).await.context("cannot read the table")?;
        times.push((now() - started).as_secs_f64() * 1e3);
        ensure!(matches!(look, Look::Unchanged), "the table changed");
    }
    Ok(times)
}

/// Hudi's reader in its JVM.
struct Hudi {
    _jvm: Guarded,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Hudi {
    fn start(arguments: &Arguments, folder: &Path, table: &Path) -> Result<Self> {
        let bin = arguments.java_home.join("bin");
        let class_path = format!("{}:{}/jars/*", arguments.bundle.display(), arguments.spark_home.display());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
        let status = Command::new(bin.join("javac"))
            .args(["-cp", &class_path, "-nowarn", "-d"])
            .arg(folder)
            .arg(source)
            .status();
        ensure!(status.context("cannot run javac")?.success(), "the reader's program does not compile");
        let log = std::fs::File::create(folder.join("java.log")).context("cannot make Java's log")?;
        let mut jvm: Child = Command::new(bin.join("java"))
            .arg(HEAP)
            .args(["-cp", &format!("{}:{class_path}", folder.display()), "ReadTimeline"])
            .arg(table)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start Java")?;
        let input = jvm.stdin.take().context("Java has no input")?;
        let output = BufReader::new(jvm.stdout.take().context("Java has no output")?);
        Ok(Self { _jvm: Guarded(jvm), input, output })
    }

    /// Reads so often; returns the times in milliseconds and what was seen last.
    fn ask(&mut self, question: &str, n: u32) -> Result<(Vec<f64>, Seen)> {
        writeln!(self.input, "{question} {n}").context("Java does not listen")?;
        self.input.flush().context("Java does not listen")?;
        let mut line = String::new();
        // Hudi's loggers may write to the output too.
        while !line.starts_with("TIMES") {
            line.clear();
            let n_bytes = self.output.read_line(&mut line).context("Java does not answer")?;
            ensure!(n_bytes > 0, "Java ended; its log tells why");
        }
        let (times, seen) = line.trim_start_matches("TIMES").split_once('/').context("a bad answer")?;
        let times = times.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).map(|ns| ns / 1e6);
        let mut seen = seen.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        Ok((times.collect(), (seen.next().unwrap_or(0), seen.next().unwrap_or(0))))
    }
}
