//! From the choice to the engine's answer, with everything that can be lost on the way.

use std::sync::Arc;
use std::time::Duration;

use tms_core::alert::AlertKind;
use tms_core::engine::scripted::{Answer, ScriptedEngine};
use tms_core::engine::{Engine, NotReady};
use tms_core::manager::attempt::{LeaveAnswer, LeaveStage};
use tms_core::manager::queue::QueueChange;
use tms_core::model::action::Action;
use tms_core::model::instance::InstanceState;
use tms_core::model::instance::{ParkReason, WaitReason};

use crate::rig::{Rig, T1, attempt_number, instant, run_id};

/// The answer was lost, and the job runs: adopted.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_a_job_that_started_is_looked_up_and_adopted() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::LoseAfterStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!((ended.n_attempts, rig.engine.calls().submit), (1, 1));
    rig.stop().await;
}

/// The driver asks before the engine is looked up: what the engine calls the job is stored all the same, and it is polled in
/// one call with the others from then on.
#[tokio::test(start_paused = true)]
async fn a_job_that_holds_leave_before_it_was_found_gets_its_name() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::LoseAfterStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    rig.take_leave(&job, &run_id(1)).await;
    rig.until(&key, "named", |i| i.attempt.as_ref().is_some_and(|a| a.handle.is_some())).await;
    rig.pass(5).await;
    let n_finds = rig.engine.calls().find;
    rig.pass(30).await;
    assert_eq!(rig.engine.calls().find, n_finds);
    assert_eq!(rig.find(&key).await.unwrap().attempt_state().unwrap().as_str(), "holding");
    rig.stop().await;
}

/// C3, second run: accepted never, the look-up empty past the grace period.
#[tokio::test(start_paused = true)]
async fn a_lost_submission_is_repeated_once_and_only_after_the_grace() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::LoseBeforeStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let first = rig.job(1).await;
    rig.until_attempt(&key, "unknown").await;
    rig.pass(590).await;
    assert_eq!(rig.engine.calls().submit, 1, "the grace is not over");
    let second = rig.job(2).await;
    assert_eq!(attempt_number(&second.tag), 2);
    rig.refused(&first, &run_id(9), LeaveStage::Start, "attempt_over").await;
    rig.take_leave(&second, &run_id(2)).await;
    rig.completes(&second, 2, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!((ended.n_failed, rig.engine.calls().submit), (0, 2));
    rig.stop().await;
}

/// C3, first run: accepted, and then the call stalls past its time-out.
#[tokio::test(start_paused = true)]
async fn a_call_that_stalls_past_its_limit_gives_one_job() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::StallAfterStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.pass(700).await;
    let id = rig.find(&key).await.unwrap().id;
    assert_eq!(rig.find(&key).await.unwrap().attempt_state().unwrap().as_str(), "holding");
    rig.engine.release();
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    assert_eq!(
        (rig.engine.calls().submit, rig.engine.starts(&job.tag)),
        (1, 1),
        "{:?}",
        rig.states(id).await
    );
    rig.stop().await;
}

/// C3, with a driver that starts slowly: `unknown`, then `accepted`.
#[tokio::test(start_paused = true)]
async fn a_stalled_submission_is_unknown_and_then_accepted() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::StallAfterStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    let accepted = rig.until_attempt(&key, "accepted").await;
    let states = rig.states(accepted.id).await;
    assert_eq!(&states[states.len() - 2..], ["active/unknown", "active/accepted"], "{states:?}");
    rig.take_leave(&job, &run_id(1)).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

/// C8: after a refusal too the tag is looked up.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_left_a_job_running_is_adopted() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::RefuseAndRun("duplicate name".to_owned())]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.until_attempt(&key, "accepted").await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!((ended.n_attempts, rig.engine.calls().submit), (1, 1));
    rig.stop().await;
}

/// The engine's refusal is believed when nothing can be there; it does not count and is tried again after a back-off.
#[tokio::test(start_paused = true)]
async fn a_refused_submission_waits_and_does_not_count() {
    let rig = Rig::start().await;
    rig.engine.set_absent_is_proof(true);
    rig.engine.answer_next(vec![Answer::Refuse("no room".to_owned()); 5]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let waiting = rig.until_state(&key, "pending").await;
    rig.job(1).await;
    let waiting = rig
        .until(&key, "refused", |i| {
            matches!(i.state, InstanceState::Pending { reason: WaitReason::EngineRefused, .. })
        })
        .await
        .id
        .eq(&waiting.id);
    assert!(waiting);
    rig.job(6).await;
    let running = rig.until_attempt(&key, "accepted").await;
    assert_eq!((running.n_failed, running.n_attempts), (0, 6));
    rig.stop().await;
}

/// One call starts two drivers: one works, the other exits untouched.
#[tokio::test(start_paused = true)]
async fn an_engine_that_starts_two_drivers_for_one_call_gets_one_holder() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::AcceptTwice]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    assert_eq!(rig.engine.starts(&job.tag), 2);
    rig.refused(&job, &run_id(2), LeaveStage::Start, "held_by_another_run").await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!(ended.n_attempts, 1);
    rig.stop().await;
}

