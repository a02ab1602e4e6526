//! Metrics in Prometheus' text form. No label grows with tables, users or paths.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::SharedString;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

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

static INSTALLING: Mutex<()> = Mutex::new(());
static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder of this process, once; a second call returns the same.
///
/// # Errors
/// When another recorder is installed.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    // Two servers of one process (tests) may come here together.
    let _turn = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let handle = builder()?.install_recorder()?;
    describe();
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// Makes a recorder of its own, for a test that must not see what others of its process count.
///
/// # Errors
/// When the buckets are unusable.
pub fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let recorder = builder()?.build_recorder();
    metrics::with_local_recorder(&recorder, describe);
    Ok(recorder)
}

/// A full name wins over a suffix; among suffixes the order of the alphabet decides, not the length.
fn builder() -> Result<PrometheusBuilder, BuildError> {
    let mut builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SHORT_BOUNDS)?
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &COUNT_BOUNDS)?;
    for name in ["tms_run_seconds", "tms_scheduling_seconds", "tms_submission_seconds"] {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), &LONG_BOUNDS)?;
    }
    Ok(builder)
}

/// What a metric counts or measures, with its kind.
#[derive(Debug, Clone, Copy)]
enum Help {
    /// Only grows.
    Counter(&'static str),
    /// Goes up and down.
    Gauge(&'static str),
    /// Spread of durations.
    Seconds(&'static str),
    /// Spread of counts.
    Sizes(&'static str),
}

use Help::{Counter, Gauge, Seconds, Sizes};

/// Every metric of the server and of the domain. A test holds it complete.
const HELP: [(&str, Help); 42] = [
    ("tms_http_requests_total", Counter("Requests, by route, method and status.")),
    ("tms_http_request_seconds", Seconds("Time to answer a request, by route.")),
    ("tms_http_connections", Gauge("Open connections.")),
    ("tms_handover_requests_total", Counter("Hand-overs of writers, by protocol and status.")),
    ("tms_handover_seconds", Seconds("Time to answer a writer, by protocol.")),
    (
        "tms_requests_outside_roots_total",
        Counter("Hand-overs of tables outside storage.roots: nothing was stored."),
    ),
    ("tms_transitions_total", Counter("Changes of instances by the leader, by action and new state.")),
    ("tms_attempts_total", Counter("Attempts begun, by action and engine.")),
    ("tms_retries_total", Counter("Attempts begun after the first of their instance, by action and engine.")),
    (
        "tms_attempts_not_counted_total",
        Counter("Attempts that ended without counting against retry.max_attempts, by reason."),
    ),
    ("tms_succeeded_total", Counter("Instances that succeeded, by action and engine.")),
    ("tms_failed_total", Counter("Instances that failed, by action and engine.")),
    (
        "tms_scheduling_seconds",
        Seconds("Time from the first knowledge of an instance to its first attempt, by action and engine."),
    ),
    (
        "tms_submission_seconds",
        Seconds("Time from an attempt's begin until its engine had it, by action and engine."),
    ),
    (
        "tms_run_seconds",
        Seconds("Time from a driver's leave to the success of its instance, by action and engine."),
    ),
    ("tms_leave_refused_total", Counter("Drivers that were told to exit untouched, by reason.")),
    ("tms_live_instances", Gauge("Instances that have not ended, by state and action.")),
    ("tms_queue_depth", Gauge("Instances that wait in a queue.")),
    (
        "tms_oldest_unserved_plan_seconds",
        Gauge("Age of the oldest plan of an action that was handed over, by action."),
    ),
    ("tms_looks_total", Counter("Looks at tables, by outcome.")),
    ("tms_look_seconds", Seconds("Time of one look at a table.")),
    ("tms_poll_seconds", Seconds("Time to ask an engine for its jobs.")),
    ("tms_pruned_total", Counter("Ended instances that were pruned.")),
    ("tms_is_leader", Gauge("1 on the node that leads.")),
    ("tms_alerts_total", Counter("Alarms raised, by kind.")),
    ("tms_alerts_standing", Gauge("Alarms that stand now, by kind.")),
    (
        "tms_hand_overs_covered_total",
        Counter(
            "Hand-overs that needed no write: their table is touched already and its look is still to come.",
        ),
    ),
    ("tms_store_batch_size", Sizes("Hand-overs that were stored by one commit.")),
    ("tms_store_commits_total", Counter("Commits of hand-overs.")),
    ("tms_store_commit_errors_total", Counter("Commits of hand-overs that failed, by kind.")),
    (
        "tms_store_queue_full_total",
        Counter("Hand-overs that were turned away because too many wait for the store."),
    ),
    ("tms_store_conflicts_total", Counter("Writes that somebody else's change stopped; they are repeated.")),
    ("tms_store_bad_rows_total", Counter("Rows of the store that could not be read.")),
    ("tms_store_rocksdb_cache_bytes", Gauge("Bytes of blocks, indexes and filters in the cache of RocksDB.")),
    ("tms_store_rocksdb_cache_hits_total", Counter("Blocks that RocksDB found in its cache.")),
    ("tms_store_rocksdb_cache_misses_total", Counter("Blocks that RocksDB had to read.")),
    (
        "tms_store_rocksdb_memtable_bytes",
        Gauge("Bytes of rows that RocksDB has not written out of memory yet."),
    ),
    ("tms_store_rocksdb_wal_bytes", Gauge("Bytes of RocksDB's write-ahead logs on the disk.")),
    (
        "tms_store_rocksdb_compaction_pending_bytes",
        Gauge("Bytes that RocksDB has yet to compact, estimated."),
    ),
    (
        "tms_store_rocksdb_stall_microseconds_total",
        Counter("Time that RocksDB held writes back because compaction fell behind."),
    ),
    ("tms_store_rocksdb_level0_files", Gauge("Files at level 0 of RocksDB, in the family with the most.")),
    ("tms_store_rocksdb_live_bytes", Gauge("Bytes of live rows of RocksDB on the disk, estimated.")),
];

/// Names of all metrics.
pub fn names() -> impl Iterator<Item = &'static str> {
    HELP.iter().map(|(name, _)| *name)
}

fn describe() {
    for (name, help) in HELP {
        match help {
            Counter(text) => metrics::describe_counter!(name, text),
            Gauge(text) => metrics::describe_gauge!(name, text),
            Seconds(text) => metrics::describe_histogram!(name, metrics::Unit::Seconds, text),
            Sizes(text) => metrics::describe_histogram!(name, text),
        }
    }
}

/// What is counted of a request. The path and its query are not looked at, only the route.
#[derive(Debug)]
pub struct Seen {
    route: SharedString,
    method: &'static str,
    started: Duration,
}

impl Seen {
    /// Notes a request that comes at `started`, on the monotonic clock.
    #[must_use]
    pub fn of(request: &Request, started: Duration) -> Self {
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or(SharedString::const_str("none"), |m| m.as_str().to_owned().into());
        Self { route, method: known_method(request.method()), started }
    }

    /// Counts and times it.
    pub fn note(self, status: StatusCode, now: Duration) {
        let took = now.saturating_sub(self.started);
        tracing::debug!(
            route = &*self.route,
            method = self.method,
            status = status.as_u16(),
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "Answered."
        );
        metrics::histogram!("tms_http_request_seconds", "route" => self.route.clone())
            .record(took.as_secs_f64());
        metrics::counter!(
            "tms_http_requests_total", "route" => self.route, "method" => self.method, "status" => word_of(status)
        )
        .increment(1);
    }
}

/// Returns the number of a status as a label.
pub fn word_of(status: StatusCode) -> SharedString {
    match status {
        StatusCode::OK => SharedString::const_str("200"),
        other => other.as_str().to_owned().into(),
    }
}

/// A caller can make up methods; labels must not grow with them.
fn known_method(method: &Method) -> &'static str {
    match method.as_str() {
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
