//! Jobs of revoked attempts: they get no leave any more, so they can touch nothing; they are ended all the same, for they
//! take room at their engine and nobody else knows of them.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use crate::alert::{Alert, AlertKind};
use crate::decision::judge::{
    Context, EngineSays, STOP_WAIT, Situation, Standing, Step, TimelineSays, judge, urgency,
};
use crate::engine::{Engine, Force, JobRef};
use crate::model::attempt::AttemptState;
use crate::model::id::Tag;
use crate::service::leader::{Leader, Orphan};
use crate::service::monitor::find;

/// Pace of looking an orphan up.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time for which one that its engine does not know is looked for: a submission may be on its way for that long.
const WATCH_MAX: Duration = Duration::from_secs(3600);
/// Orphans that one pass looks up, and how many of them at once.
const PASS_MAX: usize = 256;
const FIND_AT_ONCE_MAX: usize = 32;

/// Looks up the orphans whose time has come.
pub(super) async fn watch(leader: &Leader) {
    let now = leader.clock.monotonic();
    let due: Vec<(Tag, Orphan)> = leader.orphans(|orphans| {
        let due = orphans.iter_mut().filter(|(_, orphan)| orphan.look_at <= now).take(PASS_MAX);
        due.map(|(tag, orphan)| {
            orphan.look_at = now + LOOK_EVERY;
            (tag.clone(), orphan.clone())
        })
        .collect()
    });
    let mut look_ups: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(due.len());
    for (tag, orphan) in &due {
        look_ups.push(look_up(leader, tag, orphan).boxed());
    }
    futures::stream::iter(look_ups).buffer_unordered(FIND_AT_ONCE_MAX).collect::<()>().await;
}

async fn look_up(leader: &Leader, tag: &Tag, orphan: &Orphan) {
    let now = leader.clock.monotonic();
    let Some(engine) = leader.engines.get(&orphan.engine) else { return forget(leader, tag, orphan) };
    let found = find(&**engine, tag, orphan.handle.as_deref()).await;
    let says = EngineSays::from(&found.state);
    let is_alive = matches!(says, EngineSays::FoundQueued | EngineSays::FoundRunning);
    match says {
        EngineSays::Unreachable => return,
        EngineSays::AbsentNoProof if now.saturating_sub(orphan.since) < WATCH_MAX => return,
        _ if !is_alive => return forget(leader, tag, orphan),
        _ => {}
    }
    let alive_since = leader.orphans(|orphans| match orphans.get_mut(tag) {
        Some(known) => *known.alive_since.get_or_insert(now),
        None => now,
    });
    let alive_for = now.saturating_sub(alive_since);
    let situation = Situation {
        attempt: AttemptState::Revoked,
        has_holder: false,
        standing: Standing::Ended,
        cancel_asked: false,
        engine: says,
        timeline: TimelineSays::NotLooked,
        context: Context { urgency: urgency(alive_for), ..Context::default() },
    };
    let job = JobRef { tag: tag.clone(), handle: found.handle.or_else(|| orphan.handle.clone()) };
    for step in judge(&situation).steps {
        match step {
            // One that waits for room is ended at once; a driver asks, hears no, and ends by itself in a moment.
            Step::CancelOrphan => cancel(&**engine, &job, Force::Kill).await,
            Step::CancelJob(force) if alive_for >= STOP_WAIT => cancel(&**engine, &job, force).await,
            Step::Alarm(kind) if alive_for >= STOP_WAIT => leader.alerts.raise(&Alert {
                kind,
                subject: tag.to_string(),
                text: format!(
                    "a job of the instance {} runs although its attempt was revoked: {job:?}",
                    orphan.instance
                ),
            }),
            _ => {}
        }
    }
}

async fn cancel(engine: &dyn Engine, job: &JobRef, force: Force) {
    if let Err(error) = engine.cancel(job, force).await {
        tracing::warn!(tag = %job.tag, error = error.chain(), "The engine did not take the cancel of an orphan; it is repeated.");
    }
}

fn forget(leader: &Leader, tag: &Tag, orphan: &Orphan) {
    leader.orphans(|orphans| orphans.remove(tag));
    if orphan.alive_since.is_some() {
        leader.alerts.clear(AlertKind::Orphan, tag.as_str());
    }
}
