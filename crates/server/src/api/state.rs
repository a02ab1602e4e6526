//! What handlers get: Managers and what describes this process. Nothing that changes but a short-lived answer of probes.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use metrics::{Counter, Histogram};
use metrics_exporter_prometheus::PrometheusHandle;
use tms_core::clock::Clock;
use tms_core::manager::Managers;
use tokio::sync::Semaphore;

use crate::api::health::Probes;
use crate::api::job_gate::JobGate;
use crate::guard::Guard;

/// What handlers get, shared: every layer of every request clones it.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

impl App {
    /// Shares what handlers get.
    #[must_use]
    pub fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// What the clones of an [`App`] share.
pub struct Shared {
    /// Everything that can be asked of the domain.
    pub managers: Managers,
    /// Who may talk to the server.
    pub guard: Guard,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics of this process.
    pub metrics: PrometheusHandle,
    /// Answers of slow probes, kept for a moment.
    pub probes: Probes,
    /// When a refused writer was logged last.
    pub refused: Seldom,
    /// Counter and time of the answer that nearly all writers get; made at its first use.
    pub callback_taken: OnceLock<(Counter, Histogram)>,
    /// Room and time for requests of drivers.
    pub jobs: JobGate,
    /// Room for requests that read a table themselves.
    pub advice: Arc<Semaphore>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Lets something that may come with every request into the log once a minute.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Duration>>);

/// Time between two lines of one kind.
const SELDOM: Duration = Duration::from_secs(60);

impl Seldom {
    /// Tells whether it is time again; `now` on the monotonic clock.
    pub fn may_tell(&self, now: Duration) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = last.is_none_or(|last| now.saturating_sub(last) >= SELDOM);
        if is_time {
            *last = Some(now);
        }
        is_time
    }
}

/// Header in which a caller says who it is. A label for the history, never a proof.
pub const USER_HEADER: &str = "tms-user";
/// Longest name that is kept, in characters.
const USER_CHARS_MAX: usize = 64;

/// Returns the name that a caller gave itself.
#[must_use]
pub fn user_of(headers: &HeaderMap) -> String {
    let given = headers.get(USER_HEADER).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name: String = given.chars().filter(|c| !c.is_control()).take(USER_CHARS_MAX).collect();
    if name.is_empty() { "api".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_told_once_a_minute() {
        let seldom = Seldom::default();
        let told = |secs: u64| seldom.may_tell(Duration::from_secs(secs));
        assert_eq!([0, 1, 59, 60, 61, 119, 120].map(told), [true, false, false, true, false, false, true]);
    }
}
