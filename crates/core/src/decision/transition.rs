//! What an instance and its attempt may become. The only place that changes a state.

use crate::clock::Timestamp;
use crate::model::action::Instant;
use crate::model::attempt::{
    Attempt, AttemptEnd, AttemptState, DriverPlace, Expected, Holder, JobReport, Progress, UNTOUCHED,
};
use crate::model::event::cut;
use crate::model::id::RunId;
use crate::model::instance::{CancelAsked, Instance, InstanceState, ParkReason, PlanSize, WaitReason};

/// Longest text of a failure that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 2_000;

/// One change of an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Its plan was seen on the timeline.
    SeenPending(PlanSize),
    /// Readable looks miss its instant since then.
    Missed(Timestamp),
    /// Its instant is there again after a miss.
    SeenAgain,
    /// Its plan stands again, or a person wants it tried again.
    Reopen {
        /// Allowed by a person to run although somebody else seems to.
        take_over: bool,
    },
    /// It waits for somebody else's runner.
    WaitForeign {
        /// Newest sign of life of the other runner.
        sign: Option<Timestamp>,
    },
    /// It is held.
    Park(ParkReason, String),
    /// The cause of its waiting is gone.
    Release,
    /// It waits for another reason, or until another time.
    Delay(WaitReason, Option<Timestamp>),
    /// Work without an instant got one.
    TakeInstant(Instant),
    /// Another action of its table was chosen before it.
    PassedOver,
    /// An attempt is stored; the engine is not called yet.
    Intend(Box<Attempt>),
    /// The engine is about to be called.
    Called,
    /// The engine has the attempt.
    Accepted(String),
    /// The answer of the engine was lost, or the engine forgot the attempt.
    Unknown,
    /// The holder may be dead.
    Suspect,
    /// A driver asks for leave; `is_call` right before its call.
    Leave {
        /// Its run id.
        run: RunId,
        /// It is about to make its call.
        is_call: bool,
        /// Where it runs, when it said so.
        place: Option<DriverPlace>,
    },
    /// The holder spoke.
    Heard(Option<Progress>),
    /// The holder of a restored attempt made itself known: only who was given leave speaks of progress or its end.
    Adopt(RunId),
    /// The driver said how it ended.
    Report(JobReport),
    /// The engine said something about the attempt.
    EngineSaid {
        /// Its word.
        word: String,
        /// It says that the attempt has ended.
        has_ended: bool,
    },
    /// A kill was sent.
    KillSent,
    /// The timeline says completed while the attempt is not over.
    Succeeding,
    /// The attempt is over, and what follows.
    Conclude(Conclusion),
    /// An instance without a live attempt ends.
    End(Ending, String),
    /// Somebody asked to cancel it.
    AskCancel(CancelAsked),
}

/// How an instance without a live attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The timeline says completed.
    Succeeded,
    /// A person cancelled it.
    Cancelled,
    /// The plan is gone, or was never there.
    Obsolete,
}

/// Why an attempt can no longer touch the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// No driver had leave, and none gets it any more.
    Revoked,
    /// Driver and workers ended; the proof.
    Over(String),
}

/// What follows for the instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Completed on the timeline.
    Succeeded,
    /// Out of attempts.
    Failed,
    /// Cancelled by a person.
    Cancelled,
    /// The plan is gone.
    Obsolete,
    /// Tried again.
    Pending(WaitReason, Option<Timestamp>),
    /// Held.
    Parked(ParkReason, String),
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// Why it can no longer touch the table.
    pub closing: Closing,
    /// How it ended.
    pub end: AttemptEnd,
    /// What follows.
    pub next: Next,
    /// A look after the end shows work that the attempt began: an `.inflight`, or for a clean any pending plan. Unset
    /// without such a look.
    pub leaves_work: Option<bool>,
    /// Text for people: why.
    pub reason: String,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The instance after it.
    pub after: Instance,
    /// An attempt that is over now and goes to the history.
    pub past_attempt: Option<Attempt>,
    /// The state or mark changed, so an event is worth writing.
    pub is_event: bool,
}

/// A change that the state does not allow. It ends the flow that wanted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What was wanted, in which state.
    pub what: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Refused {}

/// Returns the state as a word for events: the instance's, and the attempt's behind a slash while one is live.
#[must_use]
pub fn state_word(instance: &Instance) -> String {
    let detail = match &instance.state {
        InstanceState::Parked { reason, .. } => format!("({})", reason.as_str()),
        _ => String::new(),
    };
    match instance.live_attempt() {
        Some(attempt) => format!("{}{detail}/{}", instance.state.as_str(), attempt.state.as_str()),
        None => format!("{}{detail}", instance.state.as_str()),
    }
}

