//! The routes of writers, at the root because Hudi's client drops any other path. A writer waits for the answer, some
//! with the table lock in hand: 200 with a body as soon as the hand-over is durable, whatever engines and storage do.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
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
use crate::api::one_slash;
use crate::api::state::App;
use crate::callback::{CallbackFields, CallbackScanner};
use crate::metrics::word_of;
use crate::query::Parameters;
use crate::redact;

/// Longest part of a callback in which its fields are looked for, in bytes. About 0.9 KB stand for each file that a
/// commit touched (measured on 0.15.0 to 1.2.0), so this is a commit of some 70,000 files. Nothing of it is kept.
pub const CALLBACK_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest callback that is taken to its end, in bytes. A writer that is answered while it sends may see a broken
/// connection instead of the answer, so what comes after [`CALLBACK_BYTES_MAX`] is thrown away unread.
pub const CALLBACK_DISCARD_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Longest time that a callback's body may take; the writer itself gives up after 30 s.
pub const CALLBACK_TIME_MAX: Duration = Duration::from_secs(60);
/// Label of the commit callback.
const CALLBACK: &str = "callback";
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
    done(&app, CALLBACK, started, answer)
}

async fn take_callback(app: &App, request: Request) -> Result<Answer, ApiError> {
    app.guard.check_writer(request.headers(), None)?;
    let fields = read_callback(request.into_body(), CALLBACK_BYTES_MAX, CALLBACK_DISCARD_BYTES_MAX).await?;
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
async fn read_callback(body: Body, bytes_max: usize, discard_max: usize) -> Result<CallbackFields, ApiError> {
    let mut scanner = CallbackScanner::default();
    let mut n_bytes = 0usize;
    let mut pieces = body.into_data_stream();
    let deadline = Instant::now() + CALLBACK_TIME_MAX;
    let mut is_whole = false;
    while n_bytes <= discard_max {
        match timeout_at(deadline, pieces.next()).await {
            Ok(Some(Ok(piece))) => {
                let n_scanned = bytes_max.saturating_sub(n_bytes).min(piece.len());
                n_bytes = n_bytes.saturating_add(piece.len());
                if !scanner.is_done() {
                    scanner.feed(&piece[..n_scanned]);
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
        _ if n_bytes > bytes_max => {
            let detail =
                format!("the callback is longer than {bytes_max} bytes and names no basePath before that");
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
    let base_path = one_slash(&announcement.base_path).into_owned();
    let announcement = Announcement { base_path, ..announcement };
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
    if response.status() == StatusCode::UNAUTHORIZED && app.refused.may_tell(app.clock.monotonic()) {
        tracing::warn!(
            protocol,
            "Refused a writer: its key is missing or wrong. Its table stays unknown, or is only found by its heartbeat. \
             More of these are not logged for a minute; tms_handover_requests_total counts them."
        );
    }
    count(app, protocol, response.status(), seconds);
    response
}

/// Counts an answer. What nearly all writers get is kept: to look a metric up by its labels costs as much as its work.
fn count(app: &App, protocol: &'static str, status: StatusCode, seconds: f64) {
    let make = |status| {
        let counter =
            metrics::counter!("tms_handover_requests_total", "protocol" => protocol, "status" => status);
        (counter, metrics::histogram!("tms_handover_seconds", "protocol" => protocol))
    };
    let made;
    let (counter, histogram) = if protocol == CALLBACK && status == StatusCode::OK {
        app.callback_taken.get_or_init(|| make(word_of(status)))
    } else {
        made = make(word_of(status));
        &made
    };
    counter.increment(1);
    histogram.record(seconds);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A body of these pieces, whole or ending with a connection that breaks.
    fn body(pieces: &[&str], breaks: bool) -> Body {
        let cut = breaks.then(|| Err(std::io::Error::other("cut")));
        let pieces: Vec<_> = pieces.iter().map(|p| Ok((*p).to_owned())).chain(cut).collect();
        Body::from_stream(futures::stream::iter(pieces))
    }

    const DISCARD_MAX: usize = 10_000;

    async fn read(body: Body, bytes_max: usize) -> Result<Option<String>, u16> {
        match read_callback(body, bytes_max, DISCARD_MAX).await {
            Ok(fields) => Ok(fields.base_path),
            Err(error) => Err(error.into_response().status().as_u16()),
        }
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_too_large_unless_the_table_was_named_before() {
        let statistics = "[1234567890],";
        let named = "\"basePath\":\"/d\"";
        let last = ["{\"hoodieWriteStat\":", statistics, named, "}"];
        let length = last.iter().map(|p| p.len()).sum();
        assert_eq!(read(body(&last, false), length).await, Ok(Some("/d".to_owned())), "at the limit");
        assert_eq!(read(body(&last, false), 20).await, Err(413));
        let first = ["{", named, ",\"hoodieWriteStat\":", statistics, "\"x\":1}"];
        assert_eq!(read(body(&first, false), 20).await, Ok(Some("/d".to_owned())));
    }

    #[tokio::test]
    async fn what_follows_the_limit_is_taken_unread_up_to_a_limit_of_its_own() {
        for (length, is_whole) in [(DISCARD_MAX - 100, true), (DISCARD_MAX * 10, false)] {
            let n_taken = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&n_taken);
            let pieces = std::iter::once("{\"basePath\":\"/d\",\"x\":\"".to_owned())
                .chain(std::iter::repeat_n("x".repeat(100), length / 100))
                .inspect(move |piece| {
                    counted.fetch_add(piece.len(), Ordering::Relaxed);
                });
            let body = Body::from_stream(futures::stream::iter(pieces.map(Ok::<_, std::io::Error>)));
            assert_eq!(read(body, 50).await, Ok(Some("/d".to_owned())));
            let n_taken = n_taken.load(Ordering::Relaxed);
            assert_eq!(n_taken >= length, is_whole, "{n_taken} of {length}");
            assert!(n_taken <= DISCARD_MAX + 200, "{n_taken}");
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_counts_when_the_table_was_named_before() {
        assert_eq!(read(body(&["{\"basePath\":\"/d\","], true), 1000).await, Ok(Some("/d".to_owned())));
        assert_eq!(read(body(&["{\"tableName\":\"t\","], true), 1000).await, Err(408));
        assert_eq!(read(body(&["{\"tableName\":\"t\"}"], false), 1000).await, Ok(None));
        assert_eq!(read(body(&["[]"], false), 1000).await, Err(400));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let stalled = || {
            let head = futures::stream::iter([Ok::<_, std::io::Error>("{\"tableName\":\"t\",".to_owned())]);
            Body::from_stream(head.chain(futures::stream::pending()))
        };
        let begun = Instant::now();
        assert_eq!(read(stalled(), 1000).await, Err(408));
        let took = begun.elapsed();
        assert!(took >= CALLBACK_TIME_MAX && took < CALLBACK_TIME_MAX + Duration::from_secs(1), "{took:?}");
    }

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
