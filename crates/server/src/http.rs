//! Serves HTTP/1.1 with named limits: connections, time for a request's head, time to finish at shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections that are open at once; further ones wait in the system's queue.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Time within which the head of a request must come; writers and jobs send theirs at once.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest head of a request, in bytes. A writer that names 1,000 instants sends about 20 KB.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Pause after the system refused a connection, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time that open requests get to finish at shutdown.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(4);

/// Serves until `shutdown`, then lets open requests finish for a bounded time.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(true);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            () = shutdown.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "Could not accept a connection.");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "Could not set a connection to answer at once.");
        }
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        connections.spawn(async move {
            metrics::gauge!("tms_http_connections").increment(1.0);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "A connection ended early.");
            }
            metrics::gauge!("tms_http_connections").decrement(1.0);
            drop(place);
        });
    }
    // The port is free at once, so that a balancer sees the node leave.
    drop(listener);
    if tokio::time::timeout(DRAIN_TIME_MAX, graceful.shutdown()).await.is_err() {
        tracing::warn!(open = connections.len(), "Some requests did not finish in time and were cut off.");
    }
    connections.shutdown().await;
}
