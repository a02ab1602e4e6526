//! What handlers get: Managers and what describes this process. Nothing that changes but a short-lived answer of probes.

use std::sync::Arc;

use axum::http::HeaderMap;
use metrics_exporter_prometheus::PrometheusHandle;
use tms_core::clock::Clock;
use tms_core::manager::Managers;
use tokio::sync::Semaphore;

use crate::api::health::Probes;
use crate::guard::Guard;

/// What handlers get.
#[derive(Clone)]
pub struct App {
    /// Everything that can be asked of the domain.
    pub managers: Managers,
    /// Who may talk to the server.
    pub guard: Arc<Guard>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics of this process.
    pub metrics: PrometheusHandle,
    /// Answers of slow probes, kept for a moment.
    pub probes: Arc<Probes>,
    /// Room for requests that read a table themselves.
    pub advice: Arc<Semaphore>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
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
