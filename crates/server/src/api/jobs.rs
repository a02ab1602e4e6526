//! What drivers ask: leave, progress, end. Always with the token of their attempt, which opens nothing else.

use std::collections::BTreeMap;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router, middleware};
use serde::{Deserialize, Serialize};
use tms_core::clock::Timestamp;
use tms_core::manager::attempt::{LeaveAnswer, LeaveAsk, LeaveStage};
use tms_core::model::attempt::{JobReport, Progress};
use tms_core::model::id::{RunId, Tag};
use tms_core::{Error, ErrorKind};

use crate::api::dto::instance::PERCENT_MAX;
use crate::api::dto::tasks;
use crate::api::error::{ApiError, Problem};
use crate::api::job_gate;
use crate::api::state::App;
use crate::guard::bearer;

/// Longest id of an application that is logged, in characters.
const APP_ID_CHARS_MAX: usize = 100;

/// Returns the routes of drivers.
pub fn routes(app: App) -> Router<App> {
    Router::new()
        .route("/v1/job/{tag}/leave", post(leave))
        .route("/v1/job/{tag}/progress", post(progress))
        .route("/v1/job/{tag}/end", post(end))
        .layer(middleware::from_fn_with_state(app, job_gate::layer))
        // The door has bounded the body.
        .layer(DefaultBodyLimit::disable())
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

/// Returns an application's id without what none has (`local-1`, `application_1_2`, `spark-1a`): it goes to the log.
fn app_label(app_id: &str) -> String {
    let is_of_ids = |c: &char| c.is_ascii_alphanumeric() || "-_.:".contains(*c);
    app_id.chars().filter(is_of_ids).take(APP_ID_CHARS_MAX).collect()
}

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
        tasks_done: tasks(body.tasks_done),
        tasks_total: tasks(body.tasks_total),
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
    app.managers.attempts.end(&tag, &token, &body.run_id, report).await?;
    // Only now: before, the token was not checked.
    if let Some(app_id) = body.app_id.as_deref().map(app_label).filter(|a| !a.is_empty()) {
        tracing::info!(%tag, app = app_id, "A driver named its application.");
    }
    Ok(Json(EndReply {}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_an_application_cannot_write_into_the_log() {
        assert_eq!(app_label("application_1700000000000_0001"), "application_1700000000000_0001");
        assert_eq!(app_label("local-1\u{1b}[31m\n2026 ERROR x\u{202e}\u{0}"), "local-131m2026ERRORx");
        assert_eq!(app_label(&"a".repeat(1_000)).len(), APP_ID_CHARS_MAX);
        assert_eq!(app_label("\n\t é"), "");
    }
}