/// Applies one change.
///
/// # Errors
/// The state does not allow it: nothing may be written.
pub fn apply(before: &Instance, change: Change, at: Timestamp) -> Result<Applied, Refused> {
    let refuse = |why: &str| Refused { what: format!("{why} (the instance is {})", state_word(before)) };
    let mut after = before.clone();
    after.updated_at = at;
    let mut past_attempt = None;
    let is_waiting = matches!(
        before.state,
        InstanceState::Pending { .. } | InstanceState::WaitingForeign { .. } | InstanceState::Parked { .. }
    );
    match change {
        Change::SeenPending(plan) => {
            if before.state != InstanceState::Hinted && !is_waiting {
                return Err(refuse("only a hinted or waiting instance takes a plan"));
            }
            after.plan = plan;
            after.missed_since = None;
            if before.state == InstanceState::Hinted {
                after.state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
            }
        }
        // A time to come was stored by a clock that was set back since.
        Change::Missed(since) => {
            after.missed_since = before.missed_since.filter(|known| *known <= at).max(Some(since));
        }
        Change::SeenAgain => after.missed_since = None,
        Change::Reopen { take_over } => reopen(&mut after, before, take_over, at).map_err(&refuse)?,
        Change::WaitForeign { sign } => {
            if !is_waiting || before.takes_slot() {
                return Err(refuse("only a waiting instance waits for another runner"));
            }
            let since = match before.state {
                InstanceState::WaitingForeign { since, .. } => since,
                _ => at,
            };
            after.state = InstanceState::WaitingForeign { since, sign };
        }
        Change::Park(reason, detail) => {
            if !(is_waiting || before.state == InstanceState::Hinted) || before.takes_slot() {
                return Err(refuse("only a waiting instance is parked"));
            }
            after.state = parked(before, reason, &detail, at);
        }
        Change::Release => {
            if !matches!(before.state, InstanceState::WaitingForeign { .. } | InstanceState::Parked { .. }) {
                return Err(refuse("only a parked or foreign one is released"));
            }
            after.state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
        }
        Change::Delay(reason, not_before) => {
            if !is_waiting || before.takes_slot() {
                return Err(refuse("only a waiting instance is delayed"));
            }
            after.state = InstanceState::Pending { reason, not_before };
        }
        Change::TakeInstant(instant) => {
            if before.key.instant.is_some() || before.state.is_ended() {
                return Err(refuse("only live work without an instant takes one"));
            }
            after.key.instant = Some(instant);
        }
        Change::PassedOver => after.n_passed_over = before.n_passed_over.saturating_add(1),
        Change::Intend(attempt) => intend(&mut after, before, *attempt).map_err(&refuse)?,
        Change::Succeeding => {
            if before.state != InstanceState::Active || !before.takes_slot() {
                return Err(refuse("only an active instance is succeeding"));
            }
            after.state = InstanceState::Succeeding;
        }
        Change::Conclude(conclusion) => {
            past_attempt = Some(conclude(&mut after, before, conclusion, at).map_err(&refuse)?);
        }
        Change::End(ending, reason) => {
            if before.state.is_ended() || before.takes_slot() {
                return Err(refuse("only a live instance without a live attempt ends"));
            }
            after.last_error = match ending {
                Ending::Succeeded => before.last_error.clone(),
                _ => Some(cut(&reason, ERROR_BYTES_MAX)),
            };
            after.state = match ending {
                Ending::Succeeded => InstanceState::Succeeded,
                Ending::Cancelled => InstanceState::Cancelled,
                Ending::Obsolete => InstanceState::Obsolete,
            };
            after.ended_at = Some(at);
        }
        Change::AskCancel(ask) => {
            if before.state.is_ended() {
                return Err(refuse("an ended instance cannot be cancelled"));
            }
            if before.cancel_asked.is_none() {
                after.cancel_asked = Some(ask);
            }
        }
        of_attempt => change_attempt(&mut after, of_attempt, at).map_err(refuse)?,
    }
    let is_event = state_word(before) != state_word(&after)
        || before.cancel_asked != after.cancel_asked
        || before.key != after.key
        || wait_reason(before) != wait_reason(&after)
        || past_attempt.is_some();
    Ok(Applied { after, past_attempt, is_event })
}

fn wait_reason(instance: &Instance) -> Option<WaitReason> {
    match instance.state {
        InstanceState::Pending { reason, .. } => Some(reason),
        _ => None,
    }
}

