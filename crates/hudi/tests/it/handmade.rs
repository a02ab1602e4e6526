//! States that no fixture holds: inflight pairs, odd times, unknown actions, upgraded tables.

use std::sync::Arc;

use tms_hudi::{HudiAction, HudiTable, InstantState, PlanAction, Snapshot};

use crate::common::{look, unpack_in_memory};
use crate::made::{self, BASE};

fn short(snapshot: &Arc<Snapshot>) -> Vec<String> {
    let text = |i: &tms_hudi::Instant| format!("{} {} {}", i.requested, i.action, i.state);
    snapshot.instants().iter().map(text).collect()
}

#[tokio::test]
async fn an_inflight_compaction_is_a_pending_plan_in_both_layouts() {
    for (fixture, folder, instant) in [
        ("h0150_v6_mor_pending_compaction", "/t/.hoodie", None),
        ("h120_v9_mor_pending_compaction", "/t/.hoodie/timeline", None::<&str>),
    ] {
        let listing = unpack_in_memory(fixture);
        let table = HudiTable::new(listing.clone(), BASE);
        let before = look(&table).await;
        let instant = instant.map_or_else(|| before.pending()[0].instant.clone(), str::to_owned);
        listing.put(&format!("{folder}/{instant}.compaction.inflight"), "");
        let after = look(&table).await;
        let plan = after.pending_plan(PlanAction::Compaction, &instant).unwrap();
        assert_eq!(plan.state, InstantState::Inflight);
        assert_eq!(plan.plan.as_ref().unwrap().file_groups, Some(2), "the plan is in the requested file");
        assert_eq!(after.instants().len(), before.instants().len(), "a pair is one instant");
    }
}

#[tokio::test]
async fn an_inflight_clustering_is_a_pending_plan_in_both_layouts() {
    for (fixture, folder, word) in [
        ("h0150_v6_cow_pending_clustering", "/t/.hoodie", "replacecommit"),
        ("h102_v8_cow_pending_clustering", "/t/.hoodie/timeline", "clustering"),
    ] {
        let listing = unpack_in_memory(fixture);
        let table = HudiTable::new(listing.clone(), BASE);
        let instant = look(&table).await.pending()[0].instant.clone();
        listing.put(&format!("{folder}/{instant}.{word}.inflight"), "");
        let snapshot = look(&table).await;
        let plan = snapshot.pending_plan(PlanAction::Clustering, &instant).unwrap();
        assert_eq!(plan.state, InstantState::Inflight);
        assert!(plan.plan.is_ok());
        assert_eq!(snapshot.instant_of(PlanAction::Clustering, &instant).unwrap().action.as_str(), word);

        let completed = if folder.ends_with("timeline") {
            format!("{instant}_29990101000000000")
        } else {
            instant.clone()
        };
        listing.put(&format!("{folder}/{completed}.replacecommit"), "{}");
        let snapshot = look(&table).await;
        assert!(snapshot.pending().is_empty());
        let done = snapshot.instant_of(PlanAction::Clustering, &instant).unwrap();
        assert_eq!(
            (done.action.clone(), done.state, done.completed_files),
            (HudiAction::ReplaceCommit, InstantState::Completed, 1)
        );
        assert_eq!(
            done.pending_action.as_ref().map(HudiAction::as_str),
            Some(word),
            "what it was stays visible"
        );
    }
}

#[tokio::test]
async fn services_finish_under_other_words() {
    let (listing, table) = made::table(9);
    let timeline = "/t/.hoodie/timeline";
    for name in [
        "1.compaction.requested",
        "1.compaction.inflight",
        "1_2.commit",
        "3.logcompaction.requested",
        "3_4.deltacommit",
        "5.clustering.requested",
        "5_6.replacecommit",
        "7.commit.requested",
        "7.inflight",
        "7_8.commit",
    ] {
        listing.put(&format!("{timeline}/{name}"), "");
    }
    let snapshot = look(&table).await;
    assert_eq!(
        short(&snapshot),
        ["1 commit completed", "3 deltacommit completed", "5 replacecommit completed", "7 commit completed"]
    );
    assert!(snapshot.pending().is_empty());
    let of_data: Vec<&str> =
        snapshot.completed_data_commits_after("0").map(|i| i.requested.as_str()).collect();
    assert_eq!(of_data, ["7"], "finished services are no data commits");
    assert_eq!(snapshot.completed_data_commits_after("7").count(), 0);
}

