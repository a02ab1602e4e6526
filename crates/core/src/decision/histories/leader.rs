//! The leader of the world: it looks, chooses, submits, watches and judges with the real decisions, and knows only what a
//! leader can know.

use chrono::TimeDelta;

use crate::decision::board::{Board, Limits};
use crate::decision::histories::world::{PlanStatus, SILENCE, SubmitMood, World};
use crate::decision::judge::{
    Context, EngineSays, FailureClass, InstanceEnd, PlanState, Situation, Step, TimelineSays,
    classify_failure, judge, urgency,
};
use crate::decision::retry::{AfterFailure, backoff, verdict_after_failure};
use crate::decision::transition::{Change, Closing, Conclusion, Ending, Next};
use crate::engine::Force;
use crate::model::attempt::{Attempt, AttemptEnd, AttemptState, Expected, Holder, Launcher};
use crate::model::id::{EngineName, Incarnation, InstanceId, Tag, Term};
use crate::model::instance::{Instance, InstanceKey, InstanceState, ParkReason, PlanSize, WaitReason};
use crate::model::policy::RetryPolicy;

/// Time during which the absence of a submission proves nothing.
const SUBMIT_GRACE: TimeDelta = TimeDelta::seconds(600);
/// Time after which a hinted instant that never came is given up.
const HINT_GRACE: TimeDelta = TimeDelta::seconds(600);

impl World {
    /// A new leader knows what the store knows.
    pub(super) fn restart(&mut self) {
        let mut board = Board::new();
        for instance in self.store.values().filter(|i| !i.state.is_ended()) {
            board.put(instance.clone());
        }
        self.board = board;
    }

    pub(super) fn look(&mut self) {
        if !self.is_readable {
            return;
        }
        for (key, status) in self.plans.clone() {
            let is_pending = matches!(status, PlanStatus::Requested | PlanStatus::Inflight);
            match self.newest(&key).cloned() {
                None if is_pending => {
                    self.insert(key, InstanceState::Pending { reason: WaitReason::Ready, not_before: None })
                }
                Some(instance) if !instance.takes_slot() => self.look_at(&instance, status),
                _ => {}
            }
        }
        let hinted: Vec<Instance> = self.board.in_state("hinted").cloned().collect();
        for instance in hinted {
            if self.status(&instance.key).is_none() && self.now - instance.created_at >= HINT_GRACE {
                self.end(&instance, Ending::Obsolete);
            }
        }
    }

    fn look_at(&mut self, instance: &Instance, status: PlanStatus) {
        let is_pending = matches!(status, PlanStatus::Requested | PlanStatus::Inflight);
        match &instance.state {
            InstanceState::Succeeded | InstanceState::Obsolete if is_pending => {
                self.change(instance.id, Change::Reopen { take_over: false }).unwrap();
            }
            state if state.is_ended() => {}
            _ if instance.cancel_asked.is_some() && is_pending => self.end(instance, Ending::Cancelled),
            InstanceState::Hinted if is_pending => {
                self.change(instance.id, Change::SeenPending(PlanSize::default())).unwrap();
            }
            _ if status == PlanStatus::Completed => self.end(instance, Ending::Succeeded),
            _ if status == PlanStatus::Gone => self.end(instance, Ending::Obsolete),
            _ => {}
        }
    }

    fn end(&mut self, instance: &Instance, ending: Ending) {
        self.change(instance.id, Change::End(ending, String::new())).unwrap();
        self.check_ended(instance.id);
    }

    pub(super) fn pass(&mut self, mood: SubmitMood) {
        let limits = Limits { queues: &self.queues, engines: &self.engines };
        let chosen = self.board.choose(&limits, self.now, 10);
        assert!(chosen.no_engine.is_empty());
        for choice in chosen.start {
            if !self.may_submit(choice.id) {
                continue;
            }
            let tag = self.intend(choice.id, &choice.engine);
            for passed in choice.passed_over {
                self.change(passed, Change::PassedOver).unwrap();
            }
            self.change(choice.id, Change::Called).unwrap();
            self.take_submission(&tag, mood);
            let answer = match mood {
                SubmitMood::Accept | SubmitMood::AcceptQueued => Change::Accepted(tag.to_string()),
                SubmitMood::Refuse => Change::Conclude(Conclusion {
                    closing: Closing::Revoked,
                    end: AttemptEnd::NotCounted,
                    next: Next::Pending(WaitReason::EngineRefused, Some(self.now + TimeDelta::seconds(30))),
                    leaves_work: None,
                    reason: "refused".to_owned(),
                }),
                _ => Change::Unknown,
            };
            self.change(choice.id, answer).unwrap();
        }
    }

