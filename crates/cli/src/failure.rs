//! How a command can fail, and its exit code.

use std::fmt;

use tms_client::{Error, types};

/// What a server says of a path that it does not serve.
const NO_ROUTE: &str = "there is no such route";

/// How a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused, or ended other than succeeded: 1.
    Refused { text: String, hint: Option<String> },
    /// The server has no room or cannot work at the moment: 1; a wait forgives it.
    Busy { text: String, hint: Option<String> },
    /// A wrong command line, found before anything was sent: 2.
    Usage(String),
    /// What was named does not exist: 3.
    NotFound { text: String, hint: Option<String> },
    /// The server was not reached: 4.
    Unreached(String),
    /// Not allowed: 5.
    NotAllowed { text: String, hint: Option<String> },
    /// The wait took longer than its limit: 124.
    WaitLimit(String),
    /// Nobody reads the output any more, as with `| head`.
    Closed,
}

impl Failure {
    /// Makes a refusal.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused { text: text.into(), hint: None }
    }

    /// Adds the server's address where it is what may be wrong.
    pub(crate) fn at(self, url: &str) -> Self {
        match self {
            Self::NotFound { text, hint: None } if text == NO_ROUTE => Self::NotFound {
                text: format!("{NO_ROUTE} at {url}"),
                hint: Some("give the server's address without a path (--server, TMS_URL)".to_owned()),
            },
            other => other,
        }
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Busy { .. } => 1,
            Self::Usage(_) => 2,
            Self::NotFound { .. } => 3,
            Self::Unreached(_) => 4,
            Self::NotAllowed { .. } => 5,
            Self::WaitLimit(_) => 124,
            Self::Closed => 0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, hint) = match self {
            Self::Refused { text, hint }
            | Self::Busy { text, hint }
            | Self::NotFound { text, hint }
            | Self::NotAllowed { text, hint } => (text.as_str(), hint.as_deref()),
            Self::Usage(text) | Self::Unreached(text) | Self::WaitLimit(text) => (text.as_str(), None),
            Self::Closed => ("the output was closed", None),
        };
        f.write_str(&crate::show::plain(text))?;
        match hint {
            Some(hint) => write!(f, "\n  {}", crate::show::plain(hint)),
            None => Ok(()),
        }
    }
}

impl From<Error<types::Problem>> for Failure {
    fn from(error: Error<types::Problem>) -> Self {
        match error {
            Error::ErrorResponse(answer) => {
                let status = answer.status().as_u16();
                let problem = answer.into_inner();
                let text = match &problem.id {
                    Some(id) => format!("{} (the server's log says why, under the id {id})", problem.detail),
                    None => problem.detail,
                };
                let hint = problem.hint;
                match status {
                    404 => Self::NotFound { text, hint },
                    401 | 403 => Self::NotAllowed { text, hint },
                    503 => Self::Busy { text, hint },
                    _ => Self::Refused { text, hint },
                }
            }
            Error::InvalidRequest(text) => Self::Usage(text),
            Error::CommunicationError(e) => Self::Unreached(unreached(&e)),
            Error::UnexpectedResponse(answer) => {
                Self::Unreached(format!("what answers there is no TMS server (status {})", answer.status()))
            }
            other => Self::Unreached(format!("what answers there is no TMS server of this version: {other}")),
        }
    }
}

fn unreached(error: &tms_client::HttpError) -> String {
    let what = if error.is_timeout() { "gave no answer in time" } else { "cannot be reached" };
    let at = error.url().map(|u| u.origin().ascii_serialization()).unwrap_or_default();
    let is_tls = error.url().is_some_and(|u| u.scheme() == "https");
    let tried = if is_tls && error.is_connect() {
        " by TLS (tms-server itself speaks plain HTTP: try http://)"
    } else {
        ""
    };
    format!("the server at {at} {what}{tried}; is tms-server running there? (--server, TMS_URL)")
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::refused(format!("cannot write the output: {error}")),
        }
    }
}
