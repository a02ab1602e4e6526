//! What an ended attempt means for the next one.

use std::time::Duration;

use chrono::TimeDelta;
use tms_core::alert::AlertKind;
use tms_core::clock::Clock;
use tms_core::engine::{Force, JobState};
use tms_core::manager::attempt::LeaveStage;
use tms_core::model::action::Action;
use tms_core::model::attempt::AttemptEnd;
use tms_core::model::instance::{InstanceState, ParkReason, WaitReason};

use crate::rig::{Rig, T1, instant, run_id};

/// Ends the first attempt like this and returns why the instance waits then, with its failures.
async fn after(outcome: &str, exit_code: i32, error: &[&str], calls: bool) -> (WaitReason, u32) {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    if calls {
        rig.take_leave(&job, &run_id(1)).await;
    }
    rig.ends(&job, 1, outcome, exit_code, error).await;
    let waiting = rig.until_state(&key, "pending").await;
    let InstanceState::Pending { reason, not_before } = waiting.state else { panic!() };
    assert!(not_before.is_some(), "a retry waits");
    rig.job(2).await;
    rig.stop().await;
    (reason, waiting.n_failed)
}

/// Exits 10, 11 and 12, a lock that was not to be had and Hudi's heartbeat refusal are no failed attempts.
#[tokio::test(start_paused = true)]
async fn what_touched_nothing_does_not_count() {
    let lock = ["HoodieLockException: Unable to acquire the lock. Current lock owner information :"];
    let heartbeat =
        ["HoodieLockException: Cannot execute instant T due to heartbeat by concurrent writer/job"];
    for (outcome, code, error, calls, wanted) in [
        ("untouched", 10, &[][..], false, WaitReason::NoLeave),
        ("untouched", 11, &[], false, WaitReason::NoLeave),
        ("untouched", 12, &[], true, WaitReason::NoLeave),
        ("threw", 3, &lock, true, WaitReason::LockHeld),
        ("threw", 3, &heartbeat, true, WaitReason::HeartbeatRefused),
    ] {
        assert_eq!(after(outcome, code, error, calls).await, (wanted, 0), "{code} {error:?}");
    }
    assert_eq!(after("threw", 3, &["java.lang.OutOfMemoryError"], true).await, (WaitReason::Backoff, 1));
    // A call that returned although its plan still stands has failed, whatever its exit code.
    assert_eq!(after("returned", 0, &[], true).await, (WaitReason::Backoff, 1));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_count_is_repeated_without_limit_but_ever_more_slowly() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let mut times = Vec::new();
    for n in 1..=12 {
        let job = rig.job(n).await;
        times.push(rig.clock.monotonic());
        rig.take_leave(&job, &run_id(n)).await;
        rig.ends(&job, n, "threw", 3, &["Unable to acquire the lock"]).await;
    }
    let gaps: Vec<u64> = times.windows(2).map(|w| (w[1] - w[0]).as_secs()).collect();
    assert!(gaps[0] >= 8 && gaps[10] >= 75 && gaps.iter().all(|g| *g <= 130), "{gaps:?}");
    assert_eq!(rig.find(&key).await.unwrap().n_failed, 0);
    rig.stop().await;
}

/// A person wanted it tried again: what was before weighs nothing.
#[tokio::test(start_paused = true)]
async fn an_instance_that_a_person_retries_waits_no_longer_than_a_new_one() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    for n in 1..=6 {
        let job = rig.job(n).await;
        rig.take_leave(&job, &run_id(n)).await;
        rig.ends(&job, n, "threw", 3, &["Unable to acquire the lock"]).await;
    }
    let waiting = rig.until_state(&key, "pending").await;
    assert_eq!(waiting.n_tries(), 6);
    rig.managers.instances.retry(waiting.id, false, "test").await.unwrap();
    let job = rig.job(7).await;
    rig.take_leave(&job, &run_id(7)).await;
    rig.ends(&job, 7, "threw", 3, &["Unable to acquire the lock"]).await;
    let waiting = rig.until_state(&key, "pending").await;
    let InstanceState::Pending { not_before: Some(at), .. } = waiting.state else { panic!("{waiting:?}") };
    assert!(at - waiting.updated_at <= TimeDelta::seconds(12), "the first back-off, with its jitter");
    assert_eq!((waiting.n_tries(), waiting.n_attempts), (1, 7));
    rig.stop().await;
}

