//! What drivers ask: leave, progress, end. Every answer rests on the store and on the timeline as it is now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::clock::{Clock, Timestamp};
use crate::decision::job_options::job_options;
use crate::decision::leave::{NoLeave, leave_allowed};
use crate::decision::transition::{Change, apply, state_word};
use crate::engine::Engines;
use crate::error::{Error, ErrorKind};
use crate::fail_point::{self, FailPoint};
use crate::manager::{CONFLICT_RETRIES_MAX, ManagerParts, is_conflict, note_change, too_many_conflicts};
use crate::model::action::{Action, Instant};
use crate::model::attempt::{
    Attempt, AttemptState, DriverPlace, Expected, Holder, JobReport, Progress, token_hash,
};
use crate::model::event::{Actor, Event, cut};
use crate::model::id::{RunId, Tag};
use crate::model::instance::Instance;
use crate::model::policy::TableDefaults;
use crate::preflight::preflight;
use crate::store::{Expect, InstanceWrite, Store};
use crate::timeline::TimelineSource;
use crate::wake::Wakes;

/// Pace of a driver's progress reports.
pub const PROGRESS_EVERY_SECS: u64 = 10;
/// Time limit of a job whose engine is not configured any more: what an engine has that says nothing.
const RUN_TIMEOUT: Duration = Duration::from_secs(86_400);
/// Most lines of a report that are kept, and their length in bytes.
const REPORT_LINES_MAX: usize = 20;
const REPORT_LINE_BYTES_MAX: usize = 1_000;

/// When a driver asks for leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveStage {
    /// At its start.
    Start,
    /// Right before its call.
    Call,
}

/// A driver's question.
#[derive(Clone, Debug)]
pub struct LeaveAsk {
    /// Attempt.
    pub tag: Tag,
    /// Bearer token.
    pub token: String,
    /// Random id of the driver.
    pub run_id: RunId,
    /// When.
    pub stage: LeaveStage,
    /// Its process id, for the log.
    pub pid: Option<u32>,
    /// Its host, for the log.
    pub host: Option<String>,
}

/// What a driver is given with leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGrant {
    /// What it runs.
    pub action: Action,
    /// The path as it was announced.
    pub base_path: String,
    /// Label.
    pub table_name: Option<String>,
    /// The instant; none = plan and run (clean).
    pub instant: Option<Instant>,
    /// What it must find on the timeline.
    pub expected: Expected,
    /// Options of the procedure's call.
    pub options: BTreeMap<String, String>,
    /// Settings of its session.
    pub session: BTreeMap<String, String>,
    /// Its own time limit, in seconds.
    pub run_timeout_secs: u64,
    /// Pace of its progress reports, in seconds.
    pub progress_every_secs: u64,
}

/// The answer to a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaveAnswer {
    /// It may go on.
    Given(Box<LeaveGrant>),
    /// It must exit untouched.
    Refused {
        /// Word.
        reason: String,
        /// Text.
        detail: String,
    },
}

/// What drivers ask.
#[derive(Clone, Debug)]
pub struct AttemptManager {
    store: Arc<dyn Store>,
    engines: Engines,
    timelines: Arc<dyn TimelineSource>,
    clock: Arc<dyn Clock>,
    wakes: Wakes,
    defaults: TableDefaults,
}

impl AttemptManager {
    pub(super) fn new(parts: &ManagerParts) -> Self {
        Self {
            store: Arc::clone(&parts.store),
            engines: parts.engines.clone(),
            timelines: Arc::clone(&parts.timelines),
            clock: Arc::clone(&parts.clock),
            wakes: parts.wakes.clone(),
            defaults: parts.defaults.clone(),
        }
    }

