//! The edge to tables: what a look saw as plain data, and the one mapping from the reader of Hudi tables.
//!
//! It must not decide anything.

pub mod hudi;
pub mod scripted;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::Error;
use crate::model::action::{Action, Instant};
use crate::model::attempt::VersionsSeen;
use crate::model::instance::PlanSize;
use crate::model::path::BasePath;
use crate::model::table::TableFacts;

/// A plan that is not completed, as one look saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSeen {
    /// Its action.
    pub action: Action,
    /// Its instant.
    pub instant: Instant,
    /// An `.inflight` stands beside the `.requested`.
    pub is_inflight: bool,
    /// What the plan tells, or why it cannot be read.
    pub content: Result<PlanContent, String>,
}

/// What matters of a plan's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanContent {
    /// Its size.
    pub size: PlanSize,
    /// Paths that do not lie under the base path; the first one, for people.
    pub outside: Option<String>,
}

/// One look at one table, as plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    /// Facts of the properties.
    pub facts: TableFacts,
    /// Name of the properties.
    pub name: Option<String>,
    /// Database of the properties.
    pub database: Option<String>,
    /// The table is itself a metadata table.
    pub is_metadata_table: bool,
    /// Pending plans, oldest first.
    pub pending: Vec<PlanSeen>,
    /// Completed instants of table services on the active timeline, with the number of their completed files.
    pub completed: BTreeMap<(Action, Instant), u32>,
    /// Completed data commits on the active timeline, oldest first.
    pub commits: Vec<Instant>,
    /// A restore or savepoint is under way: its instant.
    pub upheaval: Option<Instant>,
}

impl Sight {
    /// Returns the pending plan of an instant.
    #[must_use]
    pub fn pending(&self, action: Action, instant: &Instant) -> Option<&PlanSeen> {
        self.pending.iter().find(|p| p.action == action && p.instant == *instant)
    }

    /// Returns how many completed files an instant has.
    #[must_use]
    pub fn completed_files(&self, action: Action, instant: &Instant) -> u32 {
        self.completed.get(&(action, instant.clone())).copied().unwrap_or(0)
    }

    /// Returns the newest completed clean.
    #[must_use]
    pub fn newest_clean(&self) -> Option<&Instant> {
        self.completed.keys().filter(|(a, _)| *a == Action::Clean).map(|(_, i)| i).max()
    }
}

/// The loss guard's answer for one clustering plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overtaken {
    /// No commit since the plan touched its file groups.
    No,
    /// This commit touched this file group.
    Yes {
        /// The commit.
        instant: String,
        /// The file group.
        file_group: String,
    },
    /// It cannot be told; never counts as no.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// Reads tables. Every call is bounded in time and bytes.
#[async_trait]
pub trait TimelineSource: Debug + Send + Sync + 'static {
    /// Tells whether tables under paths of this scheme, such as `file` or `s3`, can be read at all.
    fn reads(&self, _scheme: &str) -> bool {
        true
    }

    /// Looks at a table now. An unchanged table costs one list call.
    async fn look(&self, path: &BasePath) -> Result<Arc<Sight>, Error>;

    /// Asks the loss guard about a pending clustering plan, on the timeline as it is now.
    async fn overtaken(&self, path: &BasePath, instant: &Instant) -> Overtaken;

    /// Tells whether the history holds the instant as completed.
    async fn completed_in_history(
        &self,
        path: &BasePath,
        action: Action,
        instant: &Instant,
    ) -> Result<bool, Error>;

    /// Returns the newest sign of life of whoever runs an inflight instant.
    async fn sign_of_life(&self, path: &BasePath, instant: &Instant) -> Result<Option<Timestamp>, Error>;

    /// Returns when the lock file of the file-system lock provider was written, when it is there.
    async fn lock_since(&self, path: &BasePath) -> Result<Option<Timestamp>, Error>;

    /// Returns where the table really lies, when its path leads there by links.
    async fn real_path(&self, _path: &BasePath) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Returns writes under way that have no heartbeat file.
    async fn writes_without_heartbeat(&self, path: &BasePath) -> Result<Vec<String>, Error>;

    /// Reads the versions of both properties files anew.
    async fn versions(&self, path: &BasePath) -> Result<VersionsSeen, Error>;

    /// Returns rollbacks that name the instant.
    async fn rollbacks_of(&self, path: &BasePath, instant: &Instant) -> Result<Vec<String>, Error>;
}
