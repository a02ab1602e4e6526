//! Watches attempts in batches, judges them by the timeline, and concludes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alert::{Alert, AlertKind};
use crate::engine::{Engine, Found, JobRef, JobState};
use crate::error::{Error, ErrorKind};
use crate::model::attempt::AttemptState;
use crate::model::id::{EngineName, Tag};
use crate::model::instance::{Instance, InstanceState};
use crate::service::leader::Leader;
use crate::service::{Held, LeaderService, Loop};

pub mod act;
pub mod conclude;
mod orphans;

/// Pace of polling while attempts are live.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Pace of looking for live attempts when there were none.
const IDLE_EVERY: Duration = Duration::from_secs(5);
/// Jobs of one poll call.
const POLL_BATCH_MAX: usize = 1_000;
/// Longest poll call.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a job may run before it asks for leave, until people are told: the start of a driver takes seconds.
const HUNG_AFTER: Duration = Duration::from_secs(30 * 60);
/// Look-ups by tag at once.
const FIND_AT_ONCE_MAX: usize = 32;
/// Judgements at once.
const JUDGE_AT_ONCE_MAX: usize = 32;
/// Shortest pause between two passes, whatever wakes.
const PASS_PAUSE: Duration = Duration::from_millis(50);

/// Watches attempts.
#[derive(Debug, Default)]
pub struct MonitorService;

#[async_trait]
impl LeaderService for MonitorService {
    fn name(&self) -> &'static str {
        "monitor"
    }

    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error> {
        let held = Arc::clone(leader);
        Ok(Box::new(Loop::start(self.name(), leader, |stop| run(held, stop))))
    }
}

async fn run(leader: Arc<Leader>, stop: CancellationToken) {
    let mut judging: JoinSet<()> = JoinSet::new();
    let mut reached: BTreeMap<EngineName, bool> = BTreeMap::new();
    loop {
        // An engine may take its time to answer; the end of the term does not wait for it.
        let passed = tokio::select! {
            () = stop.cancelled() => break,
            passed = pass(&leader, &mut judging, &mut reached) => passed,
        };
        let n_live = match passed {
            Ok(n_live) => n_live,
            Err(error) => {
                tracing::warn!(%error, "A pass of the monitor failed.");
                1
            }
        };
        let sleep = if n_live == 0 { IDLE_EVERY } else { POLL_EVERY };
        tokio::select! {
            () = stop.cancelled() => break,
            () = leader.wakes.monitor.woken() => {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(PASS_PAUSE) => {}
                }
            }
            () = tokio::time::sleep(sleep) => {}
        }
        while judging.try_join_next().is_some() {}
    }
    judging.shutdown().await;
}

/// One pass over all live attempts; returns how many there are.
async fn pass(
    leader: &Arc<Leader>,
    judging: &mut JoinSet<()>,
    reached: &mut BTreeMap<EngineName, bool>,
) -> Result<usize, Error> {
    if let Err(error) = leader.absorb().await {
        // What could not be read is read by the next pass; the others are watched all the same.
        tracing::warn!(%error, "Failed to read changed instances.");
    }
    let live: Vec<Instance> = leader.board(|board| board.with_live_attempt().cloned().collect());
    leader.tidy_watches(&live);
    let n_live = live.len();
    let mut by_engine: BTreeMap<EngineName, Vec<Instance>> = BTreeMap::new();
    for instance in live {
        if let Some(attempt) = instance.live_attempt() {
            by_engine.entry(attempt.engine.clone()).or_default().push(instance);
        }
    }
    for (name, instances) in by_engine {
        let engine = leader.engines.get(&name).cloned();
        for chunk in instances.chunks(POLL_BATCH_MAX) {
            let says = poll(leader, engine.as_deref(), chunk).await;
            note_reached(leader, reached, &name, &says);
            for (instance, found) in chunk.iter().zip(says) {
                hung_alarm(leader, instance, &found);
                if is_quiet(leader, instance, &found) {
                    continue;
                }
                while judging.len() >= JUDGE_AT_ONCE_MAX {
                    judging.join_next().await;
                }
                let Some(turn) = leader.turns.try_take(instance.key.table) else { continue };
                let held = Arc::clone(leader);
                let id = instance.id;
                let engine = engine.clone();
                judging.spawn(async move {
                    let done = act::judge_one(&held, engine.as_deref(), id, found).await;
                    drop(turn);
                    match done {
                        Ok(()) => {}
                        Err(e) if matches!(e.kind(), ErrorKind::Conflict | ErrorKind::Fenced) => {
                            held.wakes.monitor.wake();
                        }
                        Err(error) => {
                            tracing::warn!(instance = %id, error = error.chain(), "Failed to judge an attempt.");
                        }
                    }
                });
            }
        }
    }
    orphans::watch(leader).await;
    Ok(n_live)
}

/// Tells people when an engine does not answer, and when it does again.
fn note_reached(
    leader: &Leader,
    reached: &mut BTreeMap<EngineName, bool>,
    name: &EngineName,
    says: &[Found],
) {
    let silent = says.iter().find_map(|found| match &found.state {
        JobState::Unreachable { reason } => Some(reason),
        _ => None,
    });
    let answers = says.iter().any(|found| !matches!(found.state, JobState::Unreachable { .. }));
    if reached.insert(name.clone(), answers) == Some(answers) {
        return;
    }
    match silent.filter(|_| !answers) {
        Some(reason) => leader.alerts.raise(&Alert {
            kind: AlertKind::EngineTrouble,
            subject: name.to_string(),
            text: format!("the engine {name} has live attempts and does not answer: {reason}"),
        }),
        None => leader.alerts.clear(AlertKind::EngineTrouble, name.as_str()),
    }
}

