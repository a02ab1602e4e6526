//! Queues: list, set, pause, resume.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use tms_core::manager::queue::QueueChange;
use tms_core::model::id::QueueName;

use crate::api::QueueList;
use crate::api::dto::other::{QueueDto, SetQueueDto};
use crate::api::error::{ApiError, ApiErrors, Problem};
use crate::api::state::{App, user_of};

/// Lists all queues by name.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", responses(
    (status = 200, description = "All queues", body = QueueList),
    ApiErrors,
))]
pub async fn list_queues(State(app): State<App>) -> Result<Json<QueueList>, ApiError> {
    Ok(QueueList::page(app.managers.queues.list().await?, None))
}

/// Changes a queue, making it when it is new.
#[utoipa::path(put, path = "/api/v1/queues/{name}", tag = "queues", request_body = SetQueueDto,
    params(("name" = String, Path, description = "Name of the queue")), responses(
    (status = 200, description = "The queue", body = QueueDto),
    ApiErrors,
))]
pub async fn set_queue(
    State(app): State<App>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Json(body): Json<SetQueueDto>,
) -> Result<Json<QueueDto>, ApiError> {
    let name: QueueName = name.parse()?;
    let change: QueueChange = body.try_into()?;
    if let Some(Some(engine)) = &change.engine
        && !app.managers.engines.list().await.iter().any(|e| e.name == *engine)
    {
        return Err(Problem::new(400, "invalid", format!("there is no engine {engine}"))
            .hint("`tms-server --print-config` shows the configured engines")
            .into());
    }
    Ok(Json(app.managers.queues.set(&name, &change, &user_of(&headers)).await?.into()))
}

/// Pauses a queue, making it when it is new: nothing is started; what runs goes on.
#[utoipa::path(post, path = "/api/v1/queues/{name}/pause", tag = "queues",
    params(("name" = String, Path, description = "Name of the queue")), responses(
    (status = 200, description = "The queue", body = QueueDto),
    ApiErrors,
))]
pub async fn pause_queue(
    State(app): State<App>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Json<QueueDto>, ApiError> {
    let name: QueueName = name.parse()?;
    Ok(Json(app.managers.queues.pause(&name, &user_of(&headers)).await?.into()))
}

/// Resumes a queue. One that was never set is not found: nothing paused it.
#[utoipa::path(post, path = "/api/v1/queues/{name}/resume", tag = "queues",
    params(("name" = String, Path, description = "Name of the queue")), responses(
    (status = 200, description = "The queue", body = QueueDto),
    ApiErrors,
))]
pub async fn resume_queue(
    State(app): State<App>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Json<QueueDto>, ApiError> {
    let name: QueueName = name.parse()?;
    Ok(Json(app.managers.queues.resume(&name, &user_of(&headers)).await?.into()))
}
