//! Lengths of files, functions and lines, and the `//!` on top of each file.

use crate::repo::SourceFile;
use crate::tidy::Finding;
use crate::tidy::source::{code_only, functions};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARS_MAX: usize = 110;

/// Checks one source file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() && !file.has_extension("java") && !file.has_extension("py") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let n_lines = file.text.lines().count();
    if n_lines > FILE_LINES_MAX {
        let text = format!("{n_lines} lines; split it, {FILE_LINES_MAX} are allowed");
        findings.push(Finding::error(&file.path, 0, text));
    }
    let long = file.text.lines().enumerate().filter(|(_, line)| line.chars().count() > LINE_CHARS_MAX);
    findings.extend(long.map(|(at, line)| {
        let text = format!("{} characters; keep to {LINE_CHARS_MAX}", line.chars().count());
        Finding::warning(&file.path, at + 1, text)
    }));
    if file.is_rust() {
        findings.extend(rust(file));
    }
    findings
}

fn rust(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings.push(Finding::error(
            &file.path,
            1,
            "no `//!` on top that says what the file is and must not do",
        ));
    }
    let long =
        functions(&code_only(&file.text)).into_iter().filter(|found| found.n_lines > FUNCTION_LINES_MAX);
    findings.extend(long.map(|found| {
        let text =
            format!("fn {} has {} lines; keep to about {FUNCTION_LINES_MAX}", found.name, found.n_lines);
        Finding::warning(&file.path, found.line, text)
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn long_file_is_an_error_in_rust_and_java() {
        let text = format!("//! Top.\n{}", "\n".repeat(FILE_LINES_MAX));
        for path in ["a.rs", "A.java"] {
            assert_eq!(
                shown(&check(&file(path, &text))),
                [format!("error: {path}: 601 lines; split it, 600 are allowed")]
            );
        }
        assert!(check(&file("a.md", &text)).is_empty());
    }

    #[test]
    fn long_functions_and_lines_are_warnings() {
        let text = format!("//! Top.\nfn a() {{\n{}}}\n// {}\n", "    x();\n".repeat(70), "é".repeat(108));
        let found = shown(&check(&file("a.rs", &text)));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|line| line.starts_with("warning: ")), "{found:?}");
    }

    #[test]
    fn file_without_a_top_comment_is_an_error() {
        assert_eq!(check(&file("a.rs", "fn a() {}\n")).len(), 1);
        assert!(check(&file("a.rs", "#![allow(x)]\n//! Top.\n")).is_empty());
    }
}
