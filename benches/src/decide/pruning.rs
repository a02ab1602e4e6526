//! What writers notice while history is pruned: hand-overs in the open loop, without and beside pruning in the
//! server's batches and pauses. The server does so for some seconds every half minute; here it never ends.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tms_core::model::id::NodeName;
use tms_core::model::request::{HandOver, Trigger};
use tms_core::service::housekeeping::{PRUNE_BATCH_MAX, PRUNE_PAUSE};
use tms_core::store::coalescer::{Coalescer, CoalescerLimits};
use tms_core::store::{PruneRule, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fill;
use crate::raw::Raw;
use crate::report::{Report, Side, median, quantile};

const RUNS: usize = 3;
/// Hand-overs per second and for how long: far below what the store takes, so that only the pruning is in the way.
const RATE: f64 = 500.0;
const TIME: Duration = Duration::from_secs(4);
/// Tables of the hand-overs; each turn has another spelling, so that every one is written.
const TABLES: u64 = 500;
const SYNCS: usize = 300;

/// Measures it on a store with ended instances.
///
/// # Errors
/// The store refuses.
pub(crate) async fn beside(store: &Arc<dyn Store>, folder: &Path, report: &mut Report) -> Result<()> {
    let mut raw = Raw::new(folder)?;
    let (coalescer, writes) = Coalescer::new(Arc::clone(store) as _, CoalescerLimits::default());
    let stop = CancellationToken::new();
    let until = stop.clone();
    let mut task = JoinSet::new();
    task.spawn(async move { writes.run(until).await });
    let (mut without, mut with, mut syncs, mut pruned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        syncs.push(quantile(&raw.single_syncs(SYNCS)?, 0.99));
        without.push(quantile(&load(&coalescer).await?, 0.99));
        let (n_pruned, latencies) = tokio::join!(prune(store), load(&coalescer));
        pruned.push(n_pruned?);
        with.push(quantile(&latencies?, 0.99));
    }
    stop.cancel();
    while task.join_next().await.is_some() {}
    let without = report.figure("500 hand-overs a second: p99", "ms", &without);
    let with = report.figure("the same while history is pruned: p99", "ms", &with);
    report.figure("instances pruned meanwhile", "instances/s", &pruned);
    report.figure("raw: one sync, p99, before each", "ms", &syncs);
    report.bar("p99 of hand-overs while history is pruned", "ms", with, Side::Most, without + median(&syncs));
    Ok(())
}

/// Prunes as the server does for the time of a load; returns the instances per second.
async fn prune(store: &Arc<dyn Store>) -> Result<f64> {
    let node: NodeName = "bench".parse().context("a bad name")?;
    let term = store.begin_term(0, &node).await.context("cannot begin a term")?;
    let before = fill::day_zero() + chrono::TimeDelta::days(365);
    let deadline = tokio::time::Instant::now() + TIME;
    let mut n_pruned = 0;
    while tokio::time::Instant::now() < deadline {
        let rule = PruneRule { before, keep_count: u64::MAX, batch_max: PRUNE_BATCH_MAX };
        let n = store.prune(term, rule).await.context("cannot prune")?;
        ensure!(n > 0, "the history is empty before the time is over: give more --ended");
        n_pruned += n;
        tokio::time::sleep(PRUNE_PAUSE).await;
    }
    Ok(n_pruned as f64 / TIME.as_secs_f64())
}

async fn load(coalescer: &Coalescer) -> Result<Vec<f64>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds of hand-overs")]
    let n = (RATE * TIME.as_secs_f64()) as u64;
    let begin = tokio::time::Instant::now();
    let mut under_way: JoinSet<Result<f64>> = JoinSet::new();
    for number in 0..n {
        let due = begin + Duration::from_secs_f64(number as f64 / RATE);
        tokio::time::sleep_until(due).await;
        let (coalescer, one) = (coalescer.clone(), hand_over(number)?);
        under_way.spawn(async move {
            coalescer.hand_over(one).await.context("a hand-over was refused")?;
            Ok(due.elapsed().as_secs_f64() * 1e3)
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = under_way.join_next().await {
        latencies.push(done.context("a hand-over failed")??);
    }
    Ok(latencies)
}

fn hand_over(number: u64) -> Result<HandOver> {
    let base_path = fill::path(number % TABLES)?;
    Ok(HandOver {
        spelling: format!("{}{}", base_path.as_str(), "/".repeat(usize::from(number / TABLES % 2 == 1))),
        base_path,
        database: Some("lake".to_owned()),
        table_name: None,
        hints: Vec::new(),
        queue: None,
        execution_engine: None,
        trigger: Trigger::Callback,
        at: fill::day_zero(),
        touch: true,
    })
}
