//! Which tables there may be, and how their paths are read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which tables there may be, and how their paths are read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// Folders below which tables may lie. A request for a table elsewhere is answered, stored nowhere, and counted.
    /// Empty: every folder, which is allowed on loopback only.
    #[schemars(extend("x-item" = "an absolute local path, such as /lake or file:/lake"))]
    pub roots: Vec<String>,
    /// Two names of one place: what a path may say, and what it means. For a local folder that is a link, such as
    /// `"file:/data" = "file:/mnt/data"`: a table is run only under the path where it really lies.
    #[schemars(extend("x-example" = "\"file:/data\" = \"file:/mnt/data\""))]
    pub aliases: BTreeMap<String, String>,
}
