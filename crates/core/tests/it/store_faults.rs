//! A store that fails one call, for every call of a full life (C6): each run ends in the same state.

mod failing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tms_core::engine::Job;
use tms_core::engine::scripted::Answer;
use tms_core::error::ErrorKind;
use tms_core::manager::attempt::{LeaveAnswer, LeaveStage};
use tms_core::model::action::Action;
use tms_core::model::id::RunId;
use tms_core::store::memory::memory_store;

use crate::rig::{Rig, T1, T2, announcement, instant, leave_ask, report_of, run_id};
use crate::store_faults::failing::{FailingStore, When};

use secrecy::ExposeSecret;

/// Times that a writer or a driver of these tests asks again.
const ASKS_MAX: usize = 20;

/// What one life ended with.
#[derive(Debug, PartialEq, Eq)]
struct End {
    first: (String, u32, u32),
    second: String,
    clean: Option<String>,
    n_holders: usize,
}

/// A writer repeats its commit's callback until it is taken.
async fn callback(rig: &Rig) {
    for _ in 0..ASKS_MAX {
        match rig.managers.requests.hand_over(announcement("t", Vec::new())).await {
            Ok(_) => return,
            Err(e) => assert_ne!(e.kind(), ErrorKind::Invalid, "{e}"),
        }
        rig.pass(1).await;
    }
    panic!("the callback was never taken");
}

/// A driver asks until it is answered.
async fn take_leave(rig: &Rig, job: &Job, run: &RunId) -> bool {
    for stage in [LeaveStage::Start, LeaveStage::Call] {
        let mut answer = None;
        for _ in 0..ASKS_MAX {
            match rig.managers.attempts.leave(&leave_ask(job, run, stage)).await {
                Ok(given) => {
                    answer = Some(given);
                    break;
                }
                Err(e) => assert_ne!(e.kind(), ErrorKind::Denied, "{e}"),
            }
            rig.pass(1).await;
        }
        if !matches!(answer, Some(LeaveAnswer::Given(_))) {
            return false;
        }
    }
    true
}

async fn report(rig: &Rig, job: &Job, run: &RunId, outcome: &str, exit_code: i32) {
    for _ in 0..ASKS_MAX {
        let report = report_of(outcome, exit_code, &[]);
        if rig.managers.attempts.end(&job.tag, job.token.expose_secret(), run, report).await.is_ok() {
            return;
        }
        rig.pass(1).await;
    }
}

/// One life: a compaction that fails once and then succeeds, one that is cancelled while it runs, and a clean.
async fn live(store: &Arc<FailingStore>) -> End {
    let rig = Rig::start_with(|s| {
        s.store = store.clone();
        s.policies.defaults.clean_after_commits = 1;
        s.policies.retry.backoff_first = Duration::from_secs(1);
    })
    .await;
    rig.engine.set_capabilities(|can| can.submit_timeout = Duration::from_secs(20));
    rig.table("t", |t| t.plan(Action::Compaction, &instant(T1)));
    callback(&rig).await;
    let mut n_holders = 0;
    let mut n_jobs = 0;
    let mut failed_once = false;
    let mut phase = 0;
    let mut clean_at = None;
    let (first, second) = (Rig::key("t", Action::Compaction, T1), Rig::key("t", Action::Compaction, T2));
    // The drivers: each submitted job takes its leave and does its work, whatever the store does.
    for _ in 0..5_000 {
        rig.pass(1).await;
        let jobs = rig.engine.jobs();
        for job in jobs.iter().skip(n_jobs) {
            n_jobs += 1;
            let run = run_id(n_jobs);
            if !take_leave(&rig, job, &run).await {
                report(&rig, job, &run, "untouched", 10).await;
                rig.engine.end(&job.tag, "exit 10");
                continue;
            }
            n_holders += 1;
            let instance = store.inner().get_instance(job.tag.instance()).await.unwrap().unwrap();
            match &instance.key.instant {
                Some(i) if i.as_str() == T1 => {
                    rig.table("t", |t| t.inflight(Action::Compaction, &instant(T1)));
                    if !failed_once {
                        failed_once = true;
                        report(&rig, job, &run, "threw", 3).await;
                        rig.engine.end(&job.tag, "exit 3");
                        continue;
                    }
                    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
                    report(&rig, job, &run, "returned", 0).await;
                    rig.engine.end(&job.tag, "exit 0");
                }
                Some(_) => {
                    rig.table("t", |t| t.inflight(Action::Compaction, &instant(T2)));
                    for _ in 0..ASKS_MAX {
                        if rig.managers.instances.cancel(instance.id, "test").await.is_ok() {
                            break;
                        }
                        rig.pass(1).await;
                    }
                }
                None => {
                    clean_at = Some(instance.id);
                    rig.table("t", |t| {
                        t.plan(Action::Clean, &instant("20270301000000001"));
                        t.complete(Action::Clean, &instant("20270301000000001"));
                    });
                    report(&rig, job, &run, "returned", 0).await;
                    rig.engine.end(&job.tag, "exit 0");
                }
            }
        }
        // One after the other: what is awaited now, and what its end leads to.
        let awaited = match (phase, clean_at) {
            (0, _) => store.inner().find_instance(&first).await.unwrap(),
            (1, _) => store.inner().find_instance(&second).await.unwrap(),
            (_, Some(clean)) => store.inner().get_instance(clean).await.unwrap(),
            (_, None) => None,
        };
        if awaited.is_none_or(|i| !i.state.is_ended()) {
            continue;
        }
        phase += 1;
        rig.table("t", |t| match phase {
            1 => t.plan(Action::Compaction, &instant(T2)),
            _ => t.sight.commits.push(instant("20270201000000001")),
        });
        callback(&rig).await;
        if phase == 3 {
            break;
        }
    }
    let first = store.inner().find_instance(&first).await.unwrap().unwrap();
    let second = store.inner().find_instance(&second).await.unwrap();
    let clean = match clean_at {
        Some(id) => store.inner().get_instance(id).await.unwrap().map(|i| i.state.as_str().to_owned()),
        None => None,
    };
    let submits_per_tag = rig.engine.tags().iter().map(|t| rig.engine.submits(t)).max().unwrap_or(0);
    assert_eq!(submits_per_tag, 1, "each tag once; {} failed", store.failed_call());
    rig.stop().await;
    End {
        first: (first.state.as_str().to_owned(), first.n_failed, u32::from(first.has_called)),
        second: second.map_or_else(String::new, |i| i.state.as_str().to_owned()),
        clean,
        n_holders,
    }
}

