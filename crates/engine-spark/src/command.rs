//! From a job to the words of a command. Pure: no disk, no clock. A vector of arguments, never a shell; nothing of a
//! table stands in it, since the job learns its work with leave.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use tms_core::engine::{Job, NotReady};
use tms_core::model::instance::ParkReason;

use crate::config::SparkConfig;
use crate::survey::TAG_VARIABLE;

/// Class of the job, in the job jar.
pub const JOB_CLASS: &str = "io.tms.job.TmsSparkJob";
/// What a configuration may add to the class path.
const CLASS_PATH: &str = "spark.driver.extraClassPath";
/// Most tasks that a request may ask for at once.
const PARALLELISM_MAX: u32 = 100_000;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Program.
    pub program: String,
    /// Arguments.
    pub args: Vec<String>,
}

/// Returns the command of one job.
///
/// # Errors
/// The reason to refuse it, with the key to set.
pub fn build(config: &SparkConfig, job: &Job) -> Result<CommandLine, String> {
    let Some(spark_home) = &config.spark_home else {
        return Err(format!("{} is not set, nor SPARK_HOME", config.key("spark_home")));
    };
    let (_, bundle) = bundle_for(config, job.table_version).map_err(|e| e.detail)?;
    let mut conf = config.conf.clone();
    conf.extend(resource_conf(&job.resources)?);
    conf.insert("spark.ui.enabled".to_owned(), "false".to_owned());
    // As an argument of its own: a JVM takes its heap before it reads any setting.
    let memory = conf.remove("spark.driver.memory");
    let class_path = class_path(bundle, conf.remove(CLASS_PATH).as_deref(), config)?;
    let mut args = vec![
        "--master".to_owned(),
        config.master.clone(),
        "--deploy-mode".to_owned(),
        "client".to_owned(),
        "--name".to_owned(),
        job.tag.to_string(),
        "--class".to_owned(),
        JOB_CLASS.to_owned(),
        "--driver-class-path".to_owned(),
        class_path,
    ];
    if let Some(memory) = memory {
        args.extend(["--driver-memory".to_owned(), memory]);
    }
    for (key, value) in conf {
        args.extend(["--conf".to_owned(), format!("{key}={value}")]);
    }
    args.push(text(&config.job_jar)?);
    Ok(CommandLine { program: text(&spark_home.join("bin/spark-submit"))?, args })
}

/// The bundle stands on the class path of the JVM, not in `--jars`: those are seen by Spark's own class loader only, and Avro,
/// which is Spark's, then takes Hudi's records for unknown ones in some threads (measured on 1.0.2: a killed compaction
/// failed again and again with a `ClassCastException` of `HoodieDeleteRecordList`). Nor is it copied for every job then.
fn class_path(bundle: &Path, configured: Option<&str>, config: &SparkConfig) -> Result<String, String> {
    let bundle = text(bundle)?;
    if bundle.contains(':') {
        return Err(format!(
            "{bundle} holds a colon, which ends a name on a class path: set {}",
            config.key("bundles")
        ));
    }
    Ok(match configured {
        Some(more) => format!("{bundle}:{more}"),
        None => bundle,
    })
}

/// Returns the bundle for a table version, with the version that it is configured for: its own, else the next higher.
///
/// # Errors
/// Which key to set.
pub fn bundle_for(config: &SparkConfig, table_version: u32) -> Result<(u32, &Path), NotReady> {
    if let Some((version, path)) = config.bundles.range(table_version..).next() {
        return Ok((*version, path));
    }
    let key = config.key(&format!("bundles.{table_version}"));
    let Some(newest) = config.bundles.keys().next_back() else {
        let detail = format!("no Hudi bundle is configured: set {key} to a hudi-spark bundle jar");
        return Err(NotReady { reason: ParkReason::NoEngine, detail });
    };
    let detail = format!(
        "the newest configured Hudi bundle is for table version {newest} and cannot run tables of version {table_version}: set {key}"
    );
    Err(NotReady { reason: ParkReason::BundleTooOld, detail })
}

/// What a request may ask for. Unknown keys ask nothing; a value that is not understood is refused, never cut.
fn resource_conf(resources: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, String> {
    let mut conf = Vec::new();
    for (key, value) in resources {
        match key.as_str() {
            "driver_memory" if is_memory(value) => {
                conf.push(("spark.driver.memory".to_owned(), value.to_ascii_lowercase()))
            }
            "driver_memory" => return Err("the resource driver_memory is no size such as 4g".to_owned()),
            "parallelism" => match value.parse::<u32>() {
                Ok(n) if (1..=PARALLELISM_MAX).contains(&n) => {
                    conf.push(("spark.default.parallelism".to_owned(), n.to_string()));
                }
                _ => {
                    return Err(format!("the resource parallelism is no number from 1 to {PARALLELISM_MAX}"));
                }
            },
            // Executors are threads of the driver in local mode.
            _ => {}
        }
    }
    Ok(conf)
}

/// A size with its unit, as a JVM takes it: without one, `-Xmx4` would be 4 bytes.
fn is_memory(value: &str) -> bool {
    let Some((number, unit)) = value.split_at_checked(value.len().saturating_sub(1)) else { return false };
    let is_number = (1..=6).contains(&number.len())
        && number.bytes().all(|b| b.is_ascii_digit())
        && !number.starts_with('0');
    is_number && matches!(unit, "m" | "g" | "M" | "G")
}

fn text(path: &Path) -> Result<String, String> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| format!("the path {} is not UTF-8", path.display()))
}

/// Returns the environment of a job, without what is secret.
#[must_use]
pub fn environment(config: &SparkConfig) -> BTreeMap<OsString, OsString> {
    let mut all = config.environment.clone();
    let mut set = |name: &str, value: OsString| all.insert(OsString::from(name), value);
    if let Some(home) = &config.spark_home {
        set("SPARK_HOME", home.clone().into_os_string());
    }
    if let Some(home) = &config.java_home {
        set("JAVA_HOME", home.clone().into_os_string());
    }
    // Driver and workers are one process: nothing of it needs to be reached from another host.
    set("SPARK_LOCAL_IP", OsString::from("127.0.0.1"));
    if !has_utf8_locale(&all) {
        // A JVM in the C locale cannot open files with non-ASCII names.
        all.insert(OsString::from("LC_ALL"), OsString::from("C.UTF-8"));
    }
    all
}

fn has_utf8_locale(environment: &BTreeMap<OsString, OsString>) -> bool {
    let deciding = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| environment.get(std::ffi::OsStr::new(name)))
        .find(|value| !value.is_empty());
    deciding.is_some_and(|value| {
        let value = value.to_string_lossy().to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

/// Returns what tells a job whom to ask; the token is why this never becomes an argument or a file.
#[must_use]
pub fn job_environment(job: &Job) -> [(&'static str, SecretString); 3] {
    [
        ("TMS_JOB_URL", SecretString::from(job.url.clone())),
        (TAG_VARIABLE, SecretString::from(job.tag.to_string())),
        ("TMS_JOB_TOKEN", SecretString::from(job.token.expose_secret().to_owned())),
    ]
}

#[cfg(test)]
mod tests;
