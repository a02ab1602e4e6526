//! An `inflight` that no attempt of ours explains.

use chrono::TimeDelta;
use tms_core::clock::Clock;
use tms_core::model::action::Action;
use tms_core::model::attempt::Expected;
use tms_core::model::instance::{InstanceState, ParkReason};
use tms_core::model::policy::TakeOver;

use crate::rig::{Rig, T1, day_zero, instant, run_id};

/// A plan that somebody began, with the sign of life of that moment.
async fn foreign(take_over: TakeOver, grace_secs: u64) -> Rig {
    let rig = Rig::start_with(|s| {
        s.policies.defaults.take_over = take_over;
        s.policies.defaults.foreign_grace = std::time::Duration::from_secs(grace_secs);
    })
    .await;
    rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.inflight(Action::Compaction, &instant(T1));
        t.sign = Some(day_zero());
    });
    rig.callback("t").await;
    rig
}

/// C10: `ask`, the default.
#[tokio::test(start_paused = true)]
async fn a_silent_foreign_runner_is_parked_until_a_person_takes_over() {
    let rig = foreign(TakeOver::Ask, 600).await;
    let key = Rig::key("t", Action::Compaction, T1);
    let waiting = rig.until_state(&key, "waiting_foreign").await;
    assert!(
        matches!(waiting.state, InstanceState::WaitingForeign { sign: Some(at), .. } if at == day_zero())
    );
    rig.pass(590).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "waiting_foreign");
    rig.pass(20).await;
    let parked = rig.until_parked(&key, ParkReason::ForeignRunner).await;
    assert!(rig.clock_secs() < 700);
    // It stays so, whatever looks come.
    rig.callback("t").await;
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    assert_eq!(rig.find(&key).await.unwrap().attempt.unwrap().expected, Expected::InflightOfOurs);
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

/// C10: a fresh sign prolongs the wait; a missing heartbeat proves nothing.
#[tokio::test(start_paused = true)]
async fn a_fresh_sign_of_life_prolongs_the_wait() {
    let rig = foreign(TakeOver::Ask, 600).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_state(&key, "waiting_foreign").await;
    for _ in 0..20 {
        rig.pass(300).await;
        let now = rig.clock.now();
        rig.table("t", |t| t.sign = Some(now));
        assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "waiting_foreign");
    }
    let seen = rig.find(&key).await.unwrap();
    let InstanceState::WaitingForeign { sign: Some(sign), since } = seen.state else { panic!() };
    assert!(rig.clock.now() - sign < TimeDelta::seconds(700) && since < day_zero() + TimeDelta::seconds(10));
    let n_events = rig.store.events(seen.id).await.unwrap().len();
    assert!(n_events < 10, "{n_events}: a sign of life is no change of state");
    rig.pass(700).await;
    rig.until_parked(&key, ParkReason::ForeignRunner).await;
    rig.stop().await;
}

/// C10: `after_grace`.
#[tokio::test(start_paused = true)]
async fn a_silent_foreign_runner_is_taken_over_after_the_grace_when_the_table_says_so() {
    let rig = foreign(TakeOver::AfterGrace, 600).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_state(&key, "waiting_foreign").await;
    rig.pass(580).await;
    assert_eq!(rig.engine.calls().submit, 0);
    let job = rig.job(1).await;
    assert!((600..700).contains(&rig.clock_secs()), "{}", rig.clock_secs());
    rig.take_leave(&job, &run_id(1)).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

/// The other runner gives a sign between our submission and our leave: the driver exits untouched.
#[tokio::test(start_paused = true)]
async fn a_foreign_runner_that_wakes_up_gets_its_plan_back() {
    let rig = foreign(TakeOver::AfterGrace, 600).await;
    let key = Rig::key("t", Action::Compaction, T1);
    let job = rig.job(1).await;
    let now = rig.clock.now();
    rig.table("t", |t| t.sign = Some(now));
    rig.refused(&job, &run_id(1), tms_core::manager::attempt::LeaveStage::Start, "foreign_runner").await;
    rig.ends(&job, 1, "untouched", 10, &[]).await;
    rig.until_state(&key, "waiting_foreign").await;
    rig.stop().await;
}

/// C10: with an attempt of ours that is over the instant runs at once.
#[tokio::test(start_paused = true)]
async fn an_inflight_of_an_attempt_of_ours_is_run_again_without_any_grace() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.end(&job.tag, "killed");
    let again = rig.job(2).await;
    assert!(rig.clock_secs() < 30);
    rig.take_leave(&again, &run_id(2)).await;
    assert_eq!(rig.find(&key).await.unwrap().attempt.unwrap().expected, Expected::InflightOfOurs);
    rig.stop().await;
}

/// A driver that had leave at its start only never called: the inflight is not its work.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_never_called_explains_no_inflight() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.ask(&job, &run_id(1), tms_core::manager::attempt::LeaveStage::Start).await;
    rig.table("t", |t| {
        t.inflight(Action::Compaction, &instant(T1));
        t.sign = Some(rig.clock.now());
    });
    rig.engine.end(&job.tag, "killed");
    rig.until_state(&key, "waiting_foreign").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

/// No file tells when the other runner lived: the wait counts from the moment when we saw it.
#[tokio::test(start_paused = true)]
async fn a_foreign_runner_without_any_sign_does_not_wait_for_ever() {
    let rig = foreign(TakeOver::Ask, 600).await;
    rig.table("t", |t| t.sign = None);
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_state(&key, "waiting_foreign").await;
    rig.pass(300).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "waiting_foreign");
    rig.pass(400).await;
    rig.until_parked(&key, ParkReason::ForeignRunner).await;
    rig.stop().await;
}

/// The plan went away and came back, begun by somebody: our former attempt does not explain that.
#[tokio::test(start_paused = true)]
async fn a_plan_that_came_back_begun_is_somebody_elses() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.begun(1, "t", Action::Clustering, T1).await;
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    rig.engine.end(&job.tag, "killed");
    rig.until_state(&key, "obsolete").await;
    let now = rig.clock.now();
    rig.table("t", |t| {
        t.plan(Action::Clustering, &instant(T1));
        t.inflight(Action::Clustering, &instant(T1));
        t.sign = Some(now);
    });
    rig.callback("t").await;
    rig.until_state(&key, "waiting_foreign").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

/// The other runner completes its work after all.
#[tokio::test(start_paused = true)]
async fn what_a_foreign_runner_completes_is_a_success_without_a_submission() {
    let rig = foreign(TakeOver::Ask, 600).await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_state(&key, "waiting_foreign").await;
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.until_state(&key, "succeeded").await;
    assert!(rig.clock_secs() < 100);
    assert_eq!(rig.engine.calls().submit, 0);
    rig.stop().await;
}
