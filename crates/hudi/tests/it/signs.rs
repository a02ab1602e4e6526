//! Locks, heartbeats, marker folders and rollbacks.

use chrono::{DateTime, Utc};
use tms_hudi::HudiTable;

use crate::common::{Trouble, look, unpack_in_memory};
use crate::made::{self, BASE};

fn at(secs: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(secs, 0).unwrap()
}

#[tokio::test]
async fn the_newest_of_inflight_file_markers_and_heartbeat_is_the_sign_of_life() {
    let (listing, table) = made::table(9);
    let plan = made::compaction_plan(&[]);
    listing.put_at("/t/.hoodie/timeline/20260101000000000.compaction.requested", plan, at(100));
    let snapshot = look(&table).await;
    let life = || table.last_sign_of_life(&snapshot, "20260101000000000");
    assert_eq!(life().await.unwrap(), None, "a plan nobody began shows no life");

    let inflight = "/t/.hoodie/timeline/20260101000000000.compaction.inflight";
    listing.put_at(inflight, "", at(200));
    let snapshot = look(&table).await;
    let life = || table.last_sign_of_life(&snapshot, "20260101000000000");
    assert_eq!(life().await.unwrap(), Some(at(200)));
    listing.put_at("/t/.hoodie/.temp/20260101000000000/y=1/m=2/x.parquet.marker.CREATE", "", at(300));
    assert_eq!(life().await.unwrap(), Some(at(300)), "markers lie below their partitions");
    listing.put_at("/t/.hoodie/.heartbeat/20260101000000000", "", at(400));
    assert_eq!(life().await.unwrap(), Some(at(400)));
    listing.put_at(inflight, "", at(500));
    assert_eq!(life().await.unwrap(), Some(at(500)), "the file as it is now, not as the look saw it");
    listing.put_at("/t/.hoodie/.heartbeat/20260101000000001", "", at(900));
    assert_eq!(life().await.unwrap(), Some(at(500)), "another instant's heartbeat proves nothing");
    listing.trouble("/t/.hoodie/.heartbeat/20260101000000000", Some(Trouble::Unreachable));
    assert!(life().await.is_err());
}

#[tokio::test]
async fn a_lock_file_is_seen_with_its_time() {
    let (listing, table) = made::table(6);
    assert_eq!(table.lock_file().await.unwrap(), None);
    listing.put_at("/t/.hoodie/lock", "", at(77));
    assert_eq!(table.lock_file().await.unwrap().unwrap().modified, Some(at(77)));
    listing.trouble("/t/.hoodie/lock", Some(Trouble::Denied));
    assert!(table.lock_file().await.is_err());
}

#[tokio::test]
async fn running_writes_without_a_heartbeat_betray_their_writer() {
    let listing = unpack_in_memory("h120_v9_cow_insert_overwrite_requested");
    let table = HudiTable::new(listing.clone(), BASE);
    let snapshot = look(&table).await;
    let pending: Vec<&str> =
        snapshot.instants().iter().filter(|i| i.completed.is_none()).map(|i| i.requested.as_str()).collect();
    assert_eq!(pending.len(), 1, "{pending:?}");
    let overwrite = pending[0].to_owned();
    assert_eq!(table.writes_without_heartbeat(&snapshot).await.unwrap(), std::slice::from_ref(&overwrite));
    listing.put(&format!("/t/.hoodie/.heartbeat/{overwrite}"), "");
    assert!(table.writes_without_heartbeat(&snapshot).await.unwrap().is_empty());

    let timeline = "/t/.hoodie/timeline";
    listing.put(&format!("{timeline}/29990101000000000.commit.requested"), "");
    listing.put(&format!("{timeline}/29990101000000001.inflight"), "");
    listing.put(&format!("{timeline}/29990101000000002.deltacommit.inflight"), "");
    // Table services, whose heartbeat means nothing here.
    listing.put(&format!("{timeline}/29990101000000003.compaction.requested"), made::compaction_plan(&[]));
    listing
        .put(&format!("{timeline}/29990101000000004.clustering.requested"), made::clustering_plan("S", &[]));
    let snapshot = look(&table).await;
    assert_eq!(
        table.writes_without_heartbeat(&snapshot).await.unwrap(),
        ["29990101000000000", "29990101000000001", "29990101000000002"]
    );
    listing.trouble("/t/.hoodie/.heartbeat", Some(Trouble::Unreachable));
    assert!(table.writes_without_heartbeat(&snapshot).await.is_err());
}

#[tokio::test]
async fn a_table_without_running_writes_is_not_asked_for_heartbeats() {
    let listing = unpack_in_memory("h0150_v6_mor_pending_compaction");
    let table = HudiTable::new(listing.clone(), BASE);
    let snapshot = look(&table).await;
    listing.take_counts();
    assert!(table.writes_without_heartbeat(&snapshot).await.unwrap().is_empty());
    assert_eq!(listing.take_counts(), (0, 0, 0));
}

#[tokio::test]
async fn a_rollback_is_found_by_the_instant_it_names_whether_it_is_done_or_not() {
    // Times as the rollbacks' own files hold them.
    for (fixture, timeline, rollback, named) in [
        ("h0150_v6_cow_rollback", "/t/.hoodie", "20261130092745270", None),
        ("h102_v8_cow_rollback", "/t/.hoodie/timeline", "20261130093145643", Some("20261130093142377")),
    ] {
        let listing = unpack_in_memory(fixture);
        let table = HudiTable::new(listing.clone(), BASE);
        let snapshot = look(&table).await;
        let named = named.map_or_else(
            || {
                let plan = listing.content(&format!("{timeline}/{rollback}.rollback.requested"));
                let text = String::from_utf8_lossy(&plan).into_owned();
                let tail = text.rsplit("commit").next().unwrap().len();
                let end = text.len() - tail - "commit".len();
                let digits: String =
                    text[..end].chars().rev().skip_while(|c| !c.is_ascii_digit()).take(17).collect();
                digits.chars().rev().collect()
            },
            str::to_owned,
        );
        assert_eq!(table.rollbacks_of(&snapshot, &named).await.unwrap(), [rollback], "{fixture} {named}");
        listing.take_counts();
        assert!(table.rollbacks_of(&snapshot, "20990101000000000").await.unwrap().is_empty());
        assert_eq!(listing.take_counts(), (0, 0, 0), "a rollback is read once");

        // Pending: only the plan is there.
        let completed = listing
            .paths()
            .into_iter()
            .find(|path| path.starts_with(timeline) && path.ends_with(".rollback"))
            .unwrap();
        listing.remove(&completed);
        let table = HudiTable::new(listing.clone(), BASE);
        let snapshot = look(&table).await;
        assert_eq!(table.rollbacks_of(&snapshot, &named).await.unwrap(), [rollback], "{fixture}");
    }
}
