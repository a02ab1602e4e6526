//! What an instance waits for, in the words of the API and the command line.

use std::fmt;

use crate::clock::Timestamp;
use crate::decision::board::choose::Pass;
use crate::decision::board::engine::engine_of;
use crate::decision::board::order::Turn;
use crate::decision::board::{Board, Limits, is_busy};
use crate::model::id::{EngineName, InstanceId, QueueName};
use crate::model::instance::{Instance, InstanceState, ParkReason, WaitReason};

/// The first reason why an instance does not run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// A look has to see its plan.
    Hinted,
    /// Somebody else seems to run it.
    WaitingForeign {
        /// Newest sign of life of the other runner.
        sign: Option<Timestamp>,
    },
    /// It is parked.
    Parked {
        /// Why.
        reason: ParkReason,
        /// What exactly.
        detail: String,
    },
    /// Its end was asked for and is being brought about.
    CancelAsked,
    /// Its attempt runs.
    Running,
    /// It waits until a time.
    Until {
        /// Why.
        reason: WaitReason,
    },
    /// Another instance of its table runs.
    TableBusy {
        /// Which.
        by: InstanceId,
    },
    /// No configured engine takes it; it will be parked.
    NoEngine {
        /// What was asked for.
        wanted: Option<String>,
    },
    /// Its queue is paused.
    QueuePaused {
        /// Which.
        queue: QueueName,
    },
    /// Its queue has as many live attempts as it may.
    QueueFull {
        /// Which.
        queue: QueueName,
        /// Live attempts.
        running: u32,
        /// As many as may be live.
        limit: u32,
    },
    /// Its engine has as many live attempts as it may.
    EngineFull {
        /// Which.
        engine: EngineName,
        /// Live attempts.
        running: u32,
        /// As many as may be live.
        running_max: u32,
    },
    /// Another instance of its table goes first.
    PassedOver {
        /// Which.
        by: InstanceId,
    },
    /// It was chosen and is being checked and submitted.
    Starting,
    /// It starts at the next pass.
    Turn,
}

/// What an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitsFor {
    /// Why.
    pub cause: WaitCause,
    /// When it may change; none = when the cause changes.
    pub until: Option<Timestamp>,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            WaitCause::Hinted => f.write_str("a look at the table has to see its plan"),
            WaitCause::WaitingForeign { sign: None } => {
                f.write_str("somebody else seems to run it; no sign of life was seen")
            }
            WaitCause::WaitingForeign { sign: Some(sign) } => {
                write!(f, "somebody else seems to run it; newest sign of life {}", shown(*sign))
            }
            WaitCause::Parked { reason, detail } => {
                write!(f, "parked ({}): {detail}; to release it: {}", reason.as_str(), reason.way_out())
            }
            WaitCause::CancelAsked => f.write_str("it is being cancelled"),
            WaitCause::Running => f.write_str("its job runs"),
            WaitCause::Until { reason } => f.write_str(match reason {
                WaitReason::Ready => "its time",
                WaitReason::Backoff => "an attempt failed; the back-off runs",
                WaitReason::LockHeld => "the lock of the table is held",
                WaitReason::HeartbeatRefused => {
                    "Hudi sees the heartbeat of another runner; it clears about 2 minutes after that one ended"
                }
                WaitReason::NoLeave => "its job left without touching the table",
                WaitReason::EngineRefused => "the engine refused it for now",
                WaitReason::Upheaval => "a restore or savepoint of the table is under way",
                WaitReason::Unreadable => "the table cannot be read",
            }),
            WaitCause::TableBusy { by } => write!(f, "the table is busy with instance {by}"),
            WaitCause::NoEngine { wanted: None } => f.write_str("no engine is configured for it"),
            WaitCause::NoEngine { wanted: Some(wanted) } => {
                write!(f, "no configured engine is {wanted:?} or serves it")
            }
            WaitCause::QueuePaused { queue } => write!(f, "the queue {queue} is paused"),
            WaitCause::QueueFull { queue, running, limit } => {
                write!(f, "the queue {queue} is full: {running} of {limit} running")
            }
            WaitCause::EngineFull { engine, running, running_max } => {
                write!(f, "the engine {engine} is full: {running} of {running_max} running")
            }
            WaitCause::PassedOver { by } => write!(f, "instance {by} of the same table goes first"),
            WaitCause::Starting => f.write_str("nothing; it is being started"),
            WaitCause::Turn => f.write_str("nothing; it starts at the next pass"),
        }?;
        match self.until {
            Some(until) => write!(f, " (until {})", shown(until)),
            None => Ok(()),
        }
    }
}

fn shown(at: Timestamp) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

impl Board {
    /// Returns what an instance waits for: the first reason; none when it is not on the board or has ended.
    #[must_use]
    pub fn why_waiting(&self, id: InstanceId, limits: &Limits<'_>, now: Timestamp) -> Option<WaitsFor> {
        let instance = self.get(id)?;
        if instance.state.is_ended() {
            return None;
        }
        let (cause, until) = match &instance.state {
            _ if instance.cancel_asked.is_some() => (WaitCause::CancelAsked, None),
            _ if is_busy(instance) && !matches!(instance.state, InstanceState::Parked { .. }) => {
                (WaitCause::Running, None)
            }
            InstanceState::Hinted => (WaitCause::Hinted, None),
            InstanceState::WaitingForeign { sign, .. } => (WaitCause::WaitingForeign { sign: *sign }, None),
            InstanceState::Parked { reason, detail, .. } => {
                (WaitCause::Parked { reason: *reason, detail: detail.clone() }, None)
            }
            InstanceState::Pending { reason, not_before: Some(at) } if *at > now => {
                (WaitCause::Until { reason: *reason }, Some(*at))
            }
            _ => (self.why_not_started(instance, limits), None),
        };
        Some(WaitsFor { cause, until })
    }

    fn why_not_started(&self, instance: &Instance, limits: &Limits<'_>) -> WaitCause {
        let table = instance.key.table;
        if self.reserved.contains_key(&instance.id) {
            return WaitCause::Starting;
        }
        if let Some(by) = self.busy_with(table) {
            return WaitCause::TableBusy { by };
        }
        let wanted = instance.execution_engine.as_deref();
        let queue = instance.queue.clone();
        let Some(engine) = engine_of(&queue, wanted, limits) else {
            return WaitCause::NoEngine { wanted: wanted.map(str::to_owned) };
        };
        if let Some(settings) = limits.queues.get(&queue) {
            let (running, limit) = (self.running.queue(&queue), settings.limit);
            if settings.is_paused {
                return WaitCause::QueuePaused { queue };
            }
            if limit > 0 && running >= limit {
                return WaitCause::QueueFull { queue, running, limit };
            }
        }
        let running_max = limits.engines.get(engine).map_or(0, |engine| engine.running_max);
        let running = self.running.engine(engine);
        if running >= running_max {
            return WaitCause::EngineFull { engine: engine.clone(), running, running_max };
        }
        let (heads, turn) = Pass::new(self, limits).turn_of(table, false);
        match turn {
            Turn::Take { index, .. } | Turn::KeepFor { index } if heads[index].id != instance.id => {
                WaitCause::PassedOver { by: heads[index].id }
            }
            _ => WaitCause::Turn,
        }
    }
}
