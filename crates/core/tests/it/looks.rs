//! Looks: by level, by due time, and what cannot be read.

use std::time::Duration;

use chrono::TimeDelta;
use tms_core::alert::AlertKind;
use tms_core::clock::Clock;
use tms_core::manager::table::RegisterTable;
use tms_core::model::action::Action;
use tms_core::model::instance::{InstanceState, ParkReason, WaitReason};
use tms_core::model::policy::TableSettings;
use tms_core::store::{Intent, RequestStore};
use tms_core::timeline::{Overtaken, PlanContent};

use crate::rig::{Rig, T1, T2, instant, run_id};

/// The callback comes while the table is being read: what it announces is found by another look.
#[tokio::test(start_paused = true)]
async fn a_callback_during_a_look_causes_another_look() {
    let rig = Rig::start().await;
    rig.callback("t").await;
    rig.pass(1).await;
    rig.looks.set_delay(Duration::from_secs(10));
    rig.callback("t").await;
    rig.pass(5).await;
    // The look began before this plan.
    let before = rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.n_looks
    });
    rig.callback("t").await;
    rig.pass(30).await;
    assert!(rig.find(&Rig::key("t", Action::Compaction, T1)).await.is_some());
    assert!(rig.table("t", |t| t.n_looks) > before);
    let record = rig.record("t").await;
    assert_eq!(record.look.looked, record.touch.touch);
    rig.stop().await;
}

/// Signals only make things faster: a touch of which nobody told the leader is found by the scan.
#[tokio::test(start_paused = true)]
async fn a_lost_signal_is_repaired_by_level() {
    let rig = Rig::start().await;
    rig.callback("t").await;
    rig.pass(5).await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    let record = rig.record("t").await;
    let silent = tms_core::model::request::HandOver {
        base_path: record.table.base_path.clone(),
        spelling: record.spelling().to_owned(),
        database: None,
        table_name: None,
        hints: Vec::new(),
        queue: None,
        execution_engine: None,
        trigger: tms_core::model::request::Trigger::Callback,
        at: rig.clock.now(),
        touch: true,
    };
    RequestStore::accept(&*rig.store, &[silent]).await.unwrap();
    rig.pass(rig.policies.look.scan_every.as_secs() + 5).await;
    assert!(rig.find(&Rig::key("t", Action::Compaction, T1)).await.is_some());
    rig.stop().await;
}

/// No callback ever: the heartbeat looks at a silent table.
#[tokio::test(start_paused = true)]
async fn a_silent_table_is_looked_at_once_per_time_out() {
    let mut rig = Rig::start().await;
    rig.callback("t").await;
    rig.pass(5).await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    let n_before = rig.table("t", |t| t.n_looks);
    rig.pass(3500).await;
    assert_eq!(rig.table("t", |t| t.n_looks), n_before, "it is not silent for long enough");
    rig.pass(500).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_attempt(&key, "accepted").await;
    // After a restart too.
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.crash().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T2)));
    rig.pass(4100).await;
    assert!(rig.find(&Rig::key("t", Action::Compaction, T2)).await.is_some());
    rig.stop().await;
}

/// How long a table may be silent is what the policy says.
#[tokio::test(start_paused = true)]
async fn a_silent_table_is_looked_at_sooner_when_its_time_out_is_shorter() {
    let rig =
        Rig::start_with(|s| s.policies.look.heartbeat_timeout = std::time::Duration::from_secs(300)).await;
    rig.callback("t").await;
    rig.pass(5).await;
    let n_before = rig.table("t", |t| t.n_looks);
    rig.pass(290).await;
    assert_eq!(rig.table("t", |t| t.n_looks), n_before, "it is not silent for long enough");
    // A tenth is the spread of tables among each other.
    rig.pass(40).await;
    assert_eq!(rig.table("t", |t| t.n_looks), n_before + 1);
    rig.pass(290).await;
    assert_eq!(rig.table("t", |t| t.n_looks), n_before + 1, "a look is a sign too");
    rig.stop().await;
}

