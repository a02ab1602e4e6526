//! Each refusal, and what no sequence of changes can bring about.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::model::action::Action;
use crate::model::attempt::{Expected, Launcher};
use crate::model::id::{EngineName, Incarnation, RunId, TableId, Tag, Term};
use crate::model::instance::InstanceKey;
use crate::model::path::PathRules;
use crate::model::request::Trigger;

fn at(seconds: i64) -> Timestamp {
    chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap() + TimeDelta::seconds(seconds)
}

fn instance(state: InstanceState) -> Instance {
    let path = PathRules::default().canonical("/lake/t").unwrap();
    let key = InstanceKey {
        table: TableId::of(&path),
        action: Action::Compaction,
        instant: Some("20270101000000000".parse().unwrap()),
    };
    Instance::new(key, state, Trigger::Callback, at(0))
}

fn pending() -> InstanceState {
    InstanceState::Pending { reason: WaitReason::Ready, not_before: None }
}

fn parked_as(reason: ParkReason) -> InstanceState {
    InstanceState::Parked { reason, detail: "so".to_owned(), since: at(0) }
}

fn waiting_foreign() -> InstanceState {
    InstanceState::WaitingForeign { since: at(0), sign: None }
}

fn attempt(of: &Instance, number: u32) -> Attempt {
    Attempt {
        number,
        tag: Tag::of(&Incarnation("0123abcd".to_owned()), of.id, number),
        engine: "default".parse::<EngineName>().unwrap(),
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
        intended_at: at(0),
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
    }
}

fn run(n: u8) -> RunId {
    format!("{n:032x}").parse().unwrap()
}

/// An active instance whose attempt is in `state`, held by run 1 where that state has a holder.
fn active(state: AttemptState) -> Instance {
    let mut active = instance(InstanceState::Active);
    let mut live = attempt(&active, 1);
    live.state = state;
    live.holder = match state {
        AttemptState::Holding | AttemptState::Suspect => Holder::Run(run(1)),
        AttemptState::Revoked => Holder::Revoked,
        _ => Holder::None,
    };
    active.n_attempts = 1;
    active.attempt = Some(Box::new(live));
    active
}

fn conclusion(closing: Closing, next: Next) -> Change {
    Change::Conclude(Conclusion {
        closing,
        end: AttemptEnd::Failed,
        next,
        leaves_work: None,
        reason: "so".to_owned(),
    })
}

fn over() -> Closing {
    Closing::Over("the process is gone".to_owned())
}

fn refused(before: &Instance, change: Change, why: &str) {
    let text = format!("{change:?}");
    let refused = apply(before, change, at(9)).expect_err(&text);
    assert!(refused.what.starts_with(why), "{text}: {refused}");
    assert!(refused.what.contains(&state_word(before)), "{refused}");
}

fn taken(before: &Instance, change: Change) -> Instance {
    let text = format!("{change:?}");
    apply(before, change, at(9)).unwrap_or_else(|e| panic!("{text}: {e}")).after
}

#[test]
fn only_what_waits_takes_a_plan() {
    let why = "only a hinted or waiting instance takes a plan";
    refused(&instance(InstanceState::Succeeded), Change::SeenPending(PlanSize::default()), why);
    refused(&active(AttemptState::Holding), Change::SeenPending(PlanSize::default()), why);
    let seen = taken(&instance(InstanceState::Hinted), Change::SeenPending(PlanSize::default()));
    assert_eq!(seen.state, pending());
    let held = taken(&instance(parked_as(ParkReason::NoLock)), Change::SeenPending(PlanSize::default()));
    assert_eq!(held.state, parked_as(ParkReason::NoLock), "a new size releases nothing");
}