/// A driver that asks before the engine's answer was stored.
#[tokio::test(start_paused = true)]
async fn a_driver_that_asks_while_its_submission_is_unknown_gets_leave() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::LoseBeforeStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "unknown").await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.until_attempt(&key, "holding").await;
    // It speaks; the engine knows nothing of it.
    for _ in 0..30 {
        rig.pass(30).await;
        assert!(!rig.speak(&job, &run_id(1), 10).await);
    }
    assert_eq!(rig.engine.calls().submit, 1);
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.report(&job, &run_id(1), "returned", 0, &[]).await;
    rig.until_state(&key, "succeeding").await;
    rig.engine.end(&job.tag, "exit 0");
    rig.until_state(&key, "succeeded").await;
    rig.stop().await;
}

/// C1: another job has our tag.
#[tokio::test(start_paused = true)]
async fn a_job_of_another_identity_under_our_tag_is_not_adopted() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::LoseBeforeStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.engine.take_tag(&job.tag, "application_1_0001 of somebody else");
    let parked = rig.until_parked(&key, ParkReason::TagTaken).await;
    assert!(rig.alerts.stands(AlertKind::TagTaken));
    rig.refused(&job, &run_id(1), LeaveStage::Start, "revoked").await;
    rig.pass(2 * 3600).await;
    assert_eq!(rig.engine.calls().submit, 1);
    assert!(rig.managers.instances.retry(parked.id, false, "test").await.is_err());
    rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    let second = rig.job(2).await;
    assert_ne!(second.tag, job.tag);
    rig.stop().await;
}

