//! What a judgement tells its caller to do.

use std::fmt;

use crate::alert::AlertKind;
use crate::engine::Force;
use crate::model::instance::ParkReason;

/// How an instance ends, or that its plan still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstanceEnd {
    /// Completed on the timeline.
    Succeeded,
    /// The plan is gone.
    Obsolete,
    /// A person cancelled it.
    Cancelled,
    /// The plan still stands: retry, failed or parked, by the reason of the failure.
    StillPending,
    /// The attempt is over, and the table cannot be read: pending until it can.
    Unread,
}

/// What contradicts itself; written as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contradiction {
    /// The engine says queued while a driver holds leave.
    QueuedWhileHolding,
    /// The engine says ended or absent while the driver speaks.
    HeardAfterEnd,
}

/// One thing to do. Steps are done in their order; a refused one stops the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing changes.
    Stay,
    /// The attempt is `accepted`: the engine has it.
    Accept,
    /// The attempt is `unknown`.
    BecomeUnknown,
    /// The attempt is `suspect`.
    BecomeSuspect,
    /// The attempt is `holding` again.
    BecomeHolding,
    /// A fresh look decides; take it now.
    LookNow,
    /// Note when the end was first seen; the settle time runs.
    AwaitSettle,
    /// The table cannot be read: back off, show it, no verdict.
    ShowUnreadable,
    /// `holder: none -> revoked`. When it loses, the flow stops.
    Revoke,
    /// The attempt is over.
    Over {
        /// What proves it.
        proof: &'static str,
    },
    /// The instance is `succeeding`; the slot stays taken.
    Succeeding,
    /// What follows for the instance.
    End(InstanceEnd),
    /// The next answer to a heartbeat is `stop`.
    StopByHeartbeat,
    /// Ask the engine to end the job; repeated.
    CancelJob(Force),
    /// Ask the engine to end a job that nobody waits for.
    CancelOrphan,
    /// Submit the same attempt with the same id again.
    RepeatSubmit,
    /// The instance is held. Without a `Revoke` before it the attempt stays live and the slot taken.
    Park(ParkReason),
    /// Write an event.
    Event(Contradiction),
    /// Tell people.
    Alarm(AlertKind),
}

impl Step {
    /// Tells whether it frees the table's slot.
    #[must_use]
    pub fn frees_slot(self) -> bool {
        matches!(self, Self::Revoke | Self::Over { .. })
    }

    /// Tells whether it is a verdict, which an unreadable timeline never gives.
    #[must_use]
    pub fn is_verdict(self) -> bool {
        self.frees_slot() || matches!(self, Self::Succeeding | Self::End(_) | Self::Park(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stay => "stay",
            Self::Accept => "accepted",
            Self::BecomeUnknown => "unknown",
            Self::BecomeSuspect => "suspect",
            Self::BecomeHolding => "holding",
            Self::LookNow => "look",
            Self::AwaitSettle => "settle",
            Self::ShowUnreadable => "unreadable",
            Self::Revoke => "revoke",
            Self::Over { .. } => "over",
            Self::Succeeding => "succeeding",
            Self::End(InstanceEnd::Succeeded) => "succeeded",
            Self::End(InstanceEnd::Obsolete) => "obsolete",
            Self::End(InstanceEnd::Cancelled) => "cancelled",
            Self::End(InstanceEnd::StillPending) => "pending",
            Self::End(InstanceEnd::Unread) => "pending(unreadable)",
            Self::StopByHeartbeat => "stop",
            Self::CancelJob(Force::Gentle) => "cancel",
            Self::CancelJob(Force::Kill) => "kill",
            Self::CancelOrphan => "cancel orphan",
            Self::RepeatSubmit => "repeat",
            Self::Park(reason) => return write!(f, "parked({})", reason.as_str()),
            Self::Event(_) => "event",
            Self::Alarm(_) => "alarm",
        })
    }
}

/// What follows from one observation. Never empty; `Stay` stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// In this order.
    pub steps: Vec<Step>,
}

impl Judgement {
    /// Returns the end of the instance, when there is one.
    #[must_use]
    pub fn end(&self) -> Option<InstanceEnd> {
        self.steps.iter().find_map(|step| match step {
            Step::End(end) => Some(*end),
            _ => None,
        })
    }

    /// Returns the step that frees the slot, when there is one.
    #[must_use]
    pub fn closing(&self) -> Option<Step> {
        self.steps.iter().copied().find(|step| step.frees_slot())
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
