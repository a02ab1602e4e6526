//! What this machine lacks, looked for before anything is submitted. Files are looked at each time, since that is
//! cheap; Java is asked for its version, and the answer is kept for a while.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tms_core::clock::Clock;
use tms_core::engine::{JobNeed, NotReady};
use tms_core::model::action::Action;
use tms_core::model::instance::ParkReason;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::command;
use crate::config::SparkConfig;
use crate::place::Place;

/// Longest run of `java -version`; it takes 0.1 s on a quiet machine.
const JAVA_ANSWER_MAX: Duration = Duration::from_secs(20);
/// Longest answer of `java -version` that is read, in bytes.
const JAVA_ANSWER_BYTES_MAX: u64 = 16 * 1024;
/// Table version of 0.15. Measured with the bundle of 1.2.0 under the lock lines, twice of twice.
const OLDEST_VERSION: u32 = 6;
/// How long a good answer is believed.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// How long a bad one is: somebody may be mending it.
const BAD_FOR: Duration = Duration::from_secs(10);
/// Most jars that are looked at in Spark's folder; 3.5.9 has 252.
const JARS_MAX: usize = 5_000;

/// Answers of Java, with the time until which each is believed.
#[derive(Debug, Default)]
pub struct JavaAnswers {
    known: Mutex<BTreeMap<PathBuf, Answer>>,
}

/// A major version or what is wrong, and the monotonic time until which it is believed.
#[derive(Clone, Debug)]
struct Answer {
    until: Duration,
    version: Result<u32, String>,
}

/// What files alone tell of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The Java that spark-submit will take; `None` when it is among what is missing.
    java: Option<PathBuf>,
    /// Lowest major version that this Spark runs on.
    java_least: u32,
    /// All that is missing for any job at all, each with the key to set.
    lacks: Vec<String>,
}

/// Tells what this machine has for any job at all, as far as files tell it; looking may block.
#[must_use]
pub fn look(config: &SparkConfig) -> Machine {
    let mut lacks = file_lacks(config);
    let java = java_program(config).map_err(|lack| lacks.push(lack)).ok();
    // Spark 4 needs 17, by its documentation.
    let java_least = if spark_version(config).is_some_and(|v| v.spark >= 4) { 17 } else { 8 };
    Machine { java, java_least, lacks }
}

/// Says all that is missing in one answer, under the first reason.
///
/// # Errors
/// There is something.
pub fn all_in_one(lacks: Vec<NotReady>) -> Result<(), NotReady> {
    let Some(reason) = lacks.first().map(|lack| lack.reason) else { return Ok(()) };
    let details: Vec<String> = lacks.into_iter().map(|lack| lack.detail).collect();
    Err(NotReady { reason, detail: details.join("; ") })
}

/// Tells what is missing for such a job on tables of one version.
///
/// # Errors
/// What, and which key to set.
pub fn check_bundle(config: &SparkConfig, need: JobNeed) -> Result<(), NotReady> {
    let (version, path) = command::bundle_for(config, need.table_version)?;
    if need.action == Action::Clustering && need.table_version == OLDEST_VERSION && version > OLDEST_VERSION {
        return Err(NotReady {
            reason: ParkReason::BundleTooNew,
            detail: format!(
                "a clustering of a table of version {OLDEST_VERSION} fails with the bundle for version {version}: at its commit \
                 Hudi takes the plan itself for a conflicting write, and the plan stays inflight, which locks writers out: \
                 set {}",
                config.key(&format!("bundles.{OLDEST_VERSION}"))
            ),
        });
    }
    check_bundle_file(config, version, path)
}

/// Tells what is wrong with each configured bundle that cannot be used, whatever tables there are, and which key to set.
#[must_use]
pub fn bundle_lacks(config: &SparkConfig) -> Vec<NotReady> {
    let all = config.bundles.iter();
    all.filter_map(|(version, path)| check_bundle_file(config, *version, path).err()).collect()
}

