//! Paths of plans that leave the table: a flag beside the plan, never a reading error.

use std::sync::Arc;

use tms_hudi::{HudiTable, LocalListing, Plan, PlanAction};

use crate::common::{fixture_names, look, unpack};
use crate::made::{self, BASE};

async fn clustering_of(paths: &[&str]) -> Arc<Plan> {
    let (listing, table) = made::table(9);
    let slices: Vec<[&str; 1]> = paths.iter().map(|path| [*path]).collect();
    let slices: Vec<made::Slice<'_>> = slices.iter().map(|path| ("a", "f1", path.as_slice())).collect();
    let plan = made::clustering_plan("S", &[&slices]);
    listing.put("/t/.hoodie/timeline/20260101000000000.clustering.requested", plan);
    let snapshot = look(&table).await;
    Arc::clone(snapshot.pending()[0].plan.as_ref().unwrap())
}

#[tokio::test]
async fn every_spelling_of_a_path_inside_is_inside() {
    let plan = clustering_of(&[
        "/t/a/x_0_1.parquet",
        "file:/t/a/x_0_1.parquet",
        "file:///t/a/x_0_1.parquet",
        "/t//a/x_0_1.parquet",
    ])
    .await;
    assert_eq!(
        (plan.n_outside_base_path, plan.outside_base_path.len()),
        (0, 0),
        "{:?}",
        plan.outside_base_path
    );
}

#[tokio::test]
async fn what_leaves_the_table_is_flagged() {
    let outside = [
        "/tt/a/x_0_1.parquet",
        "/t/../etc/passwd",
        "/t/a/../../u/x.parquet",
        "hdfs://nn/t/a/x.parquet",
        "s3a://b/t/a/x.parquet",
        "../x.parquet",
        "/",
        "file:/u/x.parquet",
    ];
    for path in outside {
        let plan = clustering_of(&[path, "/t/a/fine_0_1.parquet"]).await;
        assert_eq!(
            (plan.n_outside_base_path, plan.outside_base_path.as_slice()),
            (1, [path.to_owned()].as_slice())
        );
    }
    let plan = clustering_of(&outside).await;
    assert_eq!(plan.n_outside_base_path, 8, "all are counted");
    assert_eq!(plan.outside_base_path.len(), 5, "the first few are shown");
}

#[tokio::test]
async fn partitions_and_log_files_of_a_compaction_are_checked_too() {
    for operation in [
        ("../../etc", "f", "f_0_1.parquet", &[][..]),
        ("/etc", "f", "f_0_1.parquet", &[]),
        ("a", "f", "../f_0_1.parquet", &[]),
        ("a", "f", "f_0_1.parquet", &["../../.f_1.log.1_0"]),
    ] {
        let (listing, table) = made::table(6);
        let plan = made::compaction_plan(&[operation]);
        listing.put("/t/.hoodie/20260101000000000.compaction.requested", plan);
        let snapshot = look(&table).await;
        let plan = snapshot.pending()[0].plan.as_ref().unwrap();
        assert_eq!(plan.n_outside_base_path, 1, "{operation:?}");
        assert_eq!(plan.file_groups, Some(1), "the plan is read all the same");
    }
}

#[tokio::test]
async fn schemes_of_one_store_are_one() {
    let (listing, _) = made::table(9);
    let plan = made::clustering_plan(
        "S",
        &[&[("a", "f1", &["s3a://b/t/a/x_0_1.parquet", "s3n://b/t/a/.x_1.log.1_0"])]],
    );
    listing.put("s3://b/t/.hoodie/timeline/20260101000000000.clustering.requested", plan);
    listing.put("s3://b/t/.hoodie/hoodie.properties", made::properties(9));
    let snapshot = look(&HudiTable::new(listing.clone(), "s3://b/t/")).await;
    assert_eq!(snapshot.pending()[0].plan.as_ref().unwrap().n_outside_base_path, 0);
    assert_eq!(snapshot.base_path(), "s3://b/t/");
    assert_ne!(snapshot.base_path(), BASE);
}

#[tokio::test]
async fn the_clustering_plans_of_the_fixtures_lie_outside_their_unpacked_folder() {
    let mut n_plans = 0;
    for name in fixture_names() {
        let fixture = unpack(&name);
        let snapshot = look(&HudiTable::new(Arc::new(LocalListing), fixture.base.as_str())).await;
        for pending in snapshot.pending() {
            let plan = pending.plan.as_ref().unwrap();
            // Compaction plans hold bare names; clustering and clean plans the paths of where the table was made.
            let is_absolute = matches!(pending.action, PlanAction::Clustering | PlanAction::Clean);
            assert_eq!(plan.n_outside_base_path > 0, is_absolute, "{name}: {:?}", plan.outside_base_path);
            n_plans += usize::from(is_absolute);
        }
    }
    assert!(n_plans > 15, "{n_plans}");
}
