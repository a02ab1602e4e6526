//! Starts attempts: chooses, checks the timeline, stores the intent, calls the engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use secrecy::{ExposeSecret, SecretString};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alert::{Alert, AlertKind};
use crate::decision::board::{Choice, Chosen, EngineLimit, Limits, no_engine_for};
use crate::decision::check::{Verdict, open_unlocked_writer, taken_over_clean};
use crate::decision::job_options::job_options;
use crate::decision::retry::backoff;
use crate::decision::transition::{Change, Closing, Conclusion, Ending, Next};
use crate::engine::{Engine, Job, JobNeed, JobState, SubmitOutcome};
use crate::error::{Error, ErrorKind};
use crate::fail_point::{self, FailPoint};
use crate::model::action::Action;
use crate::model::attempt::{
    Attempt, AttemptEnd, AttemptState, Expected, Holder, Launcher, VersionsSeen, token_hash,
};
use crate::model::id::{EngineName, InstanceId, Tag};
use crate::model::instance::{Instance, InstanceState, ParkReason, WaitReason};
use crate::model::table::{TableRecord, UNSERVED_MAX, UnlockedWriter};
use crate::preflight::preflight;
use crate::service::leader::Leader;
use crate::service::timeline::{TROUBLE_MAX, has_back_off, next_foreign_look};
use crate::service::turn::Turn;
use crate::service::{Held, LeaderService, Loop};
use crate::timeline::Sight;

/// Submissions to one engine at once; each may hold a child process of the engine. One that stalls holds up no other engine.
pub const SUBMITS_AT_ONCE_MAX: u32 = 16;
/// Choices of one pass.
const CHOICES_MAX: usize = 64;
/// Pause of an instance that could not be started for a reason that could not be stored either: the store is away.
const FAILED_PAUSE: Duration = Duration::from_secs(2);
/// Times that the call is stored again when somebody writes between intent and call.
const CALL_RETRIES_MAX: usize = 16;
/// Longest sleep without a pass: queues change on any node, and reach the leader within a second.
const PASS_EVERY_MAX: Duration = Duration::from_secs(1);
/// Wait before an instance whose table cannot be read is tried again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(30);

/// Starts attempts.
#[derive(Debug, Default)]
pub struct DispatchService;

#[async_trait]
impl LeaderService for DispatchService {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error> {
        let held = Arc::clone(leader);
        Ok(Box::new(Loop::start(self.name(), leader, |stop| run(held, stop))))
    }
}

async fn run(leader: Arc<Leader>, stop: CancellationToken) {
    let mut submits: JoinSet<()> = JoinSet::new();
    let mut engine_of: HashMap<tokio::task::Id, EngineName> = HashMap::new();
    loop {
        if let Err(error) = leader.absorb().await {
            tracing::warn!(%error, "Failed to read changed instances.");
        }
        if let Err(error) = leader.reload_queues().await {
            tracing::warn!(%error, "Failed to read the queues.");
        }
        release_far(&leader).await;
        let is_open = leader.gate.is_open();
        let chosen = if is_open { choose(&leader, &engine_of) } else { Chosen::default() };
        for id in chosen.no_engine {
            park_without_engine(&leader, id).await;
        }
        for choice in chosen.start {
            let found = leader.board(|board| board.get(choice.id).cloned());
            let turn = found.as_ref().and_then(|instance| leader.turns.try_take(instance.key.table));
            let (Some(instance), Some(turn)) = (found, turn) else {
                leader.board(|board| board.release(choice.id));
                continue;
            };
            let held = Arc::clone(&leader);
            let engine = choice.engine.clone();
            let task = submits.spawn(async move { start(&held, instance, choice, turn).await });
            engine_of.insert(task.id(), engine);
        }
        let until_due = leader.board(|board| board.next_due(leader.clock.now()));
        let sleep = until_due
            .map_or(PASS_EVERY_MAX, |at| (at - leader.clock.now()).to_std().unwrap_or_default())
            .clamp(Duration::from_millis(20), PASS_EVERY_MAX);
        tokio::select! {
            () = stop.cancelled() => break,
            () = leader.wakes.dispatch.woken() => {}
            Some(ended) = submits.join_next_with_id(), if !submits.is_empty() => {
                let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
                engine_of.remove(&id);
            }
            () = tokio::time::sleep(sleep) => {}
        }
    }
    submits.shutdown().await;
}

