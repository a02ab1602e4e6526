//! Only what is ours is taken for ours, and one tag starts one driver.

use tms_core::ErrorKind;
use tms_core::engine::{Engine, Force, JobState, SubmitOutcome};
use tms_engine_spark::attempt::Claim;
use tms_engine_spark::proc::ProcessMark;
use tms_engine_spark::wrapper::EXIT_ABANDONED;

use crate::bench::{Bench, RUNS_UNTIL_TOLD, TOOL, handle, is_absent, job, job_ref, new_tag};

#[tokio::test]
async fn a_tag_submitted_twice_starts_one_driver() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    let (first, second) = tokio::join!(bench.engine.submit(&job), bench.engine.submit(&job));
    let accepted = |outcome: &SubmitOutcome| match outcome {
        SubmitOutcome::Accepted(text) => Some(handle(text)),
        _ => None,
    };
    let first = accepted(&first).or(accepted(&second)).unwrap();
    // Later, by the same server and by one that was started again: adopted, with the same identity.
    for engine in [bench.engine.clone(), bench.restarted()] {
        let again = accepted(&engine.submit(&job).await).unwrap();
        assert!(again.is_same(&first), "{again:?} {first:?}");
    }
    bench.wait_for_file("starts").await;
    assert_eq!(bench.n_starts(), 1);
}

#[tokio::test]
async fn an_ended_attempt_is_not_started_again() {
    let bench = Bench::new("exit 0");
    let job = job();
    bench.submit(&job).await;
    bench.wait_for_end(&job.tag).await;
    assert!(matches!(bench.engine.submit(&job).await, SubmitOutcome::Accepted(_)));
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
    assert_eq!(bench.n_starts(), 1);
}

/// Case C1: our tag with another identity is not ours: nothing of it is adopted or signalled.
#[tokio::test]
async fn another_start_under_our_tag_is_not_adopted() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    let ours = handle(&bench.submit(&job).await);
    let mut recorded = ours.clone();
    recorded.wrapper = ProcessMark { start: ours.wrapper.start + 1, ..ours.wrapper };
    for text in [recorded.text(), "driver-20261130092118-0002".to_owned()] {
        let found = bench.engine.find(&job.tag, Some(&text)).await;
        assert!(matches!(found.state, JobState::Other { .. }), "{found:?}");
        for force in [Force::Gentle, Force::Kill] {
            let refused = bench.engine.cancel(&job_ref(&job.tag, Some(&text)), force).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict);
        }
    }
    assert_eq!(bench.engine.find(&job.tag, Some(&ours.text())).await.state, JobState::Running);
}

/// Case C1, the other way round: the folder of our tag was put there by another attempt.
#[tokio::test]
async fn a_folder_of_another_attempt_is_not_adopted() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let (theirs, ours) = (job(), job());
    bench.submit(&theirs).await;
    std::fs::create_dir(bench.folder(&ours.tag).path()).unwrap();
    let claim = Claim::Wrapper(bench.claim(&theirs.tag));
    assert!(bench.folder(&ours.tag).claim(&claim).unwrap());
    assert!(matches!(bench.state(&ours.tag).await, JobState::Other { .. }));
    let refused = bench.engine.cancel(&job_ref(&ours.tag, None), Force::Kill).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(bench.state(&theirs.tag).await, JobState::Running);
}

#[tokio::test]
async fn a_tag_that_was_never_submitted_is_absent_with_proof_and_may_be_submitted() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    assert!(is_absent(&bench.state(&job.tag).await, true));
    bench.submit(&job).await;
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
}

#[tokio::test]
async fn an_attempt_that_was_given_up_starts_nothing_any_more() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    bench.submit(&job).await;
    let plan = bench.folder(&job.tag).read_plan().unwrap().unwrap();
    // A submission that was killed after its folder was made, and before its wrapper claimed it.
    let late = new_tag();
    let folder = bench.folder(&late);
    folder.make().unwrap();
    folder.write_plan(&tms_engine_spark::attempt::Plan { tag: late.clone(), ..plan }).unwrap();
    assert!(is_absent(&bench.state(&late).await, true));
    let wrapper = std::process::Command::new(TOOL).arg("run-attempt").arg(folder.path()).status().unwrap();
    assert_eq!(wrapper.code(), Some(i32::from(EXIT_ABANDONED)));
    assert!(is_absent(&bench.state(&late).await, true));
    assert!(folder.read_jvm().unwrap().is_none());
    let mut again = self::job();
    again.tag = late;
    assert!(matches!(bench.engine.submit(&again).await, SubmitOutcome::Refused { .. }));
}

#[tokio::test]
async fn a_cancel_before_any_wrapper_came_is_final() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let tag = new_tag();
    bench.folder(&tag).make().unwrap();
    bench.engine.cancel(&job_ref(&tag, None), Force::Gentle).await.unwrap();
    assert!(matches!(bench.folder(&tag).read_claim().unwrap(), Some(Claim::Abandoned { .. })));
}

#[tokio::test]
async fn a_damaged_record_or_a_lost_disk_proves_nothing() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    bench.submit(&job).await;
    // From here on the driver needs nothing of the folder any more.
    bench.wait_for_file("starts").await;
    let claim = bench.folder(&job.tag).path().join("claim.json");
    let text = std::fs::read(&claim).unwrap();
    std::fs::write(&claim, "{").unwrap();
    assert!(matches!(bench.state(&job.tag).await, JobState::Unreachable { .. }));
    std::fs::write(&claim, text).unwrap();
    let (here, away) = (bench.attempts(), bench.temp.path().join("away"));
    std::fs::rename(&here, &away).unwrap();
    assert!(matches!(bench.state(&job.tag).await, JobState::Unreachable { .. }));
    std::fs::rename(&away, &here).unwrap();
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
}

#[tokio::test]
async fn a_wrapper_that_cannot_be_started_refuses_the_job() {
    let bench = Bench::with("", |config| config.wrapper = "/nowhere/tms".into());
    let job = job();
    let SubmitOutcome::Refused { reason } = bench.engine.submit(&job).await else { panic!("not refused") };
    assert!(reason.contains("could not be started"), "{reason}");
    assert!(is_absent(&bench.state(&job.tag).await, true));
}
