//! May it run? Each answer, and which of two reasons wins.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::*;
use crate::model::id::TableId;
use crate::model::instance::{InstanceKey, InstanceState};
use crate::model::path::PathRules;
use crate::model::policy::{TableDefaults, TableSettings};
use crate::model::request::Trigger;
use crate::model::table::{Damage, TableFacts, UnlockedWriter, Unserved};
use crate::timeline::{PlanContent, PlanSeen};

const T1: &str = "20270101000000001";
const T2: &str = "20270101000000002";
const T3: &str = "20270101000000003";

fn at(seconds: i64) -> Timestamp {
    chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap() + TimeDelta::seconds(seconds)
}

/// All that the check looks at, of one's own.
struct World {
    instance: Instance,
    effective: Effective,
    look: LookState,
    acknowledged_at: Option<Timestamp>,
    sight: Sight,
    real_path: Option<String>,
    is_in_history: bool,
    overtaken: Option<Overtaken>,
    sign: Option<Timestamp>,
    sign_stood: Option<Duration>,
    lock_since: Option<Timestamp>,
    unlocked_writes: Vec<String>,
}

impl World {
    fn check(&self) -> Verdict {
        check(&Asked {
            instance: &self.instance,
            effective: &self.effective,
            look: &self.look,
            acknowledged_at: self.acknowledged_at,
            sight: &self.sight,
            real_path: self.real_path.as_deref(),
            is_in_history: self.is_in_history,
            overtaken: self.overtaken.as_ref(),
            sign: self.sign,
            sign_stood: self.sign_stood,
            lock_since: self.lock_since,
            unlocked_writes: &self.unlocked_writes,
            now: at(10_000),
        })
    }

    fn parked(&self) -> ParkReason {
        match self.check() {
            Verdict::Park(reason, detail) => {
                assert!(!detail.is_empty());
                reason
            }
            other => panic!("{other:?}"),
        }
    }

    fn settings(&mut self, own: &TableSettings) {
        self.effective = TableDefaults::default().effective(own);
    }

    fn plan(&mut self, action: Action, instant: &str, is_inflight: bool) {
        self.sight.pending.push(PlanSeen {
            action,
            instant: instant.parse().unwrap(),
            is_inflight,
            content: Ok(PlanContent::default()),
        });
    }
}

/// A locked table with one pending plan of `action` at T1 that may run.
fn world(action: Action) -> World {
    let path = PathRules::default().canonical("/lake/t").unwrap();
    let key = InstanceKey { table: TableId::of(&path), action, instant: Some(T1.parse().unwrap()) };
    let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    let own = TableSettings { concurrency: Some(Concurrency::Locked), ..TableSettings::default() };
    let facts = TableFacts {
        table_version: 9,
        layout: 2,
        table_type: "MERGE_ON_READ".to_owned(),
        metadata_table: Some((9, 2)),
    };
    let mut world = World {
        instance: Instance::new(key, state, Trigger::Callback, at(0)),
        effective: TableDefaults::default().effective(&own),
        look: LookState::default(),
        acknowledged_at: None,
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
        real_path: None,
        is_in_history: false,
        overtaken: None,
        sign: None,
        sign_stood: None,
        lock_since: None,
        unlocked_writes: Vec::new(),
    };
    world.effective.actions.insert(action);
    world.plan(action, T1, false);
    world
}

#[test]
fn an_action_that_is_not_handed_over_runs_only_when_it_was_asked_for() {
    let mut back = world(Action::Clustering);
    back.effective.actions.remove(&Action::Clustering);
    back.overtaken = Some(Overtaken::No);
    assert_eq!(back.check(), Verdict::NotHandedOver);
    back.instance.is_asked_for = true;
    assert_eq!(back.check(), Verdict::Go(Expected::Requested));
}

#[test]
fn a_second_name_of_a_table_is_parked() {
    let mut linked = world(Action::Compaction);
    linked.real_path = Some("file:/mnt/lake/t".to_owned());
    assert_eq!(linked.parked(), ParkReason::PathAlias);
}

#[test]
fn silence_is_told_by_both_clocks() {
    let mut foreign = world(Action::Compaction);
    foreign.effective.take_over = TakeOver::AfterGrace;
    foreign.effective.foreign_grace = Duration::from_secs(100);
    foreign.sight.pending.clear();
    foreign.plan(Action::Compaction, T1, true);
    foreign.sign = Some(at(9_000));
    assert_eq!(foreign.check(), Verdict::Go(Expected::InflightOfOurs), "no monotonic clock here");
    foreign.sign_stood = Some(Duration::from_secs(99));
    assert_eq!(foreign.check(), Verdict::WaitForeign(Some(at(9_000))));
    foreign.sign_stood = Some(Duration::from_secs(100));
    assert_eq!(foreign.check(), Verdict::Go(Expected::InflightOfOurs));
    foreign.sign = Some(at(9_950));
    assert_eq!(foreign.check(), Verdict::WaitForeign(Some(at(9_950))), "the wall clock must agree");
}