/// Releases instances whose time is further away than any wait can be: the clock that stored it was set back since.
async fn release_far(leader: &Leader) {
    let longest = leader.policies.retry.backoff_max.max(TROUBLE_MAX).max(UNREADABLE_AGAIN);
    let longest = TimeDelta::from_std(longest).unwrap_or(TimeDelta::MAX);
    let Some(limit) = leader.clock.now().checked_add_signed(longest) else { return };
    for id in leader.board(|board| board.due_after(limit, CHOICES_MAX)) {
        let Some(instance) = leader.board(|board| board.get(id).cloned()) else { continue };
        let InstanceState::Pending { reason, .. } = instance.state else { continue };
        let released = leader.step(&instance, Change::Delay(reason, None), "the clock was set back").await;
        report(leader, &instance, released.map(|_| ()));
    }
}

/// Chooses what starts now.
fn choose(leader: &Leader, engine_of: &HashMap<tokio::task::Id, EngineName>) -> Chosen {
    let mut under_way: BTreeMap<&EngineName, u32> = BTreeMap::new();
    for engine in engine_of.values() {
        *under_way.entry(engine).or_default() += 1;
    }
    leader.board_with_limits(|board, limits| {
        let limit = |name: &EngineName, limit: &EngineLimit| {
            let room = SUBMITS_AT_ONCE_MAX.saturating_sub(under_way.get(name).copied().unwrap_or(0));
            let room = if leader.gate.is_unasked(name) { 0 } else { room };
            let running_max = limit.running_max.min(board.running_of_engine(name).saturating_add(room));
            EngineLimit { running_max, ..*limit }
        };
        let engines = limits.engines.iter().map(|(name, l)| (name.clone(), limit(name, l))).collect();
        let limits = Limits { queues: limits.queues, engines: &engines };
        let chosen = board.choose(&limits, leader.clock.now(), CHOICES_MAX);
        // Reserved in the same breath, so that the next choice counts them before their intent is stored.
        chosen.start.iter().for_each(|choice| board.reserve(choice.id, &choice.engine));
        chosen
    })
}

async fn park_without_engine(leader: &Leader, id: InstanceId) {
    let Some(instance) = leader.board(|board| board.get(id).cloned()) else { return };
    let detail = no_engine_for(&instance);
    let parked = leader.step(&instance, Change::Park(ParkReason::NoEngine, detail), "no engine for it").await;
    report(leader, &instance, parked.map(|_| ()));
}

async fn start(leader: &Arc<Leader>, instance: Instance, choice: Choice, turn: Turn) {
    let done = check_and_submit(leader, &instance, &choice).await;
    let is_put_off = !is_trouble(&done) || put_off(leader, &instance).await;
    drop(turn);
    report(leader, &instance, done);
    if !is_put_off {
        // Its place is kept that long: a store that is away must not be asked in a loop.
        tokio::time::sleep(FAILED_PAUSE).await;
    }
    leader.board(|board| board.release(choice.id));
    leader.wakes.dispatch.wake();
}

fn is_trouble(done: &Result<(), Error>) -> bool {
    done.as_ref().is_err_and(|e| !matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Fenced))
}

