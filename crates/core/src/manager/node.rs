//! The nodes and who leads.

use std::sync::Arc;

use crate::error::Error;
use crate::manager::ManagerParts;
use crate::model::id::Term;
use crate::store::{CopyPieces, Hold, NodeRow, Store};

/// One node for lists.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its row.
    pub row: NodeRow,
    /// It leads in the newest term.
    pub is_leader: bool,
    /// That term.
    pub term: Option<Term>,
}

/// The nodes.
#[derive(Clone, Debug)]
pub struct NodeManager {
    store: Arc<dyn Store>,
}

impl NodeManager {
    pub(super) fn new(parts: &ManagerParts) -> Self {
        Self { store: Arc::clone(&parts.store) }
    }

    /// Returns all nodes by name.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<NodeView>, Error> {
        let leader = self.store.current_term().await?;
        let view = |row: NodeRow| {
            let term = leader.as_ref().filter(|(_, name)| *name == row.name).map(|(term, _)| *term);
            NodeView { is_leader: term.is_some(), term, row }
        };
        Ok(self.store.nodes().await?.into_iter().map(view).collect())
    }

    /// Returns what holds back all submissions.
    ///
    /// # Errors
    /// The store's.
    pub async fn hold(&self) -> Result<Option<Hold>, Error> {
        self.store.hold().await
    }

    /// Begins a copy of the store.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin_copy(&self) -> Result<CopyPieces, Error> {
        self.store.begin_copy().await
    }

    /// Makes sure that hand-over is durable now.
    ///
    /// # Errors
    /// The store's.
    pub async fn check(&self) -> Result<(), Error> {
        self.store.check().await
    }
}
