//! What follows when an attempt is over: the timeline's verdict, the next attempt, and what the table remembers.

use std::sync::Arc;

use chrono::TimeDelta;

use crate::alert::{Alert, AlertKind};
use crate::decision::judge::failure::{FailureClass, classify_failure};
use crate::decision::judge::{InstanceEnd, Step};
use crate::decision::retry::{AfterFailure, backoff, verdict_after_failure};
use crate::decision::transition::{Change, Closing, Conclusion, Next};
use crate::error::{Error, ErrorKind};
use crate::fail_point::{self, FailPoint};
use crate::model::action::Action;
use crate::model::attempt::{Attempt, AttemptEnd, Expected};
use crate::model::instance::{Instance, ParkReason, WaitReason};
use crate::model::table::{Damage, LookState, TableRecord};
use crate::service::leader::Leader;
use crate::timeline::Sight;

/// Attempts that found nothing to do although the plan stands, before that counts as a failure.
const LOOK_AGAIN_MAX: u32 = 5;

/// What was seen when the attempt was judged.
#[derive(Debug)]
pub(super) struct Evidence {
    /// What the engine said.
    pub(super) engine_word: String,
    /// The look, when one was made.
    pub(super) sight: Option<Arc<Sight>>,
}

fn closing_of(closing: Option<Step>) -> Closing {
    match closing {
        Some(Step::Over { proof }) => Closing::Over(proof.to_owned()),
        _ => Closing::Revoked,
    }
}

/// Concludes the attempt, and with it the instance or its next try, in one transaction with what the table remembers.
pub(super) async fn conclude(
    leader: &Leader,
    instance: &Instance,
    end: InstanceEnd,
    closing: Option<Step>,
    evidence: &Evidence,
) -> Result<(), Error> {
    let Some(attempt) = instance.live_attempt().cloned() else { return Ok(()) };
    let Some(record) = leader.table(instance.key.table).await? else { return Ok(()) };
    let mut state = record.look.clone();
    versions_kept(leader, &record, &attempt).await;
    if attempt.call_at.is_some() {
        rollbacks(leader, &record, instance, &mut state).await?;
    }
    let mut conclusion = match end {
        InstanceEnd::Succeeded => Conclusion {
            closing: closing_of(closing),
            end: AttemptEnd::Completed,
            next: Next::Succeeded,
            leaves_work: None,
            reason: "the timeline says completed".to_owned(),
        },
        InstanceEnd::Obsolete => Conclusion {
            closing: closing_of(closing),
            end: AttemptEnd::PlanGone,
            next: Next::Obsolete,
            leaves_work: None,
            reason: "the plan is gone from the timeline".to_owned(),
        },
        InstanceEnd::Cancelled => Conclusion {
            closing: closing_of(closing),
            end: AttemptEnd::Cancelled,
            next: Next::Cancelled,
            leaves_work: None,
            reason: "cancelled; the plan stays until it is retried".to_owned(),
        },
        InstanceEnd::Unread => {
            let wait = backoff(&leader.policies.retry, 1, rand::random());
            let again = leader.clock.now() + TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX);
            Conclusion {
                closing: closing_of(closing),
                end: AttemptEnd::NotCounted,
                next: Next::Pending(WaitReason::Unreadable, Some(again)),
                leaves_work: None,
                reason: "its attempt is over, and the table cannot be read to tell how it ended".to_owned(),
            }
        }
        InstanceEnd::StillPending => still_pending(leader, instance, &attempt, closing, evidence),
    };
    conclusion.leaves_work = evidence.sight.as_deref().map(|sight| leaves_work(instance, sight));
    let mut sight = evidence.sight.clone();
    if sight.is_none() && instance.key.action == Action::Clean {
        // Judged without a look: it was seen completed before.
        sight = leader.timelines.look(&record.table.base_path).await.ok();
    }
    if conclusion.next == Next::Succeeded && found_nothing(instance, &attempt, sight.as_deref()) {
        conclusion.reason = "there was nothing to clean".to_owned();
    }
    remember(leader, &mut state, instance, &attempt, &conclusion, sight.as_deref());
    let reason = conclusion.reason.clone();
    let Some(write) = leader.write_of(instance, Change::Conclude(conclusion), &reason) else {
        leader.refresh(instance.id).await?;
        return Ok(());
    };
    fail_point::pass(FailPoint::Judged);
    if leader.commit(record.table.id, state, vec![write]).await?.is_none() {
        return Err(Error::new(ErrorKind::Conflict, "conclude the attempt").with("instance", instance.id));
    }
    fail_point::pass(FailPoint::VerdictStored);
    leader.look_by(record.table.id, leader.clock.now());
    leader.wakes.dispatch.wake();
    Ok(())
}

