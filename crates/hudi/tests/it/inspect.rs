//! The fixed shape of `tms inspect`.

use std::sync::Arc;

use serde_json::json;
use tms_hudi::{HudiTable, LocalListing, inspect};

use crate::common::unpack;
use crate::made;

#[tokio::test]
async fn the_report_has_the_fixed_shape() {
    let fixture = unpack("h102_v8_mor_pending_compaction");
    let report =
        inspect::report(&HudiTable::new(Arc::new(LocalListing), fixture.base.as_str())).await.unwrap();
    let expected = json!({
        "table": {"base_path": fixture.base, "name": "t1", "database": null, "type": "MERGE_ON_READ", "version": 8, "layout": 2},
        "instants": [
            {"requested": "20261130092009448", "action": "deltacommit", "state": "completed", "completed": "20261130092017717"},
            {"requested": "20261130092018042", "action": "deltacommit", "state": "completed", "completed": "20261130092020981"},
            {"requested": "20261130092021901", "action": "compaction", "state": "requested", "completed": null},
        ],
        "pending": [
            {"action": "compaction", "instant": "20261130092021901", "state": "requested", "file_groups": 2, "log_files": 2, "bytes": 2118, "partitions": 2},
        ],
    });
    assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    assert!(report.problems.is_empty());
}

#[tokio::test]
async fn a_clustering_of_layout_1_is_a_replacecommit_to_hudi_and_a_clustering_to_us() {
    let fixture = unpack("h0150_v6_cow_pending_clustering");
    let report =
        inspect::report(&HudiTable::new(Arc::new(LocalListing), fixture.base.as_str())).await.unwrap();
    let report = serde_json::to_value(&report).unwrap();
    assert_eq!(
        report["instants"][2],
        json!({"requested": "20261130094509479", "action": "replacecommit", "state": "requested", "completed": null})
    );
    assert_eq!(report["instants"][0]["completed"], json!(null), "layout 1 tells no completion times");
    assert_eq!(
        report["pending"],
        json!([{"action": "clustering", "instant": "20261130094509479", "state": "requested", "file_groups": 4, "log_files": 0, "bytes": 0, "partitions": 2}])
    );
}

#[tokio::test]
async fn a_pending_insert_overwrite_is_an_instant_and_no_pending_plan() {
    for name in ["h0150_v6_cow_insert_overwrite_requested", "h120_v9_cow_insert_overwrite_requested"] {
        let fixture = unpack(name);
        let report =
            inspect::report(&HudiTable::new(Arc::new(LocalListing), fixture.base.as_str())).await.unwrap();
        assert_eq!(report.pending, []);
        assert_eq!(report.instants[1].action, "replacecommit");
        assert_eq!(report.instants[1].state, "requested");
    }
}

#[tokio::test]
async fn a_clean_plan_tells_partitions_only() {
    let fixture = unpack("h120_v9_cow_inflight_clean");
    let report =
        inspect::report(&HudiTable::new(Arc::new(LocalListing), fixture.base.as_str())).await.unwrap();
    let pending = serde_json::to_value(&report.pending).unwrap();
    assert_eq!(pending[0]["action"], "clean");
    assert_eq!(pending[0]["state"], "inflight");
    assert_eq!(
        (&pending[0]["file_groups"], &pending[0]["bytes"], &pending[0]["partitions"]),
        (&json!(null), &json!(null), &json!(2))
    );
}

#[tokio::test]
async fn a_metadata_table_and_an_empty_table_can_be_inspected() {
    let fixture = unpack("h0150_v6_cow_rollback");
    let base = format!("{}/.hoodie/metadata", fixture.base);
    let report = inspect::report(&HudiTable::new(Arc::new(LocalListing), base)).await.unwrap();
    assert_eq!(report.table.name, "t1_metadata");
    assert_eq!(report.instants.last().unwrap().requested.len(), 20);
    let fixture = unpack("h120_v9_empty");
    let report =
        inspect::report(&HudiTable::new(Arc::new(LocalListing), fixture.base.as_str())).await.unwrap();
    assert_eq!((report.instants.len(), report.pending.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_plan_is_null_in_the_report_and_a_problem_beside_it() {
    let (listing, table) = made::table(9);
    listing.put("/t/.hoodie/timeline/20260101000000000.compaction.requested", "Obj\u{1}");
    let report = inspect::report(&table).await.unwrap();
    assert_eq!(report.pending[0].file_groups, None);
    assert!(report.problems[0].to_string().contains("20260101000000000.compaction.requested"));
    assert!(!serde_json::to_string(&report).unwrap().contains("problems"));
}