#[test]
fn an_unlocked_writer_holds_locked_jobs_until_a_person_has_said_so() {
    let mut held = world(Action::Compaction);
    let writes = vec![T2.to_owned()];
    held.look.unlocked_writer = Some(UnlockedWriter { reason: "a write".to_owned(), since: at(5), writes });
    assert_eq!(held.parked(), ParkReason::UnlockedWriter);
    held.acknowledged_at = Some(at(6));
    assert_eq!(held.check(), Verdict::Go(Expected::Requested));
    held.unlocked_writes = vec![T2.to_owned()];
    assert_eq!(held.check(), Verdict::Go(Expected::Requested), "what a dead writer left behind was told of");
    held.unlocked_writes.push(T3.to_owned());
    assert_eq!(held.parked(), ParkReason::UnlockedWriter, "another one was not");
    held.unlocked_writes.clear();
    held.acknowledged_at = None;
    held.effective.concurrency = Some(Concurrency::Exclusive);
    assert_eq!(held.check(), Verdict::Go(Expected::Requested), "an exclusive job takes no lock");
}

#[test]
fn a_plan_with_nothing_in_its_way_runs() {
    assert_eq!(world(Action::Compaction).check(), Verdict::Go(Expected::Requested));
    let mut clustering = world(Action::Clustering);
    clustering.overtaken = Some(Overtaken::No);
    assert_eq!(clustering.check(), Verdict::Go(Expected::Requested));
}

#[test]
fn a_plan_that_is_not_there_is_completed_or_missing() {
    let mut gone = world(Action::Compaction);
    gone.sight.pending.clear();
    assert_eq!(gone.check(), Verdict::Missing);
    gone.is_in_history = true;
    assert_eq!(gone.check(), Verdict::Completed);
    gone.is_in_history = false;
    gone.sight.completed.insert((Action::Compaction, T1.parse().unwrap()), 1);
    assert_eq!(gone.check(), Verdict::Completed);
    // Of another action or another instant it proves nothing.
    gone.sight.completed.clear();
    gone.sight.completed.insert((Action::Clustering, T1.parse().unwrap()), 1);
    gone.sight.completed.insert((Action::Compaction, T2.parse().unwrap()), 1);
    assert_eq!(gone.check(), Verdict::Missing);
}

#[test]
fn a_completed_plan_is_completed_whatever_else_is_wrong() {
    let mut done = world(Action::Compaction);
    done.sight.pending.clear();
    done.is_in_history = true;
    done.sight.is_metadata_table = true;
    done.look.damage = Some(Damage { reason: "so".to_owned(), since: at(0) });
    assert_eq!(done.check(), Verdict::Completed);
}

#[test]
fn damage_holds_until_it_is_acknowledged() {
    let mut damaged = world(Action::Compaction);
    damaged.look.damage = Some(Damage { reason: "two files".to_owned(), since: at(100) });
    assert_eq!(damaged.parked(), ParkReason::DamageSuspected);
    for (acknowledged, is_held) in [(99, true), (100, true), (101, false)] {
        damaged.acknowledged_at = Some(at(acknowledged));
        assert_eq!(matches!(damaged.check(), Verdict::Park(..)), is_held, "{acknowledged}");
    }
}

#[test]
fn what_tms_must_not_touch_is_parked() {
    let mut metadata = world(Action::Compaction);
    metadata.sight.is_metadata_table = true;
    assert_eq!(metadata.parked(), ParkReason::MetadataTable);
    for version in [0, 5, 7, 10] {
        let mut other = world(Action::Compaction);
        other.sight.facts.table_version = version;
        assert_eq!(other.parked(), ParkReason::TableVersion, "{version}");
    }
    for version in TABLE_VERSIONS {
        let mut known = world(Action::Compaction);
        known.sight.facts.table_version = version;
        assert_eq!(known.check(), Verdict::Go(Expected::Requested), "{version}");
    }
    assert_eq!(world(Action::LogCompaction).parked(), ParkReason::LogCompaction);
}

#[test]
fn a_plan_that_cannot_be_trusted_is_parked() {
    let mut bad = world(Action::Compaction);
    bad.sight.pending[0].content = Err("it is cut off".to_owned());
    assert_eq!(bad.parked(), ParkReason::Unreadable);
    let content = PlanContent { outside: Some("/etc/passwd".to_owned()), ..PlanContent::default() };
    bad.sight.pending[0].content = Ok(content);
    let Verdict::Park(ParkReason::ForeignPaths, detail) = bad.check() else { panic!() };
    assert!(detail.contains("/etc/passwd"));
}

