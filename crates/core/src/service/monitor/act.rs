//! Judges one attempt and does what follows.

use std::time::Duration;

use crate::alert::{Alert, AlertKind};
use crate::clock::Timestamp;
use crate::decision::judge::failure::{EXIT_NO_LEAVE, exit_code_of};
use crate::decision::judge::{Context, EngineSays, PlanState, Situation, Step, TimelineSays, judge, urgency};
use crate::decision::transition::Change;
use crate::engine::{Capabilities, Engine, Force, Found, JobRef, JobState};
use crate::error::Error;
use crate::model::action::Action;
use crate::model::attempt::{Attempt, AttemptState, Holder};
use crate::model::id::InstanceId;
use crate::model::instance::{Instance, InstanceKey, InstanceState};
use crate::model::table::TableRecord;
use crate::service::leader::{Leader, Watch};
use crate::service::monitor::conclude::{self, Evidence};
use crate::service::timeline::has_back_off;

/// Pace at which an engine is asked again to end a job.
const CANCEL_EVERY: Duration = Duration::from_secs(5);
/// Time for which a table that cannot be read keeps the slot of an attempt that is proven over.
const UNREADABLE_MAX: Duration = Duration::from_secs(5 * 60);
/// Pace of the looks for one attempt that gave no verdict.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Tells whether the driver of an attempt spoke within `silence`, on the monotonic clock of this term.
pub(crate) fn heard_recently(leader: &Leader, instance: &Instance, silence: Duration) -> bool {
    let now = leader.clock.monotonic();
    let mark: Option<Timestamp> = instance.attempt.as_deref().and_then(|a| a.heard_at);
    leader.watch(instance.id, |watch| match (mark, watch.heard) {
        (None, _) => now.saturating_sub(watch.since) < silence,
        (Some(at), Some((since, known))) if known == at => now.saturating_sub(since) < silence,
        (Some(at), _) => {
            watch.heard = Some((now, at));
            true
        }
    })
}

/// Returns for how long this term has watched an attempt: from its driver's leave, or from its call before that.
pub(super) fn watched_for(leader: &Leader, instance: &Instance) -> Duration {
    let now = leader.clock.monotonic();
    let has_leave = instance.attempt.as_deref().is_some_and(|a| a.leave_at.is_some());
    leader.watch(instance.id, |watch| {
        let since = if has_leave { *watch.leave_since.get_or_insert(now) } else { watch.since };
        now.saturating_sub(since)
    })
}

/// Judges one attempt under its table's turn.
pub(super) async fn judge_one(
    leader: &Leader,
    engine: Option<&dyn Engine>,
    id: InstanceId,
    found: Found,
) -> Result<(), Error> {
    let Some(instance) = leader.refresh(id).await? else { return Ok(()) };
    let Some(attempt) = instance.live_attempt().cloned() else { return Ok(()) };
    // An engine that is not configured any more is one that cannot be reached.
    let can = engine.map_or_else(|| unknown_engine(&attempt), Engine::capabilities);
    note_engine(leader, &instance, &attempt, &found).await?;
    let Some(instance) = leader.refresh(id).await? else { return Ok(()) };
    let says = EngineSays::from(&found.state);
    let mut timeline = TimelineSays::NotLooked;
    let mut evidence = Evidence { engine_word: word_of(&found.state), sight: None };
    let mut instance = instance;
    if is_look_due(leader, id, |watch| watch.look_at) {
        (timeline, instance) = look(leader, instance, &mut evidence).await?;
    }
    let knows_holder = knows_holder(engine, &attempt, &found).await;
    // Once without a look, and once with it when the first judgement asks for one.
    for _ in 0..2 {
        let context = context_of(leader, &instance, &can, &found.state, knows_holder);
        let Some(situation) = Situation::of(&instance, says, timeline, context) else { return Ok(()) };
        let steps = judge(&situation).steps;
        let wants_look = steps.contains(&Step::LookNow) && timeline == TimelineSays::NotLooked;
        if wants_look && is_look_due(leader, id, |watch| Some(watch.look_not_before.unwrap_or_default())) {
            (timeline, instance) = look(leader, instance, &mut evidence).await?;
            continue;
        }
        return act(leader, engine, &instance, steps, &found, &evidence).await;
    }
    Ok(())
}