/// C1: the same identity is adopted without a second submission.
#[tokio::test(start_paused = true)]
async fn a_job_of_the_same_identity_is_adopted() {
    let mut rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    rig.crash().await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    rig.until_state(&key, "succeeded").await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lacks_something_parks_and_is_released_when_it_has_it() {
    let rig = Rig::start().await;
    let lack =
        NotReady { reason: ParkReason::BundleTooOld, detail: "no bundle for table version 9".to_owned() };
    rig.engine.set_not_ready(Some(lack));
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.until_parked(&key, ParkReason::BundleTooOld).await;
    assert!(rig.alerts.stands(AlertKind::EngineTrouble));
    rig.pass(3600).await;
    assert_eq!(rig.engine.calls().submit, 0);
    rig.engine.set_not_ready(None);
    rig.job(1).await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_an_engine_that_is_not_configured_is_taken_and_parked() {
    let rig = Rig::start_with(|setup| {
        let spark = FamilyEngine(ScriptedEngine::new());
        setup.engines = [("default".parse().unwrap(), Arc::new(spark) as Arc<dyn Engine>)].into();
    })
    .await;
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    let mut asked = crate::rig::announcement("t", vec![(Action::Compaction, T1.to_owned())]);
    asked.execution_engine = Some("presto".to_owned());
    rig.managers.requests.hand_over(asked).await.unwrap();
    let key = Rig::key("t", Action::Compaction, T1);
    rig.until_parked(&key, ParkReason::NoEngine).await;
    rig.pass(3600).await;
    rig.until_parked(&key, ParkReason::NoEngine).await;
    rig.stop().await;
}

/// The scripted engine, as one of the family `spark` that is no simulation.
#[derive(Debug)]
struct FamilyEngine(Arc<ScriptedEngine>);

#[async_trait::async_trait]
impl Engine for FamilyEngine {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn families(&self) -> &'static [&'static str] {
        &["spark"]
    }

    fn capabilities(&self) -> tms_core::engine::Capabilities {
        tms_core::engine::Capabilities { is_simulation: false, ..self.0.capabilities() }
    }

    async fn ready(&self, need: tms_core::engine::JobNeed) -> Result<(), NotReady> {
        self.0.ready(need).await
    }

    async fn health(&self) -> Result<(), NotReady> {
        self.0.health().await
    }

    async fn submit(&self, job: &tms_core::engine::Job) -> tms_core::engine::SubmitOutcome {
        self.0.submit(job).await
    }

    async fn find(&self, tag: &tms_core::model::id::Tag, handle: Option<&str>) -> tms_core::engine::Found {
        self.0.find(tag, handle).await
    }

    async fn living(&self) -> Result<Vec<tms_core::engine::LivingJob>, tms_core::error::Error> {
        self.0.living().await
    }

    async fn poll(&self, jobs: &[tms_core::engine::JobRef]) -> Vec<tms_core::engine::JobState> {
        self.0.poll(jobs).await
    }

    async fn cancel(
        &self,
        job: &tms_core::engine::JobRef,
        force: tms_core::engine::Force,
    ) -> Result<(), tms_core::error::Error> {
        self.0.cancel(job, force).await
    }

    async fn logs(
        &self,
        job: &tms_core::engine::JobRef,
        bytes_max: usize,
    ) -> Result<tms_core::engine::LogTail, tms_core::error::Error> {
        self.0.logs(job, bytes_max).await
    }
}

/// A table whose properties cannot be read is tried again at a pace, not in a loop.
#[tokio::test(start_paused = true)]
async fn a_submission_that_cannot_be_prepared_is_no_hot_loop() {
    let rig = Rig::start().await;
    rig.looks.fail_versions(true);
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.pass(300).await;
    let n = rig.looks.n_versions();
    assert!((2..100).contains(&n), "{n} tries in five minutes");
    assert_eq!(rig.find(&key).await.unwrap().state.as_str(), "pending");
    rig.looks.fail_versions(false);
    rig.job(1).await;
    rig.stop().await;
}

/// An engine whose calls stall holds up only its own work.
#[tokio::test(start_paused = true)]
async fn an_engine_that_stalls_does_not_hold_up_another() {
    let other = ScriptedEngine::new();
    let second: Arc<dyn Engine> = other.clone();
    let rig = Rig::start_with(|setup| {
        setup.engines.insert("other".parse().unwrap(), second);
    })
    .await;
    rig.engine.answer_with(Answer::StallBeforeStart);
    let to = |name: &str| QueueChange { engine: Some(Some(name.parse().unwrap())), ..QueueChange::default() };
    rig.managers.queues.set(&"slow".parse().unwrap(), &to("default"), "test").await.unwrap();
    rig.managers.queues.set(&"fast".parse().unwrap(), &to("other"), "test").await.unwrap();
    rig.pass(2).await;
    for n in 0..40 {
        let name = format!("s{n}");
        rig.callback(&name).await;
        rig.settings(&name, |s| s.queue = Some("slow".parse().unwrap())).await;
        rig.planned(&name, Action::Compaction, T1).await;
    }
    rig.pass(5).await;
    assert!(rig.engine.calls().submit > 0);
    rig.callback("f").await;
    rig.settings("f", |s| s.queue = Some("fast".parse().unwrap())).await;
    rig.planned("f", Action::Compaction, T1).await;
    rig.pass(5).await;
    assert_eq!(other.calls().submit, 1, "{} stall", rig.engine.calls().submit);
    rig.engine.release();
    rig.stop().await;
}

/// The limits hold also while submissions are being prepared.
#[tokio::test(start_paused = true)]
async fn work_that_is_being_prepared_counts_against_the_limits() {
    let rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.running_max = 2);
    // The limit is read at the start of a term.
    let mut rig = rig;
    rig.stop_node().await;
    rig.start_node();
    rig.callback("urgent").await;
    rig.settings("urgent", |s| s.priority = Some(100)).await;
    for n in 0..10 {
        rig.table(&format!("t{n}"), |t| t.plan(Action::Compaction, &instant(T1)));
    }
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    for n in 0..10 {
        rig.callback(&format!("t{n}")).await;
    }
    rig.pass(2).await;
    // Two are being prepared when something more urgent comes.
    rig.looks.set_delay(Duration::from_secs(5));
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    rig.looks.set_delay_of("urgent", Duration::ZERO);
    rig.planned("urgent", Action::Compaction, T1).await;
    rig.pass(60).await;
    assert_eq!(rig.engine.calls().submit, 2);
    rig.stop().await;
}

/// C22: names are labels; the path goes to the job as it was announced.
#[tokio::test(start_paused = true)]
async fn odd_names_reach_the_job_unchanged_and_no_tag() {
    let rig = Rig::start().await;
    let names = [
        "a b",
        "o'brien",
        "back`tick",
        "dots.in.name",
        "ünïcödé",
        "😀",
        "quo\"te",
        "per%20cent",
        "semi;drop",
    ];
    for (n, name) in names.iter().enumerate() {
        rig.planned(name, Action::Compaction, T1).await;
        let job = rig.job(n + 1).await;
        assert_eq!(job.base_path, format!("/lake/{name}"));
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(job.tag.as_str().bytes().all(is_plain), "{}", job.tag);
        let LeaveAnswer::Given(grant) = rig.ask(&job, &run_id(1), LeaveStage::Start).await else { panic!() };
        assert_eq!(grant.base_path, format!("/lake/{name}"));
        assert_eq!(grant.table_name.as_deref(), Some(*name));
    }
    rig.stop().await;
}
