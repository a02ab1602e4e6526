//! A folder of attempts, a stand-in for Spark, and an end for everything that was started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tempfile::TempDir;
use tms_core::clock::SystemClock;
use tms_core::engine::{Engine, Job, JobRef, JobState, SubmitOutcome};
use tms_core::model::action::Action;
use tms_core::model::id::{EngineName, Incarnation, InstanceId, Tag};
use tms_engine_spark::attempt::{AttemptFolder, Claim, WrapperClaim};
use tms_engine_spark::process::{self, Whom};
use tms_engine_spark::status::Handle;
use tms_engine_spark::{SparkConfig, SparkSubmit};

/// Longest wait for something that takes milliseconds on a quiet machine.
const WAIT_MAX: Duration = Duration::from_secs(30);
const WAIT_STEP: Duration = Duration::from_millis(10);

pub(crate) const TOOL: &str = env!("CARGO_BIN_EXE_tms-attempt-tool");

pub(crate) struct Bench {
    pub(crate) temp: TempDir,
    pub(crate) engine: SparkSubmit,
}

impl Bench {
    /// A bench whose `spark-submit` is this shell text.
    pub(crate) fn new(behaviour: &str) -> Self {
        Self::with(behaviour, |_| {})
    }

    pub(crate) fn with(behaviour: &str, change: impl FnOnce(&mut SparkConfig)) -> Self {
        let temp = TempDir::new().unwrap();
        let home = temp.path().join("spark");
        std::fs::create_dir_all(home.join("bin")).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/spark-submit");
        std::os::unix::fs::symlink(program, home.join("bin/spark-submit")).unwrap();
        let bench = Self { engine: Self::engine_in(&temp, change), temp };
        bench.behave(behaviour);
        bench
    }

    fn engine_in(temp: &TempDir, change: impl FnOnce(&mut SparkConfig)) -> SparkSubmit {
        let home = temp.path().join("spark");
        let mut config = SparkConfig {
            bundles: [(6, home.join("bundle.jar"))].into(),
            spark_home: Some(home.clone()),
            environment: path_only(),
            wrapper: PathBuf::from(TOOL),
            ..SparkConfig::new(EngineName::default(), temp.path().join("attempts"), home.join("job.jar"))
        };
        change(&mut config);
        SparkSubmit::new(config, Arc::new(SystemClock::default())).unwrap()
    }

    /// The engine of a server that was started again.
    pub(crate) fn restarted(&self) -> SparkSubmit {
        Self::engine_in(&self.temp, |_| {})
    }

    pub(crate) fn behave(&self, behaviour: &str) {
        // What a test waits for is written beside the behaviour.
        let wait =
            "until_told() { i=0; while [ ! -e go ] && [ $i -lt 3000 ]; do i=$((i+1)); sleep 0.02; done; }";
        let text = format!("cd \"$SPARK_HOME\" || exit 99\necho x >> starts\n{wait}\n{behaviour}\n");
        std::fs::write(self.temp.path().join("spark/behaviour"), text).unwrap();
    }

    pub(crate) fn attempts(&self) -> PathBuf {
        self.temp.path().join("attempts")
    }

    pub(crate) fn folder(&self, tag: &Tag) -> AttemptFolder {
        AttemptFolder::of(&self.attempts(), tag)
    }

    /// A file that the stand-in writes.
    pub(crate) fn spark_file(&self, name: &str) -> PathBuf {
        self.temp.path().join("spark").join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.spark_file(name)).unwrap_or_default()
    }

    /// How many drivers were ever started.
    pub(crate) fn n_starts(&self) -> usize {
        self.read("starts").lines().count()
    }

    pub(crate) async fn submit(&self, job: &Job) -> String {
        match self.engine.submit(job).await {
            SubmitOutcome::Accepted(handle) => handle,
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub(crate) async fn state(&self, tag: &Tag) -> JobState {
        self.engine.find(tag, None).await.state
    }

    pub(crate) async fn wait_for_state(&self, tag: &Tag, wanted: impl Fn(&JobState) -> bool) -> JobState {
        let mut last = None;
        let done = tokio::time::timeout(WAIT_MAX, async {
            loop {
                let state = self.state(tag).await;
                if wanted(&state) {
                    return state;
                }
                last = Some(state);
                tokio::time::sleep(WAIT_STEP).await;
            }
        });
        match done.await {
            Ok(state) => state,
            Err(_) => panic!("the state stayed {last:?}"),
        }
    }

    pub(crate) async fn wait_for_end(&self, tag: &Tag) -> String {
        let state = self.wait_for_state(tag, |s| matches!(s, JobState::Ended { is_settled: true, .. })).await;
        let JobState::Ended { how, .. } = state else { unreachable!() };
        how
    }

    pub(crate) async fn wait_for_file(&self, name: &str) -> String {
        eventually(|| !self.read(name).trim().is_empty(), name).await;
        self.read(name)
    }

    pub(crate) fn claim(&self, tag: &Tag) -> WrapperClaim {
        match self.folder(tag).read_claim() {
            Ok(Some(Claim::Wrapper(claim))) => claim,
            other => panic!("no wrapper has claimed it: {other:?}"),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.attempts()) else { return };
        for entry in entries.flatten() {
            let folder = AttemptFolder::at(entry.path());
            if let Ok(Some(Claim::Wrapper(claim))) = folder.read_claim() {
                process::kill(&claim, folder.read_jvm().ok().flatten(), Whom::All).ok();
            }
        }
    }
}

/// Waits for a condition, with a limit.
pub(crate) async fn eventually(condition: impl Fn() -> bool, what: &str) {
    let done = tokio::time::timeout(WAIT_MAX, async {
        while !condition() {
            tokio::time::sleep(WAIT_STEP).await;
        }
    });
    assert!(done.await.is_ok(), "never seen: {what}");
}

pub(crate) fn path_only() -> BTreeMap<OsString, OsString> {
    tms_engine_spark::config::inherited_environment(
        std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMS_XTASK_RUN"),
        &[],
    )
}

pub(crate) fn new_tag() -> Tag {
    Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1)
}

pub(crate) fn job() -> Job {
    Job {
        tag: new_tag(),
        action: Action::Compaction,
        base_path: "/t".to_owned(),
        table_version: 6,
        url: "http://127.0.0.1:1".to_owned(),
        token: SecretString::from("t0k3n".to_owned()),
        resources: BTreeMap::new(),
        run_timeout: Duration::from_secs(60),
    }
}

pub(crate) fn job_ref(tag: &Tag, handle: Option<&str>) -> JobRef {
    JobRef { tag: tag.clone(), handle: handle.map(ToOwned::to_owned) }
}

pub(crate) fn is_absent(state: &JobState, proof: bool) -> bool {
    matches!(state, JobState::Absent { is_proof, .. } if *is_proof == proof)
}

pub(crate) fn handle(text: &str) -> Handle {
    Handle::parse(text).unwrap()
}

/// Sends a signal to a process, or with a negative number to a group.
pub(crate) fn signal(pid: i64, name: &str) {
    let status =
        std::process::Command::new("kill").args(["-s", name, "--", &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -s {name} {pid}");
}

/// A driver that goes on until the test lets it, or for a minute when the test is gone.
pub(crate) const RUNS_UNTIL_TOLD: &str = "until_told; exit 0";
