//! A part of a table that cannot be read: no verdict for what needs it, shown and alarmed, and everything else goes on.

use tms_core::alert::AlertKind;
use tms_core::model::action::Action;
use tms_core::model::instance::ParkReason;
use tms_core::timeline::Overtaken;

use crate::rig::{Rig, T1, T2, T3, instant};

fn overtaken() -> Overtaken {
    Overtaken::Yes { instant: T2.to_owned(), file_group: "f".to_owned() }
}

/// An instant that was named and is not on the timeline is looked up in the history.
#[tokio::test(start_paused = true)]
async fn an_unreadable_history_is_alarmed_and_stops_no_other_plan() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.is_history_bad = true);
    rig.hand_over("t", vec![(Action::Compaction, T1.to_owned())]).await;
    let other = rig.planned("t", Action::Compaction, T2).await;
    rig.job(1).await;
    assert!(rig.find(&other).await.unwrap().takes_slot());
    rig.pass(3_600).await;
    assert!(rig.table("t", |t| t.n_looks) < 200, "no hot loop: {}", rig.table("t", |t| t.n_looks));
    let named = rig.find(&Rig::key("t", Action::Compaction, T1)).await.unwrap();
    assert_eq!(named.state.as_str(), "hinted", "no verdict, whatever the grace");
    let text = rig.alerts.text(AlertKind::TableUnreadable).unwrap();
    assert!(text.contains("/lake/t") && text.contains("read the history"), "{text}");
    assert_eq!(rig.alerts.n_begun(AlertKind::TableUnreadable), 1, "one alarm, however many looks");
    rig.table("t", |t| {
        t.is_history_bad = false;
        t.history.push((Action::Compaction, instant(T1)));
    });
    rig.pass(90).await;
    assert!(!rig.alerts.stands(AlertKind::TableUnreadable));
    assert_eq!(rig.get(named.id).await.state.as_str(), "succeeded");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_vanished_is_not_gone_while_the_history_cannot_be_read() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.overtaken = overtaken());
    let key = rig.planned("t", Action::Clustering, T1).await;
    rig.until_parked(&key, ParkReason::Overtaken).await;
    rig.table("t", |t| {
        t.is_history_bad = true;
        t.roll_back(Action::Clustering, &instant(T1));
    });
    rig.callback("t").await;
    rig.pass(3_600).await;
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "parked");
    let other = rig.planned("t", Action::Compaction, T3).await;
    rig.job(1).await;
    assert!(rig.find(&other).await.unwrap().takes_slot());
    rig.table("t", |t| t.is_history_bad = false);
    rig.until_state(&key, "obsolete").await;
    assert!(!rig.alerts.stands(AlertKind::TableUnreadable));
    rig.stop().await;
}

/// What the check of held instances cannot read is trouble of the table: stored, backed off, alarmed.
#[tokio::test(start_paused = true)]
async fn a_table_whose_held_instances_cannot_be_checked_is_in_trouble() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.overtaken = overtaken());
    let key = rig.planned("t", Action::Clustering, T1).await;
    rig.until_parked(&key, ParkReason::Overtaken).await;
    rig.looks.fail_versions(true);
    rig.callback("t").await;
    let before = rig.table("t", |t| t.n_looks);
    rig.pass(3_600).await;
    let trouble = rig.record("t").await.look.trouble.unwrap();
    assert!(trouble.n_failed > 5 && trouble.error.contains("read the properties"), "{trouble:?}");
    let n_looks = rig.table("t", |t| t.n_looks) - before;
    assert!(n_looks < 60, "the back-off grows: {n_looks} looks in an hour");
    assert_eq!(rig.alerts.n_begun(AlertKind::TableUnreadable), 1);
    rig.looks.fail_versions(false);
    rig.pass(700).await;
    assert!(rig.record("t").await.look.trouble.is_none());
    assert!(!rig.alerts.stands(AlertKind::TableUnreadable));
    rig.stop().await;
}

/// Anybody can name an instant of a table that does not exist.
#[tokio::test(start_paused = true)]
async fn what_was_named_on_a_table_that_could_never_be_read_is_let_go_and_comes_back() {
    let rig = Rig::start().await;
    rig.table("t", |t| t.is_unreadable = true);
    rig.hand_over("t", vec![(Action::Compaction, T1.to_owned())]).await;
    let key = Rig::key("t", Action::Compaction, T1);
    for _ in 0..23 {
        rig.pass(3_600).await;
    }
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "hinted");
    for _ in 0..2 {
        rig.pass(3_600).await;
    }
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "obsolete");
    rig.table("t", |t| {
        t.is_unreadable = false;
        t.plan(Action::Compaction, &instant(T1));
    });
    rig.job(1).await;
    rig.stop().await;
}
