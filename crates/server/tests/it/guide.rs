//! The operating guide explains every word that an operator can meet.

use std::path::Path;

/// Files whose functions give words to states, reasons and alarms.
const SOURCES: [&str; 3] =
    ["core/src/model/instance.rs", "core/src/alert.rs", "core/src/service/monitor/conclude.rs"];

#[test]
fn every_state_reason_and_alarm_stands_in_the_operating_guide() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let guide = std::fs::read_to_string(crates.parent().unwrap().join("docs/guide/operating.md")).unwrap();
    let mut n_words = 0;
    let mut missing = Vec::new();
    for source in SOURCES {
        let text = std::fs::read_to_string(crates.join(source)).unwrap();
        for line in text.lines() {
            let Some((_, word)) = line.split_once(" => \"") else { continue };
            let Some(word) = word.strip_suffix("\",") else { continue };
            if !word.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                continue;
            }
            n_words += 1;
            if !guide.contains(&format!("`{word}`")) {
                missing.push(format!("{word} ({source})"));
            }
        }
    }
    assert!(n_words > 35, "the words were not found: {n_words}");
    assert!(missing.is_empty(), "{missing:?}");
}
