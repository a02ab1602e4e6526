//! What a driver leaves behind, in its session or out of it: a driver is alive, anything else is ended.

use std::time::Duration;

use tms_core::engine::{Engine, Force, Job, JobState};
use tms_core::model::attempt::DriverPlace;
use tms_engine_spark::attempt::LockSeen;
use tms_engine_spark::proc;

use crate::bench::{Bench, RUNS_UNTIL_TOLD, eventually, handle, job, job_ref, new_tag};

/// What `Popen(…, start_new_session=True, close_fds=True)` does: another session, and no file of ours is open any more.
/// The text in the middle is what it runs.
fn daemon(does: &str) -> String {
    let closed = "3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-";
    format!(
        "cat > daemon.sh <<'END'\necho $$ > child\ni=0\n{does}\n\
         while [ ! -e go ] && [ $i -lt 3000 ]; do i=$((i+1)); sleep 0.02; done\nEND\n\
         (exec < /dev/null > /dev/null 2>&1 {closed}; exec setsid sh daemon.sh) &\n\
         while [ ! -s child ]; do sleep 0.01; done; exit 0"
    )
}

fn is_gone(pid: u32) -> bool {
    proc::look(pid).unwrap().is_none_or(|seen| seen.is_zombie)
}

/// Submits a job whose program ends at once; returns the pid of what it left, once the wrapper is gone too.
async fn left_by(bench: &Bench, job: &Job) -> u32 {
    let handle = handle(&bench.submit(job).await);
    let child = bench.wait_for_file("child").await.trim().parse().unwrap();
    let folder = bench.folder(&job.tag);
    eventually(|| folder.read_exit().unwrap().is_some(), "the record of the end").await;
    assert!(!folder.read_exit().unwrap().unwrap().left_nothing);
    eventually(|| is_gone(handle.wrapper.pid), "the end of the wrapper").await;
    let session = proc::look(child).unwrap().unwrap().session;
    assert_ne!(session, handle.session, "it left the session");
    child
}