/// Tells whether a clean returned without one on the timeline: it had nothing to do.
fn found_nothing(instance: &Instance, attempt: &Attempt, sight: Option<&Sight>) -> bool {
    let has_none = instance.key.action == Action::Clean && instance.key.instant.is_none();
    let is_as_before = |sight: &Sight| sight.newest_clean() <= attempt.baseline.as_ref();
    has_none && attempt.call_at.is_some() && attempt.takes.is_none() && sight.is_some_and(is_as_before)
}

/// Tells whether a look shows work that an attempt of this instance may have begun.
fn leaves_work(instance: &Instance, sight: &Sight) -> bool {
    let taken = instance.attempt.as_ref().and_then(|attempt| attempt.takes.as_ref());
    let Some(instant) = instance.key.instant.as_ref().or(taken) else { return false };
    let action = instance.key.action;
    sight.pending(action, instant).is_some_and(|plan| plan.is_inflight || action == Action::Clean)
}

/// The plan still stands: what the failure means for the next attempt.
fn still_pending(
    leader: &Leader,
    instance: &Instance,
    attempt: &Attempt,
    closing: Option<Step>,
    evidence: &Evidence,
) -> Conclusion {
    let has_ended = attempt.report.is_some()
        || crate::decision::judge::failure::exit_code_of(&evidence.engine_word).is_some();
    let is_revoked = !matches!(closing, Some(Step::Over { .. }));
    let class = if is_revoked && !has_ended {
        FailureClass::NotCounted(WaitReason::NoLeave)
    } else {
        classify_failure(instance.key.action, attempt.report.as_ref(), &evidence.engine_word)
    };
    let text = failure_text(attempt, &evidence.engine_word);
    let later = || {
        let wait = backoff(&leader.policies.retry, instance.n_tries(), rand::random());
        Some(leader.clock.now() + TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX))
    };
    let (end, next) = match class {
        FailureClass::Counted => {
            let n_failed = instance.n_failed.saturating_add(1);
            let next = match verdict_after_failure(&leader.policies.retry, n_failed, rand::random()) {
                AfterFailure::GiveUp => Next::Failed,
                AfterFailure::Retry { after } => {
                    let at = leader.clock.now() + TimeDelta::from_std(after).unwrap_or(TimeDelta::MAX);
                    Next::Pending(WaitReason::Backoff, Some(at))
                }
            };
            (AttemptEnd::Failed, next)
        }
        FailureClass::NotCounted(reason) => {
            metrics::counter!("tms_attempts_not_counted_total", "reason" => word_of(reason)).increment(1);
            (AttemptEnd::NotCounted, Next::Pending(reason, later()))
        }
        FailureClass::LookAgain if instance.n_tries().saturating_sub(instance.n_failed) > LOOK_AGAIN_MAX => {
            let n_failed = instance.n_failed.saturating_add(1);
            let next = match verdict_after_failure(&leader.policies.retry, n_failed, rand::random()) {
                AfterFailure::GiveUp => Next::Failed,
                AfterFailure::Retry { .. } => Next::Pending(WaitReason::Backoff, later()),
            };
            (AttemptEnd::Failed, next)
        }
        FailureClass::LookAgain => (AttemptEnd::NotCounted, Next::Pending(WaitReason::NoLeave, later())),
        FailureClass::Overtaken => (AttemptEnd::Overtaken, Next::Parked(ParkReason::Overtaken, text.clone())),
        FailureClass::BadOptions => {
            (AttemptEnd::NotCounted, Next::Parked(ParkReason::BadOption, text.clone()))
        }
        FailureClass::WrongBundle => {
            (AttemptEnd::NotCounted, Next::Parked(ParkReason::BundleTooOld, text.clone()))
        }
    };
    Conclusion { closing: closing_of(closing), end, next, leaves_work: None, reason: text }
}

