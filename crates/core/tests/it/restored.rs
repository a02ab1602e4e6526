//! Stores that do not know every job: restored from a copy, or put beside jobs that are older or newer.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use tms_core::alert::AlertKind;
use tms_core::engine::{Engine, JobState};
use tms_core::manager::attempt::LeaveStage;
use tms_core::model::action::Action;
use tms_core::model::id::{Incarnation, InstanceId, Tag};
use tms_core::model::instance::InstanceKey;
use tms_core::store::kv::{OrderedKv, restore_blocking};
use tms_core::store::memory::{MemoryKv, open_memory};
use tms_core::store::{HoldCause, Store};

use crate::rig::{Rig, T1, T2, instant, run_id};

const QUIET: Duration = Duration::from_secs(120);

/// Copies what a rig's store holds now.
async fn copy_of(rig: &Rig) -> Vec<u8> {
    let mut pieces = rig.store.begin_copy().await.unwrap();
    let mut copy = Vec::new();
    while let Some(piece) = pieces.recv().await {
        copy.extend(piece.unwrap());
    }
    copy
}

/// Kills the node and starts one on a store that is made from the copy; engine and tables stay as they are.
async fn restored(mut former: Rig, copy: Vec<u8>) -> Rig {
    former.kill_node().await;
    let memory = Arc::new(MemoryKv::default());
    let kv: Arc<dyn OrderedKv> = Arc::clone(&memory) as _;
    restore_blocking(&kv, Cursor::new(copy), tms_core::clock::Clock::now(&*former.clock)).unwrap();
    Box::pin(on_store(former, open_memory(memory).unwrap())).await
}

async fn on_store(former: Rig, store: Arc<dyn Store>) -> Rig {
    let (engine, engines, timelines) =
        (Arc::clone(&former.engine), former.engines.clone(), Arc::clone(&former.timelines));
    former.stop().await;
    let mut rig = Rig::idle_with(|setup| {
        setup.store = store;
        setup.engines = engines;
        setup.timelines = timelines;
        setup.policies.restore_quiet = QUIET;
    });
    rig.engine = engine;
    rig.start_node();
    tokio::time::sleep(Duration::from_millis(1)).await;
    rig
}

async fn waits_for(rig: &Rig, key: &InstanceKey) -> String {
    let id = rig.find(key).await.unwrap().id;
    rig.managers.instances.show(id).await.unwrap().view.waits_for.unwrap()
}

/// The plan was submitted after the copy: the copy knows it as waiting, or not at all.
#[tokio::test(start_paused = true)]
async fn a_job_that_the_copy_does_not_know_holds_everything_until_it_ended() {
    let rig = Rig::start().await;
    let before = copy_of(&rig).await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    let rig = restored(rig, before).await;
    // Its writer and that of another table tell of them again.
    rig.callback("t").await;
    let other = rig.planned("u", Action::Compaction, T2).await;
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 1, "nothing is submitted while the unknown job lives");
    assert!(rig.alerts.text(AlertKind::UnknownJobs).unwrap().contains(job.tag.as_str()));
    assert!(waits_for(&rig, &other).await.contains(job.tag.as_str()));
    // It completes its plan, as if nothing had happened.
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.engine.end(&job.tag, "exit 0");
    rig.pass(100).await;
    assert_eq!(rig.engine.calls().submit, 1, "nor within the quiet time");
    assert!(!rig.alerts.stands(AlertKind::UnknownJobs));
    assert!(waits_for(&rig, &other).await.contains("no unknown job was found alive"));
    rig.pass(30).await;
    assert_eq!(rig.engine.calls().submit, 2, "the other plan alone");
    assert_eq!(rig.store.hold().await.unwrap(), None);
    rig.callback("t").await;
    rig.until_state(&key, "succeeded").await;
    assert!(!rig.alerts.stands(AlertKind::NotHandedOver), "it was a job of ours");
    rig.stop().await;
}

/// The copy knows a first attempt; a second one, which it does not know, left the plan inflight.
#[tokio::test(start_paused = true)]
async fn an_inflight_that_the_copy_cannot_explain_is_foreign() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let first = rig.job(1).await;
    let copy = copy_of(&rig).await;
    rig.ends(&first, 1, "untouched", 10, &[]).await;
    let second = rig.job(2).await;
    rig.begun(2, "t", Action::Compaction, T1).await;
    assert_ne!(first.tag, second.tag);
    let rig = restored(rig, copy).await;
    rig.pass(600).await;
    assert!(rig.alerts.stands(AlertKind::UnknownJobs));
    // The second one dies in its call. The first is proven over by its engine.
    rig.engine.end(&second.tag, "killed");
    rig.pass(600).await;
    assert_eq!(rig.engine.calls().submit, 2);
    rig.until_state(&key, "waiting_foreign").await;
    rig.stop().await;
}

