//! Engines: list.

use axum::Json;
use axum::extract::State;

use crate::api::EngineList;
use crate::api::error::{ApiError, ApiErrors};
use crate::api::state::App;

/// Lists the engines of this node by name, each with what it lacks.
#[utoipa::path(get, path = "/api/v1/engines", tag = "engines", responses(
    (status = 200, description = "All engines", body = EngineList),
    ApiErrors,
))]
pub async fn list_engines(State(app): State<App>) -> Result<Json<EngineList>, ApiError> {
    Ok(EngineList::page(app.managers.engines.list().await, None))
}