/// A table that cannot be read gets a growing back-off, nothing is concluded, and the others go on.
#[tokio::test(start_paused = true)]
async fn an_unreadable_table_backs_off_alone() {
    let rig = Rig::start().await;
    rig.table("bad", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.is_unreadable = true;
    });
    rig.callback("bad").await;
    rig.planned("good", Action::Compaction, T1).await;
    let job = rig.begun(1, "good", Action::Compaction, T1).await;
    rig.pass(30).await;
    let early = rig.record("bad").await.look.trouble.unwrap();
    assert!(early.n_failed >= 3 && early.error.contains("/lake/bad"), "{early:?}");
    assert!(rig.alerts.stands(AlertKind::TableUnreadable));
    // Callbacks do not shorten the back-off.
    for _ in 0..60 {
        rig.callback("bad").await;
        rig.pass(60).await;
    }
    let late = rig.record("bad").await.look.trouble.unwrap();
    assert!(late.not_before - rig.clock.now() <= TimeDelta::seconds(600));
    assert_eq!(late.since, early.since);
    let n_looks = rig.table("bad", |t| t.n_looks);
    assert!((9..25).contains(&n_looks), "{n_looks} looks in an hour");
    rig.completes(&job, 1, "good", Action::Compaction, T1).await;
    rig.until_state(&Rig::key("good", Action::Compaction, T1), "succeeded").await;
    rig.table("bad", |t| t.is_unreadable = false);
    rig.job(2).await;
    let record = rig.record("bad").await;
    assert_eq!((record.look.trouble, record.look.looked), (None, record.touch.touch));
    assert!(!rig.alerts.stands(AlertKind::TableUnreadable));
    rig.stop().await;
}

/// No verdict in any column while the timeline cannot be read. An attempt that ended waits for it a while, and then only its
/// instance does.
#[tokio::test(start_paused = true)]
async fn an_attempt_on_an_unreadable_table_gets_no_verdict() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| {
        t.complete(Action::Compaction, &instant(T1));
        t.is_unreadable = true;
    });
    rig.ends(&job, 1, "returned", 0, &[]).await;
    rig.pass(240).await;
    let now = rig.find(&key).await.unwrap();
    assert!(now.takes_slot() && now.state == InstanceState::Active, "{now:?}");
    rig.pass(3360).await;
    let now = rig.find(&key).await.unwrap();
    assert!(!now.takes_slot() && !now.state.is_ended(), "{now:?}");
    assert!(rig.record("t").await.look.trouble.is_some(), "it is shown");
    let n_looks = rig.table("t", |t| t.n_looks);
    assert!(n_looks < 60, "{n_looks} looks in an hour");
    rig.table("t", |t| t.is_unreadable = false);
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_instance_of_an_unreadable_table_waits_and_goes_on_when_it_can_be_read() {
    let rig = Rig::start().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.until_state(&key, "pending").await;
    rig.table("t", |t| t.is_unreadable = true);
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(3600).await;
    let waiting = rig.find(&key).await.unwrap();
    let reason = WaitReason::Unreadable;
    assert!(matches!(waiting.state, InstanceState::Pending { reason: r, .. } if r == reason), "{waiting:?}");
    let n_looks = rig.table("t", |t| t.n_looks);
    assert!(n_looks < 30, "{n_looks} looks in an hour");
    assert!(rig.record("t").await.look.trouble.is_some(), "it is shown");
    rig.table("t", |t| t.is_unreadable = false);
    let since = rig.clock_secs();
    rig.job(1).await;
    assert!(rig.clock_secs() - since < 610, "it goes on with the first look that can read the table");
    rig.stop().await;
}

/// What another node asks for is stored; it is carried out although nobody signalled it.
#[tokio::test(start_paused = true)]
async fn a_stored_wish_is_carried_out_without_a_signal() {
    let rig = Rig::start().await;
    rig.callback("t").await;
    rig.pass(5).await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.store.put_intent(Intent::Look(Rig::id("t"))).await.unwrap();
    rig.pass(61).await;
    assert!(rig.find(&Rig::key("t", Action::Compaction, T1)).await.is_some());
    rig.stop().await;
}

