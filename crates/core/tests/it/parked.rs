//! Parked: why, and what releases it.

use tms_core::alert::AlertKind;
use tms_core::clock::Clock;
use tms_core::model::action::Action;
use tms_core::model::instance::{InstanceState, ParkReason, WaitReason};
use tms_core::model::policy::Concurrency;
use tms_core::timeline::Overtaken;

use crate::rig::{Rig, T1, T2, instant, run_id};

#[tokio::test(start_paused = true)]
async fn a_table_without_a_lock_parks_with_the_lines_to_set_until_its_settings_change() {
    let rig = Rig::start_with(|s| s.policies.defaults.concurrency = None).await;
    rig.table("t", |t| t.sight.facts.metadata_table = Some((9, 2)));
    let key = rig.planned("t", Action::Compaction, T1).await;
    let parked = rig.until_parked(&key, ParkReason::NoLock).await;
    let InstanceState::Parked { detail, .. } = &parked.state else { panic!() };
    for line in [
        "hoodie.write.concurrency.mode=optimistic_concurrency_control",
        "hoodie.write.lock.provider=",
        "hoodie.write.lock.filesystem.expire=30",
        "hoodie.cleaner.policy.failed.writes=LAZY",
        "hoodie.write.lock.conflict.resolution.strategy=",
    ] {
        assert!(detail.contains(line), "{line}: {detail}");
    }
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 0);
    assert!(rig.alerts.stands(AlertKind::InstanceParked));
    rig.settings("t", |s| s.concurrency = Some(Concurrency::Exclusive)).await;
    let since = rig.clock_secs();
    rig.job(1).await;
    assert!(rig.clock_secs() - since < 5);
    assert!(!rig.alerts.stands(AlertKind::InstanceParked));
    rig.stop().await;
}

/// What holds for the table is read once per look, however many plans are parked.
#[tokio::test(start_paused = true)]
async fn many_parked_plans_cost_no_more_than_one() {
    let rig = Rig::start_with(|s| s.policies.defaults.concurrency = None).await;
    rig.table("t", |t| {
        t.sight.facts.metadata_table = Some((9, 2));
        for n in 0..300 {
            t.plan(Action::Compaction, &instant(&format!("20270101000000{n:03}")));
        }
    });
    rig.callback("t").await;
    rig.until_parked(&Rig::key("t", Action::Compaction, "20270101000000299"), ParkReason::NoLock).await;
    rig.pass(60).await;
    let before = (rig.looks.n_versions(), rig.table("t", |t| t.n_looks));
    rig.callback("t").await;
    rig.pass(60).await;
    let after = (rig.looks.n_versions(), rig.table("t", |t| t.n_looks));
    assert!(after.0 - before.0 <= 2 && after.1 - before.1 <= 4, "{before:?} {after:?}");
    rig.settings("t", |s| s.concurrency = Some(Concurrency::Exclusive)).await;
    rig.job(1).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_without_a_metadata_table_needs_no_lock() {
    let rig = Rig::start_with(|s| s.policies.defaults.concurrency = None).await;
    rig.planned("t", Action::Compaction, T1).await;
    rig.job(1).await;
    rig.stop().await;
}

/// A running write without a heartbeat: no locked job on that table until a person says so.
#[tokio::test(start_paused = true)]
async fn a_writer_that_is_not_locked_parks_the_table_until_a_person_says_so() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.unlocked_writes = vec![T2.to_owned()]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let parked = rig.until_parked(&key, ParkReason::UnlockedWriter).await;
    // The write is over; its writer is still what it was.
    rig.table("t", |t| t.unlocked_writes.clear());
    let other = rig.planned("t", Action::Clustering, T2).await;
    rig.until_parked(&other, ParkReason::UnlockedWriter).await;
    for _ in 0..5 {
        rig.callback("t").await;
        rig.pass(700).await;
    }
    assert_eq!(rig.engine.calls().submit, 0);
    rig.managers.instances.retry(parked.id, false, "test").await.unwrap();
    // What a person says of the writer holds for the table.
    let first = rig.job(1).await;
    rig.take_leave(&first, &run_id(1)).await;
    rig.engine.end(&first.tag, "killed");
    rig.job(2).await;
    rig.stop().await;
}

