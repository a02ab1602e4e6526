//! Tells people. Alarms have a key, are raised once per change, and say when they are over.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    /// An instance used up its attempts.
    InstanceFailed,
    /// An instance is parked.
    InstanceParked,
    /// A plan stands unserved for long.
    PlanUnserved,
    /// A table cannot be read.
    TableUnreadable,
    /// Two completed files, or a rollback that is not ours: the table may be damaged.
    DamageSuspected,
    /// Plans of a table are completed by somebody else.
    NotHandedOver,
    /// A job changed the version of the table or of its metadata table.
    VersionChanged,
    /// The lock file of a table is old.
    LockOld,
    /// Another job has a tag of ours.
    TagTaken,
    /// A job of an attempt that is over, or of an ended instance, was found alive.
    Orphan,
    /// An engine cannot be reached or lacks what it needs.
    EngineTrouble,
    /// A submission stayed unknown past its grace.
    SubmissionUnknown,
    /// Jobs live that the store does not know: it was restored, or is another one than theirs.
    UnknownJobs,
}

impl AlertKind {
    /// Returns the word for metrics, logs and pages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InstanceFailed => "instance_failed",
            Self::InstanceParked => "instance_parked",
            Self::PlanUnserved => "plan_unserved",
            Self::TableUnreadable => "table_unreadable",
            Self::DamageSuspected => "damage_suspected",
            Self::NotHandedOver => "not_handed_over",
            Self::VersionChanged => "version_changed",
            Self::LockOld => "lock_old",
            Self::TagTaken => "tag_taken",
            Self::Orphan => "orphan",
            Self::EngineTrouble => "engine_trouble",
            Self::SubmissionUnknown => "submission_unknown",
            Self::UnknownJobs => "unknown_jobs",
        }
    }
}

/// One alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// What it is about.
    pub kind: AlertKind,
    /// What it concerns: an instance, a table, an engine.
    pub subject: String,
    /// What happened and what to do.
    pub text: String,
}

/// Takes alarms. Never blocks and never fails.
pub trait AlertSink: Debug + Send + Sync + 'static {
    /// An alarm started or goes on.
    fn raise(&self, alert: &Alert);

    /// The cause of an alarm is gone.
    fn clear(&self, kind: AlertKind, subject: &str);
}

/// Most alarms that are remembered as standing; beyond it alarms are still logged and counted, each time.
pub const STANDING_MAX: usize = 100_000;

/// Writes a log line and moves a metric, once per change.
#[derive(Debug, Default)]
pub struct LogAlerts {
    standing: Mutex<BTreeMap<(AlertKind, String), ()>>,
}

impl AlertSink for LogAlerts {
    fn raise(&self, alert: &Alert) {
        let mut standing = self.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = (alert.kind, alert.subject.clone());
        if standing.contains_key(&key) {
            return;
        }
        if standing.len() < STANDING_MAX {
            standing.insert(key, ());
        }
        metrics::counter!("tms_alerts_total", "kind" => alert.kind.as_str()).increment(1);
        metrics::gauge!("tms_alerts_standing", "kind" => alert.kind.as_str()).increment(1.0);
        tracing::error!(alert = alert.kind.as_str(), subject = %alert.subject, "Alarm: {}", alert.text);
    }

    fn clear(&self, kind: AlertKind, subject: &str) {
        let mut standing = self.standing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if standing.remove(&(kind, subject.to_owned())).is_some() {
            metrics::gauge!("tms_alerts_standing", "kind" => kind.as_str()).decrement(1.0);
            tracing::info!(alert = kind.as_str(), subject, "Alarm is over.");
        }
    }
}
