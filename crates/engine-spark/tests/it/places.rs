//! The folder of attempts came to another machine, or to another container of the same one. The other place is told
//! by changing what the claim says of it, the processes and the lock are real; once the other container is real, too.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tms_core::ErrorKind;
use tms_core::engine::{Engine, Force, JobState};
use tms_core::model::id::Tag;
use tms_engine_spark::attempt::{Claim, LockSeen};
use tms_engine_spark::place::Place;
use tms_engine_spark::status::Handle;

use crate::bench::{Bench, RUNS_UNTIL_TOLD, TOOL, handle, job, job_ref, new_tag, signal};

/// A driver of this bench whose claim says that it was started elsewhere.
async fn started_at(bench: &Bench, change: impl FnOnce(&mut Place)) -> (Tag, Handle) {
    let job = job();
    let handle = handle(&bench.submit(&job).await);
    bench.wait_for_file("starts").await;
    let mut claim = bench.claim(&job.tag);
    change(&mut claim.place);
    let text = serde_json::to_vec(&Claim::Wrapper(claim)).unwrap();
    std::fs::write(bench.folder(&job.tag).path().join("claim.json"), text).unwrap();
    (job.tag, handle)
}

fn on_another_machine(place: &mut Place) {
    place.boot = "another boot".to_owned();
    place.host = "tms-old".to_owned();
    place.machine = Some("another machine".to_owned());
}

fn in_another_container(place: &mut Place) {
    place.pid_namespace = "pid:[1]".to_owned();
    place.machine = None;
}

/// Without an exit record, as when a machine lost its power.
fn kill_all(handle: &Handle) {
    signal(-i64::from(handle.session), "KILL");
}

async fn wait_for_free_lock(bench: &Bench, tag: &Tag) {
    let folder = bench.folder(tag);
    crate::bench::eventually(|| folder.look_at_lock().unwrap() != LockSeen::Held, "a free lock").await;
}

#[tokio::test]
async fn a_driver_of_another_machine_is_never_dead_by_itself() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let (tag, handle) = started_at(&bench, on_another_machine).await;
    // A lock that is seen is believed.
    assert_eq!(bench.state(&tag).await, JobState::Running);
    kill_all(&handle);
    wait_for_free_lock(&bench, &tag).await;
    let JobState::Unreachable { reason } = bench.state(&tag).await else { panic!("told") };
    let session = format!("session {}", handle.session);
    let over = bench.folder(&tag).over();
    for part in ["tms-old", "another boot", &session, over.to_str().unwrap()] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    for force in [Force::Gentle, Force::Kill] {
        let refused = bench.engine.cancel(&job_ref(&tag, None), force).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.chain().contains("tms-old"), "{}", refused.chain());
    }
    std::fs::write(over, "").unwrap();
    let how = bench.wait_for_end(&tag).await;
    assert!(how.contains("a person said"), "{how}");
    bench.engine.cancel(&job_ref(&tag, None), Force::Kill).await.unwrap();
}

#[tokio::test]
async fn an_end_that_left_nothing_is_believed_on_any_machine() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let (tag, _) = started_at(&bench, on_another_machine).await;
    std::fs::write(bench.spark_file("go"), "").unwrap();
    assert_eq!(bench.wait_for_end(&tag).await, "exit 0");
    bench.engine.cancel(&job_ref(&tag, None), Force::Kill).await.unwrap();
}

