//! The simulated engine: jobs that touch nothing but simulated tables, for trials and crash tests. Marked as simulation
//! wherever it shows.
//!
//! A simulated job is a process of its own, so that it outlives a killed server, and keeps all it knows in files. Who
//! starts that process is not decided here: core knows no HTTP, and a driver speaks HTTP. See [`driver`] for what a
//! driver does and [`records`] for what a checker reads.

pub mod driver;
pub mod fate;
pub mod job_folder;
pub mod records;
pub mod table;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::clock::Clock;
use crate::engine::{
    Capabilities, Engine, Force, Found, Job, JobNeed, JobRef, JobState, LivingJob, LogTail, NotReady,
    SubmitOutcome,
};
use crate::error::{Error, ErrorKind};
use crate::fail_point::{self, FailPoint};
use crate::model::attempt::DriverPlace;
use crate::model::id::Tag;
use crate::model::instance::ParkReason;
use fate::{Answered, Fate};
use job_folder::{DriverSpec, JobFolder};

/// Kind of the simulated engine.
pub const KIND: &str = "simulated";
/// Host that simulated drivers name when they ask for leave.
pub const DRIVER_HOST: &str = "simulated";

/// How simulated jobs behave. Every `…_every` is drawn from the seed and the tag, so a restart changes no fate: one
/// in so many, 0 = never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedConfig {
    /// Where records and jobs are kept.
    pub folder: PathBuf,
    /// How long a job works on its table.
    pub run_time: Duration,
    /// Time between the launch of a driver and its first ask; the job is queued meanwhile.
    pub start_delay: Duration,
    /// Jobs that start late: the engine does not know them until they do, and says so without proof.
    pub late_every: u32,
    /// How late those start.
    pub late_by: Duration,
    /// Submissions whose answer is lost; every second one of them starts nothing.
    pub lost_answer_every: u32,
    /// Submissions that are refused.
    pub refuse_every: u32,
    /// Jobs that end without completing; every second one of them vanishes without a word.
    pub fail_every: u32,
    /// Submissions that start two drivers.
    pub duplicate_start_every: u32,
    /// What all draws start from.
    pub seed: u64,
    /// Whether a job without a folder counts as proven absent. True is honest, because drivers come from this process
    /// only; false imitates engines that forget.
    pub absent_is_proof: bool,
    /// Attempts that may be live at once.
    pub running_max: u32,
    /// Time after the end of a job during which it counts as able to write.
    pub settle: Duration,
    /// Silence of a driver after which a holder becomes suspect when the engine does not vouch for it.
    pub heartbeat_silence: Duration,
    /// Longest run of a job.
    pub run_timeout: Duration,
    /// Time within which a submission must answer.
    pub submit_timeout: Duration,
}

impl Default for SimulatedConfig {
    fn default() -> Self {
        Self {
            folder: PathBuf::from("./tms-data/simulated"),
            run_time: Duration::from_secs(5),
            start_delay: Duration::from_millis(500),
            late_every: 0,
            late_by: Duration::from_secs(10),
            lost_answer_every: 0,
            refuse_every: 0,
            fail_every: 0,
            duplicate_start_every: 0,
            seed: 0,
            absent_is_proof: true,
            running_max: 2,
            settle: Duration::ZERO,
            heartbeat_silence: Duration::from_secs(60),
            run_timeout: Duration::from_secs(24 * 3600),
            submit_timeout: Duration::from_secs(600),
        }
    }
}

/// One driver to be started.
#[derive(Debug)]
pub struct DriverLaunch {
    /// The engine's folder.
    pub folder: PathBuf,
    /// The job.
    pub tag: Tag,
    /// 0, or 1 for the second driver of one submission.
    pub number: u32,
    /// `TMS_JOB_URL`, `TMS_JOB_TAG`, `TMS_JOB_TOKEN`, for the driver's environment.
    pub environment: Vec<(&'static str, SecretString)>,
    /// A locked file. It must become the driver's standard input and be closed here: the lock lasts as long as the
    /// driver, and is what tells that it lives.
    pub alive: File,
}

/// Starts drivers.
pub trait DriverLauncher: Debug + Send + Sync + 'static {
    /// Starts one driver as a process that outlives this one; returns its process id.
    ///
    /// # Errors
    /// Nothing was started.
    fn launch(&self, launch: DriverLaunch) -> std::io::Result<u32>;
}

/// The simulated engine.
#[derive(Clone, Debug)]
pub struct SimulatedEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: SimulatedConfig,
    launcher: Arc<dyn DriverLauncher>,
    clock: Arc<dyn Clock>,
    /// Tags whose submission is under way in this process; absence proves nothing for them.
    in_flight: Mutex<BTreeSet<Tag>>,
}

/// Takes the tag out of the set when the submission is done, however it ends.
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

