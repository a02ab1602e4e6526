//! Writers at work, broken files, and stores that do not answer.

use std::sync::Arc;

use apache_avro::types::Value;

use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use tms_hudi::{ErrorKind, HudiTable, InstantState, Limits, Look, PlanAction, Snapshot};

use crate::common::{MemoryListing, Trouble, look, unpack_in_memory};
use crate::made::{self, BASE, Commit};

const PLAN_FILE: &str = "/t/.hoodie/timeline/20260101000000000.compaction.requested";
const PROPERTIES: &str = "/t/.hoodie/hoodie.properties";
const TIMELINE: &str = "/t/.hoodie/timeline";

fn with_plan() -> (Arc<MemoryListing>, HudiTable) {
    let (listing, table) = made::table(9);
    listing.put(PLAN_FILE, made::compaction_plan(&[("a", "f1", "f1_0_1.parquet", &[])]));
    (listing, table)
}

fn plan_error(snapshot: &Arc<Snapshot>) -> tms_hudi::Error {
    snapshot.pending()[0].plan.as_ref().expect_err("the plan cannot be read").clone()
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_empty_for_a_moment_is_read_again() {
    let (listing, table) = with_plan();
    listing.trouble(PLAN_FILE, Some(Trouble::ReadsEmpty(3)));
    let before = tokio::time::Instant::now();
    assert!(look(&table).await.pending()[0].plan.is_ok());
    assert!(before.elapsed().as_millis() >= 150, "each wait has at least 50 ms");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_stays_empty_is_not_readable_yet_and_spoils_nothing_else() {
    let (listing, table) = with_plan();
    listing.put(&format!("{TIMELINE}/20260102000000000.compaction.requested"), "");
    let before = tokio::time::Instant::now();
    let snapshot = look(&table).await;
    assert!(before.elapsed().as_secs() < 10, "patience has an end");
    assert!(snapshot.pending()[0].plan.is_ok());
    let error = snapshot.pending()[1].plan.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReadableYet);
    assert!(error.is_transient());
    assert!(error.to_string().contains("20260102000000000.compaction.requested"), "{error}");
    assert!(error.to_string().contains("look again"), "{error}");
    // Nothing changes while it stays so; when it is filled the listing shows it.
    listing.take_counts();
    assert!(matches!(table.look(Some(&snapshot)).await.unwrap(), Look::Unchanged));
    assert_eq!(listing.take_counts(), (1, 0, 0));
    listing.put(&format!("{TIMELINE}/20260102000000000.compaction.requested"), made::compaction_plan(&[]));
    match table.look(Some(&snapshot)).await.unwrap() {
        Look::Changed(next) => assert!(next.pending()[1].plan.is_ok()),
        Look::Unchanged => panic!("the filled plan was not seen"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_vanishes_between_listing_and_reading_makes_the_look_start_anew() {
    let (listing, table) = with_plan();
    listing.trouble(PLAN_FILE, Some(Trouble::Vanishes(1)));
    let snapshot = look(&table).await;
    assert!(snapshot.pending()[0].plan.is_ok());
    assert_eq!(listing.take_counts().0, 2);

    listing.trouble(PLAN_FILE, Some(Trouble::Vanishes(u32::MAX)));
    let table = HudiTable::new(listing.clone(), BASE);
    let error = plan_error(&look(&table).await);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(listing.take_counts().0 <= 4, "rounds are bounded");
}

#[tokio::test(start_paused = true)]
async fn a_denied_plan_is_read_as_soon_as_it_may_be_although_the_listing_is_the_same() {
    let (listing, table) = with_plan();
    listing.trouble(PLAN_FILE, Some(Trouble::Denied));
    let first = look(&table).await;
    assert_eq!(plan_error(&first).kind(), ErrorKind::PermissionDenied);
    assert!(matches!(table.look(Some(&first)).await.unwrap(), Look::Unchanged));
    listing.trouble(PLAN_FILE, None);
    match table.look(Some(&first)).await.unwrap() {
        Look::Changed(second) => assert!(second.pending()[0].plan.is_ok()),
        Look::Unchanged => panic!("the plan can be read now"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_plan_is_an_error_that_names_the_file_wherever_it_is_cut() {
    let (listing, table) = with_plan();
    let whole = listing.content(PLAN_FILE);
    for length in 1..whole.len() {
        listing.put(PLAN_FILE, &whole[..length]);
        let error = plan_error(&look(&table).await);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "cut to {length} bytes: {error}");
        assert!(error.to_string().contains(PLAN_FILE) && !error.hint().is_empty(), "{error}");
    }
    // Bytes behind the block are another block to come, and no part of this plan.
    listing.put(PLAN_FILE, whole);
    assert!(look(&table).await.pending()[0].plan.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_empty_plan_and_a_missing_plan_are_errors() {
    let (listing, table) = made::table(9);
    let null_plan = made::container(
        &serde_json::json!({"type": "record", "name": "HoodieCompactionPlan", "fields": [{"name": "operations", "type": ["null", "string"]}]}),
        Value::Record(vec![("operations".to_owned(), Value::Union(0, Box::new(Value::Null)))]),
    );
    listing.put(PLAN_FILE, null_plan);
    listing.put(&format!("{TIMELINE}/20260102000000000.clustering.inflight"), "");
    let snapshot = look(&table).await;
    assert!(plan_error(&snapshot).to_string().contains("no operations"));
    let missing = snapshot.pending_plan(PlanAction::Clustering, "20260102000000000").unwrap();
    assert_eq!(missing.state, InstantState::Inflight);
    let error = missing.plan.as_ref().unwrap_err();
    assert!(error.to_string().contains("20260102000000000.clustering.requested"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_replacecommit_that_cannot_be_read_is_shown_and_never_taken_for_a_write() {
    let (listing, table) = made::table(6);
    listing.put("/t/.hoodie/20260101000000000.replacecommit.requested", "Obj\u{1}cut");
    let snapshot = look(&table).await;
    assert_eq!(plan_error(&snapshot).kind(), ErrorKind::Corrupt);
    assert!(table.writes_without_heartbeat(&snapshot).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn absurd_sizes_are_refused() {
    let (listing, table) = with_plan();
    let table = table.with_limits(Limits { plan_bytes_max: 100, ..Limits::default() });
    assert_eq!(plan_error(&look(&table).await).kind(), ErrorKind::TooLarge);
    // A container whose block claims to be endless.
    let mut endless = listing.content(PLAN_FILE);
    let at = endless.len() - 16 - 40;
    endless[at..at + 10].copy_from_slice(&[0xff; 10]);
    listing.put(PLAN_FILE, endless);
    assert_eq!(plan_error(&look(&HudiTable::new(listing.clone(), BASE)).await).kind(), ErrorKind::Corrupt);
    listing.put(PROPERTIES, vec![b'#'; 2 * 1024 * 1024]);
    assert_eq!(HudiTable::new(listing, BASE).look(None).await.unwrap_err().kind(), ErrorKind::TooLarge);
}

#[tokio::test(start_paused = true)]
async fn schemas_that_would_cost_endless_work_are_refused() {
    let schemas = [
        r#"{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"record","name":"E","fields":[]}}}]}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"fixed","name":"F","size":0}}}]}"#,
    ];
    for schema in schemas {
        let (listing, table) = made::table(9);
        let mut file = b"Obj\x01\x02\x16avro.schema".to_vec();
        let length = schema.len() * 2;
        file.extend([u8::try_from(length & 0x7f).unwrap() | 0x80, u8::try_from(length >> 7).unwrap()]);
        file.extend(schema.as_bytes());
        file.extend([0; 17]);
        // One record in a block of eight bytes.
        file.extend([2, 16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        file.extend([0; 16]);
        listing.put(PLAN_FILE, file);
        let error = plan_error(&look(&table).await);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{schema}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn packed_containers_of_other_writers_are_read() {
    use apache_avro::{Codec, DeflateSettings, Reader, Writer};
    for codec in [Codec::Snappy, Codec::Deflate(DeflateSettings::default())] {
        let (listing, table) = with_plan();
        let plain = listing.content(PLAN_FILE);
        let reader = Reader::new(plain.as_slice()).unwrap();
        let schema = reader.writer_schema().clone();
        let mut writer = Writer::with_codec(&schema, Vec::new(), codec).unwrap();
        for value in reader {
            writer.append_value(value.unwrap()).unwrap();
        }
        listing.put(PLAN_FILE, writer.into_inner().unwrap());
        assert_eq!(look(&table).await.pending()[0].plan.as_ref().unwrap().file_groups, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn half_written_properties_are_read_from_the_backup_or_again() {
    let whole = made::properties(9);
    // Replaced by a writer: empty, the backup beside it.
    let (listing, table) = made::table(9);
    listing.put(PROPERTIES, "");
    listing.put(&format!("{PROPERTIES}.backup"), whole.clone());
    assert_eq!(table.properties().await.unwrap().version, 9);
    // Gone, the backup beside it.
    listing.remove(PROPERTIES);
    assert_eq!(table.properties().await.unwrap().version, 9);
    // Empty for a moment, no backup.
    let (listing, table) = made::table(9);
    listing.trouble(PROPERTIES, Some(Trouble::ReadsEmpty(2)));
    assert_eq!(table.properties().await.unwrap().version, 9);
    // Gone for a moment.
    listing.trouble(PROPERTIES, Some(Trouble::Vanishes(2)));
    assert_eq!(table.properties().await.unwrap().version, 9);
    // Edited by hand, without the last line end: whole, after it was read again.
    listing.trouble(PROPERTIES, None);
    listing.put(PROPERTIES, whole.trim_end());
    let before = tokio::time::Instant::now();
    assert_eq!(table.properties().await.unwrap().version, 9);
    assert!(before.elapsed().as_millis() >= 50);
}

#[tokio::test(start_paused = true)]
async fn properties_that_stay_cut_or_missing_are_errors_that_say_what_to_do() {
    let (listing, table) = made::table(9);
    let cases = [
        ("", ErrorKind::NotReadableYet),
        ("hoodie.table.name=t1\n", ErrorKind::NotReadableYet),
        ("hoodie.table.version=9\n", ErrorKind::NotReadableYet),
        ("hoodie.table.name=t1\nhoodie.table.version=\n", ErrorKind::Corrupt),
        // Cut at the end of a line: no type is no copy-on-write table, no partitions are no missing metadata table.
        ("hoodie.table.name=t1\nhoodie.table.version=9\n", ErrorKind::NotReadableYet),
        (
            "hoodie.table.name=t1\nhoodie.table.version=9\nhoodie.table.checksum=1\n",
            ErrorKind::NotReadableYet,
        ),
        (
            "hoodie.table.name=t1\nhoodie.table.version=9\nhoodie.table.type=MERGE_ON_READ\n",
            ErrorKind::NotReadableYet,
        ),
        (
            "hoodie.table.name=t1\nhoodie.table.version=9\nhoodie.table.checksum=1\nhoodie.table.type=MERGE_ON\n",
            ErrorKind::Corrupt,
        ),
        ("hoodie.table.name=t1\nhoodie.table.version=9\nbad=\\u12\n", ErrorKind::Corrupt),
        (
            "hoodie.table.name=t1\nhoodie.table.version=9\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.checksum=1\n\
             hoodie.timeline.layout.version=3\n",
            ErrorKind::Unsupported,
        ),
    ];
    for (content, kind) in cases {
        listing.put(PROPERTIES, content);
        let error = table.look(None).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{content:?}: {error}");
        assert!(error.to_string().contains(PROPERTIES), "{error}");
    }
    listing.remove(PROPERTIES);
    let error = table.look(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("restore hoodie.properties"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_never_an_empty_table() {
    let (listing, table) = with_plan();
    let first = look(&table).await;
    for (trouble, kind) in [
        (Trouble::Denied, ErrorKind::PermissionDenied),
        (Trouble::Unreachable, ErrorKind::Unreachable),
        (Trouble::Vanishes(1), ErrorKind::NotFound),
    ] {
        listing.trouble(TIMELINE, Some(trouble));
        let error = table.look(Some(&first)).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(TIMELINE), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_listing_is_believed_only_when_seen_twice_with_the_table_still_there() {
    let (listing, table) = with_plan();
    let first = look(&table).await;
    listing.remove(PLAN_FILE);
    listing.take_counts();
    match table.look(Some(&first)).await.unwrap() {
        Look::Changed(second) => assert!(second.instants().is_empty()),
        Look::Unchanged => panic!("the plan is gone"),
    }
    assert_eq!(listing.take_counts(), (2, 1, 0));
    listing.remove(PROPERTIES);
    assert_eq!(table.look(Some(&first)).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_temporary_file_of_a_writer_is_no_change() {
    let (listing, table) = with_plan();
    let first = look(&table).await;
    listing
        .put(&format!("{TIMELINE}/20260102000000000_20260102000000001.commit.6f9619ff-8b86-d011-b42d"), "");
    listing.put(&format!("{TIMELINE}/.20260102000000000.commit.requested.crc"), "");
    listing.add_folder(&format!("{TIMELINE}/history"));
    assert!(matches!(table.look(Some(&first)).await.unwrap(), Look::Unchanged));
    // The same name with other content is one.
    listing.put(PLAN_FILE, made::compaction_plan(&[]));
    assert!(matches!(table.look(Some(&first)).await.unwrap(), Look::Changed(_)));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_part_of_the_history_never_proves_absence() {
    for (fixture, folder) in [
        ("h0150_v6_mor_archived", "/t/.hoodie/archived"),
        ("h120_v9_mor_archived", "/t/.hoodie/timeline/history"),
    ] {
        let listing = unpack_in_memory(fixture);
        let table = HudiTable::new(listing.clone(), BASE);
        let snapshot = look(&table).await;
        let history = table.history(&snapshot).await.unwrap();
        let completed = |entry: &&tms_hudi::HistoryEntry| entry.state == InstantState::Completed;
        let (oldest, newest) =
            (history.iter().find(completed).unwrap(), history.iter().rev().find(completed).unwrap());
        let is_data = |path: &String| {
            path.starts_with(folder) && (path.contains(".commits_") || path.ends_with(".parquet"))
        };
        let data: Vec<String> = listing.paths().into_iter().filter(is_data).collect();
        let (first_file, last_file) = (data.first().unwrap(), data.last().unwrap());

        let table = HudiTable::new(listing.clone(), BASE);
        listing.trouble(first_file, Some(Trouble::Unreachable));
        assert_eq!(
            table.in_history(&snapshot, &newest.requested).await.unwrap().as_ref(),
            Some(newest),
            "found all the same"
        );
        assert_eq!(
            table.in_history(&snapshot, &oldest.requested).await.unwrap_err().kind(),
            ErrorKind::Unreachable
        );
        assert!(table.history(&snapshot).await.is_err());
        listing.trouble(first_file, None);
        assert_eq!(table.in_history(&snapshot, &oldest.requested).await.unwrap().as_ref(), Some(oldest));

        let mut cut = listing.content(last_file);
        cut.truncate(cut.len() - 5);
        listing.put(last_file, cut);
        let table = HudiTable::new(listing.clone(), BASE);
        let error = table.history(&snapshot).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(last_file.as_str()), "{error}");
        listing.trouble(folder, Some(Trouble::Denied));
        assert_eq!(table.in_history(&snapshot, "1").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_without_a_readable_version_is_read_by_its_highest_manifest() {
    let listing = unpack_in_memory("h120_v9_cow_archived");
    let table = HudiTable::new(listing.clone(), BASE);
    let snapshot = look(&table).await;
    let whole = table.history(&snapshot).await.unwrap();
    let version = "/t/.hoodie/timeline/history/_version_";
    for content in ["", "x"] {
        listing.put(version, content);
        assert_eq!(HudiTable::new(listing.clone(), BASE).history(&snapshot).await.unwrap(), whole);
    }
    listing.remove(version);
    assert_eq!(HudiTable::new(listing.clone(), BASE).history(&snapshot).await.unwrap(), whole);
    // Nothing was ever archived.
    let (listing, table) = with_plan();
    let snapshot = look(&table).await;
    assert!(table.history(&snapshot).await.unwrap().is_empty());
    listing.add_folder("/t/.hoodie/timeline/history");
    assert_eq!(table.in_history(&snapshot, "1").await.unwrap(), None);
    // Nothing is not what cannot be read, and data without a manifest is no empty history.
    listing.put(version, "1");
    listing.trouble(version, Some(Trouble::Denied));
    assert_eq!(table.in_history(&snapshot, "1").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    listing.trouble(version, None);
    listing.remove(version);
    listing.put("/t/.hoodie/timeline/history/1_1_0.parquet", made::lsm_file("1", "2", "commit", b""));
    assert_eq!(table.in_history(&snapshot, "1").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_history_file_merged_away_meanwhile_makes_the_manifest_be_read_again() {
    let listing = unpack_in_memory("h120_v9_cow_archived");
    let table = HudiTable::new(listing.clone(), BASE);
    let snapshot = look(&table).await;
    let file = listing.paths().into_iter().find(|path| path.ends_with(".parquet")).unwrap();
    let whole = table.history(&snapshot).await.unwrap();
    let table = HudiTable::new(listing.clone(), BASE);
    listing.trouble(&file, Some(Trouble::Vanishes(1)));
    assert_eq!(table.history(&snapshot).await.unwrap(), whole);
}

#[tokio::test]
async fn large_history_files_are_read_in_pieces_and_within_limits() {
    // More than one piece of an archive file: 3 blocks of 2 MiB each.
    let (listing, table) = made::table(6);
    let path = "x".repeat(2 * 1024 * 1024);
    let mut file = Vec::new();
    for time in ["1", "2", "3"] {
        let commit = Commit { files: &[("a", "f", path.as_str())], replaced: &[] };
        file.extend(made::archive_file(time, "commit", &commit));
    }
    listing.put("/t/.hoodie/archived/.commits_.archive.1_1-0-1", file);
    let snapshot = look(&table).await;
    listing.take_counts();
    assert_eq!(table.history(&snapshot).await.unwrap().len(), 3);
    assert_eq!(listing.take_counts(), (1, 2, 0));
    let small = HudiTable::new(listing.clone(), BASE)
        .with_limits(Limits { history_bytes_max: 1024, ..Limits::default() });
    assert_eq!(small.history(&snapshot).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let few =
        HudiTable::new(listing, BASE).with_limits(Limits { history_entries_max: 2, ..Limits::default() });
    assert_eq!(few.history(&snapshot).await.unwrap_err().kind(), ErrorKind::TooLarge);

    // A Parquet file of more than 1 MiB: footer and columns only, not the metadata.
    let (listing, table) = made::table(9);
    let file = made::lsm_file("1", "2", "commit", &vec![7; 3 * 1024 * 1024]);
    let history = "/t/.hoodie/timeline/history";
    listing.put(&format!("{history}/1_1_0.parquet"), file);
    listing.put(&format!("{history}/_version_"), "1");
    listing.put(&format!("{history}/manifest_1"), r#"{"files":[{"fileName":"1_1_0.parquet","fileLen":5}]}"#);
    let snapshot = look(&table).await;
    let limited = table.with_limits(Limits { history_bytes_max: 200 * 1024, ..Limits::default() });
    let found = limited.in_history(&snapshot, "1").await.unwrap().unwrap();
    assert_eq!((found.completed.as_deref(), found.action.as_str()), (Some("2"), "commit"));
    assert_eq!(limited.in_history(&snapshot, "2").await.unwrap(), None, "the file's name rules it out");
}

/// The writer's `hoodie.parquet.compression.codec` holds for the history too, and gzip is its default outside Spark SQL.
#[tokio::test]
async fn a_history_of_any_codec_is_read() {
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::LZ4,
    ] {
        let (listing, table) = made::table(9);
        let history = "/t/.hoodie/timeline/history";
        let file = made::packed_lsm_file("1", "2", "commit", &[7; 4096], codec);
        listing.put(&format!("{history}/1_1_0.parquet"), file);
        listing.put(&format!("{history}/_version_"), "1");
        listing.put(&format!("{history}/manifest_1"), r#"{"files":[{"fileName":"1_1_0.parquet"}]}"#);
        let snapshot = look(&table).await;
        let found = table.in_history(&snapshot, "1").await.unwrap().unwrap();
        assert_eq!(found.completed.as_deref(), Some("2"), "{codec:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_schema_nested_as_deep_as_allowed_is_read_on_a_small_stack() {
    // Arrays in arrays, in a field that nobody asks for.
    for (depth, is_read) in [(55, true), (70, false)] {
        let nested = (0..depth)
            .fold(serde_json::json!("int"), |inner, _| serde_json::json!({"type": "array", "items": inner}));
        let value = (0..depth).fold(Value::Int(1), |inner, _| Value::Array(vec![inner]));
        let schema = serde_json::json!({"type": "record", "name": "HoodieCompactionPlan", "fields": [
            {"name": "unasked", "type": nested},
            {"name": "operations", "type": {"type": "array", "items": "string"}},
        ]});
        let plan = Value::Record(vec![
            ("unasked".to_owned(), value),
            ("operations".to_owned(), Value::Array(vec![])),
        ]);
        let (listing, table) = made::table(9);
        listing.put(PLAN_FILE, made::container(&schema, plan));
        let snapshot = look(&table).await;
        match &snapshot.pending()[0].plan {
            Ok(plan) => assert!(is_read && plan.file_groups == Some(0)),
            Err(e) => assert!(!is_read && e.kind() == ErrorKind::TooLarge, "{e}"),
        }
    }
}

#[tokio::test]
async fn a_plan_of_twenty_thousand_operations_is_read() {
    let names: Vec<(String, String)> =
        (0..20_000).map(|n| (format!("f{n}-0"), format!("f{n}-0_0-1-1_20260101000000000.parquet"))).collect();
    let operations: Vec<made::Operation<'_>> = names
        .iter()
        .map(|(id, file)| ("p=1", id.as_str(), file.as_str(), ["x_1.log.1_0"].as_slice()))
        .collect();
    let (listing, table) = made::table(9);
    listing.put(PLAN_FILE, made::compaction_plan(&operations));
    let snapshot = look(&table).await;
    let plan = snapshot.pending()[0].plan.as_ref().unwrap();
    assert_eq!((plan.file_groups, plan.log_files, plan.partitions), (Some(20_000), Some(20_000), Some(1)));
    assert_eq!(plan.n_outside_base_path, 0);
}
