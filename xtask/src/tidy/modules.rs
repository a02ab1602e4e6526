//! No dead modules: every file under a crate's `src` is named by its parent.

use std::collections::BTreeMap;

use crate::repo::SourceFile;
use crate::tidy::Finding;
use crate::tidy::source::code_only;

/// Finds Rust files that no `mod` line brings in.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rust: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| file.is_rust())
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let mut findings = Vec::new();
    for path in rust.keys() {
        let Some((krate, inner)) = path.split_once("/src/") else { continue };
        let Some((parents, name)) = parents(krate, inner) else { continue };
        let is_named =
            parents.iter().filter_map(|parent| rust.get(parent.as_str())).any(|text| brings(text, &name));
        if !is_named {
            findings.push(Finding::error(path, 0, format!("no `mod {name};` brings this file in")));
        }
    }
    findings
}

/// Files that may hold the `mod` line of a file, and the module's name; `None` for the root of a program or
/// library.
fn parents(krate: &str, inner: &str) -> Option<(Vec<String>, String)> {
    let stem = inner.strip_suffix(".rs")?;
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem.rsplit_once('/') {
        None if matches!(stem, "lib" | "main") => None,
        None => Some((vec![format!("{krate}/src/lib.rs"), format!("{krate}/src/main.rs")], stem.to_owned())),
        // Each file of `src/bin`, and each `main.rs` of a folder there, is a program.
        Some(("bin", _)) => None,
        Some((folder, "main")) if folder.starts_with("bin/") => None,
        Some((folder, name)) => {
            let mut parents =
                vec![format!("{krate}/src/{folder}.rs"), format!("{krate}/src/{folder}/mod.rs")];
            if folder.starts_with("bin/") {
                parents.push(format!("{krate}/src/{folder}/main.rs"));
            }
            Some((parents, name.to_owned()))
        }
    }
}

fn brings(text: &str, name: &str) -> bool {
    let line = format!("mod {name};");
    let is_line = |found: &str| {
        found.strip_suffix(&line).is_some_and(|before| before.is_empty() || before.ends_with([' ', ')']))
    };
    code_only(text).lines().any(|found| is_line(found.trim()))
        || text.contains(&format!("#[path = \"{name}.rs\"]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn file_that_nobody_names_is_dead() {
        let files = [
            file("crates/a/src/lib.rs", "pub mod b;\n// mod dead;\n"),
            file("crates/a/src/b.rs", "pub(crate) mod c;\n"),
            file("crates/a/src/b/c.rs", ""),
            file("crates/a/src/dead.rs", ""),
            file("crates/a/src/b/gone.rs", ""),
            file("crates/a/src/bin/tool.rs", ""),
            file("crates/a/src/bin/two/main.rs", "mod x;"),
            file("crates/a/src/bin/two/x.rs", ""),
            file("crates/a/tests/it.rs", ""),
        ];
        assert_eq!(
            shown(&check(&files)),
            [
                "error: crates/a/src/b/gone.rs: no `mod gone;` brings this file in",
                "error: crates/a/src/dead.rs: no `mod dead;` brings this file in"
            ]
        );
    }
}