/// What was seen of the writer by the check of another plan holds for a job that was submitted before.
#[tokio::test(start_paused = true)]
async fn a_job_gets_no_leave_on_a_table_whose_writer_is_not_locked() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T2));
        t.inflight(Action::Compaction, &instant(T2));
        t.sign = Some(rig.clock.now());
    });
    rig.callback("t").await;
    let foreign = Rig::key("t", Action::Compaction, T2);
    rig.until_state(&foreign, "waiting_foreign").await;
    rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.table("t", |t| t.unlocked_writes = vec![crate::rig::T3.to_owned()]);
    rig.callback("t").await;
    rig.until_parked(&foreign, ParkReason::UnlockedWriter).await;
    rig.table("t", |t| t.unlocked_writes.clear());
    rig.refused(&job, &run_id(1), tms_core::manager::attempt::LeaveStage::Start, "unlocked_writer").await;
    rig.stop().await;
}

/// What a look would do, without changing anything.
#[tokio::test(start_paused = true)]
async fn advice_tells_what_would_become_of_each_plan() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.plan(Action::Compaction, &instant(T1));
        t.plan(Action::Compaction, &instant(T2));
        t.plan(Action::LogCompaction, &instant(crate::rig::T3));
        t.plan(Action::Clean, &instant(crate::rig::T3));
    });
    rig.callback("t").await;
    rig.job(1).await;
    let waiting = rig.until_state(&Rig::key("t", Action::Compaction, T2), "pending").await;
    let advice = || async {
        let found = rig.managers.maintained.advice(Rig::id("t")).await.unwrap();
        found.would_run.into_iter().map(|p| p.verdict).collect::<Vec<_>>()
    };
    let not_ours = "left alone: the action is not handed over";
    assert_eq!(advice().await, ["runs", "would run", not_ours, not_ours]);
    rig.managers.instances.cancel(waiting.id, "test").await.unwrap();
    let before = rig.record("t").await;
    assert!(advice().await[1].starts_with("left alone: it is cancelled"));
    assert_eq!(rig.record("t").await, before);
    rig.stop().await;
}

/// Whoever ends it: an alarm does not outlive its cause.
#[tokio::test(start_paused = true)]
async fn alarms_end_with_what_they_stand_for() {
    let mut rig = Rig::start_with(|s| s.policies.defaults.concurrency = None).await;
    for name in ["a", "b", "c"] {
        rig.table(name, |t| t.sight.facts.metadata_table = Some((9, 2)));
        let key = rig.planned(name, Action::Compaction, T1).await;
        rig.until_parked(&key, ParkReason::NoLock).await;
    }
    assert_eq!(rig.alerts.n_standing(AlertKind::InstanceParked), 3);
    let id = |name: &str| {
        let key = Rig::key(name, Action::Compaction, T1);
        let rig = &rig;
        async move { rig.find(&key).await.unwrap().id }
    };
    rig.managers.instances.cancel(id("a").await, "test").await.unwrap();
    rig.managers.instances.remove(id("b").await, "test").await.unwrap();
    rig.pass(10).await;
    assert_eq!(rig.alerts.n_standing(AlertKind::InstanceParked), 1);
    // What stands is told again by the next leader, which may be another process.
    rig.alerts.forget();
    rig.crash().await;
    rig.pass(10).await;
    assert_eq!(rig.alerts.n_standing(AlertKind::InstanceParked), 1);
    rig.table("c", |t| t.is_unreadable = true);
    rig.callback("c").await;
    rig.eventually("unreadable", || rig.alerts.stands(AlertKind::TableUnreadable)).await;
    rig.managers.tables.remove(Rig::id("c")).await.unwrap();
    rig.pass(10).await;
    assert!(!rig.alerts.stands(AlertKind::TableUnreadable) && !rig.alerts.stands(AlertKind::InstanceParked));
    rig.stop().await;
}

