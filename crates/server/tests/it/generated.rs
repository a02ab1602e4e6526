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
fn a_committed_file_gives_the_configuration_that_it_says() {
    for path in ["config/reference.toml", "config/presets/embedded-redb.toml"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tms.toml");
        std::fs::write(&file, committed(path)).unwrap();
        let loaded = load(&Sources { file: Some(file), ..Sources::default() })
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(loaded.config.server.listen, "127.0.0.1:9091", "{path}");
        assert_eq!(loaded.config.engines.len(), 1, "{path}");
    }
}
