//! One table service to be run.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::model::action::{Action, Instant};
use crate::model::attempt::{Attempt, AttemptState};
use crate::model::id::{InstanceId, QueueName, TableId, Version};
use crate::model::request::Trigger;

/// What makes an instance unique. `None` = work that has no instant yet (`next`): one live at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstanceKey {
    /// Table.
    pub table: TableId,
    /// Action.
    pub action: Action,
    /// Instant, or `next`.
    pub instant: Option<Instant>,
}

/// Why a pending instance waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// It may run as soon as there is room.
    Ready,
    /// An attempt failed; it runs again after the back-off.
    Backoff,
    /// The lock of the table is held, or was not to be had.
    LockHeld,
    /// Hudi refused because of the heartbeat of another runner; it clears about 2 minutes after that one's death.
    HeartbeatRefused,
    /// The job left without touching the table.
    NoLeave,
    /// The engine refused the submission for now.
    EngineRefused,
    /// A restore or savepoint of the table is under way.
    Upheaval,
    /// The table cannot be read.
    Unreadable,
}

/// Why an instance is parked. Parked is live: counted, aged, alarmed; released by a change of the cause or by a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// A commit touched a file group of the clustering plan after it was made.
    Overtaken,
    /// It cannot be told whether a commit overtook the plan.
    OvertakenUnknown,
    /// The table has a metadata table and nobody said how it is locked.
    NoLock,
    /// The plan cannot be read.
    Unreadable,
    /// A path of the plan lies outside the base path.
    ForeignPaths,
    /// An `inflight` that no attempt of ours explains.
    ForeignRunner,
    /// The plan belongs to a metadata table.
    MetadataTable,
    /// No launcher runs log compaction.
    LogCompaction,
    /// No engine for it, or the engine lacks what it needs.
    NoEngine,
    /// No configured bundle fits the table.
    BundleTooOld,
    /// The only bundle that fits is newer than the table, and this action fails with it.
    BundleTooNew,
    /// The path leads to another one: two names of one table would be two tables.
    PathAlias,
    /// The table's version is not one of 6, 8, 9.
    TableVersion,
    /// A submission whose answer was lost, by a launcher that asks for no leave.
    UnfencedUnknown,
    /// Another job has our tag.
    TagTaken,
    /// A writer of a `locked` table writes without a heartbeat: it is not locked.
    UnlockedWriter,
    /// Two completed files, or a rollback that is not ours: the table may be damaged.
    DamageSuspected,
    /// A Hudi option of the configuration was refused.
    BadOption,
}

impl ParkReason {
    /// Returns the word that people and programs use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overtaken => "overtaken",
            Self::OvertakenUnknown => "overtaken_unknown",
            Self::NoLock => "no_lock",
            Self::Unreadable => "unreadable",
            Self::ForeignPaths => "foreign_paths",
            Self::ForeignRunner => "foreign_runner",
            Self::MetadataTable => "metadata_table",
            Self::LogCompaction => "log_compaction",
            Self::NoEngine => "no_engine",
            Self::BundleTooOld => "bundle_too_old",
            Self::BundleTooNew => "bundle_too_new",
            Self::PathAlias => "path_alias",
            Self::TableVersion => "table_version",
            Self::UnfencedUnknown => "unfenced_unknown",
            Self::TagTaken => "tag_taken",
            Self::UnlockedWriter => "unlocked_writer",
            Self::DamageSuspected => "damage_suspected",
            Self::BadOption => "bad_option",
        }
    }

    /// Tells whether only a person releases it; the others are checked again and released by themselves.
    #[must_use]
    pub fn needs_person(self) -> bool {
        matches!(
            self,
            Self::ForeignRunner
                | Self::UnfencedUnknown
                | Self::TagTaken
                | Self::UnlockedWriter
                | Self::DamageSuspected
        )
    }

    /// Returns the way out, for people.
    #[must_use]
    pub fn way_out(self) -> &'static str {
        match self {
            Self::Overtaken => {
                "running the plan would undo a commit: roll the plan back with Hudi, or let the writer do so"
            }
            Self::OvertakenUnknown => "make the commits since the plan readable, or roll the plan back",
            Self::NoLock => {
                "set tables.concurrency (or the table's own) to locked or exclusive; locked needs the lock lines in writers and jobs"
            }
            Self::Unreadable => "repair or roll back the plan on the timeline",
            Self::ForeignPaths => "roll the plan back: it names files outside the table's base path",
            Self::ForeignRunner => {
                "make sure that no other runner is alive, then `tms instance retry ID --take-over`"
            }
            Self::MetadataTable => "leave the metadata table to the data table's writer",
            Self::LogCompaction => "let the writer run log compaction; TMS cannot yet",
            Self::NoEngine => "configure an engine for it, or mend what the engine lacks",
            Self::BundleTooOld | Self::BundleTooNew => {
                "configure engines.<name>.bundles for this table version"
            }
            Self::PathAlias => {
                "let the writers name the real path, or map the one to the other by storage.aliases; then remove this table"
            }
            Self::TableVersion => "TMS acts on table versions 6, 8 and 9 only",
            Self::UnfencedUnknown => {
                "find out whether the job runs, then `tms instance retry ID --take-over`"
            }
            Self::TagTaken => {
                "find the job that has this tag and end it, then `tms instance retry ID --take-over`"
            }
            Self::UnlockedWriter => {
                "give the writer the lock lines (lazy cleaning among them), make sure that the write is dead or over, then `tms instance retry ID`"
            }
            Self::DamageSuspected => {
                "stop the writers, check the table with and without its metadata table, then `tms instance retry ID --take-over`"
            }
            Self::BadOption => "correct the hudi.options of the configuration or of the table",
        }
    }
}

