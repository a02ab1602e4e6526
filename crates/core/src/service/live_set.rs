//! Brings the leader's live set up to the store as a whole: at the start of a term, beside the other Services, so that the
//! first attempt does not wait for a million rows; and again when more was changed than could be named.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::service::leader::Leader;
use crate::service::{Held, LeaderService, Loop};

/// Pause after a sweep that the store did not let through.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// Loads the live set.
#[derive(Debug, Default)]
pub struct LiveSetService;

#[async_trait]
impl LeaderService for LiveSetService {
    fn name(&self) -> &'static str {
        "live set"
    }

    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error> {
        let held = Arc::clone(leader);
        Ok(Box::new(Loop::start(self.name(), leader, |stop| run(held, stop))))
    }
}

async fn run(leader: Arc<Leader>, stop: CancellationToken) {
    loop {
        let swept = tokio::select! {
            () = stop.cancelled() => return,
            swept = leader.sweep() => swept,
        };
        let is_whole = swept.is_ok();
        if let Err(error) = swept {
            leader.heed(&error);
            tracing::warn!(error = error.chain(), "Failed to read the live instances; it is tried again.");
        }
        let pause = async {
            if is_whole {
                leader.wakes.sweep.woken().await;
            } else {
                tokio::time::sleep(FAILED_PAUSE).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = pause => {}
        }
    }
}
