//! Each case stands in the list of its macro, so that no backend can leave one out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the names of the cases that a file holds.
fn cases_in(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("pub async fn "))
        .filter(|rest| rest.contains("(h: &impl "))
        .filter_map(|rest| rest.split('(').next())
        .collect()
}

/// Returns the names that a macro's list holds.
fn listed_in(text: &str) -> BTreeSet<&str> {
    let list = text.split("_cases! {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    list.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.contains('_')).collect()
}

#[test]
fn every_case_is_listed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let read = |name: &str| std::fs::read_to_string(source.join(name)).unwrap();
    let suite = read("store.rs");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(source.join("store")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        found.extend(cases_in(&text).into_iter().map(str::to_owned));
    }
    let listed: BTreeSet<String> = listed_in(&suite).into_iter().map(str::to_owned).collect();
    assert!(found.len() > 60, "{found:?}");
    assert_eq!(found, listed);
    for name in ["election.rs", "kv.rs"] {
        let text = read(name);
        assert_eq!(cases_in(&text), listed_in(&text), "{name}");
    }
}
