//! An advice says what dispatch would do, by what dispatch asks.

use tms_core::engine::NotReady;
use tms_core::manager::queue::QueueChange;
use tms_core::model::action::Action;
use tms_core::model::instance::ParkReason;
use tms_core::model::policy::Concurrency;

use crate::rig::{Rig, T1, instant};

async fn verdict(rig: &Rig) -> String {
    let advice = rig.managers.maintained.advice(Rig::id("t")).await.unwrap();
    assert_eq!(advice.would_run.len(), 1);
    advice.would_run[0].verdict.clone()
}

/// Advises before any instance is known, lets dispatch park the instance, and advises again.
async fn advised_as_parked(rig: &Rig, reason: ParkReason, detail: &str) {
    rig.callback("t").await;
    rig.pass(5).await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    let held = format!("held ({}): ", reason.as_str());
    let before = verdict(rig).await;
    assert!(before.starts_with(&held) && before.contains(detail), "{before}");
    rig.callback("t").await;
    rig.until_parked(&Rig::key("t", Action::Compaction, T1), reason).await;
    assert_eq!(verdict(rig).await, before);
    assert_eq!(rig.engine.calls().submit, 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lacks_something_is_told() {
    let rig = Rig::start().await;
    let lack = NotReady { reason: ParkReason::NoEngine, detail: "there is no Spark".to_owned() };
    rig.engine.set_not_ready(Some(lack));
    advised_as_parked(&rig, ParkReason::NoEngine, "there is no Spark").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_whose_engine_is_not_configured_is_told() {
    let rig = Rig::start().await;
    let change = QueueChange { engine: Some(Some("flink".parse().unwrap())), ..QueueChange::default() };
    rig.managers.queues.set(&"default".parse().unwrap(), &change, "test").await.unwrap();
    rig.pass(2).await;
    advised_as_parked(&rig, ParkReason::NoEngine, "no configured engine").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_option_that_no_job_takes_is_told() {
    let key = "hoodie.metadata.enable";
    let rig = Rig::start_with(|s| {
        s.policies.defaults.hudi_options.insert(key.to_owned(), "false".to_owned());
    })
    .await;
    advised_as_parked(&rig, ParkReason::BadOption, key).await;
    let found = rig.managers.maintained.advice(Rig::id("t")).await.unwrap().unsafe_settings;
    assert!(found.iter().any(|line| line.contains(key) && line.contains("nothing will run")), "{found:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_option_of_a_table_that_is_not_locked_is_told() {
    let rig = Rig::start().await;
    rig.callback("t").await;
    let key = "hoodie.write.lock.zookeeper.url";
    let unsafe_lines = || async {
        let found = rig.managers.maintained.advice(Rig::id("t")).await.unwrap().unsafe_settings;
        found.into_iter().filter(|line| line.contains(key)).count()
    };
    for (concurrency, n_lines) in [(Concurrency::Locked, 0), (Concurrency::Exclusive, 1)] {
        rig.settings("t", |s| {
            s.concurrency = Some(concurrency);
            s.hudi_options.insert(key.to_owned(), "zk1:2181".to_owned());
        })
        .await;
        assert_eq!(unsafe_lines().await, n_lines, "{concurrency:?}");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_is_told() {
    let rig = Rig::start().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.planned("t", Action::Compaction, T1).await;
    assert!(verdict(&rig).await.contains("tms queue resume default"));
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(5).await;
    assert_eq!(verdict(&rig).await, "runs");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_table_names_what_stands_and_is_not_run() {
    let rig = Rig::start().await;
    let paused = QueueChange { is_paused: Some(true), ..QueueChange::default() };
    rig.managers.queues.set(&"default".parse().unwrap(), &paused, "test").await.unwrap();
    let key = rig.planned("t", Action::Compaction, T1).await;
    let id = rig.until_state(&key, "pending").await.id;
    assert_eq!(rig.managers.maintained.show(Rig::id("t")).await.unwrap().warnings, [""; 0]);
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.callback("t").await;
    rig.pass(5).await;
    let warnings = rig.managers.maintained.show(Rig::id("t")).await.unwrap().warnings;
    let told = format!("is cancelled; `tms instance retry {id}`");
    assert!(warnings.iter().any(|w| w.contains(T1) && w.contains(&told)), "{warnings:?}");
    rig.stop().await;
}
