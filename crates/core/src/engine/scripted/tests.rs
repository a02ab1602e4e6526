//! What a test may rely on when it scripts an engine.

use secrecy::SecretString;

use super::*;
use crate::model::action::Action;
use crate::model::id::{Incarnation, InstanceId};

fn job() -> Job {
    Job {
        tag: Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1),
        action: Action::Compaction,
        base_path: "/t".to_owned(),
        table_version: 6,
        url: "http://127.0.0.1:1".to_owned(),
        token: SecretString::from("t".to_owned()),
        resources: BTreeMap::new(),
        run_timeout: Duration::from_secs(60),
    }
}

fn is_unknown(outcome: &SubmitOutcome) -> bool {
    matches!(outcome, SubmitOutcome::Unknown { .. })
}

#[tokio::test]
async fn lost_answers_differ_in_what_runs() {
    let engine = ScriptedEngine::new();
    engine.answer_next([Answer::LoseBeforeStart, Answer::LoseAfterStart]);
    let job = job();
    assert!(is_unknown(&engine.submit(&job).await));
    assert!(matches!(engine.find(&job.tag, None).await.state, JobState::Absent { is_proof: false, .. }));
    assert!(is_unknown(&engine.submit(&job).await));
    assert_eq!(engine.find(&job.tag, None).await.state, JobState::Running);
    assert_eq!((engine.submits(&job.tag), engine.starts(&job.tag)), (2, 1));
}

#[tokio::test]
async fn a_stalled_call_answers_when_released() {
    let engine = ScriptedEngine::new();
    engine.answer_next([Answer::StallBeforeStart]);
    let job = job();
    let calling = async {
        let outcome = engine.submit(&job).await;
        assert!(matches!(outcome, SubmitOutcome::Accepted(_)));
    };
    let releasing = async {
        engine.wait_for_submits(1).await;
        tokio::task::yield_now().await;
        assert_eq!(engine.starts(&job.tag), 0);
        engine.release();
    };
    tokio::join!(calling, releasing);
    assert_eq!(engine.starts(&job.tag), 1);
}

#[tokio::test]
async fn another_handle_is_another_job() {
    let engine = ScriptedEngine::new();
    let job = job();
    let SubmitOutcome::Accepted(handle) = engine.submit(&job).await else { panic!("not accepted") };
    assert_eq!(engine.find(&job.tag, Some(&handle)).await.state, JobState::Running);
    assert!(matches!(engine.find(&job.tag, Some("x")).await.state, JobState::Other { .. }));
}

#[tokio::test]
async fn ignored_cancels_are_counted() {
    let engine = ScriptedEngine::new();
    let job = job();
    engine.submit(&job).await;
    engine.ignore_cancels(1);
    let poll = [JobRef { tag: job.tag.clone(), handle: None }];
    engine.cancel(&poll[0], Force::Gentle).await.unwrap();
    assert_eq!(engine.poll(&poll).await, [JobState::Running]);
    engine.cancel(&poll[0], Force::Kill).await.unwrap();
    assert!(matches!(&engine.poll(&poll).await[0], JobState::Ended { how, .. } if how == "killed"));
    assert_eq!(engine.cancels(&job.tag), [Force::Gentle, Force::Kill]);
}

#[tokio::test]
async fn a_lie_hides_the_truth_until_taken_back() {
    let engine = ScriptedEngine::new();
    let job = job();
    engine.submit(&job).await;
    engine.lie(&job.tag, Some(JobState::Queued));
    assert_eq!(engine.find(&job.tag, None).await.state, JobState::Queued);
    engine.lie(&job.tag, None);
    assert_eq!(engine.find(&job.tag, None).await.state, JobState::Running);
    engine.set_unreachable(Some("down"));
    assert!(matches!(engine.find(&job.tag, None).await.state, JobState::Unreachable { .. }));
    assert!(is_unknown(&engine.submit(&job).await));
    assert_eq!(engine.starts(&job.tag), 1);
}