/// The double run: `spark-submit` is a script that starts the driver as a daemon, and ends.
#[tokio::test]
async fn a_driver_that_left_session_and_lock_keeps_the_attempt_live() {
    let bench = Bench::new(&daemon(""));
    let job = job();
    left_by(&bench, &job).await;
    let folder = bench.folder(&job.tag);
    assert_ne!(folder.look_at_lock().unwrap(), LockSeen::Held);
    let text = bench.engine.find(&job.tag, None).await.handle;
    for _ in 0..3 {
        assert_eq!(bench.state(&job.tag).await, JobState::Running);
        let polled = bench.restarted().poll(&[job_ref(&job.tag, text.as_deref())]).await;
        assert_eq!(polled, [JobState::Running]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Nor does a removed folder hide it.
    let away = bench.temp.path().join("away");
    std::fs::rename(folder.path(), &away).unwrap();
    assert_eq!(bench.engine.find(&job.tag, text.as_deref()).await.state, JobState::Running);
    std::fs::rename(&away, folder.path()).unwrap();
    std::fs::write(bench.spark_file("go"), "").unwrap();
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
}

#[tokio::test]
async fn a_cancel_reaches_what_left_the_session() {
    for (does, force) in
        [("trap 'echo x > unwound; exit 0' TERM", Force::Gentle), ("trap '' TERM", Force::Kill)]
    {
        let bench = Bench::new(&daemon(does));
        let job = job();
        let child = left_by(&bench, &job).await;
        let text = bench.engine.find(&job.tag, None).await.handle;
        let target = job_ref(&job.tag, text.as_deref());
        if force == Force::Kill {
            bench.engine.cancel(&target, Force::Gentle).await.unwrap();
            assert_eq!(bench.state(&job.tag).await, JobState::Running);
        }
        bench.engine.cancel(&target, force).await.unwrap();
        assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
        assert!(is_gone(child));
        assert_eq!(bench.read("unwound").is_empty(), force == Force::Kill);
    }
}

#[tokio::test]
async fn a_cancel_reaches_what_left_the_session_when_the_folder_is_gone() {
    let bench = Bench::new(&daemon("trap '' TERM"));
    let job = job();
    let child = left_by(&bench, &job).await;
    let text = bench.engine.find(&job.tag, None).await.handle;
    std::fs::remove_dir_all(bench.folder(&job.tag).path()).unwrap();
    bench.engine.cancel(&job_ref(&job.tag, text.as_deref()), Force::Kill).await.unwrap();
    assert!(is_gone(child));
}

/// A program that starts an agent, which inherits the lock and leaves the session, before the driver.
fn agent(how: &str) -> String {
    format!("{how} sh -c 'echo $$ > child; exec sleep 60' > /dev/null 2>&1 &\nuntil_told; exit 3")
}

/// Submits a job, lets its driver end, and returns the pid of its agent.
async fn agent_left_by(bench: &Bench, job: &Job) -> u32 {
    bench.submit(job).await;
    bench.wait_for_file("child").await;
    std::fs::write(bench.spark_file("go"), "").unwrap();
    left_by(bench, job).await
}

#[tokio::test]
async fn what_a_driver_left_behind_is_ended_after_a_while_and_named() {
    let bench = Bench::with(&agent("setsid"), |c| c.leftover_wait = Duration::from_millis(400));
    let job = job();
    let child = agent_left_by(&bench, &job).await;
    assert_eq!(bench.folder(&job.tag).look_at_lock().unwrap(), LockSeen::Held);
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
    assert!(!is_gone(child), "it has its time");
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 3");
    assert!(is_gone(child));
    let log = bench.engine.logs(&job_ref(&job.tag, None), 10_000).await.unwrap();
    for part in [format!("left behind process {child} (sleep)"), "it is asked to end".to_owned()] {
        assert!(log.text.contains(&part), "{}", log.text);
    }
}

#[tokio::test]
async fn what_ignores_the_gentle_way_is_killed_after_another_while() {
    let bench = Bench::with(&daemon("trap '' TERM"), |c| c.leftover_wait = Duration::from_millis(200));
    let job = job();
    let child = left_by(&bench, &job).await;
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
    assert!(is_gone(child));
    let log = bench.engine.logs(&job_ref(&job.tag, None), 10_000).await.unwrap();
    assert!(log.text.contains("it is asked to end") && log.text.contains("it is killed"), "{}", log.text);
}

#[tokio::test]
async fn a_kill_reaches_what_holds_the_lock_even_without_its_environment() {
    for how in ["setsid", "env -i setsid"] {
        let bench = Bench::new(&agent(how));
        let job = job();
        let text = bench.submit(&job).await;
        let child: u32 = bench.wait_for_file("child").await.trim().parse().unwrap();
        bench.engine.cancel(&job_ref(&job.tag, Some(&text)), Force::Kill).await.unwrap();
        assert!(is_gone(child), "{how}");
        assert_eq!(bench.wait_for_end(&job.tag).await, "signal 9");
    }
}

#[tokio::test]
async fn a_person_who_says_over_has_what_is_left_ended_at_once() {
    let bench = Bench::new(&agent("setsid"));
    let job = job();
    let child = agent_left_by(&bench, &job).await;
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
    std::fs::write(bench.folder(&job.tag).over(), "").unwrap();
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 3");
    assert!(is_gone(child));
}

/// A person's word ends no driver: TMS sees better.
#[tokio::test]
async fn a_driver_that_runs_is_not_swept() {
    let java = "cp \"$(command -v sleep)\" java; (exec < /dev/null > /dev/null 2>&1; exec setsid sh -c \
                'echo $$ > child; exec ./java 60 2>/dev/null') & while [ ! -s child ]; do sleep 0.01; done; exit 0";
    // A JVM that runs something else is an agent.
    let shell = java.replace("v sleep", "v sh").replace(
        "./java 60",
        "./java -c \"trap : USR1; while [ ! -e go ]; do sleep 0.02; done\" io.tms.job.TmsSparkJob",
    );
    for (behaviour, is_driver) in [(shell.as_str(), true), (java, false)] {
        let bench = Bench::with(behaviour, |c| c.leftover_wait = Duration::from_millis(50));
        let job = job();
        let child = left_by(&bench, &job).await;
        eventually(|| proc::program(child).as_deref() == Some("java"), "the program").await;
        if is_driver {
            std::fs::write(bench.folder(&job.tag).over(), "").unwrap();
            for _ in 0..10 {
                assert_eq!(bench.state(&job.tag).await, JobState::Running);
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            std::fs::write(bench.spark_file("go"), "").unwrap();
        }
        assert_eq!(bench.wait_for_end(&job.tag).await, "exit 0");
        let log = bench.engine.logs(&job_ref(&job.tag, None), 10_000).await.unwrap();
        assert_eq!(log.text.contains("left behind"), !is_driver, "{}", log.text);
    }
}

#[tokio::test]
async fn a_driver_is_known_by_host_and_recorded_pid_together() {
    let bench = Bench::new(RUNS_UNTIL_TOLD);
    let job = job();
    let text = bench.submit(&job).await;
    let (host, pid) = (bench.claim(&job.tag).place.host, handle(&text).jvm.unwrap().pid);
    let was = async |tag, handle: Option<&str>, host: &str, pid| {
        bench.engine.was_driver(&job_ref(tag, handle), &DriverPlace { host: host.to_owned(), pid }).await
    };
    assert!(was(&job.tag, Some(&text), &host, pid).await);
    assert!(was(&job.tag, None, &host.to_ascii_uppercase(), pid).await);
    // Another container, where pids are small and alike.
    for other in ["other", "", "localhost", &format!("{host}.example.com")] {
        assert!(!was(&job.tag, Some(&text), other, pid).await, "{other}");
    }
    assert!(!was(&job.tag, Some(&text), &host, pid + 1).await);
    assert!(!was(&job.tag, Some("another handle"), &host, pid).await);
    let other = new_tag();
    assert!(!was(&other, None, &host, pid).await);
    // A machine without a name of its own.
    let path = bench.folder(&job.tag).path().join("claim.json");
    let claim = std::fs::read_to_string(&path).unwrap();
    let named = format!("\"host\":\"{host}\"");
    assert!(claim.contains(&named));
    std::fs::write(&path, claim.replace(&named, "\"host\":\"localhost\"")).unwrap();
    assert!(!was(&job.tag, None, "localhost", pid).await);
}

#[tokio::test]
async fn all_that_an_engine_lacks_is_said_at_once() {
    let bench = Bench::with("", |config| config.java_home = Some("/nowhere".into()));
    let lack = bench.engine.health().await.unwrap_err().detail;
    for setting in ["job_jar", "java_home", "bundles.6"] {
        assert!(lack.contains(&format!("engines.default.{setting}")), "{setting}: {lack}");
    }
}
