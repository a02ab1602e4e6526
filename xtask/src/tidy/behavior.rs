//! Each `# Behavior` bullet of a trait has its conformance case with the same words.
//!
//! A bullet stands in the doc comment of a trait's method. A case is a function of `crates/conformance` whose
//! doc comment is the bullet's text or lists it, or a `case!("bullet text")`. `crates/hudi` knows no suite:
//! there a test of its own does as well.

use std::collections::BTreeSet;

use crate::repo::SourceFile;
use crate::tidy::Finding;
use crate::tidy::source::{docs, normal};

const TRAITS: [&str; 2] = ["crates/core/src/", "crates/hudi/src/"];
const SUITES: &str = "crates/conformance/";
const HUDI: &str = "crates/hudi/";
const HEADING: &str = "# Behavior";

/// One promise of a trait.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bullet {
    line: usize,
    text: String,
}

/// Finds bullets without a case.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rust: Vec<&SourceFile> = files.iter().filter(|file| file.is_rust()).collect();
    let words = |folder: &str, is_test: bool| -> BTreeSet<String> {
        rust.iter()
            .filter(|file| file.path.starts_with(folder))
            .flat_map(|file| cases(&file.text, is_test))
            .collect()
    };
    let (suites, hudi) = (words(SUITES, false), words(HUDI, true));
    let mut findings = Vec::new();
    for file in rust.iter().filter(|file| TRAITS.iter().any(|folder| file.path.starts_with(folder))) {
        let has_own = file.path.starts_with(HUDI);
        let is_open = |bullet: &Bullet| !(has_case(bullet, &suites) || (has_own && has_case(bullet, &hudi)));
        let open = bullets(&file.text).into_iter().filter(is_open);
        findings.extend(open.map(|bullet| {
            Finding::error(&file.path, bullet.line, format!("no conformance case says: {}", bullet.text))
        }));
    }
    findings
}

fn has_case(bullet: &Bullet, cases: &BTreeSet<String>) -> bool {
    cases.contains(&comparable(&bullet.text))
}

/// Case, spacing and a closing full stop do not make other words.
fn comparable(text: &str) -> String {
    let text = normal(text);
    text.strip_suffix('.').unwrap_or(&text).to_lowercase()
}

fn bullets(source: &str) -> Vec<Bullet> {
    let mut found = Vec::new();
    for doc in docs(source) {
        let Some(heading) = doc.lines.iter().position(|line| line.trim() == HEADING) else { continue };
        for (at, line) in doc.lines.iter().enumerate().skip(heading + 1) {
            if let Some(text) = line.strip_prefix("- ") {
                found.push(Bullet { line: doc.line + at, text: normal(text) });
            } else if line.starts_with(' ') && !line.trim().is_empty() {
                if let Some(last) = found.last_mut() {
                    last.text = format!("{} {}", last.text, normal(line));
                }
            } else if !line.trim().is_empty() {
                break;
            }
        }
    }
    found
}

/// Everything that a file offers as the words of a case; with `is_test` only what documents a test.
fn cases(source: &str, is_test: bool) -> Vec<String> {
    let mut words = Vec::new();
    for doc in docs(source) {
        let has_test = doc.attributes.iter().any(|attribute| attribute.contains("test"));
        if !doc.item.split(' ').any(|word| word == "fn") || (is_test && !has_test) {
            continue;
        }
        words.push(comparable(&doc.lines.join(" ")));
        // A case that proves several bullets lists them.
        let mut bullets: Vec<String> = Vec::new();
        for line in &doc.lines {
            match (line.strip_prefix("- "), bullets.last_mut()) {
                (Some(text), _) => bullets.push(text.to_owned()),
                (None, Some(last)) if line.starts_with(' ') => *last = format!("{last} {line}"),
                _ => {}
            }
        }
        words.extend(bullets.iter().map(|text| comparable(text)));
    }
    let macros = source.split("case!(").skip(1).filter_map(|rest| literal(rest.trim_start()));
    words.extend(macros.map(|text| comparable(&text)));
    words
}

/// The content of the string literal at the start, with a backslash at the end of a line joining lines.
fn literal(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.strip_prefix('"')?.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                '\n' => out.push(' '),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    const TRAIT: &str = "pub trait S {\n    /// Moves.\n    ///\n    /// # Behavior\n    /// - the move is refused when\n    ///   the version differs\n    /// - an ended one leaves the index\n    ///\n    /// # Errors\n    /// - not a bullet\n    async fn transition(&self);\n}\n";

    #[test]
    fn bullet_without_a_case_is_named_with_its_line() {
        let cases = "/// The move is refused when the version\n/// differs.\npub async fn one() {}\n";
        let files = [file("crates/core/src/store.rs", TRAIT), file("crates/conformance/src/store.rs", cases)];
        assert_eq!(
            shown(&check(&files)),
            ["error: crates/core/src/store.rs:7: no conformance case says: an ended one leaves the index"]
        );
    }

    #[test]
    fn case_may_list_its_bullets_or_name_them_in_a_macro() {
        let list = "/// Two at once.\n/// - the move is refused\n///   when the version differs\nasync fn one() {}\n";
        let called = "case!(\n    \"an ended one leaves \\\n     the index\",\n);\n";
        let files = [
            file("crates/core/src/store.rs", TRAIT),
            file("crates/conformance/src/a.rs", list),
            file("crates/conformance/src/b.rs", called),
        ];
        assert_eq!(shown(&check(&files)), Vec::<String>::new());
    }

    #[test]
    fn doc_of_a_struct_is_no_case() {
        let words = "/// the move is refused when the version differs\nstruct X;\n/// an ended one leaves the index\nfn y() {}\n";
        let core = [file("crates/core/src/store.rs", TRAIT), file("crates/conformance/src/a.rs", words)];
        assert_eq!(check(&core).len(), 1);
    }

    #[test]
    fn hudi_may_test_itself_but_a_trait_does_not_prove_itself() {
        let test = "/// an ended one leaves the index\n#[tokio::test]\nasync fn y() {}\n";
        let no_test = "/// the move is refused when the version differs\nfn y() {}\n";
        let files = [
            file("crates/hudi/src/store.rs", TRAIT),
            file("crates/hudi/src/store/tests.rs", test),
            file("crates/hudi/src/other.rs", no_test),
        ];
        assert_eq!(check(&files).len(), 1);
        let core = [file("crates/core/src/store.rs", TRAIT), file("crates/core/src/store/tests.rs", test)];
        assert_eq!(check(&core).len(), 2);
    }
}
