//! A plan that a person removed stays removed while it stands, and what a person cancelled is not forgotten.

use tms_core::clock::Clock;
use tms_core::model::action::Action;
use tms_core::model::instance::InstanceKey;
use tms_core::store::PruneRule;

use crate::rig::{Rig, T1, T2, T3, instant};

/// A removed plan of a table whose queue is paused.
async fn removed(rig: &Rig) -> InstanceKey {
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let found = rig.until_state(&key, "pending").await;
    rig.managers.instances.remove(found.id, "test").await.unwrap();
    looked(rig).await;
    assert!(rig.find(&key).await.is_none());
    key
}

async fn looked(rig: &Rig) {
    rig.callback("t").await;
    rig.pass(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_plan_that_one_look_misses_stays_removed() {
    let rig = Rig::start().await;
    let key = removed(&rig).await;
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    looked(&rig).await;
    rig.table("t", |t| t.plan(Action::Clustering, &instant(T1)));
    looked(&rig).await;
    assert!(rig.find(&key).await.is_none());
    // The grace begins anew.
    rig.pass(600).await;
    looked(&rig).await;
    assert!(rig.find(&key).await.is_none());
    rig.stop().await;
}

/// Gone by the rule of every plan, its key is free again.
#[tokio::test(start_paused = true)]
async fn a_removed_plan_that_is_gone_is_forgotten() {
    let rig = Rig::start().await;
    let key = removed(&rig).await;
    assert_eq!(rig.record("t").await.look.removed.len(), 1);
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    looked(&rig).await;
    assert!(rig.store.has_tombstone(&key).await.unwrap());
    rig.pass(200).await;
    assert!(!rig.store.has_tombstone(&key).await.unwrap(), "without any trigger");
    assert!(rig.record("t").await.look.removed.is_empty());
    rig.stop().await;
}

/// Removed and gone between two looks: the list of the look before tells of it.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_removed_and_vanishes_before_the_next_look_is_forgotten_too() {
    let rig = Rig::start().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let found = rig.until_state(&key, "pending").await;
    rig.managers.instances.remove(found.id, "test").await.unwrap();
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    looked(&rig).await;
    rig.pass(200).await;
    assert!(!rig.store.has_tombstone(&key).await.unwrap());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn handing_an_action_back_and_over_again_brings_no_removed_plan_back() {
    let rig = Rig::start().await;
    let key = removed(&rig).await;
    rig.settings("t", |s| s.actions = Some([Action::Compaction].into())).await;
    looked(&rig).await;
    rig.pass(600).await;
    looked(&rig).await;
    rig.settings("t", |s| s.actions = None).await;
    looked(&rig).await;
    assert!(rig.find(&key).await.is_none());
    rig.stop().await;
}

/// The list of unserved plans is cut; a removed plan behind its end is no other than one before.
#[tokio::test(start_paused = true)]
async fn a_removed_plan_stays_removed_behind_a_full_list_of_older_ones() {
    let rig = Rig::start().await;
    let key = removed(&rig).await;
    rig.table("t", |t| {
        for n in 0..120 {
            t.plan(Action::Compaction, &instant(&format!("20260101000000{n:03}")));
        }
        t.sight.pending.sort_by(|a, b| a.instant.cmp(&b.instant));
    });
    looked(&rig).await;
    rig.pass(600).await;
    looked(&rig).await;
    assert!(rig.find(&key).await.is_none());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_plan_that_a_person_adds_again_runs() {
    let rig = Rig::start().await;
    let key = removed(&rig).await;
    rig.store.clear_tombstone(&key).await.unwrap();
    looked(&rig).await;
    assert!(rig.find(&key).await.is_some());
    assert!(rig.record("t").await.look.removed.is_empty());
    rig.stop().await;
}

/// Handed over again, a plan that was cancelled must not run because its instance was pruned meanwhile.
#[tokio::test(start_paused = true)]
async fn a_cancelled_instance_is_kept_while_its_plan_stands_whoever_may_execute_it() {
    let rig = Rig::start().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    let kept = rig.planned("t", Action::Clustering, T1).await;
    let gone = rig.planned("t", Action::Clustering, T2).await;
    for key in [&kept, &gone] {
        let found = rig.until_state(key, "pending").await;
        rig.managers.instances.cancel(found.id, "test").await.unwrap();
    }
    rig.settings("t", |s| s.actions = Some([Action::Compaction].into())).await;
    rig.table("t", |t| {
        t.roll_back(Action::Clustering, &instant(T2));
        t.plan(Action::Clustering, &instant(T3));
    });
    looked(&rig).await;
    let record = rig.record("t").await;
    assert_eq!((record.look.unserved.len(), record.look.foreign.len()), (0, 2), "{record:#?}");
    let (term, _) = rig.store.current_term().await.unwrap().unwrap();
    let rule = PruneRule { before: rig.clock.now(), keep_count: 0, batch_max: 100 };
    assert_eq!(rig.store.prune(term, rule).await.unwrap(), 1);
    assert!(rig.find(&gone).await.is_none());
    rig.settings("t", |s| s.actions = None).await;
    looked(&rig).await;
    assert_eq!(rig.find(&kept).await.unwrap().state.as_str(), "cancelled");
    rig.stop().await;
}
