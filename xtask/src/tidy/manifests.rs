//! Every crate takes its lints, versions and edition from the workspace.

use toml::Table;

use crate::repo::SourceFile;
use crate::tidy::Finding;

const DEPENDENCIES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks the manifest of one crate; the workspace's own is none.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.path.ends_with("/Cargo.toml") {
        return Vec::new();
    }
    let Ok(manifest) = file.text.parse::<Table>() else {
        return vec![Finding::error(&file.path, 0, "is no TOML")];
    };
    let mut findings = Vec::new();
    if !is_from_workspace(manifest.get("lints")) {
        findings.push(Finding::error(&file.path, 0, "no `[lints] workspace = true`"));
    }
    let edition = manifest.get("package").and_then(|package| package.get("edition"));
    if !is_from_workspace(edition) {
        findings.push(Finding::error(&file.path, 0, "no `edition.workspace = true`"));
    }
    for section in DEPENDENCIES {
        let dependencies = manifest.get(section).and_then(|found| found.as_table());
        let own = dependencies.into_iter().flatten().filter(|(_, value)| !is_from_workspace(Some(value)));
        findings.extend(own.map(|(name, _)| {
            Finding::error(
                &file.path,
                0,
                format!("{name} has a version of its own; put it into the workspace's Cargo.toml"),
            )
        }));
    }
    findings
}

fn is_from_workspace(value: Option<&toml::Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn crate_takes_everything_from_the_workspace() {
        let good = "[package]\nname = \"a\"\nedition.workspace = true\n[lints]\nworkspace = true\n\
            [dependencies]\nb.workspace = true\nc = { workspace = true, optional = true }\n";
        assert_eq!(shown(&check(&file("crates/a/Cargo.toml", good))), Vec::<String>::new());
    }

    #[test]
    fn own_versions_and_missing_lints_are_named() {
        let bad = "[package]\nname = \"a\"\nedition = \"2024\"\n[dev-dependencies]\nb = \"1\"\n";
        assert_eq!(check(&file("crates/a/Cargo.toml", bad)).len(), 3);
        assert_eq!(check(&file("crates/a/Cargo.toml", "= no")).len(), 1);
        assert!(check(&file("Cargo.toml", bad)).is_empty());
    }
}