    /// Gives leave to exactly one driver of an attempt, or tells a driver to exit untouched.
    ///
    /// # Errors
    /// `NotFound` for an unknown tag, `Denied` for a wrong token, `Unavailable` when it cannot be told now.
    pub async fn leave(&self, ask: &LeaveAsk) -> Result<LeaveAnswer, Error> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            let instance = self.authorized(&ask.tag, &ask.token).await?;
            let refusal = |refused: NoLeave| {
                metrics::counter!("tms_leave_refused_total", "reason" => refused.reason).increment(1);
                tracing::info!(
                    instance = %instance.id, attempt = ask.tag.attempt(), tag = %ask.tag, run = %ask.run_id,
                    reason = refused.reason, "Refused leave."
                );
                Ok(LeaveAnswer::Refused { reason: refused.reason.to_owned(), detail: refused.detail })
            };
            let Some(attempt) = instance.attempt.clone().filter(|a| a.tag == ask.tag) else {
                return refusal(no_leave("attempt_over", "a later attempt exists"));
            };
            let place = match (&ask.host, ask.pid) {
                (Some(host), Some(pid)) => Some(DriverPlace { host: host.clone(), pid }),
                _ => None,
            };
            let is_call = ask.stage == LeaveStage::Call;
            let change = Change::Leave { run: ask.run_id.clone(), is_call, place };
            if attempt.state == AttemptState::Intended {
                return Err(Error::new(ErrorKind::Unavailable, "give leave").with("tag", &ask.tag));
            }
            // First without any look, so that a driver of an old attempt learns it even when the table is unreadable.
            let applied = match apply(&instance, change, self.clock.now()) {
                Ok(applied) => applied,
                Err(refused) => return refusal(no_leave(refusal_word(&attempt, &ask.run_id), &refused.what)),
            };
            let grant = match self.checked_grant(&instance, &attempt).await? {
                Ok(grant) => grant,
                Err(refused) => return refusal(refused),
            };
            let reason = match ask.stage {
                LeaveStage::Start => "a driver got leave",
                LeaveStage::Call => "the driver was told to make its call",
            };
            fail_point::pass(FailPoint::LeaveChecked);
            match self.store_change(&instance, applied.after, true, reason).await {
                Err(e) if is_conflict(&e) => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    fail_point::pass(FailPoint::LeaveStored);
                    tracing::debug!(
                        instance = %instance.id, attempt = attempt.number, term = %attempt.term, tag = %ask.tag,
                        run = %ask.run_id, pid = ask.pid, stage = ?ask.stage, "Gave leave."
                    );
                    return Ok(LeaveAnswer::Given(Box::new(grant)));
                }
            }
        }
        Err(too_many_conflicts("give leave").with("tag", &ask.tag))
    }

    /// Repeats the check before the submission, and makes what goes with leave.
    async fn checked_grant(
        &self,
        instance: &Instance,
        attempt: &Attempt,
    ) -> Result<Result<LeaveGrant, NoLeave>, Error> {
        let Some(record) = self.store.get_table(instance.key.table).await? else {
            return Ok(Err(no_leave("table_removed", "the table was removed from TMS")));
        };
        let effective = self.defaults.effective(&record.table.settings);
        let now = self.clock.now();
        let found =
            preflight(&*self.timelines, &record, instance, &effective, now.into()).await.map_err(|e| {
                Error::new(ErrorKind::Unavailable, "check the table before leave")
                    .with("table", record.table.id)
                    .caused_by(e)
            })?;
        if let Err(refused) = leave_allowed(&found.verdict, attempt.expected) {
            return Ok(Err(refused));
        }
        let options = match job_options(&effective, &found.sight.facts, instance.key.action) {
            Ok(options) => options,
            Err(bad) => return Ok(Err(no_leave("bad_option", &format!("{}: {}", bad.key, bad.why)))),
        };
        let run_timeout =
            self.engines.get(&attempt.engine).map_or(RUN_TIMEOUT, |e| e.capabilities().run_timeout).as_secs();
        let instant = instance.key.instant.as_ref().or(attempt.takes.as_ref());
        if let Some(taken) = &attempt.takes
            && found.sight.pending(Action::Clean, taken).is_none()
        {
            return Ok(Err(no_leave("missing", "the clean to be taken over is not pending any more")));
        }
        Ok(Ok(LeaveGrant {
            action: instance.key.action,
            base_path: record.spelling().to_owned(),
            table_name: record.touch.name.clone().or_else(|| found.sight.name.clone()),
            instant: instant.cloned(),
            expected: attempt.expected,
            options,
            session: BTreeMap::new(),
            run_timeout_secs: run_timeout,
            progress_every_secs: PROGRESS_EVERY_SECS,
        }))
    }

    /// Notes that a driver lives, and answers whether it should stop.
    ///
    /// # Errors
    /// As [`Self::leave`].
    pub async fn progress(
        &self,
        tag: &Tag,
        token: &str,
        run: &RunId,
        progress: Progress,
    ) -> Result<bool, Error> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            let instance = self.authorized(tag, token).await?;
            let instance = match adopted(&instance, tag, run, self.clock.now()) {
                Some(adopted) => adopted,
                None => instance,
            };
            let Some(attempt) = holder_of(&instance, tag, run) else { return Ok(true) };
            let stop = instance.cancel_asked.is_some() || attempt.n_kills > 0;
            let heard = Change::Heard(Some(progress.clone()));
            let Ok(applied) = apply(&instance, heard, self.clock.now()) else { return Ok(true) };
            match self
                .store_change(&instance, applied.after, applied.is_event, "the driver spoke again")
                .await
            {
                Err(e) if is_conflict(&e) => {}
                Err(e) => return Err(e),
                Ok(()) => return Ok(stop),
            }
        }
        Err(too_many_conflicts("note progress").with("tag", tag))
    }

    /// Notes how a driver said it ended. A hint to look, never the verdict.
    ///
    /// # Errors
    /// As [`Self::leave`].
    pub async fn end(&self, tag: &Tag, token: &str, run: &RunId, mut report: JobReport) -> Result<(), Error> {
        report.at = self.clock.now();
        report.outcome = cut(&report.outcome, 40);
        for lines in [&mut report.error, &mut report.rows] {
            lines.truncate(REPORT_LINES_MAX);
            lines.iter_mut().for_each(|line| *line = cut(line, REPORT_LINE_BYTES_MAX));
        }
        for _ in 0..CONFLICT_RETRIES_MAX {
            let instance = self.authorized(tag, token).await?;
            let instance = match adopted(&instance, tag, run, self.clock.now()) {
                Some(adopted) => adopted,
                None => instance,
            };
            let is_current = instance.live_attempt().is_some_and(|a| a.tag == *tag);
            let is_other =
                instance.live_attempt().is_some_and(|a| matches!(&a.holder, Holder::Run(h) if h != run));
            if !is_current || is_other {
                return Ok(());
            }
            let text = format!("the driver reported {} (exit {})", report.outcome, report.exit_code);
            let Ok(applied) = apply(&instance, Change::Report(report.clone()), self.clock.now()) else {
                return Ok(());
            };
            match self.store_change(&instance, applied.after, true, &text).await {
                Err(e) if is_conflict(&e) => {}
                done => {
                    fail_point::pass(FailPoint::EndStored);
                    return done;
                }
            }
        }
        Err(too_many_conflicts("note the end").with("tag", tag))
    }

    async fn store_change(
        &self,
        before: &Instance,
        after: Instance,
        is_event: bool,
        reason: &str,
    ) -> Result<(), Error> {
        let event = Event {
            at: after.updated_at,
            actor: Actor::Driver,
            from: state_word(before),
            to: state_word(&after),
            attempt: after.attempt.as_ref().map(|a| a.number),
            reason: reason.to_owned(),
        };
        let events = if is_event { vec![event.clone()] } else { Vec::new() };
        let write =
            InstanceWrite { expect: Expect::Version(before.version), after, events, past_attempt: None };
        let written = self.store.write(None, vec![write]).await?;
        self.wakes.instance_changed(before.id);
        if is_event && let Some(after) = written.first() {
            note_change(after, &event, "driver");
        }
        Ok(())
    }

    /// Checks the token of a tag, before anything else of a driver's request is read.
    ///
    /// # Errors
    /// `NotFound` for an unknown tag; `Denied` for another token.
    pub async fn check_token(&self, tag: &Tag, token: &str) -> Result<(), Error> {
        self.authorized(tag, token).await.map(drop)
    }

    /// Finds the instance of a tag and checks the token, in constant time, against the attempt that has the tag.
    async fn authorized(&self, tag: &Tag, token: &str) -> Result<Instance, Error> {
        let unknown = || Error::new(ErrorKind::NotFound, "find the attempt").with("tag", tag);
        let instance = self.store.get_instance(tag.instance()).await?.ok_or_else(unknown)?;
        let stored = match instance.attempt.as_ref().filter(|a| a.tag == *tag) {
            Some(attempt) => attempt.token_hash.clone(),
            None => {
                let past = self.store.past_attempts(instance.id).await?;
                past.into_iter().find(|a| a.tag == *tag).ok_or_else(unknown)?.token_hash
            }
        };
        let given = token_hash(token);
        if bool::from(stored.as_bytes().ct_eq(given.as_bytes())) {
            return Ok(instance);
        }
        Err(Error::new(ErrorKind::Denied, "take the driver's token").with("tag", tag))
    }
}

/// Returns the instance with this run as its holder, where the store was restored and does not know the holder.
fn adopted(instance: &Instance, tag: &Tag, run: &RunId, now: Timestamp) -> Option<Instance> {
    instance.live_attempt().filter(|a| a.tag == *tag && a.has_unknown_holder())?;
    apply(instance, Change::Adopt(run.clone()), now).ok().map(|applied| applied.after)
}

fn no_leave(reason: &'static str, detail: &str) -> NoLeave {
    NoLeave { reason, detail: detail.to_owned() }
}

fn refusal_word(attempt: &Attempt, run: &RunId) -> &'static str {
    match &attempt.holder {
        Holder::Revoked => "revoked",
        Holder::Run(holder) if holder != run => "held_by_another_run",
        _ if attempt.state.is_live() => "cancelled",
        _ => "attempt_over",
    }
}

fn holder_of<'a>(instance: &'a Instance, tag: &Tag, run: &RunId) -> Option<&'a Attempt> {
    instance.live_attempt().filter(|a| a.tag == *tag && a.holder == Holder::Run(run.clone()))
}
