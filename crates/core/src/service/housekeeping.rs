//! Prunes the history in bounded batches, moves the gauges, raises the alarms that only time raises, renews the node's row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use crate::alert::{Alert, AlertKind};
use crate::clock::Timestamp;
use crate::error::Error;
use crate::model::action::Action;
use crate::model::table::TableRecord;
use crate::service::leader::{Ages, Leader};
use crate::service::{Held, LeaderService, Loop};
use crate::store::PruneRule;

/// Pace of a pass.
const PASS_EVERY: Duration = Duration::from_secs(30);
/// Instances that one pruning batch removes: a dozen scattered rows each, and hand-overs wait for a batch that is on its way.
pub const PRUNE_BATCH_MAX: usize = 20;
/// Rest after a batch, for the other writers.
pub const PRUNE_PAUSE: Duration = Duration::from_millis(10);
/// Batches of one pass; so many that 28 million instances can end in a day.
const PRUNE_BATCHES_MAX: usize = 500;
/// Age at which an unserved plan is an alarm.
const UNSERVED_ALARM_AFTER: TimeDelta = TimeDelta::hours(6);
/// Age at which a table's lock file is an alarm.
const LOCK_ALARM_AFTER: TimeDelta = TimeDelta::minutes(10);

/// Keeps the house.
#[derive(Debug, Default)]
pub struct HousekeepingService;

#[async_trait]
impl LeaderService for HousekeepingService {
    fn name(&self) -> &'static str {
        "housekeeping"
    }

    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error> {
        let held = Arc::clone(leader);
        Ok(Box::new(Loop::start(self.name(), leader, |stop| run(held, stop))))
    }
}

async fn run(leader: Arc<Leader>, stop: CancellationToken) {
    let mut queues_shown = BTreeSet::new();
    loop {
        if let Err(error) = prune(&leader).await {
            leader.heed(&error);
            tracing::warn!(error = error.chain(), "Failed to prune the history.");
        }
        if let Err(error) = watch_tables(&leader).await {
            tracing::warn!(error = error.chain(), "Failed to look over the tables.");
        }
        gauges(&leader, &mut queues_shown);
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(PASS_EVERY) => {}
        }
    }
}

async fn prune(leader: &Leader) -> Result<(), Error> {
    let policy = leader.policies.history;
    let keep = TimeDelta::from_std(policy.keep).unwrap_or(TimeDelta::MAX);
    let before = leader.clock.now().checked_sub_signed(keep).unwrap_or(Timestamp::MIN_UTC);
    for _ in 0..PRUNE_BATCHES_MAX {
        let rule = PruneRule { before, keep_count: policy.keep_count, batch_max: PRUNE_BATCH_MAX };
        let n_pruned = leader.store.prune(leader.term, rule).await?;
        metrics::counter!("tms_pruned_total").increment(n_pruned as u64);
        if n_pruned < PRUNE_BATCH_MAX {
            break;
        }
        tokio::time::sleep(PRUNE_PAUSE).await;
    }
    Ok(())
}

/// Alarms by age, and the gauge of the oldest unserved plan by action.
async fn watch_tables(leader: &Leader) -> Result<(), Error> {
    let now = leader.clock.now();
    let oldest = leader.ages(Ages::oldest);
    for action in Action::ALL {
        let age = oldest
            .get(&action)
            .map_or(0.0, |since| (now - *since).to_std().unwrap_or_default().as_secs_f64());
        metrics::gauge!("tms_oldest_unserved_plan_seconds", "action" => action.as_str()).set(age);
    }
    for table in leader.ages(|ages| ages.older(now - UNSERVED_ALARM_AFTER, now - LOCK_ALARM_AFTER)) {
        match leader.table(table).await? {
            Some(record) => {
                unserved_alarm(leader, &record);
                lock_alarm(leader, &record);
            }
            None => leader.forget_table(table),
        }
    }
    Ok(())
}

fn unserved_alarm(leader: &Leader, record: &TableRecord) {
    let subject = record.table.id.to_string();
    let now = leader.clock.now();
    match record.look.unserved.iter().min_by_key(|p| p.since) {
        Some(plan) if now - plan.since > UNSERVED_ALARM_AFTER => leader.alerts.raise(&Alert {
            kind: AlertKind::PlanUnserved,
            subject,
            text: format!(
                "the {} {} of {} stands unserved since {}: old plans stop archiving and cleaning",
                plan.action, plan.instant, record.table.base_path, plan.since
            ),
        }),
        _ => leader.alerts.clear(AlertKind::PlanUnserved, &subject),
    }
}

fn lock_alarm(leader: &Leader, record: &TableRecord) {
    let subject = record.table.id.to_string();
    match record.look.lock_since {
        Some(since) if leader.clock.now() - since > LOCK_ALARM_AFTER => {
            // The file may be gone by now: the next look tells.
            leader.look_by(record.table.id, leader.clock.now());
            leader.alerts.raise(&Alert {
                kind: AlertKind::LockOld,
                subject,
                text: format!(
                    "{}/.hoodie/lock is there since {since}: writers and jobs wait for it; TMS never deletes a lock",
                    record.table.base_path
                ),
            });
        }
        _ => leader.alerts.clear(AlertKind::LockOld, &subject),
    }
}

/// Sets the gauges of the live set. A queue that was shown and has no live instance any more is shown empty once.
fn gauges(leader: &Leader, queues_shown: &mut BTreeSet<String>) {
    let mut totals: BTreeMap<(&'static str, &'static str), f64> = BTreeMap::new();
    let mut queued: BTreeMap<String, f64> = BTreeMap::new();
    leader.board(|board| {
        for (key, n) in board.counts() {
            let n = u32::try_from(*n).map_or(f64::MAX, f64::from);
            *totals.entry((key.state, key.action.as_str())).or_default() += n;
            let depth = queued.entry(key.queue.to_string()).or_default();
            if key.state == "pending" {
                *depth += n;
            }
        }
    });
    for state in crate::model::instance::InstanceState::WORDS {
        for action in Action::ALL {
            let n = totals.get(&(state, action.as_str())).copied().unwrap_or_default();
            metrics::gauge!("tms_live_instances", "state" => state, "action" => action.as_str()).set(n);
        }
    }
    for queue in queues_shown.iter().filter(|queue| !queued.contains_key(*queue)) {
        metrics::gauge!("tms_queue_depth", "queue" => queue.clone()).set(0.0);
    }
    *queues_shown = queued.keys().cloned().collect();
    for (queue, depth) in queued {
        metrics::gauge!("tms_queue_depth", "queue" => queue).set(depth);
    }
}
