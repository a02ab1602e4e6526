//! What an observation of an attempt means: the table of `states.md` as one total function.
//!
//! Rows are what the engine says and what a fresh look at the timeline says; columns are the state of the attempt and of
//! its instance. The engine never decides how an instance ends, only whether its attempt is over; the timeline decides
//! the rest. Graces are judged by the caller on the monotonic clock of its term and come as plain flags.

pub mod failure;
#[cfg(test)]
mod properties;
mod says;
mod step;
#[cfg(test)]
mod tests;

use crate::alert::AlertKind;
use crate::engine::Force;
use crate::model::attempt::{AttemptState, Holder};
use crate::model::instance::{Instance, InstanceState, ParkReason};

pub use self::failure::{FailureClass, classify_failure};
pub use self::says::{EngineSays, KILL_WAIT, PlanState, STOP_WAIT, TimelineSays, Urgency, urgency};
pub use self::step::{Contradiction, InstanceEnd, Judgement, Step};

/// What the caller knows beside the words of engine and timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The launcher's driver asks for leave, so `revoke` exists.
    pub is_fenced: bool,
    /// The engine refuses a second submission with the same tag; matters for launchers that are not fenced.
    pub refuses_duplicates: bool,
    /// The submission may still be on its way, so absence proves nothing. Counted while the engine was reachable, from the
    /// call, or from the moment when an accepted attempt became unknown.
    pub within_submit_grace: bool,
    /// The settle time since the end was first seen is over, or the engine says that all containers are gone.
    pub is_settled: bool,
    /// The table could not be read for so long that its slot is not kept for the verdict.
    pub is_lost: bool,
    /// The driver spoke within `heartbeat_silence`.
    pub heard_recently: bool,
    /// The driver said that it ends.
    pub job_reported_end: bool,
    /// The attempt runs longer than its run time limit.
    pub is_overdue: bool,
    /// For how long its end has been wanted.
    pub urgency: Urgency,
}

/// Where the instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Neither of the others.
    Live,
    /// The timeline said completed; the attempt is not over.
    Succeeding,
    /// It has ended.
    Ended,
}

/// One cell of the table, with what decides inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// State of the attempt.
    pub attempt: AttemptState,
    /// A driver has leave.
    pub has_holder: bool,
    /// Where the instance stands.
    pub standing: Standing,
    /// Somebody asked to cancel it.
    pub cancel_asked: bool,
    /// What the engine says.
    pub engine: EngineSays,
    /// What the timeline says.
    pub timeline: TimelineSays,
    /// The rest.
    pub context: Context,
}

impl Situation {
    /// Returns the situation of an instance's attempt; `None` when it never had one.
    #[must_use]
    pub fn of(
        instance: &Instance,
        engine: EngineSays,
        timeline: TimelineSays,
        context: Context,
    ) -> Option<Self> {
        let attempt = instance.attempt.as_ref()?;
        let standing = match &instance.state {
            InstanceState::Succeeding => Standing::Succeeding,
            state if state.is_ended() => Standing::Ended,
            _ => Standing::Live,
        };
        Some(Self {
            attempt: attempt.state,
            has_holder: matches!(attempt.holder, Holder::Run(_)),
            standing,
            cancel_asked: instance.cancel_asked.is_some(),
            engine,
            timeline,
            context,
        })
    }

    /// Tells whether some driver of the attempt may touch the table, so that only proof frees the slot. A fenced attempt
    /// without a holder cannot: `revoke` shuts the door first.
    #[must_use]
    pub fn may_touch(&self) -> bool {
        let holds = self.has_holder || matches!(self.attempt, AttemptState::Holding | AttemptState::Suspect);
        self.attempt.is_live() && (holds || !self.context.is_fenced)
    }

    /// A heartbeat means alive, whatever the engine says; the driver's own report of its end takes that back.
    fn is_alive(&self) -> bool {
        self.context.heard_recently && !self.context.job_reported_end
    }

