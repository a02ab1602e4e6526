//! Where instances and tables are kept.

use std::path::PathBuf;
use std::time::Duration;

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
    /// After a restore: how long no job may have been found alive that the store does not know, until submissions go on.
    /// A job that was let in before needs a while until it shows; shorten it only where none can.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub restore_quiet: Duration,
}

/// Longer than a driver takes from its leave to the first file on the timeline.
const RESTORE_QUIET: Duration = Duration::from_secs(120);

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
        Self { kind: StoreKind::Redb, path: PathBuf::from("./tms-data"), restore_quiet: RESTORE_QUIET }
    }
}
