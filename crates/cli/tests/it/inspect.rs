//! `tms inspect`: no server, the exact JSON.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::tms_with;

/// A table of version 6 with one completed and one requested instant; the plan of the latter cannot be read.
fn table(folder: &Path) {
    let hoodie = folder.join(".hoodie");
    fs::create_dir_all(&hoodie).unwrap();
    let properties = "hoodie.table.name=odd name\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.checksum=1\nhoodie.table.version=6\n\
                      hoodie.timeline.layout.version=1\n";
    fs::write(hoodie.join("hoodie.properties"), properties).unwrap();
    for name in ["20260101000000001.deltacommit.requested", "20260101000000001.deltacommit.inflight"] {
        fs::write(hoodie.join(name), "").unwrap();
    }
    fs::write(hoodie.join("20260101000000001.deltacommit"), "{}").unwrap();
}

#[test]
fn a_table_is_printed_in_its_fixed_shape() {
    let dir = tempfile::tempdir().unwrap();
    table(dir.path());
    let path = dir.path().to_str().unwrap();
    let said = tms_with(&[("TMS_URL", "http://127.0.0.1:1")], &["inspect", path, "-o", "json"]);
    assert_eq!(
        said.json(),
        json!({
            "table": {"base_path": path, "name": "odd name", "database": null, "type": "MERGE_ON_READ", "version": 6, "layout": 1},
            "instants": [{"requested": "20260101000000001", "action": "deltacommit", "state": "completed", "completed": null}],
            "pending": [],
        })
    );
    let text = tms_with(&[], &["inspect", path]).out;
    assert!(
        text.contains("odd name") && text.contains("deltacommit") && text.contains("pending plans: 0"),
        "{text}"
    );
}

#[test]
fn a_plan_that_cannot_be_read_is_shown_and_told() {
    let dir = tempfile::tempdir().unwrap();
    table(dir.path());
    fs::write(dir.path().join(".hoodie/20260101000000002.compaction.requested"), "no Avro").unwrap();
    let said = tms_with(&[], &["inspect", dir.path().to_str().unwrap(), "-o", "json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["pending"][0]["instant"], "20260101000000002");
    assert!(said.err.contains("20260101000000002.compaction.requested"), "{said:?}");
}

#[test]
fn a_folder_that_may_not_be_read_ends_with_5() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    table(dir.path());
    let hoodie = dir.path().join(".hoodie");
    fs::set_permissions(&hoodie, fs::Permissions::from_mode(0o000)).unwrap();
    // Nothing is denied to root.
    let is_denied = fs::read_dir(&hoodie).is_err();
    let said = tms_with(&[], &["inspect", dir.path().to_str().unwrap()]);
    fs::set_permissions(&hoodie, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(said.code, if is_denied { 5 } else { 0 }, "{said:?}");
}

#[test]
fn a_folder_without_a_table_ends_with_3() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_str().unwrap(), "/nowhere/at/all"] {
        let said = tms_with(&[], &["inspect", path]);
        assert_eq!(said.code, 3, "{said:?}");
        assert!(said.err.contains(path), "{said:?}");
    }
}
