//! Who dies with whom: a driver outlives the server and its wrapper, and dies with its own group.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tms_core::engine::{Engine, Force, JobState};
use tms_core::model::id::Tag;

use crate::bench::{Bench, RUNS_UNTIL_TOLD, TOOL, handle, is_absent, job, job_ref, new_tag, signal};

/// Rounds in which a submitter is killed at a random moment.
const KILL_ROUNDS: u32 = 40;

/// Starts another server that submits `tag` and then waits.
fn submitter(bench: &Bench, tag: &Tag) -> Child {
    Command::new(TOOL)
        .arg("submit")
        .args([bench.attempts(), bench.spark_file("")])
        .arg(tag.as_str())
        .env("SECRET_OF_THE_SERVER", "x")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn the_driver_survives_a_killed_server_and_is_adopted() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let tag = new_tag();
    let mut server = submitter(&bench, &tag);
    let mut outcome = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut outcome).unwrap();
    assert!(outcome.starts_with("Accepted"), "{outcome}");
    kill(server);
    assert_eq!(bench.state(&tag).await, JobState::Running);
    bench.wait_for_file("starts").await;
    std::fs::write(bench.spark_file("go"), "").unwrap();
    assert_eq!(bench.wait_for_end(&tag).await, "exit 0");
    assert_eq!(bench.n_starts(), 1);
}

/// Case C2: whenever the submitter is killed, there is one driver that is found, or none and the proof of it.
#[tokio::test]
async fn a_submitter_killed_at_any_moment_leaves_one_driver_or_the_proof_of_none() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let (mut n_found, mut n_absent) = (0, 0);
    for round in 0..KILL_ROUNDS {
        std::fs::remove_file(bench.spark_file("starts")).ok();
        let tag = new_tag();
        let server = submitter(&bench, &tag);
        tokio::time::sleep(Duration::from_millis(u64::from(round))).await;
        kill(server);
        let state = bench.state(&tag).await;
        match &state {
            JobState::Running => {
                n_found += 1;
                bench.wait_for_file("starts").await;
                bench.engine.cancel(&job_ref(&tag, None), Force::Kill).await.unwrap();
                bench.wait_for_end(&tag).await;
                assert_eq!(bench.n_starts(), 1, "round {round}");
            }
            state if is_absent(state, true) => {
                n_absent += 1;
                // A wrapper that was on its way has had time to come.
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert_eq!(bench.n_starts(), 0, "round {round}");
                assert!(is_absent(&bench.state(&tag).await, true), "round {round}");
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert_eq!(n_found + n_absent, KILL_ROUNDS);
    assert!(n_absent > 0, "no kill came early enough");
}

#[tokio::test]
async fn the_driver_dies_with_its_group() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    let text = bench.submit(&job).await;
    let handle = handle(&text);
    // Stored before the submission is answered.
    assert_eq!(bench.folder(&job.tag).read_jvm().unwrap(), handle.jvm);
    let jvm = tms_engine_spark::proc::look(handle.jvm.unwrap().pid).unwrap().unwrap();
    assert_eq!(jvm.session, handle.session);
    let me = tms_engine_spark::proc::look(std::process::id()).unwrap().unwrap();
    assert_ne!(handle.session, me.session, "it has a session of its own");
    signal(-i64::from(handle.session), "KILL");
    let how = bench.wait_for_end(&job.tag).await;
    assert!(how.starts_with("died without an exit code"), "{how}");
}

#[tokio::test]
async fn a_wrapper_killed_alone_leaves_the_attempt_live() {
    // A shell would be ended by the closed pipe of its output, a JVM is not.
    let bench = Bench::new(&format!("trap '' PIPE; {RUNS_UNTIL_TOLD}"));
    let job = job();
    let text = bench.submit(&job).await;
    bench.wait_for_file("starts").await;
    signal(i64::from(handle(&text).wrapper.pid), "KILL");
    let engine = bench.restarted();
    for _ in 0..5 {
        assert_eq!(engine.find(&job.tag, Some(&text)).await.state, JobState::Running);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(bench.spark_file("go"), "").unwrap();
    let how = bench.wait_for_end(&job.tag).await;
    assert!(how.starts_with("died without an exit code"), "{how}");
}

#[tokio::test]
async fn a_driver_whose_wrapper_is_gone_can_be_ended() {
    for force in [Force::Gentle, Force::Kill] {
        let bench = Bench::new(RUNS_UNTIL_TOLD);
        let job = job();
        let text = bench.submit(&job).await;
        bench.wait_for_file("starts").await;
        signal(i64::from(handle(&text).wrapper.pid), "KILL");
        bench.engine.cancel(&job_ref(&job.tag, Some(&text)), force).await.unwrap();
        bench.wait_for_end(&job.tag).await;
    }
}

/// What a restored store asks: also a job that another server submitted, and one whose folder lies elsewhere.
#[tokio::test]
async fn every_attempt_that_may_live_is_listed_wherever_it_was_started() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    bench.submit(&job).await;
    bench.wait_for_file("starts").await;
    let listed = async |engine: &tms_engine_spark::SparkSubmit| {
        let living = engine.living().await.unwrap();
        living.into_iter().find(|living| living.tag == job.tag)
    };
    assert!(listed(&bench.restarted()).await.unwrap().is_own);
    // A store that was restored elsewhere has another folder of attempts.
    let elsewhere = Bench::new(RUNS_UNTIL_TOLD);
    let seen = listed(&elsewhere.engine).await.unwrap();
    assert!(!seen.is_own && seen.what.contains("another folder"), "{seen:?}");
    let state = elsewhere.state(&job.tag).await;
    assert!(matches!(state, JobState::Unreachable { .. }), "no folder is no proof while it runs: {state:?}");
    std::fs::write(bench.spark_file("go"), "").unwrap();
    bench.wait_for_end(&job.tag).await;
    assert_eq!(listed(&bench.engine).await, None);
    assert_eq!(listed(&elsewhere.engine).await, None);
    // A folder that nobody has claimed yet never gets a driver once it was asked for.
    let unclaimed = new_tag();
    bench.folder(&unclaimed).make().unwrap();
    assert!(bench.engine.living().await.unwrap().iter().all(|living| living.tag != unclaimed));
}
