//! Queues: named shares of an engine.

use serde::{Deserialize, Serialize};

use crate::model::id::{EngineName, QueueName, Version};

/// A named share of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name; a writer's `queue` parameter.
    pub name: QueueName,
    /// Engine that its instances run on; unset = by the request's engine family.
    pub engine: Option<EngineName>,
    /// Attempts that may be live at once; 0 = only the engine's own limit counts.
    pub limit: u32,
    /// Share relative to other queues when an engine is full; at least 1.
    pub weight: u32,
    /// Paused: nothing is started; what runs goes on.
    pub is_paused: bool,
    /// Version of the row.
    pub version: Version,
}

impl Queue {
    /// Returns a queue with the usual settings.
    #[must_use]
    pub fn new(name: QueueName) -> Self {
        Self { name, engine: None, limit: 0, weight: 1, is_paused: false, version: Version::default() }
    }
}
