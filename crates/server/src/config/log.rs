//! What is logged, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is logged to standard error, and how. Secrets are struck from every line.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// Level, or levels by target: `info`, or `info,tms_core=debug`.
    #[schemars(extend("format" = "log-filter"))]
    pub level: String,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line, for programs.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}
