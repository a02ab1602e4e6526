//! What Spark work needs, found or fetched: Java, Python, Spark, Hudi bundles, the job jar.
//!
//! Everything is checked before it is used, so that a cache filled by hand is as good as one filled by xtask.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cache::Cache;
use crate::environment::Environment;
use crate::process::command;
use crate::repo::Repo;

mod apt;
pub(crate) mod bundle;
pub(crate) mod java;
pub(crate) mod job_jar;
pub(crate) mod rocksdb;
pub(crate) mod spark;

/// Java and Spark, ready to start things with.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) java_home: PathBuf,
    /// The Python of Spark's own venv.
    pub(crate) python: PathBuf,
    pub(crate) spark_home: PathBuf,
}

impl Tools {
    /// Finds or installs Java and Spark, and says which ones are used.
    pub(crate) fn set_up(env: &Environment, cache: &Cache) -> Result<Self> {
        let java = java::set_up(env)?;
        let spark = spark::set_up(env, cache)?;
        println!("        Java {} in {}", java.version, java.home.display());
        println!("        Python {}: {}", spark.python_version, spark.python.display());
        println!("        Spark {} in {}", spark.version, spark.home.display());
        for line in not_taken(env, &java, &spark) {
            println!("        {line}");
        }
        Ok(Self { java_home: java.home, python: spark.python, spark_home: spark.home })
    }

    /// A command that finds exactly this Spark, Java and Python, whatever else the machine has.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = command(program);
        self.apply(&mut command);
        command
    }

    /// Sets what Spark's own scripts look at: a foreign `python` or `java` on the path must not win.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("JAVA_HOME", &self.java_home).env("SPARK_HOME", &self.spark_home);
        command.env("PYSPARK_PYTHON", &self.python).env("PYSPARK_DRIVER_PYTHON", &self.python);
        // Without it the driver binds the address of a network card (measured), and tests stay on the
        // loopback.
        command.env("SPARK_LOCAL_IP", "127.0.0.1");
    }
}

/// What a person set and xtask did not take, with the reason.
fn not_taken(env: &Environment, java: &java::Java, spark: &spark::Spark) -> Vec<String> {
    let mut lines: Vec<String> = java.not_taken.iter().cloned().collect();
    if let Some(home) = env.spark_home.as_ref().filter(|home| **home != spark.home) {
        lines.push(format!(
            "SPARK_HOME={} was not taken: xtask uses its own Spark only, the release that TMS is tested with",
            home.display()
        ));
    }
    lines
}

/// All that the real-Spark tests need.
#[derive(Clone, Debug)]
pub(crate) struct Components {
    pub(crate) tools: Tools,
    /// Holds `hudi-spark3.5-bundle_2.12-<V>.jar` for each release asked for.
    pub(crate) bundles: PathBuf,
    pub(crate) job_jar: PathBuf,
}

impl Components {
    /// Sets up all components for these Hudi releases; the cache is locked meanwhile.
    pub(crate) fn set_up(env: &Environment, repo: &Repo, releases: &[&str]) -> Result<Self> {
        let cache = Cache::lock(&env.cache)?;
        let tools = Tools::set_up(env, &cache)?;
        for release in releases {
            bundle::set_up(env, &cache, &tools, release)?;
        }
        let job_jar = job_jar::set_up(&cache, repo, &tools)?;
        Ok(Self { tools, bundles: cache.path(bundle::FOLDER), job_jar })
    }
}
