//! Cancel: the mark, what it stops, and when it is final.

use tms_core::alert::AlertKind;
use tms_core::engine::Force;
use tms_core::engine::scripted::Answer;
use tms_core::error::ErrorKind;
use tms_core::manager::attempt::LeaveStage;
use tms_core::model::action::Action;
use tms_core::model::instance::CancelAsked;
use tms_core::store::{Expect, InstanceWrite};

use crate::rig::{Rig, T1, T2, instant, run_id};

/// C11: cancelled here and running there is no pair.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_the_engine_ignores_is_repeated_and_final_only_at_the_end() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.planned("t", Action::Compaction, T2).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.ignore_cancels(3);
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    while rig.engine.cancels(&job.tag).len() < 4 {
        let now = rig.get(id).await;
        assert_eq!(now.state.as_str(), "active", "{now:?}");
        assert!(now.takes_slot() && now.cancel_asked.is_some());
        assert_eq!(rig.engine.calls().submit, 1, "the table's slot is taken");
        rig.pass(1).await;
    }
    rig.until_state(&key, "cancelled").await;
    // The plan is held until `retry`; the other one goes on.
    rig.job(2).await;
    assert!(rig.record("t").await.look.unserved.iter().any(|u| u.instant == instant(T1)));
    rig.callback("t").await;
    rig.pass(700).await;
    assert_eq!(rig.get(id).await.state.as_str(), "cancelled");
    rig.managers.instances.retry(id, false, "test").await.unwrap();
    rig.until_state(&key, "pending").await;
    rig.stop().await;
}

/// C12: the plan completes while it is being cancelled.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_races_with_success_is_a_success() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.ignore_cancels(1);
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.engine.end(&job.tag, "terminated");
    let ended = rig.until_state(&key, "succeeded").await;
    assert!(ended.cancel_asked.is_some());
    let error = rig.managers.instances.cancel(id, "test").await;
    assert!(
        error.is_ok_and(|view| view.instance.state.as_str() == "succeeded"),
        "asked again, nothing changes"
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_speaks_is_told_to_stop_before_anybody_kills_it() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.speak(&job, &run_id(1), 10).await;
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.pass(5).await;
    assert!(rig.engine.cancels(&job.tag).is_empty(), "it may hold the table's lock");
    assert!(rig.speak(&job, &run_id(1), 20).await);
    rig.ends(&job, 1, "stopped", 0, &[]).await;
    rig.until_state(&key, "cancelled").await;
    assert!(rig.engine.cancels(&job.tag).is_empty());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_obey_is_killed_in_the_end() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.ignore_cancels(20);
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    while rig.get(id).await.takes_slot() {
        rig.pass(5).await;
        rig.speak(&job, &run_id(1), 20).await;
    }
    let cancels = rig.engine.cancels(&job.tag);
    assert!(cancels.contains(&Force::Gentle) && cancels.last() == Some(&Force::Kill), "{cancels:?}");
    rig.until_state(&key, "cancelled").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_instance_is_cancelled_at_once() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let key = rig.planned("t", Action::Compaction, T2).await;
    rig.job(1).await;
    let waiting = rig.until_state(&key, "pending").await;
    let view = rig.managers.instances.cancel(waiting.id, "test").await.unwrap();
    assert_eq!(view.instance.state.as_str(), "cancelled");
    rig.callback("t").await;
    rig.pass(600).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "cancelled");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_leave_revokes_the_attempt() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::AcceptQueued]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    let ended = rig.until_state(&key, "cancelled").await;
    assert!(!ended.takes_slot());
    let answer = rig.ask(&job, &run_id(1), LeaveStage::Start).await;
    assert!(matches!(answer, tms_core::manager::attempt::LeaveAnswer::Refused { .. }), "{answer:?}");
    assert!(!rig.engine.cancels(&job.tag).is_empty(), "what was started is ended");
    rig.stop().await;
}

/// The engine cannot be asked: the mark stays, a driver hears it, and the end is final when the engine is back.
#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_engine_is_unreachable_reaches_the_driver() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.engine.set_unreachable(Some("down"));
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.pass(10).await;
    assert!(rig.alerts.stands(AlertKind::EngineTrouble));
    assert!(rig.speak(&job, &run_id(1), 30).await, "told to stop");
    rig.pass(600).await;
    assert!(rig.get(id).await.takes_slot());
    rig.engine.set_unreachable(None);
    rig.engine.end(&job.tag, "exit 143");
    rig.until_state(&key, "cancelled").await;
    rig.pass(10).await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    rig.stop().await;
}

