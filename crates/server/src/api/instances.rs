//! Instances: list, show, add, remove, cancel, retry, logs.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tms_core::manager::instance::AddInstance;
use tms_core::model::action::Action;
use tms_core::model::id::{InstanceId, TableId};
use tms_core::model::instance::InstanceState;
use tms_core::store::InstanceFilter;
use utoipa::IntoParams;

use crate::api::dto::instance::{
    AddInstanceDto, InstanceDetailDto, InstanceDto, LogTailDto, RetryInstanceDto,
};
use crate::api::dto::table::NO_LAUNCHER;
use crate::api::error::{ApiError, ApiErrors, Problem};
use crate::api::state::{App, user_of};
use crate::api::{InstanceList, limit_of, one_slash};

/// Longest part of a log that one answer holds, in bytes.
const LOG_BYTES_MAX: usize = 1024 * 1024;
/// Part of a log when the caller names no size, in bytes.
const LOG_BYTES_DEFAULT: usize = 64 * 1024;

/// Which instances are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct InstanceQuery {
    /// Of this table: its id or base path.
    table: Option<String>,
    /// Of these actions, separated by commas.
    action: Option<String>,
    /// In these states, separated by commas.
    state: Option<String>,
    /// Of this queue.
    queue: Option<String>,
    /// Only those that have not ended (true) or have ended (false).
    live: Option<bool>,
    /// Where the page starts: `next_cursor` of the page before.
    cursor: Option<String>,
    /// Items of a page, 1 to 1000; 100 when absent.
    limit: Option<u32>,
}

/// Which part of which log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Number of the attempt; the last one when absent.
    attempt: Option<u32>,
    /// Bytes from the end, at most 1048576; 65536 when absent.
    bytes: Option<u32>,
}

fn instance_id(text: &str) -> Result<InstanceId, ApiError> {
    Ok(text.parse::<InstanceId>()?)
}

fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|w| !w.is_empty())
}

async fn filter_of(app: &App, query: &InstanceQuery) -> Result<InstanceFilter, ApiError> {
    let table = match query.table.as_deref() {
        None => None,
        Some(text) => Some(match text.parse::<TableId>() {
            Ok(id) => id,
            Err(_) => app.managers.tables.resolve(&one_slash(text)).await?.table.id,
        }),
    };
    let states: Vec<String> = words(query.state.as_deref()).map(str::to_owned).collect();
    if let Some(odd) = states.iter().find(|s| !InstanceState::WORDS.contains(&s.as_str())) {
        let detail = format!("there is no state {:?}", odd.chars().take(40).collect::<String>());
        return Err(Problem::new(400, "invalid", detail)
            .hint(format!("use {}", InstanceState::WORDS.join(", ")))
            .into());
    }
    Ok(InstanceFilter {
        table,
        actions: words(query.action.as_deref()).map(str::parse::<Action>).collect::<Result<_, _>>()?,
        states,
        queue: query.queue.as_deref().map(str::parse).transpose()?,
        is_live: query.live,
    })
}

/// Lists instances, newest first.
#[utoipa::path(get, path = "/api/v1/instances", tag = "instances", params(InstanceQuery), responses(
    (status = 200, description = "One page", body = InstanceList),
    ApiErrors,
))]
pub async fn list_instances(
    State(app): State<App>,
    Query(query): Query<InstanceQuery>,
) -> Result<Json<InstanceList>, ApiError> {
    let limit = limit_of(query.limit)?;
    let filter = filter_of(&app, &query).await?;
    let page = app.managers.instances.list(&filter, query.cursor.as_deref(), limit).await?;
    Ok(InstanceList::page(page.items, page.next))
}

/// Asks for one instance. Asked again, the answer is the same instance.
#[utoipa::path(post, path = "/api/v1/instances", tag = "instances", request_body = AddInstanceDto, responses(
    (status = 200, description = "The instance", body = InstanceDto),
    ApiErrors,
))]
pub async fn add_instance(
    State(app): State<App>,
    headers: HeaderMap,
    Json(body): Json<AddInstanceDto>,
) -> Result<Json<InstanceDto>, ApiError> {
    let refuse = |detail: String| Problem::new(400, "invalid", detail).hint(NO_LAUNCHER);
    let action: Action = body.action.parse().map_err(|e: tms_core::Error| refuse(e.to_string()))?;
    if !action.has_launcher() {
        return Err(refuse(format!("nothing runs a {action}")).into());
    }
    let request = AddInstance {
        table: one_slash(&body.table).into_owned(),
        action,
        instant: body.instant,
        queue: body.queue,
        priority: body.priority,
    };
    Ok(Json(app.managers.instances.add(request, &user_of(&headers)).await?.into()))
}

/// Shows one instance with its attempts and events.
#[utoipa::path(get, path = "/api/v1/instances/{id}", tag = "instances",
    params(("id" = String, Path, description = "Id of the instance")), responses(
    (status = 200, description = "The instance", body = InstanceDetailDto),
    ApiErrors,
))]
pub async fn show_instance(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<InstanceDetailDto>, ApiError> {
    Ok(Json(app.managers.instances.show(instance_id(&id)?).await?.into()))
}

/// Forgets an instance that is not running. While its plan stands, it is not taken up again by itself.
#[utoipa::path(delete, path = "/api/v1/instances/{id}", tag = "instances",
    params(("id" = String, Path, description = "Id of the instance")), responses(
    (status = 204, description = "It is forgotten"),
    ApiErrors,
))]
pub async fn remove_instance(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.managers.instances.remove(instance_id(&id)?, &user_of(&headers)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Stops an instance and holds its plan until `retry`.
#[utoipa::path(post, path = "/api/v1/instances/{id}/cancel", tag = "instances",
    params(("id" = String, Path, description = "Id of the instance")), responses(
    (status = 200, description = "The instance; it may take a while until it has stopped", body = InstanceDto),
    ApiErrors,
))]
pub async fn cancel_instance(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<InstanceDto>, ApiError> {
    Ok(Json(app.managers.instances.cancel(instance_id(&id)?, &user_of(&headers)).await?.into()))
}

/// Has an ended, held or waiting instance tried again.
#[utoipa::path(post, path = "/api/v1/instances/{id}/retry", tag = "instances", request_body = RetryInstanceDto,
    params(("id" = String, Path, description = "Id of the instance")), responses(
    (status = 200, description = "The instance", body = InstanceDto),
    ApiErrors,
))]
pub async fn retry_instance(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<RetryInstanceDto>,
) -> Result<Json<InstanceDto>, ApiError> {
    Ok(Json(
        app.managers.instances.retry(instance_id(&id)?, body.take_over, &user_of(&headers)).await?.into(),
    ))
}

/// Shows the end of the log of an attempt.
#[utoipa::path(get, path = "/api/v1/instances/{id}/logs", tag = "instances",
    params(("id" = String, Path, description = "Id of the instance"), LogQuery), responses(
    (status = 200, description = "The end of the log", body = LogTailDto),
    ApiErrors,
))]
pub async fn show_instance_logs(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Json<LogTailDto>, ApiError> {
    let wanted = query.bytes.map_or(LOG_BYTES_DEFAULT, |b| usize::try_from(b).unwrap_or(LOG_BYTES_MAX));
    let bytes_max = wanted.min(LOG_BYTES_MAX);
    Ok(Json(app.managers.instances.logs(instance_id(&id)?, query.attempt, bytes_max).await?.into()))
}