#[tokio::test]
async fn a_boot_of_the_same_machine_is_the_end_and_a_held_lock_is_not() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let here = Place::here().unwrap();
    let (tag, handle) = started_at(&bench, |place| place.boot = "the boot before".to_owned()).await;
    assert_eq!(bench.state(&tag).await, JobState::Running);
    kill_all(&handle);
    wait_for_free_lock(&bench, &tag).await;
    match bench.state(&tag).await {
        JobState::Ended { how, is_settled: true } => {
            assert!(here.machine.is_some() && how.contains("booted since"), "{how}");
        }
        // These tests run in a container that does not say on which machine it is.
        JobState::Unreachable { reason } => assert!(here.machine.is_none(), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// A container that was started again on a volume: its processes went with it, and only the lock can tell.
#[tokio::test]
async fn in_another_container_of_this_machine_the_lock_decides() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let (tag, handle) = started_at(&bench, in_another_container).await;
    assert_eq!(bench.state(&tag).await, JobState::Running);
    let refused = bench.engine.cancel(&job_ref(&tag, None), Force::Kill).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    kill_all(&handle);
    wait_for_free_lock(&bench, &tag).await;
    let is_proof = bench.folder(&tag).look_at_lock().unwrap() == LockSeen::Free;
    match bench.state(&tag).await {
        JobState::Ended { how, is_settled: true } => {
            assert!(is_proof && how.contains("its lock is free"), "{how}");
            bench.engine.cancel(&job_ref(&tag, None), Force::Kill).await.unwrap();
        }
        // These tests run on a file system whose locks prove nothing.
        JobState::Unreachable { reason } => assert!(!is_proof && reason.contains("pid:[1]"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_removed_folder_of_another_place_is_no_proof() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    for change in [on_another_machine, in_another_container] {
        let (tag, handle) = started_at(&bench, |_| {}).await;
        let mut moved = handle.clone();
        change(&mut moved.place);
        // The handle as a store keeps it, and as an older release stored it.
        let old = format!(
            r#"{{"boot":"{}","session":{},"wrapper":{{"pid":{},"start":{}}}}}"#,
            moved.place.boot, moved.session, moved.wrapper.pid, moved.wrapper.start
        );
        let folder = bench.folder(&tag);
        // A process that is in sight is life, wherever it says that it was started.
        kill_all(&handle);
        wait_for_free_lock(&bench, &tag).await;
        std::fs::remove_dir_all(folder.path()).unwrap();
        for text in [moved.text(), old] {
            let unreachable = |state: &JobState| matches!(state, JobState::Unreachable { .. });
            let state = bench.engine.find(&tag, Some(&text)).await.state;
            assert!(unreachable(&state), "{state:?}");
            // An empty folder of that name says no more.
            folder.make().unwrap();
            let state = bench.engine.find(&tag, Some(&text)).await.state;
            assert!(unreachable(&state), "{state:?}");
            std::fs::write(folder.over(), "").unwrap();
            let state = bench.engine.find(&tag, Some(&text)).await.state;
            assert!(matches!(state, JobState::Ended { is_settled: true, .. }), "{state:?}");
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
        std::fs::remove_file(bench.spark_file("starts")).unwrap();
    }
}

/// The real thing, where the machine lets its tests make a pid namespace: the end of its first process is the end of
/// all, with no time for an exit record, as when a container is stopped.
#[tokio::test]
async fn a_driver_in_a_pid_namespace_is_seen_by_its_lock_and_dies_with_the_namespace() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED pid namespace: this machine lets its tests make none");
        return;
    }
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let tag = new_tag();
    let mut server = unshare()
        .args([TOOL, "submit"])
        .args([bench.attempts(), bench.spark_file("")])
        .arg(tag.as_str())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut outcome = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut outcome).unwrap();
    assert!(outcome.starts_with("Accepted"), "{outcome}");
    bench.wait_for_file("starts").await;
    assert_ne!(bench.claim(&tag).place.pid_namespace, Place::here().unwrap().pid_namespace);
    assert_eq!(bench.state(&tag).await, JobState::Running);
    server.kill().unwrap();
    server.wait().unwrap();
    wait_for_free_lock(&bench, &tag).await;
    if bench.folder(&tag).look_at_lock().unwrap() == LockSeen::Free {
        let how = bench.wait_for_end(&tag).await;
        assert_eq!(how, "died without an exit code: its lock is free");
    } else {
        assert!(matches!(bench.state(&tag).await, JobState::Unreachable { .. }));
    }
}
