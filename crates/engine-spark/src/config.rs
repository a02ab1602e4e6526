//! Settings of one `spark-submit` engine, and all that can be wrong with them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tms_core::model::id::EngineName;

/// Smallest log of a job, in bytes: less would cut off the start of a stack trace.
pub const LOG_BYTES_MIN: u64 = 64 * 1024;

/// Settings of one engine of kind `spark-submit`.
#[derive(Clone, Debug)]
pub struct SparkConfig {
    /// Its name, for messages that say which key to set.
    pub name: EngineName,
    /// Spark master: `local`, `local[N]` or `local[*]`.
    pub master: String,
    /// Folder of a Spark installation; `bin/spark-submit` lies in it.
    pub spark_home: Option<PathBuf>,
    /// Folder of a Java installation; unset means `JAVA_HOME`, else `java` on the `PATH`.
    pub java_home: Option<PathBuf>,
    /// The job jar of TMS.
    pub job_jar: PathBuf,
    /// Hudi's Spark bundle for each table version. A table whose version has none gets the one of the next higher
    /// version: that works with the table's version pinned, which every job does (measured: 1.0.2 and 1.2.0 on older tables).
    pub bundles: BTreeMap<u32, PathBuf>,
    /// More Spark settings for every job, such as `spark.driver.memory`. They stand on a command line: no secrets.
    pub conf: BTreeMap<String, String>,
    /// What a job's process inherits: see [`inherited_environment`].
    pub environment: BTreeMap<OsString, OsString>,
    /// Attempts that may be live at once.
    pub running_max: u32,
    /// Time within which the wrapper must say that it started.
    pub submit_timeout: Duration,
    /// Longest run of a job.
    pub run_timeout: Duration,
    /// Silence of a driver after which a holder becomes suspect when the engine does not vouch for it.
    pub heartbeat_silence: Duration,
    /// Time after the end of a job during which it counts as able to write. Zero in local mode, where driver and
    /// workers are one process.
    pub settle: Duration,
    /// Time after a driver's recorded end after which what it left behind is asked to end, and as much again until it is
    /// killed; the settle time comes on top. A JVM that runs the job is a driver, and is left alone.
    pub leftover_wait: Duration,
    /// Folder of the attempts' folders.
    pub folder: PathBuf,
    /// Most bytes that are kept of a job's output; the newest ones are.
    pub log_bytes_max: u64,
    /// Folders of ended attempts that are kept, with their logs; the oldest go first.
    pub attempts_kept: usize,
    /// The program that is started as `<wrapper> run-attempt <folder>` and calls [`crate::wrapper::run`]. Not a config
    /// key: this very program, whatever has been installed over its file meanwhile.
    pub wrapper: PathBuf,
}

impl SparkConfig {
    /// Returns the defaults for an engine of this name; folders and jars have to be set.
    #[must_use]
    pub fn new(name: EngineName, folder: PathBuf, job_jar: PathBuf) -> Self {
        Self {
            name,
            master: "local[2]".to_owned(),
            spark_home: None,
            java_home: None,
            job_jar,
            bundles: BTreeMap::new(),
            conf: BTreeMap::new(),
            environment: BTreeMap::new(),
            running_max: 2,
            submit_timeout: Duration::from_secs(600),
            run_timeout: Duration::from_secs(24 * 3600),
            heartbeat_silence: Duration::from_secs(60),
            settle: Duration::ZERO,
            leftover_wait: Duration::from_secs(30),
            folder,
            log_bytes_max: 16 * 1024 * 1024,
            attempts_kept: 1_000,
            wrapper: PathBuf::from("/proc/self/exe"),
        }
    }

    /// Returns the config key of one setting of this engine.
    #[must_use]
    pub fn key(&self, setting: &str) -> String {
        format!("engines.{}.{setting}", self.name)
    }

