//! Plans that stand although no live instance shows them: removed ones, and those of actions that are not handed over.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;

use crate::clock::Timestamp;
use crate::error::Error;
use crate::model::action::Action;
use crate::model::id::TableId;
use crate::model::instance::{Instance, InstanceKey};
use crate::model::policy::Effective;
use crate::model::table::{LookState, PlanKey, REMOVED_MAX, Removed, TableRecord, UNSERVED_MAX};
use crate::service::leader::Leader;
use crate::timeline::Sight;

/// What a look means for the removed plans of a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Those that stay removed.
    pub(super) removed: Vec<Removed>,
    /// Those that are gone: nothing holds their keys any more.
    pub(super) gone: Vec<PlanKey>,
    /// When the table must be looked at again for those that were missed.
    pub(super) look_again: Option<Timestamp>,
}

pub(super) fn key_of(table: TableId, plan: &PlanKey) -> InstanceKey {
    InstanceKey { table, action: plan.action, instant: Some(plan.instant.clone()) }
}

fn is_pending(sight: &Sight, plan: &PlanKey) -> bool {
    sight.pending(plan.action, &plan.instant).is_some()
}

/// Returns the pending plans of actions that are not handed over, oldest first, cut.
pub(super) fn foreign(sight: &Sight, effective: &Effective) -> Vec<PlanKey> {
    sight
        .pending
        .iter()
        .filter(|plan| !effective.actions.contains(&plan.action))
        .take(UNSERVED_MAX)
        .map(|plan| PlanKey { action: plan.action, instant: plan.instant.clone() })
        .collect()
}

/// Finds the removed plans that this look must follow: those known before, those that it `found` pending, and those that
/// were removed and vanished between two looks.
pub(super) async fn candidates(
    leader: &Leader,
    record: &TableRecord,
    live: &[Instance],
    sight: &Sight,
    found: &BTreeSet<InstanceKey>,
) -> Result<BTreeMap<PlanKey, Option<Timestamp>>, Error> {
    let table = record.table.id;
    let mut plans: BTreeMap<PlanKey, Option<Timestamp>> =
        record.look.removed.iter().map(|r| (r.plan.clone(), r.missed_since)).collect();
    for key in found {
        if let Some(instant) = &key.instant {
            plans.entry(PlanKey { action: key.action, instant: instant.clone() }).or_default();
        }
    }
    for plan in listed(&record.look) {
        let key = key_of(table, &plan);
        let is_known = plans.contains_key(&plan) || live.iter().any(|i| i.key == key);
        if !is_known && !is_pending(sight, &plan) && leader.store.has_tombstone(&key).await? {
            plans.insert(plan, None);
        }
    }
    Ok(plans)
}

/// The plans that the last look saw.
fn listed(look: &LookState) -> impl Iterator<Item = PlanKey> {
    let unserved = look.unserved.iter().map(|u| PlanKey { action: u.action, instant: u.instant.clone() });
    unserved.chain(look.foreign.iter().cloned())
}

/// Decides what becomes of removed `plans`. One is gone by the rule of every plan: missed twice, with the grace between,
/// whoever may execute its action. One that stands, is looked for and was not `found` removed was added again by a person.
pub(super) fn follow(
    plans: BTreeMap<PlanKey, Option<Timestamp>>,
    sight: &Sight,
    found: &BTreeSet<InstanceKey>,
    is_looked_for: impl Fn(Action) -> bool,
    table: TableId,
    grace: TimeDelta,
    now: Timestamp,
) -> Standing {
    let mut standing = Standing { removed: Vec::new(), gone: Vec::new(), look_again: None };
    for (plan, missed) in plans {
        if is_pending(sight, &plan) {
            if !is_looked_for(plan.action) || found.contains(&key_of(table, &plan)) {
                standing.removed.push(Removed { plan, missed_since: None });
            }
            continue;
        }
        // A time from before the clock was set back is no longer wait than one that begins now.
        let since = missed.map_or(now, |at| at.min(now));
        if missed.is_some() && now - since >= grace {
            standing.gone.push(plan);
            continue;
        }
        let again = since + grace;
        standing.look_again = Some(standing.look_again.map_or(again, |at| at.min(again)));
        standing.removed.push(Removed { plan, missed_since: Some(since) });
    }
    // Those beyond are not followed any more, so they stay removed for good.
    standing.removed.truncate(REMOVED_MAX);
    standing
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::path::PathRules;
    use crate::timeline::scripted::ScriptedTable;

    const GRACE: TimeDelta = TimeDelta::seconds(120);

    fn at(seconds: i64) -> Timestamp {
        chrono::DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn plan() -> PlanKey {
        PlanKey { action: Action::Clustering, instant: "20270101000000001".parse().unwrap() }
    }

    /// What becomes of one removed plan at a look, by whether it stands, is looked for, and is found removed.
    fn followed(
        missed: Option<i64>,
        stands: bool,
        is_looked_for: bool,
        is_found: bool,
        now: i64,
    ) -> Standing {
        let table = TableId::of(&PathRules::default().canonical("/lake/t").unwrap());
        let mut scripted = ScriptedTable::default();
        if stands {
            scripted.plan(plan().action, &plan().instant);
        }
        let found = if is_found { BTreeSet::from([key_of(table, &plan())]) } else { BTreeSet::new() };
        let plans = BTreeMap::from([(plan(), missed.map(at))]);
        follow(plans, &scripted.sight, &found, |_| is_looked_for, table, GRACE, at(now))
    }

    fn stays(missed: Option<i64>, look_again: Option<i64>) -> Standing {
        let removed = vec![Removed { plan: plan(), missed_since: missed.map(at) }];
        Standing { removed, gone: Vec::new(), look_again: look_again.map(at) }
    }

    #[test]
    fn a_removed_plan_is_gone_when_it_is_missed_twice_with_the_grace_between() {
        assert_eq!(followed(None, false, true, false, 1_000), stays(Some(1_000), Some(1_120)));
        assert_eq!(followed(Some(1_000), false, true, false, 1_119), stays(Some(1_000), Some(1_120)));
        let gone = followed(Some(1_000), false, true, false, 1_120);
        assert_eq!((gone.gone, gone.removed), (vec![plan()], Vec::new()));
        // Whoever may execute it.
        assert_eq!(followed(Some(1_000), false, false, false, 1_120).gone, [plan()]);
    }

    #[test]
    fn a_removed_plan_that_stands_again_begins_anew() {
        assert_eq!(followed(Some(1_000), true, true, true, 9_000), stays(None, None));
        assert_eq!(followed(Some(1_000), true, false, false, 9_000), stays(None, None));
    }

    #[test]
    fn a_plan_that_a_person_added_again_is_not_followed() {
        let added = followed(None, true, true, false, 1_000);
        assert_eq!((added.removed, added.gone), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_wait_longer_than_the_grace() {
        assert_eq!(followed(Some(900_000), false, true, false, 1_000), stays(Some(1_000), Some(1_120)));
    }
}