/// A job that refused its own commit leaves its plan inflight: parked, not a retry.
#[tokio::test(start_paused = true)]
async fn a_job_that_refused_its_own_commit_is_parked_and_not_tried_again() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.begun(1, "t", Action::Clustering, T1).await;
    let error =
        ["SparkException", "HoodieWriteConflictException: Cannot resolve conflicts for overlapping writes"];
    rig.ends(&job, 1, "threw", 3, &error).await;
    let parked = rig.until_parked(&key, ParkReason::Overtaken).await;
    assert_eq!(parked.n_failed, 0);
    assert_eq!(parked.attempt.unwrap().end, Some(AttemptEnd::Overtaken));
    // Looks come and go; the loss guard has not seen what the job saw.
    for _ in 0..10 {
        rig.callback("t").await;
        rig.pass(600).await;
    }
    assert_eq!(rig.engine.calls().submit, 1);
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "parked");
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    rig.callback("t").await;
    rig.until_state(&key, "obsolete").await;
    rig.stop().await;
}

/// The same arguments and the same bundle fail again: no loop of jobs.
#[tokio::test(start_paused = true)]
async fn a_job_that_refused_its_settings_is_parked_until_a_person_or_a_restart_changes_something() {
    for (outcome, code, error, wanted) in [
        ("threw", 2, "bad option", ParkReason::BadOption),
        ("threw", 3, "HoodieException: Unknown table versionCode:9", ParkReason::BundleTooOld),
    ] {
        let mut rig = Rig::start().await;
        let key = rig.planned("t", Action::Compaction, T1).await;
        let job = rig.job(1).await;
        rig.take_leave(&job, &run_id(1)).await;
        rig.ends(&job, 1, outcome, code, &[error]).await;
        rig.until_parked(&key, wanted).await;
        for _ in 0..10 {
            rig.callback("t").await;
            rig.pass(600).await;
        }
        assert_eq!(rig.engine.calls().submit, 1, "{wanted:?}");
        // The configuration is read at a start.
        rig.stop_node().await;
        rig.start_node();
        let job = rig.job(2).await;
        rig.take_leave(&job, &run_id(2)).await;
        rig.ends(&job, 2, outcome, code, &[error]).await;
        let parked = rig.until_parked(&key, wanted).await;
        rig.managers.instances.retry(parked.id, false, "test").await.unwrap();
        rig.job(3).await;
        rig.stop().await;
    }
}

/// C7: the due time of a retry is in the row.
#[tokio::test(start_paused = true)]
async fn a_back_off_survives_a_restart() {
    let mut rig = Rig::start_with(|s| {
        s.policies.retry.backoff_first = Duration::from_secs(1000);
        s.policies.retry.backoff_max = Duration::from_secs(1000);
    })
    .await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.ends(&job, 1, "threw", 3, &["boom"]).await;
    let waiting = rig.until_state(&key, "pending").await;
    let InstanceState::Pending { not_before: Some(due), .. } = waiting.state else { panic!() };
    assert!(due - rig.clock.now() > TimeDelta::seconds(700));
    rig.pass(300).await;
    rig.crash().await;
    rig.pass(100).await;
    rig.crash().await;
    rig.job(2).await;
    let late = rig.clock.now() - due;
    assert!(late >= TimeDelta::zero() && late < TimeDelta::seconds(3), "{late}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_used_up_its_attempts_is_failed_and_alarmed_until_a_person_retries() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    for n in 1..=3 {
        let job = rig.begun(n, "t", Action::Compaction, T1).await;
        rig.ends(&job, n, "threw", 3, &["java.lang.OutOfMemoryError: Java heap space"]).await;
    }
    let failed = rig.until_state(&key, "failed").await;
    assert!(failed.last_error.as_ref().unwrap().contains("OutOfMemoryError"), "{failed:?}");
    assert!(rig.alerts.text(AlertKind::InstanceFailed).unwrap().contains("OutOfMemoryError"));
    let record = rig.record("t").await;
    assert!(record.look.last_error.unwrap().contains("OutOfMemoryError"));
    assert_eq!(record.look.unserved.len(), 1, "its plan still stands");
    assert_eq!(rig.store.past_attempts(failed.id).await.unwrap().len(), 3);
    rig.callback("t").await;
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 3);
    rig.managers.instances.retry(failed.id, false, "test").await.unwrap();
    let job = rig.begun(4, "t", Action::Compaction, T1).await;
    assert!(!rig.alerts.stands(AlertKind::InstanceFailed));
    rig.completes(&job, 4, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!((ended.id, ended.n_failed), (failed.id, 0));
    rig.stop().await;
}

