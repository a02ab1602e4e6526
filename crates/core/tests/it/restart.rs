//! Restarts, kills and take-overs: nothing is lost, nothing runs twice.

use std::time::Duration;

use tms_core::alert::AlertKind;
use tms_core::engine::JobState;
use tms_core::engine::scripted::{Answer, ScriptedEngine};
use tms_core::manager::attempt::LeaveStage;
use tms_core::model::action::Action;
use tms_core::model::id::EngineName;
use tms_core::service::barrier::BarrierService;
use tms_core::service::dispatch::DispatchService;
use tms_core::service::housekeeping::HousekeepingService;
use tms_core::service::leader::Leader;
use tms_core::service::live_set::LiveSetService;
use tms_core::service::monitor::MonitorService;
use tms_core::service::timeline::TimelineService;
use tms_core::service::{Held, LeaderService};
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, T1, T2, instant, run_id};

/// C2: the node dies between the engine's acceptance and our write of the handle.
#[tokio::test(start_paused = true)]
async fn a_kill_between_acceptance_and_our_write_leaves_one_job() {
    let mut rig = Rig::start().await;
    rig.engine.answer_next([Answer::StallAfterStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.kill_node().await;
    assert_eq!(rig.find(&key).await.unwrap().attempt_state().unwrap().as_str(), "called");
    rig.start_node();
    rig.until_attempt(&key, "accepted").await;
    rig.pass(1200).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.completes(&job, 1, "t", Action::Compaction, T1).await;
    let ended = rig.until_state(&key, "succeeded").await;
    assert_eq!((ended.n_attempts, rig.engine.calls().submit, rig.engine.starts(&job.tag)), (1, 1, 1));
    rig.stop().await;
}

/// C2: the same for kills at every step of the way, counted in steps of the scheduler.
#[tokio::test(start_paused = true)]
async fn a_kill_at_any_step_of_a_submission_gives_one_holder_and_one_end() {
    for n in 0..60_u32 {
        let mut rig = Rig::start().await;
        let key = rig.planned("t", Action::Compaction, T1).await;
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
        rig.crash().await;
        let held = rig.until_attempt(&key, "accepted").await;
        let jobs = rig.engine.jobs();
        assert!(jobs.len() <= 1, "step {n}: {} submissions", jobs.len());
        assert_eq!(rig.engine.tags(), [held.attempt.unwrap().tag], "step {n}");
        rig.begun(1, "t", Action::Compaction, T1).await;
        rig.completes(&jobs[0], 1, "t", Action::Compaction, T1).await;
        rig.until_state(&key, "succeeded").await;
        rig.stop().await;
    }
}

/// C5: ten restarts while the engine is unreachable; the tags it ever sees are a set of one.
#[tokio::test(start_paused = true)]
async fn restarts_while_the_engine_is_unreachable_repeat_no_submission() {
    let mut rig = Rig::start().await;
    rig.engine.set_unreachable(Some("down"));
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.job(1).await;
    for _ in 0..10 {
        rig.pass(120).await;
        rig.crash().await;
    }
    rig.pass(60).await;
    assert_eq!(rig.engine.tags().len(), 1);
    assert_eq!(rig.engine.calls().submit, 1, "unreachable proves nothing, and no grace runs");
    assert!(rig.alerts.stands(AlertKind::EngineTrouble));
    let live = rig.find(&key).await.unwrap();
    assert_eq!((live.n_attempts, live.attempt_state().unwrap().as_str()), (1, "unknown"));
    // It comes back and knows nothing: after the grace the next attempt.
    rig.engine.set_unreachable(None);
    rig.pass(590).await;
    assert_eq!(rig.engine.calls().submit, 1);
    rig.job(2).await;
    rig.stop().await;
}

/// C13: take over, do not kill.
#[tokio::test(start_paused = true)]
async fn two_hundred_running_jobs_survive_a_change_of_leader_untouched() {
    let mut rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.running_max = 1000);
    rig.stop_node().await;
    rig.start_node();
    for n in 0..200 {
        rig.planned(&format!("t{n}"), Action::Compaction, T1).await;
    }
    rig.job(200).await;
    rig.pass(5).await;
    for job in rig.engine.jobs() {
        rig.take_leave(&job, &run_id(1)).await;
    }
    let before = rig.engine.calls();
    rig.crash().await;
    rig.pass(100).await;
    let after = rig.engine.calls();
    assert_eq!((after.submit, after.cancel, after.find - before.find), (200, 0, 0));
    // C18: one call per interval, however many jobs.
    let n_polls = after.poll - before.poll;
    assert!(n_polls <= 120, "{n_polls} polls in a hundred seconds");
    for n in 0..200 {
        let now = rig.find(&Rig::key(&format!("t{n}"), Action::Compaction, T1)).await.unwrap();
        assert_eq!(now.attempt_state().unwrap().as_str(), "holding", "{n}");
    }
    rig.stop().await;
}

/// C18: thousands of running jobs cost a handful of calls per interval, no task each, and no growth while they run.
#[tokio::test(start_paused = true)]
async fn five_thousand_running_jobs_take_a_call_per_thousand_and_interval() {
    const JOBS: usize = 5_000;
    const SECONDS: u64 = 60;
    const CALLS_EACH: u64 = 5;
    let mut rig = Rig::start().await;
    rig.engine.set_capabilities(|can| can.running_max = u32::try_from(2 * JOBS).unwrap());
    rig.stop_node().await;
    rig.start_node();
    for n in 0..JOBS {
        rig.planned(&format!("t{n}"), Action::Compaction, T1).await;
    }
    rig.job(JOBS).await;
    rig.pass(30).await;
    let n_tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (before, n_before) = (rig.engine.calls(), n_tasks());
    assert!(n_before < 200, "{n_before} tasks for {JOBS} jobs");
    for _ in 0..SECONDS {
        rig.pass(1).await;
        assert!(n_tasks() <= n_before + 50, "{} tasks, {n_before} before", n_tasks());
    }
    let after = rig.engine.calls();
    let n_polls = after.poll - before.poll;
    assert!(n_polls >= CALLS_EACH * SECONDS / 4, "nobody looks at the jobs: {n_polls} polls");
    assert!(n_polls <= CALLS_EACH * (SECONDS + 2), "{n_polls} polls in {SECONDS} seconds");
    assert_eq!((after.submit, after.find - before.find), (JOBS as u64, 0));
    rig.stop().await;
}

/// Nothing outlives a term.
#[tokio::test(start_paused = true)]
async fn dispose_ends_every_task_whatever_is_under_way() {
    let mut rig = Rig::idle_with(|_| ());
    rig.engine.answer_with(Answer::StallBeforeStart);
    tokio::task::yield_now().await;
    let n_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    rig.start_node();
    rig.looks.set_delay(Duration::from_secs(30));
    for n in 0..10 {
        rig.planned(&format!("t{n}"), Action::Compaction, T1).await;
    }
    rig.pass(100).await;
    rig.callback("t1").await;
    rig.callback("new").await;
    rig.pass(5).await;
    assert!(tokio::runtime::Handle::current().metrics().num_alive_tasks() > n_before + 10);
    let since = rig.clock_secs();
    rig.stop_node().await;
    assert!(rig.clock_secs() - since < 10);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), n_before);
    rig.stop().await;
}

