//! Leave: who gets it, and who never does.

use std::time::Duration;

use tms_core::error::ErrorKind;
use tms_core::manager::attempt::{LeaveAnswer, LeaveStage};
use tms_core::model::action::Action;
use tms_core::model::attempt::{Expected, Holder};
use tms_core::timeline::Overtaken;

use crate::rig::{Rig, T1, T2, instant, leave_ask, run_id};

const START: LeaveStage = LeaveStage::Start;
const CALL: LeaveStage = LeaveStage::Call;

/// One of the two answers gives leave, the other says who has it.
fn one_of(first: &LeaveAnswer, second: &LeaveAnswer) {
    let is_given = |a: &LeaveAnswer| matches!(a, LeaveAnswer::Given(_));
    let is_held =
        |a: &LeaveAnswer| matches!(a, LeaveAnswer::Refused { reason, .. } if reason == "held_by_another_run");
    let is_one = (is_given(first) && is_held(second)) || (is_held(first) && is_given(second));
    assert!(is_one, "{first:?} {second:?}");
}

/// A node that does not know the attempt's engine gives the usual time limit: a job refuses one of 0.
#[tokio::test(start_paused = true)]
async fn leave_for_a_job_of_an_unknown_engine_has_the_usual_time_limit() {
    let mut engines = tms_core::engine::Engines::new();
    let mut rig = Rig::idle_with(|s| std::mem::swap(&mut s.engines, &mut engines));
    rig.engines = engines;
    rig.start_node();
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    let LeaveAnswer::Given(grant) = rig.ask(&job, &run_id(1), START).await else { panic!() };
    assert_eq!(grant.run_timeout_secs, 86_400);
    rig.stop().await;
}

/// C4
#[tokio::test(start_paused = true)]
async fn of_two_drivers_that_ask_at_once_one_gets_leave() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    // Both look at the table at the same time.
    rig.looks.set_delay(Duration::from_millis(500));
    let (runs, asked) = ([run_id(1), run_id(2)], [START, START]);
    let (a, b) = tokio::join!(rig.ask(&job, &runs[0], asked[0]), rig.ask(&job, &runs[1], asked[1]));
    one_of(&a, &b);
    let held = rig.find(&key).await.unwrap().attempt.unwrap();
    let winner = if matches!(a, LeaveAnswer::Given(_)) { 0 } else { 1 };
    assert_eq!(held.holder, Holder::Run(runs[winner].clone()));
    assert!(matches!(rig.ask(&job, &runs[winner], CALL).await, LeaveAnswer::Given(_)));
    rig.refused(&job, &runs[1 - winner], CALL, "held_by_another_run").await;
    rig.stop().await;
}

