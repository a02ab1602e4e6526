//! Errors as the API tells them: `application/problem+json` with a stable code and a hint. The only place where an error
//! kind becomes an HTTP status.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tms_core::{Error, ErrorKind};
use utoipa::{IntoResponses, ToSchema};
use uuid::Uuid;

use crate::redact;

/// Media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// Pause after which a caller may come again, in seconds.
const RETRY_AFTER_SECS: &str = "1";
/// Longest text of a refusal that is taken into a problem, in bytes.
const DETAIL_BYTES_MAX: usize = 4096;

/// An error, as RFC 9457 has it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// HTTP status, repeated for logs.
    #[schema(example = 404)]
    status: u16,
    /// Stable word for programs.
    #[schema(example = "not_found")]
    code: String,
    /// The status in words.
    title: String,
    /// What happened, to what.
    detail: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Stands in the server's log beside the cause; only for errors of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

impl Problem {
    /// Makes a problem.
    pub fn new(status: u16, code: &str, detail: impl Into<String>) -> Self {
        let title = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("Error");
        Self {
            status,
            code: code.to_owned(),
            title: title.to_owned(),
            detail: detail.into(),
            hint: None,
            id: None,
        }
    }

    /// Adds what can be done about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the stable word.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Makes the answer.
    #[must_use]
    pub fn response(&self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECS));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert("www-authenticate", HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// How every operation can fail, for the description of the API.
#[derive(IntoResponses, Debug)]
#[allow(dead_code, reason = "read by the derive only")]
pub enum ApiErrors {
    /// The request cannot be carried out
    #[response(status = "4XX", content_type = "application/problem+json")]
    Caller(Problem),
    /// The server cannot carry it out now
    #[response(status = "5XX", content_type = "application/problem+json")]
    Server(Problem),
}

/// What a handler fails with.
#[derive(Debug)]
pub struct ApiError(Problem);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.0.response()
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(problem_of(&error))
    }
}

/// Returns status and code of a kind.
fn status_of(kind: ErrorKind) -> (u16, &'static str) {
    match kind {
        ErrorKind::NotFound => (404, "not_found"),
        ErrorKind::AlreadyExists => (409, "already_exists"),
        ErrorKind::Conflict => (409, "conflict"),
        ErrorKind::Denied => (401, "denied"),
        ErrorKind::Invalid => (400, "invalid"),
        ErrorKind::Unsupported => (422, "unsupported"),
        ErrorKind::NotLeader => (503, "not_leader"),
        ErrorKind::Fenced => (503, "fenced"),
        ErrorKind::Unavailable => (503, "unavailable"),
        _ => (500, "unexpected"),
    }
}

/// Tells an error of the domain. What went wrong inside stays in the log, under an id that the caller gets.
#[must_use]
pub fn problem_of(error: &Error) -> Problem {
    let (status, code) = status_of(error.kind());
    if status < 500 {
        let problem = Problem::new(status, code, redact::text(&error.to_string()));
        return match error.hint_text() {
            Some(hint) => problem.hint(hint),
            None => problem,
        };
    }
    let id = Uuid::new_v4().simple().to_string();
    match error.kind() {
        ErrorKind::Unexpected => {
            tracing::error!(id, error = %error.chain(), "Answered with an error of the server.")
        }
        _ => tracing::warn!(id, error = %error.chain(), "Answered that the server cannot do it now."),
    }
    let mut problem = Problem::new(status, code, format!("cannot {}", error.operation()));
    problem.hint = error.hint_text().map(str::to_owned);
    problem.id = Some(id);
    problem
}

/// Gives refusals of the framework (no such route, bad JSON, a body that is too long) the form of all errors.
pub async fn as_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_problem = response.headers().get(CONTENT_TYPE).is_some_and(|t| t == PROBLEM_JSON);
    // Readiness answers 503 with a body of its own.
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/json"));
    if !is_error || is_problem || is_json {
        return response;
    }
    let code = match status.as_u16() {
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "timeout",
        413 => "too_large",
        415 => "unsupported_media_type",
        503 => "unavailable",
        500.. => "unexpected",
        _ => "invalid",
    };
    let (parts, body) = response.into_parts();
    let told = told_by(body).await.filter(|_| !status.is_server_error());
    let detail = told.unwrap_or_else(|| match status.as_u16() {
        404 => "there is no such route".to_owned(),
        405 => "the route does not know this method".to_owned(),
        _ => parts.status.canonical_reason().unwrap_or("error").to_ascii_lowercase(),
    });
    let mut answer = Problem::new(status.as_u16(), code, redact::text(&detail)).response();
    if let Some(allow) = parts.headers.get(ALLOW) {
        answer.headers_mut().insert(ALLOW, allow.clone());
    }
    answer
}

async fn told_by(body: Body) -> Option<String> {
    let bytes = axum::body::to_bytes(body, DETAIL_BYTES_MAX).await.ok()?;
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_tell_no_cause() {
        let error = Error::new(ErrorKind::Unexpected, "read a row")
            .with("file", "/secret/place")
            .caused_by("inner cause");
        let problem = problem_of(&error);
        let body = serde_json::to_string(&problem).unwrap();
        assert_eq!(problem.status, 500);
        assert!(problem.id.is_some());
        assert!(!body.contains("secret") && !body.contains("inner"), "{body}");
    }

    #[test]
    fn errors_of_the_caller_say_what_to_do() {
        let error =
            Error::new(ErrorKind::NotFound, "find the table").with("table", "file:/t").hint("list them");
        let problem = problem_of(&error);
        assert_eq!((problem.status, problem.code()), (404, "not_found"));
        assert_eq!(problem.detail, "cannot find the table: not found, table file:/t");
        assert_eq!(problem.hint.as_deref(), Some("list them"));
    }
}