    /// Tells whether the attempt is over: said to be gone, settled, and silent.
    fn is_over(&self) -> bool {
        self.engine.is_end() && self.context.is_settled && !self.is_alive()
    }

    fn proof(&self) -> Step {
        Step::Over {
            proof: match self.engine {
                EngineSays::AbsentProven => {
                    "the engine proves that no driver of it can run, and the settle time is over"
                }
                _ => "the engine says that it ended, and the settle time is over",
            },
        }
    }
}

/// Judges one observation of one attempt.
#[must_use]
pub fn judge(situation: &Situation) -> Judgement {
    let mut steps = Vec::new();
    if matches!(situation.timeline, TimelineSays::Completed { files } if files > 1) {
        steps.push(Step::Alarm(AlertKind::DamageSuspected));
    }
    if situation.standing != Standing::Live {
        ended_or_succeeding(situation, &mut steps);
    } else if !situation.attempt.is_live() {
        attempt_closed(situation, &mut steps);
    } else if situation.may_touch() {
        may_touch(situation, &mut steps);
    } else {
        without_holder(situation, &mut steps);
    }
    if situation.timeline == TimelineSays::Unreadable {
        without_verdict(situation, &mut steps);
    }
    if steps.is_empty() {
        steps.push(Step::Stay);
    }
    Judgement { steps }
}

/// An unreadable timeline says nothing of the instance. That the attempt is over rests on other proof, and frees the slot of
/// a table that stays unreadable: one that was dropped must not keep it. Before that the verdict is worth the wait.
fn without_verdict(s: &Situation, steps: &mut Vec<Step>) {
    let closing = steps.iter().copied().find(|step| step.frees_slot());
    let is_parked = steps.iter().any(|step| matches!(step, Step::Park(_)));
    if !steps.iter().any(|step| step.is_verdict()) {
        return;
    }
    steps.retain(|step| !step.is_verdict());
    match (closing, s.standing) {
        (Some(closing), Standing::Live) if !is_parked && s.context.is_lost => {
            steps.extend([closing, end_of(s, InstanceEnd::Unread)]);
        }
        (Some(closing), Standing::Succeeding) if s.context.is_lost => {
            steps.extend([closing, Step::End(InstanceEnd::Succeeded)]);
        }
        _ => steps.push(Step::ShowUnreadable),
    }
}

/// Returns what a pending or vanished plan means once its attempt is over.
fn end_of(situation: &Situation, uncancelled: InstanceEnd) -> Step {
    Step::End(if situation.cancel_asked { InstanceEnd::Cancelled } else { uncancelled })
}

/// Columns `intended, called`, `unknown` and `accepted` of a fenced launcher: no driver can touch the table once the
/// attempt is revoked.
fn without_holder(s: &Situation, steps: &mut Vec<Step>) {
    if s.engine == EngineSays::FoundOther {
        steps.push(Step::Alarm(AlertKind::TagTaken));
    }
    match s.timeline {
        TimelineSays::Completed { .. } => {
            steps.extend([Step::Revoke, Step::End(InstanceEnd::Succeeded)]);
            return;
        }
        TimelineSays::Gone => {
            steps.extend([Step::Revoke, end_of(s, InstanceEnd::Obsolete)]);
            return;
        }
        _ => {}
    }
    match s.engine {
        EngineSays::FoundQueued | EngineSays::FoundRunning => found_without_holder(s, steps),
        EngineSays::FoundOther => steps.extend([Step::Revoke, Step::Park(ParkReason::TagTaken)]),
        EngineSays::Ended => ended(s, steps),
        EngineSays::AbsentNoProof if s.cancel_asked && s.context.within_submit_grace => {
            steps.push(cancel(s.context.urgency));
        }
        EngineSays::AbsentNoProof if s.cancel_asked => {
            steps.extend([Step::Revoke, Step::End(InstanceEnd::Cancelled)]);
        }
        EngineSays::AbsentNoProof if s.attempt == AttemptState::Accepted => steps.push(Step::BecomeUnknown),
        EngineSays::AbsentNoProof if s.context.within_submit_grace => {}
        EngineSays::AbsentNoProof | EngineSays::AbsentProven => {
            steps.extend([Step::Revoke, end_of(s, InstanceEnd::StillPending)]);
        }
        // Whatever the engine would say: a driver that comes later gets no leave.
        EngineSays::Unreachable if s.cancel_asked => {
            steps.extend([Step::Revoke, Step::End(InstanceEnd::Cancelled)]);
        }
        EngineSays::Unreachable => {}
    }
}