/// Takes an instance that cannot be started now from the top of the choice, or one bad table would be chosen for ever.
/// False when that could not be stored.
async fn put_off(leader: &Leader, instance: &Instance) -> bool {
    let Some(now) = leader.board(|board| board.get(instance.id).cloned()) else { return true };
    if !matches!(now.state, InstanceState::Pending { .. }) {
        return true;
    }
    let again = leader.clock.now() + TimeDelta::from_std(UNREADABLE_AGAIN).unwrap_or(TimeDelta::MAX);
    let change = Change::Delay(WaitReason::Unreadable, Some(again));
    let done = leader.step(&now, change, "it could not be started").await.map(|_| ());
    let is_stored = !is_trouble(&done);
    report(leader, instance, done);
    is_stored
}

fn report(leader: &Leader, instance: &Instance, done: Result<(), Error>) {
    match done {
        Ok(()) => {}
        Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Fenced) => {
            tracing::debug!(instance = %instance.id, error = %e, "Somebody else was faster.");
        }
        Err(error) => {
            tracing::warn!(instance = %instance.id, term = %leader.term, error = error.chain(), "Failed to start an instance.");
        }
    }
}

async fn check_and_submit(leader: &Arc<Leader>, chosen: &Instance, choice: &Choice) -> Result<(), Error> {
    if leader.completes_table(chosen.key.table).await? {
        // Others of its table were not known yet: the choice is made again.
        return Ok(());
    }
    // The store is the truth: a Manager may have written since the choice.
    let Some(instance) = leader.refresh(chosen.id).await? else { return Ok(()) };
    if !matches!(instance.state, InstanceState::Pending { .. }) || instance.version != chosen.version {
        return Ok(());
    }
    let Some(record) = leader.table(instance.key.table).await? else { return Ok(()) };
    let effective = leader.policies.defaults.effective(&record.table.settings);
    let now = leader.clock.now();
    if let Some(trouble) = record.look.trouble.as_ref().filter(|t| has_back_off(t, now)) {
        // The table has its back-off; the look that can read it again lets this one go on.
        let change = Change::Delay(WaitReason::Unreadable, Some(trouble.not_before));
        leader.step(&instance, change, &trouble.error).await?;
        return Ok(());
    }
    let found = match preflight(&*leader.timelines, &record, &instance, &effective, leader.moment()).await {
        Ok(found) => found,
        Err(error) => return delay_unreadable(leader, &instance, &error).await,
    };
    let expected = match found.verdict {
        Verdict::Go(expected) => expected,
        Verdict::Completed => {
            let change = Change::End(Ending::Succeeded, String::new());
            leader.step(&instance, change, "completed on the timeline before it was submitted").await?;
            note_completed_by_other(leader, &record, &instance).await?;
            return Ok(());
        }
        Verdict::Missing => {
            // The look decides whether it is gone; until then it is not chosen again.
            let again = now + TimeDelta::seconds(5);
            leader
                .step(
                    &instance,
                    Change::Delay(WaitReason::Ready, Some(again)),
                    "its plan was not on the timeline",
                )
                .await?;
            leader.look_by(instance.key.table, now);
            return Ok(());
        }
        Verdict::NotHandedOver => {
            let reason = "the action is not handed over any more";
            leader.step(&instance, Change::End(Ending::Obsolete, reason.to_owned()), reason).await?;
            return Ok(());
        }
        Verdict::Park(reason, detail) => {
            park(leader, &record, &instance, reason, detail, &found.unlocked_writes).await?;
            return Ok(());
        }
        Verdict::WaitForeign(sign) => {
            leader
                .step(&instance, Change::WaitForeign { sign }, "an inflight that no attempt of ours explains")
                .await?;
            leader.look_by(instance.key.table, next_foreign_look(&effective, sign, now));
            return Ok(());
        }
        Verdict::Delay(reason, until) => {
            leader.step(&instance, Change::Delay(reason, Some(until)), "not now").await?;
            return Ok(());
        }
    };
    if let Err(bad) = job_options(&effective, &found.sight.facts, instance.key.action) {
        let detail = bad.to_string();
        leader.step(&instance, Change::Park(ParkReason::BadOption, detail.clone()), &detail).await?;
        return Ok(());
    }
    submit(leader, &record, &instance, choice, &found.sight, expected).await
}

