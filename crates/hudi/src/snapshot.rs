//! What one look saw: the instants of the active timeline and its pending plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::PlanError;
use crate::listing::Entry;
use crate::look::PlanFile;
use crate::names::{HudiAction, InstantState};
use crate::plan::{Plan, PlanAction};
use crate::properties::TableProperties;

/// One instant: all files of one requested time and one action family (`compaction` finishes as `commit`,
/// `logcompaction` as `deltacommit`, `clustering` as `replacecommit`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant {
    /// Requested time. Compared as text.
    pub requested: String,
    /// The action in Hudi's word for this state.
    pub action: HudiAction,
    /// The furthest state any of its files shows.
    pub state: InstantState,
    /// Completion time: layout 2 only, and there absent for files carried over from layout 1.
    pub completed: Option<String>,
    /// Number of completed files of this instant. Two or more: two runners finished one plan.
    pub completed_files: u32,
    /// The word of its pending files, when there are any: tells a finished `compaction` from a written `commit`.
    pub pending_action: Option<HudiAction>,
}

/// A plan of a table service that is not completed.
#[derive(Clone, Debug)]
pub struct PendingPlan {
    /// Which service.
    pub action: PlanAction,
    /// Its instant.
    pub instant: String,
    /// `Requested` or `Inflight`.
    pub state: InstantState,
    /// The plan, or why it could not be read.
    pub plan: Result<Arc<Plan>, PlanError>,
}

/// The answer of a look.
#[derive(Clone, Debug)]
pub enum Look {
    /// The listing equals the previous one, file by file.
    Unchanged,
    /// The timeline as it is now.
    Changed(Arc<Snapshot>),
}

/// One reading of a table's active timeline.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) base_path: String,
    pub(crate) properties: Arc<TableProperties>,
    pub(crate) instants: Vec<Instant>,
    pub(crate) pending: Vec<PendingPlan>,
    /// Timeline files of the listing, sorted by name.
    pub(crate) files: Vec<Entry>,
    /// What came of each plan file, for the next look.
    pub(crate) plan_files: BTreeMap<String, PlanFile>,
}

impl Snapshot {
    /// The table's base path, as it was given.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// The properties this look went by. They are read with the first look and when the listing shows that they
    /// changed; before a job is submitted ask [`crate::HudiTable::properties`] again.
    pub fn properties(&self) -> &Arc<TableProperties> {
        &self.properties
    }

    /// All instants, ascending by requested time.
    pub fn instants(&self) -> &[Instant] {
        &self.instants
    }

    /// All pending plans, ascending by requested time.
    pub fn pending(&self) -> &[PendingPlan] {
        &self.pending
    }

    /// The pending plan of one action and instant.
    pub fn pending_plan(&self, action: PlanAction, requested: &str) -> Option<&PendingPlan> {
        self.pending.iter().find(|p| p.action == action && p.instant == requested)
    }

    /// The instant that a plan of `action` at `requested` is or became.
    pub fn instant_of(&self, action: PlanAction, requested: &str) -> Option<&Instant> {
        let family = match action {
            PlanAction::Compaction => HudiAction::Commit,
            PlanAction::LogCompaction => HudiAction::DeltaCommit,
            PlanAction::Clustering => HudiAction::ReplaceCommit,
            PlanAction::Clean => HudiAction::Clean,
        };
        self.instants.iter().find(|i| i.requested == requested && i.action.finished() == family)
    }

    /// All instants with this requested time: a savepoint shares the time of its commit.
    pub fn instants_at<'a>(&'a self, requested: &'a str) -> impl Iterator<Item = &'a Instant> {
        self.instants.iter().filter(move |i| i.requested == requested)
    }

    /// Completed writes with a requested time greater than `after`, ascending; finished table services are left
    /// out where the timeline tells them apart (in layout 1 a finished clustering looks like an insert overwrite).
    pub fn completed_data_commits_after<'a>(&'a self, after: &'a str) -> impl Iterator<Item = &'a Instant> {
        self.instants.iter().filter(move |i| i.is_completed_write() && i.requested.as_str() > after)
    }

    /// Times of the completed savepoints, ascending.
    pub fn savepoints(&self) -> impl Iterator<Item = &str> {
        self.instants
            .iter()
            .filter(|i| i.action == HudiAction::Savepoint && i.state == InstantState::Completed)
            .map(|i| i.requested.as_str())
    }

    /// Instants with more than one completed file: the loudest alarm there is.
    pub fn completed_twice(&self) -> impl Iterator<Item = &Instant> {
        self.instants.iter().filter(|i| i.completed_files > 1)
    }

    /// The timeline files this look saw, sorted by name.
    pub fn files(&self) -> &[Entry] {
        &self.files
    }
}

impl Instant {
    /// True for a completed `commit`, `deltacommit` or `replacecommit` that no table service's plan explains.
    pub fn is_completed_write(&self) -> bool {
        let is_write =
            matches!(self.action, HudiAction::Commit | HudiAction::DeltaCommit | HudiAction::ReplaceCommit);
        let is_service = matches!(
            self.pending_action,
            Some(HudiAction::Compaction | HudiAction::LogCompaction | HudiAction::Clustering)
        );
        self.state == InstantState::Completed && is_write && !is_service
    }
}
