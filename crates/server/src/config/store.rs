//! Where instances and tables are kept.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where instances and tables are kept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Kind of the store; must be compiled in.
    pub kind: StoreKind,
    /// Folder of the store; it is made when it is not there. The logs of attempts lie in it too. A relative one counts
    /// from the folder that the server is started in.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
}

/// Kinds of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// One file, embedded, for a single node.
    Redb,
    /// One folder, embedded, for a single node with a long history; built with the feature `store-rocksdb`.
    Rocksdb,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { kind: StoreKind::Redb, path: PathBuf::from("./tms-data") }
    }
}