/// Holds an instance. A writer that betrayed itself as not locked holds the locked jobs of its table beyond this instance,
/// also while no write of it runs.
pub(crate) async fn park(
    leader: &Leader,
    record: &TableRecord,
    instance: &Instance,
    reason: ParkReason,
    detail: String,
    unlocked_writes: &[String],
) -> Result<(), Error> {
    let change = Change::Park(reason, detail.clone());
    let is_known = open_unlocked_writer(&record.look, record.table.acknowledged_at).is_some();
    if reason != ParkReason::UnlockedWriter || is_known {
        leader.step(instance, change, &detail).await?;
        return Ok(());
    }
    let Some(write) = leader.write_of(instance, change, &detail) else { return Ok(()) };
    let mut state = record.look.clone();
    let writes = unlocked_writes.iter().take(UNSERVED_MAX).cloned().collect();
    state.unlocked_writer = Some(UnlockedWriter { reason: detail, since: leader.clock.now(), writes });
    if leader.commit(record.table.id, state, vec![write]).await?.is_none() {
        return Err(Error::new(ErrorKind::Conflict, "hold an instance").with("instance", instance.id));
    }
    Ok(())
}

async fn delay_unreadable(leader: &Leader, instance: &Instance, error: &Error) -> Result<(), Error> {
    let now = leader.clock.now();
    let again = now + TimeDelta::from_std(UNREADABLE_AGAIN).unwrap_or(TimeDelta::MAX);
    leader.step(instance, Change::Delay(WaitReason::Unreadable, Some(again)), &error.to_string()).await?;
    leader.look_by(instance.key.table, now);
    Ok(())
}

/// A plan that was completed by somebody else while we were about to run it, more than once, is an alarm.
async fn note_completed_by_other(
    leader: &Leader,
    record: &TableRecord,
    instance: &Instance,
) -> Result<(), Error> {
    // Or by a job of ours that a restored store does not know.
    let is_excused = leader.gate.excused_until().is_some_and(|until| instance.created_at <= until);
    if instance.has_called || is_excused {
        return Ok(());
    }
    let mut state = record.look.clone();
    state.n_completed_by_others = state.n_completed_by_others.saturating_add(1);
    leader.commit(record.table.id, state, Vec::new()).await?;
    leader.look_by(record.table.id, leader.clock.now());
    Ok(())
}

