//! What every node can do, at any moment. Managers are stateless: they assume that other nodes change the store while
//! they work, and change it by compare-and-set only.

pub mod attempt;
pub mod engine;
pub mod instance;
pub mod maintained;
pub mod node;
pub mod queue;
pub mod request;
pub mod table;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::Engines;
use crate::error::{Error, ErrorKind};
use crate::model::event::Event;
use crate::model::instance::Instance;
use crate::model::path::{BasePath, PathRules};
use crate::model::policy::TableDefaults;
use crate::store::Store;
use crate::store::coalescer::Coalescer;
use crate::timeline::TimelineSource;
use crate::wake::Wakes;

pub use attempt::AttemptManager;
pub use engine::EngineManager;
pub use instance::InstanceManager;
pub use maintained::MaintainedTableManager;
pub use node::NodeManager;
pub use queue::QueueManager;
pub use request::RequestManager;
pub use table::TableManager;

/// Times that a Manager reads and tries again when somebody else changed a row in between.
pub const CONFLICT_RETRIES_MAX: usize = 16;

/// What Managers work with.
#[derive(Clone, Debug)]
pub struct ManagerParts {
    /// Store.
    pub store: Arc<dyn Store>,
    /// Joins hand-overs into batches.
    pub coalescer: Coalescer,
    /// Engines of this node.
    pub engines: Engines,
    /// Reads tables.
    pub timelines: Arc<dyn TimelineSource>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Signals to the leader.
    pub wakes: Wakes,
    /// Makes paths canonical.
    pub rules: PathRules,
    /// Roots that tables may lie under; empty = every root.
    pub roots: Vec<BasePath>,
    /// What tables follow when they say nothing themselves.
    pub defaults: TableDefaults,
    /// Longest wait of a writer for room in the coalescer.
    pub writer_wait: Duration,
}

/// All Managers of one node.
#[derive(Clone, Debug)]
pub struct Managers {
    /// Hand-overs.
    pub requests: RequestManager,
    /// Settings of tables.
    pub tables: TableManager,
    /// Tables with their run-time facts.
    pub maintained: MaintainedTableManager,
    /// Instances.
    pub instances: InstanceManager,
    /// What drivers ask.
    pub attempts: AttemptManager,
    /// Queues.
    pub queues: QueueManager,
    /// Engines.
    pub engines: EngineManager,
    /// Nodes.
    pub nodes: NodeManager,
}

impl Managers {
    /// Makes the Managers of one node.
    #[must_use]
    pub fn new(parts: &ManagerParts) -> Self {
        let requests = RequestManager::new(parts);
        let tables = TableManager::new(parts);
        Self {
            instances: InstanceManager::new(parts, requests.clone(), tables.clone()),
            maintained: MaintainedTableManager::new(parts, tables.clone()),
            attempts: AttemptManager::new(parts),
            queues: QueueManager::new(parts),
            engines: EngineManager::new(parts),
            nodes: NodeManager::new(parts),
            requests,
            tables,
        }
    }
}

/// Writes one line for a change that a Manager made, with the fields of the leader's lines. A Manager writes outside any
/// term: the one that is told began the attempt.
fn note_change(instance: &Instance, event: &Event, by: &str) {
    let attempt = instance.attempt.as_ref();
    tracing::info!(
        instance = %instance.id, table = %instance.key.table, action = %instance.key.action,
        instant = instance.key.instant.as_ref().map_or("next", |i| i.as_str()),
        attempt = event.attempt, term = attempt.map(|a| tracing::field::display(a.term)),
        from = event.from, to = event.to, by, "Instance changed: {}.", event.reason
    );
}

/// The answer when every retry met a change by somebody else.
fn too_many_conflicts(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, operation).hint("somebody else changes it all the time: try again")
}

/// Tells whether a Manager may read again and retry.
fn is_conflict(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict
}
