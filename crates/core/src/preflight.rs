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
use crate::timeline::{PlanSeen, Sight, TimelineSource};

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

/// What holds for every plan of a table now.
#[derive(Clone, Debug)]
pub struct TableNow {
    /// The look, with facts that were read anew.
    pub sight: Arc<Sight>,
    /// When the lock file was written; asked for on a locked table only.
    pub lock_since: Option<Timestamp>,
    /// Writes under way without a heartbeat; asked for on a locked table only.
    pub unlocked_writes: Vec<String>,
}

/// Looks at the table now.
///
/// # Errors
/// The table cannot be read now.
pub async fn table_now(
    timelines: &dyn TimelineSource,
    path: &BasePath,
    effective: &Effective,
) -> Result<TableNow, Error> {
    let sight = with_fresh_facts(timelines, path, timelines.look(path).await?).await?;
    let is_locked = effective.concurrency == Some(Concurrency::Locked);
    let (lock_since, unlocked_writes) = if is_locked {
        (timelines.lock_since(path).await?, timelines.writes_without_heartbeat(path).await?)
    } else {
        (None, Vec::new())
    };
    Ok(TableNow { sight, lock_since, unlocked_writes })
}

/// Checks one instance of a table that was looked at just now.
///
/// # Errors
/// The table cannot be read now; no verdict.
pub async fn check_on(
    timelines: &dyn TimelineSource,
    record: &TableRecord,
    instance: &Instance,
    effective: &Effective,
    table: &TableNow,
    now: Timestamp,
) -> Result<Verdict, Error> {
    let path = &record.table.base_path;
    let action = instance.key.action;
    let mut is_in_history = false;
    let mut overtaken = None;
    if let Some(instant) = &instance.key.instant {
        match table.sight.pending(action, instant) {
            None if table.sight.completed_files(action, instant) == 0 => {
                is_in_history = timelines.completed_in_history(path, action, instant).await?;
            }
            Some(_) if action == Action::Clustering => {
                overtaken = Some(timelines.overtaken(path, instant).await);
            }
            _ => {}
        }
    }
    let sign = match unexplained(instance, &table.sight) {
        Some(plan) => timelines.sign_of_life(path, &plan.instant).await?,
        None => None,
    };
    Ok(check(&Asked {
        instance,
        effective,
        look: &record.look,
        acknowledged_at: record.table.acknowledged_at,
        sight: &table.sight,
        is_in_history,
        overtaken: overtaken.as_ref(),
        sign,
        lock_since: table.lock_since,
        unlocked_writes: &table.unlocked_writes,
        now,
    }))
}

/// The plan that somebody else may be at work on: the instance's own, or for a clean any that is not its own, since one call
/// executes all of them.
fn unexplained<'a>(instance: &Instance, sight: &'a Sight) -> Option<&'a PlanSeen> {
    let action = instance.key.action;
    let own = instance.key.instant.as_ref();
    let is_explained = |plan: &PlanSeen| own == Some(&plan.instant) && instance.has_called;
    if action == Action::Clean {
        return sight.pending.iter().find(|plan| plan.action == action && !is_explained(plan));
    }
    sight.pending(action, own?).filter(|plan| plan.is_inflight && !is_explained(plan))
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
    let table = table_now(timelines, &record.table.base_path, effective).await?;
    let verdict = check_on(timelines, record, instance, effective, &table, now).await?;
    Ok(Preflight { verdict, sight: table.sight })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::id::TableId;
    use crate::model::instance::{InstanceKey, InstanceState};
    use crate::model::path::PathRules;
    use crate::model::request::Trigger;
    use crate::model::table::TableFacts;
    use crate::timeline::PlanContent;

    const OWN: &str = "20270101000000001";
    const OTHER: &str = "20270101000000002";

    /// Whose sign of life is looked for, for an instance of `action` at `own`, with both plans pending.
    fn asked_for(action: Action, own: Option<&str>, has_called: bool, is_inflight: bool) -> Option<String> {
        let path = PathRules::default().canonical("/lake/t").unwrap();
        let instant = own.map(|text| text.parse().unwrap());
        let key = InstanceKey { table: TableId::of(&path), action, instant };
        let at = chrono::DateTime::from_timestamp(0, 0).unwrap();
        let mut instance = Instance::new(key, InstanceState::Hinted, Trigger::Callback, at);
        instance.has_called = has_called;
        let plan = |text: &str| PlanSeen {
            action,
            instant: text.parse().unwrap(),
            is_inflight,
            content: Ok(PlanContent::default()),
        };
        let facts =
            TableFacts { table_version: 9, layout: 2, table_type: String::new(), metadata_table: None };
        let sight = Sight {
            facts,
            name: None,
            is_metadata_table: false,
            pending: vec![plan(OWN), plan(OTHER)],
            completed: BTreeMap::new(),
            commits: Vec::new(),
            upheaval: None,
        };
        unexplained(&instance, &sight).map(|plan| plan.instant.to_string())
    }

    #[test]
    fn only_a_foreign_inflight_is_asked_for_a_sign_of_life() {
        let compaction =
            |has_called, is_inflight| asked_for(Action::Compaction, Some(OWN), has_called, is_inflight);
        assert_eq!(compaction(false, false), None);
        assert_eq!(compaction(true, true), None);
        assert_eq!(compaction(false, true).as_deref(), Some(OWN));
    }

    #[test]
    fn a_clean_asks_for_the_plan_that_is_not_its_own() {
        let clean = |own, has_called| asked_for(Action::Clean, own, has_called, false);
        assert_eq!(clean(None, false).as_deref(), Some(OWN));
        assert_eq!(clean(Some(OWN), false).as_deref(), Some(OWN));
        assert_eq!(clean(Some(OWN), true).as_deref(), Some(OTHER));
    }
}
