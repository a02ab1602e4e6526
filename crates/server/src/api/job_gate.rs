//! The door of the drivers' routes: the token is checked before a body is read, and bodies have room and time of their own,
//! so that nobody keeps writers waiting through these routes. It must not know what a driver asks.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tms_core::model::id::Tag;
use tms_core::{Error, ErrorKind};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api::error::{ApiError, Problem};
use crate::api::state::App;
use crate::guard::bearer;

/// Requests of drivers at once: a quarter of the connections, so that the others stay for writers and people. A driver has
/// one request at a time, and asks again after a refusal.
pub const JOB_REQUESTS_MAX: usize = crate::http::CONNECTIONS_MAX / 4;
/// Longest time that the body of a driver's request may take; the driver itself gives up after 30 s.
pub const JOB_BODY_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest body of a driver, in bytes; the end carries result rows and causes, which the job cuts.
const JOB_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Room and time of the drivers' routes.
#[derive(Debug, Clone)]
pub struct JobGate {
    room: Arc<Semaphore>,
    body_time_max: Duration,
    body_bytes_max: usize,
}

impl Default for JobGate {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(JOB_REQUESTS_MAX)),
            body_time_max: JOB_BODY_TIME_MAX,
            body_bytes_max: JOB_BODY_BYTES_MAX,
        }
    }
}

impl JobGate {
    /// Runs `next` with the whole body, when there is room and the body comes in time.
    async fn pass<T>(&self, request: Request, next: impl AsyncFnOnce(Request) -> T) -> Result<T, Problem> {
        let Ok(_room) = self.room.try_acquire() else {
            return Err(Problem::new(503, "unavailable", "too many drivers ask at once")
                .hint("ask again in a moment"));
        };
        let (parts, body) = request.into_parts();
        let bytes = match timeout(self.body_time_max, to_bytes(body, self.body_bytes_max)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => {
                let most = self.body_bytes_max;
                let detail = format!("the body is longer than {most} bytes, or broke off");
                return Err(Problem::new(413, "too_large", detail));
            }
            Err(_) => {
                let detail = format!("the body did not come within {} s", self.body_time_max.as_secs());
                return Err(Problem::new(408, "timeout", detail).hint("send it at once"));
            }
        };
        Ok(next(Request::from_parts(parts, Body::from(bytes))).await)
    }
}

/// Checks the token of an attempt, then takes the body.
pub async fn layer(
    State(app): State<App>,
    Path(tag): Path<String>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(refused) = check_token(&app, &tag, bearer(request.headers())).await {
        return refused.into_response();
    }
    match app.jobs.pass(request, async |request| next.run(request).await).await {
        Ok(response) => response,
        Err(problem) => problem.response(),
    }
}

/// The Manager checks it again with what the driver asks; here it decides only whether its body is read.
async fn check_token(app: &App, tag: &str, token: Option<&str>) -> Result<(), ApiError> {
    let Some(token) = token.filter(|t| !t.is_empty()) else {
        return Err(Problem::new(401, "denied", "the job's token is missing").into());
    };
    // What is no tag cannot be known; telling the difference would help nobody.
    let tag = tag.parse::<Tag>().map_err(|_| Error::new(ErrorKind::NotFound, "find the attempt"))?;
    Ok(app.managers.attempts.check_token(&tag, token).await?)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::time::Instant;

    use super::*;

    fn gate(room: usize) -> JobGate {
        JobGate {
            room: Arc::new(Semaphore::new(room)),
            body_time_max: JOB_BODY_TIME_MAX,
            body_bytes_max: 100,
        }
    }

    fn request(
        pieces: impl futures::Stream<Item = Result<String, std::io::Error>> + Send + 'static,
    ) -> Request {
        Request::new(Body::from_stream(pieces))
    }

    fn whole(text: &str) -> Request {
        Request::new(Body::from(text.to_owned()))
    }

    async fn passed(gate: &JobGate, request: Request) -> Result<String, u16> {
        let read = async |request: Request| to_bytes(request.into_body(), 1_000).await.unwrap();
        match gate.pass(request, read).await {
            Ok(bytes) => Ok(String::from_utf8(bytes.to_vec()).unwrap()),
            Err(problem) => Err(problem.response().status().as_u16()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_answered_408_after_its_time() {
        let begun = Instant::now();
        let head = futures::stream::iter([Ok("{\"run_id\":".to_owned())]);
        assert_eq!(passed(&gate(1), request(head.chain(futures::stream::pending()))).await, Err(408));
        assert_eq!(begun.elapsed(), JOB_BODY_TIME_MAX);
        assert_eq!(passed(&gate(1), whole(&"x".repeat(101))).await, Err(413));
        assert_eq!(passed(&gate(1), whole(&"x".repeat(100))).await, Ok("x".repeat(100)));
    }

    #[tokio::test]
    async fn slow_bodies_take_no_more_than_their_room_and_give_it_back() {
        let gate = gate(2);
        let mut slow = tokio::task::JoinSet::new();
        let mut sends = Vec::new();
        for _ in 0..2 {
            let (send, pieces) = futures::channel::mpsc::unbounded();
            let (gate, request) = (gate.clone(), request(pieces));
            slow.spawn(async move { passed(&gate, request).await });
            sends.push(send);
        }
        while gate.room.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(passed(&gate, whole("{}")).await, Err(503));
        for send in &sends {
            send.unbounded_send(Ok("{}".to_owned())).unwrap();
        }
        drop(sends);
        while let Some(ended) = slow.join_next().await {
            assert_eq!(ended.unwrap(), Ok("{}".to_owned()));
        }
        assert_eq!(passed(&gate, whole("{}")).await, Ok("{}".to_owned()));
    }
}
