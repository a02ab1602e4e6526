//! Takes hand-overs: canonical path, roots, hints, one durable write.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::Error;
use crate::manager::ManagerParts;
use crate::model::action::{Action, Instant};
use crate::model::id::{QueueName, TableId};
use crate::model::path::{BasePath, PathRules};
use crate::model::request::{HINTS_MAX, HandOver, Trigger};
use crate::store::coalescer::Coalescer;
use crate::wake::Wakes;

/// A request as it came, decoded but not checked.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Base path as it was spelt.
    pub base_path: String,
    /// Label.
    pub database: Option<String>,
    /// Label.
    pub table_name: Option<String>,
    /// Instants that were named.
    pub hints: Vec<(Action, String)>,
    /// Queue that was named.
    pub queue: Option<String>,
    /// Engine that was named.
    pub execution_engine: Option<String>,
    /// What told us.
    pub trigger: Trigger,
    /// A writer waits for room; API users are told to come again.
    pub waits: bool,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOverAnswer {
    /// It is durable.
    Stored {
        /// Table.
        table: TableId,
        /// Touch number of the table after it.
        touch: u64,
        /// New hinted instances.
        n_hinted: usize,
        /// What was odd and left out.
        warnings: Vec<String>,
    },
    /// The path lies outside the configured roots: nothing was stored.
    OutsideRoots,
}

/// Takes hand-overs.
#[derive(Clone, Debug)]
pub struct RequestManager {
    coalescer: Coalescer,
    clock: Arc<dyn Clock>,
    wakes: Wakes,
    rules: PathRules,
    roots: Vec<BasePath>,
    writer_wait: Duration,
}

impl RequestManager {
    pub(super) fn new(parts: &ManagerParts) -> Self {
        Self {
            coalescer: parts.coalescer.clone(),
            clock: Arc::clone(&parts.clock),
            wakes: parts.wakes.clone(),
            rules: parts.rules.clone(),
            roots: parts.roots.clone(),
            writer_wait: parts.writer_wait,
        }
    }

    /// Returns the canonical form of a path, or none when it lies outside the roots.
    ///
    /// # Errors
    /// `Invalid` for a path that no table can have.
    pub fn canonical(&self, spelling: &str) -> Result<Option<BasePath>, Error> {
        let path = self.rules.canonical(spelling)?;
        let is_inside = self.roots.is_empty() || self.roots.iter().any(|root| path.is_under(root));
        Ok(is_inside.then_some(path))
    }

    /// Makes a request durable and wakes the leader.
    ///
    /// # Errors
    /// `Invalid` for a path that no table can have; `Unavailable` when the store or the coalescer has no room.
    pub async fn hand_over(&self, request: Announcement) -> Result<HandOverAnswer, Error> {
        let Some(base_path) = self.canonical(&request.base_path)? else {
            metrics::counter!("tms_requests_outside_roots_total").increment(1);
            tracing::warn!(path = %request.base_path, "Ignored a request for a table outside the roots.");
            return Ok(HandOverAnswer::OutsideRoots);
        };
        let mut warnings = Vec::new();
        let hints = checked_hints(request.hints, &mut warnings);
        let queue = request.queue.and_then(|name| match name.parse::<QueueName>() {
            Ok(queue) => Some(queue),
            Err(_) => {
                warnings.push("the queue has an odd name: the default queue is used".to_owned());
                None
            }
        });
        let table = TableId::of(&base_path);
        let hand_over = HandOver {
            base_path,
            spelling: request.base_path,
            database: request.database.filter(|d| !d.is_empty()),
            table_name: request.table_name.filter(|n| !n.is_empty()),
            hints,
            queue,
            execution_engine: request
                .execution_engine
                .filter(|e| !e.is_empty())
                .map(|e| e.to_ascii_lowercase()),
            trigger: request.trigger,
            at: self.clock.now(),
            touch: true,
        };
        let accepted = if request.waits {
            self.coalescer.hand_over_waiting(hand_over, self.writer_wait).await?
        } else {
            self.coalescer.hand_over(hand_over).await?
        };
        self.wakes.table_touched(table);
        Ok(HandOverAnswer::Stored { table, touch: accepted.touch, n_hinted: accepted.n_hinted, warnings })
    }
}

fn checked_hints(hints: Vec<(Action, String)>, warnings: &mut Vec<String>) -> Vec<(Action, Instant)> {
    if hints.len() > HINTS_MAX {
        warnings.push(format!("only the first {HINTS_MAX} instants were taken; the look finds the others"));
    }
    let mut checked = Vec::new();
    for (action, text) in hints.into_iter().take(HINTS_MAX) {
        match text.parse::<Instant>() {
            Ok(instant) => checked.push((action, instant)),
            Err(_) => warnings.push("an instant that is not made of digits was left out".to_owned()),
        }
    }
    warnings.truncate(8);
    checked
}
