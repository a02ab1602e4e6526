//! Instances with attempts and events.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tms_core::engine::LogTail;
use tms_core::manager::instance::{InstanceDetail, InstanceView};
use tms_core::model::attempt::{Attempt, Holder};
use tms_core::model::event::{Actor, Event};
use tms_core::model::instance::{InstanceState, ParkReason};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::dto::{int32, int64, tasks};
use crate::redact;

/// A percentage that only the timeline can complete.
pub(in crate::api) const PERCENT_MAX: u8 = 99;

/// One table service to be run.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Instance)]
pub struct InstanceDto {
    /// Identity.
    pub id: Uuid,
    /// Identity of its table: 32 hex digits.
    pub table_id: String,
    /// Canonical base path of its table.
    pub base_path: String,
    /// Name of its table.
    pub table_name: Option<String>,
    /// compaction, logcompaction, clustering or clean.
    #[schema(example = "compaction")]
    pub action: String,
    /// Requested time of the plan; absent for work that has no plan yet.
    #[schema(example = "20261130093909077")]
    pub instant: Option<String>,
    /// hinted, pending, waiting_foreign, parked, active, succeeding, succeeded, failed, cancelled or obsolete.
    #[schema(example = "active")]
    pub state: String,
    /// Whether it has not ended.
    pub is_live: bool,
    /// Why it waits or is held, as a word.
    pub reason: Option<String>,
    /// What exactly, for people.
    pub detail: Option<String>,
    /// What a person can do, when it is held.
    pub way_out: Option<String>,
    /// What it waits for, for people.
    pub waits_for: Option<String>,
    /// It is not started before this time.
    pub not_before: Option<DateTime<Utc>>,
    /// Queue.
    pub queue: String,
    /// Engine family that the request named.
    pub execution_engine: Option<String>,
    /// Higher first.
    pub priority: i32,
    /// What told TMS of it first: callback, client, api, heartbeat or policy.
    pub trigger: String,
    /// What the plan tells of its size.
    pub plan: PlanDto,
    /// The attempt that is live, or the last one.
    pub attempt: Option<AttemptDto>,
    /// Attempts so far.
    pub n_attempts: u32,
    /// Attempts that failed and count against the limit.
    pub n_failed: u32,
    /// Text of the last failure.
    pub last_error: Option<String>,
    /// Somebody asked to cancel it.
    pub cancel_asked: Option<CancelAskedDto>,
    /// A person allowed to run it although somebody else seems to.
    pub take_over: bool,
    /// Its engine is a simulation: nothing real runs.
    pub is_simulation: bool,
    /// Its jobs ask for leave before they touch the table; absent before the first attempt.
    pub is_fenced: Option<bool>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it changed last.
    pub updated_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Number of changes.
    pub version: u64,
}

/// What a plan tells of its size.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PlanSize)]
pub struct PlanDto {
    /// File groups that it rewrites.
    pub file_groups: Option<u64>,
    /// Log files that it reads.
    pub log_files: Option<u64>,
    /// Bytes that it reads.
    pub bytes: Option<u64>,
    /// Partitions that it touches.
    pub partitions: Option<u64>,
}

/// A wish to stop an instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = CancelAsked)]
pub struct CancelAskedDto {
    /// Who.
    pub by: String,
    /// When.
    pub at: DateTime<Utc>,
}

/// One submission to an engine.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub struct AttemptDto {
    /// 1, 2, …
    pub number: u32,
    /// Its name for engines.
    pub tag: String,
    /// Engine that it went to.
    pub engine: String,
    /// How the job executes the action.
    pub launcher: String,
    /// Its driver asks for leave.
    pub is_fenced: bool,
    /// intended, called, unknown, accepted, holding, suspect, revoked or over.
    pub state: String,
    /// Random id of the driver that has leave; absent when none has.
    pub holder: Option<String>,
    /// No driver ever gets leave.
    pub is_revoked: bool,
    /// Leadership that intended it.
    pub term: u64,
    /// What the job must find on the timeline.
    pub expected: String,
    /// When it was stored.
    pub intended_at: DateTime<Utc>,
    /// When the engine was called.
    pub called_at: Option<DateTime<Utc>>,
    /// When the engine had it.
    pub accepted_at: Option<DateTime<Utc>>,
    /// When a driver got leave first.
    pub leave_at: Option<DateTime<Utc>>,
    /// When the holder was told to make its call.
    pub call_at: Option<DateTime<Utc>>,
    /// When its driver spoke last.
    pub heard_at: Option<DateTime<Utc>>,
    /// When the engine or the job was first seen ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it was over.
    pub over_at: Option<DateTime<Utc>>,
    /// What proves that it is over.
    pub proof: Option<String>,
    /// What the engine said last.
    pub engine_word: Option<String>,
    /// What its driver said of its progress.
    pub progress: Option<ProgressDto>,
    /// How its driver said it ended.
    pub report: Option<ReportDto>,
    /// How it ended.
    pub end: Option<String>,
    /// Kills that were sent.
    pub n_kills: u32,
}