/// A lock file older than an ordinary commit stops submissions until its expiry; TMS shows it and never deletes it.
#[tokio::test(start_paused = true)]
async fn an_old_lock_delays_until_its_expiry() {
    let rig = Rig::start().await;
    rig.pass(10).await;
    rig.table("t", |t| t.lock_since = Some(rig.clock.now()));
    let young = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&young, "succeeded").await;
    rig.pass(120).await;
    let key = rig.planned("t", Action::Compaction, T2).await;
    let waits = |i: &tms_core::model::instance::Instance| {
        matches!(i.state, InstanceState::Pending { reason: WaitReason::LockHeld, not_before: Some(_) })
    };
    rig.until(&key, "delayed", waits).await;
    rig.pass(600).await;
    assert!(waits(&rig.find(&key).await.unwrap()));
    rig.pass(60).await;
    assert!(rig.alerts.stands(AlertKind::LockOld));
    assert_eq!(rig.engine.calls().submit, 1);
    let since = rig.record("t").await.look.lock_since.unwrap();
    rig.job(2).await;
    let age = rig.clock.now() - since;
    assert!(age.num_minutes() >= 30 && age.num_seconds() < 31 * 60, "{age}");
    rig.table("t", |t| t.lock_since = None);
    rig.callback("t").await;
    rig.pass(60).await;
    assert!(!rig.alerts.stands(AlertKind::LockOld));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_expiry_that_is_configured_counts() {
    let rig = Rig::start().await;
    rig.callback("t").await;
    rig.settings("t", |s| {
        s.hudi_options.insert("hoodie.write.lock.filesystem.expire".to_owned(), "2".to_owned());
    })
    .await;
    rig.pass(100).await;
    rig.table("t", |t| t.lock_since = Some(crate::rig::day_zero() + chrono::TimeDelta::seconds(20)));
    rig.planned("t", Action::Compaction, T1).await;
    rig.job(1).await;
    assert!((140..175).contains(&rig.clock_secs()), "{}", rig.clock_secs());
    rig.stop().await;
}

/// An overtaken plan stays parked while it stands: it goes on blocking writers.
#[tokio::test(start_paused = true)]
async fn an_overtaken_clustering_is_never_submitted() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.overtaken = Overtaken::Yes { instant: T2.to_owned(), file_group: "g1".to_owned() };
    });
    let key = rig.planned("t", Action::Clustering, T1).await;
    let parked = rig.until_parked(&key, ParkReason::Overtaken).await;
    let InstanceState::Parked { detail, .. } = &parked.state else { panic!() };
    assert!(detail.contains(T2) && detail.contains("g1"), "{detail}");
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    rig.pass(3600).await;
    rig.until_parked(&key, ParkReason::Overtaken).await;
    assert_eq!(rig.engine.calls().submit, 0);
    assert_eq!(rig.record("t").await.look.unserved.len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_clustering_of_which_nothing_can_be_told_is_released_when_it_can() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.overtaken = Overtaken::Unknown { reason: "a commit cannot be read".to_owned() });
    let key = rig.planned("t", Action::Clustering, T1).await;
    rig.until_parked(&key, ParkReason::OvertakenUnknown).await;
    rig.table("t", |t| t.overtaken = Overtaken::No);
    rig.callback("t").await;
    rig.job(1).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_a_metadata_table_or_an_unknown_version_is_parked() {
    let rig = Rig::start().await;
    rig.table("m", |t| t.sight.is_metadata_table = true);
    rig.table("v", |t| t.sight.facts.table_version = 5);
    let metadata = rig.planned("m", Action::Compaction, T1).await;
    let old = rig.planned("v", Action::Compaction, T1).await;
    rig.until_parked(&metadata, ParkReason::MetadataTable).await;
    rig.until_parked(&old, ParkReason::TableVersion).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restore_under_way_delays() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.sight.upheaval = Some(instant(T2)));
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.until(&key, "delayed", |i| {
        matches!(i.state, InstanceState::Pending { reason: WaitReason::Upheaval, .. })
    })
    .await;
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.table("t", |t| t.sight.upheaval = None);
    rig.job(1).await;
    rig.stop().await;
}

/// An option that could not go with a job: parked with its key, and without its value.
#[tokio::test(start_paused = true)]
async fn a_refused_option_of_the_configuration_parks() {
    let rig = Rig::start_with(|s| {
        s.policies.defaults.hudi_options.insert("hoodie.metadata.enable".to_owned(), "s3cret".to_owned());
    })
    .await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let parked = rig.until_parked(&key, ParkReason::BadOption).await;
    let InstanceState::Parked { detail, .. } = &parked.state else { panic!() };
    assert!(detail.contains("hoodie.metadata.enable") && !detail.contains("s3cret"), "{detail}");
    rig.pass(3600).await;
    let n_events = rig.store.events(parked.id).await.unwrap().len();
    assert!(n_events < 6, "{n_events} events of one hour");
    rig.stop().await;
}
