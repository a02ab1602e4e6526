//! Nodes: list.

use axum::Json;
use axum::extract::State;

use crate::api::List;
use crate::api::dto::other::NodeDto;
use crate::api::error::{ApiError, ApiErrors};
use crate::api::state::App;

/// Lists all nodes by name, and who leads.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes", responses(
    (status = 200, description = "All nodes", body = List<NodeDto>),
    ApiErrors,
))]
pub async fn list_nodes(State(app): State<App>) -> Result<Json<List<NodeDto>>, ApiError> {
    Ok(List::whole(app.managers.nodes.list().await?.into_iter().map(NodeDto::from).collect()))
}
