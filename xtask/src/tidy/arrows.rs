//! Which of our crates may use which, and that features are named after crates.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::repo::packages;
use crate::tidy::Finding;

/// Crates that belong to a family by their name.
const FAMILIES: [&str; 3] = ["tms-store-", "tms-engine-", "tms-election-"];
/// Test crates that may use everything and that nothing uses.
const FREE: [&str; 2] = ["tms-e2e", "tms-bench"];
const CONFORMANCE: &str = "tms-conformance";

fn is_in_family(package: &str) -> bool {
    FAMILIES.iter().any(|family| package.starts_with(family))
}

/// Whether one of our crates may use another one of ours, other than in its tests.
fn may_use(user: &str, used: &str) -> bool {
    match user {
        "tms-core" => used == "tms-hudi",
        "tms-cli" => matches!(used, "tms-client" | "tms-hudi"),
        "tms-server" => matches!(used, "tms-client" | "tms-core") || is_in_family(used),
        CONFORMANCE => matches!(used, "tms-core" | "tms-hudi"),
        _ if is_in_family(user) => used == "tms-core",
        _ => false,
    }
}

/// Whether the tests of one of our crates may use another one. The command line is tested against a server in process.
fn may_test_with(user: &str, used: &str) -> bool {
    used == CONFORMANCE || (user == "tms-cli" && matches!(used, "tms-server" | "tms-core"))
}

/// Checks the arrows between our crates in what `cargo metadata` says.
pub(crate) fn check(metadata: &Value) -> Vec<Finding> {
    let ours: BTreeSet<&str> = packages(metadata).filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages(metadata) {
        let user = package["name"].as_str().unwrap_or_default();
        let manifest = manifest_of(metadata, package);
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if !ours.contains(used) || FREE.contains(&user) {
                continue;
            }
            let is_dev = dependency["kind"] == "dev";
            let is_allowed = may_use(user, used) || (is_dev && may_test_with(user, used));
            if !is_allowed {
                let word = if is_dev { "test with" } else { "use" };
                findings.push(Finding::error(
                    &manifest,
                    0,
                    format!("{user} may not {word} {used} (crate arrows)"),
                ));
            }
        }
    }
    findings
}

/// The one feature that brings no crate: places where `cargo xtask crash` lets the server kill itself.
const FAIL_POINTS: &str = "fail-points";

/// Checks that each feature of the server is named after the crate that it brings.
pub(crate) fn check_features(metadata: &Value) -> Vec<Finding> {
    let ours: BTreeSet<&str> = packages(metadata).filter_map(|package| package["name"].as_str()).collect();
    let servers = packages(metadata).filter(|package| package["name"] == "tms-server");
    let features = servers.flat_map(|server| {
        let names = server["features"].as_object().into_iter().flat_map(|features| features.keys());
        names.map(move |name| (manifest_of(metadata, server), name))
    });
    let is_wrong = |name: &str| {
        name != "default"
            && name != FAIL_POINTS
            && !(is_in_family(&format!("tms-{name}")) && ours.contains(format!("tms-{name}").as_str()))
    };
    features
        .filter(|(_, name)| is_wrong(name))
        .map(|(manifest, name)| {
            Finding::error(&manifest, 0, format!("feature {name} is not the name of a backend crate"))
        })
        .collect()
}

/// The manifest's path, relative to the workspace's root.
fn manifest_of(metadata: &Value, package: &Value) -> String {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let path = package["manifest_path"].as_str().unwrap_or_default();
    path.strip_prefix(root).unwrap_or(path).trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tidy::shown;

    fn metadata(arrows: &[(&str, &str, Option<&str>)]) -> Value {
        let mut names: Vec<&str> = arrows.iter().flat_map(|(user, used, _)| [*user, *used]).collect();
        names.sort_unstable();
        names.dedup();
        let packages: Vec<Value> = names
            .iter()
            .map(|name| {
                let own = arrows.iter().filter(|(user, ..)| user == name);
                let dependencies: Vec<Value> = own.map(|(_, used, kind)| json!({"name": used, "kind": kind})).collect();
                json!({"name": name, "manifest_path": format!("/r/{name}/Cargo.toml"), "dependencies": dependencies, "features": {}})
            })
            .collect();
        json!({"workspace_root": "/r", "packages": packages})
    }

    #[test]
    fn allowed_arrows_pass() {
        let dev = Some("dev");
        let good = [
            ("tms-core", "tms-hudi", None),
            ("tms-core", "tms-conformance", dev),
            ("tms-store-redb", "tms-core", None),
            ("tms-store-redb", "tms-conformance", dev),
            ("tms-conformance", "tms-core", None),
            ("tms-server", "tms-client", None),
            ("tms-server", "tms-engine-spark", None),
            ("tms-cli", "tms-client", None),
            ("tms-cli", "tms-hudi", None),
            ("tms-e2e", "tms-server", None),
        ];
        assert_eq!(shown(&check(&metadata(&good))), Vec::<String>::new());
    }

    #[test]
    fn forbidden_arrows_are_named() {
        for (user, used, kind) in [
            ("tms-hudi", "tms-core", None),
            ("tms-core", "tms-store-redb", None),
            ("tms-core", "tms-conformance", None),
            ("tms-store-redb", "tms-engine-spark", None),
            ("tms-cli", "tms-core", None),
            ("tms-client", "tms-core", None),
            ("tms-core", "tms-store-redb", Some("dev")),
            ("xtask", "tms-core", None),
            ("tms-server", "tms-e2e", None),
        ] {
            let found = shown(&check(&metadata(&[(user, used, kind)])));
            assert_eq!(found.len(), 1, "{user} -> {used}");
            assert!(found[0].starts_with(&format!("error: {user}/Cargo.toml: {user} may not")), "{found:?}");
        }
    }

    #[test]
    fn feature_must_be_named_after_a_crate() {
        let mut metadata = metadata(&[("tms-server", "tms-store-redb", None)]);
        metadata["packages"][0]["features"] =
            json!({"default": ["store-redb"], "store-redb": [], "rocks": [], "store-none": []});
        let found = shown(&check_features(&metadata));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|line| line.contains("rocks") || line.contains("store-none")));
    }
}
