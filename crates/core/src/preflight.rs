//! Gathers what the check before a submission and before each leave needs, and asks it.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::decision::check::{Asked, Verdict, check};
use crate::error::Error;
use crate::model::action::Action;
use crate::model::instance::Instance;
use crate::model::path::BasePath;
use crate::model::policy::{Concurrency, Effective};
use crate::model::table::TableRecord;
use crate::timeline::{Sight, TimelineSource};

/// The answer with the look that it rests on.
#[derive(Clone, Debug)]
pub struct Preflight {
    /// The answer.
    pub verdict: Verdict,
    /// The look.
    pub sight: Arc<Sight>,
}

/// A look costs no reading of properties; before a job both files are read anew, for a table may have been upgraded.
async fn with_fresh_facts(
    timelines: &dyn TimelineSource,
    path: &BasePath,
    sight: Arc<Sight>,
) -> Result<Arc<Sight>, Error> {
    let versions = timelines.versions(path).await?;
    let mut facts = sight.facts.clone();
    (facts.table_version, facts.layout) = versions.table;
    facts.metadata_table = versions.metadata_table;
    if facts == sight.facts {
        return Ok(sight);
    }
    let mut fresh = Sight::clone(&sight);
    fresh.facts = facts;
    Ok(Arc::new(fresh))
}

/// Looks at the table now and checks the instance.
///
/// # Errors
/// The table cannot be read now; no verdict.
pub async fn preflight(
    timelines: &dyn TimelineSource,
    record: &TableRecord,
    instance: &Instance,
    effective: &Effective,
    now: Timestamp,
) -> Result<Preflight, Error> {
    let path = &record.table.base_path;
    let action = instance.key.action;
    let sight = with_fresh_facts(timelines, path, timelines.look(path).await?).await?;
    let mut is_in_history = false;
    let mut overtaken = None;
    let mut sign = None;
    if let Some(instant) = &instance.key.instant {
        match sight.pending(action, instant) {
            None if sight.completed_files(action, instant) == 0 => {
                is_in_history = timelines.completed_in_history(path, action, instant).await?;
            }
            Some(plan) => {
                if action == Action::Clustering {
                    overtaken = Some(timelines.overtaken(path, instant).await);
                }
                if plan.is_inflight && !instance.has_called {
                    sign = timelines.sign_of_life(path, instant).await?;
                }
            }
            None => {}
        }
    }
    if action == Action::Clean
        && sign.is_none()
        && let Some(plan) = sight.pending.iter().find(|p| p.action == Action::Clean)
    {
        sign = timelines.sign_of_life(path, &plan.instant).await?;
    }
    let is_locked = effective.concurrency == Some(Concurrency::Locked);
    let (lock_since, unlocked_writes) = if is_locked {
        (timelines.lock_since(path).await?, timelines.writes_without_heartbeat(path).await?)
    } else {
        (None, Vec::new())
    };
    let verdict = check(&Asked {
        instance,
        effective,
        look: &record.look,
        acknowledged_at: record.table.acknowledged_at,
        sight: &sight,
        is_in_history,
        overtaken: overtaken.as_ref(),
        sign,
        lock_since,
        unlocked_writes: &unlocked_writes,
        now,
    });
    Ok(Preflight { verdict, sight })
}