/// The driver got leave after the copy was made: the copy says that nobody holds the attempt.
#[tokio::test(start_paused = true)]
async fn a_holder_that_the_copy_does_not_know_is_adopted_and_never_revoked() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    let copy = copy_of(&rig).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    let rig = restored(rig, copy).await;
    let id = rig.find(&key).await.unwrap().id;
    // Another driver of the attempt gets nothing, whatever the copy says.
    rig.refused(&job, &run_id(7), LeaveStage::Start, "held_by_another_run").await;
    rig.engine.ignore_cancels(100);
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.pass(10).await;
    assert!(rig.get(id).await.takes_slot(), "cancelled is not over: no proof");
    assert_eq!(rig.get(id).await.attempt_state().unwrap().as_str(), "holding");
    rig.stop().await;
}

/// The first driver to speak of progress is the one that had leave.
#[tokio::test(start_paused = true)]
async fn a_restored_holder_goes_on_and_completes() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    let copy = copy_of(&rig).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    let rig = restored(rig, copy).await;
    assert!(!rig.speak(&job, &run_id(1), 10).await, "it is not told to stop");
    assert!(rig.speak(&job, &run_id(2), 10).await, "another one is");
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!((ended.n_attempts, rig.engine.calls().submit), (1, 1));
    rig.stop().await;
}

/// A store that was begun anew beside living jobs.
#[tokio::test(start_paused = true)]
async fn a_new_store_beside_living_jobs_waits_for_their_end() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    let rig = on_store(rig, tms_core::store::memory::memory_store()).await;
    rig.callback("t").await;
    let other = rig.planned("u", Action::Compaction, T2).await;
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 1);
    let hold = rig.store.hold().await.unwrap().unwrap();
    assert!(hold.cause == HoldCause::UnknownJobs && hold.detail.contains(job.tag.as_str()), "{hold:?}");
    rig.engine.end(&job.tag, "killed");
    rig.until_attempt(&other, "accepted").await;
    assert_eq!(rig.engine.calls().submit, 2, "the plan that it left inflight is somebody else's now");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_store_waits_for_an_engine_that_does_not_answer() {
    let rig = Rig::start().await;
    let copy = copy_of(&rig).await;
    rig.engine.set_unreachable(Some("down"));
    let rig = restored(rig, copy).await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 0);
    assert!(waits_for(&rig, &key).await.contains("cannot say which jobs live"));
    assert!(rig.alerts.stands(AlertKind::EngineTrouble), "people are told why nothing runs");
    rig.engine.set_unreachable(None);
    rig.until_attempt(&key, "accepted").await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    rig.stop().await;
}

/// Jobs of another TMS on the same machine are none of ours, unless they lie in our own folder.
#[tokio::test(start_paused = true)]
async fn jobs_of_another_service_on_the_machine_hold_nothing() {
    let mut rig = Rig::start().await;
    let of = |mark: &Incarnation| Tag::of(mark, InstanceId::new(), 1);
    let theirs = of(&Incarnation("ffffffff".to_owned()));
    rig.engine.set_state(&theirs, JobState::Running);
    rig.engine.set_elsewhere(&theirs);
    assert_eq!(rig.engine.living().await.unwrap().len(), 1);
    rig.crash().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.until_attempt(&key, "accepted").await;
    // One of an incarnation of this store counts wherever it is seen: here the store is older than the job.
    let ours = of(&rig.store.incarnation().await.unwrap());
    rig.engine.set_state(&ours, JobState::Running);
    rig.engine.set_elsewhere(&ours);
    rig.crash().await;
    let held = rig.planned("u", Action::Compaction, T2).await;
    rig.pass(600).await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.engine.end(&ours, "killed");
    rig.until_attempt(&held, "accepted").await;
    rig.stop().await;
}

/// An attempt of a pruned instance, in a folder that came from another machine, must not stop a service for ever.
#[tokio::test(start_paused = true)]
async fn a_job_of_ours_of_which_nobody_can_tell_begins_no_hold_and_prolongs_one() {
    let mut rig = Rig::start().await;
    let ours = Tag::of(&rig.store.incarnation().await.unwrap(), InstanceId::new(), 1);
    rig.engine.set_state(&ours, JobState::Running);
    rig.engine.set_untold(&ours);
    rig.crash().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    let copy = copy_of(&rig).await;
    let rig = restored(rig, copy).await;
    let key = rig.planned("u", Action::Compaction, T2).await;
    rig.pass(600).await;
    assert_eq!(rig.engine.calls().submit, 1, "a copy may not know it");
    rig.engine.end(&ours, "a person said so");
    rig.until_attempt(&key, "accepted").await;
    rig.stop().await;
}
