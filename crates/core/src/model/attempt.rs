//! One submission of an instance to an engine.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::model::action::Instant;
use crate::model::id::{EngineName, RunId, Tag, Term};

/// How a job executes an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launcher {
    /// Our job and Hudi's SQL procedures; fenced by leave.
    Procedure,
    /// The simulated engine; nothing real runs.
    Simulated,
}

impl Launcher {
    /// Tells whether its driver asks for leave.
    #[must_use]
    pub fn is_fenced(self) -> bool {
        match self {
            Self::Procedure | Self::Simulated => true,
        }
    }
}

/// State of an attempt, as in `states.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Stored; the engine was not called.
    Intended,
    /// The engine is being called, or was when a former leader died.
    Called,
    /// The answer was lost.
    Unknown,
    /// The engine has it.
    Accepted,
    /// A driver holds leave.
    Holding,
    /// The holder may be dead; not proven.
    Suspect,
    /// No driver of it can ever touch the table.
    Revoked,
    /// Driver and workers ended, or never could touch the table.
    Over,
}

impl AttemptState {
    /// Returns the word that people and programs use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Called => "called",
            Self::Unknown => "unknown",
            Self::Accepted => "accepted",
            Self::Holding => "holding",
            Self::Suspect => "suspect",
            Self::Revoked => "revoked",
            Self::Over => "over",
        }
    }

    /// Tells whether a driver of it could still touch the table.
    #[must_use]
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Revoked | Self::Over)
    }
}

/// Who has the leave of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// Nobody asked yet.
    #[default]
    None,
    /// This run has it.
    Run(RunId),
    /// Nobody ever gets it.
    Revoked,
}

/// Where the holder said that it runs. Engines compare it with the job that they know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverPlace {
    /// Host name, as the driver sees it.
    pub host: String,
    /// Process id, as the driver sees it.
    pub pid: u32,
}

/// What the job must find on the timeline right before its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// `.requested` alone.
    Requested,
    /// `.requested`, and an `.inflight` of an attempt of ours that is over.
    InflightOfOurs,
    /// No pending instant of the action (clean).
    None,
}

/// What a driver said of its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What it does.
    pub phase: String,
    /// Tasks ended.
    pub tasks_done: u64,
    /// Tasks known so far; may grow.
    pub tasks_total: u64,
    /// 0 to 99; 100 only comes from the timeline.
    pub percent: u8,
}

/// Outcome of a driver that never made its call.
pub const UNTOUCHED: &str = "untouched";

/// How a driver said it ended. A hint to look, never the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// `returned`, `threw`, `untouched`, `stopped`, `timed_out`.
    pub outcome: String,
    /// Exit code that it is about to give.
    pub exit_code: i32,
    /// Chain of causes, cut.
    pub error: Vec<String>,
    /// Result rows of the procedure, cut.
    pub rows: Vec<String>,
    /// When it reached us.
    pub at: Timestamp,
}

/// How an attempt ended, once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// The timeline says completed.
    Completed,
    /// The plan still stands; counts against the limit.
    Failed,
    /// The plan still stands; does not count (no leave, lock not free, heartbeat refused, nothing to do).
    NotCounted,
    /// The plan is gone.
    PlanGone,
    /// Somebody asked to cancel it.
    Cancelled,
    /// The job refused its own commit because a write overtook it.
    Overtaken,
    /// No driver ever had leave.
    Revoked,
}

/// Versions of both properties files before a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsSeen {
    /// `hoodie.table.version` and layout of the table.
    pub table: (u32, u32),
    /// The same of its metadata table, when there is one.
    pub metadata_table: Option<(u32, u32)>,
}

/// One submission of an instance to an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1, 2, …
    pub number: u32,
    /// Its name for engines.
    pub tag: Tag,
    /// Engine that it went to.
    pub engine: EngineName,
    /// How the job executes the action.
    pub launcher: Launcher,
    /// State.
    pub state: AttemptState,
    /// Who has leave.
    pub holder: Holder,
    /// Where the holder runs, when it said so.
    #[serde(default)]
    pub holder_place: Option<DriverPlace>,
    /// Term that intended it.
    pub term: Term,
    /// SHA-256 of the job's token, hex.
    pub token_hash: String,
    /// What the engine calls it; opaque to us.
    pub handle: Option<String>,
    /// What the job must find on the timeline.
    pub expected: Expected,
    /// The clean of somebody else that an instance without an instant takes over.
    #[serde(default)]
    pub takes: Option<Instant>,
    /// Versions of both properties files before the job.
    pub versions: Option<VersionsSeen>,
    /// Newest completed clean before it (clean only): a newer one is its success.
    pub baseline: Option<Instant>,
    /// Rollbacks that named its instant before it: none of them says that somebody else is at work now. Unset in rows of
    /// builds that did not keep it.
    #[serde(default)]
    pub rollbacks_before: Option<Vec<String>>,
    /// When it was stored.
    pub intended_at: Timestamp,
    /// When the engine was called.
    pub called_at: Option<Timestamp>,
    /// When the engine had it.
    pub accepted_at: Option<Timestamp>,
    /// When a driver got leave first.
    pub leave_at: Option<Timestamp>,
    /// When the holder was told to make its call.
    pub call_at: Option<Timestamp>,
    /// When its driver spoke last.
    pub heard_at: Option<Timestamp>,
    /// When the engine or the job was first seen ended.
    pub ended_at: Option<Timestamp>,
    /// When it was over.
    pub over_at: Option<Timestamp>,
    /// What proves that it is over.
    pub proof: Option<String>,
    /// What the engine said last, as a word.
    pub engine_word: Option<String>,
    /// Progress.
    pub progress: Option<Progress>,
    /// How the driver said it ended.
    pub report: Option<JobReport>,
    /// How it ended.
    pub end: Option<AttemptEnd>,
    /// Kills that were sent, for the log and for back-off.
    pub n_kills: u32,
    /// It was live in a copy that the store was restored from: what became of it since is not known, so that only proof of
    /// its end counts, and what stands on the timeline after it need not be its work.
    #[serde(default)]
    pub is_restored: bool,
}

impl Attempt {
    /// Tells whether it was restored from a copy that names no holder, so that some driver may have leave.
    #[must_use]
    pub fn has_unknown_holder(&self) -> bool {
        self.is_restored && self.holder == Holder::Run(RunId::unknown())
    }
}

/// Returns what is stored of a job's token.
#[must_use]
pub fn token_hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}
