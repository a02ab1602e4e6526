//! One node: campaigns, begins the term, runs the Services, disposes them in reverse. Start-up, take-over and return are one path.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::election::Election;
use crate::error::Error;
use crate::service::barrier::BarrierService;
use crate::service::dispatch::DispatchService;
use crate::service::housekeeping::HousekeepingService;
use crate::service::leader::{Leader, LeaderParts};
use crate::service::live_set::LiveSetService;
use crate::service::monitor::MonitorService;
use crate::service::timeline::TimelineService;
use crate::service::{Held, LeaderService, Leading};
use crate::store::NodeRow;

/// Back-off after a term that could not start.
const RESTART_FIRST: Duration = Duration::from_millis(200);
const RESTART_MAX: Duration = Duration::from_secs(10);
/// Pace at which a node renews its row.
const SEEN_EVERY: Duration = Duration::from_secs(30);

/// What a node runs with.
#[derive(Debug)]
pub struct NodeParts {
    /// What a term starts with.
    pub leader: LeaderParts,
    /// Who leads.
    pub election: Arc<dyn Election>,
    /// This node's row.
    pub node: NodeRow,
    /// The door to the leader's state for this process.
    pub leading: Arc<Leading<Leader>>,
}

/// Runs a node until `shutdown`. Jobs go on running.
pub async fn run_node(parts: NodeParts, shutdown: CancellationToken) {
    let mut wait = RESTART_FIRST;
    let store = Arc::clone(&parts.leader.store);
    let mut row = parts.node.clone();
    let mut seen_at = None;
    while !shutdown.is_cancelled() {
        if let Err(error) = store.put_node(row.clone()).await {
            tracing::warn!(error = error.chain(), "Failed to store this node's row.");
        }
        let won = tokio::select! {
            () = shutdown.cancelled() => break,
            won = parts.election.campaign() => won,
        };
        let outcome = match won {
            Ok(number) => lead(&parts, number, &shutdown, &mut row, &mut seen_at).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => wait = RESTART_FIRST,
            Err(error) => {
                tracing::error!(
                    error = error.chain(),
                    "A term could not start or ended badly; trying again."
                );
                // Leadership that cannot be used is given up, so that another node can try.
                parts.election.resign().await;
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(wait) => {}
                }
                wait = (wait * 2).min(RESTART_MAX);
            }
        }
    }
}

/// One term, from its first transaction to the end of its last task.
async fn lead(
    parts: &NodeParts,
    number: u64,
    shutdown: &CancellationToken,
    row: &mut NodeRow,
    seen_at: &mut Option<Duration>,
) -> Result<(), Error> {
    let store = &parts.leader.store;
    let term = store.begin_term(number, &parts.node.name).await?;
    let stop = shutdown.child_token();
    let leader = Leader::load(&parts.leader, term, stop.clone()).await?;
    let services: [Box<dyn LeaderService>; 6] = [
        Box::new(BarrierService),
        Box::new(MonitorService),
        Box::new(TimelineService),
        Box::new(DispatchService),
        Box::new(HousekeepingService),
        Box::new(LiveSetService),
    ];
    let mut held: Vec<Box<dyn Held>> = Vec::new();
    let mut failed = None;
    for service in &services {
        match service.initialize(&leader).await {
            Ok(started) => held.push(started),
            Err(error) => {
                tracing::error!(
                    service = service.name(),
                    error = error.chain(),
                    "A Service could not start."
                );
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() {
        parts.leading.set(Some(Arc::clone(&leader))).await;
        tracing::info!(%term, node = %parts.node.name, "This node leads.");
        metrics::gauge!("tms_is_leader").set(1.0);
        hold(parts, &leader, &stop, row, seen_at).await;
    }
    parts.leading.set(None).await;
    metrics::gauge!("tms_is_leader").set(0.0);
    stop.cancel();
    while let Some(service) = held.pop() {
        service.dispose().await;
    }
    tracing::info!(%term, "The term is over on this node.");
    match failed {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Waits until the term ends, renewing the node's row.
async fn hold(
    parts: &NodeParts,
    leader: &Leader,
    stop: &CancellationToken,
    row: &mut NodeRow,
    seen_at: &mut Option<Duration>,
) {
    loop {
        let now = leader.clock.monotonic();
        if seen_at.is_none_or(|at| now.saturating_sub(at) >= SEEN_EVERY) {
            row.seen_at = leader.clock.now();
            *seen_at = Some(now);
            if let Err(error) = leader.store.put_node(row.clone()).await {
                tracing::warn!(error = error.chain(), "Failed to renew this node's row.");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = parts.election.lost() => return,
            () = tokio::time::sleep(SEEN_EVERY) => {}
        }
    }
}
