//! What stands beside the cells of the table, and what holds of the judgement of every situation there is: walked, not
//! sampled.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::tests::{COLUMNS, COMPLETED, PENDING, fenced, situation};
use super::*;

#[test]
fn a_launcher_that_asks_for_no_leave_is_never_revoked() {
    let unfenced = |within_submit_grace, refuses_duplicates| Context {
        is_fenced: false,
        within_submit_grace,
        refuses_duplicates,
        ..fenced()
    };
    let check = |engine, timeline, context, expected: &str| {
        let judged = judge(&situation(COLUMNS[2], engine, timeline, context));
        assert_eq!(judged.to_string(), expected, "{engine:?} {timeline:?}");
    };
    let absent = EngineSays::AbsentNoProof;
    check(absent, TimelineSays::NotLooked, unfenced(true, false), "stay");
    check(absent, TimelineSays::NotLooked, unfenced(false, true), "repeat");
    check(absent, TimelineSays::NotLooked, unfenced(false, false), "parked(unfenced_unknown); alarm");
    check(EngineSays::FoundRunning, TimelineSays::NotLooked, unfenced(true, false), "accepted");
    check(EngineSays::AbsentProven, TimelineSays::NotLooked, unfenced(true, false), "look");
    check(EngineSays::AbsentProven, PENDING, unfenced(true, false), "over; pending");
    check(EngineSays::FoundRunning, COMPLETED, unfenced(true, false), "succeeding; stop");
    check(EngineSays::Ended, COMPLETED, unfenced(true, false), "over; succeeded");
    check(EngineSays::FoundRunning, TimelineSays::Gone, unfenced(true, false), "stop; cancel");
}

#[test]
fn an_overdue_job_is_asked_to_end() {
    let overdue = Context { is_overdue: true, heard_recently: true, urgency: Urgency::Stop, ..fenced() };
    let check = |column: usize, context, expected: &str| {
        let found = situation(COLUMNS[column], EngineSays::FoundRunning, TimelineSays::NotLooked, context);
        assert_eq!(judge(&found).to_string(), expected, "{}", COLUMNS[column].0);
    };
    check(3, overdue, "cancel");
    check(4, overdue, "stop");
    check(4, Context { urgency: Urgency::Gentle, ..overdue }, "stop; cancel");
    check(4, Context { urgency: Urgency::Kill, ..overdue }, "stop; kill");
    check(4, Context { heard_recently: false, ..overdue }, "stop; cancel");
}

#[test]
fn an_attempt_that_is_closed_leaves_the_verdict_to_the_timeline() {
    let check = |timeline, cancel_asked, expected: &str| {
        let closed = ("closed", AttemptState::Over, Standing::Live, cancel_asked);
        let judged = judge(&situation(closed, EngineSays::Unreachable, timeline, fenced()));
        assert_eq!(judged.to_string(), expected, "{timeline:?}");
    };
    check(TimelineSays::NotLooked, false, "look");
    check(TimelineSays::Unreadable, false, "unreadable");
    check(TimelineSays::Missing, false, "stay");
    check(PENDING, false, "pending");
    check(PENDING, true, "cancelled");
    check(COMPLETED, true, "succeeded");
    check(TimelineSays::Gone, false, "obsolete");
}

