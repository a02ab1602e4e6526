//! What a trigger asks for, checked and in canonical form.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::model::action::{Action, Instant};
use crate::model::id::QueueName;
use crate::model::path::BasePath;

/// What told TMS of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A writer's commit callback.
    Callback,
    /// A request of Hudi's table service manager client.
    Client,
    /// A person or program, through the API or the command line.
    Api,
    /// A look at a table that was silent, or the safety-net scan.
    Heartbeat,
    /// A policy of the table.
    Policy,
}

/// One hand-over: look at this table, and at these instants of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// Canonical base path.
    pub base_path: BasePath,
    /// The path as it was announced; what a job gets.
    pub spelling: String,
    /// Label.
    pub database: Option<String>,
    /// Label.
    pub table_name: Option<String>,
    /// Instants that were named, at most [`HINTS_MAX`].
    pub hints: Vec<(Action, Instant)>,
    /// Queue that was named.
    pub queue: Option<QueueName>,
    /// Engine that was named, as written by the client, such as `spark`.
    pub execution_engine: Option<String>,
    /// What told us.
    pub trigger: Trigger,
    /// When it reached us.
    pub at: Timestamp,
    /// Whether the touch alone matters; false leaves `touch` alone (registration without look).
    pub touch: bool,
}

/// Most instants that one hand-over may name; a writer announces its pending plans, of which a sane table has a few.
pub const HINTS_MAX: usize = 1_000;

/// What a stored hand-over did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The table's touch number after it.
    pub touch: u64,
    /// Instants that were new and became `hinted` instances.
    pub n_hinted: usize,
    /// The table was not known before.
    pub is_new_table: bool,
}
