//! What one look means for the instances of a table.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;

use crate::clock::Timestamp;
use crate::decision::transition::{Change, Ending};
use crate::model::action::{Action, Instant};
use crate::model::id::InstanceId;
use crate::model::instance::{Instance, InstanceKey, InstanceState, PlanSize, WaitReason};
use crate::model::policy::{Effective, LookPolicy};
use crate::model::request::Trigger;
use crate::model::table::{Damage, LookState, TableRecord, UNSERVED_MAX, Unserved};
use crate::timeline::{PlanSeen, Sight};

/// Completions by somebody else after which the action counts as not handed over.
pub const COMPLETED_BY_OTHERS_MAX: u32 = 2;
/// How long after a look that missed it a cancelled clean still counts as news: longer than a look takes to read.
const CANCEL_NOTICED: TimeDelta = TimeDelta::minutes(2);
/// Most new instances that one look makes; a table with more pending plans gets the rest at its next look.
pub const NEW_PER_LOOK_MAX: usize = 1_000;

/// All that is known when a look ends.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The table as stored.
    pub record: &'a TableRecord,
    /// Its settings.
    pub effective: &'a Effective,
    /// Its live instances.
    pub live: &'a [Instance],
    /// Ended instances of pending plans that have no live one.
    pub ended: &'a BTreeMap<InstanceKey, Instance>,
    /// Keys that a person removed while their plans stand.
    pub tombstones: &'a BTreeSet<InstanceKey>,
    /// Instants of live instances, missing on the active timeline, that the history holds as completed.
    pub in_history: &'a BTreeSet<InstanceKey>,
    /// The last clean that ended without an instant, when none is live.
    pub last_clean: Option<&'a Instance>,
    /// The timeline.
    pub sight: &'a Sight,
    /// Graces.
    pub policy: &'a LookPolicy,
    /// Touch number that was read before the look.
    pub touch: u64,
    /// When the lock file was written, when it is there.
    pub lock_since: Option<Timestamp>,
    /// Plans that were made before this may have been completed by jobs of ours that a restored store does not know.
    pub excused_until: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// What follows from a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconciled {
    /// New instances.
    pub create: Vec<Instance>,
    /// Changes of instances, with their reason.
    pub changes: Vec<(Instance, Change, String)>,
    /// What the look saw.
    pub state: LookState,
    /// When the table must be looked at again without any trigger.
    pub look_again: Option<Timestamp>,
    /// Plans of a handed-over action were completed by somebody else more than once.
    pub is_not_handed_over: bool,
    /// Plans that stand although another look is due for more of them.
    pub has_more: bool,
    /// Instances with a live attempt whose plan does not stand any more: to be judged now, whatever the engine says.
    pub contradicted: Vec<InstanceId>,
}

/// Compares a look with what is stored.
#[must_use]
pub fn reconcile(seen: &Seen<'_>) -> Reconciled {
    let mut out = Reconciled {
        create: Vec::new(),
        changes: Vec::new(),
        state: seen.record.look.clone(),
        look_again: None,
        is_not_handed_over: false,
        has_more: false,
        contradicted: Vec::new(),
    };
    out.state.looked = seen.touch;
    out.state.looked_at = Some(seen.now);
    out.state.trouble = None;
    out.state.facts = Some(seen.sight.facts.clone());
    out.state.name.clone_from(&seen.sight.name);
    out.state.database.clone_from(&seen.sight.database);
    out.state.lock_since = seen.lock_since;
    damage(seen, &mut out);
    let live_keys: BTreeSet<&InstanceKey> = seen.live.iter().map(|i| &i.key).collect();
    out.state.n_foreign_plans = 0;
    for plan in &seen.sight.pending {
        pending_plan(seen, plan, &live_keys, &mut out);
    }
    unserved(seen, &mut out);
    for instance in seen.live {
        live_instance(seen, instance, &mut out);
    }
    clean_due(seen, &mut out);
    out.is_not_handed_over = out.state.n_completed_by_others >= COMPLETED_BY_OTHERS_MAX;
    out
}

/// Two completed files for one instant are the loudest alarm; each is raised once and stays until a person acknowledges.
fn damage(seen: &Seen<'_>, out: &mut Reconciled) {
    let acknowledged = seen.record.table.acknowledged_at;
    if let Some(damage) = &out.state.damage
        && acknowledged.is_some_and(|at| at > damage.since)
    {
        out.state.damage = None;
    }
    for ((action, instant), files) in &seen.sight.completed {
        if *files < 2 || out.state.damage_seen.contains(instant) {
            continue;
        }
        out.state.damage_seen.push(instant.clone());
        let reason =
            format!("{files} completed files for the {action} {instant}: two runners executed one plan");
        out.state.damage = Some(Damage { reason, since: seen.now });
    }
    let excess = out.state.damage_seen.len().saturating_sub(UNSERVED_MAX);
    out.state.damage_seen.drain(..excess);
}

