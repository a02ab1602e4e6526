//! Probes. Alive means that the process answers; ready means that a hand-over would be durable, whatever engines say.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::api::dto::other::EngineDto;
use crate::api::state::App;

/// Time within which the store must answer; an orchestrator's probe waits no longer.
const STORE_TIME_MAX: Duration = Duration::from_secs(2);
/// Time within which the engines must say what they lack.
const ENGINES_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for which the engines' answer is used again; asking them may start programs.
const ENGINES_FRESH: Duration = Duration::from_secs(10);

/// Answers of slow probes, kept for a moment.
#[derive(Debug, Default)]
pub struct Probes {
    engines: Mutex<Option<(Duration, Vec<EngineDto>)>>,
}

/// Whether the process answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Alive {
    /// Always `ok`.
    status: String,
}

/// Whether a hand-over would be durable now, and what else is known.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ready` or `unready`.
    status: String,
    /// Whether the store takes durable writes.
    store: StoreReadiness,
    /// Who leads; absent when nobody does.
    leader: Option<LeaderReadiness>,
    /// What holds back all submissions, such as jobs that a restored store does not know; absent when nothing does.
    hold: Option<String>,
    /// Engines, each with what it lacks; absent while they are being asked.
    engines: Option<Vec<EngineDto>>,
}

/// Whether the store takes durable writes.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoreReadiness {
    /// It does.
    is_ok: bool,
    /// Why not.
    error: Option<String>,
}

/// Who leads.
#[derive(Debug, Serialize, ToSchema)]
pub struct LeaderReadiness {
    /// Name of the node.
    node: String,
    /// Its term.
    term: u64,
}

/// Tells that the process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It does", body = Alive)))]
pub async fn healthz() -> Json<Alive> {
    Json(Alive { status: "ok".to_owned() })
}

/// Tells whether a hand-over would be durable now, and what engines lack.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "It would", body = Readiness),
    (status = 503, description = "It would not", body = Readiness),
))]
pub async fn readyz(State(app): State<App>) -> Response {
    let store_error = match timeout(STORE_TIME_MAX, app.managers.nodes.check()).await {
        Ok(Ok(())) => None,
        Ok(Err(e)) => {
            tracing::warn!(error = %e.chain(), "The store takes no writes.");
            let hint = e.hint_text().map(|hint| format!(": {hint}")).unwrap_or_default();
            Some(format!("cannot {}{hint}", e.operation()))
        }
        Err(_) => Some(format!("no answer within {} s", STORE_TIME_MAX.as_secs())),
    };
    let leader = match timeout(STORE_TIME_MAX, app.managers.nodes.list()).await {
        Ok(Ok(nodes)) => nodes.into_iter().find(|n| n.is_leader),
        Ok(Err(_)) | Err(_) => None,
    };
    let hold = match timeout(STORE_TIME_MAX, app.managers.nodes.hold()).await {
        Ok(Ok(hold)) => hold.map(|hold| hold.to_string()),
        Ok(Err(_)) | Err(_) => None,
    };
    let (status, word) = match store_error {
        None => (StatusCode::OK, "ready"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "unready"),
    };
    let body = Readiness {
        status: word.to_owned(),
        store: StoreReadiness { is_ok: store_error.is_none(), error: store_error },
        leader: leader.and_then(|l| Some(LeaderReadiness { node: l.row.name.to_string(), term: l.term?.0 })),
        hold,
        engines: engines(&app).await,
    };
    (status, Json(body)).into_response()
}

async fn engines(app: &App) -> Option<Vec<EngineDto>> {
    let ask = async {
        let mut kept = app.probes.engines.lock().await;
        let now = app.clock.monotonic();
        if let Some((at, engines)) = &*kept
            && now.saturating_sub(*at) < ENGINES_FRESH
        {
            return engines.clone();
        }
        let fresh: Vec<EngineDto> =
            app.managers.engines.list().await.into_iter().map(EngineDto::from).collect();
        *kept = Some((now, fresh.clone()));
        fresh
    };
    timeout(ENGINES_TIME_MAX, ask).await.ok()
}
