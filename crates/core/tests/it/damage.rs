//! Signs that somebody else executes a table's plans, and versions that a job changed.

use tms_core::alert::AlertKind;
use tms_core::model::action::Action;
use tms_core::model::instance::{InstanceState, ParkReason};

use crate::rig::{Rig, T1, T2, T3, instant, run_id};

/// Two completed files for one instant: the loudest alarm, once; all work held until a person acknowledges.
#[tokio::test(start_paused = true)]
async fn two_completed_files_hold_the_table_until_a_person_acknowledges() {
    let rig = Rig::start_with(|s| s.policies.defaults.clean_after_commits = 1).await;
    rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.complete(Action::Compaction, &instant(T1));
        t.complete(Action::Compaction, &instant(T1));
        t.sight.commits.push(instant(T2));
    });
    rig.planned("t", Action::Compaction, T3).await;
    let key = Rig::key("t", Action::Compaction, T3);
    let clean = Rig::next_clean("t");
    let parked = rig.until_parked(&key, ParkReason::DamageSuspected).await;
    let held = rig.until_parked(&clean, ParkReason::DamageSuspected).await;
    let InstanceState::Parked { detail, .. } = &held.state else { panic!() };
    assert!(detail.contains(T1), "{detail}");
    for _ in 0..5 {
        rig.callback("t").await;
        rig.pass(700).await;
    }
    assert_eq!((rig.engine.calls().submit, rig.alerts.n_begun(AlertKind::DamageSuspected)), (0, 1));
    assert!(rig.managers.instances.retry(parked.id, false, "test").await.is_err());
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    let first = rig.job(1).await;
    rig.take_leave(&first, &run_id(1)).await;
    rig.completes(&first, 1, "t", Action::Compaction, T3).await;
    rig.until_state(&key, "succeeded").await;
    // The clean goes on too, without a retry of its own.
    let second = rig.job(2).await;
    assert_eq!(second.action, Action::Clean);
    rig.callback("t").await;
    rig.pass(3600).await;
    assert!(!rig.alerts.stands(AlertKind::DamageSuspected), "not raised again for the same instant");
    assert_eq!(rig.alerts.n_begun(AlertKind::DamageSuspected), 1);
    rig.stop().await;
}

/// Acknowledged once, another instant is another alarm.
#[tokio::test(start_paused = true)]
async fn damage_of_another_instant_is_another_alarm() {
    let rig = Rig::start().await;
    let double = |text: &str| {
        rig.table("t", |t| {
            t.complete(Action::Clustering, &instant(text));
            t.complete(Action::Clustering, &instant(text));
        });
    };
    double(T1);
    let key = rig.planned("t", Action::Compaction, T3).await;
    let parked = rig.until_parked(&key, ParkReason::DamageSuspected).await;
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    rig.job(1).await;
    double(T2);
    rig.callback("t").await;
    rig.pass(5).await;
    let record = rig.record("t").await;
    assert!(record.look.damage.is_some(), "{record:#?}");
    assert_eq!(rig.alerts.n_begun(AlertKind::DamageSuspected), 2);
    rig.stop().await;
}

/// Our own instant was completed twice: found when its attempt is judged.
#[tokio::test(start_paused = true)]
async fn a_second_completed_file_of_our_own_instant_is_damage() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| {
        t.complete(Action::Compaction, &instant(T1));
        t.complete(Action::Compaction, &instant(T1));
    });
    rig.ends(&job, 1, "returned", 0, &[]).await;
    rig.until_state(&key, "succeeded").await;
    rig.pass(5).await;
    assert!(rig.alerts.stands(AlertKind::DamageSuspected));
    let record = rig.record("t").await;
    assert!(record.look.damage.is_some() && record.look.damage_seen == [instant(T1)]);
    rig.stop().await;
}

/// A rollback that names our instant while our driver holds leave, and that our job did not make.
#[tokio::test(start_paused = true)]
async fn a_rollback_that_is_not_ours_is_damage() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    rig.begun(1, "t", Action::Clustering, T1).await;
    rig.table("t", |t| {
        t.rollbacks = vec![T2.to_owned()];
        t.roll_back(Action::Clustering, &instant(T1));
    });
    rig.callback("t").await;
    rig.pass(20).await;
    assert!(rig.alerts.stands(AlertKind::DamageSuspected), "at once, not when the job ends");
    let text = rig.alerts.text(AlertKind::DamageSuspected).unwrap();
    assert!(text.contains(T1) && text.contains(T2), "{text}");
    rig.until_state(&key, "obsolete").await;
    let other = rig.planned("t", Action::Compaction, T3).await;
    rig.until_parked(&other, ParkReason::DamageSuspected).await;
    rig.stop().await;
}

/// A retry of ours rolls the rest of our own former attempt back: that one is explained.
#[tokio::test(start_paused = true)]
async fn the_rollback_of_our_own_retry_is_explained() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.end(&job.tag, "killed");
    let again = rig.begun(2, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.rollbacks = vec![T2.to_owned()]);
    rig.completes(&again, 2, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    assert!(!rig.alerts.stands(AlertKind::DamageSuspected));
    rig.stop().await;
}

/// Removed and added again, registered anew, or with past attempts that were pruned: what lies on the timeline from before
/// says nothing of now.
#[tokio::test(start_paused = true)]
async fn a_rollback_from_before_the_attempt_is_no_damage() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.rollbacks.push(T2.to_owned()));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.callback("t").await;
    rig.pass(20).await;
    assert!(!rig.alerts.stands(AlertKind::DamageSuspected), "while it runs");
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    assert!(!rig.alerts.stands(AlertKind::DamageSuspected));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_rollback_is_damage_whatever_was_rolled_back_before() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.rollbacks.push(T2.to_owned()));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.rollbacks.push(T3.to_owned()));
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    let text = rig.alerts.text(AlertKind::DamageSuspected).unwrap();
    assert!(text.contains(T3) && !text.contains(T2), "{text}");
    rig.stop().await;
}

/// Each retry of ours explains one rollback, not those that others make later.
#[tokio::test(start_paused = true)]
async fn a_second_rollback_during_our_retry_is_damage() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.end(&job.tag, "killed");
    rig.begun(2, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.rollbacks = vec![T2.to_owned(), T3.to_owned()]);
    rig.callback("t").await;
    rig.pass(20).await;
    assert!(rig.alerts.stands(AlertKind::DamageSuspected));
    rig.stop().await;
}

/// A job that changed the version of a properties file locks old writers out: an alarm.
#[tokio::test(start_paused = true)]
async fn a_job_that_changed_a_version_is_an_alarm() {
    for of_metadata in [false, true] {
        let rig = Rig::start().await;
        rig.table("t", |t| t.sight.facts.metadata_table = Some((6, 1)));
        let key = rig.planned("t", Action::Compaction, T1).await;
        let job = rig.begun(1, "t", Action::Compaction, T1).await;
        rig.table("t", |t| {
            if of_metadata {
                t.sight.facts.metadata_table = Some((9, 2));
            } else {
                t.sight.facts.table_version = 8;
            }
        });
        rig.completes(&job, 1, "t", Action::Compaction, T1).await;
        rig.until_state(&key, "succeeded").await;
        assert!(rig.alerts.stands(AlertKind::VersionChanged), "of the metadata table: {of_metadata}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_version_is_no_alarm() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.sight.facts.metadata_table = Some((9, 2)));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    assert!(!rig.alerts.stands(AlertKind::VersionChanged));
    assert!(rig.record("t").await.look.last_success.contains_key(&Action::Compaction));
    rig.stop().await;
}
