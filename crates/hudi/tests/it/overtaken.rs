//! The loss guard, case by case.

use std::sync::Arc;

use chrono::DateTime;
use parquet::basic::Compression;
use tms_hudi::{HudiTable, Limits, LocalListing, Overtaken, PlanAction};

use crate::common::{Fixture, MemoryListing, Trouble, fixture_names, look, unpack, unpack_in_memory};
use crate::made::{self, BASE, Commit};

const PLAN: &str = "20260110000000000";
const SORT: &str = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy";
const RESIZE: &str =
    "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy";

/// A table of `version` with one clustering plan over the groups f1 (slice of the 5th, one log file) and f2 (slice
/// of the 1st).
fn with_plan(version: u32, strategy: &str) -> (Arc<MemoryListing>, HudiTable) {
    let (listing, table) = made::table(version);
    let f1 = ["file:/t/a/f1_0-1-1_20260105000000000.parquet", "file:/t/a/.f1_20260105000000000.log.1_0-2-2"];
    let f2 = ["file:/t/a/f2_0-1-1_20260101000000000.parquet"];
    let plan = made::clustering_plan(strategy, &[&[("a", "f1", &f1), ("a", "f2", &f2)]]);
    let name = if version >= 8 { "clustering" } else { "replacecommit" };
    put(&listing, version, &format!("{PLAN}.{name}.requested"), &plan);
    (listing, table)
}

fn put(listing: &MemoryListing, version: u32, name: &str, content: &[u8]) {
    let folder = if version >= 8 { "/t/.hoodie/timeline" } else { "/t/.hoodie" };
    listing.put(&format!("{folder}/{name}"), content);
}

/// Puts a completed write; `completed` only stands in the name of layout 2.
fn put_write(
    listing: &MemoryListing,
    version: u32,
    requested: &str,
    completed: &str,
    action: &str,
    commit: &Commit<'_>,
) {
    if version >= 8 {
        put(listing, version, &format!("{requested}_{completed}.{action}"), &commit.avro());
    } else {
        put(listing, version, &format!("{requested}.{action}"), &commit.json());
    }
}

async fn answer(table: &HudiTable) -> Overtaken {
    let snapshot = look(table).await;
    table.overtaken(&snapshot, PLAN).await
}

fn yes(instant: &str, group: &str) -> Overtaken {
    Overtaken::Yes { instant: instant.to_owned(), file_group: group.to_owned() }
}

fn assert_unknown(answer: &Overtaken, part: &str) {
    match answer {
        Overtaken::Unknown { reason } => assert!(reason.contains(part), "{reason:?} does not name {part:?}"),
        other => panic!("{other:?} is not unknown"),
    }
}

const UPSERT: Commit<'_> = Commit {
    files: &[
        ("a", "f9", "a/f9_0-0-0_20260111000000000.parquet"),
        ("a", "f1", "a/f1_0-9-9_20260111000000000.parquet"),
    ],
    replaced: &[],
};
const APPEND: Commit<'_> =
    Commit { files: &[("a", "f1", "a/.f1_20260105000000000.log.2_0-9-9")], replaced: &[] };
const OVERWRITE: Commit<'_> =
    Commit { files: &[("a", "f9", "a/f9_0-0-0_20260111000000000.parquet")], replaced: &[("a", "f2")] };

#[tokio::test]
async fn an_upsert_after_the_plan_overtakes_it() {
    for version in [6, 8, 9] {
        let (listing, table) = with_plan(version, SORT);
        assert_eq!(answer(&table).await, Overtaken::No);
        put_write(&listing, version, "20260111000000000", "20260111000001000", "commit", &UPSERT);
        assert_eq!(answer(&table).await, yes("20260111000000000", "a/f1"), "version {version}");
    }
}

#[tokio::test]
async fn a_log_file_appended_after_the_plan_overtakes_it() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, SORT);
        put_write(&listing, version, "20260111000000000", "20260111000001000", "deltacommit", &APPEND);
        assert_eq!(answer(&table).await, yes("20260111000000000", "a/f1"), "version {version}");
    }
}

#[tokio::test]
async fn an_insert_overwrite_after_the_plan_overtakes_it() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, SORT);
        put_write(&listing, version, "20260111000000000", "20260111000001000", "replacecommit", &OVERWRITE);
        assert_eq!(answer(&table).await, yes("20260111000000000", "a/f2"), "version {version}");
    }
}