fn parked(before: &Instance, reason: ParkReason, detail: &str, at: Timestamp) -> InstanceState {
    let since = match before.state {
        InstanceState::Parked { reason: old, since, .. } if old == reason => since,
        _ => at,
    };
    InstanceState::Parked { reason, detail: cut(detail, ERROR_BYTES_MAX), since }
}

fn reopen(
    after: &mut Instance,
    before: &Instance,
    take_over: bool,
    at: Timestamp,
) -> Result<(), &'static str> {
    if before.takes_slot() {
        return Err("an instance with a live attempt is not reopened");
    }
    if before.state == InstanceState::Hinted {
        return Err("a hinted instance waits for its plan");
    }
    after.state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    // The plan was away in between: whatever stands now is neither our former work nor what a person allowed.
    let is_another_plan = matches!(before.state, InstanceState::Obsolete | InstanceState::Succeeded);
    let is_consent = take_over && asks_for_take_over(&before.state);
    after.take_over = is_consent || (before.take_over && !before.state.is_ended());
    after.take_over_at = if is_consent { Some(at) } else { before.take_over_at.filter(|_| after.take_over) };
    after.has_called = before.has_called && !is_another_plan;
    after.cancel_asked = None;
    after.missed_since = None;
    after.ended_at = None;
    after.n_failed = 0;
    after.n_attempts_before = before.n_attempts;
    Ok(())
}

/// States in which "take over" means the other runner. In the others, possible damage above all, it answers another
/// question, and is no consent to run over somebody who comes later.
fn asks_for_take_over(state: &InstanceState) -> bool {
    match state {
        InstanceState::WaitingForeign { .. } => true,
        InstanceState::Parked { reason, .. } => {
            matches!(reason, ParkReason::ForeignRunner | ParkReason::TagTaken | ParkReason::UnfencedUnknown)
        }
        state => state.is_ended(),
    }
}

fn intend(after: &mut Instance, before: &Instance, attempt: Attempt) -> Result<(), &'static str> {
    if !matches!(before.state, InstanceState::Pending { .. }) {
        return Err("only a pending instance is submitted");
    }
    if before.takes_slot() {
        return Err("a live attempt exists");
    }
    if before.cancel_asked.is_some() {
        return Err("it was asked to be cancelled");
    }
    if attempt.number != before.n_attempts + 1 || attempt.state != AttemptState::Intended {
        return Err("the attempt is not the next one");
    }
    after.n_attempts = attempt.number;
    after.n_passed_over = 0;
    after.attempt = Some(Box::new(attempt));
    after.state = InstanceState::Active;
    Ok(())
}

fn conclude(
    after: &mut Instance,
    before: &Instance,
    conclusion: Conclusion,
    at: Timestamp,
) -> Result<Attempt, &'static str> {
    let Some(mut attempt) = before.live_attempt().cloned() else {
        return Err("no attempt is live");
    };
    match conclusion.closing {
        Closing::Revoked => {
            if attempt.holder != Holder::None {
                return Err("a driver has leave, so it cannot be revoked");
            }
            attempt.holder = Holder::Revoked;
            attempt.state = AttemptState::Revoked;
        }
        Closing::Over(proof) => {
            attempt.state = AttemptState::Over;
            attempt.proof = Some(proof);
            if attempt.holder == Holder::None {
                attempt.holder = Holder::Revoked;
            }
        }
    }
    attempt.end = Some(conclusion.end);
    attempt.over_at = Some(at);
    if attempt.call_at.is_some() && conclusion.next != Next::Succeeded {
        let is_untouched = attempt.report.as_ref().is_some_and(|report| report.outcome == UNTOUCHED);
        // Only what our attempt began is ours: an inflight that it did not make is somebody else's.
        let explains_more = if is_untouched {
            attempt.expected == Expected::InflightOfOurs && !before.take_over
        } else {
            conclusion.leaves_work.unwrap_or(before.has_called)
        };
        // Attempts that a copy does not know may have come after a restored one: what stands now may be theirs.
        after.has_called = explains_more && !attempt.is_restored;
        // Consent is for one run over what stood then.
        after.take_over = before.take_over && is_untouched;
    }
    if conclusion.end == AttemptEnd::Failed {
        after.n_failed = before.n_failed.saturating_add(1);
    }
    if !matches!(conclusion.end, AttemptEnd::Completed) {
        after.last_error = Some(cut(&conclusion.reason, ERROR_BYTES_MAX));
    }
    after.state = match conclusion.next {
        Next::Succeeded => InstanceState::Succeeded,
        Next::Failed => InstanceState::Failed,
        Next::Cancelled => InstanceState::Cancelled,
        Next::Obsolete => InstanceState::Obsolete,
        Next::Pending(reason, not_before) => InstanceState::Pending { reason, not_before },
        Next::Parked(reason, detail) => parked(before, reason, &detail, at),
    };
    if after.state.is_ended() {
        after.ended_at = Some(at);
    }
    after.attempt = Some(Box::new(attempt.clone()));
    Ok(attempt)
}