/// State of an instance, as in `states.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum InstanceState {
    /// Named by a request, not yet seen on the timeline.
    Hinted,
    /// May run once its reason is over.
    Pending {
        /// Why it waits.
        reason: WaitReason,
        /// Not before this time.
        not_before: Option<Timestamp>,
    },
    /// Somebody else seems to run it.
    WaitingForeign {
        /// Since when.
        since: Timestamp,
        /// Newest sign of life of the other runner.
        sign: Option<Timestamp>,
    },
    /// Held until its cause is gone or a person releases it.
    Parked {
        /// Why.
        reason: ParkReason,
        /// What exactly, for people.
        detail: String,
        /// Since when.
        since: Timestamp,
    },
    /// An attempt is live.
    Active,
    /// The timeline says completed; the attempt is not over yet.
    Succeeding,
    /// Ended: completed on the timeline.
    Succeeded,
    /// Ended: too many failed attempts.
    Failed,
    /// Ended: somebody cancelled it; the plan stays until `retry`.
    Cancelled,
    /// Ended: the plan is gone, or was never there.
    Obsolete,
}

impl InstanceState {
    /// Returns the word that people and programs use.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Hinted => "hinted",
            Self::Pending { .. } => "pending",
            Self::WaitingForeign { .. } => "waiting_foreign",
            Self::Parked { .. } => "parked",
            Self::Active => "active",
            Self::Succeeding => "succeeding",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Obsolete => "obsolete",
        }
    }

    /// All words, for filters.
    pub const WORDS: [&'static str; 10] = [
        "hinted",
        "pending",
        "waiting_foreign",
        "parked",
        "active",
        "succeeding",
        "succeeded",
        "failed",
        "cancelled",
        "obsolete",
    ];

    /// Tells whether it has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Obsolete)
    }
}

/// A wish to stop an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelAsked {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// What a plan tells of its size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSize {
    /// File groups that it rewrites.
    pub file_groups: Option<u64>,
    /// Log files that it reads.
    pub log_files: Option<u64>,
    /// Bytes that it reads.
    pub bytes: Option<u64>,
    /// Partitions that it touches.
    pub partitions: Option<u64>,
}

/// One table service to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Identity.
    pub id: InstanceId,
    /// What makes it unique.
    pub key: InstanceKey,
    /// State.
    pub state: InstanceState,
    /// Mark: somebody asked to cancel it.
    pub cancel_asked: Option<CancelAsked>,
    /// A person allowed to run it although somebody else seems to.
    pub take_over: bool,
    /// When that was allowed; it says nothing of a runner that comes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over_at: Option<Timestamp>,
    /// Queue.
    pub queue: QueueName,
    /// Engine family or name that the request named.
    pub execution_engine: Option<String>,
    /// Higher first.
    pub priority: i32,
    /// What told us first.
    pub trigger: Trigger,
    /// A person named this very instance, so that it runs whatever actions are handed over.
    #[serde(default)]
    pub is_asked_for: bool,
    /// What the plan tells of its size.
    pub plan: PlanSize,
    /// The attempt that is live, or the last one while the instance lives.
    pub attempt: Option<Box<Attempt>>,
    /// Attempts so far.
    pub n_attempts: u32,
    /// Attempts before it was last reopened: a person wanted it tried again, or its plan came back.
    #[serde(default)]
    pub n_attempts_before: u32,
    /// Attempts that failed and count against the limit.
    pub n_failed: u32,
    /// An attempt of ours was told to make its call, so an `.inflight` of the instant is ours.
    pub has_called: bool,
    /// Times that another action of the table was chosen before this one.
    pub n_passed_over: u32,
    /// Text of the last failure.
    pub last_error: Option<String>,
    /// First time a readable look missed its instant; for `gone`.
    pub missed_since: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Version of the row.
    pub version: Version,
}

impl Instance {
    /// Makes a new instance in `state` with nothing tried yet.
    #[must_use]
    pub fn new(key: InstanceKey, state: InstanceState, trigger: Trigger, at: Timestamp) -> Self {
        Self {
            id: InstanceId::new(),
            key,
            state,
            cancel_asked: None,
            take_over: false,
            take_over_at: None,
            queue: QueueName::default(),
            execution_engine: None,
            priority: 0,
            trigger,
            is_asked_for: false,
            plan: PlanSize::default(),
            attempt: None,
            n_attempts: 0,
            n_attempts_before: 0,
            n_failed: 0,
            has_called: false,
            n_passed_over: 0,
            last_error: None,
            missed_since: None,
            created_at: at,
            updated_at: at,
            ended_at: None,
            version: Version::default(),
        }
    }

    /// Tells whether an attempt is live: the table's slot is taken.
    #[must_use]
    pub fn takes_slot(&self) -> bool {
        self.attempt.as_ref().is_some_and(|a| a.state.is_live())
    }

    /// Returns the live attempt.
    #[must_use]
    pub fn live_attempt(&self) -> Option<&Attempt> {
        self.attempt.as_deref().filter(|a| a.state.is_live())
    }

    /// Returns the attempts in a row that did not complete the plan, whether they count against the limit or not.
    #[must_use]
    pub fn n_tries(&self) -> u32 {
        self.n_attempts.saturating_sub(self.n_attempts_before)
    }

    /// Returns the state of the last attempt.
    #[must_use]
    pub fn attempt_state(&self) -> Option<AttemptState> {
        self.attempt.as_ref().map(|a| a.state)
    }
}
