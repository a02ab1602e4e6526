//! The one error type of this crate: what happened, to which file, and what to do about it.

use std::fmt;
use std::sync::Arc;

use crate::listing::{ListingError, ListingErrorKind};

/// A plan that could not be read: the same type as every other error of this crate.
pub type PlanError = Error;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no Hudi table at this path (or a file that must be there is not).
    NotFound,
    /// The store refuses to show the file or folder.
    PermissionDenied,
    /// The store does not answer, or answers something that is not an answer.
    Unreachable,
    /// The content is broken and stayed broken when it was read again.
    Corrupt,
    /// The content is sound, but of a version or form that this reader does not know.
    Unsupported,
    /// A file, folder or plan is larger than the named limit.
    TooLarge,
    /// A writer seems to be at work on this file: empty where content is due, or gone between list and read.
    NotReadableYet,
}

impl ErrorKind {
    /// One lower-case word, for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::PermissionDenied => "permission denied",
            Self::Unreachable => "unreachable",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::TooLarge => "too large",
            Self::NotReadableYet => "not readable yet",
        }
    }
}

/// An error of the reader. [`fmt::Display`] names the file, says what happened and what to do.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    path: String,
    detail: String,
    hint: &'static str,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error; `operation` completes the sentence "cannot …", `path` is the file or folder.
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        path: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let hint = match kind {
            ErrorKind::NotFound => "check the base path; a Hudi table holds .hoodie/hoodie.properties",
            ErrorKind::PermissionDenied => "give the reading user access to this path",
            ErrorKind::Unreachable => "check that the store answers, then look again",
            ErrorKind::Corrupt => {
                "compare the file with a copy or with Hudi's own tools; roll the instant back with Hudi if it cannot be restored"
            }
            ErrorKind::Unsupported => "read this table with a Hudi release of its own version",
            ErrorKind::TooLarge => "check the file; raise the reader's limit if its size is real",
            ErrorKind::NotReadableYet => {
                "look again; if it stays so, its writer died and the instant has to be rolled back with Hudi"
            }
        };
        Self { kind, operation, path: path.into(), detail: detail.into(), hint, source: None }
    }

    /// Replaces the kind's usual advice with a better one.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Keeps the cause, for logs that print the chain.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Maps an error of a store.
    pub fn from_listing(operation: &'static str, error: ListingError) -> Self {
        let kind = match error.kind() {
            ListingErrorKind::NotFound => ErrorKind::NotFound,
            ListingErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            ListingErrorKind::TooLarge => ErrorKind::TooLarge,
            ListingErrorKind::Unsupported => ErrorKind::Unsupported,
            ListingErrorKind::Unreachable => ErrorKind::Unreachable,
        };
        let mut made = Self::new(kind, operation, error.path(), error.detail());
        if kind == ErrorKind::Unsupported {
            made.hint = "use a path of a store that this build can read";
        }
        made.with_source(error)
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file or folder it happened to.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What was found, without path and advice.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What a person can do.
    pub fn hint(&self) -> &'static str {
        self.hint
    }

    /// True when the same reading may succeed later without anybody repairing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::NotReadableYet)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot {}: {}: {}: {} ({})",
            self.operation,
            self.path,
            self.kind.as_str(),
            self.detail,
            self.hint
        )
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
