//! What drivers ask: leave, progress, end. Always with the token of their attempt, which opens nothing else.

use std::collections::BTreeMap;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tms_core::clock::Timestamp;
use tms_core::manager::attempt::{LeaveAnswer, LeaveAsk, LeaveStage};
use tms_core::model::attempt::{JobReport, Progress};
use tms_core::model::id::{RunId, Tag};
use tms_core::{Error, ErrorKind};

use crate::api::error::{ApiError, Problem};
use crate::api::state::App;
use crate::guard::bearer;

/// Longest body of a driver, in bytes; the end carries result rows and causes, which the job cuts.
const JOB_BODY_BYTES_MAX: usize = 1024 * 1024;
/// A percentage that only the timeline can complete.
const PERCENT_MAX: u8 = 99;

/// Returns the routes of drivers.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/v1/job/{tag}/leave", post(leave))
        .route("/v1/job/{tag}/progress", post(progress))
        .route("/v1/job/{tag}/end", post(end))
        .layer(DefaultBodyLimit::max(JOB_BODY_BYTES_MAX))
}

#[derive(Debug, Deserialize)]
struct LeaveBody {
    run_id: RunId,
    stage: Stage,
    #[serde(default)]
    pid: Option<u32>,
    #[serde(default)]
    host: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    Start,
    Call,
}

/// The answer to a driver that asks for leave.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum LeaveReply {
    Given {
        leave: bool,
        action: String,
        base_path: String,
        table_name: Option<String>,
        instant: Option<String>,
        expected: String,
        options: BTreeMap<String, String>,
        session: BTreeMap<String, String>,
        run_timeout_secs: u64,
        progress_every_secs: u64,
    },
    Refused {
        leave: bool,
        reason: String,
        detail: String,
    },
}

#[derive(Debug, Deserialize)]
struct ProgressBody {
    run_id: RunId,
    #[serde(default)]
    phase: String,
    #[serde(default)]
    tasks_done: u64,
    #[serde(default)]
    tasks_total: u64,
    #[serde(default)]
    percent: u64,
}

#[derive(Debug, Serialize)]
struct ProgressReply {
    stop: bool,
}

#[derive(Debug, Deserialize)]
struct EndBody {
    run_id: RunId,
    outcome: String,
    exit_code: i32,
    #[serde(default)]
    rows: Vec<String>,
    #[serde(default)]
    error: Vec<String>,
    #[serde(default)]
    app_id: Option<String>,
}

#[derive(Debug, Serialize)]
struct EndReply {}

fn token_of(headers: &HeaderMap) -> Result<String, ApiError> {
    match bearer(headers).filter(|t| !t.is_empty()) {
        Some(token) => Ok(token.to_owned()),
        None => Err(Problem::new(401, "denied", "the job's token is missing").into()),
    }
}

fn tag_of(text: &str) -> Result<Tag, ApiError> {
    // What is no tag cannot be known; telling the difference would help nobody.
    Ok(text.parse::<Tag>().map_err(|_| Error::new(ErrorKind::NotFound, "find the attempt"))?)
}

async fn leave(
    State(app): State<App>,
    Path(tag): Path<String>,
    headers: HeaderMap,
    Json(body): Json<LeaveBody>,
) -> Result<Json<LeaveReply>, ApiError> {
    let ask = LeaveAsk {
        token: token_of(&headers)?,
        tag: tag_of(&tag)?,
        run_id: body.run_id,
        stage: match body.stage {
            Stage::Start => LeaveStage::Start,
            Stage::Call => LeaveStage::Call,
        },
        pid: body.pid,
        host: body.host,
    };
    Ok(Json(match app.managers.attempts.leave(&ask).await? {
        LeaveAnswer::Given(grant) => LeaveReply::Given {
            leave: true,
            action: grant.action.to_string(),
            base_path: grant.base_path,
            table_name: grant.table_name,
            instant: grant.instant.map(|i| i.to_string()),
            expected: crate::api::dto::instance::word(grant.expected),
            options: grant.options,
            session: grant.session,
            run_timeout_secs: grant.run_timeout_secs,
            progress_every_secs: grant.progress_every_secs,
        },
        LeaveAnswer::Refused { reason, detail } => LeaveReply::Refused { leave: false, reason, detail },
    }))
}

async fn progress(
    State(app): State<App>,
    Path(tag): Path<String>,
    headers: HeaderMap,
    Json(body): Json<ProgressBody>,
) -> Result<Json<ProgressReply>, ApiError> {
    let (token, tag) = (token_of(&headers)?, tag_of(&tag)?);
    let said = Progress {
        phase: tms_core::model::event::cut(&body.phase, 100),
        tasks_done: body.tasks_done,
        tasks_total: body.tasks_total,
        percent: u8::try_from(body.percent).unwrap_or(PERCENT_MAX).min(PERCENT_MAX),
    };
    let stop = app.managers.attempts.progress(&tag, &token, &body.run_id, said).await?;
    Ok(Json(ProgressReply { stop }))
}

async fn end(
    State(app): State<App>,
    Path(tag): Path<String>,
    headers: HeaderMap,
    Json(body): Json<EndBody>,
) -> Result<Json<EndReply>, ApiError> {
    let (token, tag) = (token_of(&headers)?, tag_of(&tag)?);
    let report = JobReport {
        outcome: body.outcome,
        exit_code: body.exit_code,
        error: body.error,
        rows: body.rows,
        // The Manager notes its own time.
        at: Timestamp::UNIX_EPOCH,
    };
    if let Some(app_id) = body.app_id.as_deref().filter(|a| !a.is_empty()) {
        tracing::info!(%tag, app = %tms_core::model::event::cut(app_id, 100), "A driver named its application.");
    }
    app.managers.attempts.end(&tag, &token, &body.run_id, report).await?;
    Ok(Json(EndReply {}))
}
