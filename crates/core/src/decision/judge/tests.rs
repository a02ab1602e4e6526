//! Walks every cell of the table of `states.md` (case C12); the expected texts are meant to be read beside it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

/// Names, attempt, standing, cancel asked.
pub(super) const COLUMNS: [(&str, AttemptState, Standing, bool); 12] = [
    ("intended", AttemptState::Intended, Standing::Live, false),
    ("called", AttemptState::Called, Standing::Live, false),
    ("unknown", AttemptState::Unknown, Standing::Live, false),
    ("accepted", AttemptState::Accepted, Standing::Live, false),
    ("holding", AttemptState::Holding, Standing::Live, false),
    ("suspect", AttemptState::Suspect, Standing::Live, false),
    ("cancel_asked, called", AttemptState::Called, Standing::Live, true),
    ("cancel_asked, accepted", AttemptState::Accepted, Standing::Live, true),
    ("cancel_asked, holding", AttemptState::Holding, Standing::Live, true),
    ("succeeding", AttemptState::Holding, Standing::Succeeding, false),
    ("ended, live attempt", AttemptState::Holding, Standing::Ended, false),
    ("ended, attempt over", AttemptState::Over, Standing::Ended, false),
];

pub(super) const PENDING: TimelineSays = TimelineSays::Pending(PlanState::Inflight);
pub(super) const COMPLETED: TimelineSays = TimelineSays::Completed { files: 1 };

pub(super) fn fenced() -> Context {
    Context {
        is_fenced: true,
        within_submit_grace: true,
        is_settled: true,
        urgency: Urgency::Gentle,
        ..Context::default()
    }
}

pub(super) fn situation(
    column: (&str, AttemptState, Standing, bool),
    engine: EngineSays,
    timeline: TimelineSays,
    context: Context,
) -> Situation {
    let (_, attempt, standing, cancel_asked) = column;
    let has_holder = matches!(attempt, AttemptState::Holding | AttemptState::Suspect);
    Situation { attempt, has_holder, standing, cancel_asked, engine, timeline, context }
}

/// Checks one row: a line per column, `name: steps`.
#[track_caller]
fn row(engine: EngineSays, timeline: TimelineSays, context: Context, expected: &str) {
    let actual: Vec<String> = COLUMNS
        .iter()
        .map(|column| format!("{}: {}", column.0, judge(&situation(*column, engine, timeline, context))))
        .collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(actual, expected, "{engine:?}, {timeline:?}");
}

#[test]
fn found_queued() {
    row(
        EngineSays::FoundQueued,
        PENDING,
        fenced(),
        "intended: accepted
         called: accepted
         unknown: accepted
         accepted: stay
         holding: event
         suspect: stay
         cancel_asked, called: cancel
         cancel_asked, accepted: cancel
         cancel_asked, holding: event; stop; cancel
         succeeding: alarm; cancel orphan; alarm
         ended, live attempt: cancel orphan; alarm
         ended, attempt over: cancel orphan; alarm",
    );
}

#[test]
fn found_running() {
    let expected = "intended: accepted
         called: accepted
         unknown: accepted
         accepted: stay
         holding: stay
         suspect: stay
         cancel_asked, called: cancel
         cancel_asked, accepted: cancel
         cancel_asked, holding: stop; cancel
         succeeding: stop; cancel
         ended, live attempt: cancel; alarm
         ended, attempt over: cancel; alarm";
    row(EngineSays::FoundRunning, TimelineSays::NotLooked, fenced(), expected);
}

#[test]
fn found_running_and_heard() {
    row(
        EngineSays::FoundRunning,
        TimelineSays::NotLooked,
        Context { heard_recently: true, urgency: Urgency::Stop, ..fenced() },
        "intended: accepted
         called: accepted
         unknown: accepted
         accepted: stay
         holding: stay
         suspect: holding
         cancel_asked, called: cancel
         cancel_asked, accepted: cancel
         cancel_asked, holding: stop
         succeeding: stop
         ended, live attempt: cancel; alarm
         ended, attempt over: cancel; alarm",
    );
}