/// A Service that is initialised twice for one term finds the same, and does nothing twice.
#[tokio::test(start_paused = true)]
async fn a_term_whose_services_are_initialised_twice_does_nothing_twice() {
    let rig = Rig::idle_with(|_| ());
    let n_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let term = rig.store.begin_term(0, &"n1".parse().unwrap()).await.unwrap();
    let stop = CancellationToken::new();
    let leader = Leader::load(&rig.leader_parts(), term, stop.clone()).await.unwrap();
    let services: [Box<dyn LeaderService>; 6] = [
        Box::new(BarrierService),
        Box::new(MonitorService),
        Box::new(TimelineService),
        Box::new(DispatchService),
        Box::new(HousekeepingService),
        Box::new(LiveSetService),
    ];
    let mut held: Vec<Box<dyn Held>> = Vec::new();
    for service in services.iter().chain(&services) {
        held.push(service.initialize(&leader).await.unwrap());
    }
    let mut keys = Vec::new();
    for n in 0..20 {
        keys.push((n, rig.planned(&format!("t{n}"), Action::Compaction, T1).await));
    }
    rig.job(20).await;
    rig.pass(30).await;
    assert_eq!(rig.engine.calls().submit, 20);
    for job in rig.engine.jobs() {
        rig.take_leave(&job, &run_id(1)).await;
        let name = job.base_path.trim_start_matches("/lake/").to_owned();
        rig.completes(&job, 1, &name, Action::Compaction, T1).await;
    }
    for (_, key) in &keys {
        let ended = rig.until_state(key, "succeeded").await;
        assert_eq!(ended.n_attempts, 1);
    }
    assert_eq!(rig.looks.most_at_once(), 1, "a table is looked at by one flow at a time");
    while let Some(one) = held.pop() {
        one.dispose().await;
    }
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), n_before);
    rig.stop().await;
}

