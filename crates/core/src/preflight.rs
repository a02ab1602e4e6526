//! Gathers what the check before a submission and before each leave needs, and asks it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::decision::board::EngineLimit;
use crate::decision::check::{Asked, Verdict, check, explains};
use crate::engine::{Engine, Engines};
use crate::error::Error;
use crate::model::action::{Action, Instant};
use crate::model::id::{EngineName, TableId};
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
    /// Writes under way without a heartbeat, as the check saw them.
    pub unlocked_writes: Vec<String>,
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

/// Returns what matters of each engine for choosing.
#[must_use]
pub fn engine_limits(engines: &Engines) -> BTreeMap<EngineName, EngineLimit> {
    let limit = |engine: &dyn Engine| {
        let can = engine.capabilities();
        let (families, is_simulation) = (engine.families(), can.is_simulation);
        EngineLimit { running_max: can.running_max, families, is_simulation }
    };
    engines.iter().map(|(name, engine)| (name.clone(), limit(&**engine))).collect()
}

/// Signs of life of other runners that are remembered; beyond that all graces start anew.
const SIGNS_MAX: usize = 10_000;

/// The newest sign of life of a plan's runner, and since when it is known on the monotonic clock.
type Stood = (Option<Timestamp>, Duration);

/// Remembers since when the newest sign of life of each other runner is the newest, on the monotonic clock of a term.
#[derive(Debug, Default)]
pub struct SignWatch(Mutex<HashMap<(TableId, Instant), Stood>>);

impl SignWatch {
    fn stood(
        &self,
        table: TableId,
        instant: &Instant,
        sign: Option<Timestamp>,
        monotonic: Duration,
    ) -> Duration {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (table, instant.clone());
        match known.get(&key) {
            Some((had, since)) if *had == sign => monotonic.saturating_sub(*since),
            _ => {
                if known.len() >= SIGNS_MAX {
                    known.clear();
                }
                known.insert(key, (sign, monotonic));
                Duration::ZERO
            }
        }
    }
}

/// The time of a check, by one clock or by both.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Wall clock.
    pub now: Timestamp,
    /// What the leader remembers of other runners, and its monotonic clock. Without it the wall clock alone decides about
    /// silence, which is enough where the leader's check came before.
    pub signs: Option<(&'a SignWatch, Duration)>,
}

impl From<Timestamp> for Moment<'_> {
    fn from(now: Timestamp) -> Self {
        Self { now, signs: None }
    }
}

/// What holds for every plan of a table now.
#[derive(Clone, Debug)]
pub struct TableNow {
    /// The look, with facts that were read anew.
    pub sight: Arc<Sight>,
    /// Where it really lies, when its path leads there by links.
    pub real_path: Option<String>,
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
    let real_path = timelines.real_path(path).await?;
    Ok(TableNow { sight, real_path, lock_since, unlocked_writes })
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
    moment: Moment<'_>,
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
    let mut sign = None;
    let mut sign_stood = None;
    if let Some(plan) = asked_for_a_sign(instance, &table.sight) {
        sign = timelines.sign_of_life(path, &plan.instant).await?;
        sign_stood = moment
            .signs
            .map(|(signs, monotonic)| signs.stood(record.table.id, &plan.instant, sign, monotonic));
    }
    Ok(check(&Asked {
        instance,
        effective,
        look: &record.look,
        acknowledged_at: record.table.acknowledged_at,
        sight: &table.sight,
        real_path: table.real_path.as_deref(),
        is_in_history,
        overtaken: overtaken.as_ref(),
        sign,
        sign_stood,
        lock_since: table.lock_since,
        unlocked_writes: &table.unlocked_writes,
        now: moment.now,
    }))
}

/// The plan that somebody else may be at work on: the instance's own, or for a clean first any that is not its own, since one
/// call executes all of them. One that our own attempts began too: somebody may have begun it anew since.
fn asked_for_a_sign<'a>(instance: &Instance, sight: &'a Sight) -> Option<&'a PlanSeen> {
    let action = instance.key.action;
    let own = instance.key.instant.as_ref();
    let is_explained = |plan: &PlanSeen| explains(instance, &plan.instant);
    if action == Action::Clean {
        let mut cleans = sight.pending.iter().filter(|plan| plan.action == action);
        return cleans.clone().find(|plan| !is_explained(plan)).or_else(|| cleans.next());
    }
    sight.pending(action, own?).filter(|plan| plan.is_inflight)
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
    moment: Moment<'_>,
) -> Result<Preflight, Error> {
    let table = table_now(timelines, &record.table.base_path, effective).await?;
    let verdict = check_on(timelines, record, instance, effective, &table, moment).await?;
    Ok(Preflight { verdict, sight: table.sight, unlocked_writes: table.unlocked_writes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            database: None,
            is_metadata_table: false,
            pending: vec![plan(OWN), plan(OTHER)],
            completed: BTreeMap::new(),
            commits: Vec::new(),
            upheaval: None,
        };
        asked_for_a_sign(&instance, &sight).map(|plan| plan.instant.to_string())
    }

    #[test]
    fn only_an_inflight_is_asked_for_a_sign_of_life() {
        let compaction =
            |has_called, is_inflight| asked_for(Action::Compaction, Some(OWN), has_called, is_inflight);
        assert_eq!(compaction(false, false), None);
        assert_eq!(compaction(true, true).as_deref(), Some(OWN));
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
