//! The peer of the hand-over: a bare axum server that reads the body and answers 200 with a small JSON. It does nothing
//! else, so its cost is what HTTP costs with the same library.

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Longest body, in bytes; the benches send some 2 KB.
const BODY_BYTES_MAX: usize = 1 << 20;

async fn echo(body: Bytes) -> Json<Value> {
    Json(json!({"status": "ok", "table": format!("{:032x}", body.len())}))
}

/// Serves on a free port of the loopback, which is printed, until it is killed.
///
/// # Errors
/// It cannot listen.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        println!("{}", listener.local_addr().context("no address")?);
        let limit = axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX);
        let app = Router::new().route("/v1/hoodie/callback", post(echo)).layer(limit);
        axum::serve(listener, app).await.context("cannot serve")
    })
}