    /// Returns everything that is wrong, without touching a disk; a missing file is no fault here, see [`crate::checks`].
    #[must_use]
    pub fn faults(&self) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        let mut fault = |setting: &str, problem: String, allowed: &str| {
            faults.push(ConfigFault { key: self.key(setting), problem, allowed: allowed.to_owned() });
        };
        if !is_local_master(&self.master) {
            fault("master", format!("{:?} is no local master", self.master), "local, local[N] or local[*]");
        }
        for (setting, path) in self.paths() {
            if let Some(problem) = path_problem(path) {
                fault(&setting, problem, "a path without , # % * ? [ ] { } \\ and control characters");
            }
        }
        for version in self.bundles.keys().filter(|v| !matches!(v, 6 | 8 | 9)) {
            fault(
                &format!("bundles.{version}"),
                "TMS acts on no table of this version".to_owned(),
                "6, 8, 9",
            );
        }
        for (key, value) in &self.conf {
            if let Some(problem) = conf_problem(key, value) {
                fault(
                    &format!("conf.{key}"),
                    problem,
                    "spark.* settings that hold no secret and that TMS does not set",
                );
            }
        }
        if self.running_max == 0 {
            fault("max_running", "0 would never run anything".to_owned(), "1 or more");
        }
        if self.log_bytes_max < LOG_BYTES_MIN {
            fault("log_bytes_max", format!("{} is too small", self.log_bytes_max), "65536 or more");
        }
        for (setting, time) in [("submit_timeout", self.submit_timeout), ("run_timeout", self.run_timeout)] {
            if time.is_zero() {
                fault(setting, "zero would end every job at once".to_owned(), "a time above zero");
            }
        }
        faults
    }

    fn paths(&self) -> Vec<(String, &Path)> {
        let mut paths = vec![("job_jar".to_owned(), self.job_jar.as_path())];
        paths.extend(
            self.bundles.iter().map(|(version, path)| (format!("bundles.{version}"), path.as_path())),
        );
        paths.extend(self.spark_home.iter().map(|path| ("spark_home".to_owned(), path.as_path())));
        paths.extend(self.java_home.iter().map(|path| ("java_home".to_owned(), path.as_path())));
        paths
    }
}

/// One thing that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The whole key.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub allowed: String,
}

fn is_local_master(master: &str) -> bool {
    let threads = |inside: &str| {
        let is_number = !inside.is_empty() && inside.len() <= 4 && inside.bytes().all(|b| b.is_ascii_digit());
        inside == "*" || (is_number && !inside.bytes().all(|b| b == b'0'))
    };
    master == "local" || master.strip_prefix("local[").and_then(|m| m.strip_suffix(']')).is_some_and(threads)
}

/// spark-submit splits a list of jars at commas, takes `#` for the start of an alias and expands the rest as a pattern.
fn path_problem(path: &Path) -> Option<String> {
    let Some(text) = path.to_str() else { return Some("the path is not UTF-8".to_owned()) };
    if text.is_empty() {
        return Some("the path is empty".to_owned());
    }
    let odd = text.chars().find(|c| ",#%*?[]{}\\".contains(*c) || c.is_control())?;
    Some(format!("spark-submit does not take the character {odd:?} in a path"))
}

/// Settings that decide where and as what a job runs; TMS gives them itself.
const OWN_CONF: [&str; 12] = [
    "spark.app.name",
    "spark.driver.supervise",
    "spark.files",
    "spark.jars",
    "spark.jars.packages",
    "spark.kryo.registrator",
    "spark.master",
    "spark.serializer",
    "spark.sql.catalog.spark_catalog",
    "spark.sql.extensions",
    "spark.submit.deployMode",
    "spark.ui.enabled",
];

/// Parts of a key that betray a secret; the command line would show it to every user of the machine.
const SECRET_WORDS: [&str; 7] =
    ["secret", "password", "passwd", "token", "credential", "access.key", "accesskey"];

fn conf_problem(key: &str, value: &str) -> Option<String> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if !key.starts_with("spark.") || key.len() > 200 || !key.bytes().all(is_word) {
        return Some("it is no Spark setting".to_owned());
    }
    if OWN_CONF.contains(&key) {
        return Some("TMS sets it itself".to_owned());
    }
    if is_secret(key) {
        return Some(
            "it looks like a secret, and would stand on a command line: use spark-defaults.conf".to_owned(),
        );
    }
    if let Some(property) = java_properties(value).into_iter().find(|property| is_secret(property)) {
        return Some(format!(
            "the value sets the Java property {property}, which looks like a secret, and would stand on a command line: take \
             it out, and set what it is for in spark-defaults.conf (a property of Hadoop as spark.hadoop.<property>) or in \
             Hadoop's core-site.xml"
        ));
    }
    value.chars().any(char::is_control).then(|| "the value holds a control character".to_owned())
}

fn is_secret(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| lower.contains(word))
}

/// Returns the names, never the values, of the properties that Java options set: `-Dname=value`. Spark takes quotes and
/// backslashes away as a shell does.
fn java_properties(value: &str) -> Vec<String> {
    let plain: String = value.chars().filter(|c| !"\"'\\".contains(*c)).collect();
    let options = plain.split_whitespace().filter_map(|option| option.strip_prefix("-D"));
    options.map(|option| option.split('=').next().unwrap_or_default().to_owned()).collect()
}

