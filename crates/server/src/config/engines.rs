//! What runs jobs. One struct per kind; the section's name is the engine's name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Sources;

/// One engine, by its `kind`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EngineConfig {
    /// Runs each job as a process of this machine, by Spark's own `spark-submit`.
    SparkSubmit(SparkSubmitConfig),
    /// Runs nothing: it plays jobs with set durations and failures. Everything it does is marked as simulation.
    Simulated(SimulatedConfig),
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self::SparkSubmit(SparkSubmitConfig::default())
    }
}

/// The kind that an engine has when it names none.
pub const DEFAULT_KIND: &str = "spark-submit";

/// An engine of kind `spark-submit`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SparkSubmitConfig {
    /// Spark's master: `local`, `local[N]` or `local[*]`. The driver is a process of this machine.
    pub master: String,
    /// Folder of Spark. Unset: `$SPARK_HOME`.
    #[schemars(extend("format" = "path", "x-example" = "/opt/spark"))]
    pub spark_home: Option<PathBuf>,
    /// The job jar of TMS. Unset: `tms-spark-job.jar` in the folder of `tms-server`.
    #[schemars(extend("format" = "path", "x-example" = "/usr/lib/tms/tms-spark-job.jar"))]
    pub job_jar: Option<PathBuf>,
    /// Hudi's Spark bundle for each table version, best of the writers' own release. A version without one gets the
    /// bundle of the next higher version, with the table's version pinned; a table that none fits is parked.
    #[schemars(extend(
        "x-keys" = ["6", "8", "9"],
        "x-item" = "the path of a jar",
        "x-example" = "9 = \"/opt/hudi/hudi-spark3.5-bundle_2.12-1.2.0.jar\""
    ))]
    pub bundles: BTreeMap<String, PathBuf>,
    /// Folder of Java. Unset: `$JAVA_HOME`, else the `java` of the path.
    #[schemars(extend("format" = "path", "x-example" = "/usr/lib/jvm/java-17-openjdk-amd64"))]
    pub java_home: Option<PathBuf>,
    /// More Spark settings for every job. They stand on a command line: no secrets (use `spark-defaults.conf`).
    #[schemars(extend("x-flat" = true, "x-example" = "\"spark.driver.memory\" = \"2g\""))]
    pub conf: BTreeMap<String, String>,
    /// Further environment variables that jobs inherit. Without them a job gets only what Spark, Hadoop and Java need,
    /// so that no secret of the server reaches it.
    #[schemars(extend("x-item" = "the name of an environment variable"))]
    pub inherit: Vec<String>,
    /// Bytes that are kept of a job's output; the newest ones are.
    #[schemars(range(min = 65536))]
    pub log_bytes_max: u64,
    /// Attempts that may be live at once.
    #[schemars(range(min = 1, max = 1000))]
    pub max_running: u32,
    /// Time within which a submission must answer; at least 1 s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub submit_timeout: Duration,
    /// Longest run of a job; it is ended after that. At least 1 minute.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub run_timeout: Duration,
    /// Silence of a driver after which it is suspected to be dead, when the engine does not vouch for it. At least 30 s:
    /// drivers report every 10 s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub heartbeat_silence: Duration,
    /// Time after the end of a job during which its workers may still write. Unset: what fits the kind.
    #[serde(with = "humantime_serde::option")]
    #[schemars(with = "Option<String>", extend("format" = "duration", "x-example" = "5s"))]
    pub settle: Option<Duration>,
}

impl Default for SparkSubmitConfig {
    fn default() -> Self {
        Self {
            master: "local[2]".to_owned(),
            spark_home: None,
            job_jar: None,
            bundles: BTreeMap::new(),
            java_home: None,
            conf: BTreeMap::new(),
            inherit: Vec::new(),
            log_bytes_max: 16 * 1024 * 1024,
            max_running: 2,
            submit_timeout: Duration::from_secs(600),
            run_timeout: Duration::from_secs(24 * 3600),
            heartbeat_silence: Duration::from_secs(60),
            settle: None,
        }
    }
}