    /// The leader dies while it submits: before the call, or right after it.
    pub(super) fn crash_while_submitting(&mut self, is_called: bool) {
        let limits = Limits { queues: &self.queues, engines: &self.engines };
        let chosen = self.board.choose(&limits, self.now, 1);
        if let Some(choice) = chosen.start.first().filter(|choice| self.may_submit(choice.id)) {
            let tag = self.intend(choice.id, &choice.engine);
            if is_called {
                self.change(choice.id, Change::Called).unwrap();
                self.take_submission(&tag, SubmitMood::Accept);
            }
        }
        self.restart();
    }

    /// The check before a submission, on the timeline as it is now.
    fn may_submit(&mut self, id: InstanceId) -> bool {
        let instance = self.store[&id].clone();
        if !self.is_readable {
            return false;
        }
        match self.status(&instance.key) {
            Some(PlanStatus::Requested) => true,
            Some(PlanStatus::Inflight) => {
                assert!(instance.has_called, "only our drivers make an inflight in this world");
                true
            }
            Some(PlanStatus::Completed) => {
                self.end(&instance, Ending::Succeeded);
                false
            }
            Some(PlanStatus::Gone) | None => {
                self.end(&instance, Ending::Obsolete);
                false
            }
        }
    }

    fn intend(&mut self, id: InstanceId, engine: &EngineName) -> Tag {
        let number = self.store[&id].n_attempts + 1;
        let tag = Tag::of(&Incarnation("00000000".to_owned()), id, number);
        let attempt = Attempt {
            number,
            tag: tag.clone(),
            engine: engine.clone(),
            launcher: Launcher::Procedure,
            state: AttemptState::Intended,
            holder: Holder::None,
            holder_place: None,
            term: Term(1),
            token_hash: String::new(),
            handle: None,
            expected: Expected::Requested,
            takes: None,
            versions: None,
            baseline: None,
            rollbacks_before: None,
            intended_at: self.now,
            called_at: None,
            accepted_at: None,
            leave_at: None,
            call_at: None,
            heard_at: None,
            ended_at: None,
            over_at: None,
            proof: None,
            engine_word: None,
            progress: None,
            report: None,
            end: None,
            n_kills: 0,
            is_restored: false,
        };
        self.change(id, Change::Intend(Box::new(attempt))).unwrap();
        tag
    }

    pub(super) fn monitor(&mut self) {
        let watched: Vec<InstanceId> = self.board.with_live_attempt().map(|i| i.id).collect();
        for id in watched {
            self.judge_one(id);
        }
    }

    fn judge_one(&mut self, id: InstanceId) {
        let instance = self.store[&id].clone();
        let Some(attempt) = instance.live_attempt().cloned() else { return };
        let state = self.engine_says(&attempt.tag);
        let says = EngineSays::from(&state);
        let context = self.context_of(&instance, &attempt);
        let mut judged = judge(&Situation::of(&instance, says, TimelineSays::NotLooked, context).unwrap());
        if judged.steps.contains(&Step::LookNow) {
            let timeline = self.timeline_says(&instance.key);
            judged = judge(&Situation::of(&instance, says, timeline, context).unwrap());
            assert!(!judged.steps.contains(&Step::LookNow), "a look answers the wish for one");
        }
        let closing = match judged.closing() {
            Some(Step::Over { proof }) => Some(Closing::Over(proof.to_owned())),
            Some(_) => Some(Closing::Revoked),
            None => None,
        };
        for step in &judged.steps {
            match step {
                Step::CancelJob(force) => self.engine_cancels(&attempt.tag, *force == Force::Kill),
                Step::CancelOrphan => self.engine_cancels(&attempt.tag, true),
                Step::StopByHeartbeat => self.tell_to_stop(&attempt.tag),
                Step::End(end) => self.conclude(&instance, &attempt, *end, closing.clone().unwrap()),
                Step::Park(reason) => self.park(&instance, *reason, closing.clone()),
                Step::Accept => self.change(id, Change::Accepted(attempt.tag.to_string())).unwrap(),
                Step::BecomeUnknown => self.change(id, Change::Unknown).unwrap(),
                Step::BecomeSuspect => self.change(id, Change::Suspect).unwrap(),
                Step::BecomeHolding => self.change(id, Change::Heard(None)).unwrap(),
                Step::Succeeding => self.change(id, Change::Succeeding).unwrap(),
                Step::Stay
                | Step::LookNow
                | Step::AwaitSettle
                | Step::ShowUnreadable
                | Step::Revoke
                | Step::Over { .. }
                | Step::Event(_)
                | Step::Alarm(_) => {}
                Step::RepeatSubmit => panic!("every launcher of this world is fenced"),
            }
        }
    }

