//! When tables are looked at without being told to, and how long absence is doubted.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tms_core::model::policy::LookPolicy;

/// When tables are looked at without being told to, and how long absence is doubted.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LookConfig {
    /// Period of the safety-net scan over everything that waits.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub scan_every: Duration,
    /// Silence of a table after which it is looked at once, in case its writer's notice was lost.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub heartbeat_timeout: Duration,
    /// Time between the two looks that must both miss a plan before it counts as gone.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub gone_grace: Duration,
    /// Time that an instant named by a request may stay unseen on the timeline, counted while the table can be read.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub hint_grace: Duration,
}

impl Default for LookConfig {
    fn default() -> Self {
        let LookPolicy { scan_every, heartbeat_timeout, gone_grace, hint_grace } = LookPolicy::default();
        Self { scan_every, heartbeat_timeout, gone_grace, hint_grace }
    }
}

impl LookConfig {
    /// Returns the domain's form.
    #[must_use]
    pub fn policy(&self) -> LookPolicy {
        LookPolicy {
            scan_every: self.scan_every,
            heartbeat_timeout: self.heartbeat_timeout,
            gone_grace: self.gone_grace,
            hint_grace: self.hint_grace,
        }
    }
}