#[test]
fn nothing_with_a_live_attempt_is_reopened_parked_delayed_or_ended() {
    for state in [
        AttemptState::Intended,
        AttemptState::Called,
        AttemptState::Unknown,
        AttemptState::Accepted,
        AttemptState::Holding,
        AttemptState::Suspect,
    ] {
        let live = active(state);
        refused(&live, Change::Reopen { take_over: true }, "an instance with a live attempt is not reopened");
        refused(&live, Change::Park(ParkReason::NoLock, String::new()), "only a waiting instance is parked");
        refused(&live, Change::Delay(WaitReason::Ready, None), "only a waiting instance is delayed");
        refused(&live, Change::WaitForeign { sign: None }, "only a waiting instance waits");
        refused(
            &live,
            Change::End(Ending::Cancelled, String::new()),
            "only a live instance without a live attempt",
        );
        refused(&live, Change::Release, "only a parked or foreign one is released");
        refused(&live, Change::Intend(Box::new(attempt(&live, 2))), "only a pending instance is submitted");
    }
}

#[test]
fn only_what_is_held_is_released_and_only_what_waits_is_held() {
    for ended in
        [InstanceState::Succeeded, InstanceState::Failed, InstanceState::Cancelled, InstanceState::Obsolete]
    {
        let ended = instance(ended);
        refused(&ended, Change::Release, "only a parked or foreign one is released");
        refused(&ended, Change::Park(ParkReason::NoLock, String::new()), "only a waiting instance is parked");
        refused(&ended, Change::WaitForeign { sign: None }, "only a waiting instance waits");
        refused(&ended, Change::Delay(WaitReason::Ready, None), "only a waiting instance is delayed");
        refused(&ended, Change::End(Ending::Obsolete, String::new()), "only a live instance");
        let ask = CancelAsked { by: "a".to_owned(), at: at(1) };
        refused(&ended, Change::AskCancel(ask), "an ended instance cannot be cancelled");
    }
    refused(&instance(pending()), Change::Release, "only a parked or foreign one is released");
    refused(&instance(InstanceState::Hinted), Change::Reopen { take_over: false }, "a hinted instance waits");
    for held in [parked_as(ParkReason::Overtaken), waiting_foreign()] {
        assert_eq!(taken(&instance(held), Change::Release).state, pending());
    }
}

#[test]
fn a_reopened_instance_starts_over_and_keeps_what_it_did_to_the_table() {
    let mut failed = instance(InstanceState::Failed);
    failed.n_failed = 5;
    failed.n_attempts = 5;
    failed.has_called = true;
    failed.ended_at = Some(at(1));
    failed.missed_since = Some(at(1));
    let again = taken(&failed, Change::Reopen { take_over: true });
    assert_eq!((again.state.clone(), again.n_failed, again.n_attempts), (pending(), 0, 5));
    assert!(again.has_called && again.take_over && again.ended_at.is_none() && again.missed_since.is_none());
    let held = taken(
        &instance_taken_over(parked_as(ParkReason::ForeignRunner)),
        Change::Reopen { take_over: false },
    );
    assert!(held.take_over, "what a person allowed holds until the end");
    for ended in [InstanceState::Failed, InstanceState::Cancelled] {
        let again = taken(&instance_taken_over(ended), Change::Reopen { take_over: false });
        assert!(again.has_called && !again.take_over, "and not beyond it");
    }
    for away in [InstanceState::Obsolete, InstanceState::Succeeded] {
        let again = taken(&instance_taken_over(away), Change::Reopen { take_over: false });
        assert!(!again.has_called && !again.take_over, "an inflight of the plan that came back is not ours");
    }
}

#[test]
fn take_over_is_consent_only_where_another_runner_is_the_question() {
    let consents = |state| {
        let instance = Instance { take_over: false, ..instance(state) };
        taken(&instance, Change::Reopen { take_over: true }).take_over
    };
    assert!(consents(waiting_foreign()) && consents(parked_as(ParkReason::ForeignRunner)));
    assert!(consents(parked_as(ParkReason::TagTaken)) && consents(InstanceState::Cancelled));
    for other in [ParkReason::DamageSuspected, ParkReason::UnlockedWriter, ParkReason::NoLock] {
        assert!(!consents(parked_as(other)), "{other:?}");
    }
}

