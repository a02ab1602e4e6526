//! How long ended instances are kept.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tms_core::model::policy::HistoryPolicy;

/// How long ended instances are kept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// Age after which an ended instance is forgotten.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub keep: Duration,
    /// Ended instances that are kept at most.
    #[schemars(range(min = 1))]
    pub keep_count: u64,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        let HistoryPolicy { keep, keep_count } = HistoryPolicy::default();
        Self { keep, keep_count }
    }
}

impl HistoryConfig {
    /// Returns the domain's form.
    #[must_use]
    pub fn policy(&self) -> HistoryPolicy {
        HistoryPolicy { keep: self.keep, keep_count: self.keep_count }
    }
}