fn is_look_due(leader: &Leader, id: InstanceId, at: impl FnOnce(&Watch) -> Option<Duration>) -> bool {
    let now = leader.clock.monotonic();
    leader.watch(id, |watch| at(watch)).is_some_and(|at| at <= now)
}

/// What is assumed of an engine that is not configured any more.
fn unknown_engine(attempt: &Attempt) -> Capabilities {
    Capabilities {
        is_fenced: attempt.launcher.is_fenced(),
        finds_by_tag: false,
        refuses_duplicates: false,
        has_logs: false,
        is_simulation: false,
        settle: Duration::MAX,
        running_max: 0,
        heartbeat_silence: Duration::from_secs(60),
        run_timeout: Duration::MAX,
        submit_timeout: Duration::MAX,
    }
}

fn word_of(state: &JobState) -> String {
    match state {
        JobState::Queued => "queued".to_owned(),
        JobState::Running => "running".to_owned(),
        JobState::Ended { how, .. } => how.clone(),
        JobState::Other { what } => format!("another job has the tag: {what}"),
        JobState::Absent { is_proof: true, what } => format!("absent, proven: {what}"),
        JobState::Absent { what, .. } => format!("absent: {what}"),
        JobState::Unreachable { reason } => format!("unreachable: {reason}"),
    }
}

/// Notes what the engine said, and the times that graces are counted from.
async fn note_engine(
    leader: &Leader,
    instance: &Instance,
    attempt: &Attempt,
    found: &Found,
) -> Result<(), Error> {
    let now = leader.clock.monotonic();
    let has_ended = matches!(found.state, JobState::Ended { .. } | JobState::Absent { is_proof: true, .. });
    leader.watch(instance.id, |watch| {
        if matches!(found.state, JobState::Unreachable { .. }) {
            let since = *watch.unreachable_since.get_or_insert(now);
            watch.unreachable += now.saturating_sub(since);
            watch.unreachable_since = Some(now);
        } else {
            watch.unreachable_since = None;
        }
        match &found.state {
            _ if has_ended && watch.ended.is_none() => {
                watch.ended = Some(now);
                // A look from before the end explains nothing.
                watch.look_not_before = None;
            }
            JobState::Queued | JobState::Running => watch.ended = None,
            _ => {}
        }
        if instance.cancel_asked.is_some() || instance.state == InstanceState::Succeeding {
            watch.end_wanted.get_or_insert(now);
        }
    });
    let mut instance = instance.clone();
    let is_alive = matches!(found.state, JobState::Queued | JobState::Running);
    let holds = matches!(attempt.state, AttemptState::Holding | AttemptState::Suspect);
    if let (true, true, None, Some(handle)) = (is_alive, holds, &attempt.handle, &found.handle) {
        let change = Change::Accepted(handle.clone());
        let Some(after) = leader.step(&instance, change, "found at the engine by its tag").await? else {
            return Ok(());
        };
        instance = after;
    }
    let word = word_of(&found.state);
    let is_news = attempt.engine_word.as_ref() != Some(&word) || (has_ended && attempt.ended_at.is_none());
    if is_news && !matches!(found.state, JobState::Unreachable { .. }) {
        let change = Change::EngineSaid { word, has_ended };
        leader.step(&instance, change, "the engine said something new").await?;
    }
    Ok(())
}

/// Tells whether the process that holds leave is the one of whose end the engine speaks. Another driver of the same attempt
/// may hold it while the engine's own one was sent away.
async fn knows_holder(engine: Option<&dyn Engine>, attempt: &Attempt, found: &Found) -> bool {
    let is_settled = matches!(found.state, JobState::Ended { is_settled: true, .. });
    let (Some(engine), Some(place), true) = (engine, &attempt.holder_place, is_settled) else { return false };
    let job =
        JobRef { tag: attempt.tag.clone(), handle: attempt.handle.clone().or_else(|| found.handle.clone()) };
    engine.was_driver(&job, place).await
}