/// What an attempt leaves behind is ours; an inflight that it did not make is somebody else's.
#[test]
fn an_attempt_that_was_told_to_call_explains_what_it_left_and_no_more() {
    let over = |expected, outcome: Option<&str>, take_over, leaves_work| {
        let mut before = active(AttemptState::Holding);
        before.has_called = true;
        before.take_over = take_over;
        let attempt = before.attempt.as_mut().unwrap();
        attempt.call_at = Some(at(1));
        attempt.expected = expected;
        attempt.report = outcome.map(|outcome| JobReport {
            outcome: outcome.to_owned(),
            exit_code: 3,
            error: Vec::new(),
            rows: Vec::new(),
            at: at(1),
        });
        let conclusion = Conclusion {
            closing: Closing::Over("proof".to_owned()),
            end: AttemptEnd::Failed,
            next: Next::Pending(WaitReason::Backoff, None),
            leaves_work,
            reason: "so".to_owned(),
        };
        let after = taken(&before, Change::Conclude(conclusion));
        (after.has_called, after.take_over)
    };
    let (requested, inflight) = (Expected::Requested, Expected::InflightOfOurs);
    assert_eq!(over(requested, None, false, Some(true)), (true, false), "killed in its call");
    assert_eq!(over(requested, None, false, Some(false)), (false, false), "killed before its inflight");
    assert_eq!(over(requested, Some("threw"), false, None), (true, false), "not looked: as before");
    assert_eq!(over(requested, Some("untouched"), false, Some(true)), (false, false), "it found another's");
    assert_eq!(over(inflight, Some("untouched"), false, Some(true)), (true, false), "an earlier one left it");
    assert_eq!(over(inflight, Some("untouched"), true, Some(true)), (false, true), "consent was not used");
    assert_eq!(over(inflight, Some("threw"), true, Some(true)), (true, false), "consent was used");
    assert_eq!(over(inflight, Some("threw"), true, Some(false)), (false, false), "and left nothing");
}

/// A copy knows neither who got leave since, nor what came after.
#[test]
fn a_restored_attempt_is_adopted_by_one_run_and_explains_nothing() {
    let mut restored = active(AttemptState::Holding);
    let attempt = restored.attempt.as_mut().unwrap();
    (attempt.is_restored, attempt.call_at) = (true, Some(at(1)));
    attempt.holder = Holder::Run(RunId::unknown());
    let run: RunId = "1".repeat(32).parse().unwrap();
    let other: RunId = "2".repeat(32).parse().unwrap();
    let adopted = taken(&restored, Change::Adopt(run.clone()));
    assert_eq!(adopted.attempt.as_ref().unwrap().holder, Holder::Run(run.clone()));
    assert!(apply(&adopted, Change::Adopt(other), at(2)).is_err(), "the holder is known now");
    let mut usual = adopted.clone();
    usual.attempt.as_mut().unwrap().is_restored = false;
    usual.attempt.as_mut().unwrap().holder = Holder::Run(RunId::unknown());
    assert!(apply(&usual, Change::Adopt(run), at(2)).is_err(), "no restore, no unknown holder");
    let conclusion = || Conclusion {
        closing: Closing::Over("proof".to_owned()),
        end: AttemptEnd::Failed,
        next: Next::Pending(WaitReason::Backoff, None),
        leaves_work: Some(true),
        reason: "so".to_owned(),
    };
    assert!(!taken(&adopted, Change::Conclude(conclusion())).has_called);
    assert!(taken(&usual, Change::Conclude(conclusion())).has_called);
}

fn instance_taken_over(state: InstanceState) -> Instance {
    let mut known = instance(state);
    known.take_over = true;
    known.has_called = true;
    known
}

#[test]
fn only_the_next_attempt_of_a_pending_instance_is_intended() {
    let waiting = instance(pending());
    for number in [0, 2] {
        let wrong = Change::Intend(Box::new(attempt(&waiting, number)));
        refused(&waiting, wrong, "the attempt is not the next one");
    }
    let mut called = attempt(&waiting, 1);
    called.state = AttemptState::Called;
    refused(&waiting, Change::Intend(Box::new(called)), "the attempt is not the next one");
    let mut cancelled = waiting;
    cancelled.cancel_asked = Some(CancelAsked { by: "a".to_owned(), at: at(1) });
    refused(&cancelled, Change::Intend(Box::new(attempt(&cancelled, 1))), "it was asked to be cancelled");
    let mut odd = active(AttemptState::Holding);
    odd.state = pending();
    refused(&odd, Change::Intend(Box::new(attempt(&odd, 2))), "a live attempt exists");
    for state in
        [InstanceState::Hinted, waiting_foreign(), parked_as(ParkReason::NoLock), InstanceState::Failed]
    {
        let other = instance(state);
        refused(&other, Change::Intend(Box::new(attempt(&other, 1))), "only a pending instance is submitted");
    }
}

