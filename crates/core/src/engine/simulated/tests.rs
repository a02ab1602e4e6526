//! The engine against drivers that live in this process: a file held open is a living driver.

use std::collections::BTreeMap;

use tempfile::TempDir;

use super::driver::{Begun, Driver};
use super::records::{ACTS_FILE, STARTS_FILE, What};
use super::table::Work;
use super::*;
use crate::clock::SystemClock;
use crate::model::action::Action;
use crate::model::attempt::Expected;
use crate::model::id::{Incarnation, InstanceId};

#[derive(Debug, Default)]
struct Launched {
    alive: Mutex<Vec<DriverLaunch>>,
    fails: bool,
}

impl DriverLauncher for Launched {
    fn launch(&self, launch: DriverLaunch) -> std::io::Result<u32> {
        if self.fails {
            return Err(std::io::Error::other("no more processes"));
        }
        self.alive.lock().unwrap().push(launch);
        Ok(1)
    }
}

struct Bench {
    folder: TempDir,
    launched: Arc<Launched>,
    engine: SimulatedEngine,
}

fn bench(change: impl FnOnce(&mut SimulatedConfig)) -> Bench {
    let folder = TempDir::new().unwrap();
    let mut config = SimulatedConfig { folder: folder.path().join("sim"), ..SimulatedConfig::default() };
    change(&mut config);
    let launched = Arc::new(Launched::default());
    let engine = SimulatedEngine::new(config, launched.clone(), Arc::new(SystemClock::default())).unwrap();
    Bench { folder, launched, engine }
}

impl Bench {
    fn driver(&self, tag: &Tag) -> Driver {
        Driver::open(&self.folder.path().join("sim"), tag, Arc::new(SystemClock::default())).unwrap()
    }

    fn kill_all(&self) {
        self.launched.alive.lock().unwrap().clear();
    }

    fn n_launched(&self) -> usize {
        self.launched.alive.lock().unwrap().len()
    }

    async fn state(&self, tag: &Tag) -> JobState {
        self.engine.find(tag, None).await.state
    }
}

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

fn is_absent(state: &JobState, proof: bool) -> bool {
    matches!(state, JobState::Absent { is_proof, .. } if *is_proof == proof)
}

#[tokio::test]
async fn a_job_is_queued_then_runs_then_ends() {
    let bench = bench(|_| {});
    let job = job();
    assert!(is_absent(&bench.state(&job.tag).await, true));
    let SubmitOutcome::Accepted(handle) = bench.engine.submit(&job).await else { panic!("not accepted") };
    assert_eq!(bench.state(&job.tag).await, JobState::Queued);
    let driver = bench.driver(&job.tag);
    driver.start().unwrap();
    let found = bench.engine.find(&job.tag, Some(&handle)).await;
    assert_eq!(found, Found { state: JobState::Running, handle: Some(handle) });
    driver.exit(0, "returned").unwrap();
    bench.kill_all();
    let ended = JobState::Ended { how: "exit 0".to_owned(), is_settled: true };
    assert_eq!(bench.state(&job.tag).await, ended);
}

/// Whoever submitted it, and whether it has spoken or not; a late one is missing until it does.
#[tokio::test]
async fn every_living_job_is_listed_and_no_other() {
    let bench = bench(|_| {});
    let (living, ended) = (job(), job());
    let listed = async || bench.engine.living().await.unwrap().into_iter().map(|l| l.tag).collect::<Vec<_>>();
    bench.engine.submit(&ended).await;
    bench.driver(&ended.tag).start().unwrap();
    bench.kill_all();
    assert_eq!(listed().await, []);
    bench.engine.submit(&living).await;
    assert_eq!(listed().await, std::slice::from_ref(&living.tag));
    bench.driver(&living.tag).start().unwrap();
    assert_eq!(listed().await, [living.tag]);
    bench.kill_all();
    assert_eq!(listed().await, []);
    let late = self::bench(|config| config.late_every = 1);
    let job = job();
    late.engine.submit(&job).await;
    assert_eq!(late.engine.living().await.unwrap(), []);
    late.driver(&job.tag).start().unwrap();
    assert_eq!(late.engine.living().await.unwrap().len(), 1);
    late.kill_all();
}

#[tokio::test]
async fn a_tag_submitted_twice_starts_one_driver() {
    let bench = bench(|_| {});
    let job = job();
    let (first, second) = tokio::join!(bench.engine.submit(&job), bench.engine.submit(&job));
    let third = bench.engine.submit(&job).await;
    let accepted = |o: &SubmitOutcome| matches!(o, SubmitOutcome::Accepted(_));
    assert!(accepted(&first) || accepted(&second));
    assert!(accepted(&third), "{third:?}");
    assert_eq!(bench.n_launched(), 1);
}

#[tokio::test]
async fn a_driver_killed_without_a_word_has_vanished() {
    let bench = bench(|_| {});
    let job = job();
    bench.engine.submit(&job).await;
    bench.driver(&job.tag).start().unwrap();
    bench.kill_all();
    assert_eq!(bench.state(&job.tag).await, JobState::Ended { how: "vanished".to_owned(), is_settled: true });
}

#[tokio::test]
async fn a_driver_that_dies_before_it_speaks_is_absent_with_proof() {
    let bench = bench(|_| {});
    let job = job();
    bench.engine.submit(&job).await;
    bench.kill_all();
    assert!(is_absent(&bench.state(&job.tag).await, true));
}