/// Nobody has leave, so nothing that the engine could say matters.
#[tokio::test(start_paused = true)]
async fn a_cancel_before_leave_is_final_while_the_engine_is_unreachable() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    rig.engine.set_unreachable(Some("down"));
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.pass(10).await;
    assert_eq!(rig.get(id).await.state.as_str(), "cancelled");
    rig.refused(&job, &run_id(1), LeaveStage::Start, "revoked").await;
    rig.engine.set_unreachable(None);
    rig.pass(120).await;
    assert!(!rig.engine.cancels(&job.tag).is_empty(), "its job is ended when the engine is back");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_leave_is_final_when_its_engine_is_not_configured_any_more() {
    let mut rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    rig.stop_node().await;
    rig.engines.clear();
    rig.start_node();
    rig.pass(60).await;
    assert!(rig.find(&key).await.unwrap().takes_slot(), "nobody asked for its end");
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.pass(10).await;
    assert_eq!(rig.get(id).await.state.as_str(), "cancelled");
    rig.refused(&job, &run_id(1), LeaveStage::Start, "revoked").await;
    rig.stop().await;
}

/// The cancel comes while the engine is being called, and the engine refuses.
#[tokio::test(start_paused = true)]
async fn a_cancel_during_a_refused_submission_ends_the_instance() {
    let rig = Rig::start().await;
    rig.engine.set_absent_is_proof(true);
    rig.engine.answer_next([Answer::Refuse("no room".to_owned())]);
    let instances = rig.managers.instances.clone();
    rig.engine.on_submit(move |job| {
        let (instances, id) = (instances.clone(), job.tag.instance());
        let cancel = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { instances.cancel(id, "test").await.unwrap() });
        };
        std::thread::spawn(cancel).join().unwrap();
    });
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.until_state(&key, "cancelled").await;
    rig.pass(3_600).await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

/// Another job has its tag: nobody is going to run it, and it is not held for ever.
#[tokio::test(start_paused = true)]
async fn a_cancelled_instance_whose_tag_is_taken_ends() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    let id = rig.until_attempt(&key, "accepted").await.id;
    rig.engine.ignore_cancels(1_000);
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.pass(1).await;
    rig.engine.take_tag(&job.tag, "other");
    rig.until_state(&key, "cancelled").await;
    rig.stop().await;
}

/// Rows of the time when this could happen: the mark is no reason to do nothing.
#[tokio::test(start_paused = true)]
async fn a_waiting_instance_with_a_cancel_mark_can_be_cancelled() {
    let rig = Rig::start().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let waiting = rig.until_state(&key, "pending").await;
    let mut marked = waiting.clone();
    marked.cancel_asked = Some(CancelAsked { by: "test".to_owned(), at: waiting.created_at });
    let expect = Expect::Version(waiting.version);
    let write = InstanceWrite { expect, after: marked, events: Vec::new(), past_attempt: None };
    rig.store.write(None, vec![write]).await.unwrap();
    rig.managers.instances.cancel(waiting.id, "test").await.unwrap();
    assert_eq!(rig.get(waiting.id).await.state.as_str(), "cancelled");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn clear_cancels_what_waits_and_what_runs_only_on_demand() {
    let rig = Rig::start().await;
    let running = rig.planned("t", Action::Compaction, T1).await;
    let waiting = rig.planned("t", Action::Compaction, T2).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    rig.until_state(&waiting, "pending").await;
    assert_eq!(rig.managers.instances.clear(Rig::id("t"), false, "test").await.unwrap(), 1);
    rig.until_state(&waiting, "cancelled").await;
    assert!(rig.find(&running).await.unwrap().cancel_asked.is_none());
    assert_eq!(rig.managers.instances.clear(Rig::id("t"), true, "test").await.unwrap(), 1);
    rig.until_state(&running, "cancelled").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_instance_stays_away_while_its_plan_stands() {
    let rig = Rig::start().await;
    rig.engine.ignore_cancels(1000);
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.job(1).await;
    let id = rig.find(&key).await.unwrap().id;
    let refused = rig.managers.instances.remove(id, "test").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "it runs");
    let other = rig.planned("t", Action::Compaction, T2).await;
    let waiting = rig.until_state(&other, "pending").await;
    rig.managers.instances.remove(waiting.id, "test").await.unwrap();
    rig.callback("t").await;
    rig.pass(700).await;
    assert!(rig.find(&other).await.is_none());
    assert!(
        rig.record("t").await.look.unserved.iter().any(|u| u.instant == instant(T2)),
        "shown with its age"
    );
    // The plan goes and another one of the same instant comes: it is new.
    rig.table("t", |t| t.roll_back(Action::Compaction, &instant(T2)));
    rig.callback("t").await;
    // Gone for certain, as with every plan.
    rig.pass(200).await;
    rig.planned("t", Action::Compaction, T2).await;
    rig.until_state(&other, "pending").await;
    rig.stop().await;
}