#[test]
fn the_engine_is_called_once_and_not_for_a_cancelled_one() {
    let mut intended = active(AttemptState::Intended);
    assert_eq!(taken(&intended, Change::Called).attempt_state(), Some(AttemptState::Called));
    refused(&active(AttemptState::Called), Change::Called, "only an intended attempt");
    intended.cancel_asked = Some(CancelAsked { by: "a".to_owned(), at: at(1) });
    refused(&intended, Change::Called, "only an intended attempt that nobody cancelled");
}

#[test]
fn a_holder_is_neither_revoked_nor_unknown() {
    for state in [AttemptState::Holding, AttemptState::Suspect] {
        let held = active(state);
        let revoke = conclusion(Closing::Revoked, Next::Pending(WaitReason::Backoff, None));
        refused(&held, revoke, "a driver has leave, so it cannot be revoked");
        refused(&held, Change::Unknown, "only an attempt without a holder becomes unknown");
        let concluded = taken(&held, conclusion(over(), Next::Pending(WaitReason::Backoff, None)));
        assert_eq!(concluded.attempt_state(), Some(AttemptState::Over));
    }
    for state in [AttemptState::Called, AttemptState::Accepted, AttemptState::Unknown] {
        refused(&active(state), Change::Suspect, "only a holder becomes suspect");
    }
}

#[test]
fn what_is_closed_changes_no_more() {
    for state in [AttemptState::Revoked, AttemptState::Over] {
        let mut closed = active(state);
        closed.state = pending();
        for change in [
            Change::Called,
            Change::Accepted(String::new()),
            Change::Unknown,
            Change::Suspect,
            Change::Heard(None),
            Change::KillSent,
            Change::Leave { run: run(1), is_call: false, place: None },
            Change::EngineSaid { word: String::new(), has_ended: true },
        ] {
            refused(&closed, change, "no attempt is live");
        }
        refused(&closed, conclusion(over(), Next::Failed), "no attempt is live");
        refused(&closed, Change::Succeeding, "only an active instance is succeeding");
    }
}

#[test]
fn leave_is_given_to_one_run() {
    let leave = |n| Change::Leave { run: run(n), is_call: false, place: None };
    refused(&active(AttemptState::Intended), leave(1), "the attempt was not submitted yet");
    refused(&active(AttemptState::Holding), leave(2), "another run has leave");
    refused(&active(AttemptState::Suspect), leave(2), "another run has leave");
    let mut revoked = active(AttemptState::Called);
    revoked.attempt.as_mut().unwrap().holder = Holder::Revoked;
    refused(&revoked, leave(1), "the attempt was revoked");
    let mut cancelled = active(AttemptState::Holding);
    cancelled.cancel_asked = Some(CancelAsked { by: "a".to_owned(), at: at(1) });
    refused(&cancelled, leave(1), "it was cancelled, or has ended");
    let mut succeeding = active(AttemptState::Holding);
    succeeding.state = InstanceState::Succeeding;
    refused(&succeeding, leave(1), "it was cancelled, or has ended");
    for state in [AttemptState::Called, AttemptState::Unknown, AttemptState::Accepted, AttemptState::Suspect]
    {
        let held = taken(&active(state), leave(1));
        assert_eq!(held.attempt_state(), Some(AttemptState::Holding), "{state:?}");
        assert!(!held.has_called);
    }
    let called =
        taken(&active(AttemptState::Holding), Change::Leave { run: run(1), is_call: true, place: None });
    assert!(called.has_called && called.attempt.unwrap().call_at == Some(at(9)));
}

