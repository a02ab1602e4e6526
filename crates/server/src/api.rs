//! The HTTP interface. Handlers call Managers only and hold nothing; one file per aggregate.

pub mod dto;
pub mod engines;
pub mod error;
pub mod health;
pub mod instances;
pub mod job_gate;
pub mod jobs;
pub mod nodes;
pub mod queues;
pub mod state;
pub mod store;
pub mod tables;
pub mod writers;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use futures::FutureExt;
use serde_json::Value;
use tower_http::timeout::TimeoutLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::error::Problem;
use crate::api::state::App;
use crate::{guard, metrics};

/// Longest body of a request to the API, in bytes; settings of a table are the longest.
pub const API_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Longest time that a request to the API may take; the advice on a table reads its timeline.
pub const API_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "TMS",
        description = "Table Management Service for Apache Hudi: what waits, what runs, what became of it.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "instances", description = "Table services to be run, running and ended"),
        (name = "tables", description = "Tables and their settings"),
        (name = "queues", description = "Named shares of engines"),
        (name = "engines", description = "What runs jobs"),
        (name = "nodes", description = "Running servers"),
        (name = "store", description = "Where all of it is kept"),
        (name = "health", description = "For probes")
    ),
    components(schemas(Problem)),
    modifiers(&Security),
    security((), ("token" = []))
)]
struct Document;

struct Security;

impl utoipa::Modify for Security {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The content of server.token_file; not asked for on loopback without one."))
            .build();
        let components = openapi.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

fn api() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(instances::list_instances, instances::add_instance))
        .routes(routes!(instances::show_instance, instances::remove_instance))
        .routes(routes!(instances::cancel_instance))
        .routes(routes!(instances::retry_instance))
        .routes(routes!(instances::show_instance_logs))
        .routes(routes!(tables::list_tables, tables::register_table))
        .routes(routes!(tables::show_table, tables::remove_table))
        .routes(routes!(tables::set_table_settings))
        .routes(routes!(tables::clear_table))
        .routes(routes!(tables::look_at_table))
        .routes(routes!(tables::advise_on_table))
        .routes(routes!(queues::list_queues))
        .routes(routes!(queues::set_queue))
        .routes(routes!(queues::pause_queue))
        .routes(routes!(queues::resume_queue))
        .routes(routes!(engines::list_engines))
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(store::back_up_store))
}

fn health() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(health::healthz)).routes(routes!(health::readyz))
}

/// Returns the description of the API as JSON, indented, with a newline at its end.
#[must_use]
pub fn openapi_json() -> String {
    let (_, mut api) = api().split_for_parts();
    let (_, health) = health().split_for_parts();
    api.merge(health);
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let sorted = serde_json::to_value(&api)
        .map(|mut whole| {
            bound_integers(&mut whole);
            sorted(whole)
        })
        .and_then(|v| serde_json::to_string_pretty(&v));
    let mut text = sorted.unwrap_or_default();
    text.push('\n');
    text
}

/// Gives every whole number its limits: a client holds it as 32 or 64 bits with sign, and must not guess which.
fn bound_integers(part: &mut Value) {
    match part {
        Value::Object(entries) => {
            let is_integer = |kind: &Value| {
                kind == "integer" || kind.as_array().is_some_and(|k| k.iter().any(|k| k == "integer"))
            };
            if entries.get("type").is_some_and(is_integer) {
                let format = entries.entry("format").or_insert_with(|| "int64".into());
                let (low, high) = match format.as_str() {
                    Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    _ => (i64::MIN, i64::MAX),
                };
                entries.entry("minimum").or_insert_with(|| low.into());
                entries.entry("maximum").or_insert_with(|| high.into());
            }
            entries.values_mut().for_each(bound_integers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

/// Puts keys in order, so that the text does not depend on how the JSON library was built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let ordered: BTreeMap<String, Value> = entries.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Makes all routes.
pub fn router(app: App) -> Router {
    let document = openapi_json();
    let describe = move || {
        let document = document.clone();
        async move { ([("content-type", "application/json")], document).into_response() }
    };
    let (api, _) = api().split_for_parts();
    let (health, _) = health().split_for_parts();
    let with_token = api
        .route("/api/openapi.json", get(describe))
        .route("/metrics", get(metrics::show))
        .layer(middleware::from_fn_with_state(app.clone(), guard::token_layer))
        .layer(DefaultBodyLimit::max(API_BODY_BYTES_MAX));
    let bounded = with_token
        .merge(health)
        .merge(jobs::routes(app.clone()))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, API_TIME_MAX));
    // Writers' routes bound their own time, since a long body is no fault of theirs.
    bounded
        .merge(writers::routes())
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(app.clone(), edge_layer))
        .with_state(app)
}

/// What is done around every request; one layer, since each costs a writer more than its work does.
async fn edge_layer(State(app): State<App>, request: Request, next: Next) -> Response {
    let seen = metrics::Seen::of(&request, app.clock.monotonic());
    let response = match app.guard.check_source(request.headers(), request.uri()) {
        Ok(()) => {
            // A defect of one handler must not end the connection, and with it what others sent on it.
            AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|panic| on_panic(&*panic))
        }
        Err(problem) => problem.response(),
    };
    let response = error::as_problem(response).await;
    seen.note(response.status(), app.clock.monotonic());
    response
}

async fn not_found() -> StatusCode {
    StatusCode::NOT_FOUND
}

fn on_panic(panic: &(dyn std::any::Any + Send)) -> Response {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "A handler panicked.");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// One type per list: the client's generator knows no generic types.
macro_rules! list {
    ($(#[$doc:meta])* $name:ident, $item:ty) => {
        $(#[$doc])*
        #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
        #[schema(as = $name)]
        pub struct $name {
            /// The items.
            pub items: Vec<$item>,
            /// Give it as `cursor` for the next page; absent at the end.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub next_cursor: Option<String>,
        }

        impl $name {
            /// Makes a page.
            pub fn page<T: Into<$item>>(items: Vec<T>, next_cursor: Option<String>) -> Json<Self> {
                Json(Self { items: items.into_iter().map(Into::into).collect(), next_cursor })
            }
        }
    };
}

list!(
    /// One page of instances.
    InstanceList,
    dto::instance::InstanceDto
);
list!(
    /// One page of tables.
    TableList,
    dto::table::TableDto
);
list!(
    /// All queues.
    QueueList,
    dto::other::QueueDto
);
list!(
    /// All engines.
    EngineList,
    dto::other::EngineDto
);
list!(
    /// All nodes.
    NodeList,
    dto::other::NodeDto
);

/// Returns a path without scheme with one slash at its start. With two, Hadoop would take the first folder for a host, and
/// nobody who writes `//lake/t` means that.
fn one_slash(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("//") {
        Some(rest) => format!("/{}", rest.trim_start_matches('/')).into(),
        None => path.into(),
    }
}

/// Items of a page when the caller names no number.
pub const LIMIT_DEFAULT: usize = 100;

/// Returns the number of items of a page.
fn limit_of(limit: Option<u32>) -> Result<usize, Problem> {
    let most = tms_core::store::PAGE_MAX;
    match limit.map_or(LIMIT_DEFAULT, |l| usize::try_from(l).unwrap_or(usize::MAX)) {
        0 => {
            Err(Problem::new(400, "invalid", "the limit is 0").hint(format!("give a limit from 1 to {most}")))
        }
        limit if limit > most => {
            Err(Problem::new(400, "invalid", format!("the limit is over {most}"))
                .hint("use the cursor for more"))
        }
        limit => Ok(limit),
    }
}
