//! Metrics in Prometheus' text form. No label grows with tables, users or paths.

use std::sync::OnceLock;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::api::state::App;

/// Bounds of the buckets of what takes milliseconds to minutes, in seconds.
const SHORT_BOUNDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];
/// Bounds of the buckets of what takes seconds to a day, in seconds.
const LONG_BOUNDS: [f64; 14] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];
/// Bounds of the buckets of counts.
const COUNT_BOUNDS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];
/// Pace at which histograms are put in order, as the exporter's own listener would.
pub const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// Media type of the text form.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder of this process, once; a second call returns the same.
///
/// # Errors
/// When another recorder is installed.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let long = ["run", "schedule", "plan", "queue_wait"];
    let mut builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SHORT_BOUNDS)?
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &COUNT_BOUNDS)?;
    for part in long {
        builder = builder.set_buckets_for_metric(Matcher::Suffix(format!("{part}_seconds")), &LONG_BOUNDS)?;
    }
    match builder.install_recorder() {
        Ok(handle) => {
            describe();
            Ok(HANDLE.get_or_init(|| handle).clone())
        }
        // Two servers of one process (tests) may come here together: the other one won.
        Err(error) => HANDLE.get().cloned().ok_or(error),
    }
}

fn describe() {
    metrics::describe_counter!("tms_http_requests_total", "Requests, by route, method and status.");
    metrics::describe_histogram!(
        "tms_http_request_seconds",
        metrics::Unit::Seconds,
        "Time to answer a request."
    );
    metrics::describe_counter!(
        "tms_handover_requests_total",
        "Hand-overs of writers, by protocol and status."
    );
    metrics::describe_histogram!("tms_handover_seconds", metrics::Unit::Seconds, "Time to answer a writer.");
    metrics::describe_gauge!("tms_http_connections", "Open connections.");
}

/// Counts and times every request. The path and its query are not looked at, only the route.
pub async fn request_layer(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", |m| m.as_str()).to_owned();
    let method = request.method().as_str().to_owned();
    let started = app.clock.monotonic();
    let response = next.run(request).await;
    let took = app.clock.monotonic().saturating_sub(started);
    let status = response.status().as_u16();
    metrics::histogram!("tms_http_request_seconds", "route" => route.clone()).record(took.as_secs_f64());
    metrics::counter!(
        "tms_http_requests_total", "route" => route.clone(), "method" => known_method(&method), "status" => status.to_string()
    )
    .increment(1);
    tracing::debug!(
        route,
        method,
        status,
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "Answered."
    );
    response
}

/// A caller can make up methods; labels must not grow with them.
fn known_method(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Shows all metrics.
pub async fn show(State(app): State<App>) -> Response {
    ([(CONTENT_TYPE, TEXT)], app.metrics.render()).into_response()
}
