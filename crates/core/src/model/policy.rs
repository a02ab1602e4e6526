//! Settings that tables, retries, looks and history follow. Times are wall-clock durations unless they say otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::action::Action;
use crate::model::id::QueueName;

/// Shortest grace that a person may set. Hudi takes the heartbeat of a runner for expired after 2 minutes by default
/// (measured on 0.15.0 to 1.2.0): whoever is silent for less may well be at work, and two runners of one plan can destroy
/// a table.
pub const FOREIGN_GRACE_MIN: Duration = Duration::from_secs(120);

/// How writers and jobs of a table keep out of each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Concurrency {
    /// Writers and jobs share a lock provider and clean failed writes lazily.
    Locked,
    /// Nothing writes while TMS works.
    Exclusive,
}

/// What to do with an `inflight` that no attempt of ours explains, once it was silent for the grace period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeOver {
    /// Park it and ask a person.
    #[default]
    Ask,
    /// Run it.
    AfterGrace,
}

/// Settings of one table; what is unset follows [`TableDefaults`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TableSettings {
    /// Actions that TMS may execute.
    pub actions: Option<BTreeSet<Action>>,
    /// Completed data commits after which a clean is due; 0 = never.
    pub clean_after_commits: Option<u32>,
    /// How writers and jobs keep out of each other's way.
    pub concurrency: Option<Concurrency>,
    /// What to do with a silent foreign `inflight`.
    pub take_over: Option<TakeOver>,
    /// Silence after which a foreign `inflight` may be taken over, in seconds.
    pub foreign_grace_secs: Option<u64>,
    /// Queue of this table's instances.
    pub queue: Option<QueueName>,
    /// Priority of this table's instances; higher first, 0 is usual.
    pub priority: Option<i32>,
    /// Hudi options that go with every job of this table.
    pub hudi_options: BTreeMap<String, String>,
}

impl TableSettings {
    /// Returns these settings, with what `over` sets in its place; options key by key.
    #[must_use]
    pub fn overlaid_by(&self, over: &Self) -> Self {
        let over = over.clone();
        let mut hudi_options = self.hudi_options.clone();
        hudi_options.extend(over.hudi_options);
        Self {
            actions: over.actions.or_else(|| self.actions.clone()),
            clean_after_commits: over.clean_after_commits.or(self.clean_after_commits),
            concurrency: over.concurrency.or(self.concurrency),
            take_over: over.take_over.or(self.take_over),
            foreign_grace_secs: over.foreign_grace_secs.or(self.foreign_grace_secs),
            queue: over.queue.or_else(|| self.queue.clone()),
            priority: over.priority.or(self.priority),
            hudi_options,
        }
    }
}

/// What tables follow when they say nothing themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefaults {
    /// Actions handed over by tables that announced themselves.
    pub default_actions: BTreeSet<Action>,
    /// Completed data commits after which a clean is due; 0 = never.
    pub clean_after_commits: u32,
    /// How writers and jobs keep out of each other's way; unset = unknown.
    pub concurrency: Option<Concurrency>,
    /// What to do with a silent foreign `inflight`.
    pub take_over: TakeOver,
    /// Silence after which a foreign `inflight` may be taken over.
    pub foreign_grace: Duration,
    /// Hudi options that go with every job.
    pub hudi_options: BTreeMap<String, String>,
}

impl Default for TableDefaults {
    fn default() -> Self {
        Self {
            default_actions: [Action::Compaction, Action::Clustering].into(),
            clean_after_commits: 0,
            concurrency: None,
            take_over: TakeOver::Ask,
            foreign_grace: Duration::from_secs(6 * 3600),
            hudi_options: BTreeMap::new(),
        }
    }
}

/// Settings of one table with the defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Actions that TMS may execute. Clean is in it exactly when `clean_after_commits` is not 0 or the table's own list names it.
    pub actions: BTreeSet<Action>,
    /// Completed data commits after which a clean is due; 0 = never.
    pub clean_after_commits: u32,
    /// How writers and jobs keep out of each other's way; unset = unknown.
    pub concurrency: Option<Concurrency>,
    /// What to do with a silent foreign `inflight`.
    pub take_over: TakeOver,
    /// Silence after which a foreign `inflight` may be taken over.
    pub foreign_grace: Duration,
    /// Hudi options of jobs: the defaults, overlaid by the table's own.
    pub hudi_options: BTreeMap<String, String>,
    /// Queue of this table's instances that no request gave another.
    pub queue: QueueName,
    /// Priority of this table's instances.
    pub priority: i32,
}

impl TableDefaults {
    /// Returns what holds for a table with `own` settings.
    #[must_use]
    pub fn effective(&self, own: &TableSettings) -> Effective {
        let clean_after_commits = own.clean_after_commits.unwrap_or(self.clean_after_commits);
        let mut actions = own.actions.clone().unwrap_or_else(|| self.default_actions.clone());
        if clean_after_commits > 0 {
            actions.insert(Action::Clean);
        }
        let mut hudi_options = self.hudi_options.clone();
        hudi_options.extend(own.hudi_options.clone());
        Effective {
            actions,
            clean_after_commits,
            concurrency: own.concurrency.or(self.concurrency),
            take_over: own.take_over.unwrap_or(self.take_over),
            foreign_grace: own.foreign_grace_secs.map_or(self.foreign_grace, Duration::from_secs),
            hudi_options,
            queue: own.queue.clone().unwrap_or_default(),
            priority: own.priority.unwrap_or(0),
        }
    }
}

/// How failed attempts are repeated.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Failed attempts after which an instance is `failed`; at least 1.
    pub max_attempts: u32,
    /// Wait after the first failure; doubles with each further one.
    pub backoff_first: Duration,
    /// Longest wait.
    pub backoff_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            backoff_first: Duration::from_secs(30),
            backoff_max: Duration::from_secs(3600),
        }
    }
}

/// When tables are looked at without a trigger, and how long absence is doubted.
#[derive(Clone, Copy, Debug)]
pub struct LookPolicy {
    /// Period of the safety-net scan over touched tables, waiting instances and due times.
    pub scan_every: Duration,
    /// Silence of a table after which it is looked at once.
    pub heartbeat_timeout: Duration,
    /// Time between the two looks that must both miss an instant before it counts as gone.
    pub gone_grace: Duration,
    /// Time that a hinted instant may stay unseen, counted while its table can be read.
    pub hint_grace: Duration,
}

impl Default for LookPolicy {
    fn default() -> Self {
        Self {
            scan_every: Duration::from_secs(600),
            heartbeat_timeout: Duration::from_secs(3600),
            gone_grace: Duration::from_secs(120),
            hint_grace: Duration::from_secs(600),
        }
    }
}

/// How long ended instances are kept.
#[derive(Clone, Copy, Debug)]
pub struct HistoryPolicy {
    /// Age after which an ended instance is pruned.
    pub keep: Duration,
    /// Ended instances that are kept at most.
    pub keep_count: u64,
}

impl Default for HistoryPolicy {
    fn default() -> Self {
        Self { keep: Duration::from_secs(30 * 24 * 3600), keep_count: 100_000 }
    }
}