/// Plans do vanish in normal life: gone is absent twice, with the grace between.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_gone_twice_is_obsolete_and_reopened_when_it_returns() {
    let rig = Rig::start().await;
    let first = rig.planned("t", Action::Compaction, T1).await;
    let key = rig.planned("t", Action::Clustering, T2).await;
    let job = rig.job(1).await;
    let waits = if attempt_of(&rig, &first).await { &key } else { &first };
    let (action, text) = if *waits == key { (Action::Clustering, T2) } else { (Action::Compaction, T1) };
    rig.table("t", |t| t.roll_back(action, &instant(text)));
    rig.callback("t").await;
    rig.pass(60).await;
    assert_eq!(rig.find(waits).await.unwrap().state.as_str(), "pending", "once is not enough");
    // It comes back within the grace.
    rig.table("t", |t| t.plan(action, &instant(text)));
    rig.callback("t").await;
    rig.pass(300).await;
    let waiting = rig.find(waits).await.unwrap();
    assert_eq!((waiting.state.as_str(), waiting.missed_since), ("pending", None));
    rig.table("t", |t| t.roll_back(action, &instant(text)));
    rig.callback("t").await;
    rig.until_state(waits, "obsolete").await;
    rig.table("t", |t| t.plan(action, &instant(text)));
    rig.callback("t").await;
    let again = rig.until_state(waits, "pending").await;
    assert_eq!(again.id, waiting.id);
    drop(job);
    rig.stop().await;
}

async fn attempt_of(rig: &Rig, key: &tms_core::model::instance::InstanceKey) -> bool {
    rig.find(key).await.is_some_and(|i| i.takes_slot())
}

/// Unreadable looks are no misses.
#[tokio::test(start_paused = true)]
async fn a_plan_is_not_gone_while_its_table_cannot_be_read() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Clustering, T1).await;
    let key = rig.planned("t", Action::Compaction, T2).await;
    rig.job(1).await;
    rig.until_state(&key, "pending").await;
    rig.table("t", |t| {
        t.roll_back(Action::Compaction, &instant(T2));
        t.is_unreadable = true;
    });
    rig.callback("t").await;
    rig.pass(1500).await;
    let waiting = rig.find(&key).await.unwrap();
    assert_eq!((waiting.state.as_str(), waiting.missed_since), ("pending", None));
    rig.table("t", |t| t.is_unreadable = false);
    rig.until_state(&key, "obsolete").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instant_that_was_named_before_its_commit_is_hinted_and_then_pending() {
    let rig = Rig::start().await;
    rig.hand_over("t", vec![(Action::Compaction, T1.to_owned())]).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.table("t", |_| ());
    rig.callback("t").await;
    rig.pass(60).await;
    let hinted = rig.find(&key).await.unwrap();
    assert_eq!(hinted.state.as_str(), "hinted");
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    rig.job(1).await;
    assert_eq!(rig.find(&key).await.unwrap().id, hinted.id);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instant_that_never_appears_is_obsolete_after_its_grace() {
    let rig = Rig::start().await;
    rig.table("t", |_| ());
    rig.hand_over("t", vec![(Action::Compaction, T1.to_owned())]).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.pass(590).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "hinted");
    rig.pass(30).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "obsolete");
    rig.stop().await;
}