/// Asks an engine about many attempts: one call for those it has named, a look-up by tag for the others.
async fn poll(leader: &Leader, engine: Option<&dyn Engine>, chunk: &[Instance]) -> Vec<Found> {
    let Some(engine) = engine else {
        return vec![unreachable("the engine is not configured any more".to_owned()); chunk.len()];
    };
    let named: Vec<JobRef> = chunk.iter().filter_map(named_ref).collect();
    let started = leader.clock.monotonic();
    let polled = match tokio::time::timeout(POLL_TIMEOUT, engine.poll(&named)).await {
        Ok(states) if states.len() == named.len() => states,
        Ok(_) => vec![
            JobState::Unreachable { reason: "the engine answered for other jobs".to_owned() };
            named.len()
        ],
        Err(_) => {
            vec![JobState::Unreachable { reason: format!("no answer within {POLL_TIMEOUT:?}") }; named.len()]
        }
    };
    metrics::histogram!("tms_poll_seconds")
        .record(leader.clock.monotonic().saturating_sub(started).as_secs_f64());
    let mut polled = polled.into_iter();
    let mut answers: Vec<BoxFuture<'_, Found>> = Vec::with_capacity(chunk.len());
    for instance in chunk {
        answers.push(match (named_ref(instance), &instance.attempt) {
            (Some(job), _) => {
                let state = polled.next().unwrap_or(JobState::Unreachable { reason: "no answer".to_owned() });
                ready(Found { state, handle: job.handle }).boxed()
            }
            (None, Some(attempt)) => find(engine, &attempt.tag, attempt.handle.as_deref()).boxed(),
            (None, None) => ready(unreachable("no attempt".to_owned())).boxed(),
        });
    }
    // One that hangs does not hold up the others.
    futures::stream::iter(answers).buffered(FIND_AT_ONCE_MAX).collect().await
}

/// Looks one job up by its tag.
async fn find(engine: &dyn Engine, tag: &Tag, handle: Option<&str>) -> Found {
    match tokio::time::timeout(POLL_TIMEOUT, engine.find(tag, handle)).await {
        Ok(found) => found,
        Err(_) => unreachable(format!("no answer within {POLL_TIMEOUT:?}")),
    }
}

fn unreachable(reason: String) -> Found {
    Found { state: JobState::Unreachable { reason }, handle: None }
}

fn named_ref(instance: &Instance) -> Option<JobRef> {
    let attempt = instance.live_attempt()?;
    let is_unclear =
        matches!(attempt.state, AttemptState::Intended | AttemptState::Called | AttemptState::Unknown);
    let handle = attempt.handle.clone().filter(|_| !is_unclear)?;
    Some(JobRef { tag: attempt.tag.clone(), handle: Some(handle) })
}

/// Tells people of a job that runs and never asks for leave: it does nothing and keeps its table's slot. The alarm is over
/// when a driver has leave or the attempt is over, whoever notices.
fn hung_alarm(leader: &Leader, instance: &Instance, found: &Found) {
    let Some(attempt) = instance.live_attempt() else { return };
    let now = leader.clock.monotonic();
    let is_accepted = attempt.state == AttemptState::Accepted;
    let since = leader.watch(instance.id, |watch| {
        match found.state {
            JobState::Running if is_accepted => watch.running_since = watch.running_since.or(Some(now)),
            JobState::Queued => watch.running_since = None,
            _ if !is_accepted => watch.running_since = None,
            _ => {}
        }
        watch.running_since
    });
    if since.is_some_and(|at| now.saturating_sub(at) >= HUNG_AFTER) {
        leader.alerts.raise(&Alert {
            kind: AlertKind::EngineTrouble,
            subject: instance.id.to_string(),
            text: format!(
                "the job {} on the engine {} runs for {} minutes and has not asked for leave: the {} {} waits for it; see \
                 `tms instance logs {}`, and cancel it when it hangs",
                attempt.tag,
                attempt.engine,
                HUNG_AFTER.as_secs() / 60,
                instance.key.action,
                instance.id,
                instance.id
            ),
        });
    }
}

/// Tells whether nothing new can follow: the engine vouches for it, nothing contradicts it, nobody wants its end. A driver
/// that is silent while its engine says that it runs stays what it is.
fn is_quiet(leader: &Leader, instance: &Instance, found: &Found) -> bool {
    let Some(attempt) = instance.live_attempt() else { return true };
    let Some(engine) = leader.engines.get(&attempt.engine) else { return false };
    let can = engine.capabilities();
    let is_calm = instance.state == InstanceState::Active
        && instance.cancel_asked.is_none()
        && attempt.report.is_none()
        && attempt.ended_at.is_none();
    let is_known = match found.state {
        JobState::Running => matches!(attempt.state, AttemptState::Holding | AttemptState::Accepted),
        JobState::Queued => attempt.state == AttemptState::Accepted,
        _ => false,
    };
    // Noted at every poll, so that silence counts from the last word and not from the first doubt.
    act::heard_recently(leader, instance, can.heartbeat_silence);
    let is_in_time = act::watched_for(leader, instance) < can.run_timeout;
    let now = leader.clock.monotonic();
    let is_contradicted = leader.watch(instance.id, |watch| {
        if !matches!(found.state, JobState::Unreachable { .. }) {
            watch.unreachable_since = None;
        }
        watch.look_at.is_some_and(|at| at <= now)
    });
    // A driver that asked before its engine answered: what the engine calls its job is still to be stored.
    let is_named = attempt.handle.is_some() || found.handle.is_none();
    is_calm && !is_contradicted && is_known && is_in_time && is_named
}