#[tokio::test]
async fn a_write_that_began_before_the_plan_and_ended_after_it_overtakes_it() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, SORT);
        let slow = Commit { files: &[("a", "f1", "a/f1_0-9-9_20260109000000000.parquet")], replaced: &[] };
        put_write(&listing, version, "20260109000000000", "20260110000000001", "commit", &slow);
        assert_eq!(answer(&table).await, yes("20260109000000000", "a/f1"), "version {version}");
    }
}

#[tokio::test]
async fn a_write_that_the_plan_lists_does_not_overtake_it() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, SORT);
        let listed = Commit {
            files: &[
                ("a", "f1", "a/f1_0-1-1_20260105000000000.parquet"),
                ("a", "f1", "a/.f1_20260105000000000.log.1_0-2-2"),
            ],
            replaced: &[],
        };
        put_write(&listing, version, "20260105000000000", "20260111000000000", "deltacommit", &listed);
        assert_eq!(answer(&table).await, Overtaken::No, "version {version}");
    }
}

#[tokio::test]
async fn writes_of_other_groups_and_partitions_do_not_overtake_a_plan() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, SORT);
        let other = Commit {
            files: &[
                ("a", "f3", "a/f3_0-0-0_20260111000000000.parquet"),
                ("b", "f1", "b/f1_0-0-0_20260111000000000.parquet"),
            ],
            replaced: &[("b", "f2")],
        };
        put_write(&listing, version, "20260111000000000", "20260111000001000", "replacecommit", &other);
        assert_eq!(answer(&table).await, Overtaken::No, "version {version}");
    }
}

#[tokio::test]
async fn in_layout_1_an_older_slice_of_a_group_does_not_overtake_a_plan_with_slices_of_several_ages() {
    let (listing, table) = with_plan(6, SORT);
    // Not older than the plan's oldest slice (f2 of the 1st), but older than f1's own, which replaced it.
    let older = Commit { files: &[("a", "f1", "a/f1_0-9-9_20260103000000000.parquet")], replaced: &[] };
    put_write(&listing, 6, "20260103000000000", "", "commit", &older);
    assert_eq!(answer(&table).await, Overtaken::No);
}

#[tokio::test]
async fn in_layout_2_a_write_completed_before_the_plan_does_not_count() {
    let (listing, table) = with_plan(9, SORT);
    put_write(&listing, 9, "20260109000000000", "20260109999999999", "commit", &UPSERT);
    assert_eq!(answer(&table).await, Overtaken::No);
}

#[tokio::test]
async fn a_name_of_layout_2_without_completion_time_counts_as_in_layout_1() {
    let (listing, table) = with_plan(8, SORT);
    put(&listing, 8, "20260109000000000.commit", &UPSERT.avro());
    assert_eq!(answer(&table).await, yes("20260109000000000", "a/f1"));
}

#[tokio::test]
async fn a_resize_plan_may_be_written_to_but_not_replaced() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, RESIZE);
        put_write(&listing, version, "20260111000000000", "20260111000001000", "commit", &UPSERT);
        assert_eq!(answer(&table).await, Overtaken::No, "version {version}");
        put_write(&listing, version, "20260112000000000", "20260112000001000", "replacecommit", &OVERWRITE);
        assert_eq!(answer(&table).await, yes("20260112000000000", "a/f2"), "version {version}");
    }
}