/// As engines do that forget the jobs of yesterday: what they do not know may have run, and may run.
#[tokio::test]
async fn an_engine_that_forgets_proves_nothing_by_absence() {
    let bench = bench(|c| c.absent_is_proof = false);
    let job = job();
    assert!(is_absent(&bench.state(&job.tag).await, false));
    bench.engine.submit(&job).await;
    bench.kill_all();
    assert!(is_absent(&bench.state(&job.tag).await, true), "the job is known, and its driver dead");
}

#[tokio::test]
async fn a_late_job_is_absent_without_proof_until_it_speaks() {
    let bench = bench(|c| c.late_every = 1);
    let job = job();
    bench.engine.submit(&job).await;
    assert!(is_absent(&bench.state(&job.tag).await, false));
    bench.driver(&job.tag).start().unwrap();
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
}

#[tokio::test]
async fn lost_answers_are_unknown_whether_or_not_a_driver_runs() {
    let bench = bench(|c| c.lost_answer_every = 1);
    let mut n_running = 0;
    for _ in 0..40 {
        let job = job();
        assert!(matches!(bench.engine.submit(&job).await, SubmitOutcome::Unknown { .. }));
        n_running += usize::from(bench.state(&job.tag).await == JobState::Queued);
    }
    assert!((1..40).contains(&n_running), "{n_running}");
    assert_eq!(n_running, bench.n_launched());
}

#[tokio::test]
async fn a_refused_job_leaves_nothing() {
    let bench = bench(|c| c.refuse_every = 1);
    let job = job();
    assert!(matches!(bench.engine.submit(&job).await, SubmitOutcome::Refused { .. }));
    assert!(is_absent(&bench.state(&job.tag).await, true));
    assert_eq!(bench.n_launched(), 0);
}

#[tokio::test]
async fn a_launch_that_fails_is_unknown_and_then_proven_absent() {
    let folder = TempDir::new().unwrap();
    let config = SimulatedConfig { folder: folder.path().to_owned(), ..SimulatedConfig::default() };
    let launched = Arc::new(Launched { fails: true, ..Launched::default() });
    let engine = SimulatedEngine::new(config, launched, Arc::new(SystemClock::default())).unwrap();
    let job = job();
    assert!(matches!(engine.submit(&job).await, SubmitOutcome::Unknown { .. }));
    assert!(is_absent(&engine.find(&job.tag, None).await.state, true));
}

#[tokio::test]
async fn another_launch_under_our_tag_is_not_ours() {
    let bench = bench(|_| {});
    let job = job();
    bench.engine.submit(&job).await;
    assert!(matches!(bench.engine.find(&job.tag, Some("another")).await.state, JobState::Other { .. }));
}

#[tokio::test]
async fn a_lost_folder_of_jobs_proves_nothing() {
    let bench = bench(|_| {});
    std::fs::remove_dir_all(bench.folder.path().join("sim")).unwrap();
    assert!(matches!(bench.state(&job().tag).await, JobState::Unreachable { .. }));
    assert_eq!(bench.engine.health().await.unwrap_err().reason, ParkReason::NoEngine);
}

#[tokio::test]
async fn a_cancel_reaches_the_driver_and_a_kill_wins() {
    let bench = bench(|_| {});
    let job = job();
    bench.engine.submit(&job).await;
    let driver = bench.driver(&job.tag);
    assert_eq!(driver.end_asked(), None);
    let reference = JobRef { tag: job.tag.clone(), handle: None };
    bench.engine.cancel(&reference, Force::Gentle).await.unwrap();
    assert_eq!(driver.end_asked(), Some(Force::Gentle));
    bench.engine.cancel(&reference, Force::Kill).await.unwrap();
    assert_eq!(driver.end_asked(), Some(Force::Kill));
}

#[tokio::test]
async fn a_whole_run_is_on_record_and_a_second_driver_touches_nothing() {
    let bench = bench(|c| c.duplicate_start_every = 1);
    let table = bench.folder.path().join("t");
    let timeline = table.join(".hoodie/timeline");
    std::fs::create_dir_all(&timeline).unwrap();
    std::fs::write(timeline.join("20261130092029688.compaction.requested"), b"").unwrap();
    let job = job();
    bench.engine.submit(&job).await;
    assert_eq!(bench.n_launched(), 2);
    let (one, two) = (bench.driver(&job.tag), bench.driver(&job.tag));
    one.start().unwrap();
    two.start().unwrap();
    let work = Work {
        action: Action::Compaction,
        base_path: table.display().to_string(),
        instant: Some("20261130092029688".parse().unwrap()),
        expected: Expected::Requested,
    };
    let Begun::Touching(touching) = one.begin(work.clone()).unwrap() else { panic!("not begun") };
    assert!(matches!(two.begin(work.clone()).unwrap(), Begun::Double));
    one.finish(*touching).unwrap();
    assert!(matches!(two.begin(work).unwrap(), Begun::NothingToDo));
    one.exit(0, "returned").unwrap();
    let folder = bench.folder.path().join("sim");
    let starts = records::read(&folder, STARTS_FILE).unwrap();
    assert_eq!(starts.iter().map(|r| &r.run_id).collect::<Vec<_>>(), [one.run_id(), two.run_id()]);
    let acts: Vec<What> = records::read(&folder, ACTS_FILE).unwrap().iter().map(|r| r.what).collect();
    assert_eq!(acts, [What::Holding, What::Touch, What::Double, What::Completed, What::Released, What::Exit]);
    let log = bench.engine.logs(&JobRef { tag: job.tag.clone(), handle: None }, 4).await;
    assert_eq!(log.unwrap_err().kind(), ErrorKind::NotFound);
    one.log("first");
    one.log("second");
    let log = bench.engine.logs(&JobRef { tag: job.tag, handle: None }, 7).await.unwrap();
    assert_eq!((log.text.as_str(), log.is_cut), ("second\n", true));
}
