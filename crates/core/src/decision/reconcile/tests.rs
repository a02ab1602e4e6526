//! What one look means, case by case.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use super::*;
use crate::model::attempt::{Attempt, AttemptState, Expected, Holder, Launcher};
use crate::model::id::{Incarnation, TableId, Tag, Term, Version};
use crate::model::path::PathRules;
use crate::model::policy::{TableDefaults, TableSettings};
use crate::model::table::{LookTrouble, Table, TableFacts, Touch};
use crate::timeline::PlanContent;

const T1: &str = "20270101000000001";
const T2: &str = "20270101000000002";
const NOW: i64 = 100_000;

fn at(seconds: i64) -> Timestamp {
    chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap() + TimeDelta::seconds(seconds)
}

/// All that is known when a look ends, of one's own.
struct World {
    record: TableRecord,
    own: TableSettings,
    live: Vec<Instance>,
    ended: BTreeMap<InstanceKey, Instance>,
    tombstones: BTreeSet<InstanceKey>,
    in_history: BTreeSet<InstanceKey>,
    last_clean: Option<Instance>,
    sight: Sight,
    lock_since: Option<Timestamp>,
    excused_until: Option<Timestamp>,
}

fn world() -> World {
    let path = PathRules::default().canonical("/lake/t").unwrap();
    let table = Table {
        id: TableId::of(&path),
        base_path: path,
        is_registered: false,
        settings: TableSettings::default(),
        acknowledged_at: None,
        created_at: at(0),
        version: Version(1),
    };
    let facts = TableFacts {
        table_version: 9,
        layout: 2,
        table_type: "MERGE_ON_READ".to_owned(),
        metadata_table: None,
    };
    World {
        record: TableRecord {
            table,
            touch: Touch { touch: 7, ..Touch::default() },
            look: LookState::default(),
        },
        own: TableSettings::default(),
        live: Vec::new(),
        ended: BTreeMap::new(),
        tombstones: BTreeSet::new(),
        in_history: BTreeSet::new(),
        last_clean: None,
        sight: Sight {
            facts,
            name: None,
            database: None,
            is_metadata_table: false,
            pending: Vec::new(),
            completed: BTreeMap::new(),
            commits: Vec::new(),
            upheaval: None,
        },
        lock_since: None,
        excused_until: None,
    }
}

impl World {
    fn look(&self) -> Reconciled {
        let effective = TableDefaults::default().effective(&self.own);
        reconcile(&Seen {
            record: &self.record,
            effective: &effective,
            live: &self.live,
            ended: &self.ended,
            tombstones: &self.tombstones,
            in_history: &self.in_history,
            last_clean: self.last_clean.as_ref(),
            sight: &self.sight,
            policy: &LookPolicy {
                gone_grace: Duration::from_secs(120),
                hint_grace: Duration::from_secs(600),
                ..LookPolicy::default()
            },
            touch: 7,
            lock_since: self.lock_since,
            excused_until: self.excused_until,
            now: at(NOW),
        })
    }

    fn key(&self, action: Action, instant: &str) -> InstanceKey {
        InstanceKey { table: self.record.table.id, action, instant: Some(instant.parse().unwrap()) }
    }

    fn plan(&mut self, action: Action, instant: &str) {
        self.sight.pending.push(PlanSeen {
            action,
            instant: instant.parse().unwrap(),
            is_inflight: false,
            content: Ok(PlanContent::default()),
        });
    }

    fn complete(&mut self, action: Action, instant: &str, files: u32) {
        self.sight.completed.insert((action, instant.parse().unwrap()), files);
    }

    fn has(&mut self, action: Action, instant: &str, state: InstanceState) -> &mut Instance {
        let key = self.key(action, instant);
        self.live.push(Instance::new(key, state, Trigger::Callback, at(0)));
        self.live.last_mut().unwrap()
    }

    fn ended(&mut self, action: Action, instant: &str, state: InstanceState) {
        let key = self.key(action, instant);
        self.ended.insert(key.clone(), Instance::new(key, state, Trigger::Callback, at(0)));
    }

