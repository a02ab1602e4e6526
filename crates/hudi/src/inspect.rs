//! What `tms inspect` prints: a table's properties, instants and pending plans, in one fixed shape.

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::snapshot::{Look, PendingPlan, Snapshot};
use crate::table::HudiTable;

/// The whole report; its JSON shape is fixed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The table.
    pub table: TableReport,
    /// Every instant of the active timeline, ascending.
    pub instants: Vec<InstantReport>,
    /// Every pending plan, ascending.
    pub pending: Vec<PendingReport>,
    /// Plans that could not be read; their numbers are null above. Not part of the JSON.
    #[serde(skip)]
    pub problems: Vec<Error>,
}

/// The table's own properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// Base path as it was given.
    pub base_path: String,
    /// `hoodie.table.name`.
    pub name: String,
    /// `hoodie.database.name`, as it stands; null when there is none.
    pub database: Option<String>,
    /// `COPY_ON_WRITE` or `MERGE_ON_READ`.
    #[serde(rename = "type")]
    pub table_type: String,
    /// `hoodie.table.version`.
    pub version: u32,
    /// `hoodie.timeline.layout.version`.
    pub layout: u32,
}

/// One instant, in Hudi's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstantReport {
    /// Requested time.
    pub requested: String,
    /// Action.
    pub action: String,
    /// `requested`, `inflight` or `completed`.
    pub state: String,
    /// Completion time; null in layout 1.
    pub completed: Option<String>,
}

/// One pending plan. What the plan does not tell is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingReport {
    /// `compaction`, `logcompaction`, `clustering` or `clean`.
    pub action: String,
    /// Requested time.
    pub instant: String,
    /// `requested` or `inflight`.
    pub state: String,
    /// File groups the work reads.
    pub file_groups: Option<u64>,
    /// Log files the work reads.
    pub log_files: Option<u64>,
    /// Bytes the work reads.
    pub bytes: Option<u64>,
    /// Partitions touched.
    pub partitions: Option<u64>,
}

/// Looks once and reports.
pub async fn report(table: &HudiTable) -> Result<Report, Error> {
    match table.look(None).await? {
        Look::Changed(snapshot) => Ok(of_snapshot(&snapshot)),
        Look::Unchanged => {
            let detail = "a first look answered that nothing changed";
            Err(Error::new(ErrorKind::Unsupported, "report on the table", table.base_path(), detail))
        }
    }
}

/// Reports on a look that was made already.
pub fn of_snapshot(snapshot: &Snapshot) -> Report {
    let properties = snapshot.properties();
    Report {
        table: TableReport {
            base_path: snapshot.base_path().to_owned(),
            name: properties.name.clone(),
            database: properties.database.clone(),
            table_type: properties.table_type.as_str().to_owned(),
            version: properties.version,
            layout: properties.layout,
        },
        instants: snapshot
            .instants()
            .iter()
            .map(|instant| InstantReport {
                requested: instant.requested.clone(),
                action: instant.action.to_string(),
                state: instant.state.to_string(),
                completed: instant.completed.clone(),
            })
            .collect(),
        pending: snapshot.pending().iter().map(pending_report).collect(),
        problems: snapshot.pending().iter().filter_map(|p| p.plan.as_ref().err().cloned()).collect(),
    }
}

fn pending_report(pending: &PendingPlan) -> PendingReport {
    let plan = pending.plan.as_ref().ok();
    PendingReport {
        action: pending.action.to_string(),
        instant: pending.instant.clone(),
        state: pending.state.to_string(),
        file_groups: plan.and_then(|plan| plan.file_groups),
        log_files: plan.and_then(|plan| plan.log_files),
        bytes: plan.and_then(|plan| plan.bytes),
        partitions: plan.and_then(|plan| plan.partitions),
    }
}