/// C4
#[tokio::test(start_paused = true)]
async fn a_driver_that_asks_ten_seconds_later_gets_no_leave() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    let first = rig.ask(&job, &run_id(1), START).await;
    rig.pass(10).await;
    let second = rig.ask(&job, &run_id(2), START).await;
    one_of(&first, &second);
    assert!(matches!(first, LeaveAnswer::Given(_)));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_holder_may_ask_again() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    for stage in [START, START, CALL, CALL] {
        let answer = rig.ask(&job, &run_id(1), stage).await;
        let LeaveAnswer::Given(grant) = answer else { panic!("{stage:?}: {answer:?}") };
        assert_eq!(grant.expected, Expected::Requested);
        assert_eq!(grant.instant, Some(instant(T1)));
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_a_finished_attempt_gets_no_leave() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.ends(&job, 1, "threw", 3, &["java.lang.OutOfMemoryError"]).await;
    rig.until_state(&key, "pending").await;
    for run in [run_id(1), run_id(9)] {
        let answer = rig.ask(&job, &run, START).await;
        assert!(matches!(answer, LeaveAnswer::Refused { .. }), "{answer:?}");
    }
    let second = rig.begun(2, "t", Action::Compaction, T1).await;
    rig.refused(&job, &run_id(1), CALL, "attempt_over").await;
    rig.refused(&job, &run_id(9), START, "attempt_over").await;
    rig.completes(&second, 2, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    rig.refused(&second, &run_id(2), CALL, "attempt_over").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_of_a_revoked_attempt_gets_no_leave() {
    let rig = Rig::start().await;
    rig.engine.set_absent_is_proof(true);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.engine.forget(&job.tag);
    rig.until_attempt(&key, "revoked").await;
    rig.refused(&job, &run_id(1), START, "revoked").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_driver_gets_no_leave() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    assert!(matches!(rig.ask(&job, &run_id(1), START).await, LeaveAnswer::Given(_)));
    let id = rig.find(&key).await.unwrap().id;
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.refused(&job, &run_id(1), CALL, "cancelled").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_leave_for_a_plan_that_somebody_else_completed() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.refused(&job, &run_id(1), START, "completed").await;
    rig.report(&job, &run_id(1), "untouched", 10, &[]).await;
    rig.engine.end(&job.tag, "exit 10");
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!(ended.n_failed, 0);
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_leave_for_a_plan_that_was_rolled_back() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.table("t", |t| t.roll_back(Action::Clustering, &instant(T1)));
    rig.refused(&job, &run_id(1), START, "missing").await;
    rig.report(&job, &run_id(1), "untouched", 10, &[]).await;
    rig.engine.end(&job.tag, "exit 10");
    rig.until_state(&key, "obsolete").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_leave_for_a_clustering_that_was_overtaken_between_submission_and_call() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    assert!(matches!(rig.ask(&job, &run_id(1), START).await, LeaveAnswer::Given(_)));
    rig.table("t", |t| {
        t.overtaken = Overtaken::Yes { instant: T2.to_owned(), file_group: "g".to_owned() };
    });
    rig.refused(&job, &run_id(1), CALL, "overtaken").await;
    rig.ends(&job, 1, "untouched", 10, &[]).await;
    let parked = rig.until_state(&key, "parked").await;
    assert_eq!((parked.n_failed, parked.has_called), (0, false));
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

/// Unknown never counts as no.
#[tokio::test(start_paused = true)]
async fn no_leave_for_a_clustering_whose_overtaking_cannot_be_told() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Clustering, T1).await;
    let job = rig.job(1).await;
    rig.table("t", |t| t.overtaken = Overtaken::Unknown { reason: "a commit is too large".to_owned() });
    rig.refused(&job, &run_id(1), START, "overtaken_unknown").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_leave_when_somebody_else_began_the_plan_meanwhile() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    assert!(matches!(rig.ask(&job, &run_id(1), START).await, LeaveAnswer::Given(_)));
    rig.table("t", |t| t.inflight(Action::Compaction, &instant(T1)));
    rig.refused(&job, &run_id(1), CALL, "foreign_runner").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_table_is_unreadable_a_driver_is_told_to_ask_again() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.table("t", |t| t.is_unreadable = true);
    for stage in [START, CALL] {
        let error = rig.try_ask(&job, &run_id(1), stage).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(rig.find(&key).await.unwrap().attempt.unwrap().holder, Holder::None);
    rig.table("t", |t| t.is_unreadable = false);
    rig.take_leave(&job, &run_id(1)).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_denied_and_an_unknown_tag_is_not_found() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    rig.planned("u", Action::Compaction, T1).await;
    let (job, other) = (rig.job(1).await, rig.job(2).await);
    let mut ask = leave_ask(&job, &run_id(1), START);
    ask.token = leave_ask(&other, &run_id(1), START).token;
    assert_eq!(rig.managers.attempts.leave(&ask).await.unwrap_err().kind(), ErrorKind::Denied);
    ask.token = String::new();
    assert_eq!(rig.managers.attempts.leave(&ask).await.unwrap_err().kind(), ErrorKind::Denied);
    let tag = job.tag.as_str();
    // The next attempt of the same instance, which does not exist.
    ask.tag = format!("{}0002", &tag[..tag.len() - 4]).parse().unwrap();
    assert_eq!(rig.managers.attempts.leave(&ask).await.unwrap_err().kind(), ErrorKind::NotFound);
    let mut digits: Vec<char> = tag.chars().collect();
    let place = digits.len() - 6;
    digits[place] = if digits[place] == '0' { '1' } else { '0' };
    ask.tag = digits.into_iter().collect::<String>().parse().unwrap();
    assert_eq!(rig.managers.attempts.leave(&ask).await.unwrap_err().kind(), ErrorKind::NotFound);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_left_untouched_does_not_end_the_one_that_holds_leave() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    // A twin of the driver gives up while nobody has leave, and says so.
    rig.report(&job, &run_id(2), "untouched", 11, &[]).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.table("t", |t| t.inflight(Action::Compaction, &instant(T1)));
    // And again, now that somebody else holds leave.
    rig.report(&job, &run_id(2), "untouched", 10, &[]).await;
    assert_eq!(rig.find(&key).await.unwrap().attempt.unwrap().report, None);
    rig.engine.end(&job.tag, "killed");
    let failed = rig.until_state(&key, "pending").await;
    assert_eq!(failed.n_failed, 1, "the holder was killed: it counts");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_table_and_its_options_come_with_leave() {
    let rig = Rig::start().await;
    rig.planned("t", Action::Compaction, T1).await;
    rig.settings("t", |s| {
        s.hudi_options.insert("hoodie.memory.merge.fraction".to_owned(), "0.4".to_owned());
    })
    .await;
    let job = rig.job(1).await;
    let LeaveAnswer::Given(grant) = rig.ask(&job, &run_id(1), START).await else { panic!("refused") };
    assert_eq!(grant.base_path, "/lake/t");
    assert_eq!(grant.table_name.as_deref(), Some("t"));
    assert_eq!(grant.options["hoodie.memory.merge.fraction"], "0.4");
    assert_eq!(grant.options["hoodie.cleaner.policy.failed.writes"], "LAZY");
    rig.stop().await;
}
