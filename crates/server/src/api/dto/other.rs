//! Queues, engines and nodes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tms_core::manager::engine::EngineView;
use tms_core::manager::node::NodeView;
use tms_core::manager::queue::QueueChange;
use tms_core::model::queue::Queue;
use tms_core::{Error, ErrorKind};
use utoipa::ToSchema;

use crate::api::dto::{INT32_MAX, int32, int64};
use crate::redact;

/// A named share of an engine.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueDto {
    /// Name; what a writer's `queue` parameter says.
    pub name: String,
    /// Engine that its instances run on; absent = by the request.
    pub engine: Option<String>,
    /// Attempts that may be live at once; 0 = no limit of its own.
    pub limit: u32,
    /// Share relative to other queues.
    pub weight: u32,
    /// Nothing is started; what runs goes on.
    pub is_paused: bool,
}

/// What changes of a queue; what is absent stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = SetQueue)]
#[serde(default, deny_unknown_fields)]
pub struct SetQueueDto {
    /// Attempts that may be live at once; 0 = no limit of its own.
    pub limit: Option<u32>,
    /// Share relative to other queues; at least 1.
    pub weight: Option<u32>,
    /// Engine; empty = by the request.
    pub engine: Option<String>,
}

/// What runs jobs.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Engine)]
pub struct EngineDto {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Its jobs ask for leave before they touch a table.
    pub is_fenced: bool,
    /// Nothing real runs.
    pub is_simulation: bool,
    /// Attempts that may be live at once.
    pub running_max: u32,
    /// Longest run of a job, in seconds.
    pub run_timeout_secs: u64,
    /// What it lacks; absent when it can run jobs.
    pub trouble: Option<EngineTroubleDto>,
}

/// What an engine lacks.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = EngineTrouble)]
pub struct EngineTroubleDto {
    /// Reason under which instances are parked.
    pub reason: String,
    /// What is missing, and what to do.
    pub detail: String,
}

/// One running server.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeDto {
    /// Name.
    pub name: String,
    /// Random id of this start.
    pub start_id: String,
    /// Address that others reach it at.
    pub url: Option<String>,
    /// Version of the program.
    pub program_version: String,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it was seen last.
    pub seen_at: DateTime<Utc>,
    /// It leads.
    pub is_leader: bool,
    /// The term that it leads in.
    pub term: Option<u64>,
}

impl From<Queue> for QueueDto {
    fn from(queue: Queue) -> Self {
        Self {
            name: queue.name.to_string(),
            engine: queue.engine.map(|e| e.to_string()),
            limit: int32(queue.limit),
            weight: int32(queue.weight),
            is_paused: queue.is_paused,
        }
    }
}

impl TryFrom<SetQueueDto> for QueueChange {
    type Error = Error;

    fn try_from(dto: SetQueueDto) -> Result<Self, Error> {
        for (key, value) in [("limit", dto.limit), ("weight", dto.weight)] {
            if let Some(odd) = value.filter(|n| *n > INT32_MAX) {
                return Err(Error::new(ErrorKind::Invalid, "change the queue")
                    .with("key", key)
                    .with("value", odd)
                    .hint("use at most 2147483647"));
            }
        }
        let engine = match dto.engine.as_deref() {
            None => None,
            Some("") => Some(None),
            Some(name) => Some(Some(name.parse()?)),
        };
        Ok(Self { limit: dto.limit, weight: dto.weight, engine, is_paused: None })
    }
}

impl From<EngineView> for EngineDto {
    fn from(view: EngineView) -> Self {
        Self {
            name: view.name.to_string(),
            kind: view.kind.to_owned(),
            is_fenced: view.capabilities.is_fenced,
            is_simulation: view.capabilities.is_simulation,
            running_max: int32(view.capabilities.running_max),
            run_timeout_secs: int64(view.capabilities.run_timeout.as_secs()),
            trouble: view.trouble.map(|t| EngineTroubleDto {
                reason: t.reason.as_str().to_owned(),
                detail: redact::text(&t.detail).into_owned(),
            }),
        }
    }
}

impl From<NodeView> for NodeDto {
    fn from(view: NodeView) -> Self {
        Self {
            name: view.row.name.to_string(),
            start_id: view.row.start_id,
            url: view.row.url,
            program_version: view.row.program_version,
            started_at: view.row.started_at,
            seen_at: view.row.seen_at,
            is_leader: view.is_leader,
            term: view.term.map(|t| int64(t.0)),
        }
    }
}
