//! A table that cannot be read any more while an attempt is live: the slot is freed by proof, the verdict waits.

use tms_core::model::action::Action;
use tms_core::model::instance::{InstanceState, WaitReason};

use crate::rig::{Rig, T1, run_id};

#[tokio::test(start_paused = true)]
async fn a_job_that_is_proven_dead_frees_its_slot_on_a_table_that_vanished() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.is_unreadable = true);
    rig.ends(&job, 1, "threw", 3, &["no such file"]).await;
    rig.until_state(&key, "pending").await;
    let waiting = rig.find(&key).await.unwrap();
    assert!(
        matches!(waiting.state, InstanceState::Pending { reason: WaitReason::Unreadable, .. }),
        "{:?}",
        waiting.state
    );
    assert_eq!((waiting.n_failed, waiting.has_called), (0, true));
    rig.pass(3_600).await;
    assert_eq!(rig.engine.calls().submit, 1, "nothing is submitted for a table that cannot be read");
    // The table is back: what the attempt left is ours.
    rig.table("t", |t| t.is_unreadable = false);
    let again = rig.job(2).await;
    rig.take_leave(&again, &run_id(2)).await;
    rig.completes(&again, 2, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_on_a_table_that_vanished() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.is_unreadable = true);
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.engine.end(&job.tag, "killed");
    rig.until_state(&key, "cancelled").await;
    rig.managers.tables.remove(Rig::id("t")).await.unwrap();
    rig.stop().await;
}

/// Completed was seen before the table vanished.
#[tokio::test(start_paused = true)]
async fn a_job_that_ends_after_its_plan_was_seen_completed_has_succeeded() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.table("t", |t| t.complete(Action::Compaction, &T1.parse().unwrap()));
    rig.callback("t").await;
    rig.until_state(&key, "succeeding").await;
    rig.table("t", |t| t.is_unreadable = true);
    rig.engine.end(&job.tag, "exit 0");
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}