/// Names that a job's process may inherit. Nothing else is passed on, so that no secret of the server reaches a job.
const INHERITED: [&str; 26] = [
    "HADOOP_CONF_DIR",
    "HADOOP_HOME",
    "HADOOP_USER_NAME",
    "HOME",
    "JAVA_HOME",
    "KRB5CCNAME",
    "KRB5_CONFIG",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_HOME",
    "SPARK_LOCAL_DIRS",
    "SPARK_SCALA_VERSION",
    "TEMP",
    "TMP",
    "TMPDIR",
    "TMS_JOB_LEAVE_WAIT_SECS",
    // The mark of one run of our own tests, by which they end what they left behind.
    "TMS_XTASK_RUN",
    "TZ",
    "USER",
];

/// Returns what a job may inherit of the environment `all`: the names that Spark, Hadoop and Java need, and `more`.
#[must_use]
pub fn inherited_environment(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
) -> BTreeMap<OsString, OsString> {
    let may = |name: &OsStr| {
        INHERITED.iter().any(|n| name == OsStr::new(n)) || more.iter().any(|n| name == OsStr::new(n))
    };
    all.into_iter().filter(|(name, _)| may(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SparkConfig {
        SparkConfig::new(EngineName::default(), PathBuf::from("/data"), PathBuf::from("/opt/job.jar"))
    }

    fn keys(config: &SparkConfig) -> Vec<String> {
        config.faults().into_iter().map(|f| f.key).collect()
    }

    #[test]
    fn defaults_have_no_faults() {
        assert_eq!(config().faults(), []);
    }

    #[test]
    fn all_faults_come_in_one_answer() {
        let config = SparkConfig {
            master: "yarn".to_owned(),
            job_jar: PathBuf::from("/a,b.jar"),
            bundles: [(7, PathBuf::from("/b.jar")), (9, PathBuf::from("/c*.jar"))].into(),
            conf: [
                ("spark.hadoop.fs.s3a.secret.key".to_owned(), "x".to_owned()),
                ("spark.master".to_owned(), "yarn".to_owned()),
                ("spark.driver.memory".to_owned(), "2g".to_owned()),
                ("hoodie.x".to_owned(), "1".to_owned()),
            ]
            .into(),
            running_max: 0,
            log_bytes_max: 1,
            run_timeout: Duration::ZERO,
            ..config()
        };
        assert_eq!(
            keys(&config),
            [
                "engines.default.master",
                "engines.default.job_jar",
                "engines.default.bundles.9",
                "engines.default.bundles.7",
                "engines.default.conf.hoodie.x",
                "engines.default.conf.spark.hadoop.fs.s3a.secret.key",
                "engines.default.conf.spark.master",
                "engines.default.max_running",
                "engines.default.log_bytes_max",
                "engines.default.run_timeout",
            ]
        );
    }

    #[test]
    fn a_secret_among_java_options_is_refused_and_not_repeated() {
        let key = "spark.driver.extraJavaOptions";
        let faults = |value: &str| {
            SparkConfig { conf: [(key.to_owned(), value.to_owned())].into(), ..config() }.faults()
        };
        for value in [
            "-Dfs.s3a.secret.key=HIDDEN",
            "-Xss4m -Da=b -Dfs.s3a.ACCESS.key=HIDDEN",
            "\"-Djavax.net.ssl.trustStorePassword=HIDDEN\"",
            "-D'fs.s3a.sec'ret.key=HIDDEN",
        ] {
            let faults = faults(value);
            assert_eq!(faults.len(), 1, "{value}");
            assert_eq!(faults[0].key, format!("engines.default.conf.{key}"));
            assert!(faults[0].problem.contains("spark-defaults.conf"), "{}", faults[0].problem);
            assert!(!faults[0].problem.contains("HIDDEN"), "{}", faults[0].problem);
        }
        for value in ["-Xss4m -Duser.timezone=UTC", "-Da=secret", "secret", "-XX:+UseG1GC", ""] {
            assert_eq!(faults(value), [], "{value}");
        }
    }

    #[test]
    fn only_local_masters_pass() {
        for master in ["local", "local[2]", "local[*]", "local[16]"] {
            assert!(is_local_master(master), "{master}");
        }
        for master in
            ["", "local[]", "local[0]", "local[2,3]", "local[x]", "spark://h:7077", "local-cluster[1,1,1]"]
        {
            assert!(!is_local_master(master), "{master}");
        }
    }

    #[test]
    fn a_job_inherits_named_variables_only() {
        let all =
            [("PATH", "/bin"), ("AWS_SECRET_ACCESS_KEY", "s"), ("TMS_STORE__PATH", "/x"), ("MINE", "1")];
        let all = all.map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let names = |more: &[String]| -> Vec<OsString> {
            inherited_environment(all.clone(), more).into_keys().collect()
        };
        assert_eq!(names(&[]), ["PATH"]);
        assert_eq!(names(&["MINE".to_owned()]), ["MINE", "PATH"]);
    }
}