    fn context_of(&self, instance: &Instance, attempt: &Attempt) -> Context {
        let called = attempt.accepted_at.or(attempt.called_at).unwrap_or(attempt.intended_at);
        let wanted_for = instance.cancel_asked.as_ref().map_or(TimeDelta::zero(), |ask| self.now - ask.at);
        Context {
            is_fenced: attempt.launcher.is_fenced(),
            refuses_duplicates: false,
            within_submit_grace: self.now - called < SUBMIT_GRACE,
            is_settled: true,
            is_lost: !self.is_readable,
            heard_recently: attempt.heard_at.is_some_and(|at| self.now - at < SILENCE),
            job_reported_end: attempt.report.is_some(),
            is_overdue: false,
            urgency: urgency(wanted_for.to_std().unwrap_or_default()),
        }
    }

    fn timeline_says(&self, key: &InstanceKey) -> TimelineSays {
        if !self.is_readable {
            return TimelineSays::Unreadable;
        }
        match self.status(key) {
            Some(PlanStatus::Requested) => TimelineSays::Pending(PlanState::Requested),
            Some(PlanStatus::Inflight) => TimelineSays::Pending(PlanState::Inflight),
            Some(PlanStatus::Completed) => TimelineSays::Completed { files: 1 },
            Some(PlanStatus::Gone) | None => TimelineSays::Gone,
        }
    }

    fn park(&mut self, instance: &Instance, reason: ParkReason, closing: Option<Closing>) {
        let Some(closing) = closing else { return };
        let next = Next::Parked(reason, String::new());
        let conclusion = Conclusion {
            closing,
            end: AttemptEnd::NotCounted,
            next,
            leaves_work: None,
            reason: String::new(),
        };
        self.change(instance.id, Change::Conclude(conclusion)).unwrap();
    }

    fn conclude(&mut self, instance: &Instance, attempt: &Attempt, end: InstanceEnd, closing: Closing) {
        let (end, next) = match end {
            InstanceEnd::Succeeded => (AttemptEnd::Completed, Next::Succeeded),
            InstanceEnd::Obsolete => (AttemptEnd::PlanGone, Next::Obsolete),
            InstanceEnd::Cancelled => (AttemptEnd::Cancelled, Next::Cancelled),
            InstanceEnd::Unread => {
                let again = self.now + TimeDelta::seconds(30);
                (AttemptEnd::NotCounted, Next::Pending(WaitReason::Unreadable, Some(again)))
            }
            InstanceEnd::StillPending => self.still_pending(instance, attempt, &closing),
        };
        let conclusion = Conclusion { closing, end, next, leaves_work: None, reason: String::new() };
        self.change(instance.id, Change::Conclude(conclusion)).unwrap();
        self.check_ended(instance.id);
    }

    fn still_pending(&self, instance: &Instance, attempt: &Attempt, closing: &Closing) -> (AttemptEnd, Next) {
        let policy = RetryPolicy::default();
        let at = |wait: std::time::Duration| Some(self.now + TimeDelta::from_std(wait).unwrap());
        let class = match closing {
            Closing::Revoked => FailureClass::NotCounted(WaitReason::NoLeave),
            Closing::Over(_) => classify_failure(instance.key.action, attempt.report.as_ref(), "exit 1"),
        };
        match class {
            FailureClass::Counted => match verdict_after_failure(&policy, instance.n_failed + 1, 0.5) {
                AfterFailure::Retry { after } => {
                    (AttemptEnd::Failed, Next::Pending(WaitReason::Backoff, at(after)))
                }
                AfterFailure::GiveUp => (AttemptEnd::Failed, Next::Failed),
            },
            FailureClass::NotCounted(reason) => {
                let wait = backoff(&policy, instance.n_attempts, 0.5);
                (AttemptEnd::NotCounted, Next::Pending(reason, at(wait)))
            }
            other => panic!("no driver of this world fails like this: {other:?}"),
        }
    }
}
