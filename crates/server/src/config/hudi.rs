//! Hudi options that go with every job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hudi options that go with every job, such as those of the writers' lock provider.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HudiConfig {
    /// Options by their Hudi key, each with a text, number or boolean. They are checked against an allow list at
    /// the start. Each table can have its own, which win.
    #[schemars(extend("x-flat" = true, "x-example" = "\"hoodie.write.lock.filesystem.path\" = \"/lake/locks\""))]
    pub options: BTreeMap<String, String>,
}
