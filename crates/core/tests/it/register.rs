//! Registration: what becomes of the settings that a known table has, and who counts as having told of its plans.

use std::sync::Arc;
use std::time::Duration;

use tms_core::manager::request::Announcement;
use tms_core::manager::table::RegisterTable;
use tms_core::model::action::Action;
use tms_core::model::policy::{Concurrency, TableSettings};
use tms_core::model::request::Trigger;
use tms_core::model::table::TableRecord;

use crate::rig::{Rig, T1, T2, T3, announcement, instant};

fn request(settings: Option<TableSettings>, merge: bool) -> RegisterTable {
    RegisterTable { base_path: "/lake/t".to_owned(), settings, merge, look: false }
}

async fn register(rig: &Rig, settings: Option<TableSettings>, merge: bool) -> TableRecord {
    rig.managers.tables.register(request(settings, merge), "test").await.unwrap()
}

fn options(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const T4: &str = "20270101000000004";
const SIZE: &str = "hoodie.memory.merge.max.size";
const FILE: &str = "hoodie.parquet.max.file.size";

fn full() -> TableSettings {
    TableSettings {
        actions: Some([Action::Compaction].into()),
        concurrency: Some(Concurrency::Locked),
        priority: Some(3),
        hudi_options: options(&[(SIZE, "1024"), (FILE, "1")]),
        ..TableSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_table_keeps_its_settings_when_it_is_registered_without_any() {
    let rig = Rig::start().await;
    assert_eq!(register(&rig, Some(full()), false).await.table.settings, full());
    let again = register(&rig, None, false).await;
    assert_eq!((again.table.settings, again.table.is_registered), (full(), true));
    let over = TableSettings {
        concurrency: Some(Concurrency::Exclusive),
        hudi_options: options(&[(SIZE, "2048")]),
        ..TableSettings::default()
    };
    let wanted = TableSettings {
        concurrency: Some(Concurrency::Exclusive),
        hudi_options: options(&[(SIZE, "2048"), (FILE, "1")]),
        ..full()
    };
    assert_eq!(register(&rig, Some(over.clone()), true).await.table.settings, wanted);
    assert_eq!(register(&rig, Some(over.clone()), false).await.table.settings, over);
    rig.stop().await;
}

/// Each merges into what is stored when it writes, so none of them undoes another.
#[tokio::test]
async fn merges_at_the_same_moment_are_all_kept() {
    let rig = Rig::start().await;
    register(&rig, None, false).await;
    let tables = Arc::new(rig.managers.tables.clone());
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..4 {
        let tables = Arc::clone(&tables);
        let over = TableSettings {
            hudi_options: options(&[(&format!("hoodie.memory.x{n}"), "1")]),
            ..TableSettings::default()
        };
        tasks.spawn(async move { tables.register(request(Some(over), true), "test").await.unwrap() });
    }
    tasks.join_all().await;
    assert_eq!(rig.record("t").await.table.settings.hudi_options.len(), 4);
    rig.stop().await;
}

/// The writer's callback, its client's request, a person's look and the heartbeat each show as what they are.
#[tokio::test(start_paused = true)]
async fn an_instance_says_what_told_of_it() {
    let rig = Rig::start_with(|s| s.policies.look.heartbeat_timeout = Duration::from_secs(1800)).await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    let told_by = |text: &'static str| {
        let rig = &rig;
        async move {
            let key = Rig::key("t", Action::Compaction, text);
            rig.until(&key, "found", |_| true).await.trigger
        }
    };
    rig.planned("t", Action::Compaction, T1).await;
    assert_eq!(told_by(T1).await, Trigger::Callback);
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T2)));
    rig.managers.tables.look_now(Rig::id("t"), "test").await.unwrap();
    assert_eq!(told_by(T2).await, Trigger::Api);
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T3)));
    let bare = Announcement { trigger: Trigger::Client, ..announcement("t", Vec::new()) };
    rig.managers.requests.hand_over(bare).await.unwrap();
    assert_eq!(told_by(T3).await, Trigger::Client);
    rig.pass(5).await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T4)));
    assert_eq!(told_by(T4).await, Trigger::Heartbeat);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_registered_table_shows_the_name_of_its_properties() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.sight.name = Some("trips".to_owned());
        t.sight.database = Some("lake".to_owned());
        t.plan(Action::Compaction, &instant(T1));
    });
    register(&rig, None, false).await;
    let found = rig.until(&Rig::key("t", Action::Compaction, T1), "found", |_| true).await;
    assert_eq!(found.trigger, Trigger::Api);
    let record = rig.record("t").await;
    assert_eq!((record.name(), record.database()), (Some("trips"), Some("lake")));
    assert_eq!(rig.managers.instances.view(found).await.unwrap().table_name.as_deref(), Some("trips"));
    rig.stop().await;
}
