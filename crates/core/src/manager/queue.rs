//! Queues: limits, pause and resume.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::manager::{CONFLICT_RETRIES_MAX, ManagerParts, is_conflict, too_many_conflicts};
use crate::model::id::{EngineName, QueueName};
use crate::model::queue::Queue;
use crate::store::Store;
use crate::wake::Wakes;

/// Most queues; each costs the leader a little memory and every choice a little time.
pub const QUEUES_MAX: usize = 1_000;

/// What changes of a queue; unset stays.
#[derive(Clone, Debug, Default)]
pub struct QueueChange {
    /// Attempts that may be live at once; 0 = no limit of its own.
    pub limit: Option<u32>,
    /// Share relative to other queues; at least 1.
    pub weight: Option<u32>,
    /// Engine; `Some(None)` = none.
    pub engine: Option<Option<EngineName>>,
    /// Paused or not.
    pub is_paused: Option<bool>,
}

/// Queues.
#[derive(Clone, Debug)]
pub struct QueueManager {
    store: Arc<dyn Store>,
    wakes: Wakes,
}

impl QueueManager {
    pub(super) fn new(parts: &ManagerParts) -> Self {
        Self { store: Arc::clone(&parts.store), wakes: parts.wakes.clone() }
    }

    /// Returns all queues, the default one among them, by name.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<Queue>, Error> {
        let mut queues = self.store.queues().await?;
        if !queues.iter().any(|q| q.name == QueueName::default()) {
            queues.push(Queue::new(QueueName::default()));
            queues.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(queues)
    }

    /// Changes a queue, making it when it is new.
    ///
    /// # Errors
    /// `Invalid` for a weight of 0 or too many queues.
    pub async fn set(&self, name: &QueueName, change: &QueueChange, by: &str) -> Result<Queue, Error> {
        if change.weight == Some(0) {
            return Err(Error::new(ErrorKind::Invalid, "change the queue")
                .with("queue", name)
                .hint("a weight is at least 1; pause the queue to stop it"));
        }
        for _ in 0..CONFLICT_RETRIES_MAX {
            let queues = self.store.queues().await?;
            let known = queues.iter().find(|q| q.name == *name);
            if known.is_none() && queues.len() >= QUEUES_MAX {
                return Err(Error::new(ErrorKind::Invalid, "make the queue")
                    .with("queue", name)
                    .hint("too many queues"));
            }
            let mut queue = known.cloned().unwrap_or_else(|| Queue::new(name.clone()));
            queue.limit = change.limit.unwrap_or(queue.limit);
            queue.weight = change.weight.unwrap_or(queue.weight);
            queue.is_paused = change.is_paused.unwrap_or(queue.is_paused);
            if let Some(engine) = &change.engine {
                queue.engine.clone_from(engine);
            }
            match self.store.put_queue(queue, known.map(|q| q.version)).await {
                Err(e) if is_conflict(&e) || e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(queue) => {
                    tracing::info!(queue = %name, by, paused = queue.is_paused, limit = queue.limit, "Changed a queue.");
                    self.wakes.dispatch.wake();
                    return Ok(queue);
                }
            }
        }
        Err(too_many_conflicts("change the queue").with("queue", name))
    }

    /// Pauses a queue, making it when it is new, so that it can be held before its first use: nothing is started; what
    /// runs goes on.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub async fn pause(&self, name: &QueueName, by: &str) -> Result<Queue, Error> {
        self.set(name, &QueueChange { is_paused: Some(true), ..QueueChange::default() }, by).await
    }

    /// Resumes a queue.
    ///
    /// # Errors
    /// `NotFound` for a queue that was never set: nothing paused it, so its name is a slip. Else as [`Self::set`].
    pub async fn resume(&self, name: &QueueName, by: &str) -> Result<Queue, Error> {
        if !self.list().await?.iter().any(|queue| queue.name == *name) {
            return Err(Error::new(ErrorKind::NotFound, "resume the queue")
                .with("queue", name)
                .hint("nothing paused it: `tms queue list` shows the queues"));
        }
        self.set(name, &QueueChange { is_paused: Some(false), ..QueueChange::default() }, by).await
    }
}
