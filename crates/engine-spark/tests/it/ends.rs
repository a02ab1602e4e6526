//! How attempts end, by themselves and when told to.

use std::time::Duration;

use secrecy::ExposeSecret;
use tms_core::engine::{Engine, Force, JobState};
use tms_engine_spark::attempt::LockSeen;

use crate::bench::{Bench, RUNS_UNTIL_TOLD, eventually, handle, job, job_ref};

#[tokio::test]
async fn an_exit_code_is_kept_by_the_wrapper() {
    let bench = Bench::new("until_told; exit 3");
    let job = job();
    let handle = bench.submit(&job).await;
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
    std::fs::write(bench.spark_file("go"), "").unwrap();
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 3");
    assert!(bench.folder(&job.tag).read_exit().unwrap().unwrap().left_nothing);
    let found = bench.restarted().find(&job.tag, Some(&handle)).await;
    assert_eq!(found.state, JobState::Ended { how: "exit 3".to_owned(), is_settled: true });
    assert_eq!(found.handle, Some(handle));
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_an_end_with_a_reason_in_the_log() {
    let bench = Bench::new("");
    std::fs::remove_file(bench.spark_file("bin/spark-submit")).unwrap();
    let job = job();
    bench.submit(&job).await;
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 127");
    let log = bench.engine.logs(&job_ref(&job.tag, None), 1_000).await.unwrap();
    assert!(log.text.contains("cannot run") && log.text.contains("bin/spark-submit"), "{}", log.text);
}

/// Case C23: the environment of a job holds what was named and nothing else; the token stands on no command line.
#[tokio::test]
async fn a_job_inherits_named_variables_and_no_secret_shows() {
    let bench = Bench::new(&format!(
        "tr '\\0' '\\n' < /proc/$$/environ > environment; tr '\\0' '\\n' < /proc/$$/cmdline > words; {RUNS_UNTIL_TOLD}"
    ));
    let job = job();
    let handle = handle(&bench.submit(&job).await);
    bench.wait_for_file("words").await;
    let mut names: Vec<String> =
        bench.read("environment").lines().map(|l| l.split('=').next().unwrap().to_owned()).collect();
    names.retain(|name| name != "TMS_XTASK_RUN");
    names.sort();
    let expected =
        ["LC_ALL", "PATH", "SPARK_HOME", "SPARK_LOCAL_IP", "TMS_JOB_TAG", "TMS_JOB_TOKEN", "TMS_JOB_URL"];
    assert_eq!(names, expected);
    let token = job.token.expose_secret();
    assert!(bench.read("environment").contains(&format!("TMS_JOB_TOKEN={token}\n")));
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", handle.wrapper.pid)).unwrap();
    assert!(!bench.read("words").contains(token) && !words.contains(token));
    for entry in std::fs::read_dir(bench.folder(&job.tag).path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(token), "{}", path.display());
    }
}

#[tokio::test]
async fn a_gentle_cancel_lets_the_driver_unwind() {
    let bench = Bench::new("trap 'echo given back > lock; exit 143' TERM; echo x > ready; until_told");
    let job = job();
    bench.submit(&job).await;
    bench.wait_for_file("ready").await;
    bench.engine.cancel(&job_ref(&job.tag, None), Force::Gentle).await.unwrap();
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 143");
    assert_eq!(bench.read("lock"), "given back\n");
}