#[tokio::test]
async fn two_completed_files_of_one_instant_are_visible() {
    let (listing, table) = made::table(9);
    for name in ["1.clustering.requested", "1_2.replacecommit", "1_3.replacecommit", "4_5.commit"] {
        listing.put(&format!("/t/.hoodie/timeline/{name}"), "");
    }
    let snapshot = look(&table).await;
    let twice: Vec<_> = snapshot.completed_twice().collect();
    assert_eq!((twice.len(), twice[0].requested.as_str(), twice[0].completed_files), (1, "1", 2));
    assert_eq!(twice[0].completed.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_version_8_table_upgraded_from_6_keeps_its_old_names() {
    let (listing, table) = made::table(8);
    let timeline = "/t/.hoodie/timeline";
    let plan = made::clustering_plan("S", &[&[("a", "f1", &["/t/a/f1_0_1.parquet"])]]);
    for (name, content) in [
        ("20260101000000000.deltacommit", Vec::new()),
        ("20260102000000000.commit", Vec::new()),
        ("20260103000000000_20260103000001000.deltacommit", Vec::new()),
        ("20260104000000000.replacecommit.requested", plan),
    ] {
        listing.put(&format!("{timeline}/{name}"), content);
    }
    let snapshot = look(&table).await;
    let completed: Vec<Option<&str>> = snapshot.instants().iter().map(|i| i.completed.as_deref()).collect();
    assert_eq!(completed, [None, None, Some("20260103000001000"), None]);
    assert!(snapshot.instants()[..3].iter().all(|i| i.state == InstantState::Completed));
    assert!(
        snapshot.pending_plan(PlanAction::Clustering, "20260104000000000").is_some(),
        "a plan of before the upgrade"
    );
}

#[tokio::test]
async fn odd_times_are_kept_as_text_and_sorted_as_text() {
    let (listing, table) = made::table(6);
    for name in [
        "20260101000000.commit",
        "20260101000000123.commit",
        "20260101000000123001.compaction.requested",
        "00000000000000010.deltacommit",
        "99999999999999999999999999999999.deltacommit.requested",
    ] {
        listing.put(&format!("/t/.hoodie/{name}"), made::compaction_plan(&[]));
    }
    let snapshot = look(&table).await;
    assert_eq!(
        short(&snapshot),
        [
            "00000000000000010 deltacommit completed",
            "20260101000000 commit completed",
            "20260101000000123 commit completed",
            "20260101000000123001 compaction requested",
            "99999999999999999999999999999999 deltacommit requested",
        ]
    );
    assert_eq!(snapshot.pending()[0].instant, "20260101000000123001");
}

#[tokio::test]
async fn a_metadata_table_of_version_6_may_have_a_compaction_of_20_digits() {
    let listing = unpack_in_memory("h0150_v6_mor_none");
    let plan = made::compaction_plan(&[(
        "files",
        "files-0000-0",
        "",
        &[".files-0000-0_00000000000000010.log.1_0-0-0"],
    )]);
    listing.put("/t/.hoodie/metadata/.hoodie/20261130100040371001.compaction.requested", plan);
    let snapshot = look(&HudiTable::new(listing, "/t/.hoodie/metadata")).await;
    let plan =
        snapshot.pending_plan(PlanAction::Compaction, "20261130100040371001").unwrap().plan.as_ref().unwrap();
    assert_eq!(
        (plan.file_groups, plan.log_files, plan.bytes),
        (Some(1), Some(1), None),
        "no metrics, no bytes"
    );
    assert_eq!(plan.groups[0].base_file, None, "an empty path is no file");
}

#[tokio::test]
async fn unknown_actions_are_kept_and_foreign_files_are_not() {
    let (listing, table) = made::table(9);
    for name in [
        "1.shinyaction.requested",
        "2_3.shinyaction",
        // None of these is a file of the timeline.
        ".4_5.commit.crc",
        "4_5.commit.6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "4.compaction.requested.6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "4.commit.requested.crc",
        "4_5.commit.requested",
        "x.commit",
        "4_x.commit",
        "_5.commit",
        "4.Commit",
        "4.",
        "4",
        "4..requested",
        "4.requested",
        "4.commit.",
        "hoodie.properties.backup",
        ".keep",
    ] {
        listing.put(&format!("/t/.hoodie/timeline/{name}"), "");
    }
    listing.add_folder("/t/.hoodie/timeline/9_9.commit");
    let snapshot = look(&table).await;
    assert_eq!(short(&snapshot), ["1 shinyaction requested", "2 shinyaction completed"]);
    assert_eq!(snapshot.instants()[0].action, HudiAction::Other("shinyaction".to_owned()));
}

#[tokio::test]
async fn stale_copies_of_plans_in_aux_are_never_read() {
    let (listing, table) = made::table(6);
    listing.put("/t/.hoodie/.aux/20260101000000000.compaction.requested", made::compaction_plan(&[]));
    assert!(look(&table).await.pending().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_empty_replacecommit_is_an_old_insert_overwrite() {
    let (listing, table) = made::table(6);
    listing.put("/t/.hoodie/20260101000000000.replacecommit.requested", "");
    listing.put("/t/.hoodie/20260101000000000.replacecommit.inflight", "");
    let snapshot = look(&table).await;
    assert_eq!(short(&snapshot), ["20260101000000000 replacecommit inflight"]);
    assert!(snapshot.pending().is_empty());
    assert_eq!(table.writes_without_heartbeat(&snapshot).await.unwrap(), ["20260101000000000"]);
}

#[tokio::test]
async fn any_version_is_read_and_only_measured_ones_are_known() {
    for (version, is_known) in [(5, false), (6, true), (7, false), (8, true), (9, true), (10, false)] {
        let (_, table) = made::table(version);
        let properties = table.properties().await.unwrap();
        assert_eq!((properties.version, properties.is_version_known()), (version, is_known));
    }
}

#[tokio::test]
async fn the_timeline_may_lie_elsewhere_below_hoodie_and_nowhere_else() {
    let (listing, table) = made::table(9);
    let named = format!("{}hoodie.timeline.path=tl/x\n", made::properties(9));
    listing.put("/t/.hoodie/hoodie.properties", named);
    listing.put("/t/.hoodie/tl/x/1_2.commit", "");
    assert_eq!(short(&look(&table).await), ["1 commit completed"]);
    for path in ["../..", "/etc", "a/../../b", "s3://b/x"] {
        listing.put(
            "/t/.hoodie/hoodie.properties",
            format!("{}hoodie.timeline.path={path}\n", made::properties(9)),
        );
        let error = table.look(None).await.unwrap_err();
        assert!(error.to_string().contains("hoodie.timeline.path"), "{error}");
    }
    // Layout 1 ignores the key, which 1.0.2 sets there too.
    let (listing, table) = made::table(6);
    listing.put("/t/.hoodie/hoodie.properties", format!("{}hoodie.timeline.path=tl\n", made::properties(6)));
    listing.put("/t/.hoodie/1.commit", "");
    assert_eq!(short(&look(&table).await), ["1 commit completed"]);
}

#[tokio::test]
async fn a_table_upgraded_between_two_looks_is_read_at_its_new_place() {
    let (listing, table) = made::table(6);
    listing.put("/t/.hoodie/1.commit", "");
    let first = look(&table).await;
    listing.remove("/t/.hoodie/1.commit");
    listing.put("/t/.hoodie/hoodie.properties", made::properties(8));
    listing.put("/t/.hoodie/timeline/1_2.commit", "");
    match table.look(Some(&first)).await.unwrap() {
        tms_hudi::Look::Changed(second) => {
            assert_eq!(second.properties().version, 8);
            assert_eq!(second.instants()[0].completed.as_deref(), Some("2"));
        }
        tms_hudi::Look::Unchanged => panic!("the upgrade was not seen"),
    }
}

#[tokio::test]
async fn properties_asked_for_between_two_looks_count_for_the_next() {
    let (listing, table) = made::table(8);
    let first = look(&table).await;
    listing.put("/t/.hoodie/hoodie.properties", made::properties(9));
    assert_eq!(table.properties().await.unwrap().version, 9);
    match table.look(Some(&first)).await.unwrap() {
        tms_hudi::Look::Changed(second) => assert_eq!(second.properties().version, 9),
        tms_hudi::Look::Unchanged => panic!("the new version was not seen"),
    }
}

#[tokio::test]
async fn java_properties_are_read_as_java_reads_them() {
    let (listing, table) = made::table(9);
    let content = b"# comment\n! another\n  hoodie.table.name : a\\:b\\=c \nhoodie.table.version=9\\\n  \nhoodie.timeline.layout.version 2\r\nhoodie.database.name=\\u00e4\\uD83D\\uDE00\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.checksum=1\nk\\ ey=\\tv\nempty=\nnovalue\n";
    listing.put("/t/.hoodie/hoodie.properties", content.to_vec());
    let properties = table.properties().await.unwrap();
    assert_eq!(properties.name, "a:b=c ");
    assert_eq!(properties.database.as_deref(), Some("ä😀"));
    assert_eq!((properties.version, properties.layout), (9, 2));
    assert_eq!(
        (properties.get("k ey"), properties.get("empty"), properties.get("novalue")),
        (Some("\tv"), Some(""), Some(""))
    );
}

#[tokio::test]
async fn the_archive_of_a_layout_1_table_may_lie_in_hoodie_itself() {
    let (listing, table) = made::table(6);
    listing
        .put("/t/.hoodie/hoodie.properties", format!("{}hoodie.archivelog.folder=\n", made::properties(6)));
    let file = made::archive_file("20260101000000000", "commit", &made::Commit::default());
    listing.put("/t/.hoodie/.commits_.archive.1_1-0-1", file);
    let snapshot = look(&table).await;
    let found = table.in_history(&snapshot, "20260101000000000").await.unwrap().unwrap();
    assert_eq!((found.action, found.state), (HudiAction::Commit, InstantState::Completed));
}

#[tokio::test]
async fn a_table_downgraded_between_two_looks_is_read_at_its_old_place() {
    let (listing, table) = made::table(8);
    listing.put("/t/.hoodie/timeline/1_2.commit", "");
    let first = look(&table).await;
    listing.remove_folder("/t/.hoodie/timeline");
    listing.put("/t/.hoodie/hoodie.properties", made::properties(6));
    listing.put("/t/.hoodie/1.commit", "");
    match table.look(Some(&first)).await.unwrap() {
        tms_hudi::Look::Changed(second) => {
            assert_eq!((second.properties().version, second.instants()[0].completed.as_deref()), (6, None));
        }
        tms_hudi::Look::Unchanged => panic!("the downgrade was not seen"),
    }
}

#[tokio::test]
async fn completion_times_are_told_in_layout_2_only() {
    for (version, folder, completed) in [(6, "/t/.hoodie", None), (9, "/t/.hoodie/timeline", Some("2"))] {
        let (listing, table) = made::table(version);
        listing.put(&format!("{folder}/1_2.commit"), "");
        assert_eq!(look(&table).await.instants()[0].completed.as_deref(), completed);
    }
}
