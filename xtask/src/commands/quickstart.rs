//! `cargo xtask quickstart`: the main job, end to end, on this machine.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::cargo::build_programs;
use crate::components::{Tools, bundle, job_jar};
use crate::environment::Environment;
use crate::errors::exit_code;
use crate::marks;
use crate::process::{is_interrupted, set_last_will};
use crate::quickstart::folder::{Kept, RunFolder, leave_logs};
use crate::quickstart::next;
use crate::quickstart::report::{Report, Side};
use crate::quickstart::server::{Parts, Server, state_on_timeline};
use crate::quickstart::settings::table_version;
use crate::quickstart::slices;
use crate::quickstart::watch::{Instance, details, until_ended};
use crate::quickstart::writer::{Event, Reading, Rows, Task, Writer};
use crate::repo::Repo;
use crate::time::{Shown, Stopwatch};

const DEFAULT_RELEASE: &str = "1.2.0";
/// Another release to try: the oldest tested one.
const OTHER_RELEASE: &str = "0.15.0";
const N_STEPS: usize = 7;

/// See TMS work: a stock Hudi writer plans a compaction, TMS runs it on a real Spark, the table proves it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Hudi release of writer and job; 0.15.0, 1.0.2 and 1.2.0 are tested.
    #[arg(long, value_name = "V", default_value = DEFAULT_RELEASE)]
    hudi_version: String,
    /// A Hudi Spark 3.5 bundle that is there already; nothing is downloaded for it.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Keep the table and the server's data after the end.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    run_with(env, repo, arguments, Programs::ToBuild)
}

fn run_with(env: &Environment, repo: &Repo, arguments: &Arguments, programs: Programs) -> Result<()> {
    // Before anything is fetched or started.
    bundle::check_release(&arguments.hudi_version)?;
    let given = arguments.bundle.as_deref().map(bundle::given).transpose()?;
    let orphans = marks::stop_orphans();
    if !orphans.is_empty() {
        println!("An earlier run was killed; its {} processes were ended.", orphans.len());
    }
    let mut run = Run { env, repo, arguments, programs, given, steps: Vec::new(), has_folder: false };
    let done = run.all();
    let step = run.steps.len() + 1;
    match &done {
        Err(_) if is_interrupted() && !run.has_folder => eprintln!(
            "Stopped in step {step} of {N_STEPS}; nothing of this run was kept. What was downloaded and built stays."
        ),
        Err(error) if !is_interrupted() => eprintln!(
            "\nStep {step} of {N_STEPS} failed: {}.\nAll that was started has been stopped; running it again is safe.",
            advice(step, error)
        ),
        _ => {}
    }
    done
}

/// What a failed step means for a person; the error's own text is printed below it.
fn advice(step: usize, error: &anyhow::Error) -> &'static str {
    match (step, exit_code(error)) {
        (_, 2) => "it was called with something that cannot be; the text below names it",
        (_, 3) => "a component is missing; the text below names it and the ways to get it",
        (1 | 2, _) => "the set-up did not work; the text below says where and what to do",
        (3, _) => "the build failed; `cargo build` shows it alone",
        (4, _) => "the server did not start; its log is named below",
        (5, _) => "the writer failed; its log is named below",
        (6, _) => "the compaction did not end well; the server's and the job's logs are named below",
        _ => "the table is not as it must be; please file an issue with this output",
    }
}

/// The quick start as a test, with programs that are built: the default release, nothing kept.
pub(crate) fn for_test(env: &Environment, repo: &Repo) -> Result<()> {
    let arguments = Arguments { hudi_version: DEFAULT_RELEASE.to_owned(), bundle: None, keep: false };
    run_with(env, repo, &arguments, Programs::Built)
}

/// Whether `tms-server` and `tms` are up to date already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Programs {
    Built,
    ToBuild,
}

struct Run<'a> {
    env: &'a Environment,
    repo: &'a Repo,
    arguments: &'a Arguments,
    programs: Programs,
    /// The bundle given by hand, checked.
    given: Option<PathBuf>,
    steps: Vec<(&'static str, Duration)>,
    /// Whether it has come so far that there are logs.
    has_folder: bool,
}

/// What a run that ended well leaves to go on with.
struct Ended {
    instance_id: String,
    url: String,
    callback: String,
}

/// What the writer left for TMS.
struct Planned {
    instant: String,
    written: Rows,
    before: Side,
}

