//! What is kept of a driver's output, and of ended attempts.

use tms_core::ErrorKind;
use tms_core::engine::{Engine, JobState};
use tms_engine_spark::config::LOG_BYTES_MIN;

use crate::bench::{Bench, RUNS_UNTIL_TOLD, eventually, job, job_ref};

/// A driver that says far more than is kept is neither ended nor stopped by it.
#[tokio::test]
async fn the_newest_output_is_kept_and_the_driver_never_waits() {
    let bench = Bench::with(
        "i=0; while [ $i -lt 300 ]; do i=$((i+1)); head -c 4096 /dev/zero | tr '\\0' x; echo \" line $i\"; done; echo last words >&2; exit 5",
        |config| config.log_bytes_max = LOG_BYTES_MIN,
    );
    let job = job();
    bench.submit(&job).await;
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 5");
    let (current, previous) = bench.folder(&job.tag).logs();
    let kept = std::fs::metadata(&current).unwrap().len() + std::fs::metadata(&previous).unwrap().len();
    assert!((LOG_BYTES_MIN / 2..=LOG_BYTES_MIN).contains(&kept), "{kept}");
    let log = bench.engine.logs(&job_ref(&job.tag, None), 30).await.unwrap();
    assert!(log.text.ends_with(" line 300\nlast words\n") && log.is_cut, "{}", log.text);
    assert_eq!(log.address.as_deref(), current.to_str());
}

#[tokio::test]
async fn the_log_of_an_unknown_job_is_not_found() {
    let bench = Bench::new("");
    let error = bench.engine.logs(&job_ref(&job().tag, None), 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn old_attempts_are_removed_once_they_are_over_and_never_before() {
    let bench =
        Bench::with("case \" $* \" in *parallelism=7*) until_told;; esac", |config| config.attempts_kept = 2);
    let mut tags = Vec::new();
    for number in 0..5 {
        let mut job = job();
        if number == 0 {
            job.resources.insert("parallelism".to_owned(), "7".to_owned());
        }
        bench.submit(&job).await;
        if number > 0 {
            bench.wait_for_end(&job.tag).await;
        }
        tags.push(job.tag);
    }
    // The oldest one still runs; of the others those beyond the two newest are gone.
    let kept = || tags.iter().map(|tag| bench.folder(tag).path().exists()).collect::<Vec<_>>();
    assert_eq!(kept(), [true, false, false, true, true]);
    assert_eq!(bench.state(&tags[0]).await, JobState::Running);
}

#[tokio::test]
async fn a_removed_folder_does_not_hide_a_living_driver() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    let handle = bench.submit(&job).await;
    bench.wait_for_file("starts").await;
    let claim = bench.claim(&job.tag);
    std::fs::remove_dir_all(bench.folder(&job.tag).path()).unwrap();
    assert_eq!(bench.engine.find(&job.tag, Some(&handle)).await.state, JobState::Running);
    std::fs::write(bench.spark_file("go"), "").unwrap();
    let is_dead = || tms_engine_spark::proc::look(claim.wrapper.pid).unwrap().is_none_or(|p| p.is_zombie);
    eventually(is_dead, "the end of the wrapper").await;
    let state = bench.engine.find(&job.tag, Some(&handle)).await.state;
    assert!(
        matches!(&state, JobState::Ended { how, is_settled: true } if how.contains("removed")),
        "{state:?}"
    );
}
