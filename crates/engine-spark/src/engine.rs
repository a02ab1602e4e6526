//! The engine: joins command, folder, wrapper and status. What it says is evidence; what that means is for core.
//!
//! When absence is proven: the store's lock lets one process at a time use the folder of attempts, and a submission
//! makes the attempt's folder before anything else. So, with no submission of this process under way, a tag without a
//! folder was never started and is not going to be; and a folder that no wrapper has claimed is claimed by the engine
//! on the spot, which no wrapper can undo.

mod lookup;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tms_core::clock::Clock;
use tms_core::engine::{
    Capabilities, Engine, Force, Found, Job, JobNeed, JobRef, JobState, LivingJob, LogTail, NotReady,
    SubmitOutcome,
};
use tms_core::model::action::Action;
use tms_core::model::attempt::DriverPlace;
use tms_core::model::id::Tag;
use tms_core::model::instance::ParkReason;
use tms_core::{Error, ErrorKind};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::attempt::{AttemptFolder, Claim, Plan};
use crate::checks::{self, JavaAnswers, Machine};
use crate::command::{self, CommandLine};
use crate::config::SparkConfig;
use crate::logs;
use crate::process::{self, Whom};
use crate::status::Handle;
use crate::sweep::Sweep;

/// Kind of this engine.
pub const KIND: &str = "spark-submit";

/// Longest line in which a wrapper says that it started, in bytes; a handle has about 400.
const HANDLE_BYTES_MAX: u64 = 4_096;
/// How long a killed driver's wrapper may take to store the end, before it is killed too.
const WRAPPER_LAST_WORD_MAX: Duration = Duration::from_secs(3);
/// How long the kernel may take to let killed processes go, before those that are left are named.
const KILLED_GONE_MAX: Duration = Duration::from_secs(2);
/// How often these are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Most folders of ended attempts that one submission removes.
const PRUNED_AT_ONCE_MAX: usize = 16;
/// Most folders of attempts that are counted.
const ATTEMPTS_MAX: usize = 1_000_000;

/// Runs jobs by `spark-submit`.
#[derive(Clone, Debug)]
pub struct SparkSubmit {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: SparkConfig,
    clock: Arc<dyn Clock>,
    java: JavaAnswers,
    sweep: Sweep,
    /// Tags whose submission is under way in this process; absence proves nothing for them.
    in_flight: Mutex<BTreeSet<Tag>>,
}

/// A submission under way; over when dropped.
#[derive(Debug)]
struct InFlight {
    inner: Arc<Inner>,
    tag: Tag,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.tag);
    }
}

/// How far the blocking part of a submission came.
enum Started {
    /// The wrapper runs.
    Wrapper(Box<Child>),
    /// The tag was submitted before.
    Before,
    /// Nothing runs.
    Nothing(String),
}

impl SparkSubmit {
    /// Makes an engine and its folder.
    ///
    /// # Errors
    /// `Invalid` with all faults of the settings, `Unavailable` when the folder cannot be made.
    pub fn new(mut config: SparkConfig, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let faults = config.faults();
        if !faults.is_empty() {
            let all: Vec<String> = faults.iter().map(|f| format!("{}: {}", f.key, f.problem)).collect();
            return Err(
                Error::new(ErrorKind::Invalid, "make a spark-submit engine").with("settings", all.join("; "))
            );
        }
        let made = std::fs::create_dir_all(&config.folder).and_then(|()| config.folder.canonicalize());
        // A wrapper works in another folder: its path must not be a relative one.
        config.folder = made.map_err(|e| io_error("make the folder of attempts", &config.folder, e))?;
        let (java, in_flight) = (JavaAnswers::default(), Mutex::new(BTreeSet::new()));
        let sweep = Sweep::default();
        Ok(Self { inner: Arc::new(Inner { config, clock, java, sweep, in_flight }) })
    }

    /// Enters a submission; `None` when one of the same tag is under way.
    fn enter(&self, tag: &Tag) -> Option<InFlight> {
        let mut in_flight = self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        in_flight.insert(tag.clone()).then(|| InFlight { inner: self.inner.clone(), tag: tag.clone() })
    }

