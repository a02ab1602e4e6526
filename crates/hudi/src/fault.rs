//! What a pure parser found wrong, before anybody knows in which file.

use crate::error::{Error, ErrorKind};

/// Kind and detail of a fault; [`Fault::at`] makes it an [`Error`] that names the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn corrupt(detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Corrupt, detail: detail.into() }
    }

    pub(crate) fn unsupported(detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unsupported, detail: detail.into() }
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::TooLarge, detail: detail.into() }
    }

    pub(crate) fn empty() -> Self {
        Self { kind: ErrorKind::NotReadableYet, detail: "0 bytes where content is due".to_owned() }
    }

    pub(crate) fn at(self, operation: &'static str, path: &str) -> Error {
        Error::new(self.kind, operation, path, self.detail)
    }
}