/// An engine of kind `simulated`: it runs nothing. Every `…_every` is one in so many jobs, 0 = never.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedConfig {
    /// Folder of its jobs and records. Unset: in the folder of the store.
    #[schemars(extend("format" = "path", "x-example" = "./tms-data/simulated"))]
    pub folder: Option<PathBuf>,
    /// How long a job works on its table.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub run_time: Duration,
    /// Time until a job asks for leave; it is queued meanwhile.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub start_delay: Duration,
    /// Jobs that start late and are not known until then.
    pub late_every: u32,
    /// How late those start.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub late_by: Duration,
    /// Submissions whose answer is lost; every second one of them starts nothing.
    pub lost_answer_every: u32,
    /// Submissions that are refused.
    pub refuse_every: u32,
    /// Jobs that end without completing; every second one of them vanishes without a word.
    pub fail_every: u32,
    /// Submissions that start two drivers.
    pub duplicate_start_every: u32,
    /// What all draws start from.
    pub seed: u64,
    /// Whether a job without a folder counts as proven absent; false imitates engines that forget.
    pub absent_is_proof: bool,
    /// Attempts that may be live at once.
    #[schemars(range(min = 1, max = 1000))]
    pub max_running: u32,
    /// Time within which a submission must answer.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub submit_timeout: Duration,
    /// Longest run of a job; it is ended after that.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub run_timeout: Duration,
    /// Silence of a driver after which it is suspected to be dead.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub heartbeat_silence: Duration,
    /// Time after the end of a job during which it counts as able to write.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String", extend("format" = "duration"))]
    pub settle: Duration,
}

impl Default for SimulatedConfig {
    fn default() -> Self {
        let usual = tms_core::engine::simulated::SimulatedConfig::default();
        Self {
            folder: None,
            run_time: usual.run_time,
            start_delay: usual.start_delay,
            late_every: usual.late_every,
            late_by: usual.late_by,
            lost_answer_every: usual.lost_answer_every,
            refuse_every: usual.refuse_every,
            fail_every: usual.fail_every,
            duplicate_start_every: usual.duplicate_start_every,
            seed: usual.seed,
            absent_is_proof: usual.absent_is_proof,
            max_running: usual.running_max,
            submit_timeout: usual.submit_timeout,
            run_timeout: usual.run_timeout,
            heartbeat_silence: usual.heartbeat_silence,
            settle: usual.settle,
        }
    }
}

impl SimulatedConfig {
    /// Returns the domain's form. Without a folder of its own its jobs lie in `folder`.
    #[must_use]
    pub fn engine(&self, folder: PathBuf) -> tms_core::engine::simulated::SimulatedConfig {
        tms_core::engine::simulated::SimulatedConfig {
            folder: self.folder.clone().unwrap_or(folder),
            run_time: self.run_time,
            start_delay: self.start_delay,
            late_every: self.late_every,
            late_by: self.late_by,
            lost_answer_every: self.lost_answer_every,
            refuse_every: self.refuse_every,
            fail_every: self.fail_every,
            duplicate_start_every: self.duplicate_start_every,
            seed: self.seed,
            absent_is_proof: self.absent_is_proof,
            running_max: self.max_running,
            settle: self.settle,
            heartbeat_silence: self.heartbeat_silence,
            run_timeout: self.run_timeout,
            submit_timeout: self.submit_timeout,
        }
    }
}

/// Sets what follows the environment or the place of this program.
pub(crate) fn fill_in(engines: &mut BTreeMap<String, EngineConfig>, sources: &Sources) {
    let program = std::env::current_exe().ok();
    for engine in engines.values_mut() {
        let EngineConfig::SparkSubmit(spark) = engine else { continue };
        if spark.spark_home.is_none() {
            spark.spark_home = sources.variable("SPARK_HOME").map(PathBuf::from);
        }
        if spark.job_jar.is_none() {
            spark.job_jar = program.as_deref().and_then(Path::parent).map(|folder| folder.join(JOB_JAR));
        }
    }
}

/// Name of the job jar beside the program.
const JOB_JAR: &str = "tms-spark-job.jar";
