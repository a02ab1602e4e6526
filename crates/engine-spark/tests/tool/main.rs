//! The program that the tests of this crate run as processes of their own. It is no part of the product: there the
//! server is its own wrapper.
//!
//! - `run-attempt FOLDER`: the wrapper;
//! - `submit FOLDER SPARK_HOME TAG`: submits one job as a server would, prints the outcome, and waits to be killed.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tms_core::clock::SystemClock;
use tms_core::engine::{Engine, Job};
use tms_core::model::action::Action;
use tms_core::model::id::EngineName;
use tms_engine_spark::{SparkConfig, SparkSubmit, wrapper};

/// How long the submitter waits to be killed.
const LIFE_MAX: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.split_first() {
        Some((first, rest)) if first == wrapper::SUBCOMMAND => ExitCode::from(wrapper::run(rest)),
        Some((first, rest)) if first == "submit" => submit(rest),
        _ => ExitCode::from(2),
    }
}

fn submit(args: &[OsString]) -> ExitCode {
    let [folder, spark_home, tag] = args else { return ExitCode::from(2) };
    let Some(Ok(tag)) = tag.to_str().map(str::parse) else { return ExitCode::from(2) };
    let spark_home = PathBuf::from(spark_home);
    let config = SparkConfig {
        bundles: [(6, spark_home.join("bundle.jar"))].into(),
        environment: tms_engine_spark::config::inherited_environment(std::env::vars_os(), &[]),
        spark_home: Some(spark_home.clone()),
        ..SparkConfig::new(EngineName::default(), PathBuf::from(folder), spark_home.join("job.jar"))
    };
    let job = Job {
        tag,
        action: Action::Compaction,
        base_path: "/t".to_owned(),
        table_version: 6,
        url: "http://127.0.0.1:1".to_owned(),
        token: SecretString::from("t0k3n".to_owned()),
        resources: std::collections::BTreeMap::new(),
        run_timeout: Duration::from_secs(60),
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::from(1);
    };
    runtime.block_on(async {
        let Ok(engine) = SparkSubmit::new(config, Arc::new(SystemClock::default())) else {
            return ExitCode::from(1);
        };
        let outcome = engine.submit(&job).await;
        if writeln!(std::io::stdout(), "{outcome:?}").is_err() {
            return ExitCode::from(1);
        }
        tokio::time::sleep(LIFE_MAX).await;
        ExitCode::SUCCESS
    })
}