/// Case C11: a driver that ignores the gentle way goes on, and is still said to run, until it is killed.
#[tokio::test]
async fn a_kill_ends_a_driver_that_ignores_the_rest_and_what_it_started() {
    let bench = Bench::new("trap '' TERM; sleep 60 & echo $! > child; until_told");
    let job = job();
    let text = bench.submit(&job).await;
    let child: u32 = bench.wait_for_file("child").await.trim().parse().unwrap();
    for _ in 0..3 {
        bench.engine.cancel(&job_ref(&job.tag, Some(&text)), Force::Gentle).await.unwrap();
        assert_eq!(bench.state(&job.tag).await, JobState::Running);
    }
    bench.engine.cancel(&job_ref(&job.tag, Some(&text)), Force::Kill).await.unwrap();
    assert_eq!(bench.wait_for_end(&job.tag).await, "signal 9");
    let is_gone = || tms_engine_spark::proc::look(child).unwrap().is_none_or(|seen| seen.is_zombie);
    eventually(is_gone, "the end of the child").await;
    // An ended job may be cancelled again.
    bench.engine.cancel(&job_ref(&job.tag, Some(&text)), Force::Kill).await.unwrap();
}

#[tokio::test]
async fn an_unknown_job_is_cancelled_without_an_error() {
    let bench = Bench::new("");
    for force in [Force::Gentle, Force::Kill] {
        bench.engine.cancel(&job_ref(&job().tag, None), force).await.unwrap();
    }
}

/// A `spark-submit` that does not `exec`: what it started is the driver, whether it kept the lock or closed everything.
#[tokio::test]
async fn a_child_that_outlives_the_driver_keeps_the_attempt_live() {
    for closed in ["", "3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-"] {
        // By `exec`, since a shell keeps what it sets aside for one command only.
        let bench = Bench::new(&format!("(exec < /dev/null > /dev/null 2>&1 {closed}; until_told) & exit 0"));
        let job = job();
        bench.submit(&job).await;
        let folder = bench.folder(&job.tag);
        eventually(|| folder.read_exit().unwrap().is_some(), "the record of the end").await;
        assert!(!folder.read_exit().unwrap().unwrap().left_nothing);
        let claim = bench.claim(&job.tag);
        let is_gone = || tms_engine_spark::proc::look(claim.wrapper.pid).unwrap().is_none_or(|p| p.is_zombie);
        eventually(is_gone, "the end of the wrapper").await;
        let is_held = folder.look_at_lock().unwrap() == LockSeen::Held;
        assert_eq!(is_held, closed.is_empty(), "a background job inherits the second hold");
        for _ in 0..3 {
            assert_eq!(bench.state(&job.tag).await, JobState::Running);
            assert_eq!(bench.restarted().find(&job.tag, None).await.state, JobState::Running);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::write(bench.spark_file("go"), "").unwrap();
        assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
    }
}

#[tokio::test]
async fn a_kill_ends_a_child_that_outlived_the_driver() {
    let bench = Bench::new("until_told < /dev/null > /dev/null 2>&1 & exit 0");
    let job = job();
    let text = bench.submit(&job).await;
    let folder = bench.folder(&job.tag);
    eventually(|| folder.read_exit().unwrap().is_some(), "the record of the end").await;
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
    bench.engine.cancel(&job_ref(&job.tag, Some(&text)), Force::Kill).await.unwrap();
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
}

#[tokio::test]
async fn many_jobs_are_polled_in_the_order_given() {
    let bench = Bench::new("case \" $* \" in *parallelism=7*) exit 7;; esac\nuntil_told");
    let mut refs = Vec::new();
    for number in [7, 8, 7, 8, 8] {
        let mut job = job();
        job.resources.insert("parallelism".to_owned(), number.to_string());
        let handle = bench.submit(&job).await;
        refs.push(job_ref(&job.tag, Some(&handle)));
    }
    refs.push(job_ref(&job().tag, None));
    bench.wait_for_end(&refs[0].tag).await;
    bench.wait_for_end(&refs[2].tag).await;
    let words: Vec<String> = bench
        .engine
        .poll(&refs)
        .await
        .into_iter()
        .map(|state| match state {
            JobState::Ended { how, .. } => how,
            JobState::Running => "running".to_owned(),
            JobState::Absent { is_proof, .. } => format!("absent {is_proof}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(words, ["exit 7", "running", "exit 7", "running", "running", "absent true"]);
}