fn word_of(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Ready => "ready",
        WaitReason::Backoff => "backoff",
        WaitReason::LockHeld => "lock_held",
        WaitReason::HeartbeatRefused => "heartbeat_refused",
        WaitReason::NoLeave => "no_leave",
        WaitReason::EngineRefused => "engine_refused",
        WaitReason::Upheaval => "upheaval",
        WaitReason::Unreadable => "unreadable",
    }
}

/// What people read about a failure: the driver's own words first.
fn failure_text(attempt: &Attempt, engine_word: &str) -> String {
    match &attempt.report {
        Some(report) if !report.error.is_empty() => {
            format!("attempt {} ended ({}): {}", attempt.number, report.outcome, report.error.join(" <- "))
        }
        Some(report) => {
            format!("attempt {} ended ({}, exit {})", attempt.number, report.outcome, report.exit_code)
        }
        None => format!("attempt {} ended without a word of its driver: {engine_word}", attempt.number),
    }
}

/// What the table remembers of the end of an attempt.
fn remember(
    leader: &Leader,
    state: &mut LookState,
    instance: &Instance,
    attempt: &Attempt,
    conclusion: &Conclusion,
    sight: Option<&Sight>,
) {
    let action = instance.key.action;
    match conclusion.next {
        Next::Succeeded => {
            state.last_success.insert(action, leader.clock.now());
            // What a success has made good is no last error of the table.
            state.last_error = None;
            if attempt.call_at.is_none() && action != Action::Clean {
                state.n_completed_by_others = state.n_completed_by_others.saturating_add(1);
            }
        }
        _ => state.last_error = Some(crate::model::event::cut(&conclusion.reason, 1_000)),
    }
    let is_end = matches!(conclusion.next, Next::Succeeded | Next::Failed | Next::Cancelled);
    if action == Action::Clean && is_end {
        // Also after a clean that found nothing: the next one comes after as many further commits.
        if let Some(newest) = sight.and_then(|s| s.commits.last()) {
            state.cleaned_up_to = Some(newest.clone());
        }
    }
}

/// Holds an instance whose attempt was revoked, or ends it when that is what people wanted; without a closing step the slot stays taken and only people are told.
pub(super) async fn park(
    leader: &Leader,
    instance: &Instance,
    reason: ParkReason,
    closing: Option<Step>,
    word: &str,
) -> Result<(), Error> {
    if closing.is_none() {
        return Ok(());
    }
    let (end, next) = if instance.cancel_asked.is_some() {
        (AttemptEnd::Cancelled, Next::Cancelled)
    } else {
        (AttemptEnd::NotCounted, Next::Parked(reason, word.to_owned()))
    };
    let conclusion =
        Conclusion { closing: closing_of(closing), end, next, leaves_work: None, reason: word.to_owned() };
    leader.step(instance, Change::Conclude(conclusion), word).await?;
    Ok(())
}