fn context_of(
    leader: &Leader,
    instance: &Instance,
    can: &Capabilities,
    state: &JobState,
    knows_holder: bool,
) -> Context {
    let now = leader.clock.monotonic();
    let attempt = instance.attempt.as_deref();
    let longest = can.run_timeout.saturating_add(can.heartbeat_silence);
    // Counted while this term watches it: a wall clock that is set must end no healthy job, and the job has the same limit.
    let is_overdue = watched_for(leader, instance) > longest;
    let heard = heard_recently(leader, instance, can.heartbeat_silence);
    let has_spoken = attempt.is_some_and(|a| a.heard_at.is_some());
    leader.watch(instance.id, |watch| {
        if is_overdue {
            watch.end_wanted.get_or_insert(now);
        }
        let reachable_for = now.saturating_sub(watch.since).saturating_sub(watch.unreachable);
        let settled_for = watch.ended.map(|at| now.saturating_sub(at));
        let engine_settled = matches!(state, JobState::Ended { is_settled: true, .. });
        // The engine's driver was sent away because another one holds leave: its end says nothing of that one, which only
        // its own time limit ends. A holder that only a restore assumed sends drivers away too, and none has spoken yet.
        let is_others_end = !knows_holder
            && !is_overdue
            && !attempt.is_some_and(Attempt::has_unknown_holder)
            && attempt.is_some_and(|a| matches!(a.holder, Holder::Run(_)) && a.report.is_none())
            && matches!(state, JobState::Ended { how, .. } if exit_code_of(how) == Some(EXIT_NO_LEAVE));
        Context {
            is_fenced: attempt.is_some_and(|a| a.launcher.is_fenced()),
            refuses_duplicates: can.refuses_duplicates,
            within_submit_grace: reachable_for < can.submit_timeout,
            is_settled: !is_others_end && (engine_settled || settled_for.is_some_and(|t| t >= can.settle)),
            // A holder that is proven dead cannot have spoken since; its last words are no sign of life then.
            heard_recently: has_spoken && heard && !(engine_settled && knows_holder),
            is_lost: watch.unreadable_table.is_some_and(|at| now.saturating_sub(at) >= UNREADABLE_MAX),
            job_reported_end: attempt.is_some_and(|a| a.report.is_some()),
            is_overdue,
            urgency: urgency(watch.end_wanted.map_or(Duration::ZERO, |at| now.saturating_sub(at))),
        }
    })
}

/// Looks at the table, says what it means for this instance, and notes when it is looked at next.
async fn look(
    leader: &Leader,
    instance: Instance,
    evidence: &mut Evidence,
) -> Result<(TimelineSays, Instance), Error> {
    let Some(record) = leader.table(instance.key.table).await? else {
        return Ok((TimelineSays::NotLooked, instance));
    };
    let (says, instance) = look_at(leader, &record, instance, evidence).await?;
    let again = leader.clock.monotonic() + LOOK_EVERY;
    leader.watch(instance.id, |watch| {
        watch.look_not_before = Some(again);
        watch.look_at = match says {
            TimelineSays::Missing | TimelineSays::Gone | TimelineSays::Unreadable => Some(again),
            _ => None,
        };
        watch.unreadable_table = match says {
            TimelineSays::Unreadable => watch.unreadable_table.or(Some(leader.clock.monotonic())),
            _ => None,
        };
        if matches!(says, TimelineSays::Pending(_) | TimelineSays::Completed { .. }) {
            watch.missing = None;
        }
    });
    Ok((says, instance))
}

