//! Somebody else at work on a plan of ours: what our attempts and a person's consent explain, and what they do not.

use std::time::Duration;

use tms_core::alert::AlertKind;
use tms_core::clock::Clock;
use tms_core::engine::Engine;
use tms_core::manager::attempt::{LeaveAnswer, LeaveStage};
use tms_core::model::action::Action;
use tms_core::model::instance::ParkReason;
use tms_core::model::policy::TakeOver;

use crate::rig::{Rig, T1, T2, day_zero, instant, leave_ask, run_id};

/// Somebody else begins the plan at day zero.
fn begun_by_another(rig: &Rig) {
    rig.table("t", |t| {
        t.inflight(Action::Clustering, &instant(T1));
        t.sign = Some(day_zero());
    });
}

/// The job's own look found it right before the call, and left it untouched.
#[tokio::test(start_paused = true)]
async fn an_inflight_that_sent_our_job_away_is_not_ours() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    begun_by_another(&rig);
    rig.ends(&job, 1, "untouched", 12, &["the instant is inflight"]).await;
    rig.pass(300).await;
    assert_eq!(rig.engine.calls().submit, 1);
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "waiting_foreign");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_inflight_made_after_our_attempt_was_over_is_not_ours() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.ends(&job, 1, "threw", 3, &["java.lang.OutOfMemoryError"]).await;
    rig.until_state(&key, "pending").await;
    begun_by_another(&rig);
    rig.pass(300).await;
    assert_eq!(rig.engine.calls().submit, 1);
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "waiting_foreign");
    rig.stop().await;
}

/// The same with an `.inflight` that our attempt did leave: it is run again at once.
#[tokio::test(start_paused = true)]
async fn an_inflight_that_our_attempt_left_is_ours() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Clustering, T1).await;
    let job = rig.begun(1, "t", Action::Clustering, T1).await;
    rig.ends(&job, 1, "threw", 3, &["java.lang.OutOfMemoryError"]).await;
    let again = rig.job(2).await;
    assert!(matches!(rig.ask(&again, &run_id(2), LeaveStage::Call).await, LeaveAnswer::Given(_)));
    rig.stop().await;
}

/// "Take over" answers the question that was asked: damage, not another runner.
#[tokio::test(start_paused = true)]
async fn acknowledged_damage_is_no_consent_to_run_over_a_later_runner() {
    let rig = Rig::start().await;
    let queue = "default".parse().unwrap();
    rig.managers.queues.pause(&queue, "test").await.unwrap();
    rig.pass(2).await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    rig.table("t", |t| {
        t.complete(Action::Compaction, &instant(T2));
        t.complete(Action::Compaction, &instant(T2));
    });
    rig.callback("t").await;
    rig.pass(5).await;
    rig.managers.queues.resume(&queue, "test").await.unwrap();
    let parked = rig.until_parked(&key, ParkReason::DamageSuspected).await;
    rig.managers.queues.pause(&queue, "test").await.unwrap();
    rig.pass(3).await;
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    rig.pass(3).await;
    begun_by_another(&rig);
    rig.callback("t").await;
    rig.pass(5).await;
    rig.managers.queues.resume(&queue, "test").await.unwrap();
    rig.pass(60).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.stop().await;
}

/// Consent covers one run.
#[tokio::test(start_paused = true)]
async fn a_second_foreign_runner_needs_another_consent() {
    let rig = Rig::start_with(|s| s.policies.defaults.foreign_grace = Duration::from_secs(10)).await;
    rig.table("t", |t| t.plan(Action::Clustering, &instant(T1)));
    begun_by_another(&rig);
    rig.callback("t").await;
    let key = Rig::key("t", Action::Clustering, T1);
    let parked = rig.until_parked(&key, ParkReason::ForeignRunner).await;
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    // Hudi rolled the inflight back, then the job failed; somebody else begins the plan again.
    rig.table("t", |t| {
        t.roll_back(Action::Clustering, &instant(T1));
        t.plan(Action::Clustering, &instant(T1));
    });
    rig.ends(&job, 1, "threw", 3, &["boom"]).await;
    rig.until_state(&key, "pending").await;
    begun_by_another(&rig);
    rig.pass(300).await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_action_handed_back_is_not_submitted_again() {
    let mut rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.ends(&job, 1, "threw", 3, &["boom"]).await;
    rig.until_state(&key, "pending").await;
    rig.stop_node().await;
    rig.policies.defaults.default_actions = [Action::Compaction].into();
    rig.start_node();
    rig.pass(120).await;
    assert_eq!(rig.engine.calls().submit, 1);
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "obsolete");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_action_handed_back_gets_no_leave() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.settings("t", |s| s.actions = Some([Action::Compaction].into())).await;
    rig.pass(5).await;
    rig.refused(&job, &run_id(1), LeaveStage::Call, "not_handed_over").await;
    rig.stop().await;
}