/// Changes of a live attempt that leave the instance active (or succeeding).
fn change_attempt(after: &mut Instance, change: Change, at: Timestamp) -> Result<(), &'static str> {
    let has_cancel = after.cancel_asked.is_some();
    let is_active = after.state == InstanceState::Active;
    let has_called = &mut after.has_called;
    let Some(attempt) = after.attempt.as_mut().filter(|a| a.state.is_live()) else {
        return Err("no attempt is live");
    };
    match change {
        Change::Called => {
            if attempt.state != AttemptState::Intended || has_cancel {
                return Err("only an intended attempt that nobody cancelled is called");
            }
            attempt.state = AttemptState::Called;
            attempt.called_at = Some(at);
        }
        Change::Accepted(handle) => {
            if matches!(attempt.state, AttemptState::Intended | AttemptState::Called | AttemptState::Unknown)
            {
                attempt.state = AttemptState::Accepted;
                attempt.accepted_at = Some(at);
            }
            attempt.handle = Some(handle);
        }
        Change::Unknown => {
            if !matches!(
                attempt.state,
                AttemptState::Intended
                    | AttemptState::Called
                    | AttemptState::Accepted
                    | AttemptState::Unknown
            ) {
                return Err("only an attempt without a holder becomes unknown");
            }
            attempt.state = AttemptState::Unknown;
        }
        Change::Suspect => {
            if !matches!(attempt.state, AttemptState::Holding | AttemptState::Suspect) {
                return Err("only a holder becomes suspect");
            }
            attempt.state = AttemptState::Suspect;
        }
        Change::Leave { run, is_call, place } => {
            give_leave(attempt, &run, is_active && !has_cancel)?;
            attempt.holder_place = place.or(attempt.holder_place.take());
            attempt.leave_at = attempt.leave_at.or(Some(at));
            attempt.heard_at = Some(at);
            if is_call {
                attempt.call_at = Some(at);
                *has_called = true;
            }
        }
        Change::Heard(progress) => {
            attempt.heard_at = Some(at);
            if attempt.state == AttemptState::Suspect {
                attempt.state = AttemptState::Holding;
            }
            if let Some(mut progress) = progress {
                let before = attempt.progress.as_ref().map_or(0, |p| p.percent);
                progress.percent = progress.percent.clamp(before, 99);
                attempt.progress = Some(progress);
            }
        }
        Change::Adopt(run) => {
            if !attempt.has_unknown_holder() {
                return Err("its holder is known");
            }
            attempt.holder = Holder::Run(run);
            attempt.heard_at = Some(at);
        }
        Change::Report(report) => {
            attempt.heard_at = Some(at);
            attempt.report = Some(report);
        }
        Change::EngineSaid { word, has_ended } => {
            attempt.engine_word = Some(cut(&word, 200));
            if has_ended {
                attempt.ended_at = attempt.ended_at.or(Some(at));
            }
        }
        Change::KillSent => attempt.n_kills = attempt.n_kills.saturating_add(1),
        _ => return Err("that is no change of an attempt"),
    }
    Ok(())
}

fn give_leave(attempt: &mut Attempt, run: &RunId, may_start: bool) -> Result<(), &'static str> {
    match (&attempt.holder, attempt.state) {
        (Holder::Revoked, _) => Err("the attempt was revoked"),
        (Holder::Run(holder), _) if holder != run => Err("another run has leave"),
        _ if !may_start => Err("it was cancelled, or has ended"),
        (Holder::Run(_), _) if attempt.report.is_some() => Err("its driver said that it ended"),
        (Holder::Run(_), _) => {
            attempt.state = AttemptState::Holding;
            Ok(())
        }
        (Holder::None, AttemptState::Called | AttemptState::Unknown | AttemptState::Accepted) => {
            attempt.holder = Holder::Run(run.clone());
            attempt.state = AttemptState::Holding;
            // A twin that left untouched may have said so before.
            attempt.report = None;
            Ok(())
        }
        (Holder::None, _) => Err("the attempt was not submitted yet"),
    }
}

#[cfg(test)]
mod tests;
