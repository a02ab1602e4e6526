//! What a look costs, counted call by call.

use std::sync::Arc;

use tms_hudi::{HudiTable, Look, Overtaken, PlanAction, Snapshot};

use crate::common::{MemoryListing, look, unpack_in_memory};
use crate::made::{self, BASE, Commit};

async fn again(table: &HudiTable, previous: &Arc<Snapshot>) -> Look {
    table.look(Some(previous)).await.expect("the table can be read")
}

async fn changed(table: &HudiTable, previous: &Arc<Snapshot>) -> Arc<Snapshot> {
    match again(table, previous).await {
        Look::Changed(snapshot) => snapshot,
        Look::Unchanged => panic!("the change was not seen"),
    }
}

async fn check_costs(listing: &Arc<MemoryListing>, timeline: &str) {
    let table = HudiTable::new(listing.clone(), BASE);
    let first = look(&table).await;
    assert!(!first.pending().is_empty());
    listing.take_counts();

    assert!(matches!(again(&table, &first).await, Look::Unchanged));
    assert_eq!(listing.take_counts(), (1, 0, 0), "an unchanged timeline costs one listing");

    listing.put(&format!("{timeline}/29990101000000000.deltacommit.requested"), "");
    let second = changed(&table, &first).await;
    assert_eq!(listing.take_counts(), (1, 0, 0), "plans that were read are not read again");
    assert_eq!(second.pending().len(), first.pending().len());

    let plan = made::compaction_plan(&[("a", "f1", "f1_0-0-0_20260101000000000.parquet", &[])]);
    listing.put(&format!("{timeline}/29990101000000001.compaction.requested"), plan);
    let third = changed(&table, &second).await;
    assert_eq!(listing.take_counts(), (1, 1, 0), "only the new plan is read");
    assert_eq!(third.pending().len(), first.pending().len() + 1);

    // A look that another one overtook answers by what its caller saw last.
    assert!(matches!(again(&table, &second).await, Look::Changed(_)));
    assert!(matches!(again(&table, &third).await, Look::Unchanged));
}

#[tokio::test]
async fn an_unchanged_timeline_costs_one_listing_in_layout_1() {
    let listing = unpack_in_memory("h0150_v6_mor_pending_compaction");
    check_costs(&listing, "/t/.hoodie").await;
}

#[tokio::test]
async fn an_unchanged_timeline_costs_one_listing_in_layout_2() {
    let listing = unpack_in_memory("h120_v9_mor_pending_compaction");
    check_costs(&listing, "/t/.hoodie/timeline").await;
}

#[tokio::test]
async fn a_metadata_table_is_looked_at_like_any_other() {
    let listing = unpack_in_memory("h102_v8_mor_none");
    let table = HudiTable::new(listing.clone(), "/t/.hoodie/metadata");
    let first = look(&table).await;
    assert_eq!(first.properties().name, "t1_metadata");
    listing.take_counts();
    assert!(matches!(again(&table, &first).await, Look::Unchanged));
    assert_eq!(listing.take_counts(), (1, 0, 0));
}

#[tokio::test]
async fn a_write_is_read_once_however_often_a_plan_is_asked_about() {
    let (listing, table) = made::table(9);
    let slice = ("a", "f1", ["/t/a/f1_0-0-0_20260101000000000.parquet"]);
    let plan = made::clustering_plan("S", &[&[(slice.0, slice.1, &slice.2)]]);
    listing.put("/t/.hoodie/timeline/20260102000000000.clustering.requested", plan);
    let elsewhere = Commit { files: &[("a", "f2", "a/f2_0-0-0_20260103000000000.parquet")], replaced: &[] };
    let write = |time: &str| format!("/t/.hoodie/timeline/{time}_{time}.commit");
    listing.put(&write("20260103000000000"), elsewhere.avro());
    listing.put(&write("20260104000000000"), elsewhere.avro());
    // Completed before the plan was made: never read.
    listing.put(&write("20260101000000000"), elsewhere.avro());
    let first = look(&table).await;
    listing.take_counts();

    assert_eq!(table.overtaken(&first, "20260102000000000").await, Overtaken::No);
    assert_eq!(listing.take_counts(), (1, 2, 0), "two later writes, and one listing of the history");
    assert_eq!(table.overtaken(&first, "20260102000000000").await, Overtaken::No);
    assert_eq!(listing.take_counts(), (0, 0, 0), "the same timeline has the same answer");

    listing.put(&write("20260105000000000"), elsewhere.avro());
    let second = changed(&table, &first).await;
    assert_eq!(listing.take_counts(), (1, 0, 0));
    assert_eq!(table.overtaken(&second, "20260102000000000").await, Overtaken::No);
    assert_eq!(listing.take_counts(), (1, 1, 0), "only the new write is read");
    assert!(second.pending_plan(PlanAction::Clustering, "20260102000000000").is_some());
}

#[tokio::test]
async fn without_a_pending_clustering_no_write_is_read() {
    let listing = unpack_in_memory("h120_v9_mor_completed_compaction");
    let table = HudiTable::new(listing.clone(), BASE);
    let first = look(&table).await;
    assert_eq!(first.pending().len(), 2);
    assert_eq!(listing.take_counts(), (1, 3, 0), "the properties and two plans");
}