    fn commits(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let instant = |n: u32| format!("2027010200000{n:04}").parse().unwrap();
        self.sight.commits.extend(numbers.into_iter().map(instant));
    }
}

fn pending() -> InstanceState {
    InstanceState::Pending { reason: WaitReason::Ready, not_before: None }
}

fn holding(of: &Instance, has_called: bool) -> Attempt {
    Attempt {
        number: 1,
        tag: Tag::of(&Incarnation("0123abcd".to_owned()), of.id, 1),
        engine: "default".parse().unwrap(),
        launcher: Launcher::Procedure,
        state: AttemptState::Holding,
        holder: Holder::Run(format!("{:032x}", 1).parse().unwrap()),
        holder_place: None,
        term: Term(1),
        token_hash: String::new(),
        handle: None,
        expected: Expected::Requested,
        takes: None,
        versions: None,
        baseline: None,
        rollbacks_before: None,
        intended_at: at(0),
        called_at: Some(at(0)),
        accepted_at: None,
        leave_at: Some(at(0)),
        call_at: has_called.then(|| at(0)),
        heard_at: None,
        ended_at: None,
        over_at: None,
        proof: None,
        engine_word: None,
        progress: None,
        report: None,
        end: None,
        n_kills: 0,
        is_restored: false,
    }
}

fn changes(found: &Reconciled) -> Vec<&Change> {
    found.changes.iter().map(|(_, change, _)| change).collect()
}

fn trouble(since: i64) -> LookTrouble {
    LookTrouble { error: "away".to_owned(), n_failed: 3, not_before: at(NOW), since: at(since) }
}

#[test]
fn a_look_covers_the_touch_that_was_read_before_it() {
    let mut world = world();
    world.record.touch.touch = 9;
    world.record.look.trouble = Some(trouble(1));
    let state = world.look().state;
    assert_eq!((state.looked, state.looked_at, state.trouble), (7, Some(at(NOW)), None));
}

#[test]
fn a_handed_over_plan_becomes_one_pending_instance() {
    let mut world = world();
    world.own.priority = Some(3);
    world.plan(Action::Compaction, T1);
    world.plan(Action::Clustering, T2);
    let found = world.look();
    assert_eq!(found.create.len(), 2);
    assert!(found.create.iter().all(|i| i.state == pending() && i.priority == 3));
    assert_eq!(found.state.unserved.len(), 2);
    // Those that live already are not made again.
    world.live = found.create;
    assert!(world.look().create.is_empty());
}

#[test]
fn a_plan_that_was_not_handed_over_is_counted_and_left_alone() {
    let mut world = world();
    world.plan(Action::LogCompaction, T1);
    world.plan(Action::Clean, T2);
    let found = world.look();
    assert_eq!((found.create.len(), found.state.n_foreign_plans, found.state.unserved.len()), (0, 2, 0));
}

#[test]
fn a_removed_or_cancelled_or_failed_plan_stays_what_it_is_and_is_shown() {
    let mut world = world();
    world.plan(Action::Compaction, T1);
    let key = world.key(Action::Compaction, T1);
    world.tombstones.insert(key);
    let found = world.look();
    assert_eq!((found.create.len(), found.changes.len(), found.state.unserved.len()), (0, 0, 1));
    world.tombstones.clear();
    for state in [InstanceState::Cancelled, InstanceState::Failed] {
        world.ended(Action::Compaction, T1, state);
        let found = world.look();
        assert_eq!((found.create.len(), found.changes.len(), found.state.unserved.len()), (0, 0, 1));
    }
}

#[test]
fn a_plan_that_is_pending_again_reopens_its_instance() {
    for state in [InstanceState::Obsolete, InstanceState::Succeeded] {
        let mut world = world();
        world.plan(Action::Compaction, T1);
        world.ended(Action::Compaction, T1, state);
        let found = world.look();
        assert!(found.create.is_empty());
        assert_eq!(changes(&found), [&Change::Reopen { take_over: false }]);
    }
}