#[test]
fn a_restore_under_way_delays_everything() {
    let mut restoring = world(Action::Compaction);
    restoring.sight.upheaval = Some(T2.parse().unwrap());
    assert_eq!(restoring.check(), Verdict::Delay(WaitReason::Upheaval, at(10_030)));
}

#[test]
fn no_lock_is_parked_only_beside_a_metadata_table() {
    let mut unset = world(Action::Compaction);
    unset.settings(&TableSettings::default());
    let Verdict::Park(ParkReason::NoLock, detail) = unset.check() else { panic!() };
    assert!(detail.contains(LOCK_LINES), "with the lines to set: {detail}");
    unset.sight.facts.metadata_table = None;
    assert_eq!(unset.check(), Verdict::Go(Expected::Requested));
    let own = TableSettings { concurrency: Some(Concurrency::Exclusive), ..TableSettings::default() };
    let mut exclusive = world(Action::Compaction);
    exclusive.settings(&own);
    assert_eq!(exclusive.check(), Verdict::Go(Expected::Requested));
}

#[test]
fn a_writer_without_heartbeat_holds_a_locked_table_only() {
    let mut locked = world(Action::Compaction);
    locked.unlocked_writes = vec![T2.to_owned()];
    let Verdict::Park(ParkReason::UnlockedWriter, detail) = locked.check() else { panic!() };
    assert!(detail.contains(T2));
    let own = TableSettings { concurrency: Some(Concurrency::Exclusive), ..TableSettings::default() };
    locked.settings(&own);
    assert_eq!(locked.check(), Verdict::Go(Expected::Requested));
}

#[test]
fn a_lock_delays_from_a_minute_to_its_expiry() {
    let delayed = |age: i64, expire: Option<&str>| {
        let mut held = world(Action::Compaction);
        held.lock_since = Some(at(10_000 - age));
        if let Some(minutes) = expire {
            held.effective.hudi_options.insert(LOCK_EXPIRE_KEY.to_owned(), minutes.to_owned());
        }
        match held.check() {
            Verdict::Go(_) => None,
            Verdict::Delay(WaitReason::LockHeld, until) => Some((until - at(10_000)).num_seconds()),
            other => panic!("{other:?}"),
        }
    };
    // A file from the future is a young one: clocks differ.
    for (age, expire, expected) in [
        (-50, None, None),
        (0, None, None),
        (60, None, None),
        (61, None, Some(30)),
        (1_795, None, Some(5)),
        (1_799, None, Some(1)),
        (1_800, None, None),
        (90, Some("1"), None),
        (90, Some("2"), Some(30)),
        (90, Some("nonsense"), Some(30)),
        (90, Some("18446744073709551615"), Some(30)),
    ] {
        assert_eq!(delayed(age, expire), expected, "{age} s, expiry {expire:?}");
    }
}

#[test]
fn unknown_never_counts_as_not_overtaken() {
    let mut plan = world(Action::Clustering);
    assert_eq!(plan.parked(), ParkReason::OvertakenUnknown, "the guard was not asked");
    plan.overtaken = Some(Overtaken::Unknown { reason: "too large".to_owned() });
    assert_eq!(plan.parked(), ParkReason::OvertakenUnknown);
    plan.overtaken = Some(Overtaken::Yes { instant: T2.to_owned(), file_group: "g".to_owned() });
    assert_eq!(plan.parked(), ParkReason::Overtaken);
    // Also for an inflight of ours: running it again ends the same way.
    plan.sight.pending[0].is_inflight = true;
    plan.instance.has_called = true;
    assert_eq!(plan.parked(), ParkReason::Overtaken);
}

/// A foreign `inflight` with its last sign of life `silence` seconds ago.
fn foreign(silence: Option<i64>, take_over: TakeOver) -> World {
    let mut foreign = world(Action::Compaction);
    foreign.sight.pending[0].is_inflight = true;
    foreign.sign = silence.map(|s| at(10_000 - s));
    foreign.settings(&TableSettings {
        concurrency: Some(Concurrency::Locked),
        take_over: Some(take_over),
        foreign_grace_secs: Some(600),
        ..TableSettings::default()
    });
    foreign
}

#[test]
fn a_foreign_runner_is_waited_for_until_it_was_silent_for_the_grace() {
    for (silence, take_over) in
        [(0, TakeOver::Ask), (599, TakeOver::Ask), (599, TakeOver::AfterGrace), (-5, TakeOver::Ask)]
    {
        let waiting = foreign(Some(silence), take_over);
        assert_eq!(waiting.check(), Verdict::WaitForeign(Some(at(10_000 - silence))));
    }
    assert_eq!(foreign(Some(600), TakeOver::Ask).parked(), ParkReason::ForeignRunner);
    assert_eq!(foreign(Some(600), TakeOver::AfterGrace).check(), Verdict::Go(Expected::InflightOfOurs));
}

