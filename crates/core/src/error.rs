//! The one error type of the domain. It knows no HTTP code and no driver.

use std::fmt;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The thing that was named does not exist.
    NotFound,
    /// A thing with this key exists already.
    AlreadyExists,
    /// Somebody else changed it in between: read it again.
    Conflict,
    /// Only the leader can do this, and this node is not the leader.
    NotLeader,
    /// The term of the caller is over: stop.
    Fenced,
    /// The caller may not do that: its token is missing or wrong.
    Denied,
    /// The request itself is wrong; repeating it cannot help.
    Invalid,
    /// This build, table or engine cannot do that.
    Unsupported,
    /// It may work later.
    Unavailable,
    /// A defect, of ours or of a backend.
    Unexpected,
}

/// An error with its operation, what it was about, and what the user can do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    context: Vec<(&'static str, String)>,
    why: Option<&'static str>,
    hint: Option<&'static str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind` for `operation` ("cannot <operation>").
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self { kind, operation, context: Vec::new(), why: None, hint: None, source: None }
    }

    /// Adds one fact: which table, instance, key.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.context.push((key, value.to_string()));
        self
    }

    /// Says why in words of its own, in the place of those of the kind: "it runs".
    #[must_use]
    pub fn because(mut self, why: &'static str) -> Self {
        self.why = Some(why);
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns what the user can do, when known.
    #[must_use]
    pub fn hint_text(&self) -> Option<&'static str> {
        self.hint
    }

    /// Returns what was being done.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns one fact by its key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.context.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_str())
    }

    /// Tells whether the same call may succeed later without any change by the caller.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable)
    }

    /// Returns the error and its causes as one line, for logs.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(e) = cause {
            text.push_str(": ");
            text.push_str(&e.to_string());
            cause = e.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "exists already",
            ErrorKind::Conflict => "changed by somebody else",
            ErrorKind::NotLeader => "this node does not lead",
            ErrorKind::Fenced => "the term is over",
            ErrorKind::Denied => "not allowed",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unsupported => "not supported",
            ErrorKind::Unavailable => "not available now",
            ErrorKind::Unexpected => "unexpected",
        };
        write!(f, "cannot {}: {}", self.operation, self.why.unwrap_or(kind))?;
        for (key, value) in &self.context {
            write!(f, ", {key} {value}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| &**e as &(dyn std::error::Error + 'static))
    }
}