/// Calls `check` for every situation there is.
fn every_situation(check: impl Fn(&Situation, &Judgement)) {
    let attempts = [
        AttemptState::Intended,
        AttemptState::Called,
        AttemptState::Unknown,
        AttemptState::Accepted,
        AttemptState::Holding,
        AttemptState::Suspect,
        AttemptState::Revoked,
        AttemptState::Over,
    ];
    let timelines = [
        TimelineSays::NotLooked,
        TimelineSays::Pending(PlanState::Requested),
        PENDING,
        COMPLETED,
        TimelineSays::Completed { files: 2 },
        TimelineSays::Gone,
        TimelineSays::Missing,
        TimelineSays::Unreadable,
    ];
    let urgencies = [Urgency::Stop, Urgency::Gentle, Urgency::Kill];
    for attempt in attempts {
        for standing in [Standing::Live, Standing::Succeeding, Standing::Ended] {
            for timeline in timelines {
                for engine in EngineSays::ALL {
                    for bits in 0_u32..1 << 10 {
                        for urgency in urgencies {
                            let flag = |n: u32| bits & (1 << n) != 0;
                            let situation = Situation {
                                attempt,
                                has_holder: flag(0),
                                standing,
                                cancel_asked: flag(1),
                                engine,
                                timeline,
                                context: Context {
                                    is_fenced: flag(2),
                                    refuses_duplicates: flag(3),
                                    within_submit_grace: flag(4),
                                    is_settled: flag(5),
                                    heard_recently: flag(6),
                                    job_reported_end: flag(7),
                                    is_overdue: flag(8),
                                    is_lost: flag(9),
                                    urgency,
                                },
                            };
                            check(&situation, &judge(&situation));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_slot_with_a_possible_holder_is_freed_by_proof_only() {
    every_situation(|s, judged| {
        let Some(closing) = judged.closing() else { return };
        assert!(s.attempt.is_live(), "{s:?} {judged}");
        if closing == Step::Revoke {
            assert!(!s.may_touch() && s.context.is_fenced, "{s:?} {judged}");
            return;
        }
        assert!(s.engine.is_end() && s.context.is_settled, "{s:?} {judged}");
        let speaks = s.context.heard_recently && !s.context.job_reported_end;
        assert!(!(s.may_touch() && speaks), "{s:?} {judged}");
    });
}

/// Case C11: `cancelled` is kept for the moment when the attempt is over.
#[test]
fn an_instance_ends_only_once_its_attempt_is_over_or_revoked() {
    every_situation(|s, judged| {
        let Some(end) = judged.end() else { return };
        assert_ne!(s.standing, Standing::Ended, "{s:?} {judged}");
        let closing = judged.steps.iter().position(|step| step.frees_slot());
        let ending = judged.steps.iter().position(|step| matches!(step, Step::End(_)));
        assert!(!s.attempt.is_live() || closing < ending && closing.is_some(), "{s:?} {judged}");
        let is_completed = matches!(s.timeline, TimelineSays::Completed { .. });
        match end {
            InstanceEnd::Succeeded => assert!(is_completed || s.standing == Standing::Succeeding),
            InstanceEnd::Obsolete => assert_eq!(s.timeline, TimelineSays::Gone, "{s:?}"),
            InstanceEnd::Cancelled => assert!(s.cancel_asked && !is_completed, "{s:?}"),
            InstanceEnd::Unread => assert_eq!(s.timeline, TimelineSays::Unreadable, "{s:?}"),
            InstanceEnd::StillPending => assert!(!is_completed && s.timeline != TimelineSays::Gone, "{s:?}"),
        }
    });
}

#[test]
fn an_unreachable_engine_ends_nothing_but_a_cancelled_attempt_without_leave() {
    every_situation(|s, judged| {
        let has_verdict = judged.steps.iter().any(|step| step.is_verdict());
        let decided = matches!(s.timeline, TimelineSays::Completed { .. } | TimelineSays::Gone);
        if s.engine == EngineSays::Unreachable && s.attempt.is_live() {
            let is_revoked = s.cancel_asked && !s.may_touch();
            assert!(!has_verdict || decided || is_revoked, "{s:?} {judged}");
            assert!(!judged.closing().is_some_and(|_| s.may_touch()), "{s:?} {judged}");
            assert!(!judged.steps.iter().any(|step| matches!(step, Step::CancelJob(_))), "{s:?} {judged}");
        }
    });
}

/// Proof of the attempt's end frees the slot; how the instance ends is left to a timeline that can be read.
#[test]
fn an_unreadable_timeline_gives_no_verdict_in_any_column() {
    every_situation(|s, judged| {
        if s.timeline != TimelineSays::Unreadable {
            return;
        }
        assert!(
            !judged.steps.iter().any(|step| matches!(step, Step::Succeeding | Step::Park(_))),
            "{s:?} {judged}"
        );
        let has_verdict = judged.steps.iter().any(|step| step.is_verdict());
        assert!(s.context.is_lost || !has_verdict, "{s:?} {judged}");
        match judged.end() {
            None => assert!(judged.closing().is_none() || s.standing == Standing::Ended, "{s:?} {judged}"),
            Some(InstanceEnd::Unread) => {
                assert!(judged.closing().is_some() && !s.cancel_asked, "{s:?} {judged}")
            }
            Some(InstanceEnd::Cancelled) => {
                assert!(judged.closing().is_some() && s.cancel_asked, "{s:?} {judged}")
            }
            Some(InstanceEnd::Succeeded) => assert_eq!(s.standing, Standing::Succeeding, "{s:?} {judged}"),
            Some(end) => panic!("{end:?} {s:?} {judged}"),
        }
    });
}

#[test]
fn a_job_that_is_found_keeps_a_possible_holders_slot() {
    every_situation(|s, judged| {
        let is_found = matches!(s.engine, EngineSays::FoundQueued | EngineSays::FoundRunning);
        assert!(!(is_found && s.may_touch() && judged.closing().is_some()), "{s:?} {judged}");
    });
}

#[test]
fn each_judgement_says_something_and_stay_stands_alone() {
    every_situation(|s, judged| {
        assert!(!judged.steps.is_empty(), "{s:?}");
        assert!(judged.steps.len() == 1 || !judged.steps.contains(&Step::Stay), "{s:?} {judged}");
        let ends = judged.steps.iter().filter(|step| matches!(step, Step::End(_))).count();
        let closings = judged.steps.iter().filter(|step| step.frees_slot()).count();
        assert!(ends <= 1 && closings <= 1, "{s:?} {judged}");
    });
}