/// What a driver said of its progress.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressDto {
    /// What it does.
    pub phase: String,
    /// Tasks ended.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub tasks_done: u64,
    /// Tasks known so far; may grow.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub tasks_total: u64,
    /// 0 to 99; only the timeline makes it whole.
    #[schema(maximum = 99)]
    pub percent: u8,
}

/// How a driver said it ended. A hint, never the verdict.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Report)]
pub struct ReportDto {
    /// returned, threw, untouched, stopped or timed_out.
    pub outcome: String,
    /// Exit code that it was about to give.
    pub exit_code: i32,
    /// Chain of causes, cut.
    pub error: Vec<String>,
    /// Result rows, cut.
    pub rows: Vec<String>,
    /// When it came.
    pub at: DateTime<Utc>,
}

/// One entry of the history.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventDto {
    /// When.
    pub at: DateTime<Utc>,
    /// Who: `service`, `writer`, `driver` or `user`.
    pub actor: String,
    /// Name that a user gave, or the term of a service.
    pub actor_detail: Option<String>,
    /// State before; empty for the first entry.
    pub from: String,
    /// State after.
    pub to: String,
    /// Attempt that it concerns.
    pub attempt: Option<u32>,
    /// Why.
    pub reason: String,
}

/// One instance with its past.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = InstanceDetail)]
pub struct InstanceDetailDto {
    /// The instance.
    #[serde(flatten)]
    pub instance: InstanceDto,
    /// Attempts that are over, oldest first.
    pub past_attempts: Vec<AttemptDto>,
    /// What happened, oldest first.
    pub events: Vec<EventDto>,
}

/// A request for one instance.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = AddInstance)]
#[serde(deny_unknown_fields)]
pub struct AddInstanceDto {
    /// Base path or id of the table.
    pub table: String,
    /// compaction, clustering or clean.
    #[schema(example = "compaction")]
    pub action: String,
    /// Requested time of the plan; a clean may have none.
    #[serde(default)]
    pub instant: Option<String>,
    /// Queue; `default` when absent.
    #[serde(default)]
    pub queue: Option<String>,
    /// Higher first; 0 when absent.
    #[serde(default)]
    pub priority: Option<i32>,
}

/// How an instance is tried again.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = RetryInstance)]
#[serde(default, deny_unknown_fields)]
pub struct RetryInstanceDto {
    /// Run it although somebody else seems to: only when it is certain that nobody does.
    pub take_over: bool,
}

/// The end of a job's log.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = LogTail)]
pub struct LogTailDto {
    /// Text, with secrets struck.
    pub text: String,
    /// Where the whole log is.
    pub address: Option<String>,
    /// The text is only the end.
    pub is_cut: bool,
}

fn shown(text: &str) -> String {
    redact::text(text).into_owned()
}

/// Returns the word that serde has for a plain enum.
pub(in crate::api) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// What a person can do; with the command where one command does it.
fn way_out(reason: ParkReason, path: &str) -> String {
    match reason {
        ParkReason::NoLock => {
            format!("{}: `tms table register {} --concurrency locked`", reason.way_out(), shown(path))
        }
        _ => reason.way_out().to_owned(),
    }
}