impl Run<'_> {
    fn all(&mut self) -> Result<()> {
        let (env, repo, release) = (self.env, self.repo, self.arguments.hudi_version.as_str());
        let programs = self.programs;
        println!("TMS quick start with Hudi {release}");
        println!(
            "The first run downloads about 0.5 GB (Spark, Hudi, Java when there is none) and builds TMS: some minutes, more \
             on a slow line.\nLater runs take one to two minutes. Disk: about 1 GB in {}, 2 GB of build output in {}.",
            env.cache.display(),
            repo.target.display()
        );
        let (cache, tools) = self.step("Java 17, Python and Spark 3.5", "Spark", || {
            let cache = Cache::lock(&env.cache)?;
            let tools = Tools::set_up(env, &cache)?;
            Ok((cache, tools))
        })?;
        let given = self.given.clone();
        let bundle = self.step(&format!("the Hudi {release} bundle"), "bundle", || match given {
            Some(file) => Ok(file),
            None => bundle::set_up(env, &cache, &tools, release),
        })?;
        let job_jar = self.step("build tms-server, tms and the Spark job", "build", || {
            if programs == Programs::ToBuild {
                build_programs(env, repo)?;
            }
            job_jar::set_up(&cache, repo, &tools)
        })?;
        drop(cache);
        let parts = Parts {
            tools: &tools,
            job_jar: &job_jar,
            bundle: &bundle,
            table_version: table_version(release),
        };
        self.in_folder(&parts)
    }

    /// The steps that leave something in the run's folder, and what stays of it.
    fn in_folder(&mut self, parts: &Parts<'_>) -> Result<()> {
        let mut folder = RunFolder::create(&self.repo.target.join("quickstart"))?;
        self.has_folder = true;
        let (root, logs) = (folder.root.clone(), folder.logs());
        set_last_will(Some(Box::new(move || {
            drop(leave_logs(&root));
            eprintln!("{}", next::only_logs(&logs));
        })));
        let done = self.with_folder(&folder, parts);
        // Before the folder goes: a Spark outside the process groups may still write into it.
        let strays = marks::stop_own();
        if !strays.is_empty() && done.is_ok() {
            println!("Ended {} processes that were still there.", strays.len());
        }
        let kept = what_stays(done.is_ok(), self.arguments.keep, is_interrupted());
        folder.keep(kept)?;
        if kept != Kept::Logs {
            set_last_will(None);
        }
        match done {
            Ok(ended) => self.show_next(&folder, parts, &ended),
            Err(error) => {
                println!("\n{}", next::of_failed(&folder, kept));
                Err(error)
            }
        }
    }

    /// What to do next, of what was not done yet.
    fn show_next(&self, folder: &RunFolder, parts: &Parts<'_>, ended: &Ended) -> Result<()> {
        let other =
            if self.arguments.hudi_version == OTHER_RELEASE { DEFAULT_RELEASE } else { OTHER_RELEASE };
        let mut next = Vec::new();
        if !self.arguments.keep {
            next.push((
                "cargo xtask quickstart --keep".to_owned(),
                "keep the table and the server's data for a look",
            ));
        }
        next.push((
            format!("cargo xtask quickstart --hudi-version {other}"),
            "the same with another release",
        ));
        next.push(("docs/guide/writers.md".to_owned(), "hand over your own table"));
        for (number, (command, why)) in next.iter().enumerate() {
            println!("  {:<6}{command:<46}{why}", if number == 0 { "next" } else { "" });
        }
        if self.arguments.keep {
            let (table, warehouse) = (table_of(folder), folder.warehouse());
            let task = Task {
                tools: parts.tools,
                bundle: parts.bundle,
                base_path: &table,
                callback: &ended.callback,
                warehouse: &warehouse,
            };
            let text = next::with_kept(&next::Ended {
                folder,
                table: &table,
                instance_id: &ended.instance_id,
                url: &ended.url,
                server_program: &self.repo.built("tms-server"),
                tms_program: &self.repo.built("tms"),
                writer: &task.keep(&self.repo.root, &folder.root)?,
            });
            print!("{text}");
        }
        Ok(())
    }

    fn with_folder(&mut self, folder: &RunFolder, parts: &Parts<'_>) -> Result<Ended> {
        let repo = self.repo;
        let mut server = self.step("start tms-server", "server", || Server::start(repo, folder, parts))?;
        println!("        listens on {}, store redb, log {}", server.url, server.log.display());
        let done = self.with_server(&mut server, folder, parts);
        server.stop();
        let instance_id = done?;
        Ok(Ended { instance_id, url: server.url.clone(), callback: server.callback_url() })
    }

    /// Returns the id of the compaction's instance.
    fn with_server(&mut self, server: &mut Server, folder: &RunFolder, parts: &Parts<'_>) -> Result<String> {
        let table = table_of(folder);
        let log = folder.logs().join("writer.log");
        let (callback, warehouse) = (server.callback_url(), folder.warehouse());
        let repo = self.repo;
        let task = Task {
            tools: parts.tools,
            bundle: parts.bundle,
            base_path: &table,
            callback: &callback,
            warehouse: &warehouse,
        };
        let mut writer = None;
        let planned = self.step(
            "a stock writer makes a merge-on-read table until it plans a compaction",
            "writer",
            || {
                let started = Writer::start(&repo.root, &task, &log)?;
                follow_writer(repo, &table, writer.insert(started))
            },
        )?;
        let mut writer = writer.context("the writer was not started")?;
        let ended = self.step("TMS runs it on Spark; times since it knew the plan", "compaction", || {
            let watch = Stopwatch::start();
            let ended = until_ended(server, &planned.instant, |event| println!("        {event}"))?;
            let early = ended.lasted().saturating_sub(watch.elapsed());
            if !early.is_zero() {
                println!(
                    "        (the first {} of it passed while the writer was reading, in step 5)",
                    Shown(early)
                );
            }
            keep_job_log(server, folder, &ended);
            Ok(ended)
        })?;
        let after = self.step("read the table again", "check", || {
            let reading = writer.read_again()?;
            side(repo, &table, &planned.instant, reading)
        })?;
        writer.stop();
        let n_base_new = slices::count_base_of(&table, &planned.instant)?;
        self.conclude(server, folder, &planned, (after, n_base_new), &ended)?;
        Ok(ended.id)
    }

    fn conclude(
        &self,
        server: &Server,
        folder: &RunFolder,
        planned: &Planned,
        (after, n_base_new): (Side, usize),
        ended: &Instance,
    ) -> Result<()> {
        let (logs, table) = (folder.logs(), table_of(folder));
        let mut report = Report {
            release: &self.arguments.hudi_version,
            instant: &planned.instant,
            written: planned.written,
            before: planned.before.clone(),
            after,
            n_base_new,
            instance: ended,
            table: &table,
            is_kept: false,
            steps: &self.steps,
            logs: None,
        };
        let faults = report.faults();
        if self.arguments.keep || !faults.is_empty() {
            (report.is_kept, report.logs) = (true, Some(logs.as_path()));
        }
        println!("\n{}", report.text());
        if !faults.is_empty() {
            bail!("{}\n{}", faults.join("\n"), details(server, &ended.id));
        }
        Ok(())
    }

    /// Runs one numbered step and remembers how long it took.
    fn step<T>(&mut self, what: &str, short: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("[{}/{N_STEPS}] {what}", self.steps.len() + 1);
        let watch = Stopwatch::start();
        let value = work()?;
        println!("        done in {}", watch.shown());
        self.steps.push((short, watch.elapsed()));
        Ok(value)
    }
}

