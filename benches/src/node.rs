//! A whole node in this process: everything real but the tables and the engines.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tms_core::alert::LogAlerts;
use tms_core::clock::{Clock, Timestamp};
use tms_core::election::SingleNode;
use tms_core::engine::Engines;
use tms_core::manager::request::Announcement;
use tms_core::manager::{ManagerParts, Managers};
use tms_core::model::id::{NodeName, QueueName, TableId, Version};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::policy::{Concurrency, RetryPolicy, TableDefaults, TableSettings};
use tms_core::model::request::Trigger;
use tms_core::model::table::Table;
use tms_core::service::Leading;
use tms_core::service::leader::{LeaderParts, Policies};
use tms_core::service::node::{NodeParts, run_node};
use tms_core::store::coalescer::{Coalescer, CoalescerLimits};
use tms_core::store::{NodeRow, Store};
use tms_core::timeline::TimelineSource;
use tms_core::wake::Wakes;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::stores::Kind;

/// Longest wait of a writer for room.
const WRITER_WAIT: Duration = Duration::from_secs(10);
/// Attempts of an instance: none shall end because the bench lets jobs fail.
const ATTEMPTS_MAX: u32 = 20;

/// What a node stands on.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Its store.
    pub(crate) store: Arc<dyn Store>,
    /// Its tables.
    pub(crate) timelines: Arc<dyn TimelineSource>,
    /// Its engines.
    pub(crate) engines: Engines,
    /// Its clock.
    pub(crate) clock: Arc<dyn Clock>,
}

/// A running node.
#[derive(Debug)]
pub(crate) struct Node {
    /// What is asked.
    pub(crate) managers: Managers,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

fn policies() -> Policies {
    let defaults = TableDefaults { concurrency: Some(Concurrency::Exclusive), ..TableDefaults::default() };
    let retry = RetryPolicy { max_attempts: ATTEMPTS_MAX, ..RetryPolicy::default() };
    Policies { defaults, retry, job_url: "http://127.0.0.1:1".to_owned(), ..Policies::default() }
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// Never in practice.
    pub(crate) fn start(parts: &Parts) -> Result<Self> {
        let (wakes, stop) = (Wakes::default(), CancellationToken::new());
        let (coalescer, writes) = Coalescer::new(Arc::clone(&parts.store) as _, CoalescerLimits::default());
        let policies = policies();
        let managers = Managers::new(&ManagerParts {
            store: Arc::clone(&parts.store),
            coalescer,
            engines: parts.engines.clone(),
            timelines: Arc::clone(&parts.timelines),
            clock: Arc::clone(&parts.clock),
            wakes: wakes.clone(),
            rules: PathRules::default(),
            roots: Vec::new(),
            defaults: policies.defaults.clone(),
            writer_wait: WRITER_WAIT,
        });
        let leader = LeaderParts {
            store: Arc::clone(&parts.store),
            engines: parts.engines.clone(),
            timelines: Arc::clone(&parts.timelines),
            clock: Arc::clone(&parts.clock),
            alerts: Arc::new(LogAlerts::default()),
            wakes,
            policies,
        };
        let node = NodeParts {
            leader,
            election: Arc::new(SingleNode::default()),
            node: row(parts.clock.now())?,
            leading: Arc::new(Leading::default()),
        };
        let mut tasks = JoinSet::new();
        let until = stop.clone();
        tasks.spawn(async move { writes.run(until).await });
        tasks.spawn(run_node(node, stop.clone()));
        Ok(Self { managers, stop, tasks })
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

fn row(at: Timestamp) -> Result<NodeRow> {
    Ok(NodeRow {
        name: "bench".parse::<NodeName>().context("a bad name")?,
        start_id: "1".to_owned(),
        url: None,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: at,
        seen_at: at,
    })
}

/// Opens a store.
///
/// # Errors
/// What the store says.
pub(crate) async fn store(kind: Kind, folder: &Path) -> Result<Arc<dyn Store>> {
    kind.open(folder).await.context("cannot open the store")
}

/// Registers tables, each in the queue that `queue_of` returns for its number.
///
/// # Errors
/// What the store says.
pub(crate) async fn register(
    store: &Arc<dyn Store>,
    paths: &[BasePath],
    at: Timestamp,
    queue_of: impl Fn(usize) -> Result<QueueName>,
) -> Result<()> {
    for (number, path) in paths.iter().enumerate() {
        let table = Table {
            id: TableId::of(path),
            base_path: path.clone(),
            is_registered: true,
            settings: TableSettings { queue: Some(queue_of(number)?), ..TableSettings::default() },
            acknowledged_at: None,
            created_at: at,
            version: Version::default(),
        };
        store.put_table(table, None).await.context("cannot register a table")?;
    }
    Ok(())
}

/// Returns what a writer announces after a commit.
pub(crate) fn callback(path: &BasePath) -> Announcement {
    Announcement {
        base_path: path.as_str().to_owned(),
        database: None,
        table_name: Some("t".to_owned()),
        hints: Vec::new(),
        queue: None,
        execution_engine: None,
        trigger: Trigger::Callback,
        waits: true,
    }
}