    async fn submit_new(&self, job: &Job, command: CommandLine) -> SubmitOutcome {
        let unknown = |reason: String| SubmitOutcome::Unknown { reason };
        let Some(guard) = self.enter(&job.tag) else {
            return unknown("the same tag is being submitted".to_owned());
        };
        let (inner, owned) = (self.inner.clone(), job.clone());
        // The guard moves along: a caller that gives up waiting does not end this part.
        let started = blocking(move || Ok((inner.start(&owned, command), guard))).await;
        let (started, guard) = match started {
            Ok(started) => started,
            Err(e) => return unknown(e.chain()),
        };
        let outcome = match started {
            Started::Nothing(reason) => SubmitOutcome::Refused { reason },
            Started::Before => self.answer_from_files(&job.tag).await,
            Started::Wrapper(child) => match self.wait_for_wrapper(*child).await {
                Some(handle) => SubmitOutcome::Accepted(handle.text()),
                None => self.answer_from_files(&job.tag).await,
            },
        };
        let inner = self.inner.clone();
        // Old folders go while the guard of this tag is still held, and never in the way of an answer.
        let pruned = blocking(move || {
            inner.prune();
            drop(guard);
            Ok(())
        });
        pruned.await.ok();
        outcome
    }

    /// Waits for the line with which the wrapper says that it runs; `None` when it does not come.
    async fn wait_for_wrapper(&self, mut child: Child) -> Option<Handle> {
        let stdout = child.stdout.take()?;
        let line = tokio::time::timeout(self.inner.config.submit_timeout, first_line(stdout)).await;
        Handle::parse(line.ok()?.as_deref()?)
    }

    /// Answers a submission whose wrapper was started before, or did not say that it runs.
    async fn answer_from_files(&self, tag: &Tag) -> SubmitOutcome {
        let (inner, tag) = (self.inner.clone(), tag.clone());
        let answer = blocking(move || {
            let folder = AttemptFolder::of(&inner.config.folder, &tag);
            Ok(match inner.decided(&folder) {
                Ok(Claim::Wrapper(claim)) => {
                    let jvm = folder.read_jvm().ok().flatten();
                    SubmitOutcome::Accepted(Handle::of(&claim, jvm).text())
                }
                Ok(Claim::Abandoned { why }) => SubmitOutcome::Refused {
                    reason: format!("no driver was started, and none will be: {why}"),
                },
                Err(e) => SubmitOutcome::Unknown { reason: e.to_string() },
            })
        });
        answer.await.unwrap_or_else(|e| SubmitOutcome::Unknown { reason: e.chain() })
    }
}

async fn first_line(stdout: ChildStdout) -> Option<String> {
    let mut line = String::new();
    BufReader::new(stdout.take(HANDLE_BYTES_MAX)).read_line(&mut line).await.ok()?;
    line.ends_with('\n').then_some(line)
}

