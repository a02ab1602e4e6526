//! The routes of writers, at the root because Hudi's client drops any other path. A writer waits for the answer, some
//! with the table lock in hand: 200 with a body as soon as the hand-over is durable, whatever engines and storage do.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::StreamExt;
use serde::Serialize;
use tms_core::manager::request::{Announcement, HandOverAnswer};
use tms_core::model::action::Action;
use tms_core::model::request::Trigger;
use tokio::time::{Instant, timeout_at};

use crate::api::error::{ApiError, Problem};
use crate::api::state::App;
use crate::callback::{CallbackFields, CallbackScanner};
use crate::query::Parameters;
use crate::redact;

/// Longest callback that is read, in bytes. About 0.9 KB stand for each file that a commit touched (measured on 0.15.0
/// to 1.2.0), so this is a commit of some 70,000 files. Nothing of it is kept.
pub const CALLBACK_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time that a callback's body may take; the writer itself gives up after 30 s.
pub const CALLBACK_TIME_MAX: Duration = Duration::from_secs(60);
/// Most warnings of one answer.
const WARNINGS_MAX: usize = 16;

/// Returns the routes of writers.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/v1/hoodie/callback", post(callback))
        .route("/v1/hoodie/service/{service}", get(service))
}

/// What a writer is answered. Hudi throws it away; it is for people who try it by hand.
#[derive(Debug, Serialize)]
struct Answer {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

async fn callback(State(app): State<App>, request: Request) -> Response {
    let started = app.clock.monotonic();
    let answer = take_callback(&app, request).await;
    done(&app, "callback", started, answer)
}

async fn take_callback(app: &App, request: Request) -> Result<Answer, ApiError> {
    app.guard.check_writer(request.headers(), None)?;
    let fields = read_callback(request.into_body()).await?;
    let Some(base_path) = fields.base_path else {
        return Err(Problem::new(400, "invalid", "the callback names no basePath").into());
    };
    tracing::debug!(commit = fields.commit_time.as_deref(), "A writer committed.");
    let announcement = Announcement {
        base_path,
        database: None,
        table_name: fields.table_name,
        hints: Vec::new(),
        queue: None,
        execution_engine: None,
        trigger: Trigger::Callback,
        waits: true,
    };
    hand_over(app, announcement, Vec::new()).await
}

/// Reads the body to its end, so that the writer is not cut off while it sends, but keeps three fields only.
async fn read_callback(body: Body) -> Result<CallbackFields, ApiError> {
    let mut scanner = CallbackScanner::default();
    let mut n_bytes = 0usize;
    let mut pieces = body.into_data_stream();
    let deadline = Instant::now() + CALLBACK_TIME_MAX;
    let mut is_whole = false;
    while n_bytes <= CALLBACK_BYTES_MAX {
        match timeout_at(deadline, pieces.next()).await {
            Ok(Some(Ok(piece))) => {
                n_bytes = n_bytes.saturating_add(piece.len());
                if !scanner.is_done() {
                    scanner.feed(&piece);
                }
            }
            Ok(None) => {
                is_whole = true;
                break;
            }
            // The writer went away or stalled: what came may still name the table.
            Ok(Some(Err(_))) | Err(_) => break,
        }
    }
    match scanner.finish() {
        Some(fields) if fields.base_path.is_some() => Ok(fields),
        _ if n_bytes > CALLBACK_BYTES_MAX => {
            let detail = format!(
                "the callback is longer than {CALLBACK_BYTES_MAX} bytes and names no basePath before that"
            );
            Err(Problem::new(413, "too_large", detail).into())
        }
        _ if !is_whole => Err(Problem::new(408, "timeout", "the callback did not come to its end").into()),
        Some(fields) => Ok(fields),
        None => Err(Problem::new(400, "invalid", "the body of the callback is no JSON object").into()),
    }
}

async fn service(
    State(app): State<App>,
    Path(service): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let started = app.clock.monotonic();
    let action = match service.as_str() {
        "compact" => Action::Compaction,
        "cluster" => Action::Clustering,
        "clean" => Action::Clean,
        _ => {
            let hint = "use compact, cluster or clean";
            return Problem::new(404, "not_found", "there is no such service").hint(hint).response();
        }
    };
    let answer = take_service(&app, action, &headers, uri.query().unwrap_or_default()).await;
    done(&app, "client", started, answer)
}

async fn take_service(
    app: &App,
    action: Action,
    headers: &HeaderMap,
    query: &str,
) -> Result<Answer, ApiError> {
    let parameters = Parameters::read(query).map_err(|odd| {
        Problem::new(400, "invalid", format!("the parameter {:?} is not UTF-8", redact::text(&odd.0)))
    })?;
    app.guard.check_writer(headers, parameters.get("token"))?;
    let Some(base_path) = parameters.get("basepath") else {
        return Err(Problem::new(400, "invalid", "the request names no basepath").into());
    };
    let mut warnings = Vec::new();
    let asked = parameters.get("action").unwrap_or("REQUEST");
    let is_request = asked.eq_ignore_ascii_case("REQUEST");
    if !is_request {
        // CANCEL and REGISTER are names in Hudi's client that no release sends.
        warnings.push("only action=REQUEST is carried out: the table is looked at, nothing else".to_owned());
    }
    if let Some(problem) = parameters.get("resource").and_then(odd_resource) {
        warnings.push(problem);
    }
    let instants = parameters.get("instant").unwrap_or_default().split(',').map(str::trim);
    let hints = if is_request {
        instants.filter(|i| !i.is_empty()).map(|i| (action, i.to_owned())).collect()
    } else {
        Vec::new()
    };
    let text = |name: &str| parameters.get(name).map(str::to_owned);
    let announcement = Announcement {
        base_path: base_path.to_owned(),
        database: text("db_name"),
        table_name: text("table_name"),
        hints,
        queue: text("queue"),
        execution_engine: text("execution_engine"),
        trigger: Trigger::Client,
        waits: true,
    };
    hand_over(app, announcement, warnings).await
}

/// Says what is odd in `engine:driver,executor`, `driver:executor` or one memory size; jobs run with the engine's own.
fn odd_resource(resource: &str) -> Option<String> {
    let is_size = |text: &str| {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && text.len() - digits.len() <= 2
    };
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let is_good = match resource.split_once(':') {
        None => is_size(resource),
        Some((first, second)) => match second.split_once(',') {
            Some((driver, executor)) => is_name(first) && is_size(driver) && is_size(executor),
            None => (is_size(first) || is_name(first)) && is_size(second),
        },
    };
    (!is_good).then(|| "the resource cannot be read: the engine's own sizes are used".to_owned())
}

async fn hand_over(
    app: &App,
    announcement: Announcement,
    mut warnings: Vec<String>,
) -> Result<Answer, ApiError> {
    let table = match app.managers.requests.hand_over(announcement).await? {
        HandOverAnswer::Stored { table, warnings: more, .. } => {
            warnings.extend(more);
            Some(table.to_string())
        }
        HandOverAnswer::OutsideRoots => {
            warnings.push("the base path lies outside storage.roots: nothing was stored".to_owned());
            None
        }
    };
    warnings.truncate(WARNINGS_MAX);
    Ok(Answer { status: "ok", table, warnings })
}

fn done(app: &App, protocol: &'static str, started: Duration, answer: Result<Answer, ApiError>) -> Response {
    let seconds = app.clock.monotonic().saturating_sub(started).as_secs_f64();
    let response = match answer {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => error.into_response(),
    };
    let status = response.status().as_u16().to_string();
    metrics::counter!("tms_handover_requests_total", "protocol" => protocol, "status" => status).increment(1);
    metrics::histogram!("tms_handover_seconds", "protocol" => protocol).record(seconds);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_form_of_a_resource_is_read() {
        for text in ["spark:4g,4g", "4g:4g", "4g", "flink:1024m,2048m", "spark:4g", "512"] {
            assert_eq!(odd_resource(text), None, "{text}");
        }
        for text in ["", "lots", "spark:", "spark:4g,", "spark:4g,4g,4g", ":", "4g;rm -rf"] {
            assert!(odd_resource(text).is_some(), "{text}");
        }
    }
}