async fn submit(
    leader: &Arc<Leader>,
    record: &TableRecord,
    instance: &Instance,
    choice: &Choice,
    sight: &Sight,
    expected: Expected,
) -> Result<(), Error> {
    let Some(engine) = leader.engines.get(&choice.engine).cloned() else { return Ok(()) };
    let need = JobNeed::of(instance.key.action, &sight.facts);
    let subject = choice.engine.to_string();
    if let Err(lack) = engine.ready(need).await {
        let alarm = Alert { kind: AlertKind::EngineTrouble, subject, text: lack.detail.clone() };
        leader.alerts.raise(&alarm);
        leader.step(instance, Change::Park(lack.reason, lack.detail.clone()), &lack.detail).await?;
        return Ok(());
    }
    leader.alerts.clear(AlertKind::EngineTrouble, &subject);
    if instance.n_attempts >= Tag::ATTEMPT_MAX {
        let reason = "it used up all attempt numbers".to_owned();
        leader.step(instance, Change::End(Ending::Cancelled, reason.clone()), &reason).await?;
        return Ok(());
    }
    let versions = match leader.timelines.versions(&record.table.base_path).await {
        Ok(versions) => versions,
        Err(error) => return delay_unreadable(leader, instance, &error).await,
    };
    let rollbacks = match rollbacks_before(leader, record, instance).await {
        Ok(rollbacks) => rollbacks,
        Err(error) => return delay_unreadable(leader, instance, &error).await,
    };
    let token = SecretString::from(hex::encode(rand::random::<[u8; 32]>()));
    let mut attempt =
        attempt_of(leader, instance, &choice.engine, &*engine, expected, versions, sight, &token);
    attempt.rollbacks_before = Some(rollbacks);
    let tag = attempt.tag.clone();
    if !leader.gate.is_open() {
        return Ok(());
    }
    fail_point::pass(FailPoint::Checked);
    let Some(intended) = leader.step(instance, Change::Intend(Box::new(attempt)), "chosen").await? else {
        return Ok(());
    };
    fail_point::pass(FailPoint::IntentStored);
    let Some(called) = call(leader, intended).await? else { return Ok(()) };
    fail_point::pass(FailPoint::CallStored);
    pass_over(leader, choice).await;
    leader.forget_watch(called.id);
    leader.watch(called.id, |_| ());
    let can = engine.capabilities();
    let job = Job {
        tag,
        action: instance.key.action,
        base_path: record.spelling().to_owned(),
        table_version: sight.facts.table_version,
        url: leader.policies.job_url.clone(),
        token,
        resources: std::collections::BTreeMap::new(),
        run_timeout: can.run_timeout,
    };
    let outcome = match tokio::time::timeout(can.submit_timeout, engine.submit(&job)).await {
        Ok(outcome) => outcome,
        Err(_) => SubmitOutcome::Unknown { reason: format!("no answer within {:?}", can.submit_timeout) },
    };
    fail_point::pass(FailPoint::EngineAnswered);
    settle_outcome(leader, &*engine, called.id, &job.tag, outcome).await
}

/// The rollbacks that named the instant before this attempt. Rollbacks of a clean are not looked at.
async fn rollbacks_before(
    leader: &Leader,
    record: &TableRecord,
    instance: &Instance,
) -> Result<Vec<String>, Error> {
    match &instance.key.instant {
        Some(instant) if instance.key.action != Action::Clean => {
            leader.timelines.rollbacks_of(&record.table.base_path, instant).await
        }
        _ => Ok(Vec::new()),
    }
}

