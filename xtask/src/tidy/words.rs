//! Words that may not stand in sources, and `cfg(feature)` outside its one file.

use crate::repo::SourceFile;
use crate::tidy::Finding;
use crate::tidy::source::{balanced, code_only};

/// The only file that knows features of backends.
const ASSEMBLY: &str = "crates/server/src/assembly.rs";
/// The only other one that knows a feature: that of the tests' fail points.
const FAIL_POINTS: &str = "crates/core/src/fail_point.rs";

/// Code that may not stand anywhere, with the reason.
const CODE: [(&str, &str); 4] = [
    ("#[should_panic", "assert on the error instead"),
    ("#[ignore", "skip loudly at run time instead"),
    ("todo!(", "leave out what is not there"),
    ("unimplemented!(", "leave out what is not there"),
];

/// Checks one source file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let is_source =
        file.is_rust() || ["java", "py", "toml", "sh"].iter().any(|kind| file.has_extension(kind));
    if !is_source {
        return Vec::new();
    }
    let mut findings = notes(file);
    if file.is_rust() {
        findings.extend(rust(file));
    }
    findings
}

/// Reminders to self. Spelled in two parts, so that this file does not find itself.
fn notes(file: &SourceFile) -> Vec<Finding> {
    let words = [concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
    let lines = file.text.lines().enumerate();
    let mut findings: Vec<Finding> = lines
        .clone()
        .flat_map(|(at, line)| {
            words.iter().filter(move |word| has_word(line, word)).map(move |word| (at, word))
        })
        .map(|(at, word)| Finding::error(&file.path, at + 1, format!("{word}: mend it, or file an issue")))
        .collect();
    let todo = concat!("TO", "DO");
    findings.extend(
        lines
            .filter(|(_, line)| has_word(line, todo) && !line.contains('#'))
            .map(|(at, _)| Finding::error(&file.path, at + 1, format!("{todo} without an issue number"))),
    );
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) =
            (line.get(..at).unwrap_or_default(), line.get(at + word.len()..).unwrap_or_default());
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

fn rust(file: &SourceFile) -> Vec<Finding> {
    let code = code_only(&file.text);
    let mut findings = Vec::new();
    for (words, reason) in CODE {
        findings.extend(code.match_indices(words).map(|(at, _)| {
            Finding::error(&file.path, line_of(&code, at), format!("{words} … is not allowed: {reason}"))
        }));
    }
    if ![ASSEMBLY, FAIL_POINTS].contains(&file.path.as_str()) {
        let sites = feature_sites(&code).into_iter();
        let text = format!("cfg(feature …) may stand only in {ASSEMBLY}");
        findings.extend(sites.map(|at| Finding::error(&file.path, line_of(&code, at), text.clone())));
    }
    findings
}

/// Where a `cfg(…)`, `cfg!(…)` or `cfg_attr(…)` asks for a feature.
fn feature_sites(code: &str) -> Vec<usize> {
    let openers = ["cfg(", "cfg!(", "cfg_attr("];
    let mut sites = Vec::new();
    for opener in openers {
        for (at, _) in code.match_indices(opener) {
            let before = code.get(..at).unwrap_or_default();
            let from = code.get(at + opener.len() - 1..).unwrap_or_default();
            let inside = balanced(from).and_then(|length| from.get(..length)).unwrap_or_default();
            let is_whole_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if is_whole_word && has_word(inside, "feature") {
                sites.push(at);
            }
        }
    }
    sites
}

fn line_of(code: &str, at: usize) -> usize {
    code.get(..at).unwrap_or_default().matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn features_are_known_in_one_file_only() {
        for code in [
            "#[cfg(feature = \"a\")]\nfn x() {}",
            "if cfg!(all(unix, feature = \"a\")) {}",
            "#[cfg_attr(feature = \"a\", b)]",
        ] {
            assert_eq!(check(&file("crates/core/src/a.rs", code)).len(), 1, "{code}");
            assert!(check(&file(ASSEMBLY, code)).is_empty());
        }
        assert!(
            check(&file("a.rs", "#[cfg(test)]\nmod t {}\n// cfg(feature = \"a\")\nlet s = \"cfg(feature\";"))
                .is_empty()
        );
    }

    #[test]
    fn unfinished_code_is_found_but_not_in_strings() {
        let code =
            ["fn a() { to", "do!() }\n#[should", "_panic]\nfn b() {}\n#[ign", "ore]\nlet c = \"todo!(\";\n"]
                .concat();
        let found = shown(&check(&file("a.rs", &code)));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|line| line.contains("a.rs:2:")), "{found:?}");
    }

    #[test]
    fn notes_to_self_are_found_in_any_source() {
        for path in ["a.rs", "A.java", "a.py", "Cargo.toml"] {
            let text =
                ["// FIX", "ME later\n// TO", "DO soon\n// TO", "DO #12: later\n// FIX", "MEd\n"].concat();
            assert_eq!(check(&file(path, &text)).len(), 2, "{path}");
        }
        assert!(check(&file("a.md", concat!("FIX", "ME"))).is_empty());
    }
}