/// Completed and not any more: whoever rolled it back may have destroyed the table.
#[tokio::test(start_paused = true)]
async fn a_completed_plan_that_is_pending_again_is_damage() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.begun(1, "t", Action::Clustering, T1).await;
    rig.completes(&job, 1, "t", Action::Clustering, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.table("t", |t| {
        t.sight.completed.clear();
        t.plan(Action::Clustering, &instant(T1));
        t.rollbacks.push("20270105000000001".to_owned());
    });
    rig.callback("t").await;
    let parked = rig.until_parked(&key, ParkReason::DamageSuspected).await;
    assert!(rig.alerts.stands(AlertKind::DamageSuspected));
    assert_eq!(rig.engine.calls().submit, 1);
    // A person looked, and wants it run.
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    rig.job(2).await;
    rig.stop().await;
}

/// The writer is as unlocked as before when the instance that it stopped is cancelled.
#[tokio::test(start_paused = true)]
async fn an_unlocked_writer_holds_its_table_beyond_the_instance_that_it_stopped() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.unlocked_writes = vec!["20270101000000099".to_owned()]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let parked = rig.until_parked(&key, ParkReason::UnlockedWriter).await;
    rig.table("t", |t| t.unlocked_writes.clear());
    rig.managers.instances.cancel(parked.id, "test").await.unwrap();
    let next = rig.planned("t", Action::Compaction, T2).await;
    let held = rig.until_parked(&next, ParkReason::UnlockedWriter).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.managers.instances.retry(held.id, false, "test").await.unwrap();
    rig.job(1).await;
    rig.stop().await;
}

/// A locked writer that died of an error leaves an inflight without a heartbeat: a person's word is the way out.
#[tokio::test(start_paused = true)]
async fn a_write_that_a_person_knows_to_be_dead_holds_nothing_any_more() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.unlocked_writes = vec!["20270101000000099".to_owned()]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let parked = rig.until_parked(&key, ParkReason::UnlockedWriter).await;
    rig.managers.instances.retry(parked.id, false, "test").await.unwrap();
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.table("t", |t| t.unlocked_writes.push("20270101000000100".to_owned()));
    let next = rig.planned("t", Action::Compaction, T2).await;
    rig.until_parked(&next, ParkReason::UnlockedWriter).await;
    rig.stop().await;
}

/// The engine speaks of its own driver, which was sent away; another driver of the attempt holds leave.
#[tokio::test(start_paused = true)]
async fn a_holder_that_speaks_is_alive_whatever_the_engine_says_of_its_twin() {
    let rig = Rig::start().await;
    rig.engine.set_capabilities(|c| c.run_timeout = Duration::from_secs(1_800));
    rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    for stage in [LeaveStage::Start, LeaveStage::Call] {
        let mut twin = leave_ask(&job, &run_id(2), stage);
        twin.pid = Some(4_711);
        assert!(matches!(rig.managers.attempts.leave(&twin).await.unwrap(), LeaveAnswer::Given(_)));
    }
    rig.table("t", |t| t.inflight(Action::Clustering, &instant(T1)));
    rig.refused(&job, &run_id(1), LeaveStage::Start, "held_by_another_run").await;
    rig.engine.end(&job.tag, "exit 10");
    for _ in 0..60 {
        rig.speak(&job, &run_id(2), 10).await;
        rig.pass(10).await;
        assert_eq!(rig.engine.calls().submit, 1);
    }
    // Silent for long, and the engine speaks of the other one only: its time limit is what ends it.
    rig.pass(600).await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.pass(rig.engine.capabilities().run_timeout.as_secs()).await;
    rig.job(2).await;
    rig.stop().await;
}

/// A wall clock that jumps, or a storage with another clock, is no silence.
#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_is_no_silence_of_another_runner() {
    let rig = Rig::start_with(|s| {
        s.policies.defaults.take_over = TakeOver::AfterGrace;
        s.policies.defaults.foreign_grace = Duration::from_secs(600);
    })
    .await;
    let now = rig.clock.now();
    rig.table("t", |t| {
        t.plan(Action::Clustering, &instant(T1));
        t.inflight(Action::Clustering, &instant(T1));
        t.sign = Some(now);
    });
    rig.callback("t").await;
    rig.until_state(&Rig::key("t", Action::Clustering, T1), "waiting_foreign").await;
    rig.clock.jump(86_400);
    rig.pass(120).await;
    assert_eq!(rig.engine.calls().submit, 0);
    let grace = rig.policies.defaults.foreign_grace;
    rig.pass(grace.as_secs() + 120).await;
    rig.job(1).await;
    rig.stop().await;
}

/// An inflight that our attempt left may be begun anew by somebody else: its fresh sign of life holds our next attempt.
#[tokio::test(start_paused = true)]
async fn an_inflight_of_ours_that_somebody_began_anew_is_waited_for() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.table("t", |t| t.inflight(Action::Compaction, &instant(T1)));
    let later = rig.clock.now() + chrono::TimeDelta::minutes(10);
    rig.table("t", |t| t.sign = Some(later));
    rig.engine.end(&job.tag, "exit 137");
    rig.until_state(&Rig::key("t", Action::Compaction, T1), "waiting_foreign").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}
