//! Passes: one at a time, and no wake is lost.

use std::time::Duration;

use tms_core::model::action::Action;

use crate::rig::{Rig, T1, T2, T3, instant};

/// C17: a pass slower than the period, with a hundred wake-ups.
#[tokio::test(start_paused = true)]
async fn a_hundred_wakes_during_a_slow_look_lead_to_one_more_look_and_never_to_two_at_once() {
    let rig = Rig::start_with(|s| s.policies.look.scan_every = Duration::from_secs(1)).await;
    rig.callback("t").await;
    rig.pass(1).await;
    rig.looks.set_delay(Duration::from_secs(20));
    rig.callback("t").await;
    rig.pass(1).await;
    let before = rig.table("t", |t| t.n_looks);
    for _ in 0..100 {
        rig.callback("t").await;
        rig.pass(0).await;
    }
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    rig.pass(55).await;
    assert_eq!(rig.looks.most_at_once(), 1);
    assert!(rig.find(&Rig::key("t", Action::Compaction, T1)).await.is_some(), "the last wake is not lost");
    let record = rig.record("t").await;
    assert_eq!(record.look.looked, record.touch.touch);
    let n_looks = rig.table("t", |t| t.n_looks) - before;
    assert!(n_looks <= 4, "{n_looks} looks for a hundred callbacks");
    rig.stop().await;
}

/// One slow table holds up no other.
#[tokio::test(start_paused = true)]
async fn many_tables_are_looked_at_beside_each_other() {
    let rig = Rig::start().await;
    rig.looks.set_delay(Duration::from_secs(10));
    for n in 0..64 {
        rig.planned(&format!("t{n}"), Action::Compaction, T1).await;
    }
    rig.pass(45).await;
    for n in 0..64 {
        let found = rig.find(&Rig::key(&format!("t{n}"), Action::Compaction, T1)).await;
        assert!(found.is_some(), "table {n} after four turns of thirty-two");
    }
    assert_eq!(rig.looks.most_at_once(), 1);
    rig.stop().await;
}

/// The flows of one table keep out of each other's way: looks, submissions and judgements of many instances.
#[tokio::test(start_paused = true)]
async fn looks_submissions_and_judgements_of_a_table_never_overlap() {
    let rig = Rig::start().await;
    rig.looks.set_delay(Duration::from_secs(3));
    let mut keys = Vec::new();
    for text in [T1, T2, T3] {
        keys.push(rig.planned("t", Action::Compaction, text).await);
    }
    for (n, text) in [T1, T2, T3].into_iter().enumerate() {
        let job = rig.job(n + 1).await;
        rig.callback("t").await;
        rig.take_leave(&job, &crate::rig::run_id(n)).await;
        rig.callback("t").await;
        rig.completes(&job, n, "t", Action::Compaction, text).await;
        rig.callback("t").await;
        rig.until_state(&keys[n], "succeeded").await;
    }
    // The drivers' own asks look beside the leader; the leader's flows do not overlap.
    assert!(rig.looks.most_at_once() <= 2);
    rig.stop().await;
}