fn check_bundle_file(config: &SparkConfig, version: u32, path: &Path) -> Result<(), NotReady> {
    let key = config.key(&format!("bundles.{version}"));
    check_jar(path, &key).map_err(not_ready)?;
    if let Some((release, newest)) = hudi_release(path).filter(|(_, newest)| *newest < version) {
        return Err(NotReady {
            reason: ParkReason::BundleTooOld,
            detail: format!(
                "{} is Hudi {release}, which knows tables up to version {newest}: set {key} to a later one",
                path.display()
            ),
        });
    }
    let (Some(ours), Some(theirs)) = (spark_version(config), bundle_version(path)) else { return Ok(()) };
    if ours != theirs {
        return Err(not_ready(format!(
            "{} is made for Spark {}.{} with Scala {}, and {} is Spark {}.{} with Scala {}: set {key} to the bundle for this Spark",
            path.display(),
            theirs.spark,
            theirs.minor,
            theirs.scala,
            config.spark_home.as_deref().unwrap_or(Path::new("")).display(),
            ours.spark,
            ours.minor,
            ours.scala,
        )));
    }
    Ok(())
}

fn not_ready(detail: String) -> NotReady {
    NotReady { reason: ParkReason::NoEngine, detail }
}

fn file_lacks(config: &SparkConfig) -> Vec<String> {
    let mut lacks = Vec::new();
    if let Err(e) = Place::here() {
        lacks.push(format!("/proc cannot be read, so no job could be told dead from alive: {e}"));
    }
    let faults = config.faults().into_iter();
    lacks.extend(faults.map(|f| format!("{}: {}; allowed: {}", f.key, f.problem, f.allowed)));
    lacks.extend(spark_lack(config));
    lacks.extend(check_jar(&config.job_jar, &config.key("job_jar")).err());
    if config.bundles.is_empty() {
        let key = config.key("bundles");
        lacks.push(format!("no Hudi bundle is configured: set {key}.6, .8 or .9 to a hudi-spark bundle jar"));
    }
    if !std::fs::metadata(&config.folder).is_ok_and(|folder| folder.is_dir()) {
        let folder = config.folder.display();
        lacks.push(format!("the folder of attempts {folder} is missing: look at store.path"));
    }
    lacks
}

fn spark_lack(config: &SparkConfig) -> Option<String> {
    let key = config.key("spark_home");
    let Some(home) = &config.spark_home else {
        return Some(format!(
            "no Spark is configured: set {key} (or SPARK_HOME) to the folder of a Spark installation"
        ));
    };
    let submit = home.join("bin/spark-submit");
    (!is_program(&submit)).then(|| {
        format!(
            "{} is missing or cannot be run: set {key} to the folder of a Spark installation",
            submit.display()
        )
    })
}

