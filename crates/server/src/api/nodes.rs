//! Nodes: list.

use axum::Json;
use axum::extract::State;

use crate::api::NodeList;
use crate::api::error::{ApiError, ApiErrors};
use crate::api::state::App;

/// Lists all nodes by name, and who leads.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes", responses(
    (status = 200, description = "All nodes", body = NodeList),
    ApiErrors,
))]
pub async fn list_nodes(State(app): State<App>) -> Result<Json<NodeList>, ApiError> {
    Ok(NodeList::page(app.managers.nodes.list().await?, None))
}