/// Shows the writer's commits until it has planned a compaction and read the table.
fn follow_writer(repo: &Repo, table: &std::path::Path, writer: &mut Writer) -> Result<Planned> {
    let mut plan = None;
    loop {
        match writer.next()? {
            Event::Started { spark } => println!("        Spark {spark} is up"),
            Event::Commit { number, n_rows, seconds } => {
                let what = if number == 1 { "new rows" } else { "updates of these rows" };
                println!("        write {number}: {n_rows} {what}, {seconds} s")
            }
            Event::Planned { instant, written } => {
                println!("        compaction {instant} is planned; the writer leaves it to TMS");
                // Counted at once: the job needs some seconds to start, and changes these numbers.
                plan = Some((
                    state_on_timeline(repo, table, &instant)?,
                    slices::count(table)?,
                    instant,
                    written,
                ));
            }
            Event::Read(reading) => {
                let (state, slices, instant, written) = plan.context("the writer read before it planned")?;
                return Ok(Planned { instant, written, before: Side { slices, reading, state } });
            }
        }
    }
}

/// A person who stops a run wants an end, not a table; a failure wants to be looked at.
fn what_stays(is_done: bool, is_keep: bool, is_interrupted: bool) -> Kept {
    match (is_done, is_interrupted) {
        (true, _) if is_keep => Kept::All,
        (true, _) => Kept::Nothing,
        (false, true) => Kept::Logs,
        (false, false) => Kept::All,
    }
}

fn table_of(folder: &RunFolder) -> PathBuf {
    folder.tables().join("trips")
}

fn side(repo: &Repo, table: &std::path::Path, instant: &str, reading: Reading) -> Result<Side> {
    Ok(Side { slices: slices::count(table)?, reading, state: state_on_timeline(repo, table, instant)? })
}

/// The job's own log lies in the server's data, which goes at the end; a copy is for people and may be
/// missing.
fn keep_job_log(server: &Server, folder: &RunFolder, ended: &Instance) {
    if let Ok(said) = server.tms(&["instance", "logs", &ended.id]) {
        drop(fs::write(folder.logs().join("job.log"), said.stdout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::{Missing, Usage};

    #[test]
    fn advice_fits_the_fault() {
        let (missing, usage) = (anyhow::Error::from(Missing("m".into())), Usage("u".into()).into());
        let plain = anyhow::anyhow!("cannot open the lock: Read-only file system");
        for step in [1, 2] {
            assert!(advice(step, &missing).contains("a component is missing"));
            assert!(advice(step, &usage).contains("called with"));
            assert!(!advice(step, &plain).contains("missing") && advice(step, &plain).contains("set-up"));
        }
        assert!(advice(3, &missing).contains("missing") && advice(3, &plain).contains("build"));
    }

    #[test]
    fn stopped_run_leaves_its_logs_and_a_failed_one_all() {
        for is_keep in [false, true] {
            assert_eq!(what_stays(false, is_keep, true), Kept::Logs);
            assert_eq!(what_stays(false, is_keep, false), Kept::All);
        }
        assert_eq!(
            (what_stays(true, true, true), what_stays(true, false, false)),
            (Kept::All, Kept::Nothing)
        );
    }
}
