//! The engines of this node and what they lack.

use futures::future::join_all;

use crate::engine::{Capabilities, Engines, NotReady};
use crate::manager::ManagerParts;
use crate::model::id::EngineName;

/// One engine for lists and `/readyz`.
#[derive(Clone, Debug)]
pub struct EngineView {
    /// Name.
    pub name: EngineName,
    /// Kind.
    pub kind: &'static str,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What it lacks.
    pub trouble: Option<NotReady>,
}

/// The engines of this node.
#[derive(Clone, Debug)]
pub struct EngineManager {
    engines: Engines,
}

impl EngineManager {
    pub(super) fn new(parts: &ManagerParts) -> Self {
        Self { engines: parts.engines.clone() }
    }

    /// Returns the engines by name, each asked what it lacks.
    pub async fn list(&self) -> Vec<EngineView> {
        join_all(self.engines.iter().map(|(name, engine)| async move {
            EngineView {
                name: name.clone(),
                kind: engine.kind(),
                capabilities: engine.capabilities(),
                trouble: engine.health().await.err(),
            }
        }))
        .await
    }
}