fn found_without_holder(s: &Situation, steps: &mut Vec<Step>) {
    if s.cancel_asked || s.context.is_overdue {
        steps.push(cancel(s.context.urgency));
    } else if s.attempt != AttemptState::Accepted {
        steps.push(Step::Accept);
    }
}

/// Columns `holding` and `suspect`, and every live attempt of a launcher that asks for no leave: only proof frees the slot.
fn may_touch(s: &Situation, steps: &mut Vec<Step>) {
    match s.timeline {
        TimelineSays::Completed { .. } if s.is_over() => {
            steps.extend([s.proof(), Step::End(InstanceEnd::Succeeded)]);
            return;
        }
        TimelineSays::Completed { .. } => {
            steps.push(Step::Succeeding);
            if !s.context.job_reported_end {
                steps.push(Step::StopByHeartbeat);
            }
            return;
        }
        TimelineSays::Gone if s.is_over() => {
            steps.extend([s.proof(), end_of(s, InstanceEnd::Obsolete)]);
            return;
        }
        TimelineSays::Gone => {
            ask_to_end(s, steps);
            return;
        }
        _ => {}
    }
    if s.attempt == AttemptState::Suspect && s.is_alive() {
        steps.push(Step::BecomeHolding);
    }
    match s.engine {
        EngineSays::FoundQueued | EngineSays::FoundRunning => found_that_may_touch(s, steps),
        EngineSays::FoundOther => {
            steps.extend([Step::Park(ParkReason::TagTaken), Step::Alarm(AlertKind::TagTaken)]);
        }
        EngineSays::Ended | EngineSays::AbsentProven => ended(s, steps),
        EngineSays::AbsentNoProof => absent_that_may_touch(s, steps),
        EngineSays::Unreachable if s.cancel_asked => steps.push(Step::StopByHeartbeat),
        EngineSays::Unreachable => look_when_reported(s, steps),
    }
}

fn found_that_may_touch(s: &Situation, steps: &mut Vec<Step>) {
    if s.attempt == AttemptState::Holding && s.engine == EngineSays::FoundQueued {
        steps.push(Step::Event(Contradiction::QueuedWhileHolding));
    }
    if matches!(s.attempt, AttemptState::Intended | AttemptState::Called | AttemptState::Unknown) {
        steps.push(Step::Accept);
    }
    if s.cancel_asked || s.context.is_overdue {
        ask_to_end(s, steps);
    } else {
        look_when_reported(s, steps);
    }
}

fn absent_that_may_touch(s: &Situation, steps: &mut Vec<Step>) {
    if s.cancel_asked {
        ask_to_end(s, steps);
        return;
    }
    match s.attempt {
        AttemptState::Holding if !s.is_alive() => steps.push(Step::BecomeSuspect),
        AttemptState::Holding | AttemptState::Suspect => {}
        AttemptState::Accepted => steps.push(Step::BecomeUnknown),
        _ if s.context.within_submit_grace => {}
        _ if s.context.refuses_duplicates => steps.push(Step::RepeatSubmit),
        _ => {
            steps.extend([Step::Park(ParkReason::UnfencedUnknown), Step::Alarm(AlertKind::SubmissionUnknown)])
        }
    }
    look_when_reported(s, steps);
}

/// A report is a hint to look now, never the verdict.
fn look_when_reported(s: &Situation, steps: &mut Vec<Step>) {
    if s.context.job_reported_end && s.timeline == TimelineSays::NotLooked {
        steps.push(Step::LookNow);
    }
}

