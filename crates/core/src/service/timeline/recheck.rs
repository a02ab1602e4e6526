//! Checks again what is parked or waits for another runner: the cause may be gone.

use std::sync::Arc;

use crate::decision::check::Verdict;
use crate::decision::job_options::job_options;
use crate::decision::transition::{Change, Ending};
use crate::engine::JobNeed;
use crate::error::{Error, ErrorKind};
use crate::model::instance::{Instance, InstanceState, ParkReason};
use crate::model::policy::{Concurrency, Effective};
use crate::model::table::TableRecord;
use crate::preflight::{Preflight, check_on, table_now};
use crate::service::dispatch::park;
use crate::service::leader::Leader;
use crate::service::timeline::next_foreign_look;

/// Instances that one look checks again; a sane table holds a few.
const RECHECKS_MAX: usize = 256;

/// Checks what is held on one table, under its turn. Returns why some could not be checked; the others are.
pub(super) async fn recheck(
    leader: &Leader,
    record: &TableRecord,
    effective: &Effective,
) -> Result<Option<Error>, Error> {
    let waiting: Vec<Instance> = leader.board(|board| {
        board
            .of_table(record.table.id)
            .filter(|i| {
                matches!(i.state, InstanceState::Parked { .. } | InstanceState::WaitingForeign { .. })
            })
            .cloned()
            .collect()
    });
    if waiting.is_empty() {
        return Ok(None);
    }
    // Another part of them each time, where there are too many.
    let first = if waiting.len() > RECHECKS_MAX { rand::random_range(0..waiting.len()) } else { 0 };
    let table = table_now(&*leader.timelines, &record.table.base_path, effective).await?;
    let mut unchecked = None;
    for instance in waiting.iter().cycle().skip(first).take(waiting.len().min(RECHECKS_MAX)) {
        let checked =
            check_on(&*leader.timelines, record, instance, effective, &table, leader.moment()).await;
        let verdict = match checked {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(instance = %instance.id, error = error.chain(), "It cannot be checked: it stays held.");
                unchecked.get_or_insert(error);
                continue;
            }
        };
        let found = Preflight {
            verdict,
            sight: Arc::clone(&table.sight),
            unlocked_writes: table.unlocked_writes.clone(),
        };
        let Some((change, reason)) = follow(leader, record, effective, instance, &found).await else {
            continue;
        };
        let done = match change {
            Change::Park(reason, detail) => {
                park(leader, record, instance, reason, detail, &table.unlocked_writes).await
            }
            change => leader.step(instance, change, reason).await.map(drop),
        };
        match done {
            Ok(()) => leader.wakes.dispatch.wake(),
            Err(e) if e.kind() == ErrorKind::Conflict => {}
            Err(e) => return Err(e),
        }
    }
    Ok(unchecked)
}

/// What the check means for an instance that is held; `None` = it stays as it is.
async fn follow(
    leader: &Leader,
    record: &TableRecord,
    effective: &Effective,
    instance: &Instance,
    found: &Preflight,
) -> Option<(Change, &'static str)> {
    let now = leader.clock.now();
    if found.verdict == Verdict::Completed {
        let change = Change::End(Ending::Succeeded, String::new());
        return Some((change, "completed on the timeline by somebody else"));
    }
    if found.verdict == Verdict::NotHandedOver {
        let reason = "the action is not handed over any more";
        return Some((Change::End(Ending::Obsolete, reason.to_owned()), reason));
    }
    if let InstanceState::Parked { .. } = instance.state
        && !may_release(leader, record, effective, instance, found).await
    {
        return None;
    }
    match &found.verdict {
        Verdict::Go(_) | Verdict::Delay(..) => Some((Change::Release, "the cause of its waiting is gone")),
        Verdict::Park(reason, detail) => {
            let is_same = matches!(&instance.state, InstanceState::Parked { reason: r, detail: d, .. } if r == reason && d == detail);
            (!is_same).then(|| (Change::Park(*reason, detail.clone()), "held for another reason"))
        }
        Verdict::WaitForeign(sign) => {
            leader.look_by(record.table.id, next_foreign_look(effective, *sign, now));
            let is_same =
                matches!(instance.state, InstanceState::WaitingForeign { sign: s, .. } if s == *sign);
            (!is_same).then_some((Change::WaitForeign { sign: *sign }, "another runner gave a sign of life"))
        }
        Verdict::Missing | Verdict::Completed | Verdict::NotHandedOver => None,
    }
}

/// Tells whether the cause of a parking can be gone without a person's retry.
async fn may_release(
    leader: &Leader,
    record: &TableRecord,
    effective: &Effective,
    instance: &Instance,
    found: &Preflight,
) -> bool {
    let InstanceState::Parked { reason, since, .. } = instance.state else { return true };
    let is_acknowledged = record.table.acknowledged_at.is_some_and(|at| at > since);
    match reason {
        // What overtook the plan does not go away while the plan stands. Its own job may have seen it, not our guard.
        ParkReason::Overtaken => false,
        ParkReason::DamageSuspected => {
            is_acknowledged && !matches!(found.verdict, Verdict::Park(ParkReason::DamageSuspected, _))
        }
        ParkReason::UnlockedWriter => effective.concurrency != Some(Concurrency::Locked) || is_acknowledged,
        ParkReason::ForeignRunner => matches!(found.verdict, Verdict::Go(_)),
        other if other.needs_person() => false,
        ParkReason::NoEngine
        | ParkReason::BundleTooOld
        | ParkReason::BundleTooNew
        | ParkReason::BadOption => {
            // The job itself said so: the same job says it again, unless a new start of TMS brought another configuration.
            let by_its_job = instance.attempt.as_ref().filter(|a| a.over_at == Some(since));
            by_its_job.is_none_or(|a| a.term < leader.term)
                && job_options(effective, &found.sight.facts, instance.key.action).is_ok()
                && is_engine_ready(leader, instance, found.sight.facts.table_version).await
        }
        _ => true,
    }
}

/// Tells whether the engine that an instance would go to has what it needs.
async fn is_engine_ready(leader: &Leader, instance: &Instance, table_version: u32) -> bool {
    let name = leader.board_with_limits(|_, limits| crate::decision::board::engine_for(instance, limits));
    let Some(engine) = name.and_then(|n| leader.engines.get(&n).cloned()) else { return false };
    engine.ready(JobNeed { action: instance.key.action, table_version }).await.is_ok()
}