impl SimulatedEngine {
    /// Makes an engine and its folder.
    ///
    /// # Errors
    /// `Unavailable` when the folder cannot be made.
    pub fn new(
        config: SimulatedConfig,
        launcher: Arc<dyn DriverLauncher>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        for part in [job_folder::jobs(&config.folder), table::held(&config.folder)] {
            std::fs::create_dir_all(&part)
                .map_err(|e| io_error("make the folder of the simulated engine", &part, e))?;
        }
        let in_flight = Mutex::new(BTreeSet::new());
        Ok(Self { inner: Arc::new(Inner { config, launcher, clock, in_flight }) })
    }
}

impl Inner {
    fn is_in_flight(&self, tag: &Tag) -> bool {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).contains(tag)
    }

    fn submit(&self, job: &Job) -> SubmitOutcome {
        let fate = Fate::of(&self.config, &job.tag);
        let unknown = |reason: String| SubmitOutcome::Unknown { reason };
        if fate.is_refused {
            return SubmitOutcome::Refused { reason: "the simulation refuses this one".to_owned() };
        }
        if fate.answered == Answered::LostBeforeStart {
            return unknown("the simulation lost the call".to_owned());
        }
        let handle = match self.start(job, &fate) {
            Ok(handle) => handle,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => match self.look_at_files(&job.tag, None) {
                // The call is repeated: what the first one made is the answer.
                Found { handle: Some(handle), .. } => handle,
                found => return unknown(format!("the tag was submitted before: {:?}", found.state)),
            },
            Err(e) => return unknown(e.chain()),
        };
        match fate.answered {
            Answered::LostAfterStart => unknown("the simulation lost the answer".to_owned()),
            Answered::Given | Answered::LostBeforeStart => SubmitOutcome::Accepted(handle),
        }
    }

    fn start(&self, job: &Job, fate: &Fate) -> Result<String, Error> {
        let folder = JobFolder::make(&self.config.folder, &job.tag)?;
        let spec = DriverSpec {
            tag: job.tag.clone(),
            launch: hex::encode(rand::random::<[u8; 8]>()),
            run_time_ms: millis(self.config.run_time),
            start_delay_ms: millis(if fate.is_late { self.config.late_by } else { self.config.start_delay }),
            is_late: fate.is_late,
            end: fate.end,
            n_drivers: fate.n_drivers,
        };
        folder.write_spec(&spec)?;
        fail_point::pass(FailPoint::JobWritten);
        for number in 0..fate.n_drivers {
            use secrecy::ExposeSecret;
            let launch = DriverLaunch {
                folder: self.config.folder.clone(),
                tag: job.tag.clone(),
                number,
                environment: vec![
                    ("TMS_JOB_URL", SecretString::from(job.url.clone())),
                    ("TMS_JOB_TAG", SecretString::from(job.tag.to_string())),
                    ("TMS_JOB_TOKEN", SecretString::from(job.token.expose_secret().to_owned())),
                ],
                alive: folder.lock_alive(number)?,
            };
            self.launcher
                .launch(launch)
                .map_err(|e| io_error("start a simulated driver", folder.path(), e))?;
        }
        Ok(spec.launch)
    }

    /// Lists the jobs whose drivers live. Late ones are missing until they start, as in [`Self::look_into`].
    fn living(&self) -> Result<Vec<LivingJob>, Error> {
        let mut living = Vec::new();
        for folder in JobFolder::all(&self.config.folder)? {
            let (tag, folder) = folder;
            if !folder.is_alive(job_folder::DRIVERS_MAX)? {
                continue;
            }
            let is_late = folder.read_spec()?.is_some_and(|spec| spec.is_late);
            if !is_late || folder.has_started() {
                let what = folder.path().display().to_string();
                living.push(LivingJob { tag, is_own: true, is_seen: true, what });
            }
        }
        Ok(living)
    }

    fn look(&self, tag: &Tag, handle: Option<&str>) -> Found {
        if self.is_in_flight(tag) {
            let what = "the submission, which is under way".to_owned();
            return Found { state: JobState::Absent { is_proof: false, what }, handle: None };
        }
        self.look_at_files(tag, handle)
    }

    /// What the files of one job say.
    fn look_at_files(&self, tag: &Tag, handle: Option<&str>) -> Found {
        let unseen = |state| Found { state, handle: None };
        let folder = match JobFolder::open(&self.config.folder, tag) {
            Ok(Some(folder)) => folder,
            Ok(None) => {
                let what = "the folder of jobs".to_owned();
                return unseen(JobState::Absent { is_proof: self.config.absent_is_proof, what });
            }
            Err(e) => return unseen(JobState::Unreachable { reason: e.chain() }),
        };
        match self.look_into(&folder, handle) {
            Ok(found) => found,
            Err(e) => unseen(JobState::Unreachable { reason: e.chain() }),
        }
    }

    fn look_into(&self, folder: &JobFolder, handle: Option<&str>) -> Result<Found, Error> {
        let Some(spec) = folder.read_spec()? else {
            // Drivers are started after it is written: this submission died before.
            let what = "the folder of the job, which no driver was ever started in".to_owned();
            return Ok(Found { state: JobState::Absent { is_proof: true, what }, handle: None });
        };
        if handle.is_some_and(|h| h != spec.launch) {
            let what = format!("launch {} has the tag", spec.launch);
            return Ok(Found { state: JobState::Other { what }, handle: Some(spec.launch) });
        }
        let is_alive = folder.is_alive(spec.n_drivers)?;
        let has_started = folder.has_started();
        let state = match (is_alive, has_started) {
            (true, false) if spec.is_late => JobState::Absent {
                is_proof: false,
                what: "the list of jobs, where late ones are missing".to_owned(),
            },
            (true, false) => JobState::Queued,
            (true, true) => JobState::Running,
            (false, false) => {
                JobState::Absent { is_proof: true, what: "the lock of a driver that never spoke".to_owned() }
            }
            (false, true) => JobState::Ended { how: folder.end_word()?, is_settled: true },
        };
        let is_seen = !matches!(state, JobState::Absent { .. });
        Ok(Found { state, handle: is_seen.then_some(spec.launch) })
    }
}