/// The engine of a live attempt is not in the configuration any more: an alarm, and nothing is concluded from it.
#[tokio::test(start_paused = true)]
async fn a_live_attempt_of_an_engine_that_is_not_configured_is_an_alarm() {
    let mut rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.stop_node().await;
    let configured = std::mem::take(&mut rig.engines);
    rig.engines.insert("other".parse::<EngineName>().unwrap(), ScriptedEngine::new());
    rig.start_node();
    rig.pass(900).await;
    assert!(rig.alerts.text(AlertKind::EngineTrouble).unwrap().contains("not configured"));
    assert_eq!(rig.find(&key).await.unwrap().attempt_state().unwrap().as_str(), "holding");
    // The timeline still decides.
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    rig.until_state(&key, "succeeding").await;
    rig.stop_node().await;
    rig.engines = configured;
    rig.start_node();
    rig.engine.end(&job.tag, "exit 0");
    rig.until_state(&key, "succeeded").await;
    assert!(!rig.alerts.stands(AlertKind::EngineTrouble));
    rig.stop().await;
}

/// An attempt without a holder does not need its engine to be given up.
#[tokio::test(start_paused = true)]
async fn a_plan_completed_by_somebody_else_ends_an_attempt_of_a_lost_engine() {
    let mut rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_attempt(&key, "accepted").await;
    rig.stop_node().await;
    rig.engines.clear();
    rig.start_node();
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.callback("t").await;
    rig.until_state(&key, "succeeded").await;
    rig.refused(&job, &run_id(1), LeaveStage::Start, "revoked").await;
    rig.stop().await;
}

/// A job of an attempt that was revoked is found alive: told to end, and alarmed when it does not.
#[tokio::test(start_paused = true)]
async fn an_orphan_is_cancelled_and_alarmed() {
    let rig = Rig::start().await;
    rig.engine.answer_next([Answer::LoseBeforeStart]);
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.job(1).await;
    rig.until_state(&key, "pending").await;
    // It started after all, ten minutes too late, and hangs before it asks.
    rig.engine.ignore_cancels(8);
    rig.engine.set_state(&job.tag, JobState::Running);
    rig.refused(&job, &run_id(1), LeaveStage::Start, "revoked").await;
    rig.eventually("alarmed", || rig.alerts.stands(AlertKind::Orphan)).await;
    rig.eventually("ended", || rig.engine.live_tags().iter().all(|t| *t != job.tag)).await;
    rig.pass(60).await;
    assert!(!rig.alerts.stands(AlertKind::Orphan));
    rig.stop().await;
}

/// The leader of a former term writes nothing more.
#[tokio::test(start_paused = true)]
async fn a_term_that_another_one_followed_ends_and_writes_nothing() {
    let rig = Rig::start().await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    rig.begun(1, "t", Action::Compaction, T1).await;
    rig.store.begin_term(7, &"n2".parse().unwrap()).await.unwrap();
    rig.planned("t", Action::Compaction, T2).await;
    rig.pass(120).await;
    // The single node won again, with a higher term, and goes on.
    let (term, node) = rig.store.current_term().await.unwrap().unwrap();
    assert!(term.0 > 8 && node.as_str() == "n1", "{term}");
    rig.until_state(&Rig::key("t", Action::Compaction, T2), "pending").await;
    assert_eq!(rig.find(&key).await.unwrap().attempt_state().unwrap().as_str(), "holding");
    assert_eq!(rig.engine.calls().submit, 1);
    rig.stop().await;
}
