//! Who leads. A backend says when this node may lead; the supervisor starts and ends the Services with it.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Error;

/// Decides which node leads.
#[async_trait]
pub trait Election: Debug + Send + Sync + 'static {
    /// Waits until this node leads, and returns the backend's number of the leadership.
    ///
    /// # Behavior
    /// - a node that lost or resigned leadership can win again
    async fn campaign(&self) -> Result<u64, Error>;

    /// Waits until leadership is lost. Returns before another node can win.
    ///
    /// # Behavior
    /// - leadership is lost when the node resigns
    async fn lost(&self);

    /// Gives leadership up.
    async fn resign(&self);
}

/// The election of a single node, which always wins. The store's own lock keeps a second process away.
#[derive(Debug, Default)]
pub struct SingleNode {
    resigned: tokio::sync::Notify,
}

#[async_trait]
impl Election for SingleNode {
    async fn campaign(&self) -> Result<u64, Error> {
        Ok(0)
    }

    async fn lost(&self) {
        self.resigned.notified().await;
    }

    async fn resign(&self) {
        self.resigned.notify_waiters();
    }
}
