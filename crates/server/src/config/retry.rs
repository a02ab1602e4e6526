//! How failed attempts are repeated.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tms_core::model::policy::RetryPolicy;

/// How failed attempts are repeated.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// Failed attempts after which an instance is `failed` and waits for a person.
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: u32,
    /// Wait after the first failure; it doubles with each further one.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub backoff_first: Duration,
    /// Longest wait.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub backoff_max: Duration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        let RetryPolicy { max_attempts, backoff_first, backoff_max } = RetryPolicy::default();
        Self { max_attempts, backoff_first, backoff_max }
    }
}

impl RetryConfig {
    /// Returns the domain's form.
    #[must_use]
    pub fn policy(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.max_attempts,
            backoff_first: self.backoff_first,
            backoff_max: self.backoff_max,
        }
    }
}