#[tokio::test]
async fn the_newest_write_is_judged_first() {
    let (listing, table) = with_plan(9, SORT);
    put_write(&listing, 9, "20260111000000000", "20260113000000000", "commit", &UPSERT);
    put_write(&listing, 9, "20260112000000000", "20260112000001000", "replacecommit", &OVERWRITE);
    listing.take_counts();
    let snapshot = look(&table).await;
    listing.take_counts();
    assert_eq!(table.overtaken(&snapshot, PLAN).await, yes("20260111000000000", "a/f1"));
    assert_eq!(listing.take_counts(), (0, 1, 0), "the older write was not read");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_makes_the_answer_unknown_until_it_can() {
    let (listing, table) = with_plan(9, SORT);
    put_write(&listing, 9, "20260111000000000", "20260111000001000", "commit", &UPSERT);
    let snapshot = look(&table).await;
    let file = "/t/.hoodie/timeline/20260111000000000_20260111000001000.commit";
    for trouble in [Trouble::Denied, Trouble::Unreachable, Trouble::Vanishes(1), Trouble::ReadsEmpty(99)] {
        listing.trouble(file, Some(trouble));
        assert_unknown(&table.overtaken(&snapshot, PLAN).await, file);
    }
    listing.trouble(file, None);
    assert_eq!(table.overtaken(&snapshot, PLAN).await, yes("20260111000000000", "a/f1"));
}

#[tokio::test(start_paused = true)]
async fn cut_metadata_makes_the_answer_unknown() {
    for version in [6, 9] {
        let (listing, table) = with_plan(version, SORT);
        let whole = if version >= 8 { OVERWRITE.avro() } else { OVERWRITE.json() };
        let name = if version >= 8 {
            "20260111000000000_20260111000001000.commit"
        } else {
            "20260111000000000.commit"
        };
        put(&listing, version, name, &whole[..whole.len() / 2]);
        assert_unknown(&answer(&table).await, name);
    }
}

#[tokio::test]
async fn more_bytes_than_the_limit_make_the_answer_unknown() {
    let (listing, table) = with_plan(9, SORT);
    for day in 11..15 {
        let time = format!("202601{day}000000000");
        let other = Commit { files: &[("a", "f3", "a/f3_0-0-0_20260111000000000.parquet")], replaced: &[] };
        put_write(&listing, 9, &time, &time, "commit", &other);
    }
    let table = table.with_limits(Limits { overtaken_bytes_max: 2_000, ..Limits::default() });
    assert_unknown(&answer(&table).await, "more than 2000 bytes");
    let table =
        HudiTable::new(listing, BASE).with_limits(Limits { metadata_bytes_max: 100, ..Limits::default() });
    assert_unknown(&answer(&table).await, "too large");
}

#[tokio::test]
async fn a_small_history_file_that_unpacks_to_more_than_the_limit_makes_the_answer_unknown() {
    let (listing, table) = with_plan(9, SORT);
    let (time, metadata) = ("20260111000000000", vec![0; 3 * 1024 * 1024]);
    let file = made::packed_lsm_file(time, time, "commit", &metadata, Compression::SNAPPY);
    assert!(file.len() < 300_000, "{}", file.len());
    listing.put(&format!("/t/.hoodie/timeline/history/{time}_{time}_0.parquet"), file);
    let table = table.with_limits(Limits { overtaken_bytes_max: 1_000_000, ..Limits::default() });
    assert_unknown(&answer(&table).await, "unpacked");
}

#[tokio::test]
async fn an_unknown_action_after_the_plan_makes_the_answer_unknown() {
    let (listing, table) = with_plan(9, SORT);
    put(&listing, 9, "20260111000000000_20260111000001000.shinycommit", b"{}");
    assert_unknown(&answer(&table).await, "shinycommit");
    // Known ones that write no data do not.
    let (listing, table) = with_plan(9, SORT);
    for action in ["clean", "rollback", "savepoint", "indexing", "schemacommit", "restore"] {
        put(&listing, 9, &format!("20260111000000000_20260111000001000.{action}"), b"");
    }
    assert_eq!(answer(&table).await, Overtaken::No);
}

#[tokio::test]
async fn only_a_pending_clustering_plan_can_be_asked_about() {
    let (listing, table) = with_plan(9, SORT);
    let snapshot = look(&table).await;
    assert_unknown(&table.overtaken(&snapshot, "20260101000000000").await, "no pending clustering plan");
    put(&listing, 9, "20260113000000000.clustering.requested", b"Obj\x01 cut");
    let snapshot = look(&table).await;
    assert_unknown(
        &table.overtaken(&snapshot, "20260113000000000").await,
        "20260113000000000.clustering.requested",
    );
}

/// A slow write that began before the plan, ended after it, and was archived since.
const ARCHIVED: Commit<'_> =
    Commit { files: &[("a", "f1", "a/f1_0-9-9_20260109000000000.parquet")], replaced: &[] };

#[tokio::test]
async fn a_write_that_was_archived_since_overtakes_a_plan_of_layout_1() {
    let (listing, table) = with_plan(6, SORT);
    let file = made::archive_file("20260109000000000", "replacecommit", &ARCHIVED);
    listing.put("/t/.hoodie/archived/.commits_.archive.1_1-0-1", file.clone());
    assert_eq!(answer(&table).await, yes("20260109000000000", "a/f1"));

    // A history file older than the plan holds only what the planner saw.
    let long_ago = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
    let (listing, table) = with_plan(6, SORT);
    listing.put_at("/t/.hoodie/archived/.commits_.archive.1_1-0-1", file, long_ago);
    assert_eq!(answer(&table).await, Overtaken::No);
}

#[tokio::test]
async fn a_write_that_was_archived_since_overtakes_a_plan_of_layout_2() {
    let (listing, table) = with_plan(9, SORT);
    let history = "/t/.hoodie/timeline/history";
    let before = made::lsm_file("20260108000000000", "20260108000000001", "commit", &ARCHIVED.avro());
    listing.put(&format!("{history}/20260108000000000_20260108000000000_0.parquet"), before);
    assert_eq!(answer(&table).await, Overtaken::No);
    let after = made::lsm_file("20260109000000000", "20260110000000001", "commit", &ARCHIVED.avro());
    listing.put(&format!("{history}/20260109000000000_20260109000000000_0.parquet"), after);
    // The history alone changed, which no listing of the timeline shows; a table that archives changes both.
    put(&listing, 9, "20260112000000000.commit.requested", b"");
    assert_eq!(answer(&table).await, yes("20260109000000000", "a/f1"));
}

#[tokio::test]
async fn an_unreadable_history_makes_the_answer_unknown() {
    let (listing, table) = with_plan(6, SORT);
    let file = made::archive_file("20260109000000000", "replacecommit", &ARCHIVED);
    let path = "/t/.hoodie/archived/.commits_.archive.1_1-0-1";
    listing.put(path, &file[..file.len() - 3]);
    assert_unknown(&answer(&table).await, path);
    let (listing, table) = with_plan(9, SORT);
    listing.add_folder("/t/.hoodie/timeline/history");
    listing.trouble("/t/.hoodie/timeline/history", Some(Trouble::Denied));
    assert_unknown(&answer(&table).await, "history");
}

#[tokio::test]
async fn no_plan_of_the_fixtures_is_overtaken() {
    let mut n_plans = 0;
    for name in fixture_names().iter().filter(|name| name.contains("clustering")) {
        let Fixture { base, .. } = &unpack(name);
        let table = HudiTable::new(Arc::new(LocalListing), base.as_str());
        let snapshot = look(&table).await;
        for plan in snapshot.pending().iter().filter(|plan| plan.action == PlanAction::Clustering) {
            assert_eq!(
                table.overtaken(&snapshot, &plan.instant).await,
                Overtaken::No,
                "{name} {}",
                plan.instant
            );
            n_plans += 1;
        }
    }
    assert!(n_plans >= 12, "{n_plans}");
}

#[tokio::test]
async fn an_upsert_into_a_real_plan_is_found() {
    for (name, folder) in [
        ("h0150_v6_cow_pending_clustering", ".hoodie"),
        ("h120_v9_cow_pending_clustering", ".hoodie/timeline"),
    ] {
        let Fixture { base, .. } = &unpack(name);
        let table = HudiTable::new(Arc::new(LocalListing), base.as_str());
        let snapshot = look(&table).await;
        let plan = snapshot.pending()[0].plan.as_ref().unwrap();
        let group = &plan.groups[0];
        let path = format!("{}/{}_0-9-9_29990101000000000.parquet", group.partition, group.file_id);
        let files = [(group.partition.as_str(), group.file_id.as_str(), path.as_str())];
        let commit = Commit { files: &files, replaced: &[] };
        let file = if folder == ".hoodie" {
            "29990101000000000.commit"
        } else {
            "29990101000000000_29990101000000001.commit"
        };
        std::fs::write(format!("{base}/{folder}/{file}"), commit.json()).unwrap();
        let snapshot = look(&table).await;
        let answer = table.overtaken(&snapshot, &snapshot.pending()[0].instant).await;
        assert_eq!(
            answer,
            yes("29990101000000000", &format!("{}/{}", group.partition, group.file_id)),
            "{name}"
        );
    }
}

/// A plan older than everything, in every real table: the guard has to read every write there is, active and
/// archived, JSON and Avro, and none of them touches the plan's group.
#[tokio::test]
async fn every_write_of_every_fixture_can_be_read_by_the_guard() {
    let mut n_read = 0;
    for name in fixture_names() {
        let listing = unpack_in_memory(&name);
        for base in ["/t", "/t/.hoodie/metadata"] {
            if !listing.paths().contains(&format!("{base}/.hoodie/hoodie.properties")) {
                continue;
            }
            let table = HudiTable::new(listing.clone(), base);
            let properties = table.properties().await.unwrap();
            let word = if properties.layout == 1 { "replacecommit" } else { "clustering" };
            let plan = made::clustering_plan(SORT, &[&[("a", "nobody", &["/t/a/nobody_0_0.parquet"])]]);
            let long_ago = DateTime::from_timestamp(1, 0).unwrap();
            listing.put_at(
                &format!("{base}/{}/0.{word}.requested", properties.timeline_path),
                plan,
                long_ago,
            );
            let snapshot = look(&table).await;
            listing.take_counts();
            assert_eq!(table.overtaken(&snapshot, "0").await, Overtaken::No, "{name} {base}");
            n_read += listing.take_counts().1;
        }
    }
    assert!(n_read > 500, "{n_read}");
}