impl Inner {
    fn is_in_flight(&self, tag: &Tag) -> bool {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).contains(tag)
    }

    /// Makes the folder and starts the wrapper. A kill at any point leaves one of: no folder; a folder that nobody
    /// claims, whose lock is free or held by a wrapper that has yet to claim it; a claimed one.
    fn start(&self, job: &Job, command: CommandLine) -> Started {
        let folder = AttemptFolder::of(&self.config.folder, &job.tag);
        match folder.make() {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Started::Before,
            Err(e) => return Started::Nothing(format!("cannot make {}: {e}", folder.path().display())),
        }
        let CommandLine { program, args } = command;
        let plan = Plan { tag: job.tag.clone(), program, args, log_bytes_max: self.config.log_bytes_max };
        let started = folder
            .lock_alive()
            .and_then(|alive| folder.write_plan(&plan).map(|()| alive))
            .and_then(|alive| process::start_wrapper(&self.config, job, folder.path(), alive));
        match started {
            Ok(child) => Started::Wrapper(Box::new(child)),
            Err(e) => {
                let why = format!("the wrapper could not be started in {}: {e}", folder.path().display());
                // Nothing was started, so that this may fail too: nobody else will ever claim it.
                folder.claim(&Claim::Abandoned { why: why.clone() }).ok();
                Started::Nothing(why)
            }
        }
    }

    /// Returns who claimed the attempt; where nobody did, the engine does, so that nobody will.
    fn decided(&self, folder: &AttemptFolder) -> std::io::Result<Claim> {
        if let Some(claim) = folder.read_claim()? {
            return Ok(claim);
        }
        let at = self.clock.now().to_rfc3339();
        let ours = Claim::Abandoned { why: format!("nothing had started at {at}, when it was looked up") };
        if folder.claim(&ours)? {
            return Ok(ours);
        }
        folder.read_claim()?.ok_or_else(|| std::io::Error::other("the claim of the attempt came and went"))
    }

    /// Returns the tags of the attempts that have a folder.
    fn tags(&self) -> std::io::Result<Vec<Tag>> {
        let mut tags = Vec::new();
        for entry in std::fs::read_dir(&self.config.folder)?.take(ATTEMPTS_MAX) {
            tags.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()));
        }
        Ok(tags)
    }

    /// Removes folders of attempts that are proven to be over, oldest first, down to the number that is kept.
    fn prune(&self) {
        let Ok(mut tags) = self.tags() else { return };
        let Some(n_over) = tags.len().checked_sub(self.config.attempts_kept).filter(|n| *n > 0) else {
            return;
        };
        // Ids of instances sort by the time of their making.
        tags.sort_by_key(|tag| (tag.instance(), tag.attempt()));
        tags.truncate(n_over.min(PRUNED_AT_ONCE_MAX));
        let jobs: Vec<JobRef> = tags.into_iter().map(|tag| JobRef { tag, handle: None }).collect();
        for (job, found) in jobs.iter().zip(self.look_at(&jobs)) {
            let is_over = matches!(
                found.state,
                JobState::Ended { is_settled: true, .. } | JobState::Absent { is_proof: true, .. }
            );
            if is_over {
                let folder = AttemptFolder::of(&self.config.folder, &job.tag);
                if let Err(error) = std::fs::remove_dir_all(folder.path()) {
                    tracing::warn!(%error, folder = %folder.path().display(), "Could not remove an old attempt.");
                }
            }
        }
    }
}