#[test]
fn an_answer_that_comes_after_leave_keeps_the_holder() {
    let held = taken(&active(AttemptState::Holding), Change::Accepted("h".to_owned()));
    assert_eq!(held.attempt_state(), Some(AttemptState::Holding));
    assert_eq!(held.attempt.unwrap().handle.as_deref(), Some("h"));
}

#[test]
fn progress_never_falls_and_never_reaches_the_end() {
    let said = |percent| {
        Change::Heard(Some(Progress { phase: String::new(), tasks_done: 0, tasks_total: 0, percent }))
    };
    let mut heard = active(AttemptState::Suspect);
    for (percent, expected) in [(40, 40), (10, 40), (250, 99), (0, 99)] {
        heard = taken(&heard, said(percent));
        assert_eq!(heard.attempt.as_ref().unwrap().progress.as_ref().unwrap().percent, expected);
    }
    assert_eq!(heard.attempt_state(), Some(AttemptState::Holding), "a suspect that speaks holds");
}

#[test]
fn only_work_without_an_instant_takes_one() {
    let take = || Change::TakeInstant("20270101000000009".parse().unwrap());
    refused(&instance(pending()), take(), "only live work without an instant takes one");
    let mut ended = instance(InstanceState::Succeeded);
    ended.key.instant = None;
    refused(&ended, take(), "only live work without an instant takes one");
    let mut next = active(AttemptState::Holding);
    next.key.instant = None;
    assert!(taken(&next, take()).key.instant.is_some());
}

#[test]
fn a_parking_keeps_its_age_while_its_reason_stays() {
    let held = instance(parked_as(ParkReason::NoLock));
    let since = |i: &Instance| match i.state {
        InstanceState::Parked { since, .. } => since,
        _ => panic!("{i:?}"),
    };
    assert_eq!(since(&taken(&held, Change::Park(ParkReason::NoLock, "more".to_owned()))), at(0));
    assert_eq!(since(&taken(&held, Change::Park(ParkReason::Overtaken, "more".to_owned()))), at(9));
}

#[test]
fn a_miss_is_dated_from_the_first_one_and_only_moves_forward() {
    let mut hinted = instance(InstanceState::Hinted);
    hinted = taken(&hinted, Change::Missed(at(6)));
    assert_eq!(hinted.missed_since, Some(at(6)));
    hinted = taken(&hinted, Change::Missed(at(5)));
    assert_eq!(hinted.missed_since, Some(at(6)));
    hinted = taken(&hinted, Change::Missed(at(8)));
    assert_eq!(hinted.missed_since, Some(at(8)));
    // A clock that was fast then and is right now, at 9 seconds.
    hinted.missed_since = Some(at(90));
    hinted = taken(&hinted, Change::Missed(at(9)));
    assert_eq!(hinted.missed_since, Some(at(9)));
    assert_eq!(taken(&hinted, Change::SeenAgain).missed_since, None);
}

#[test]
fn what_only_counts_is_no_event() {
    let held = active(AttemptState::Holding);
    let is_event = |before: &Instance, change| apply(before, change, at(9)).unwrap().is_event;
    assert!(!is_event(&held, Change::Heard(None)));
    assert!(!is_event(&held, Change::KillSent));
    assert!(!is_event(&instance(pending()), Change::PassedOver));
    assert!(!is_event(&instance(waiting_foreign()), Change::WaitForeign { sign: Some(at(1)) }));
    assert!(is_event(&held, Change::AskCancel(CancelAsked { by: "a".to_owned(), at: at(1) })));
    assert!(is_event(&instance(pending()), Change::Delay(WaitReason::LockHeld, None)));
    assert!(is_event(&active(AttemptState::Suspect), Change::Heard(None)));
}