#[test]
fn the_age_of_an_unserved_plan_counts_from_its_first_look() {
    let mut world = world();
    world.plan(Action::Compaction, T1);
    world.record.look.unserved =
        vec![Unserved { action: Action::Compaction, instant: T1.parse().unwrap(), since: at(5) }];
    assert_eq!(world.look().state.unserved[0].since, at(5));
}

#[test]
fn so_many_new_plans_are_taken_at_once_and_no_more() {
    let mut world = world();
    for n in 0..NEW_PER_LOOK_MAX + 5 {
        world.plan(Action::Compaction, &format!("2027010100{n:07}"));
    }
    let found = world.look();
    assert_eq!((found.create.len(), found.has_more), (NEW_PER_LOOK_MAX, true));
    assert_eq!(found.state.unserved.len(), UNSERVED_MAX);
}

#[test]
fn a_hinted_instance_takes_its_plan() {
    let mut world = world();
    world.plan(Action::Compaction, T1);
    world.has(Action::Compaction, T1, InstanceState::Hinted);
    assert!(matches!(changes(&world.look())[..], [Change::SeenPending(_)]));
}

#[test]
fn an_action_that_is_not_handed_over_any_more_ends_what_waits_unless_a_person_asked_for_it() {
    let mut world = world();
    world.own.actions = Some([Action::Clustering].into());
    world.plan(Action::Compaction, T1);
    world.has(Action::Compaction, T1, pending());
    assert!(matches!(changes(&world.look())[..], [Change::End(Ending::Obsolete, _)]));
    // Found by a look that a person asked for: nobody named this very instance.
    world.live[0].trigger = Trigger::Api;
    assert!(matches!(changes(&world.look())[..], [Change::End(Ending::Obsolete, _)]));
    world.live[0].is_asked_for = true;
    assert!(world.look().changes.is_empty());
}

#[test]
fn a_plan_is_told_by_what_made_the_look_that_found_it() {
    let told_by = |world: &World| world.look().create[0].trigger;
    let mut world = world();
    world.plan(Action::Compaction, T1);
    assert_eq!(told_by(&world), Trigger::Callback, "a row of an older build");
    for trigger in [Trigger::Callback, Trigger::Client, Trigger::Api] {
        world.record.touch.trigger = Some(trigger);
        assert_eq!(told_by(&world), trigger);
    }
    world.record.look.looked = 7;
    assert_eq!(told_by(&world), Trigger::Heartbeat);
    world.record.table.is_registered = true;
    assert_eq!(told_by(&world), Trigger::Api, "the first look of a registration");
    world.record.look.looked_at = Some(at(0));
    assert_eq!(told_by(&world), Trigger::Heartbeat);
}

#[test]
fn a_table_that_nobody_announced_has_the_name_of_its_properties() {
    let mut world = world();
    world.sight.name = Some("trips".to_owned());
    world.sight.database = Some("lake".to_owned());
    world.record.look = world.look().state;
    assert_eq!((world.record.name(), world.record.database()), (Some("trips"), Some("lake")));
    world.record.touch.name = Some("announced".to_owned());
    assert_eq!((world.record.name(), world.record.database()), (Some("announced"), Some("lake")));
}

#[test]
fn an_instant_that_is_missed_is_gone_only_after_its_grace() {
    for (state, grace) in [(pending(), 120), (InstanceState::Hinted, 600)] {
        let mut world = world();
        world.has(Action::Compaction, T1, state);
        let first = world.look();
        assert_eq!(changes(&first), [&Change::Missed(at(NOW))]);
        assert_eq!(first.look_again, Some(at(NOW + grace)));
        world.live[0].missed_since = Some(at(NOW - grace + 1));
        let second = world.look();
        assert!(second.changes.is_empty());
        assert_eq!(second.look_again, Some(at(NOW + 1)));
        world.live[0].missed_since = Some(at(NOW - grace));
        assert!(matches!(changes(&world.look())[..], [Change::End(Ending::Obsolete, _)]));
    }
}

#[test]
fn an_instant_that_is_there_again_is_not_missed_any_more() {
    let mut world = world();
    world.plan(Action::Compaction, T1);
    world.has(Action::Compaction, T1, pending()).missed_since = Some(at(0));
    assert_eq!(changes(&world.look()), [&Change::SeenAgain]);
}