#[test]
fn found_running_long_after_its_end_was_wanted() {
    row(
        EngineSays::FoundRunning,
        TimelineSays::NotLooked,
        Context { heard_recently: true, job_reported_end: true, urgency: Urgency::Kill, ..fenced() },
        "intended: accepted
         called: accepted
         unknown: accepted
         accepted: stay
         holding: look
         suspect: look
         cancel_asked, called: kill
         cancel_asked, accepted: kill
         cancel_asked, holding: stop; kill
         succeeding: kill
         ended, live attempt: kill; alarm
         ended, attempt over: kill; alarm",
    );
}

#[test]
fn found_with_another_mark_than_ours() {
    row(
        EngineSays::FoundOther,
        PENDING,
        fenced(),
        "intended: alarm; revoke; parked(tag_taken)
         called: alarm; revoke; parked(tag_taken)
         unknown: alarm; revoke; parked(tag_taken)
         accepted: alarm; revoke; parked(tag_taken)
         holding: parked(tag_taken); alarm
         suspect: parked(tag_taken); alarm
         cancel_asked, called: alarm; revoke; parked(tag_taken)
         cancel_asked, accepted: alarm; revoke; parked(tag_taken)
         cancel_asked, holding: parked(tag_taken); alarm
         succeeding: alarm; alarm
         ended, live attempt: alarm
         ended, attempt over: alarm",
    );
}