fn any_change() -> impl Strategy<Value = Change> {
    let next = prop_oneof![
        Just(Next::Succeeded),
        Just(Next::Failed),
        Just(Next::Cancelled),
        Just(Next::Obsolete),
        Just(Next::Pending(WaitReason::Backoff, None)),
        Just(Next::Parked(ParkReason::TagTaken, String::new())),
    ];
    let concluded = (any::<bool>(), next)
        .prop_map(|(is_over, next)| conclusion(if is_over { over() } else { Closing::Revoked }, next));
    prop_oneof![
        1 => Just(Change::SeenPending(PlanSize::default())),
        1 => Just(Change::Reopen { take_over: false }),
        1 => Just(Change::WaitForeign { sign: None }),
        1 => Just(Change::Park(ParkReason::NoLock, String::new())),
        1 => Just(Change::Release),
        1 => Just(Change::Delay(WaitReason::Ready, None)),
        // The number is made right when it is applied.
        3 => Just(Change::Intend(Box::new(attempt(&instance(pending()), 1)))),
        3 => Just(Change::Called),
        2 => Just(Change::Accepted("h".to_owned())),
        1 => Just(Change::Unknown),
        1 => Just(Change::Suspect),
        4 => (1_u8..4, any::<bool>()).prop_map(|(n, is_call)| Change::Leave { run: run(n), is_call, place: None }),
        1 => Just(Change::Heard(None)),
        1 => Just(Change::EngineSaid { word: "ended".to_owned(), has_ended: true }),
        1 => Just(Change::KillSent),
        1 => Just(Change::Succeeding),
        2 => concluded,
        1 => Just(Change::End(Ending::Obsolete, String::new())),
        1 => Just(Change::AskCancel(CancelAsked { by: "a".to_owned(), at: at(1) })),
    ]
}

/// What must hold of an instance at any time.
fn check(now: &Instance) {
    assert_eq!(now.state.is_ended(), now.ended_at.is_some(), "{now:?}");
    assert!(!(now.state.is_ended() && now.takes_slot()), "{now:?}");
    let is_running = matches!(now.state, InstanceState::Active | InstanceState::Succeeding);
    assert_eq!(is_running, now.takes_slot(), "{now:?}");
    let Some(attempt) = &now.attempt else { return };
    let has_holder = matches!(attempt.holder, Holder::Run(_));
    match attempt.state {
        AttemptState::Holding | AttemptState::Suspect => assert!(has_holder, "{now:?}"),
        AttemptState::Revoked => assert_eq!(attempt.holder, Holder::Revoked, "{now:?}"),
        AttemptState::Over => assert_ne!(attempt.holder, Holder::None, "{now:?}"),
        _ => assert_eq!(attempt.holder, Holder::None, "{now:?}"),
    }
    assert_eq!(attempt.number, now.n_attempts, "{now:?}");
}

proptest! {
    /// Whatever comes in whatever order: a holder never changes hands, a revoked attempt never gets one, and no second attempt
    /// begins while the first one lives.
    #[test]
    fn no_sequence_of_changes_gives_an_attempt_two_holders(changes in prop::collection::vec(any_change(), 1..80)) {
        let mut now = instance(pending());
        for (n, mut change) in changes.into_iter().enumerate() {
            if let Change::Intend(attempt) = &mut change {
                attempt.number = now.n_attempts + 1;
            }
            let before = now.clone();
            let is_leave = matches!(change, Change::Leave { .. });
            let Ok(applied) = apply(&before, change, at(i64::try_from(n).unwrap())) else { continue };
            now = applied.after;
            check(&now);
            let (Some(old), Some(new)) = (&before.attempt, &now.attempt) else { continue };
            if old.number != new.number {
                prop_assert!(!old.state.is_live(), "two live attempts: {:?}", before);
                continue;
            }
            match &old.holder {
                Holder::None => prop_assert!(new.holder == Holder::None || is_leave || !new.state.is_live()),
                held => prop_assert_eq!(held, &new.holder, "the holder changed hands"),
            }
            prop_assert!(old.state.is_live() || !new.state.is_live(), "a closed attempt came back");
            let was_away = matches!(before.state, InstanceState::Obsolete | InstanceState::Succeeded);
            prop_assert!(!before.has_called || now.has_called || was_away);
            prop_assert_eq!(applied.past_attempt.is_some(), old.state.is_live() && !new.state.is_live());
        }
    }
}
