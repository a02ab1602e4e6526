//! The components that `cargo xtask test` provides.

use std::env::var_os;
use std::path::PathBuf;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Folder of Spark.
    pub spark_home: PathBuf,
    /// The Python that has pyspark.
    pub python: PathBuf,
    /// Folder of Java.
    pub java_home: PathBuf,
    /// Folder of the Hudi bundles.
    pub bundles: PathBuf,
    /// The job jar.
    pub job_jar: PathBuf,
    /// The server.
    pub server: PathBuf,
    /// The command line.
    pub tms: PathBuf,
}

impl Tools {
    /// Reads the environment. A missing component is a failure under `CI=true` and a loud skip elsewhere.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let found = Self::read();
        if let Err(missing) = &found {
            let is_ci = var_os("CI").is_some_and(|v| v == "true");
            assert!(!is_ci, "{missing} is not set: run `cargo xtask test`, which sets up Spark and Hudi");
            #[expect(clippy::print_stdout, reason = "a skip is loud")]
            {
                println!("SKIPPED e2e: {missing} is not set; `cargo xtask test` sets up Spark and Hudi");
            }
        }
        found.ok()
    }

    fn read() -> Result<Self, &'static str> {
        let get = |name: &'static str| var_os(name).map(PathBuf::from).ok_or(name);
        Ok(Self {
            spark_home: get("TMS_SPARK_HOME")?,
            python: get("TMS_PYTHON")?,
            java_home: get("TMS_JAVA_HOME")?,
            bundles: get("TMS_BUNDLE_DIR")?,
            job_jar: get("TMS_JOB_JAR")?,
            server: get("TMS_SERVER_BIN")?,
            tms: get("TMS_BIN")?,
        })
    }

    /// The bundle of a Hudi release.
    #[must_use]
    pub fn bundle(&self, release: &str) -> PathBuf {
        self.bundles.join(format!("hudi-spark3.5-bundle_2.12-{release}.jar"))
    }
}

/// The releases that a case runs on: all named ones under `cargo xtask faults`, else those given.
#[must_use]
pub fn releases(usual: &[&str]) -> Vec<String> {
    match var_os("TMS_FAULTS_RELEASES").and_then(|v| v.into_string().ok()) {
        Some(list) => list.split(',').filter(|r| !r.is_empty()).map(str::to_owned).collect(),
        None => usual.iter().map(|r| (*r).to_owned()).collect(),
    }
}

/// True under `cargo xtask faults`.
#[must_use]
pub fn is_whole_list() -> bool {
    var_os("TMS_FAULTS_RELEASES").is_some()
}

/// `hoodie.table.version` that a release writes.
#[must_use]
pub fn table_version(release: &str) -> u32 {
    match release {
        "0.15.0" => 6,
        "1.0.2" => 8,
        _ => 9,
    }
}
