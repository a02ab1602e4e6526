//! Alarms that stand for a state: raised when it begins, cleared when it is over, whoever ended it.

use crate::alert::{Alert, AlertKind, AlertSink};
use crate::model::attempt::AttemptState;
use crate::model::id::{InstanceId, TableId};
use crate::model::instance::{Instance, InstanceState, ParkReason};

/// Raises and clears the alarms that an instance's state stands for.
pub(crate) fn of_instance(alerts: &dyn AlertSink, instance: &Instance) {
    let subject = instance.id.to_string();
    match &instance.state {
        InstanceState::Parked { reason, detail, .. } => alerts.raise(&Alert {
            kind: AlertKind::InstanceParked,
            subject: subject.clone(),
            text: format!("parked ({}): {detail}; {}", reason.as_str(), reason.way_out()),
        }),
        _ => alerts.clear(AlertKind::InstanceParked, &subject),
    }
    let is_tag_taken = matches!(instance.state, InstanceState::Parked { reason: ParkReason::TagTaken, .. });
    if !is_tag_taken && !instance.takes_slot() {
        alerts.clear(AlertKind::TagTaken, &subject);
    }
    if instance.attempt_state() != Some(AttemptState::Accepted) {
        alerts.clear(AlertKind::EngineTrouble, &subject);
    }
    if instance.state == InstanceState::Failed {
        let error = instance.last_error.as_deref().unwrap_or("no reason was given");
        alerts.raise(&Alert {
            kind: AlertKind::InstanceFailed,
            subject,
            text: format!(
                "the {} failed {} times and is not tried again: {error}; see `tms instance logs {}`",
                instance.key.action, instance.n_failed, instance.id
            ),
        });
    } else {
        alerts.clear(AlertKind::InstanceFailed, &subject);
    }
}

/// Clears the alarms of an instance that was removed.
pub(crate) fn forget_instance(alerts: &dyn AlertSink, id: InstanceId) {
    for kind in
        [AlertKind::InstanceParked, AlertKind::InstanceFailed, AlertKind::TagTaken, AlertKind::EngineTrouble]
    {
        alerts.clear(kind, &id.to_string());
    }
}

/// Clears the alarms that the time raised of what stood on a table.
pub(crate) fn forget_age(alerts: &dyn AlertSink, id: TableId) {
    for kind in [AlertKind::PlanUnserved, AlertKind::LockOld] {
        alerts.clear(kind, &id.to_string());
    }
}

/// Clears the alarms of a table that was removed.
pub(crate) fn forget_table(alerts: &dyn AlertSink, id: TableId) {
    for kind in [
        AlertKind::TableUnreadable,
        AlertKind::DamageSuspected,
        AlertKind::NotHandedOver,
        AlertKind::PlanUnserved,
        AlertKind::LockOld,
        AlertKind::VersionChanged,
    ] {
        alerts.clear(kind, &id.to_string());
    }
}