fn expected() -> End {
    End {
        first: ("succeeded".to_owned(), 1, 1),
        second: "cancelled".to_owned(),
        clean: Some("succeeded".to_owned()),
        n_holders: 4,
    }
}

async fn every_call_fails_once(when: When) {
    let counted = FailingStore::over(memory_store(), None);
    assert_eq!(live(&counted).await, expected());
    let n_calls = counted.n_calls();
    assert!(n_calls > 50);
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for (n, name) in (1..).zip(counted.names()) {
        let n_before = seen.entry(name).or_default();
        *n_before += 1;
        // Each poll and each idle pass reads the same again: of those reads every third one is enough.
        let is_poll = matches!(name, "queues" | "get_instance" | "get_table" | "touched" | "take_intents");
        if is_poll && *n_before > 12 && (name == "queues" || !n_before.is_multiple_of(3)) {
            continue;
        }
        let store = FailingStore::over(memory_store(), Some((n, when)));
        let end = live(&store).await;
        assert_eq!(end, expected(), "with call {n} of {n_calls} ({}) failing {when:?}", store.failed_call());
    }
}

/// C6: the call has no effect.
#[tokio::test(start_paused = true)]
async fn a_store_call_that_fails_once_changes_no_end() {
    every_call_fails_once(When::Before).await;
}

/// C6: the call is done, and its answer is lost.
#[tokio::test(start_paused = true)]
async fn a_store_answer_that_is_lost_once_changes_no_end() {
    every_call_fails_once(When::After).await;
}

/// The store is away for a while and comes back.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_half_an_hour_loses_nothing() {
    let store = FailingStore::over(memory_store(), None);
    let rig = Rig::start_with(|s| s.store = store.clone()).await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    // Another instance becomes due while the store is away.
    rig.engine.set_absent_is_proof(true);
    rig.engine.answer_next([Answer::Refuse("no room".to_owned())]);
    let due = rig.planned("u", Action::Compaction, T1).await;
    rig.until(&due, "refused", |i| i.n_attempts == 1 && !i.takes_slot()).await;
    store.set_down(true);
    let before = store.n_calls();
    rig.table("t", |t| t.complete(Action::Compaction, &instant(T1)));
    rig.engine.end(&job.tag, "exit 0");
    rig.pass(1800).await;
    let per_second = (store.n_calls() - before) / 1800;
    assert!(per_second < 12, "{per_second} calls per second of a store that is down");
    store.set_down(false);
    rig.until_state(&key, "succeeded").await;
    rig.job(3).await;
    rig.stop().await;
}

/// A cancel whose row cannot be read at the first tries is not forgotten.
#[tokio::test(start_paused = true)]
async fn a_change_whose_reading_failed_is_read_again() {
    let store = FailingStore::over(memory_store(), None);
    let rig = Rig::start_with(|s| s.store = store.clone()).await;
    let key = rig.planned("t", Action::Compaction, T1).await;
    let job = rig.begun(1, "t", Action::Compaction, T1).await;
    rig.until_attempt(&key, "holding").await;
    rig.pass(10).await;
    let id = rig.find(&key).await.unwrap().id;
    // The cancel itself reads the row once.
    store.fail_reads_of_instances(4, 1);
    rig.managers.instances.cancel(id, "test").await.unwrap();
    rig.until_state(&key, "cancelled").await;
    assert!(!rig.engine.cancels(&job.tag).is_empty());
    assert!(rig.clock_secs() < 120, "{} s", rig.clock_secs());
    rig.stop().await;
}

/// A cancel at any moment of a submission: never lost, never slow, and what was started is ended.
#[tokio::test(start_paused = true)]
async fn a_cancel_at_any_moment_of_a_submission_ends_it_soon() {
    for n in 0..60 {
        let rig = Rig::start_with(|s| s.store = FailingStore::over(memory_store(), None)).await;
        rig.engine.answer_next([Answer::AcceptQueued]);
        rig.pass(1).await;
        let key = rig.planned("t", Action::Compaction, T1).await;
        // The store takes a millisecond for each call.
        tokio::time::sleep(Duration::from_millis(n)).await;
        let Some(found) = rig.find(&key).await else { continue };
        let since = rig.clock_secs();
        if rig.managers.instances.cancel(found.id, "test").await.is_err() {
            continue;
        }
        rig.until_state(&key, "cancelled").await;
        assert!(rig.clock_secs() - since < 60, "at {n} ms: {} s", rig.clock_secs() - since);
        rig.pass(60).await;
        assert!(rig.engine.live_tags().is_empty(), "at {n} ms");
        rig.stop().await;
    }
}
