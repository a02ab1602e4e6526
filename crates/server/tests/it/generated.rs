//! Files that are generated from the program and committed: they must be current, and work.

use std::path::PathBuf;

use tms_server::config::{Sources, load, reference};

fn committed(path: &str) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn assert_current(path: &str, generated: &str, command: &str) {
    assert!(
        committed(path) == generated,
        "{path} is not current: run `cargo xtask {command}` and review the difference"
    );
}

#[test]
fn the_committed_description_of_the_api_is_current() {
    assert_current("api/openapi.json", &tms_server::api::openapi_json(), "openapi");
}

#[test]
fn the_committed_reference_and_presets_are_current() {
    assert_current("config/reference.toml", &reference::reference(), "presets");
    for name in reference::PRESETS {
        assert_current(&format!("config/presets/{name}.toml"), &reference::preset(name).unwrap(), "presets");
    }
}

#[test]
fn every_operation_has_a_name_of_its_own_and_a_described_answer() {
    let api: serde_json::Value = serde_json::from_str(&tms_server::api::openapi_json()).unwrap();
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name =
                operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no name"));
            assert!(names.insert(name.to_owned()), "{name} stands twice");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                assert!(
                    answer["description"].as_str().is_some_and(|d| !d.is_empty()),
                    "{method} {path} {status}"
                );
            }
        }
    }
    assert!(names.contains("list_instances") && names.len() >= 18, "{names:?}");
}

#[test]
fn every_whole_number_of_the_description_has_limits_that_a_client_can_hold() {
    fn walk(part: &serde_json::Value, n: &mut u32) {
        if let Some(entries) = part.as_object() {
            let kind = &entries.get("type").cloned().unwrap_or_default();
            if kind == "integer" || kind.as_array().is_some_and(|k| k.contains(&"integer".into())) {
                let limit = |key: &str| part[key].as_i64().unwrap_or_else(|| panic!("no {key}: {part}"));
                let (low, high) = (limit("minimum"), limit("maximum"));
                match part["format"].as_str() {
                    Some("int32") => {
                        assert!(low >= i64::from(i32::MIN) && high <= i64::from(i32::MAX), "{part}")
                    }
                    other => assert_eq!(other, Some("int64"), "{part}"),
                }
                *n += 1;
            }
            entries.values().for_each(|v| walk(v, n));
        } else if let Some(items) = part.as_array() {
            items.iter().for_each(|v| walk(v, n));
        }
    }
    let mut n = 0;
    walk(&serde_json::from_str(&tms_server::api::openapi_json()).unwrap(), &mut n);
    assert!(n > 40, "{n}");
}

#[test]
fn a_committed_file_gives_the_configuration_that_it_says() {
    let presets = reference::PRESETS.map(|name| format!("config/presets/{name}.toml"));
    for path in presets.iter().map(String::as_str).chain(["config/reference.toml"]) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tms.toml");
        std::fs::write(&file, committed(path)).unwrap();
        let loaded = load(&Sources { file: Some(file), ..Sources::default() })
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(loaded.config.server.listen, "127.0.0.1:9091", "{path}");
        assert_eq!(loaded.config.engines.len(), 1, "{path}");
    }
}
