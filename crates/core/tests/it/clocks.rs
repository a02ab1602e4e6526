//! A wall clock that is set forward or back: what was stored by it must neither freeze a table nor end a healthy job.

use std::time::Duration;

use tms_core::alert::AlertKind;
use tms_core::clock::Clock;
use tms_core::engine::scripted::Answer;
use tms_core::model::action::Action;
use tms_core::model::instance::{InstanceState, ParkReason, WaitReason};
use tms_core::timeline::Overtaken;

use crate::rig::{Rig, T1, T2, instant, run_id};

const DAY: i64 = 86_400;

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_not_freeze_a_table_in_trouble() {
    let rig = Rig::start().await;
    rig.clock.jump(10 * DAY);
    rig.table("t", |t| t.is_unreadable = true);
    rig.callback("t").await;
    rig.pass(10).await;
    assert!(rig.record("t").await.look.trouble.is_some());
    rig.clock.jump(0);
    rig.table("t", |t| t.is_unreadable = false);
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.pass(30).await;
    assert!(rig.find(&key).await.is_some(), "{:?}", rig.record("t").await.look.trouble);
    rig.job(1).await;
    rig.stop().await;
}

/// The same for what a former term, or another node with a fast clock, left in the store.
#[tokio::test(start_paused = true)]
async fn a_restart_after_the_clock_was_set_back_finds_a_table_in_trouble_due() {
    let mut rig = Rig::start().await;
    rig.clock.jump(10 * DAY);
    rig.table("t", |t| t.is_unreadable = true);
    rig.callback("t").await;
    rig.pass(10).await;
    rig.stop_node().await;
    rig.clock.jump(0);
    rig.table("t", |t| t.is_unreadable = false);
    rig.start_node();
    rig.pass(30).await;
    assert!(rig.record("t").await.look.trouble.is_none());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_not_freeze_a_back_off() {
    let rig = Rig::start().await;
    rig.clock.jump(10 * DAY);
    rig.engine.set_absent_is_proof(true);
    rig.engine.answer_next([Answer::Refuse("no room".to_owned())]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let is_refused = |i: &InstanceState| {
        matches!(i, InstanceState::Pending { reason: WaitReason::EngineRefused, not_before: Some(_) })
    };
    rig.until(&key, "refused", |i| is_refused(&i.state)).await;
    rig.clock.jump(0);
    rig.pass(30).await;
    assert_eq!(rig.engine.calls().submit, 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_not_keep_a_plan_that_is_gone() {
    let rig = Rig::start().await;
    rig.clock.jump(10 * DAY);
    rig.table("t", |t| t.overtaken = Overtaken::Unknown { reason: "unread".to_owned() });
    let key = rig.planned("t", Action::Clustering, T1).await;
    rig.until_parked(&key, ParkReason::OvertakenUnknown).await;
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    rig.callback("t").await;
    rig.until(&key, "missed", |i| i.missed_since.is_some()).await;
    rig.clock.jump(0);
    rig.callback("t").await;
    rig.pass(60).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "parked", "the grace begins anew");
    rig.pass(200).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "obsolete");
    rig.stop().await;
}

/// Looks that nobody asks for come in time, whatever the wall clock says.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_not_put_off_the_look_at_a_silent_table() {
    let timeout = Duration::from_secs(300);
    let rig = Rig::start_with(|s| s.policies.look.heartbeat_timeout = timeout).await;
    rig.clock.jump(10 * DAY);
    rig.callback("t").await;
    rig.pass(5).await;
    let n_before = rig.table("t", |t| t.n_looks);
    rig.clock.jump(0);
    rig.pass(340).await;
    assert_eq!(rig.table("t", |t| t.n_looks), n_before + 1);
    // The last look still lies in the future.
    rig.pass(340).await;
    assert_eq!(rig.table("t", |t| t.n_looks), n_before + 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_ends_no_healthy_job() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.clock.jump(30 * DAY);
    for _ in 0..30 {
        assert!(!rig.speak(&job, &run_id(1), 10).await, "told to stop");
        rig.pass(10).await;
    }
    assert!(rig.engine.cancels(&job.tag).is_empty());
    rig.stop().await;
}

/// The limit itself stands: it counts from the leave, not from the time in the engine's queue.
#[tokio::test(start_paused = true)]
async fn a_job_that_runs_for_too_long_since_its_leave_is_ended() {
    let rig = Rig::start().await;
    rig.engine.set_capabilities(|c| c.run_timeout = Duration::from_secs(3_600));
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.pass(3_000).await;
    rig.take_leave(&job, &run_id(1)).await;
    let begun = rig.clock.monotonic();
    while !rig.speak(&job, &run_id(1), 10).await {
        assert!((rig.clock.monotonic() - begun).as_secs() < 3_800, "never told to stop");
        rig.pass(10).await;
    }
    assert!((rig.clock.monotonic() - begun).as_secs() >= 3_600, "told to stop too soon");
    rig.stop().await;
}

/// One that hangs before its leave keeps the table's slot: people are told, once, until it asks or is over.
#[tokio::test(start_paused = true)]
async fn a_job_that_never_asks_for_leave_is_an_alarm_until_it_does() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    rig.planned("t", Action::Compaction, T2).await;
    let job = rig.job(1).await;
    rig.pass(29 * 60).await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    rig.pass(2 * 60).await;
    let text = rig.alerts.text(AlertKind::EngineTrouble).unwrap();
    assert!(text.contains(&job.tag.to_string()) && text.contains("has not asked for leave"), "{text}");
    rig.pass(3_600).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.pass(5).await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    assert_eq!(rig.alerts.n_begun(AlertKind::EngineTrouble), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_alarm_of_a_job_that_never_asked_for_leave_is_over_with_its_attempt() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.job(1).await;
    rig.pass(31 * 60).await;
    assert!(rig.alerts.stands(AlertKind::EngineTrouble));
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.until_state(&key, "cancelled").await;
    rig.pass(5).await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    rig.stop().await;
}