/// The grace of a named instant counts only while its table can be read.
#[tokio::test(start_paused = true)]
async fn the_grace_of_a_named_instant_stands_still_while_the_table_is_unreadable() {
    let rig = Rig::start().await;
    rig.table("t", |_| ());
    rig.hand_over("t", vec![(Action::Compaction, T1.to_owned())]).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.pass(300).await;
    rig.table("t", |t| t.is_unreadable = true);
    rig.callback("t").await;
    rig.pass(2400).await;
    rig.table("t", |t| t.is_unreadable = false);
    let since = rig.clock_secs();
    rig.eventually("readable again", || {
        rig.alerts.n_begun(AlertKind::TableUnreadable) > 0 && !rig.alerts.stands(AlertKind::TableUnreadable)
    })
    .await;
    let readable_at = rig.clock_secs();
    assert!(readable_at - since < 700);
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "hinted");
    rig.pass(200).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "hinted", "five minutes of ten are over");
    rig.pass(200).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "obsolete");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn plans_of_actions_that_were_not_handed_over_are_counted_and_left_alone() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.plan(Action::LogCompaction, &instant(T1));
        t.plan(Action::Clean, &instant(T2));
    });
    rig.callback("t").await;
    rig.pass(1200).await;
    let record = rig.record("t").await;
    assert_eq!((record.look.n_foreign_plans, record.look.unserved.len()), (2, 0));
    assert!(rig.store.live_of_table(record.table.id).await.unwrap().is_empty());
    // Handed over now: the log compaction becomes an instance, the clean stays its writer's.
    rig.settings("t", |s| s.actions = Some([Action::LogCompaction, Action::Clean].into())).await;
    rig.until_parked(&Rig::key("t", Action::LogCompaction, T1), ParkReason::LogCompaction).await;
    assert_eq!(rig.store.live_of_table(record.table.id).await.unwrap().len(), 1);
    rig.settings("t", |s| s.actions = Some([Action::Compaction].into())).await;
    rig.until_state(&Rig::key("t", Action::LogCompaction, T1), "obsolete").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_registered_table_is_looked_at_with_its_own_settings() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    let settings = TableSettings { actions: Some([Action::Clustering].into()), ..TableSettings::default() };
    let request = RegisterTable {
        base_path: "/lake/t/".to_owned(),
        settings: Some(settings),
        merge: false,
        look: false,
    };
    rig.managers.tables.register(request, "test").await.unwrap();
    rig.pass(5).await;
    assert_eq!(rig.record("t").await.look.n_foreign_plans, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_somebody_else_completed_while_it_waited_is_an_alarm_the_second_time() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Clustering, T1).await;
    rig.job(1).await;
    for (n, text) in [T2, crate::rig::T3].into_iter().enumerate() {
        let key = rig.planned("t", Action::Compaction, text).await;
        rig.until_state(&key, "pending").await;
        assert!(!rig.alerts.stands(AlertKind::NotHandedOver), "after {n}");
        rig.table("t", |t| t.complete(Action::Compaction, &instant(text)));
        rig.callback("t").await;
        rig.until_state(&key, "succeeded").await;
    }
    rig.pass(1).await;
    assert_eq!(rig.record("t").await.look.n_completed_by_others, 2);
    assert!(rig.alerts.stands(AlertKind::NotHandedOver));
    rig.stop().await;
}

/// The same when it is noticed between choice and leave.
#[tokio::test(start_paused = true)]
async fn plans_that_somebody_else_completes_under_our_attempts_are_an_alarm_too() {
    let rig = Rig::start().await;
    for (n, text) in [T1, T2].into_iter().enumerate() {
        let key = rig.planned("t", Action::Compaction, text).await;
        let job = rig.job(n + 1).await;
        rig.table("t", |t| t.complete(Action::Compaction, &instant(text)));
        rig.report(&job, &run_id(n + 1), "untouched", 10, &[]).await;
        rig.engine.end(&job.tag, "exit 10");
        rig.until_state(&key, "succeeded").await;
    }
    rig.eventually("alarmed", || rig.alerts.stands(AlertKind::NotHandedOver)).await;
    rig.stop().await;
}

/// The timeline decides, also while the engine says nothing: an attempt whose plan somebody completed frees the slot.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_completed_under_a_queued_attempt_ends_it() {
    let rig = Rig::start().await;
    rig.engine.answer_with(tms_core::engine::scripted::Answer::AcceptQueued);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    let since = rig.clock_secs();
    let ended = rig.until_state(&key, "succeeded").await;
    assert!(rig.clock_secs() - since < 60);
    assert_eq!(ended.attempt_state().unwrap().as_str(), "revoked");
    // What was started is ended, not left in the engine's queue.
    rig.eventually("the orphan is gone", || rig.engine.live_tags().is_empty()).await;
    assert_eq!(rig.engine.cancels(&job.tag).len(), 1);
    rig.stop().await;
}

