//! Tables: list, show, register, settings, remove, clear, look, advice.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tms_core::manager::table::RegisterTable;
use tms_core::model::id::TableId;
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::api::dto::table::{
    AdviceDto, ClearTableDto, ClearedDto, RegisterTableDto, TableDetailDto, TableDto, TableSettingsDto,
};
use crate::api::error::{ApiError, ApiErrors, Problem};
use crate::api::state::{App, user_of};
use crate::api::{TableList, limit_of, one_slash};

/// Tables that are read for advice at once. Each may hang as long as its storage does.
pub const ADVICE_AT_ONCE_MAX: usize = 8;
/// Longest time that the reading of a table for advice may take.
const ADVICE_TIME_MAX: Duration = Duration::from_secs(30);

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TableQuery {
    /// Where the page starts: `next_cursor` of the page before.
    cursor: Option<String>,
    /// Items of a page, 1 to 1000; 100 when absent.
    limit: Option<u32>,
}

async fn table_id(app: &App, id_or_path: &str) -> Result<TableId, ApiError> {
    Ok(app.managers.tables.resolve(&one_slash(id_or_path)).await?.table.id)
}

/// Lists tables by id.
#[utoipa::path(get, path = "/api/v1/tables", tag = "tables", params(TableQuery), responses(
    (status = 200, description = "One page", body = TableList),
    ApiErrors,
))]
pub async fn list_tables(
    State(app): State<App>,
    Query(query): Query<TableQuery>,
) -> Result<Json<TableList>, ApiError> {
    let limit = limit_of(query.limit)?;
    let page = app.managers.maintained.list(query.cursor.as_deref(), limit).await?;
    Ok(TableList::page(page.items, page.next))
}

/// Registers a table, or changes the settings of a known one: without `settings` it keeps those that it has.
#[utoipa::path(post, path = "/api/v1/tables", tag = "tables", request_body = RegisterTableDto, responses(
    (status = 200, description = "The table", body = TableDto),
    ApiErrors,
))]
pub async fn register_table(
    State(app): State<App>,
    headers: HeaderMap,
    Json(body): Json<RegisterTableDto>,
) -> Result<Json<TableDto>, ApiError> {
    let request = RegisterTable {
        base_path: one_slash(&body.base_path).into_owned(),
        settings: body.settings.map(TryInto::try_into).transpose()?,
        merge: body.merge,
        look: body.look,
    };
    Ok(Json(app.managers.tables.register(request, &user_of(&headers)).await?.into()))
}

/// Shows one table with what is live on it.
#[utoipa::path(get, path = "/api/v1/tables/{id}", tag = "tables",
    params(("id" = String, Path, description = "Id or base path of the table")), responses(
    (status = 200, description = "The table", body = TableDetailDto),
    ApiErrors,
))]
pub async fn show_table(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<TableDetailDto>, ApiError> {
    let id = table_id(&app, &id).await?;
    Ok(Json(app.managers.maintained.show(id).await?.into()))
}

/// Forgets a table with its instances. It comes back when its writer announces it again.
#[utoipa::path(delete, path = "/api/v1/tables/{id}", tag = "tables",
    params(("id" = String, Path, description = "Id or base path of the table")), responses(
    (status = 204, description = "It is forgotten"),
    ApiErrors,
))]
pub async fn remove_table(State(app): State<App>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    let id = table_id(&app, &id).await?;
    app.managers.tables.remove(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the settings of a table.
#[utoipa::path(put, path = "/api/v1/tables/{id}/settings", tag = "tables", request_body = TableSettingsDto,
    params(("id" = String, Path, description = "Id or base path of the table")), responses(
    (status = 200, description = "The table", body = TableDto),
    ApiErrors,
))]
pub async fn set_table_settings(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<TableSettingsDto>,
) -> Result<Json<TableDto>, ApiError> {
    let id = table_id(&app, &id).await?;
    let settings = body.try_into()?;
    Ok(Json(app.managers.tables.update_settings(id, settings, &user_of(&headers)).await?.into()))
}

/// Cancels all waiting instances of a table, and the running ones when asked to.
#[utoipa::path(post, path = "/api/v1/tables/{id}/clear", tag = "tables", request_body = ClearTableDto,
    params(("id" = String, Path, description = "Id or base path of the table")), responses(
    (status = 200, description = "How many", body = ClearedDto),
    ApiErrors,
))]
pub async fn clear_table(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<ClearTableDto>,
) -> Result<Json<ClearedDto>, ApiError> {
    let id = table_id(&app, &id).await?;
    let n_cancelled = app.managers.instances.clear(id, body.running, &user_of(&headers)).await?;
    Ok(Json(ClearedDto { n_cancelled }))
}

/// Has the leader look at a table now.
#[utoipa::path(post, path = "/api/v1/tables/{id}/look", tag = "tables",
    params(("id" = String, Path, description = "Id or base path of the table")), responses(
    (status = 200, description = "The table; the look is over when `looked` has reached this `touch`", body = TableDto),
    ApiErrors,
))]
pub async fn look_at_table(
    State(app): State<App>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Json<TableDto>, ApiError> {
    let id = table_id(&app, &id).await?;
    Ok(Json(app.managers.tables.look_now(id, &user_of(&headers)).await?.into()))
}

/// Reads a table now and says what would run and what is unsafe, without changing anything.
#[utoipa::path(get, path = "/api/v1/tables/{id}/advice", tag = "tables",
    params(("id" = String, Path, description = "Id or base path of the table")), responses(
    (status = 200, description = "The advice", body = AdviceDto),
    ApiErrors,
))]
pub async fn advise_on_table(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<AdviceDto>, ApiError> {
    // Others than tables of storage that hangs must not wait behind them.
    let Ok(_room) = app.advice.try_acquire() else {
        let detail = format!("{ADVICE_AT_ONCE_MAX} tables are being read for advice already");
        return Err(Problem::new(503, "unavailable", detail).hint("try again in a moment").into());
    };
    let id = table_id(&app, &id).await?;
    match timeout(ADVICE_TIME_MAX, app.managers.maintained.advice(id)).await {
        Ok(advice) => Ok(Json(advice?.into())),
        Err(_) => {
            let detail = format!("the table {id} could not be read within {} s", ADVICE_TIME_MAX.as_secs());
            let hint = "check that the table's storage answers";
            Err(Problem::new(503, "unavailable", detail).hint(hint).into())
        }
    }
}