/// A clean takes its instant when its plan appears.
async fn look_at(
    leader: &Leader,
    record: &TableRecord,
    instance: Instance,
    evidence: &mut Evidence,
) -> Result<(TimelineSays, Instance), Error> {
    let path = &record.table.base_path;
    let action = instance.key.action;
    if record.look.trouble.as_ref().is_some_and(|t| has_back_off(t, leader.clock.now())) {
        // The table has its back-off; the timeline service tries it again.
        return Ok((TimelineSays::Unreadable, instance));
    }
    let sight = match leader.timelines.look(path).await {
        Ok(sight) => sight,
        Err(error) => {
            tracing::warn!(instance = %instance.id, error = error.chain(), "The table cannot be read: no verdict.");
            leader.look_by(record.table.id, leader.clock.now());
            return Ok((TimelineSays::Unreadable, instance));
        }
    };
    evidence.sight = Some(std::sync::Arc::clone(&sight));
    let mut instance = instance;
    let attempt = instance.attempt.clone();
    if instance.key.instant.is_none() {
        let has_called = attempt.as_ref().is_some_and(|a| a.call_at.is_some());
        let plan = sight.pending.iter().find(|p| p.action == action).filter(|_| has_called);
        if let Some(plan) = plan {
            let key = InstanceKey { instant: Some(plan.instant.clone()), ..instance.key.clone() };
            if leader.store.find_instance(&key).await?.is_some() {
                // Known from before and taken over by a person: it keeps its own row.
                return Ok((TimelineSays::Pending(PlanState::Inflight), instance));
            }
            let change = Change::TakeInstant(plan.instant.clone());
            if let Some(after) = leader.step(&instance, change, "its plan appeared on the timeline").await? {
                instance = after;
            }
        } else {
            return Ok((clean_says(&sight, attempt.as_deref()), instance));
        }
    }
    let Some(instant) = instance.key.instant.clone() else { return Ok((TimelineSays::NotLooked, instance)) };
    let files = sight.completed_files(action, &instant);
    let says = if let Some(plan) = sight.pending(action, &instant) {
        TimelineSays::Pending(if plan.is_inflight { PlanState::Inflight } else { PlanState::Requested })
    } else if files > 0 {
        TimelineSays::Completed { files }
    } else {
        match leader.timelines.completed_in_history(path, action, &instant).await {
            Ok(true) => TimelineSays::Completed { files: 1 },
            Ok(false) => missing(leader, &instance),
            Err(_) => TimelineSays::Unreadable,
        }
    };
    Ok((says, instance))
}

/// Absent twice, with the grace between, on the monotonic clock.
fn missing(leader: &Leader, instance: &Instance) -> TimelineSays {
    let now = leader.clock.monotonic();
    let since = leader.watch(instance.id, |watch| *watch.missing.get_or_insert(now));
    if now.saturating_sub(since) >= leader.policies.look.gone_grace {
        leader.watch(instance.id, |watch| watch.end_wanted.get_or_insert(now).to_owned());
        TimelineSays::Gone
    } else {
        TimelineSays::Missing
    }
}

/// Work without an instant: a clean that planned and ran in one job, or found nothing to clean. That it found nothing is the
/// driver's word alone: an exit code of 0 may be that of a script around it.
fn clean_says(sight: &crate::timeline::Sight, attempt: Option<&Attempt>) -> TimelineSays {
    let Some(attempt) = attempt else { return TimelineSays::NotLooked };
    let has_called = attempt.call_at.is_some();
    let is_newer = sight.newest_clean() > attempt.baseline.as_ref();
    let has_returned = attempt.report.as_ref().is_some_and(|r| r.outcome == "returned");
    if has_called && (is_newer || has_returned) {
        TimelineSays::Completed { files: 1 }
    } else {
        debug_assert!(attempt.baseline.is_none() || sight.newest_clean().is_some());
        TimelineSays::Pending(PlanState::Requested)
    }
}

