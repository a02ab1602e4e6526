//! What holds for tables that say nothing themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tms_core::model::action::Action;
use tms_core::model::policy::{self, TableDefaults};

/// What holds for tables that say nothing themselves; each table can have its own (`tms table register`).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TablesConfig {
    /// Actions that TMS executes on tables that announced themselves. Hand over only what no writer executes: two
    /// runners of one plan can destroy a table.
    pub default_actions: Vec<ActionName>,
    /// Completed data commits of a table after which TMS cleans it; 0 = never. Not 0 hands clean over.
    pub clean_after_commits: u32,
    /// How writers and jobs keep out of each other's way. Unset: tables with a metadata table are parked, since a
    /// job without the writers' lock can lose rows.
    pub concurrency: Option<Concurrency>,
    /// What to do with a table service that somebody else began and that was silent for `foreign_grace`.
    pub take_over: TakeOver,
    /// Silence after which the table service of somebody else counts as abandoned; at least 2 minutes, for Hudi's own
    /// heartbeat is not stale before.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub foreign_grace: Duration,
}

/// A table service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActionName {
    /// Merges log files into base files.
    Compaction,
    /// Merges log files into fewer log files; shown, never run.
    LogCompaction,
    /// Rewrites file groups.
    Clustering,
    /// Deletes files that no reader needs.
    Clean,
}

impl From<ActionName> for Action {
    fn from(name: ActionName) -> Self {
        match name {
            ActionName::Compaction => Self::Compaction,
            ActionName::LogCompaction => Self::LogCompaction,
            ActionName::Clustering => Self::Clustering,
            ActionName::Clean => Self::Clean,
        }
    }
}

/// How writers and jobs keep out of each other's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Concurrency {
    /// Writers and jobs share a lock provider and clean failed writes lazily.
    Locked,
    /// Nothing writes while TMS works.
    Exclusive,
}

/// What to do with an abandoned table service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TakeOver {
    /// Hold it and ask a person.
    Ask,
    /// Run it.
    AfterGrace,
}

impl Default for TablesConfig {
    fn default() -> Self {
        let defaults = TableDefaults::default();
        Self {
            default_actions: vec![ActionName::Compaction, ActionName::Clustering],
            clean_after_commits: defaults.clean_after_commits,
            concurrency: None,
            take_over: TakeOver::Ask,
            foreign_grace: defaults.foreign_grace,
        }
    }
}

impl TablesConfig {
    /// Returns the domain's form.
    #[must_use]
    pub fn defaults(&self, hudi_options: &BTreeMap<String, String>) -> TableDefaults {
        TableDefaults {
            default_actions: self.default_actions.iter().map(|a| Action::from(*a)).collect(),
            clean_after_commits: self.clean_after_commits,
            concurrency: self.concurrency.map(|c| match c {
                Concurrency::Locked => policy::Concurrency::Locked,
                Concurrency::Exclusive => policy::Concurrency::Exclusive,
            }),
            take_over: match self.take_over {
                TakeOver::Ask => policy::TakeOver::Ask,
                TakeOver::AfterGrace => policy::TakeOver::AfterGrace,
            },
            foreign_grace: self.foreign_grace,
            hudi_options: hudi_options.clone(),
        }
    }
}