impl From<InstanceView> for InstanceDto {
    fn from(view: InstanceView) -> Self {
        let instance = view.instance;
        let (reason, detail, way_out, not_before) = match &instance.state {
            InstanceState::Pending { reason, not_before } => (Some(word(reason)), None, None, *not_before),
            InstanceState::Parked { reason, detail, .. } => (
                Some(reason.as_str().to_owned()),
                Some(shown(detail)),
                Some(way_out(*reason, &view.table_path)),
                None,
            ),
            _ => (None, None, None, None),
        };
        Self {
            id: instance.id.0,
            table_id: instance.key.table.to_string(),
            base_path: shown(&view.table_path),
            table_name: view.table_name.as_deref().map(shown),
            action: instance.key.action.to_string(),
            instant: instance.key.instant.map(|i| i.to_string()),
            state: instance.state.as_str().to_owned(),
            is_live: !instance.state.is_ended(),
            reason,
            detail,
            way_out,
            waits_for: view.waits_for.as_deref().map(shown),
            not_before,
            queue: instance.queue.to_string(),
            execution_engine: instance.execution_engine.as_deref().map(shown),
            priority: instance.priority,
            trigger: word(instance.trigger),
            plan: PlanDto {
                file_groups: instance.plan.file_groups.map(int64),
                log_files: instance.plan.log_files.map(int64),
                bytes: instance.plan.bytes.map(int64),
                partitions: instance.plan.partitions.map(int64),
            },
            attempt: instance.attempt.map(|attempt| AttemptDto::from(*attempt)),
            n_attempts: int32(instance.n_attempts),
            n_failed: int32(instance.n_failed),
            last_error: instance.last_error.as_deref().map(shown),
            cancel_asked: instance.cancel_asked.map(|c| CancelAskedDto { by: shown(&c.by), at: c.at }),
            take_over: instance.take_over,
            is_simulation: view.is_simulation,
            is_fenced: view.is_fenced,
            created_at: instance.created_at,
            updated_at: instance.updated_at,
            ended_at: instance.ended_at,
            version: int64(instance.version.0),
        }
    }
}

impl From<Attempt> for AttemptDto {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: int32(attempt.number),
            tag: attempt.tag.to_string(),
            engine: attempt.engine.to_string(),
            is_fenced: attempt.launcher.is_fenced(),
            launcher: word(attempt.launcher),
            state: attempt.state.as_str().to_owned(),
            is_revoked: attempt.holder == Holder::Revoked,
            holder: match attempt.holder {
                Holder::Run(run) => Some(run.to_string()),
                Holder::None | Holder::Revoked => None,
            },
            term: int64(attempt.term.0),
            expected: word(attempt.expected),
            intended_at: attempt.intended_at,
            called_at: attempt.called_at,
            accepted_at: attempt.accepted_at,
            leave_at: attempt.leave_at,
            call_at: attempt.call_at,
            heard_at: attempt.heard_at,
            ended_at: attempt.ended_at,
            over_at: attempt.over_at,
            proof: attempt.proof.as_deref().map(shown),
            engine_word: attempt.engine_word.as_deref().map(shown),
            progress: attempt.progress.map(|p| ProgressDto {
                phase: shown(&p.phase),
                tasks_done: tasks(p.tasks_done),
                tasks_total: tasks(p.tasks_total),
                percent: p.percent.min(PERCENT_MAX),
            }),
            report: attempt.report.map(|r| ReportDto {
                outcome: shown(&r.outcome),
                exit_code: r.exit_code,
                error: r.error.iter().map(|line| shown(line)).collect(),
                rows: r.rows.iter().map(|line| shown(line)).collect(),
                at: r.at,
            }),
            end: attempt.end.map(word),
            n_kills: int32(attempt.n_kills),
        }
    }
}

impl From<Event> for EventDto {
    fn from(event: Event) -> Self {
        let (actor, actor_detail) = match event.actor {
            Actor::Service(term) => ("service", Some(format!("term {term}"))),
            Actor::Writer => ("writer", None),
            Actor::Driver => ("driver", None),
            Actor::User(name) => ("user", Some(shown(&name))),
        };
        Self {
            at: event.at,
            actor: actor.to_owned(),
            actor_detail,
            from: event.from,
            to: event.to,
            attempt: event.attempt.map(int32),
            reason: shown(&event.reason),
        }
    }
}

impl From<InstanceDetail> for InstanceDetailDto {
    fn from(detail: InstanceDetail) -> Self {
        Self {
            instance: detail.view.into(),
            past_attempts: detail.past_attempts.into_iter().map(AttemptDto::from).collect(),
            events: detail.events.into_iter().map(EventDto::from).collect(),
        }
    }
}

impl From<LogTail> for LogTailDto {
    fn from(tail: LogTail) -> Self {
        Self { text: shown(&tail.text), address: tail.address, is_cut: tail.is_cut }
    }
}
