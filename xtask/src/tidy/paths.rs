//! Paths named in documents exist: each one in ARCHITECTURE.md, and each relative link in every Markdown
//! file.

use std::collections::BTreeSet;

use crate::repo::SourceFile;
use crate::tidy::Finding;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Checks all Markdown files against the files of the checkout.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let known = known(files);
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        for (at, line) in file.text.lines().enumerate() {
            let links = links(line).into_iter().map(|link| resolve(&file.path, link));
            let mut named: Vec<String> = links.collect();
            if file.path == ARCHITECTURE {
                named.extend(
                    spans(line)
                        .into_iter()
                        .filter(|span| is_path(span))
                        .map(|span| span.trim_end_matches('/').to_owned()),
                );
            }
            let absent = named.into_iter().filter(|path| !exists(&known, path));
            findings.extend(
                absent.map(|path| Finding::error(&file.path, at + 1, format!("{path} does not exist"))),
            );
        }
    }
    findings
}

/// Files and all their folders.
fn known(files: &[SourceFile]) -> BTreeSet<&str> {
    let mut known = BTreeSet::new();
    for file in files {
        known.insert(file.path.as_str());
        known.extend(file.path.match_indices('/').filter_map(|(at, _)| file.path.get(..at)));
    }
    // Left out of the walk, but there.
    known.extend(["tests/fixtures", ""]);
    known
}

/// A `*` stands for the rest of one name.
fn exists(known: &BTreeSet<&str>, path: &str) -> bool {
    match path.split_once('*') {
        Some((start, end)) => known.iter().any(|found| {
            let middle = found.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            middle.is_some_and(|middle| !middle.is_empty() && !middle.contains('/'))
        }),
        None => known.contains(path) || path.starts_with("tests/fixtures/"),
    }
}

/// Code spans of one line.
fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// `crates/core`, `xtask/src/main.rs`; neither an address, an option, a route nor a pattern with a hole.
fn is_path(span: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '*');
    let starts_well = span.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.');
    span.contains('/') && starts_well && span.chars().all(is_plain) && !span.starts_with("application/")
}

/// Targets of Markdown links that stay in the checkout.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let rest = line.get(at + 2..).unwrap_or_default();
        let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
        if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
            found.push(target);
        }
    }
    found
}

fn resolve(document: &str, link: &str) -> String {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn paths_of_the_architecture_page_must_exist() {
        let page = "The `crates/core` and `crates/store-*` crates, `crates/gone/x.rs`, `GET /v1/x`, `a/<b>`, `tests/fixtures/wire`, `crates/none-*`.\n";
        let files = [
            file(ARCHITECTURE, page),
            file("crates/core/src/lib.rs", ""),
            file("crates/store-redb/Cargo.toml", ""),
        ];
        assert_eq!(
            shown(&check(&files)),
            [
                "error: ARCHITECTURE.md:1: crates/gone/x.rs does not exist",
                "error: ARCHITECTURE.md:1: crates/none-* does not exist"
            ]
        );
    }

    #[test]
    fn relative_links_of_every_page_must_exist() {
        let page = "[a](../adr/one.md#top) [b](writers.md) [c](https://x.y/z) [d](#here) [e](../../README.md \"t\")\n";
        let files = [
            file("docs/guide/operating.md", page),
            file("docs/adr/one.md", ""),
            file("README.md", "`no/such/path`\n"),
        ];
        assert_eq!(
            shown(&check(&files)),
            ["error: docs/guide/operating.md:1: docs/guide/writers.md does not exist"]
        );
    }
}