#[test]
fn without_any_sign_the_wait_counts_from_our_first_sight_of_the_plan() {
    let mut silent = foreign(None, TakeOver::Ask);
    assert_eq!(silent.check(), Verdict::WaitForeign(None));
    let seen = |instant: &str, since| Unserved {
        action: Action::Compaction,
        instant: instant.parse().unwrap(),
        since,
    };
    silent.look.unserved = vec![seen(T2, at(0)), seen(T1, at(9_500))];
    assert_eq!(silent.check(), Verdict::WaitForeign(None));
    silent.look.unserved[1].since = at(9_400);
    assert_eq!(silent.parked(), ParkReason::ForeignRunner);
    // A sign of life counts more than our first sight.
    silent.sign = Some(at(9_900));
    assert_eq!(silent.check(), Verdict::WaitForeign(Some(at(9_900))));
}

#[test]
fn an_inflight_of_ours_or_one_that_a_person_gave_us_runs_at_once() {
    for (has_called, take_over) in [(true, false), (false, true)] {
        let mut ours = foreign(Some(0), TakeOver::Ask);
        ours.instance.has_called = has_called;
        ours.instance.take_over = take_over;
        assert_eq!(ours.check(), Verdict::Go(Expected::InflightOfOurs));
    }
}

/// A clean without an instant, and no plan on the timeline.
fn next_clean() -> World {
    let mut clean = world(Action::Clean);
    clean.sight.pending.clear();
    clean.instance.key.instant = None;
    clean
}

#[test]
fn a_clean_runs_only_while_no_other_clean_is_pending() {
    let mut clean = next_clean();
    assert_eq!(clean.check(), Verdict::Go(Expected::None));
    clean.plan(Action::Compaction, T1, true);
    assert_eq!(clean.check(), Verdict::Go(Expected::None), "the plan of another action");
    clean.plan(Action::Clean, T2, false);
    assert_eq!(clean.check(), Verdict::WaitForeign(None));
    clean.sign = Some(at(9_999));
    assert_eq!(clean.check(), Verdict::WaitForeign(Some(at(9_999))));
    clean.instance.has_called = true;
    assert_eq!(
        clean.check(),
        Verdict::WaitForeign(Some(at(9_999))),
        "it has no instant, so no plan is its own"
    );
    clean.instance.take_over = true;
    assert_eq!(clean.check(), Verdict::Go(Expected::InflightOfOurs));
    let named = |world: &World| {
        taken_over_clean(&world.instance, Expected::InflightOfOurs, &world.sight).map(ToString::to_string)
    };
    assert_eq!(named(&clean).as_deref(), Some(T2), "the job is told which one");
    assert_eq!(taken_over_clean(&clean.instance, Expected::None, &clean.sight), None);
    clean.plan(Action::Clean, T3, false);
    assert!(
        matches!(clean.check(), Verdict::Park(ParkReason::ForeignRunner, why) if why.contains(T2) && why.contains(T3)),
        "one call would execute both, and leave names one"
    );
    clean.instance.key.instant = Some(T1.parse().unwrap());
    assert_eq!(named(&clean), None, "it has its own");
}

#[test]
fn a_clean_runs_its_own_plan_again_but_not_beside_a_foreign_one() {
    let mut clean = world(Action::Clean);
    assert_eq!(clean.check(), Verdict::WaitForeign(None), "nobody told it to make its call");
    clean.instance.has_called = true;
    assert_eq!(clean.check(), Verdict::Go(Expected::InflightOfOurs));
    clean.plan(Action::Clean, T2, true);
    clean.sign = Some(at(9_999));
    assert_eq!(clean.check(), Verdict::WaitForeign(Some(at(9_999))));
}

#[test]
fn what_a_person_allowed_says_nothing_of_a_runner_that_comes_later() {
    let mut allowed = foreign(Some(100), TakeOver::Ask);
    allowed.instance.take_over = true;
    allowed.instance.take_over_at = Some(at(9_900));
    assert_eq!(allowed.check(), Verdict::Go(Expected::InflightOfOurs));
    allowed.sign = Some(at(9_911));
    assert_eq!(allowed.check(), Verdict::WaitForeign(Some(at(9_911))));
    allowed.instance.take_over_at = Some(at(9_950));
    assert_eq!(allowed.check(), Verdict::Go(Expected::InflightOfOurs), "allowed again");

    let mut clean = next_clean();
    clean.plan(Action::Clean, T2, true);
    clean.instance.take_over = true;
    clean.instance.take_over_at = Some(at(9_000));
    clean.sign = Some(at(8_000));
    assert_eq!(clean.check(), Verdict::Go(Expected::InflightOfOurs));
    clean.sign = Some(at(9_990));
    assert_eq!(clean.check(), Verdict::WaitForeign(Some(at(9_990))));
}