/// Workers may outlive a driver: the next attempt waits for the settle time.
#[tokio::test(start_paused = true)]
async fn no_second_attempt_starts_before_the_settle_time_is_over() {
    let rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.settle = Duration::from_secs(120));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.report(&job, &run_id(1), "threw", 3, &["boom"]).await;
    let ended_at = rig.clock.monotonic();
    rig.engine.set_state(&job.tag, JobState::Ended { how: "exit 3".to_owned(), is_settled: false });
    rig.pass(60).await;
    assert!(rig.find(&key).await.unwrap().takes_slot(), "its workers may still write");
    rig.job(2).await;
    let gap = rig.clock.monotonic() - ended_at;
    assert!(gap >= Duration::from_secs(120 + 8), "{gap:?}");
    rig.stop().await;
}

/// The settle time is counted anew by who takes over, and never shortened.
#[tokio::test(start_paused = true)]
async fn a_restart_does_not_shorten_the_settle_time() {
    let mut rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.settle = Duration::from_secs(120));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.report(&job, &run_id(1), "threw", 3, &["boom"]).await;
    rig.engine.set_state(&job.tag, JobState::Ended { how: "exit 3".to_owned(), is_settled: false });
    rig.pass(100).await;
    rig.crash().await;
    rig.pass(60).await;
    assert!(rig.find(&key).await.unwrap().takes_slot());
    rig.until_state(&key, "pending").await;
    rig.stop().await;
}

/// An engine that takes its word back starts the settle time over.
#[tokio::test(start_paused = true)]
async fn an_end_that_was_none_settles_nothing() {
    let rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.settle = Duration::from_secs(120));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    let ended = JobState::Ended { how: "lost".to_owned(), is_settled: false };
    rig.engine.lie(&job.tag, Some(ended.clone()));
    rig.pass(60).await;
    rig.engine.lie(&job.tag, None);
    for _ in 0..10 {
        rig.pass(30).await;
        rig.speak(&job, &run_id(1), 1).await;
    }
    rig.pass(70).await;
    rig.engine.set_state(&job.tag, ended);
    rig.pass(60).await;
    assert!(rig.find(&key).await.unwrap().takes_slot(), "it ended a minute ago");
    rig.until_state(&key, "pending").await;
    rig.stop().await;
}

/// A driver that was told to stop, asked to end, and then killed.
#[tokio::test(start_paused = true)]
async fn a_job_past_its_time_is_told_to_stop_then_asked_then_killed() {
    let rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.run_timeout = Duration::from_secs(1000));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.ignore_cancels(30);
    let mut told_at = None;
    while rig.engine.cancels(&job.tag).is_empty() {
        rig.pass(5).await;
        if rig.speak(&job, &run_id(1), 50).await {
            told_at = told_at.or(Some(rig.clock.monotonic()));
        }
    }
    let asked_at = rig.clock.monotonic();
    let told_at = told_at.expect("told to stop before it was asked to end");
    assert!(told_at >= Duration::from_secs(1000) && asked_at >= told_at + Duration::from_secs(20));
    while rig.find(&key).await.unwrap().takes_slot() {
        rig.pass(5).await;
        rig.speak(&job, &run_id(1), 50).await;
    }
    let cancels = rig.engine.cancels(&job.tag);
    assert_eq!((cancels.first(), cancels.last()), (Some(&Force::Gentle), Some(&Force::Kill)), "{cancels:?}");
    let waiting = rig.until_state(&key, "pending").await;
    assert_eq!(waiting.n_failed, 1);
    rig.stop().await;
}

/// A silent driver of which the engine knows nothing is suspect; its next word makes it a holder again.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_speaks_holds_again() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    let unknown = JobState::Absent { is_proof: false, what: "the engine's list".to_owned() };
    rig.engine.lie(&job.tag, Some(unknown));
    rig.speak(&job, &run_id(1), 10).await;
    rig.pass(30).await;
    assert_eq!(rig.find(&key).await.unwrap().attempt_state().unwrap().as_str(), "holding");
    rig.until_attempt(&key, "suspect").await;
    rig.pass(900).await;
    assert_eq!(rig.engine.calls().submit, 1, "silence is no proof of death");
    rig.speak(&job, &run_id(1), 20).await;
    rig.until_attempt(&key, "holding").await;
    rig.engine.lie(&job.tag, None);
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.ends(&job, 1, "returned", 0, &[]).await;
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

/// An accepted attempt that its engine forgot gets the whole grace from that moment.
#[tokio::test(start_paused = true)]
async fn a_forgotten_job_gets_the_grace_from_the_moment_it_was_missed() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    rig.pass(3600).await;
    rig.engine.forget(&job.tag);
    rig.until_attempt(&key, "unknown").await;
    rig.pass(590).await;
    assert!(rig.find(&key).await.unwrap().takes_slot());
    rig.until_state(&key, "pending").await;
    rig.refused(&job, &run_id(1), LeaveStage::Start, "revoked").await;
    rig.stop().await;
}