#[async_trait]
impl Engine for SimulatedEngine {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn families(&self) -> &'static [&'static str] {
        &[]
    }

    fn capabilities(&self) -> Capabilities {
        let config = &self.inner.config;
        Capabilities {
            is_fenced: true,
            finds_by_tag: true,
            refuses_duplicates: true,
            has_logs: true,
            is_simulation: true,
            settle: config.settle,
            running_max: config.running_max,
            heartbeat_silence: config.heartbeat_silence,
            run_timeout: config.run_timeout,
            submit_timeout: config.submit_timeout,
        }
    }

    async fn ready(&self, _need: JobNeed) -> Result<(), NotReady> {
        self.health().await
    }

    async fn health(&self) -> Result<(), NotReady> {
        let folder = self.inner.config.folder.clone();
        let is_folder = blocking(move || Ok(folder.is_dir())).await.unwrap_or(false);
        if is_folder {
            return Ok(());
        }
        let detail =
            format!("the folder {} of the simulated engine is gone", self.inner.config.folder.display());
        Err(NotReady { reason: ParkReason::NoEngine, detail })
    }

    async fn submit(&self, job: &Job) -> SubmitOutcome {
        {
            let mut in_flight = self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
            if !in_flight.insert(job.tag.clone()) {
                return SubmitOutcome::Unknown { reason: "the same tag is being submitted".to_owned() };
            }
        }
        let guard = InFlight { inner: self.inner.clone(), tag: job.tag.clone() };
        let (inner, job) = (self.inner.clone(), job.clone());
        // The guard moves along: a caller that gives up waiting does not end the submission.
        let done = blocking(move || {
            let outcome = inner.submit(&job);
            drop(guard);
            Ok(outcome)
        });
        done.await.unwrap_or_else(|e| SubmitOutcome::Unknown { reason: e.chain() })
    }

    async fn find(&self, tag: &Tag, handle: Option<&str>) -> Found {
        let (inner, tag, handle) = (self.inner.clone(), tag.clone(), handle.map(ToOwned::to_owned));
        let found = blocking(move || Ok(inner.look(&tag, handle.as_deref()))).await;
        found.unwrap_or_else(|e| Found { state: JobState::Unreachable { reason: e.chain() }, handle: None })
    }

    async fn living(&self) -> Result<Vec<LivingJob>, Error> {
        let inner = self.inner.clone();
        blocking(move || inner.living()).await
    }

    async fn poll(&self, jobs: &[JobRef]) -> Vec<JobState> {
        let (inner, refs) = (self.inner.clone(), jobs.to_vec());
        let states = blocking(move || {
            Ok(refs.iter().map(|job| inner.look(&job.tag, job.handle.as_deref()).state).collect::<Vec<_>>())
        });
        states
            .await
            .unwrap_or_else(|e| jobs.iter().map(|_| JobState::Unreachable { reason: e.chain() }).collect())
    }

    async fn cancel(&self, job: &JobRef, force: Force) -> Result<(), Error> {
        let (inner, tag) = (self.inner.clone(), job.tag.clone());
        blocking(move || match JobFolder::open(&inner.config.folder, &tag)? {
            Some(folder) => folder.ask_to_end(force),
            None => Ok(()),
        })
        .await
    }

    async fn was_driver(&self, _job: &JobRef, place: &DriverPlace) -> bool {
        // Each driver of a submission holds a lock, and the job has ended when none is held.
        place.host == DRIVER_HOST
    }

    async fn logs(&self, job: &JobRef, bytes_max: usize) -> Result<LogTail, Error> {
        let (inner, tag) = (self.inner.clone(), job.tag.clone());
        blocking(move || match JobFolder::open(&inner.config.folder, &tag)? {
            Some(folder) => folder.log_tail(bytes_max),
            None => Err(Error::new(ErrorKind::NotFound, "read the log of a simulated job").with("tag", &tag)),
        })
        .await
    }
}

impl SimulatedEngine {
    /// Returns the clock that records are dated by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => {
            Err(Error::new(ErrorKind::Unexpected, "run file work of the simulated engine").caused_by(e))
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn io_error(operation: &'static str, path: &Path, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, operation).with("path", path.display()).caused_by(error)
}

#[cfg(test)]
mod tests;