fn check_jar(path: &Path, key: &str) -> Result<(), String> {
    let mut head = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    match read {
        Ok(()) if head == *b"PK\x03\x04" => Ok(()),
        Ok(()) => Err(format!("{} is no jar: set {key}", path.display())),
        Err(e) => Err(format!("the jar {} cannot be read ({e}): set {key}", path.display())),
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The Java that spark-submit will take.
fn java_program(config: &SparkConfig) -> Result<PathBuf, String> {
    let environment = command::environment(config);
    let get = |name: &str| environment.get(std::ffi::OsStr::new(name)).filter(|v| !v.is_empty());
    let key = config.key("java_home");
    if let Some(home) = get("JAVA_HOME") {
        let program = Path::new(home).join("bin/java");
        return if is_program(&program) {
            Ok(program)
        } else {
            Err(format!("{} is missing or cannot be run: set {key} (or JAVA_HOME)", program.display()))
        };
    }
    let path = get("PATH").cloned().unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("java")).find(|p| is_program(p));
    found.ok_or_else(|| format!("no Java was found: set {key}, JAVA_HOME or PATH"))
}

impl JavaAnswers {
    /// Tells whether this machine has what any job needs: what its files told, and a Java of a fit version.
    ///
    /// # Errors
    /// All that is missing, and which keys to set.
    pub async fn check(
        &self,
        config: &SparkConfig,
        machine: Machine,
        clock: &dyn Clock,
    ) -> Result<(), NotReady> {
        let Machine { java, java_least: least, mut lacks } = machine;
        if let Some(program) = java {
            match self.version(config, &program, clock).await {
                Ok(version) if version >= least => {}
                Ok(version) => lacks.push(format!(
                    "{} is Java {version}, and Spark needs {least} or later: set {}",
                    program.display(),
                    config.key("java_home")
                )),
                Err(lack) => lacks.push(lack),
            }
        }
        all_in_one(lacks.into_iter().map(not_ready).collect())
    }

    async fn version(&self, config: &SparkConfig, program: &Path, clock: &dyn Clock) -> Result<u32, String> {
        let now = clock.monotonic();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(program).cloned();
        if let Some(answer) = known.filter(|answer| now < answer.until) {
            return answer.version;
        }
        let version = ask_java(config, program).await;
        let until = now + if version.is_ok() { GOOD_FOR } else { BAD_FOR };
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // One engine has one Java; an older one is of a PATH that changed.
        all.clear();
        all.insert(program.to_owned(), Answer { until, version: version.clone() });
        version
    }
}

async fn ask_java(config: &SparkConfig, program: &Path) -> Result<u32, String> {
    let key = config.key("java_home");
    let cannot = |why: String| format!("{} -version {why}: set {key}", program.display());
    let mut child = Command::new(program)
        .arg("-version")
        .env_clear()
        .envs(command::environment(config))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| cannot(format!("cannot be run ({e})")))?;
    let stderr = child.stderr.take();
    let read = async {
        let mut text = Vec::new();
        if let Some(stderr) = stderr {
            stderr.take(JAVA_ANSWER_BYTES_MAX).read_to_end(&mut text).await?;
        }
        child.wait().await.map(|status| (status, text))
    };
    match tokio::time::timeout(JAVA_ANSWER_MAX, read).await {
        Ok(Ok((_, text))) => {
            java_major(&String::from_utf8_lossy(&text)).ok_or_else(|| cannot("tells no version".to_owned()))
        }
        Ok(Err(e)) => Err(cannot(format!("failed ({e})"))),
        Err(_) => Err(cannot(format!("did not answer within {} s", JAVA_ANSWER_MAX.as_secs()))),
    }
}

/// Reads `openjdk version "17.0.15" …` and, of Java 8, `java version "1.8.0_381"`.
fn java_major(text: &str) -> Option<u32> {
    let version = text.split_once(" version \"")?.1.split_once('"')?.0;
    let mut numbers = version.split(['.', '_', '-', '+']).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

/// Spark's version as jars name it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SparkVersion {
    spark: u32,
    minor: u32,
    scala: String,
}

/// The version of the installed Spark, out of the name of its core jar.
fn spark_version(config: &SparkConfig) -> Option<SparkVersion> {
    let jars = std::fs::read_dir(config.spark_home.as_ref()?.join("jars")).ok()?;
    let names = jars.take(JARS_MAX).filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.filter_map(|name| core_jar_version(&name)).next()
}

/// Reads `spark-core_2.12-3.5.9.jar`.
fn core_jar_version(name: &str) -> Option<SparkVersion> {
    let (scala, version) = name.strip_prefix("spark-core_")?.strip_suffix(".jar")?.split_once('-')?;
    two_numbers(version, scala)
}

/// Reads `hudi-spark3.5-bundle_2.12-1.2.0.jar`; other names tell nothing.
fn bundle_version(path: &Path) -> Option<SparkVersion> {
    let name = path.file_name()?.to_str()?;
    let (spark, rest) = name.strip_prefix("hudi-spark")?.split_once("-bundle_")?;
    two_numbers(spark, rest.split_once('-')?.0)
}

/// The Hudi release that a bundle's name tells, and the newest table version that it knows: 0.14 and 0.15 write 6, 1.0
/// writes 8, 1.1 and 1.2 write 9 (measured on 0.15.0, 1.0.2 and 1.2.0). Later ones are not judged.
fn hudi_release(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jar")?;
    let release = name.split_once("-bundle_")?.1.split_once('-')?.1;
    let mut parts = release.split('.');
    let newest = match (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?) {
        (0, 14..) => 6,
        (0, _) => 5,
        (1, 0) => 8,
        (1, 1 | 2) => 9,
        _ => return None,
    };
    Some((release.to_owned(), newest))
}

fn two_numbers(version: &str, scala: &str) -> Option<SparkVersion> {
    let mut parts = version.split('.');
    let (spark, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(SparkVersion { spark, minor, scala: scala.to_owned() })
}

#[cfg(test)]
mod tests;
