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
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections that are open at once; further ones wait in the system's queue.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Time within which the head of a request must come; writers and jobs send theirs at once.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest path and query of a request, in bytes. The HTTP library sets it and answers 414 with an empty body beyond it
/// (measured). An instant takes at most 23 bytes of it (20 digits and an encoded comma), so a GET of Hudi's client can name
/// 2,500 of them beside 4 KB of path and labels; 1,000 are taken.
pub const TARGET_BYTES_MAX: usize = 65_534;
/// Longest head of a request, in bytes: path and query with as much again, and more, for the headers.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// First pause after the system refused a connection, mostly for want of file descriptors; it doubles while it refuses.
const ACCEPT_PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest such pause.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Shortest time between two lines of the log about it.
const ACCEPT_LOG_EVERY: Duration = Duration::from_secs(30);
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
    let mut refusals = Refusals::default();
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
            Ok((stream, _)) => {
                refusals.pause = None;
                stream
            }
            Err(error) => {
                if let Some(n_refused) = refusals.count(Instant::now()) {
                    tracing::warn!(
                        %error,
                        n_refused,
                        open = connections.len(),
                        "Could not accept connections: look at the limit on open files (ulimit -n)."
                    );
                }
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(refusals.next_pause()) => {}
                }
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

/// Connections that the system refused.
#[derive(Debug, Default)]
struct Refusals {
    /// Pause after the last one; none after a connection that came.
    pause: Option<Duration>,
    n_unlogged: u64,
    logged_at: Option<Instant>,
}

impl Refusals {
    /// Counts one; returns how many there were since the last line of the log when a new one is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.n_unlogged += 1;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < ACCEPT_LOG_EVERY) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.n_unlogged))
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause.map_or(ACCEPT_PAUSE_FIRST, |p| (p * 2).min(ACCEPT_PAUSE_MAX));
        self.pause = Some(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lack_of_file_descriptors_is_logged_now_and_then_and_tried_ever_more_slowly() {
        let mut refusals = Refusals::default();
        let (mut n_lines, mut n_told) = (0, 0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(300) {
            if let Some(n_refused) = refusals.count(Instant::now()) {
                n_lines += 1;
                n_told += n_refused;
            }
            tokio::time::advance(refusals.next_pause()).await;
        }
        assert!((9..=11).contains(&n_lines), "{n_lines}");
        // Each of them is told at last.
        assert!((270..310).contains(&n_told), "{n_told}");
        refusals.pause = None;
        assert_eq!(refusals.next_pause(), ACCEPT_PAUSE_FIRST);
    }
}
