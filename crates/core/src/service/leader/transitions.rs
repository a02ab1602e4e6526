//! The metrics of transitions.

use crate::clock::Timestamp;
use crate::model::event::Event;
use crate::model::instance::{Instance, InstanceState};

/// Moves the metrics of one transition. No label grows with tables.
pub(super) fn count(instance: &Instance, event: &Event) {
    let action = instance.key.action.as_str();
    let engine = instance.attempt.as_ref().map_or_else(|| "none".to_owned(), |a| a.engine.to_string());
    metrics::counter!("tms_transitions_total", "action" => action, "to" => instance.state.as_str())
        .increment(1);
    let seconds = |from: Timestamp| (event.at - from).to_std().unwrap_or_default().as_secs_f64();
    match (&instance.state, &instance.attempt) {
        (InstanceState::Active, Some(attempt)) if event.to.ends_with("/intended") => {
            metrics::counter!("tms_attempts_total", "action" => action, "engine" => engine.clone())
                .increment(1);
            if attempt.number > 1 {
                metrics::counter!("tms_retries_total", "action" => action, "engine" => engine).increment(1);
            } else {
                // Back-off and parked time of later attempts are no scheduling.
                metrics::histogram!("tms_scheduling_seconds", "action" => action, "engine" => engine)
                    .record(seconds(instance.created_at));
            }
        }
        (InstanceState::Active, Some(attempt)) if event.to.ends_with("/accepted") => {
            metrics::histogram!("tms_submission_seconds", "action" => action, "engine" => engine)
                .record(seconds(attempt.intended_at));
        }
        (InstanceState::Succeeded, attempt) => {
            metrics::counter!("tms_succeeded_total", "action" => action, "engine" => engine.clone())
                .increment(1);
            if let Some(leave_at) = attempt.as_ref().and_then(|a| a.leave_at) {
                metrics::histogram!("tms_run_seconds", "action" => action, "engine" => engine)
                    .record(seconds(leave_at));
            }
        }
        (InstanceState::Failed, _) => {
            metrics::counter!("tms_failed_total", "action" => action, "engine" => engine).increment(1);
        }
        _ => {}
    }
}