/// The row `ended` and, for a possible holder, `absent, proven`, while the plan is not known to be completed or gone.
fn ended(s: &Situation, steps: &mut Vec<Step>) {
    if s.may_touch() && s.is_alive() {
        steps.push(Step::Event(Contradiction::HeardAfterEnd));
    }
    match s.timeline {
        TimelineSays::NotLooked => steps.push(Step::LookNow),
        TimelineSays::Missing => {}
        _ if s.is_over() || (!s.may_touch() && s.context.is_settled) => {
            steps.extend([s.proof(), end_of(s, InstanceEnd::StillPending)]);
        }
        TimelineSays::Unreadable => steps.push(Step::ShowUnreadable),
        _ => steps.push(Step::AwaitSettle),
    }
}

/// Column `ended or succeeding`.
fn ended_or_succeeding(s: &Situation, steps: &mut Vec<Step>) {
    let is_succeeding = s.standing == Standing::Succeeding;
    let end = match s.timeline {
        TimelineSays::Pending(_) => InstanceEnd::StillPending,
        TimelineSays::Gone => InstanceEnd::Obsolete,
        _ => InstanceEnd::Succeeded,
    };
    if is_succeeding && end != InstanceEnd::Succeeded {
        // Completed before and not any more: a rollback that is not ours.
        steps.push(Step::Alarm(AlertKind::DamageSuspected));
    }
    match s.engine {
        EngineSays::FoundQueued => steps.extend([Step::CancelOrphan, Step::Alarm(AlertKind::Orphan)]),
        EngineSays::FoundRunning if is_succeeding => {
            if !s.context.job_reported_end {
                steps.push(Step::StopByHeartbeat);
            }
            if s.context.urgency != Urgency::Stop {
                steps.push(cancel(s.context.urgency));
            }
        }
        EngineSays::FoundRunning => {
            steps.extend([cancel(s.context.urgency), Step::Alarm(AlertKind::Orphan)]);
        }
        EngineSays::FoundOther => steps.push(Step::Alarm(AlertKind::TagTaken)),
        EngineSays::Ended | EngineSays::AbsentProven if s.attempt.is_live() => {
            if !s.is_over() || s.timeline == TimelineSays::Missing {
                steps.push(Step::AwaitSettle);
                return;
            }
            steps.push(s.proof());
            if is_succeeding {
                steps.push(Step::End(end));
            }
        }
        _ => {}
    }
}

/// The attempt is closed and its instance has no verdict yet: the timeline alone decides.
fn attempt_closed(s: &Situation, steps: &mut Vec<Step>) {
    if matches!(s.engine, EngineSays::FoundQueued | EngineSays::FoundRunning) {
        steps.extend([Step::CancelOrphan, Step::Alarm(AlertKind::Orphan)]);
    }
    match s.timeline {
        TimelineSays::NotLooked => steps.push(Step::LookNow),
        TimelineSays::Unreadable => steps.push(Step::ShowUnreadable),
        TimelineSays::Missing => {}
        TimelineSays::Completed { .. } => steps.push(Step::End(InstanceEnd::Succeeded)),
        TimelineSays::Gone => steps.push(end_of(s, InstanceEnd::Obsolete)),
        TimelineSays::Pending(_) => steps.push(end_of(s, InstanceEnd::StillPending)),
    }
}

fn cancel(urgency: Urgency) -> Step {
    Step::CancelJob(if urgency == Urgency::Kill { Force::Kill } else { Force::Gentle })
}

/// Ends a driver that may hold the table lock: it is told first, and asked by the engine once it had time to obey. A silent
/// one cannot be told.
fn ask_to_end(s: &Situation, steps: &mut Vec<Step>) {
    steps.push(Step::StopByHeartbeat);
    let obeys = s.context.urgency == Urgency::Stop && s.context.heard_recently;
    if !obeys && s.engine != EngineSays::Unreachable {
        steps.push(cancel(s.context.urgency));
    }
}