/// Stores that the engine is called. `None`: somebody wanted its end in between, and got it.
async fn call(leader: &Leader, intended: Instance) -> Result<Option<Instance>, Error> {
    let mut intended = intended;
    for _ in 0..CALL_RETRIES_MAX {
        if intended.cancel_asked.is_some() {
            revoke_uncalled(leader, &intended).await?;
            return Ok(None);
        }
        match leader.step(&intended, Change::Called, "the engine is called").await {
            Ok(called) => return Ok(called),
            Err(e) if e.kind() == ErrorKind::Conflict => {}
            Err(e) => return Err(e),
        }
        match leader.refresh(intended.id).await? {
            Some(now) if now.attempt_state() == Some(AttemptState::Intended) => intended = now,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Counts for the others of the table that this one went first. Nothing hangs on a count that is lost.
async fn pass_over(leader: &Leader, choice: &Choice) {
    for id in &choice.passed_over {
        let Some(other) = leader.board(|board| board.get(*id).cloned()) else { continue };
        if let Err(error) = leader.step(&other, Change::PassedOver, "another action went first").await {
            tracing::debug!(instance = %id, %error, "Failed to count that another action went first.");
        }
    }
}

/// A cancel came between the two writes: the engine was never called, so no driver exists.
async fn revoke_uncalled(leader: &Leader, now: &Instance) -> Result<(), Error> {
    let conclusion = Conclusion {
        closing: Closing::Revoked,
        end: AttemptEnd::Cancelled,
        next: Next::Cancelled,
        leaves_work: None,
        reason: "cancelled before the engine was called".to_owned(),
    };
    leader.step(now, Change::Conclude(conclusion), "cancelled before the engine was called").await?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "one place makes an attempt, of all that is known then")]
fn attempt_of(
    leader: &Leader,
    instance: &Instance,
    engine_name: &EngineName,
    engine: &dyn Engine,
    expected: Expected,
    versions: VersionsSeen,
    sight: &Sight,
    token: &SecretString,
) -> Attempt {
    let number = instance.n_attempts + 1;
    let is_simulation = engine.capabilities().is_simulation;
    Attempt {
        number,
        tag: Tag::of(&leader.incarnation, instance.id, number),
        engine: engine_name.clone(),
        launcher: if is_simulation { Launcher::Simulated } else { Launcher::Procedure },
        state: AttemptState::Intended,
        holder: Holder::None,
        holder_place: None,
        term: leader.term,
        token_hash: token_hash(token.expose_secret()),
        handle: None,
        expected,
        takes: taken_over_clean(instance, expected, sight).cloned(),
        versions: Some(versions),
        baseline: if instance.key.action == Action::Clean { sight.newest_clean().cloned() } else { None },
        rollbacks_before: None,
        intended_at: leader.clock.now(),
        called_at: None,
        accepted_at: None,
        leave_at: None,
        call_at: None,
        heard_at: None,
        ended_at: None,
        over_at: None,
        proof: None,
        engine_word: None,
        progress: None,
        report: None,
        end: None,
        n_kills: 0,
        is_restored: false,
    }
}

/// Times that the answer of an engine is stored again when a driver writes at the same moment.
const ANSWER_RETRIES_MAX: usize = 16;

async fn settle_outcome(
    leader: &Leader,
    engine: &dyn Engine,
    id: InstanceId,
    tag: &Tag,
    outcome: SubmitOutcome,
) -> Result<(), Error> {
    // A refusal may leave something running: the tag is looked up before it is believed.
    let outcome = match outcome {
        SubmitOutcome::Refused { reason } => match engine.find(tag, None).await {
            found if matches!(found.state, JobState::Queued | JobState::Running | JobState::Ended { .. }) => {
                SubmitOutcome::Accepted(found.handle.unwrap_or_default())
            }
            found if matches!(found.state, JobState::Absent { is_proof: true, .. }) => {
                SubmitOutcome::Refused { reason }
            }
            _ => SubmitOutcome::Unknown { reason },
        },
        other => other,
    };
    for _ in 0..ANSWER_RETRIES_MAX {
        let Some(instance) = leader.refresh(id).await? else { return Ok(()) };
        if instance.live_attempt().is_none_or(|a| a.tag != *tag) {
            return Ok(());
        }
        let (change, reason) = match &outcome {
            SubmitOutcome::Accepted(handle) => {
                (Change::Accepted(handle.clone()), "the engine has it".to_owned())
            }
            SubmitOutcome::Unknown { reason } => {
                if instance.attempt_state() != Some(AttemptState::Called) {
                    return Ok(());
                }
                (Change::Unknown, format!("the answer of the engine was lost: {reason}"))
            }
            SubmitOutcome::Refused { reason } => {
                let wait = backoff(&leader.policies.retry, instance.n_tries(), rand::random());
                let again = leader.clock.now() + TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX);
                let (end, next) = if instance.cancel_asked.is_some() {
                    (AttemptEnd::Cancelled, Next::Cancelled)
                } else {
                    (AttemptEnd::NotCounted, Next::Pending(WaitReason::EngineRefused, Some(again)))
                };
                let reason = format!("the engine refused it: {reason}");
                let conclusion = Conclusion {
                    closing: Closing::Revoked,
                    end,
                    next,
                    leaves_work: None,
                    reason: reason.clone(),
                };
                (Change::Conclude(conclusion), reason)
            }
        };
        match leader.step(&instance, change, &reason).await {
            Err(e) if e.kind() == ErrorKind::Conflict => {}
            Err(e) => return Err(e),
            Ok(_) => {
                fail_point::pass(FailPoint::AnswerStored);
                leader.wakes.monitor.wake();
                return Ok(());
            }
        }
    }
    Ok(())
}
