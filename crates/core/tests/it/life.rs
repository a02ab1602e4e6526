//! The life of an instance, from the writer's callback to its end.

use tms_core::manager::attempt::{LeaveAnswer, LeaveStage};
use tms_core::model::action::Action;
use tms_core::model::instance::{InstanceState, ParkReason};

use crate::rig::{Rig, T1, attempt_number, instant, run_id};

#[tokio::test(start_paused = true)]
async fn a_planned_compaction_runs_and_succeeds() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    let key = Rig::key("t", Action::Compaction, T1);
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.table("t", |t| t.inflight(Action::Compaction, &instant(T1)));
    rig.until(&key, "holding", |i| i.attempt_state().is_some_and(|s| s.as_str() == "holding")).await;
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.report(&job, &run_id(1), "returned", 0, &[]).await;
    rig.engine.end(&job.tag, "exit 0");
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!(ended.n_attempts, 1);
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_driver_of_an_attempt_gets_no_leave() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    let answer = rig.ask(&job, &run_id(2), LeaveStage::Start).await;
    assert!(
        matches!(&answer, LeaveAnswer::Refused { reason, .. } if reason == "held_by_another_run"),
        "{answer:?}"
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_driver_is_tried_again_after_the_back_off_and_fails_at_the_limit() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    let key = Rig::key("t", Action::Compaction, T1);
    for n in 1..=3 {
        let job = rig.job(n).await;
        assert_eq!(attempt_number(&job.tag) as usize, n);
        rig.take_leave(&job, &run_id(n)).await;
        rig.table("t", |t| t.inflight(Action::Compaction, &instant(T1)));
        rig.engine.end(&job.tag, "killed");
    }
    let ended = rig.until_state(&key, "failed").await;
    assert_eq!((ended.n_attempts, ended.n_failed), (3, 3));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_adopts_what_runs() {
    let mut rig = Rig::start().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    let key = Rig::key("t", Action::Compaction, T1);
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.stop_node().await;
    rig.start_node();
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.engine.end(&job.tag, "exit 0");
    rig.until_state(&key, "succeeded").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_inflight_is_waited_for_and_then_parked() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.inflight(Action::Compaction, &instant(T1));
        t.sign = Some(chrono::DateTime::from_timestamp_millis(1_800_000_000_000).unwrap());
    });
    rig.callback("t").await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_state(&key, "waiting_foreign").await;
    let parked = rig.until(&key, "parked", |i| {
        matches!(i.state, InstanceState::Parked { reason: ParkReason::ForeignRunner, .. })
    });
    // The default grace of six hours is longer than the rig waits: shorten it for this table.
    let record = rig.managers.tables.resolve("/lake/t").await.unwrap();
    let mut settings = record.table.settings.clone();
    settings.foreign_grace_secs = Some(60);
    rig.managers.tables.update_settings(record.table.id, settings, "test").await.unwrap();
    let parked = parked.await;
    assert_eq!(rig.engine.calls().submit, 0);
    assert!(rig.managers.instances.retry(parked.id, false, "test").await.is_err());
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    rig.job(1).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_instance_ends_only_when_its_job_has_ended() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    let key = Rig::key("t", Action::Compaction, T1);
    rig.engine.ignore_cancels(3);
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    let ended = rig.until_state(&key, "cancelled").await;
    assert_eq!(rig.engine.calls().submit, 1);
    assert!(rig.engine.cancels(&job.tag).len() > 3);
    assert!(ended.attempt.unwrap().over_at.is_some());
    rig.stop().await;
}