/// Row `TL: completed`, column `holding`: succeeding, `stop` if our job did not report it; the slot stays taken.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_completed_under_a_holder_is_succeeding_until_the_job_ends() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let other = rig.planned("t", Action::Compaction, T2).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.speak(&job, &run_id(1), 10).await;
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    rig.until_state(&key, "succeeding").await;
    rig.pass(3).await;
    assert!(rig.speak(&job, &run_id(1), 20).await, "told to stop");
    assert_eq!(rig.find(&other).await.unwrap().state.as_str(), "pending", "the slot is taken");
    rig.engine.end(&job.tag, "exit 0");
    rig.until_state(&key, "succeeded").await;
    rig.job(2).await;
    rig.stop().await;
}

/// A job that hangs after its plan is completed does not keep the slot for ever.
#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_after_success_is_ended() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.report(&job, &run_id(1), "returned", 0, &[]).await;
    rig.until_state(&key, "succeeding").await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!(ended.n_failed, 0);
    assert!(!rig.engine.cancels(&job.tag).is_empty());
    assert!(rig.clock_secs() < 600);
    rig.stop().await;
}

/// A driver said that it ends, and its process stays: the timeline is asked at a pace, not at every poll.
#[tokio::test(start_paused = true)]
async fn a_job_that_lingers_after_its_report_is_no_hot_loop_of_looks() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.report(&job, &run_id(1), "threw", 3, &["boom"]).await;
    let before = rig.table("t", |t| t.n_looks);
    rig.pass(600).await;
    let n_looks = rig.table("t", |t| t.n_looks) - before;
    assert!((100..=140).contains(&n_looks), "{n_looks} looks in ten minutes");
    rig.engine.end(&job.tag, "exit 3");
    let since = rig.clock_secs();
    rig.until_state(&key, "pending").await;
    assert!(rig.clock_secs() - since <= 3, "an end is looked at at once");
    rig.stop().await;
}

/// Row `TL: gone`, column `holding`: `stop`, cancel; obsolete once over.
#[tokio::test(start_paused = true)]
async fn a_plan_that_vanishes_under_a_holder_ends_the_job_and_is_obsolete() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.begun(1, "t", Action::Clustering, T1).await;
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    rig.callback("t").await;
    rig.pass(60).await;
    assert!(rig.engine.cancels(&job.tag).is_empty(), "absent once is not gone");
    let ended = rig.until_state(&key, "obsolete").await;
    assert!(!rig.engine.cancels(&job.tag).is_empty());
    assert!(ended.attempt.unwrap().over_at.is_some());
    rig.stop().await;
}

/// Seen in the history of the timeline, not on the active part.
#[tokio::test(start_paused = true)]
async fn an_instant_that_was_archived_as_completed_is_a_success() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| {
        t.roll_back(Action::Compaction, &instant(T1));
        t.history.push((Action::Compaction, instant(T1)));
    });
    rig.ends(&job, 1, "returned", 0, &[]).await;
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

/// Confinement: a plan that names a path outside is parked; and so is one that cannot be read.
#[tokio::test(start_paused = true)]
async fn plans_that_cannot_be_trusted_are_parked() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.plan(Action::Compaction, &instant(T2));
        t.sight.pending[0].content =
            Ok(PlanContent { outside: Some("/etc/passwd".to_owned()), ..PlanContent::default() });
        t.sight.pending[1].content = Err("the plan is cut off".to_owned());
        t.overtaken = Overtaken::No;
    });
    rig.callback("t").await;
    rig.until_parked(&Rig::key("t", Action::Compaction, T1), ParkReason::ForeignPaths).await;
    rig.until_parked(&Rig::key("t", Action::Compaction, T2), ParkReason::Unreadable).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.stop().await;
}