#[test]
fn ended_and_not_looked_yet() {
    row(
        EngineSays::Ended,
        TimelineSays::NotLooked,
        fenced(),
        "intended: look
         called: look
         unknown: look
         accepted: look
         holding: look
         suspect: look
         cancel_asked, called: look
         cancel_asked, accepted: look
         cancel_asked, holding: look
         succeeding: over; succeeded
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn ended_and_still_pending() {
    row(
        EngineSays::Ended,
        PENDING,
        fenced(),
        "intended: over; pending
         called: over; pending
         unknown: over; pending
         accepted: over; pending
         holding: over; pending
         suspect: over; pending
         cancel_asked, called: over; cancelled
         cancel_asked, accepted: over; cancelled
         cancel_asked, holding: over; cancelled
         succeeding: alarm; over; pending
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn ended_and_not_settled() {
    row(
        EngineSays::Ended,
        PENDING,
        Context { is_settled: false, ..fenced() },
        "intended: settle
         called: settle
         unknown: settle
         accepted: settle
         holding: settle
         suspect: settle
         cancel_asked, called: settle
         cancel_asked, accepted: settle
         cancel_asked, holding: settle
         succeeding: alarm; settle
         ended, live attempt: settle
         ended, attempt over: stay",
    );
}

#[test]
fn ended_while_its_driver_speaks() {
    row(
        EngineSays::Ended,
        PENDING,
        Context { heard_recently: true, ..fenced() },
        "intended: over; pending
         called: over; pending
         unknown: over; pending
         accepted: over; pending
         holding: event; settle
         suspect: holding; event; settle
         cancel_asked, called: over; cancelled
         cancel_asked, accepted: over; cancelled
         cancel_asked, holding: event; settle
         succeeding: alarm; settle
         ended, live attempt: settle
         ended, attempt over: stay",
    );
}

#[test]
fn ended_as_its_driver_said() {
    row(
        EngineSays::Ended,
        PENDING,
        Context { heard_recently: true, job_reported_end: true, ..fenced() },
        "intended: over; pending
         called: over; pending
         unknown: over; pending
         accepted: over; pending
         holding: over; pending
         suspect: over; pending
         cancel_asked, called: over; cancelled
         cancel_asked, accepted: over; cancelled
         cancel_asked, holding: over; cancelled
         succeeding: alarm; over; pending
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn absent_which_proves_nothing() {
    row(
        EngineSays::AbsentNoProof,
        PENDING,
        fenced(),
        "intended: stay
         called: stay
         unknown: stay
         accepted: unknown
         holding: suspect
         suspect: stay
         cancel_asked, called: cancel
         cancel_asked, accepted: cancel
         cancel_asked, holding: stop; cancel
         succeeding: alarm
         ended, live attempt: stay
         ended, attempt over: stay",
    );
}

#[test]
fn absent_which_proves_nothing_past_the_grace() {
    row(
        EngineSays::AbsentNoProof,
        TimelineSays::NotLooked,
        Context { within_submit_grace: false, ..fenced() },
        "intended: revoke; pending
         called: revoke; pending
         unknown: revoke; pending
         accepted: unknown
         holding: suspect
         suspect: stay
         cancel_asked, called: revoke; cancelled
         cancel_asked, accepted: revoke; cancelled
         cancel_asked, holding: stop; cancel
         succeeding: stay
         ended, live attempt: stay
         ended, attempt over: stay",
    );
}

#[test]
fn absent_while_its_driver_speaks() {
    row(
        EngineSays::AbsentNoProof,
        TimelineSays::NotLooked,
        Context { heard_recently: true, urgency: Urgency::Stop, ..fenced() },
        "intended: stay
         called: stay
         unknown: stay
         accepted: unknown
         holding: stay
         suspect: holding
         cancel_asked, called: cancel
         cancel_asked, accepted: cancel
         cancel_asked, holding: stop
         succeeding: stay
         ended, live attempt: stay
         ended, attempt over: stay",
    );
}

#[test]
fn absent_and_proven() {
    row(
        EngineSays::AbsentProven,
        TimelineSays::NotLooked,
        fenced(),
        "intended: revoke; pending
         called: revoke; pending
         unknown: revoke; pending
         accepted: revoke; pending
         holding: look
         suspect: look
         cancel_asked, called: revoke; cancelled
         cancel_asked, accepted: revoke; cancelled
         cancel_asked, holding: look
         succeeding: over; succeeded
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn absent_and_proven_after_a_look() {
    row(
        EngineSays::AbsentProven,
        PENDING,
        fenced(),
        "intended: revoke; pending
         called: revoke; pending
         unknown: revoke; pending
         accepted: revoke; pending
         holding: over; pending
         suspect: over; pending
         cancel_asked, called: revoke; cancelled
         cancel_asked, accepted: revoke; cancelled
         cancel_asked, holding: over; cancelled
         succeeding: alarm; over; pending
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn unreachable() {
    let expected = "intended: stay
         called: stay
         unknown: stay
         accepted: stay
         holding: stay
         suspect: stay
         cancel_asked, called: revoke; cancelled
         cancel_asked, accepted: revoke; cancelled
         cancel_asked, holding: stop
         succeeding: stay
         ended, live attempt: stay
         ended, attempt over: stay";
    for within_submit_grace in [true, false] {
        let context = Context { within_submit_grace, ..fenced() };
        row(EngineSays::Unreachable, TimelineSays::NotLooked, context, expected);
    }
}

#[test]
fn timeline_completed_while_the_job_runs() {
    row(
        EngineSays::FoundRunning,
        COMPLETED,
        fenced(),
        "intended: revoke; succeeded
         called: revoke; succeeded
         unknown: revoke; succeeded
         accepted: revoke; succeeded
         holding: succeeding; stop
         suspect: succeeding; stop
         cancel_asked, called: revoke; succeeded
         cancel_asked, accepted: revoke; succeeded
         cancel_asked, holding: succeeding; stop
         succeeding: stop; cancel
         ended, live attempt: cancel; alarm
         ended, attempt over: cancel; alarm",
    );
}

#[test]
fn timeline_completed_as_the_job_said() {
    row(
        EngineSays::FoundRunning,
        COMPLETED,
        Context { job_reported_end: true, urgency: Urgency::Stop, ..fenced() },
        "intended: revoke; succeeded
         called: revoke; succeeded
         unknown: revoke; succeeded
         accepted: revoke; succeeded
         holding: succeeding
         suspect: succeeding
         cancel_asked, called: revoke; succeeded
         cancel_asked, accepted: revoke; succeeded
         cancel_asked, holding: succeeding
         succeeding: stay
         ended, live attempt: cancel; alarm
         ended, attempt over: cancel; alarm",
    );
}

#[test]
fn timeline_completed_once_the_job_ended() {
    row(
        EngineSays::Ended,
        COMPLETED,
        fenced(),
        "intended: revoke; succeeded
         called: revoke; succeeded
         unknown: revoke; succeeded
         accepted: revoke; succeeded
         holding: over; succeeded
         suspect: over; succeeded
         cancel_asked, called: revoke; succeeded
         cancel_asked, accepted: revoke; succeeded
         cancel_asked, holding: over; succeeded
         succeeding: over; succeeded
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn timeline_completed_while_the_engine_is_unreachable() {
    row(
        EngineSays::Unreachable,
        COMPLETED,
        fenced(),
        "intended: revoke; succeeded
         called: revoke; succeeded
         unknown: revoke; succeeded
         accepted: revoke; succeeded
         holding: succeeding; stop
         suspect: succeeding; stop
         cancel_asked, called: revoke; succeeded
         cancel_asked, accepted: revoke; succeeded
         cancel_asked, holding: succeeding; stop
         succeeding: stay
         ended, live attempt: stay
         ended, attempt over: stay",
    );
}

#[test]
fn timeline_completed_twice_is_an_alarm_in_every_column() {
    for column in COLUMNS {
        for engine in EngineSays::ALL {
            let twice = TimelineSays::Completed { files: 2 };
            let judged = judge(&situation(column, engine, twice, fenced()));
            assert_eq!(judged.steps[0], Step::Alarm(AlertKind::DamageSuspected), "{} {engine:?}", column.0);
            let once = judge(&situation(column, engine, COMPLETED, fenced()));
            assert!(
                !once.steps.contains(&Step::Alarm(AlertKind::DamageSuspected)),
                "{} {engine:?}",
                column.0
            );
        }
    }
}

#[test]
fn timeline_gone_while_the_job_runs() {
    row(
        EngineSays::FoundRunning,
        TimelineSays::Gone,
        fenced(),
        "intended: revoke; obsolete
         called: revoke; obsolete
         unknown: revoke; obsolete
         accepted: revoke; obsolete
         holding: stop; cancel
         suspect: stop; cancel
         cancel_asked, called: revoke; cancelled
         cancel_asked, accepted: revoke; cancelled
         cancel_asked, holding: stop; cancel
         succeeding: alarm; stop; cancel
         ended, live attempt: cancel; alarm
         ended, attempt over: cancel; alarm",
    );
}

#[test]
fn timeline_gone_once_the_job_ended() {
    row(
        EngineSays::Ended,
        TimelineSays::Gone,
        fenced(),
        "intended: revoke; obsolete
         called: revoke; obsolete
         unknown: revoke; obsolete
         accepted: revoke; obsolete
         holding: over; obsolete
         suspect: over; obsolete
         cancel_asked, called: revoke; cancelled
         cancel_asked, accepted: revoke; cancelled
         cancel_asked, holding: over; cancelled
         succeeding: alarm; over; obsolete
         ended, live attempt: over
         ended, attempt over: stay",
    );
}

#[test]
fn timeline_missing_waits_for_the_second_look() {
    row(
        EngineSays::Ended,
        TimelineSays::Missing,
        fenced(),
        "intended: stay
         called: stay
         unknown: stay
         accepted: stay
         holding: stay
         suspect: stay
         cancel_asked, called: stay
         cancel_asked, accepted: stay
         cancel_asked, holding: stay
         succeeding: settle
         ended, live attempt: settle
         ended, attempt over: stay",
    );
}

#[test]
fn timeline_unreadable_gives_no_verdict() {
    row(
        EngineSays::Ended,
        TimelineSays::Unreadable,
        fenced(),
        "intended: unreadable
         called: unreadable
         unknown: unreadable
         accepted: unreadable
         holding: unreadable
         suspect: unreadable
         cancel_asked, called: unreadable
         cancel_asked, accepted: unreadable
         cancel_asked, holding: unreadable
         succeeding: unreadable
         ended, live attempt: unreadable
         ended, attempt over: stay",
    );
}

/// Wider than `states.md`: that the attempt is over is proven without the timeline, and frees the slot of a lost table.
#[test]
fn timeline_unreadable_for_long_keeps_no_slot() {
    row(
        EngineSays::Ended,
        TimelineSays::Unreadable,
        Context { is_lost: true, ..fenced() },
        "intended: over; pending(unreadable)
         called: over; pending(unreadable)
         unknown: over; pending(unreadable)
         accepted: over; pending(unreadable)
         holding: over; pending(unreadable)
         suspect: over; pending(unreadable)
         cancel_asked, called: over; cancelled
         cancel_asked, accepted: over; cancelled
         cancel_asked, holding: over; cancelled
         succeeding: over; succeeded
         ended, live attempt: unreadable
         ended, attempt over: stay",
    );
}
