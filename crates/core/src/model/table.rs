//! A table as TMS keeps it: identity and settings, touches by writers, and what the last look saw.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::model::action::{Action, Instant};
use crate::model::id::{TableId, Version};
use crate::model::path::BasePath;
use crate::model::policy::TableSettings;
use crate::model::request::Trigger;

/// Identity and settings of a table. Changed by Managers only, by compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Identity.
    pub id: TableId,
    /// Canonical base path.
    pub base_path: BasePath,
    /// True when a person registered it, false when it announced itself.
    pub is_registered: bool,
    /// Its own settings.
    pub settings: TableSettings,
    /// A person's acknowledgement of damage or of a writer that is not locked, with its time.
    pub acknowledged_at: Option<Timestamp>,
    /// When it became known.
    pub created_at: Timestamp,
    /// Version of this row.
    pub version: Version,
}

/// What writers told about a table. Raised by hand-overs only; no version, since repeats must merge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    /// Number of hand-overs so far.
    pub touch: u64,
    /// When a writer handed over last.
    pub last_heard: Option<Timestamp>,
    /// The path as it was announced last; what a job gets.
    pub spelling: String,
    /// Label, as announced last.
    pub database: Option<String>,
    /// Label, as announced last.
    pub name: Option<String>,
    /// What told of the table last; unset in rows of builds that did not keep it.
    #[serde(default)]
    pub trigger: Option<Trigger>,
}

/// What the looks at a table saw. Written by Services only, with their term.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LookState {
    /// Touch number that the last finished look has covered.
    pub looked: u64,
    /// When the last look that could read the table ended.
    pub looked_at: Option<Timestamp>,
    /// Set while the table cannot be read.
    pub trouble: Option<LookTrouble>,
    /// Facts of the table's properties.
    pub facts: Option<TableFacts>,
    /// `hoodie.table.name`, when there is one; a label.
    pub name: Option<String>,
    /// `hoodie.database.name`, when there is one; a label.
    pub database: Option<String>,
    /// Plans that stand on the timeline and are served by nobody yet, oldest first, at most [`UNSERVED_MAX`].
    pub unserved: Vec<Unserved>,
    /// Plans of actions that were not handed over.
    pub n_foreign_plans: u32,
    /// Pending plans that are in nobody's list here: of actions that are not handed over, oldest first, at most
    /// [`UNSERVED_MAX`].
    #[serde(default)]
    pub foreign: Vec<PlanKey>,
    /// Plans whose instances a person removed, while they stand; at most [`REMOVED_MAX`].
    #[serde(default)]
    pub removed: Vec<Removed>,
    /// Last success per action, by our attempts.
    pub last_success: BTreeMap<Action, Timestamp>,
    /// Text of the last failure of an attempt.
    pub last_error: Option<String>,
    /// Completed data commits since the newest completed clean.
    pub commits_since_clean: u32,
    /// Newest completed data commit at the time of our last clean attempt; commits after it count towards the next.
    pub cleaned_up_to: Option<Instant>,
    /// Set when the table may be damaged: nothing more is submitted, every clean is held.
    pub damage: Option<Damage>,
    /// Set when a running write without a heartbeat was seen on a locked table: no locked job runs until a person says that
    /// the writer has the lock lines now.
    #[serde(default)]
    pub unlocked_writer: Option<UnlockedWriter>,
    /// Instants whose second completed file or foreign rollback was alarmed already, at most [`UNSERVED_MAX`].
    pub damage_seen: Vec<Instant>,
    /// Instants in a pending plan that were completed by somebody else while we were about to run them.
    pub n_completed_by_others: u32,
    /// Age-relevant state of `.hoodie/lock`, when present: its modification time.
    pub lock_since: Option<Timestamp>,
}

/// Running writes without a heartbeat on a locked table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlockedWriter {
    /// What was seen, for people.
    pub reason: String,
    /// When it was seen first.
    pub since: Timestamp,
    /// The writes. Once a person has said that the writer is locked, these count as what a dead one left behind, at most
    /// [`UNSERVED_MAX`].
    pub writes: Vec<String>,
}

/// Most unserved plans that are kept per table; the count goes on in the metrics.
pub const UNSERVED_MAX: usize = 100;

/// Most removed plans that are followed per table; further ones stay removed for good.
pub const REMOVED_MAX: usize = 1_000;

/// A plan of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlanKey {
    /// Its action.
    pub action: Action,
    /// Its instant.
    pub instant: Instant,
}

/// A plan that stays removed until it is gone from the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// The plan.
    pub plan: PlanKey,
    /// First time a readable look missed it.
    pub missed_since: Option<Timestamp>,
}

/// Why a table cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookTrouble {
    /// What happened, with the file and what to do.
    pub error: String,
    /// Looks that failed in a row.
    pub n_failed: u32,
    /// When it is tried again.
    pub not_before: Timestamp,
    /// Since when it cannot be read.
    pub since: Timestamp,
}

/// Facts of a table's properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFacts {
    /// `hoodie.table.version`.
    pub table_version: u32,
    /// `hoodie.timeline.layout.version`.
    pub layout: u32,
    /// `COPY_ON_WRITE` or `MERGE_ON_READ`.
    pub table_type: String,
    /// Version and layout of the metadata table, when there is one.
    pub metadata_table: Option<(u32, u32)>,
}

/// A plan that stands on the timeline and is not completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unserved {
    /// Its action.
    pub action: Action,
    /// Its instant.
    pub instant: Instant,
    /// When a look saw it first.
    pub since: Timestamp,
}

/// Why a table may be damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// What was seen.
    pub reason: String,
    /// When.
    pub since: Timestamp,
}

/// All that is stored of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRecord {
    /// Identity and settings.
    pub table: Table,
    /// What writers told.
    pub touch: Touch,
    /// What looks saw.
    pub look: LookState,
}

impl TableRecord {
    /// Returns the path that a job gets.
    #[must_use]
    pub fn spelling(&self) -> &str {
        if self.touch.spelling.is_empty() { self.table.base_path.as_str() } else { &self.touch.spelling }
    }

    /// Returns the table's name: as announced last, else as its properties say.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.touch.name.as_deref().or(self.look.name.as_deref())
    }

    /// Returns the table's database: as announced last, else as its properties say.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.touch.database.as_deref().or(self.look.database.as_deref())
    }
}
