//! Cases with many writers at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::model::id::{InstanceId, NodeName};
use tms_core::model::instance::InstanceState;
use tms_core::store::InstanceFilter;
use tokio::task::JoinSet;

use super::StoreHarness;
use super::samples::*;

const N_WRITERS: usize = 64;
const N_EACH: usize = 8;

/// 64 writers at once lose and double nothing.
pub async fn sixty_four_writers_lose_nothing(h: &impl StoreHarness) {
    let store = h.store();
    let mut writers = JoinSet::new();
    for writer in 0..N_WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for n in 0..N_EACH {
                // A table of all, and instants of which each is named by two writers.
                let named = (writer / 2 * N_EACH + n).to_string();
                let shared = naming("shared", Action::Compaction, &[&named]);
                let own = hand_over(&format!("own{writer}"));
                store.accept(&[shared, own]).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let shared = store.get_table(table_id("shared")).await.unwrap().unwrap();
    assert_eq!(shared.touch.touch, (N_WRITERS * N_EACH) as u64);
    let hinted = store.live_of_table(table_id("shared")).await.unwrap();
    assert_eq!(hinted.len(), N_WRITERS / 2 * N_EACH);
    let instants: Vec<_> = hinted.iter().map(|instance| instance.key.instant.clone().unwrap()).collect();
    without_repeats(&instants);
    assert_eq!(all_tables(&*store, 10).await.len(), N_WRITERS + 1);
    for writer in 0..N_WRITERS {
        let own = store.get_table(table_id(&format!("own{writer}"))).await.unwrap().unwrap();
        assert_eq!(own.touch.touch, N_EACH as u64);
    }
}

/// Of writers that change one row from the same version exactly one is taken.
pub async fn concurrent_writers_of_one_row_agree(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut current = put_pending(&*store, key("t", Action::Compaction, Some("1"))).await;
    for _ in 0..10 {
        let mut writers = JoinSet::new();
        for priority in 0..8 {
            let store = Arc::clone(&store);
            let mut wanted = current.clone();
            wanted.priority = priority;
            writers.spawn(async move { store.write(None, vec![change(wanted)]).await });
        }
        let results = writers.join_all().await;
        let (taken, others): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(taken.len(), 1);
        assert!(others.into_iter().all(|other| refused(other) == ErrorKind::Conflict));
        let stored = store.get_instance(current.id).await.unwrap().unwrap();
        assert_eq!(taken.into_iter().next().unwrap().unwrap(), std::slice::from_ref(&stored));
        assert_eq!(stored.version, current.version.next());
        current = stored;
    }
}

/// Pages read while a writer inserts and ends instances hold every instance that was there all the time.
pub async fn pages_hold_while_instances_end(h: &impl StoreHarness) {
    let store = h.store();
    announce(&*store, "t").await;
    let mut all = Vec::new();
    for n in 0..60 {
        all.push(put_pending(&*store, key("t", Action::Compaction, Some(&n.to_string()))).await);
    }
    let expected: BTreeSet<InstanceId> = all.iter().map(|instance| instance.id).collect();
    let mut writer = JoinSet::new();
    let writing = Arc::clone(&store);
    writer.spawn(async move {
        for (n, instance) in all.into_iter().enumerate() {
            let ended = end(&*writing, instance, InstanceState::Succeeded, 1).await;
            put_pending(&*writing, key("t", Action::Clustering, Some(&n.to_string()))).await;
            if n % 2 == 0 {
                apply(&*writing, change(in_state(ended, InstanceState::Hinted, 2))).await;
            }
        }
    });
    while !writer.is_empty() {
        let seen = all_instances(&*store, &InstanceFilter::default(), 7).await;
        assert!(without_repeats(&seen).is_superset(&expected));
        if let Some(done) = writer.try_join_next() {
            done.unwrap();
        }
    }
}

/// Elections at once get terms of their own, and the store knows the highest.
pub async fn concurrent_elections_have_one_winner_per_term(h: &impl StoreHarness) {
    let store = h.store();
    let mut nodes = JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        let name: NodeName = format!("n{n}").parse().unwrap();
        nodes.spawn(async move { (store.begin_term(0, &name).await.unwrap(), name) });
    }
    let mut begun = nodes.join_all().await;
    begun.sort();
    let terms: Vec<u64> = begun.iter().map(|(term, _)| term.0).collect();
    assert_eq!(terms, (1..=16).collect::<Vec<_>>());
    assert_eq!(store.current_term().await.unwrap(), begun.pop());
}

/// a look that begins after a hand-over comes for each, covered or stored
pub async fn every_hand_over_is_looked_at(h: &impl StoreHarness) {
    const N_HAND_OVERS: u64 = 200;
    let store = h.store();
    let term = begin(&*store).await;
    announce(&*store, "t").await;
    // The table's timeline: a writer commits, then hands over; a look reads the touch, then the timeline.
    let commits = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..4 {
        let (store, commits) = (Arc::clone(&store), Arc::clone(&commits));
        writers.spawn(async move {
            for _ in 0..N_HAND_OVERS {
                commits.fetch_add(1, Ordering::SeqCst);
                if store.covered(&hand_over("t")).is_none() {
                    store.accept(&[hand_over("t")]).await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut seen = 0;
    loop {
        let is_over = writers.is_empty();
        while writers.try_join_next().transpose().unwrap().is_some() {}
        if !store.touched(None, 1).await.unwrap().is_empty() {
            let record = store.get_table(table_id("t")).await.unwrap().unwrap();
            seen = commits.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            store.commit_look(term, look("t", record.touch.touch)).await.unwrap();
        } else if is_over {
            break;
        } else {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(seen, 4 * N_HAND_OVERS);
}