fn size_of(plan: &PlanSeen) -> PlanSize {
    plan.content.as_ref().map(|c| c.size.clone()).unwrap_or_default()
}

fn pending_plan(seen: &Seen<'_>, plan: &PlanSeen, live: &BTreeSet<&InstanceKey>, out: &mut Reconciled) {
    let key =
        InstanceKey { table: seen.record.table.id, action: plan.action, instant: Some(plan.instant.clone()) };
    if !seen.effective.actions.contains(&plan.action) {
        out.state.n_foreign_plans += 1;
        return;
    }
    // A clean is planned and executed in one job of ours; a plan of somebody else stays its writer's.
    if live.contains(&key) || seen.tombstones.contains(&key) || plan.action == Action::Clean {
        return;
    }
    match seen.ended.get(&key).map(|i| (i, &i.state)) {
        Some((instance, InstanceState::Obsolete)) => out.changes.push((
            instance.clone(),
            Change::Reopen { take_over: false },
            "the plan is pending again".to_owned(),
        )),
        Some((instance, InstanceState::Succeeded)) => {
            // Held by the damage that is noted with it.
            let reason = format!(
                "the {} {} was completed and is pending again: somebody rolled it back",
                plan.action, plan.instant
            );
            if !out.state.damage_seen.contains(&plan.instant) {
                out.state.damage_seen.push(plan.instant.clone());
                out.state.damage = Some(Damage { reason: reason.clone(), since: seen.now });
            }
            out.changes.push((instance.clone(), Change::Reopen { take_over: false }, reason));
        }
        Some(_) => {}
        None if out.create.len() >= NEW_PER_LOOK_MAX => out.has_more = true,
        None => {
            let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
            let mut instance = Instance::new(key, state, trigger(seen.record), seen.now);
            instance.plan = size_of(plan);
            dress(seen, &mut instance);
            out.create.push(instance);
        }
    }
}

/// What made the look that found a plan.
fn trigger(record: &TableRecord) -> Trigger {
    if record.touch.touch > record.look.looked {
        // Rows of older builds do not tell; nearly every touch is a callback.
        return record.touch.trigger.unwrap_or(Trigger::Callback);
    }
    if record.table.is_registered && record.look.looked_at.is_none() {
        // Registered without a touch: its first look is the registration's.
        return Trigger::Api;
    }
    Trigger::Heartbeat
}

/// Gives a new instance what its table's settings say.
fn dress(seen: &Seen<'_>, instance: &mut Instance) {
    instance.priority = seen.effective.priority;
    instance.queue.clone_from(&seen.effective.queue);
}

fn unserved(seen: &Seen<'_>, out: &mut Reconciled) {
    let before: BTreeMap<(Action, &Instant), Timestamp> =
        seen.record.look.unserved.iter().map(|u| ((u.action, &u.instant), u.since)).collect();
    out.state.unserved = seen
        .sight
        .pending
        .iter()
        .filter(|p| seen.effective.actions.contains(&p.action))
        .take(UNSERVED_MAX)
        .map(|p| Unserved {
            action: p.action,
            instant: p.instant.clone(),
            since: before.get(&(p.action, &p.instant)).copied().unwrap_or(seen.now),
        })
        .collect();
}

fn live_instance(seen: &Seen<'_>, instance: &Instance, out: &mut Reconciled) {
    let mut change = |change, reason: &str| out.changes.push((instance.clone(), change, reason.to_owned()));
    let action = instance.key.action;
    let Some(instant) = &instance.key.instant else {
        // The plan of a clean of ours appears while its driver holds leave: nothing was pending when leave was given.
        let is_ours = instance.live_attempt().is_some_and(|a| a.call_at.is_some());
        let is_free = |p: &&PlanSeen| {
            let key = InstanceKey { instant: Some(p.instant.clone()), ..instance.key.clone() };
            p.action == action && !seen.ended.contains_key(&key) && !seen.live.iter().any(|i| i.key == key)
        };
        if let (true, Some(plan)) = (is_ours, seen.sight.pending.iter().find(is_free)) {
            change(Change::TakeInstant(plan.instant.clone()), "its plan appeared on the timeline");
        } else if is_waiting_unreadable(seen, instance) {
            change(Change::Delay(WaitReason::Ready, None), "the table can be read again");
        }
        return;
    };
    if instance.takes_slot() {
        if instance.state == InstanceState::Active && seen.sight.pending(action, instant).is_none() {
            out.contradicted.push(instance.id);
        }
        return;
    }
    if let Some(plan) = seen.sight.pending(action, instant) {
        let is_handed_over = seen.effective.actions.contains(&action);
        if !is_handed_over && !instance.is_asked_for {
            change(
                Change::End(Ending::Obsolete, "the action is not handed over".to_owned()),
                "the action is not handed over",
            );
        } else if instance.state == InstanceState::Hinted || instance.plan != size_of(plan) {
            change(Change::SeenPending(size_of(plan)), "its plan stands on the timeline");
        } else if instance.missed_since.is_some() {
            change(Change::SeenAgain, "its instant is there again");
        } else if is_waiting_unreadable(seen, instance) {
            change(Change::Delay(WaitReason::Ready, None), "the table can be read again");
        }
        return;
    }
    if seen.sight.completed_files(action, instant) > 0 || seen.in_history.contains(&instance.key) {
        if instance.has_called {
            change(Change::End(Ending::Succeeded, String::new()), "completed on the timeline");
        } else {
            let is_excused = seen.excused_until.is_some_and(|until| instance.created_at <= until);
            let is_waiting = instance.state != InstanceState::Hinted && !is_excused;
            change(
                Change::End(Ending::Succeeded, String::new()),
                "completed on the timeline by somebody else",
            );
            if is_waiting {
                out.state.n_completed_by_others = out.state.n_completed_by_others.saturating_add(1);
            }
        }
        return;
    }
    missed(seen, instance, out);
}

