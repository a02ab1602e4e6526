//! What only the leader does. A Service starts with a term and ends with it; its methods exist only on what
//! [`LeaderService::initialize`] returns, and that is reached through [`Leading`] alone.

mod alarms;
pub mod barrier;
pub mod dispatch;
pub mod housekeeping;
pub mod leader;
pub mod live_set;
pub mod monitor;
pub mod node;
pub mod timeline;
pub mod turn;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind};
use crate::service::leader::Leader;

/// A Service: stateless until it is initialised for a term.
#[async_trait]
pub trait LeaderService: Debug + Send + Sync + 'static {
    /// Returns its name, for logs.
    fn name(&self) -> &'static str;

    /// Starts it for the leader's term. Rebuilds all its state from the store; twice gives the same.
    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error>;
}

/// A Service that runs in a term.
#[async_trait]
pub trait Held: Debug + Send + Sync {
    /// Ends its tasks and awaits them. Nothing outlives the term.
    async fn dispose(self: Box<Self>);
}

/// The only door to leader state: no term, no state.
#[derive(Debug)]
pub struct Leading<T> {
    slot: tokio::sync::RwLock<Option<Arc<T>>>,
}

impl<T> Default for Leading<T> {
    fn default() -> Self {
        Self { slot: tokio::sync::RwLock::new(None) }
    }
}

impl<T> Leading<T> {
    /// Returns the state of the current term.
    ///
    /// # Errors
    /// `NotLeader` when this node does not lead.
    pub async fn get(&self) -> Result<Arc<T>, Error> {
        let slot = self.slot.read().await;
        slot.clone().ok_or_else(|| Error::new(ErrorKind::NotLeader, "use leader state"))
    }

    pub(crate) async fn set(&self, state: Option<Arc<T>>) {
        *self.slot.write().await = state;
    }
}

/// The loop of one Service: one task that owns all others of it.
#[derive(Debug)]
pub(crate) struct Loop {
    name: &'static str,
    stop: tokio_util::sync::CancellationToken,
    tasks: tokio::task::JoinSet<()>,
}

impl Loop {
    /// Starts the loop; `body` must end soon after the token is cancelled.
    pub(crate) fn start<F>(
        name: &'static str,
        leader: &Arc<Leader>,
        body: impl FnOnce(tokio_util::sync::CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = leader.stop.child_token();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(body(stop.clone()));
        Self { name, stop, tasks }
    }
}

#[async_trait]
impl Held for Loop {
    async fn dispose(mut self: Box<Self>) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(service = self.name, %error, "A Service did not end cleanly.");
            }
        }
    }
}