/// Counted while the table can be read.
#[test]
fn the_grace_of_a_hint_stands_still_while_the_table_is_unreadable() {
    let mut world = world();
    world.has(Action::Compaction, T1, InstanceState::Hinted).missed_since = Some(at(NOW - 5_300));
    world.record.look.trouble = Some(trouble(NOW - 5_000));
    let found = world.look();
    assert_eq!(changes(&found), [&Change::Missed(at(NOW - 300))], "five minutes before the trouble");
    assert_eq!(found.look_again, Some(at(NOW + 300)));
    // In trouble since before it was first missed: nothing has counted yet.
    world.record.look.trouble = Some(trouble(NOW - 9_000));
    assert_eq!(changes(&world.look()), [&Change::Missed(at(NOW))]);
}

#[test]
fn a_waiting_plan_that_somebody_else_completed_is_a_success_and_counted() {
    for is_archived in [false, true] {
        let mut world = world();
        world.has(Action::Compaction, T1, pending());
        if is_archived {
            let key = world.key(Action::Compaction, T1);
            world.in_history.insert(key);
        } else {
            world.complete(Action::Compaction, T1, 1);
        }
        let found = world.look();
        assert!(matches!(changes(&found)[..], [Change::End(Ending::Succeeded, _)]));
        assert_eq!((found.state.n_completed_by_others, found.is_not_handed_over), (1, false));
        world.record.look.n_completed_by_others = 1;
        assert!(world.look().is_not_handed_over, "more than once");
    }
}

#[test]
fn what_an_attempt_of_ours_may_have_completed_is_not_counted() {
    let mut world = world();
    world.complete(Action::Compaction, T1, 1);
    world.has(Action::Compaction, T1, pending()).has_called = true;
    let found = world.look();
    assert!(matches!(changes(&found)[..], [Change::End(Ending::Succeeded, _)]));
    assert_eq!(found.state.n_completed_by_others, 0);
    world.live.clear();
    world.has(Action::Compaction, T1, InstanceState::Hinted);
    assert_eq!(world.look().state.n_completed_by_others, 0, "a late hint was about to run nothing");
}

#[test]
fn a_live_attempt_whose_plan_does_not_stand_is_to_be_judged() {
    let mut world = world();
    let one = world.has(Action::Compaction, T1, InstanceState::Active);
    one.attempt = Some(Box::new(holding(one, true)));
    let id = one.id;
    let found = world.look();
    assert_eq!((found.contradicted, found.changes.len()), (vec![id], 0), "the monitor judges attempts");
    world.plan(Action::Compaction, T1);
    assert!(world.look().contradicted.is_empty());
}

#[test]
fn two_completed_files_are_damage_once() {
    let mut world = world();
    world.complete(Action::Compaction, T1, 1);
    assert_eq!(world.look().state.damage, None);
    world.complete(Action::Compaction, T1, 2);
    let found = world.look();
    assert!(found.state.damage.as_ref().unwrap().reason.contains(T1));
    world.record.look = found.state;
    // It stands until somebody acknowledges, and does not come back then.
    assert!(world.look().state.damage.is_some());
    for (acknowledged, stands) in [(NOW - 1, true), (NOW, true), (NOW + 1, false)] {
        world.record.table.acknowledged_at = Some(at(acknowledged));
        assert_eq!(world.look().state.damage.is_some(), stands, "{acknowledged}");
    }
    world.complete(Action::Clustering, T2, 3);
    assert!(world.look().state.damage.unwrap().reason.contains(T2), "another instant is another alarm");
}

#[test]
fn what_waited_only_for_the_table_goes_on_when_it_can_be_read() {
    let unreadable =
        InstanceState::Pending { reason: WaitReason::Unreadable, not_before: Some(at(NOW + 500)) };
    let mut world = world();
    world.plan(Action::Compaction, T1);
    world.has(Action::Compaction, T1, unreadable);
    assert!(world.look().changes.is_empty(), "it was not the table");
    world.record.look.trouble = Some(trouble(NOW - 60));
    assert_eq!(changes(&world.look()), [&Change::Delay(WaitReason::Ready, None)]);
    let mut backing_off = world.live[0].clone();
    backing_off.state =
        InstanceState::Pending { reason: WaitReason::Backoff, not_before: Some(at(NOW + 500)) };
    world.live = vec![backing_off];
    assert!(world.look().changes.is_empty());
}