#[async_trait]
impl Engine for SparkSubmit {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn families(&self) -> &'static [&'static str] {
        &["spark"]
    }

    fn capabilities(&self) -> Capabilities {
        let config = &self.inner.config;
        Capabilities {
            is_fenced: true,
            finds_by_tag: true,
            refuses_duplicates: true,
            has_logs: true,
            is_simulation: false,
            settle: config.settle,
            running_max: config.running_max,
            heartbeat_silence: config.heartbeat_silence,
            run_timeout: config.run_timeout,
            submit_timeout: config.submit_timeout,
        }
    }

    async fn ready(&self, need: JobNeed) -> Result<(), NotReady> {
        if need.action == Action::LogCompaction {
            let detail = "no procedure of Hudi runs a log compaction".to_owned();
            return Err(NotReady { reason: ParkReason::LogCompaction, detail });
        }
        self.machine().await?;
        let inner = self.inner.clone();
        let checked = blocking(move || Ok(checks::check_bundle(&inner.config, need))).await;
        checked.unwrap_or_else(|e| Err(NotReady { reason: ParkReason::NoEngine, detail: e.chain() }))
    }

    async fn health(&self) -> Result<(), NotReady> {
        let inner = self.inner.clone();
        let looked =
            blocking(move || Ok((checks::look(&inner.config), checks::bundle_lacks(&inner.config)))).await;
        let (machine, bundles) =
            looked.map_err(|e| NotReady { reason: ParkReason::NoEngine, detail: e.chain() })?;
        let mut lacks: Vec<NotReady> = self.java(machine).await.err().into_iter().collect();
        lacks.extend(bundles);
        checks::all_in_one(lacks)
    }

    async fn submit(&self, job: &Job) -> SubmitOutcome {
        match command::build(&self.inner.config, job) {
            Ok(command) => self.submit_new(job, command).await,
            Err(reason) => SubmitOutcome::Refused { reason },
        }
    }

    async fn was_driver(&self, job: &JobRef, place: &DriverPlace) -> bool {
        let (inner, job, place) = (self.inner.clone(), job.clone(), place.clone());
        blocking(move || Ok(inner.was_driver(&job, &place))).await.unwrap_or(false)
    }

    async fn find(&self, tag: &Tag, handle: Option<&str>) -> Found {
        let job = JobRef { tag: tag.clone(), handle: handle.map(ToOwned::to_owned) };
        let inner = self.inner.clone();
        let found = blocking(move || Ok(inner.look_at(std::slice::from_ref(&job)).pop())).await;
        let nothing = |reason| Found { state: JobState::Unreachable { reason }, handle: None };
        match found {
            Ok(found) => found.unwrap_or_else(|| nothing("the look gave no answer".to_owned())),
            Err(e) => nothing(e.chain()),
        }
    }

    async fn living(&self) -> Result<Vec<LivingJob>, Error> {
        let inner = self.inner.clone();
        blocking(move || {
            inner.living().map_err(|e| io_error("look for living jobs", &inner.config.folder, e))
        })
        .await
    }

    async fn poll(&self, jobs: &[JobRef]) -> Vec<JobState> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let (inner, refs) = (self.inner.clone(), jobs.to_vec());
        match blocking(move || Ok(inner.look_at(&refs))).await {
            Ok(found) => found.into_iter().map(|f| f.state).collect(),
            Err(e) => jobs.iter().map(|_| JobState::Unreachable { reason: e.chain() }).collect(),
        }
    }

    async fn cancel(&self, job: &JobRef, force: Force) -> Result<(), Error> {
        let (inner, target) = (self.inner.clone(), job.clone());
        if force == Force::Gentle {
            return blocking(move || {
                inner.signal(&target, |claim, jvm| process::terminate(claim, jvm).map(drop)).map(drop)
            })
            .await;
        }
        let killed = move || inner.signal(&target, |claim, jvm| process::kill(claim, jvm, Whom::Driver));
        if !blocking(killed).await? {
            return Ok(());
        }
        self.wait_for_end(job, WRAPPER_LAST_WORD_MAX).await;
        let (inner, target) = (self.inner.clone(), job.clone());
        blocking(move || inner.signal(&target, |claim, jvm| process::kill(claim, jvm, Whom::All)).map(drop))
            .await?;
        self.wait_for_end(job, KILLED_GONE_MAX).await;
        let (inner, target) = (self.inner.clone(), job.clone());
        blocking(move || inner.check_killed(&target)).await
    }

    async fn logs(&self, job: &JobRef, bytes_max: usize) -> Result<LogTail, Error> {
        let (inner, tag) = (self.inner.clone(), job.tag.clone());
        blocking(move || {
            let folder = AttemptFolder::of(&inner.config.folder, &tag);
            logs::tail(&folder, bytes_max).map_err(|e| io_error("read the log of a job", folder.path(), e))
        })
        .await
    }
}

impl SparkSubmit {
    /// Tells what is missing for any job at all; a bundle counts for the tables of its version only.
    async fn machine(&self) -> Result<(), NotReady> {
        let inner = self.inner.clone();
        match blocking(move || Ok(checks::look(&inner.config))).await {
            Ok(machine) => self.java(machine).await,
            Err(e) => Err(NotReady { reason: ParkReason::NoEngine, detail: e.chain() }),
        }
    }

    /// Adds what Java itself tells to what its files told.
    async fn java(&self, machine: Machine) -> Result<(), NotReady> {
        self.inner.java.check(&self.inner.config, machine, &*self.inner.clock).await
    }

    /// Gives what was killed time to be gone: the wrapper of a killed driver stores how it ended.
    async fn wait_for_end(&self, job: &JobRef, longest: Duration) {
        let ended = async {
            while self.find(&job.tag, job.handle.as_deref()).await.state == JobState::Running {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // Without the last word the end is told by the processes alone.
        tokio::time::timeout(longest, ended).await.ok();
    }
}

/// Runs work on files and processes where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(Error::new(ErrorKind::Unexpected, "run work of the spark-submit engine").caused_by(e)),
    }
}

fn io_error(operation: &'static str, path: &Path, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, operation).with("path", path.display()).caused_by(error)
}