/// Does the steps of one judgement in their order; a refused one stops the rest.
async fn act(
    leader: &Leader,
    engine: Option<&dyn Engine>,
    instance: &Instance,
    steps: Vec<Step>,
    found: &Found,
    evidence: &Evidence,
) -> Result<(), Error> {
    let closing = steps.iter().copied().find(|s| s.frees_slot());
    let mut instance = instance.clone();
    for step in steps {
        let Some(attempt) = instance.live_attempt() else { return Ok(()) };
        let (change, reason) = match step {
            Step::Accept => {
                let handle = found.handle.clone().or_else(|| attempt.handle.clone()).unwrap_or_default();
                (Change::Accepted(handle), "found at the engine by its tag")
            }
            Step::BecomeUnknown => (Change::Unknown, "the engine does not know it"),
            Step::BecomeSuspect => {
                (Change::Suspect, "its driver is silent and the engine does not vouch for it")
            }
            Step::BecomeHolding => (Change::Heard(None), "its driver spoke again"),
            Step::Succeeding => {
                conclude::note_rollbacks(leader, &instance).await?;
                // A clean without an instant may have found nothing: only its end tells.
                let is_plain = instance.key.action == Action::Clean && instance.key.instant.is_none();
                let text = if is_plain {
                    "the clean is over; the job has not ended yet"
                } else {
                    "completed on the timeline; the job has not ended yet"
                };
                (Change::Succeeding, text)
            }
            Step::End(end) => {
                return conclude::conclude(leader, &instance, end, closing, evidence).await;
            }
            Step::Park(reason) => {
                return conclude::park(leader, &instance, reason, closing, &evidence.engine_word).await;
            }
            Step::StopByHeartbeat if attempt.n_kills == 0 && instance.cancel_asked.is_none() => {
                (Change::KillSent, "the driver is told to stop")
            }
            Step::CancelJob(_) | Step::CancelOrphan => {
                let force = if let Step::CancelJob(force) = step { force } else { Force::Kill };
                if let Some(after) = cancel(leader, engine, &instance, attempt, force).await? {
                    instance = after;
                }
                continue;
            }
            Step::Alarm(kind) => {
                alarm(leader, &instance, kind, &evidence.engine_word).await?;
                continue;
            }
            Step::ShowUnreadable => {
                leader.look_by(instance.key.table, leader.clock.now());
                continue;
            }
            Step::AwaitSettle | Step::LookNow | Step::Stay | Step::StopByHeartbeat | Step::Event(_) => {
                continue;
            }
            Step::Revoke | Step::Over { .. } => continue,
            // Every launcher asks for leave, so a lost submission is revoked and tried as a new attempt.
            Step::RepeatSubmit => continue,
        };
        let Some(after) = leader.step(&instance, change, reason).await? else { return Ok(()) };
        if step == Step::BecomeUnknown {
            // The grace of a submission counts from here, not from its call.
            let now = leader.clock.monotonic();
            leader.watch(after.id, |watch| (watch.since, watch.unreachable) = (now, Duration::ZERO));
        }
        // The steps after a change of state belong to the next judgement, of the new state.
        if after.attempt_state() != instance.attempt_state() || after.state != instance.state {
            leader.wakes.monitor.wake();
            return Ok(());
        }
        instance = after;
    }
    Ok(())
}

async fn cancel(
    leader: &Leader,
    engine: Option<&dyn Engine>,
    instance: &Instance,
    attempt: &Attempt,
    force: Force,
) -> Result<Option<Instance>, Error> {
    let Some(engine) = engine else { return Ok(None) };
    let now = leader.clock.monotonic();
    let is_due = leader.watch(instance.id, |watch| {
        let is_due = watch.cancel_sent.is_none_or(|at| now.saturating_sub(at) >= CANCEL_EVERY);
        if is_due {
            watch.cancel_sent = Some(now);
        }
        is_due
    });
    if !is_due || attempt.state == AttemptState::Intended {
        return Ok(None);
    }
    let job = JobRef { tag: attempt.tag.clone(), handle: attempt.handle.clone() };
    if let Err(error) = engine.cancel(&job, force).await {
        tracing::warn!(instance = %instance.id, error = error.chain(), "The engine did not take the cancel; it is repeated.");
    }
    let reason = match force {
        Force::Gentle => "the engine is asked to end the job",
        Force::Kill => "the engine is told to kill the job",
    };
    leader.step(instance, Change::KillSent, reason).await
}

async fn alarm(leader: &Leader, instance: &Instance, kind: AlertKind, word: &str) -> Result<(), Error> {
    let action = instance.key.action;
    if kind == AlertKind::DamageSuspected {
        // An alarm of the table, where a person acknowledges it. What a clean left double the next look finds.
        let instant = instance.key.instant.as_ref().map_or("next", |i| i.as_str());
        let reason =
            format!("the {action} {instant} has more than one completed file, or is not completed any more");
        return match action {
            Action::Clean => Ok(()),
            _ => conclude::note_damage(leader, instance, reason).await,
        };
    }
    let text = format!("{action} {}: {word}", instance.id);
    leader.alerts.raise(&Alert { kind, subject: instance.id.to_string(), text });
    Ok(())
}