fn cleaning() -> World {
    let mut world = world();
    world.own.clean_after_commits = Some(3);
    world
}

#[test]
fn a_clean_is_due_after_so_many_commits() {
    let mut world = cleaning();
    world.commits(1..=2);
    let found = world.look();
    assert_eq!((found.create.len(), found.state.commits_since_clean), (0, 2));
    world.commits(3..=4);
    let found = world.look();
    assert_eq!((found.create.len(), found.state.commits_since_clean), (1, 4));
    let clean = &found.create[0];
    assert_eq!(
        (clean.key.action, &clean.key.instant, clean.trigger),
        (Action::Clean, &None, Trigger::Policy)
    );
    world.live = found.create;
    assert!(world.look().create.is_empty(), "one is live");
}

#[test]
fn commits_are_counted_from_the_newest_clean_of_anybody() {
    let mut world = cleaning();
    world.commits(1..=5);
    world.complete(Action::Clean, "20270102000000003", 1);
    assert_eq!(world.look().state.commits_since_clean, 2);
    // A clean that found nothing left no instant; the commits that it saw are remembered.
    world.record.look.cleaned_up_to = Some("20270102000000004".parse().unwrap());
    assert_eq!(world.look().state.commits_since_clean, 1);
}

#[test]
fn a_table_that_hands_no_clean_over_gets_none() {
    let mut world = world();
    world.commits(1..=50);
    assert!(world.look().create.is_empty());
}

#[test]
fn a_cancelled_clean_counts_its_commits_as_cleaned() {
    let mut world = cleaning();
    world.commits(1..=3);
    let key = InstanceKey { table: world.record.table.id, action: Action::Clean, instant: None };
    let mut cancelled = Instance::new(key, InstanceState::Cancelled, Trigger::Policy, at(0));
    cancelled.ended_at = Some(at(NOW - 10));
    world.last_clean = Some(cancelled);
    world.record.look.looked_at = Some(at(NOW - 20));
    let found = world.look();
    assert!(found.create.is_empty());
    assert_eq!(found.state.cleaned_up_to, world.sight.commits.last().cloned());
    // Later looks count from there.
    world.record.look = found.state;
    world.record.look.looked_at = Some(at(NOW + 1_000));
    world.commits(4..=6);
    assert_eq!(world.look().create.len(), 1);
    world.last_clean.as_mut().unwrap().state = InstanceState::Succeeded;
    assert_eq!(world.look().create.len(), 1);
}

#[test]
fn a_clean_of_ours_takes_the_instant_that_appears_while_it_runs() {
    let mut world = cleaning();
    let key = InstanceKey { table: world.record.table.id, action: Action::Clean, instant: None };
    let mut clean = Instance::new(key, InstanceState::Active, Trigger::Policy, at(0));
    clean.attempt = Some(Box::new(holding(&clean, false)));
    world.live = vec![clean];
    world.plan(Action::Clean, T1);
    assert!(world.look().changes.is_empty(), "it was not told to make its call: the plan is somebody else's");
    world.live[0].attempt = Some(Box::new(holding(&world.live[0], true)));
    assert_eq!(changes(&world.look()), [&Change::TakeInstant(T1.parse().unwrap())]);
    // An instant that a row has already would make every look of the table fail.
    world.ended(Action::Clean, T1, InstanceState::Obsolete);
    assert!(world.look().changes.is_empty());
}

#[test]
fn a_clean_plan_of_somebody_else_becomes_no_instance() {
    let mut world = cleaning();
    world.plan(Action::Clean, T1);
    let found = world.look();
    assert_eq!((found.create.len(), found.state.n_foreign_plans, found.state.unserved.len()), (0, 0, 1));
}
