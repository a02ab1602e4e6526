//! Engines: list.

use axum::Json;
use axum::extract::State;

use crate::api::List;
use crate::api::dto::other::EngineDto;
use crate::api::error::{ApiError, ApiErrors};
use crate::api::state::App;

/// Lists the engines of this node by name, each with what it lacks.
#[utoipa::path(get, path = "/api/v1/engines", tag = "engines", responses(
    (status = 200, description = "All engines", body = List<EngineDto>),
    ApiErrors,
))]
pub async fn list_engines(State(app): State<App>) -> Result<Json<List<EngineDto>>, ApiError> {
    Ok(List::whole(app.managers.engines.list().await.into_iter().map(EngineDto::from).collect()))
}
