//! What may run beside what, in which order, and how much of it; and what is forgotten.

use std::time::Duration;

use tms_core::clock::Clock;
use tms_core::error::ErrorKind;
use tms_core::manager::queue::QueueChange;
use tms_core::model::action::Action;
use tms_core::store::InstanceFilter;

use crate::rig::{Rig, T1, T2, T3, run_id};

async fn paused(rig: &Rig, name: &str) {
    rig.managers.queues.pause(&name.parse().unwrap(), "test").await.unwrap();
    // A change of a queue reaches the leader within a second.
    rig.pass(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_may_be_paused_before_its_first_use_but_not_resumed() {
    let rig = Rig::start().await;
    let queues = &rig.managers.queues;
    let etl = "etl".parse().unwrap();
    let refused = queues.resume(&etl, "test").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert_eq!(queues.list().await.unwrap().len(), 1, "a slip makes no queue");
    assert!(queues.pause(&etl, "test").await.unwrap().is_paused);
    assert!(!queues.resume(&etl, "test").await.unwrap().is_paused);
    // The default one is always there.
    assert!(!queues.resume(&"default".parse().unwrap(), "test").await.unwrap().is_paused);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_starts_nothing_and_lets_run_what_runs() {
    let rig = Rig::start().await;
    let running = rig.planned("a", Action::Compaction, T1).await;
    let job = rig.begun(1, "a", Action::Compaction, T1).await;
    paused(&rig, "default").await;
    let key = rig.planned("b", Action::Compaction, T1).await;
    rig.pass(900).await;
    assert_eq!(rig.engine.calls().submit, 1);
    let waiting = rig.find(&key).await.unwrap();
    let view = rig.managers.instances.view(waiting).await.unwrap();
    assert_eq!(view.waits_for.unwrap(), "the queue default to be resumed");
    rig.completes(&job, 1, "a", Action::Compaction, T1).await;
    rig.until_state(&running, "succeeded").await;
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    let since = rig.clock_secs();
    rig.job(2).await;
    assert!(rig.clock_secs() - since <= 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_starts_no_more_than_its_limit() {
    let rig = Rig::start().await;
    let limit = QueueChange { limit: Some(3), ..QueueChange::default() };
    rig.managers.queues.set(&"default".parse().unwrap(), &limit, "test").await.unwrap();
    rig.pass(2).await;
    for n in 0..8 {
        rig.planned(&format!("t{n}"), Action::Compaction, T1).await;
    }
    rig.pass(60).await;
    assert_eq!(rig.engine.calls().submit, 3);
    for n in 1..=5 {
        let job = rig.job(n).await;
        rig.take_leave(&job, &run_id(n)).await;
        let name = job.base_path.trim_start_matches("/lake/").to_owned();
        rig.completes(&job, n, &name, Action::Compaction, T1).await;
        rig.pass(10).await;
        assert_eq!(rig.engine.calls().submit, (n as u64 + 3).min(8));
        assert!(rig.engine.live_tags().len() <= 3);
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_runs_one_attempt_at_a_time_in_the_order_of_its_needs() {
    let rig = Rig::start_with(|s| s.policies.defaults.clean_after_commits = 1).await;
    paused(&rig, "default").await;
    rig.table("t", |t| t.sight.commits.push(T1.parse().unwrap()));
    rig.planned("t", Action::Compaction, T3).await;
    rig.planned("t", Action::Compaction, T1).await;
    rig.planned("t", Action::Clustering, T2).await;
    rig.pass(2).await;
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    let mut order = Vec::new();
    for n in 1..=4 {
        let job = rig.job(n).await;
        rig.pass(30).await;
        assert_eq!(rig.engine.calls().submit, n as u64, "one at a time");
        rig.take_leave(&job, &run_id(n)).await;
        let running = rig.store.get_instance(job.tag.instance()).await.unwrap().unwrap();
        order.push((running.key.action, running.key.instant.clone().map(|i| i.as_str().to_owned())));
        match &running.key.instant {
            Some(i) => rig.completes(&job, n, "t", running.key.action, i.as_str()).await,
            None => rig.ends(&job, n, "returned", 0, &[]).await,
        }
    }
    let text = |t: &str| Some(t.to_owned());
    assert_eq!(
        order,
        [
            (Action::Clustering, text(T2)),
            (Action::Compaction, text(T1)),
            (Action::Compaction, text(T3)),
            (Action::Clean, None)
        ]
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_goes_to_the_queue_and_with_the_priority_of_its_settings() {
    let rig = Rig::start().await;
    paused(&rig, "default").await;
    paused(&rig, "night").await;
    for name in ["low", "high"] {
        rig.callback(name).await;
    }
    rig.settings("low", |s| s.queue = Some("night".parse().unwrap())).await;
    rig.settings("high", |s| {
        s.queue = Some("night".parse().unwrap());
        s.priority = Some(5);
    })
    .await;
    rig.planned("low", Action::Compaction, T1).await;
    rig.pass(10).await;
    rig.planned("high", Action::Compaction, T1).await;
    rig.pass(10).await;
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(10).await;
    assert_eq!(rig.engine.calls().submit, 0);
    let limit = QueueChange { limit: Some(1), is_paused: Some(false), ..QueueChange::default() };
    rig.managers.queues.set(&"night".parse().unwrap(), &limit, "test").await.unwrap();
    assert_eq!(rig.job(1).await.base_path, "/lake/high");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn history_is_pruned_by_age_and_by_number_but_never_what_stands_unserved() {
    let rig = Rig::start_with(|s| {
        s.policies.history.keep = Duration::from_secs(1200);
        s.policies.history.keep_count = 5;
    })
    .await;
    let held = rig.planned("held", Action::Compaction, T1).await;
    let id = rig.until_attempt(&held, "accepted").await.id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.until_state(&held, "cancelled").await;
    for n in 0..10 {
        let key = rig.planned(&format!("t{n}"), Action::Compaction, T1).await;
        let job = rig.job(n + 2).await;
        rig.take_leave(&job, &run_id(n)).await;
        rig.completes(&job, n, &format!("t{n}"), Action::Compaction, T1).await;
        rig.until_state(&key, "succeeded").await;
    }
    rig.pass(120).await;
    let ended = || async {
        let filter = InstanceFilter { is_live: Some(false), ..InstanceFilter::default() };
        rig.store.list_instances(&filter, None, 100).await.unwrap().items
    };
    let left = ended().await;
    assert_eq!(left.len(), 5, "as many as are to be kept");
    assert!(left.iter().any(|i| i.id == id), "the held plan is among them, although it is the oldest");
    rig.pass(1300).await;
    let left = ended().await;
    assert_eq!(left.iter().map(|i| i.id).collect::<Vec<_>>(), [id]);
    assert!(rig.clock.now() > crate::rig::day_zero());
    rig.stop().await;
}
