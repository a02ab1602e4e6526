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
    /// Whether it leads. A state and not a moment, so that who asks late hears of a loss too.
    leads: tokio::sync::watch::Sender<bool>,
}

#[async_trait]
impl Election for SingleNode {
    async fn campaign(&self) -> Result<u64, Error> {
        self.leads.send_replace(true);
        Ok(0)
    }

    async fn lost(&self) {
        let mut leads = self.leads.subscribe();
        // The sender lives as long as `self`, so this only ends when the node does not lead.
        drop(leads.wait_for(|leads| !leads).await);
    }

    async fn resign(&self) {
        self.leads.send_replace(false);
    }
}