/// A job must not change the version of the table or of its metadata table: old writers would be locked out.
async fn versions_kept(leader: &Leader, record: &TableRecord, attempt: &Attempt) {
    let (Some(before), true) = (attempt.versions, attempt.call_at.is_some()) else { return };
    match leader.timelines.versions(&record.table.base_path).await {
        Ok(after) if after == before => {}
        Ok(after) => {
            let had_none = before.metadata_table.is_none() && after.table == before.table;
            if had_none && after.metadata_table.is_some() {
                return;
            }
            leader.alerts.raise(&Alert {
                kind: AlertKind::VersionChanged,
                subject: record.table.id.to_string(),
                text: format!(
                    "versions of {} were {before:?} before attempt {} and are {after:?} after it: writers of the old version may be locked out",
                    record.table.base_path, attempt.tag
                ),
            });
        }
        Err(error) => {
            tracing::warn!(table = %record.table.id, error = error.chain(), "Failed to compare versions after a job.");
        }
    }
}

/// Looks for rollbacks of the instant that our attempts do not explain, and notes them.
pub(crate) async fn note_rollbacks(leader: &Leader, instance: &Instance) -> Result<(), Error> {
    let Some(record) = leader.table(instance.key.table).await? else { return Ok(()) };
    let mut state = record.look.clone();
    rollbacks(leader, &record, instance, &mut state).await?;
    if state != record.look {
        leader.commit(record.table.id, state, Vec::new()).await?;
    }
    Ok(())
}

/// An attempt of ours that found an `.inflight` of ours makes one rollback; one more than that since it was intended is
/// somebody else's.
async fn rollbacks(
    leader: &Leader,
    record: &TableRecord,
    instance: &Instance,
    state: &mut LookState,
) -> Result<(), Error> {
    let Some(instant) = &instance.key.instant else { return Ok(()) };
    if instance.key.action == Action::Clean || state.damage_seen.contains(instant) {
        return Ok(());
    }
    let Ok(found) = leader.timelines.rollbacks_of(&record.table.base_path, instant).await else {
        return Ok(());
    };
    if found.is_empty() {
        return Ok(());
    }
    let rolls_back = |a: &&Attempt| a.call_at.is_some() && a.expected == Expected::InflightOfOurs;
    let live = instance.live_attempt();
    let (new, n_ours): (Vec<String>, usize) = match live.and_then(|a| a.rollbacks_before.as_ref()) {
        Some(before) => {
            let new = found.into_iter().filter(|rollback| !before.contains(rollback)).collect();
            (new, live.iter().filter(|a| rolls_back(a)).count())
        }
        None => {
            let past = leader.store.past_attempts(instance.id).await?;
            (found, past.iter().chain(live).filter(rolls_back).count())
        }
    };
    if new.len() > n_ours {
        let reason = format!(
            "the {} {instant} was rolled back ({}) by somebody else while our job had leave",
            instance.key.action,
            new.join(", ")
        );
        state.damage_seen.push(instant.clone());
        set_damage(leader, record, state, reason);
    }
    Ok(())
}

fn set_damage(leader: &Leader, record: &TableRecord, state: &mut LookState, reason: String) {
    leader.alerts.raise(&Alert {
        kind: AlertKind::DamageSuspected,
        subject: record.table.id.to_string(),
        text: format!("{} may be damaged: {reason}. Every clean of it is held", record.table.base_path),
    });
    state.damage = Some(Damage { reason, since: leader.clock.now() });
}

/// Notes that a table may be damaged; once per instant.
pub(super) async fn note_damage(leader: &Leader, instance: &Instance, reason: String) -> Result<(), Error> {
    let Some(record) = leader.table(instance.key.table).await? else { return Ok(()) };
    let mut state = record.look.clone();
    if let Some(instant) = &instance.key.instant {
        if state.damage_seen.contains(instant) {
            return Ok(());
        }
        state.damage_seen.push(instant.clone());
    }
    set_damage(leader, &record, &mut state, reason);
    leader.commit(record.table.id, state, Vec::new()).await?;
    Ok(())
}
