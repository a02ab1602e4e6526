//! What runs jobs. An engine is asked to submit, find, poll, cancel and show logs; what it says is an observation,
//! never the verdict.

pub mod scripted;
pub mod simulated;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::error::Error;
use crate::model::action::Action;
use crate::model::attempt::DriverPlace;
use crate::model::id::{EngineName, Tag};
use crate::model::instance::ParkReason;
use crate::model::table::TableFacts;

/// One job: an attempt as an engine gets it. Nothing secret but the token, which never goes into arguments.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the attempt.
    pub tag: Tag,
    /// What it runs.
    pub action: Action,
    /// The path as it was announced.
    pub base_path: String,
    /// `hoodie.table.version` of the table, which picks the bundle.
    pub table_version: u32,
    /// Address that the job asks for leave at.
    pub url: String,
    /// Bearer token of the job.
    pub token: SecretString,
    /// Settings of the engine for this job, such as memory, from the request; checked by the engine against its allow list.
    pub resources: BTreeMap<String, String>,
    /// Longest run.
    pub run_timeout: Duration,
}

/// What an engine needs to run a job, for the check before a submission.
#[derive(Clone, Copy, Debug)]
pub struct JobNeed {
    /// What it runs.
    pub action: Action,
    /// `hoodie.table.version` of the table.
    pub table_version: u32,
}

impl JobNeed {
    /// Returns what a job of this action needs on a table with these facts.
    #[must_use]
    pub fn of(action: Action, facts: &TableFacts) -> Self {
        Self { action, table_version: facts.table_version }
    }
}

/// Why an engine cannot take a job at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// Under which reason the instance is parked.
    pub reason: ParkReason,
    /// What is missing, and what to do.
    pub detail: String,
}

/// The answer to a submission. An unknown one is a state, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The engine has it under this name of its own.
    Accepted(String),
    /// The engine does not have it and never will have this call.
    Refused {
        /// Why.
        reason: String,
    },
    /// The answer was lost; it may or may not run.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// What an engine says about one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for resources.
    Queued,
    /// It runs. Unknown words of an engine count as this.
    Running,
    /// It ended, in whatever way. Driver and workers may still be alive for the settle time.
    Ended {
        /// The engine's word, and the exit code when there is one.
        how: String,
        /// When the engine says it ended, and whether its containers are known to be gone.
        is_settled: bool,
    },
    /// Something has our tag but another identity than the one recorded.
    Other {
        /// What.
        what: String,
    },
    /// The engine does not know it.
    Absent {
        /// Whether this proves that no driver of it can ever run: see `capabilities`.
        is_proof: bool,
        /// What was looked at.
        what: String,
    },
    /// The engine did not answer.
    Unreachable {
        /// Why.
        reason: String,
    },
}

/// What [`Engine::find`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// State of the job.
    pub state: JobState,
    /// What the engine calls it, when it was found.
    pub handle: Option<String>,
}

/// A job to poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRef {
    /// Tag.
    pub tag: Tag,
    /// Handle, when known.
    pub handle: Option<String>,
}

/// What an engine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its jobs ask for leave.
    pub is_fenced: bool,
    /// A job can be found by its tag alone.
    pub finds_by_tag: bool,
    /// A second submission with the same tag is refused.
    pub refuses_duplicates: bool,
    /// Logs can be shown.
    pub has_logs: bool,
    /// Nothing real runs.
    pub is_simulation: bool,
    /// Time after the end of a job during which its workers may still write.
    pub settle: Duration,
    /// Attempts that may be live at once.
    pub running_max: u32,
    /// Silence of a driver after which a holder becomes suspect when the engine does not vouch for it.
    pub heartbeat_silence: Duration,
    /// Longest run of a job.
    pub run_timeout: Duration,
    /// Time within which a submission must answer, and during which absence proves nothing.
    pub submit_timeout: Duration,
}

/// The end of a job's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Text, redacted by nobody: the job prints no secrets.
    pub text: String,
    /// Where the whole log is, for people.
    pub address: Option<String>,
    /// The text is only the end.
    pub is_cut: bool,
}

/// How strongly a job is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    /// It may finish what it holds, the table lock above all.
    Gentle,
    /// It is ended.
    Kill,
}

/// A job that lives, or of which the engine cannot prove that it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingJob {
    /// Its tag.
    pub tag: Tag,
    /// It lies in the engine's own folder, which no other TMS uses; else it was only seen on the same machine, where other
    /// TMS may run jobs too.
    pub is_own: bool,
    /// It was seen alive; else it only cannot be told, as of one that was started on another machine.
    pub is_seen: bool,
    /// What is known of it, for people.
    pub what: String,
}

/// Runs jobs.
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// Returns the kind, such as `spark-submit`.
    fn kind(&self) -> &'static str;

    /// Returns the engine families it serves, such as `spark`; empty = all.
    fn families(&self) -> &'static [&'static str];

    /// Returns what it can do.
    fn capabilities(&self) -> Capabilities;

    /// Tells what is missing for jobs like this, before anything is submitted. Cheap enough to be called for every submission.
    async fn ready(&self, need: JobNeed) -> Result<(), NotReady>;

    /// Tells what is missing for any job at all; shown by `/readyz`.
    async fn health(&self) -> Result<(), NotReady>;

    /// Submits a job.
    async fn submit(&self, job: &Job) -> SubmitOutcome;

    /// Looks a job up by its tag.
    async fn find(&self, tag: &Tag, handle: Option<&str>) -> Found;

    /// Returns every job that may live, whoever submitted it, as far as the engine can see.
    ///
    /// # Errors
    /// What it could not look at; then nothing is known.
    async fn living(&self) -> Result<Vec<LivingJob>, Error>;

    /// Returns the states of many jobs, in the order given, with a number of calls that does not grow with the jobs.
    async fn poll(&self, jobs: &[JobRef]) -> Vec<JobState>;

    /// Asks a job to end; repeated until it is over. An unknown job is no error.
    async fn cancel(&self, job: &JobRef, force: Force) -> Result<(), Error>;

    /// Tells whether the process at `place` was the driver of this job, so that what the engine says of the job's end holds
    /// for it. False when the engine cannot tell: then a driver that spoke lately counts as alive whatever the engine says.
    async fn was_driver(&self, _job: &JobRef, _place: &DriverPlace) -> bool {
        false
    }

    /// Returns the last `bytes_max` bytes of a job's log.
    async fn logs(&self, job: &JobRef, bytes_max: usize) -> Result<LogTail, Error>;
}

/// The engines of this node by name.
pub type Engines = BTreeMap<EngineName, std::sync::Arc<dyn Engine>>;
