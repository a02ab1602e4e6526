//! The house rules that no compiler checks. Each check is a function from text to findings, so that it can be
//! tested with strings.

use std::fmt;

pub(crate) mod arrows;
pub(crate) mod behavior;
pub(crate) mod isolation;
pub(crate) mod limits;
pub(crate) mod manifests;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod source;
pub(crate) mod words;

/// Whether a finding fails the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Warning,
    Error,
}

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) path: String,
    /// Counted from 1; 0 means the whole file.
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn error(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.to_owned(), line, text: text.into() }
    }

    pub(crate) fn warning(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.severity == Severity::Error { "error" } else { "warning" };
        match self.line {
            0 => write!(f, "{word}: {}: {}", self.path, self.text),
            line => write!(f, "{word}: {}:{line}: {}", self.path, self.text),
        }
    }
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> crate::repo::SourceFile {
    crate::repo::SourceFile { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
pub(crate) fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