/// Tells whether it waits only for a table that this look could read again.
fn is_waiting_unreadable(seen: &Seen<'_>, instance: &Instance) -> bool {
    seen.record.look.trouble.is_some()
        && matches!(
            instance.state,
            InstanceState::Pending { reason: WaitReason::Unreadable, not_before: Some(_) }
        )
}

/// Since when an instant is missed. The time during which the table could not be read does not count for a named one.
fn missed_since(seen: &Seen<'_>, instance: &Instance) -> Option<Timestamp> {
    // A time that a clock stored before it was set back: the grace begins now.
    let since = instance.missed_since?.min(seen.now);
    match &seen.record.look.trouble {
        Some(trouble) if instance.state == InstanceState::Hinted => {
            Some(since + (seen.now - trouble.since.max(since)))
        }
        _ => Some(since),
    }
}

/// Gone means absent twice, with a grace between, for a table that could be read.
fn missed(seen: &Seen<'_>, instance: &Instance, out: &mut Reconciled) {
    let is_hinted = instance.state == InstanceState::Hinted;
    let grace = if is_hinted { seen.policy.hint_grace } else { seen.policy.gone_grace };
    let grace = TimeDelta::from_std(grace).unwrap_or(TimeDelta::MAX);
    match missed_since(seen, instance) {
        Some(since) if seen.now - since >= grace => {
            let reason = if is_hinted {
                "the instant never appeared on the timeline"
            } else {
                "the plan is gone from the timeline"
            };
            out.changes.push((
                instance.clone(),
                Change::End(Ending::Obsolete, reason.to_owned()),
                reason.to_owned(),
            ));
        }
        since => {
            if since.is_none() || since != instance.missed_since {
                let reason = "the timeline does not show its instant".to_owned();
                out.changes.push((instance.clone(), Change::Missed(since.unwrap_or(seen.now)), reason));
            }
            let again = since.unwrap_or(seen.now) + grace;
            out.look_again = Some(out.look_again.map_or(again, |t| t.min(again)));
        }
    }
}

/// After so many completed data commits one clean, planned and executed in one job.
fn clean_due(seen: &Seen<'_>, out: &mut Reconciled) {
    let since = [seen.sight.newest_clean(), out.state.cleaned_up_to.as_ref()].into_iter().flatten().max();
    let n = seen.sight.commits.iter().filter(|c| since.is_none_or(|s| *c > s)).count();
    out.state.commits_since_clean = u32::try_from(n).unwrap_or(u32::MAX);
    let after = seen.effective.clean_after_commits;
    let has_live = seen.live.iter().any(|i| i.key.action == Action::Clean);
    let is_cancelled = seen.last_clean.is_some_and(|clean| {
        let looked_at = seen.record.look.looked_at;
        clean.state == InstanceState::Cancelled
            && looked_at.is_none_or(|at| clean.ended_at.is_some_and(|ended| ended + CANCEL_NOTICED >= at))
    });
    if let (true, Some(newest)) = (is_cancelled, seen.sight.commits.last()) {
        // Held by a person: the next one after as many further commits.
        out.state.cleaned_up_to = out.state.cleaned_up_to.clone().max(Some(newest.clone()));
        out.state.commits_since_clean = 0;
        return;
    }
    if after == 0 || out.state.commits_since_clean < after || has_live {
        return;
    }
    let key = InstanceKey { table: seen.record.table.id, action: Action::Clean, instant: None };
    if seen.tombstones.contains(&key) {
        return;
    }
    let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    let mut instance = Instance::new(key, state, Trigger::Policy, seen.now);
    dress(seen, &mut instance);
    out.create.push(instance);
}

#[cfg(test)]
mod tests;
