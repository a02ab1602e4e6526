//! Puts the configured backends together. The only file that knows what is compiled in.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tms_core::clock::Clock;
use tms_core::engine::simulated::SimulatedEngine;
use tms_core::engine::{Engine, Engines};
use tms_core::model::id::EngineName;
use tms_core::store::kv::{OrderedKv, RestoredRows, check_copy_blocking, restore_blocking};
use tms_core::store::{Store, disk};
use tms_core::timeline::TimelineSource;
use tms_core::timeline::hudi::HudiTimelines;

use crate::config::engines::{EngineConfig, SparkSubmitConfig};
use crate::config::fault::Fault;
use crate::config::store::{StoreConfig, StoreKind};
use crate::config::{Config, process_environment};
use crate::simulated_driver::ProcessLauncher;

#[cfg(not(any(feature = "store-redb", feature = "store-rocksdb")))]
compile_error!("no store is compiled in: build with `--features store-redb` or `--features store-rocksdb`");
#[cfg(not(feature = "engine-spark"))]
compile_error!("no engine is compiled in: build with `--features engine-spark`");

/// Folder of the attempts of `spark-submit` engines in the store's folder, by engine.
const ATTEMPTS: &str = "attempts";
/// Folder of simulated jobs in the store's folder, by engine.
const SIMULATED: &str = "simulated";
/// What each kind of store keeps in its folder, compiled in or not.
const STORES: [(StoreKind, &str, &str); 2] =
    [(StoreKind::Redb, "redb", "tms.redb"), (StoreKind::Rocksdb, "rocksdb", "tms.rocksdb")];

/// What tests let the server do to itself; no flag in a build that is meant for work.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Faults {
    /// Kills the server when it passes this place, for tests: NAME or NAME:N for the Nth time.
    #[cfg(feature = "fail-points")]
    #[arg(long, value_name = "NAME[:N]")]
    fail_point: Option<String>,
}

impl Faults {
    /// Makes what was asked for happen later.
    ///
    /// # Errors
    /// What names no place, for people.
    #[allow(clippy::unnecessary_wraps, reason = "it has the shape of the one with fail points")]
    pub fn arm(&self) -> Result<(), String> {
        #[cfg(feature = "fail-points")]
        if let Some(point) = &self.fail_point {
            tms_core::fail_point::arm(point).map_err(|bad| format!("--fail-point {bad}: no such place"))?;
        }
        Ok(())
    }
}

/// What a server works with.
#[derive(Debug, Clone)]
pub struct Backends {
    /// Where instances and tables are kept.
    pub store: Arc<dyn Store>,
    /// What runs jobs.
    pub engines: Engines,
    /// What reads tables.
    pub timelines: Arc<dyn TimelineSource>,
}

/// Why the backends could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// A backend of the configuration is not in this build.
    #[error(
        "{key} asks for `{wanted}`, which is not compiled in; build with `cargo build --release -p tms-server --features {feature}`"
    )]
    NotCompiledIn {
        /// Configuration key.
        key: String,
        /// What stands there.
        wanted: String,
        /// Feature that holds it.
        feature: &'static str,
    },
    /// A name that the configuration's check should have refused.
    #[error("`{0}` is no name of an engine")]
    EngineName(String),
    /// Another kind of store lies in the folder: a new one beside it would have forgotten all.
    #[error(
        "store.kind is `{wanted}`, and {found} is a store of the kind `{kind}`: set store.kind to that, or give the new one another store.path"
    )]
    OtherStore {
        /// What is configured.
        wanted: &'static str,
        /// The kind that is there.
        kind: &'static str,
        /// Where.
        found: PathBuf,
    },
    /// A store lies in the folder that another one is to be restored into.
    #[error(
        "{0} is there: a restore replaces no store; move it away, or give another store.path (jobs' folders in the old one may stay)"
    )]
    StoreIsThere(PathBuf),
    /// A restore runs, or was interrupted.
    #[error(
        "{0} is there: a restore runs or was interrupted; when none runs, remove that folder and try again"
    )]
    RestoreIsThere(PathBuf),
    /// A folder cannot be used.
    #[error(
        "cannot use the folder {folder}: {reason}; give store.path a folder that this user can make and write"
    )]
    Folder {
        /// Folder.
        folder: PathBuf,
        /// Why. No source: the text has it, and a chain of causes would say it again.
        reason: std::io::Error,
    },
    /// A backend did not start.
    #[error("{}", told(.0))]
    Backend(tms_core::Error),
}

/// An error with its causes and, last, what to do about it.
fn told(error: &tms_core::Error) -> String {
    let hint = error.hint_text().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{}{hint}", error.chain().trim_end_matches('.'))
}

/// Installs what TLS needs; `rustls` panics at its first use without it.
pub fn install_tls() {
    // A second call, by another server of this process, finds it installed.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// Opens the store and makes the engines.
///
/// # Errors
/// The first backend that is not compiled in or does not start.
pub async fn backends(config: &Config, clock: &Arc<dyn Clock>) -> Result<Backends, AssemblyError> {
    let folder = absolute(&config.store.path)?;
    let store = open_store(&config.store, &folder).await?;
    let mut engines = Engines::new();
    for (name, engine) in &config.engines {
        let name: EngineName = name.parse().map_err(|_| AssemblyError::EngineName(name.clone()))?;
        let made = make_engine(&name, engine, &folder, clock)?;
        engines.insert(name, made);
    }
    Ok(Backends { store, engines, timelines: Arc::new(HudiTimelines::local()) })
}

/// Jobs run elsewhere, so a relative path would mean another folder there.
fn absolute(path: &Path) -> Result<PathBuf, AssemblyError> {
    let failed = |reason| AssemblyError::Folder { folder: path.to_owned(), reason };
    let folder = std::path::absolute(path).map_err(failed)?;
    std::fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

async fn open_store(config: &StoreConfig, folder: &Path) -> Result<Arc<dyn Store>, AssemblyError> {
    refuse_other_store(config.kind, folder)?;
    match config.kind {
        StoreKind::Redb => open_redb(folder).await,
        StoreKind::Rocksdb => open_rocksdb(folder).await,
    }
}

/// Refuses a folder that holds a store of another kind and none of this one.
fn refuse_other_store(kind: StoreKind, folder: &Path) -> Result<(), AssemblyError> {
    let stands = |name: &str| folder.join(name).exists();
    let Some((_, wanted, own)) = STORES.into_iter().find(|(of, _, _)| *of == kind) else { return Ok(()) };
    match STORES.into_iter().find(|(of, _, name)| *of != kind && stands(name)) {
        Some((_, kind, name)) if !stands(own) => {
            Err(AssemblyError::OtherStore { wanted, kind, found: folder.join(name) })
        }
        _ => Ok(()),
    }
}

#[cfg(feature = "store-redb")]
async fn open_redb(folder: &Path) -> Result<Arc<dyn Store>, AssemblyError> {
    tms_store_redb::open(folder).await.map_err(AssemblyError::Backend)
}

#[cfg(not(feature = "store-redb"))]
#[allow(clippy::unused_async, reason = "it has the shape of the one that is compiled in")]
async fn open_redb(_folder: &Path) -> Result<Arc<dyn Store>, AssemblyError> {
    Err(not_compiled_in("store.kind", "redb", "store-redb"))
}

#[cfg(feature = "store-rocksdb")]
async fn open_rocksdb(folder: &Path) -> Result<Arc<dyn Store>, AssemblyError> {
    tms_store_rocksdb::open(folder).await.map_err(AssemblyError::Backend)
}

#[cfg(not(feature = "store-rocksdb"))]
#[allow(clippy::unused_async, reason = "it has the shape of the one that is compiled in")]
async fn open_rocksdb(_folder: &Path) -> Result<Arc<dyn Store>, AssemblyError> {
    Err(not_compiled_in("store.kind", "rocksdb", "store-rocksdb"))
}

/// Name of the folder that a restore fills before its store gets its place.
const RESTORING: &str = "restoring";

/// Makes the store of the configuration from a copy. Its place is taken at the end, whole; until then nothing is there
/// that a server would open. Blocks.
///
/// # Errors
/// When the copy is not whole, a store is there, or the disk refuses.
pub fn restore(
    config: &StoreConfig,
    mut copy: File,
    clock: &dyn Clock,
) -> Result<RestoredRows, AssemblyError> {
    check_copy_blocking(&mut copy).map_err(AssemblyError::Backend)?;
    let folder = std::path::absolute(&config.path)
        .map_err(|reason| AssemblyError::Folder { folder: config.path.clone(), reason })?;
    let own =
        STORES.into_iter().find(|(kind, _, _)| *kind == config.kind).map(|(_, _, name)| folder.join(name));
    if let Some((_, _, name)) = STORES.into_iter().find(|(_, _, name)| folder.join(name).exists()) {
        return Err(AssemblyError::StoreIsThere(folder.join(name)));
    }
    disk::make_folder(&folder).map_err(AssemblyError::Backend)?;
    let draft = folder.join(RESTORING);
    match std::fs::create_dir(&draft) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(AssemblyError::RestoreIsThere(draft));
        }
        Err(reason) => return Err(AssemblyError::Folder { folder: draft, reason }),
    }
    let filled = fill(config.kind, &draft, &mut copy, clock)
        .and_then(|rows| own.map_or(Ok(()), |own| take_place(&draft, &own)).map(|()| rows));
    // Only what this restore made lies in it.
    if let Err(reason) = std::fs::remove_dir_all(&draft)
        && filled.is_ok()
    {
        return Err(AssemblyError::Folder { folder: draft, reason });
    }
    filled
}

fn fill(
    kind: StoreKind,
    draft: &Path,
    copy: &mut File,
    clock: &dyn Clock,
) -> Result<RestoredRows, AssemblyError> {
    let kv = match kind {
        StoreKind::Redb => redb_kv(draft)?,
        StoreKind::Rocksdb => rocksdb_kv(draft)?,
    };
    restore_blocking(&kv, copy, clock.now()).map_err(AssemblyError::Backend)
}

/// Gives a store that is closed and whole its place, unless another one has it by now.
fn take_place(draft: &Path, own: &Path) -> Result<(), AssemblyError> {
    let failed = |reason: std::io::Error| match reason.kind() {
        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::DirectoryNotEmpty => {
            AssemblyError::StoreIsThere(own.to_owned())
        }
        _ => AssemblyError::Folder { folder: own.to_owned(), reason },
    };
    let made = draft.join(own.file_name().unwrap_or_default());
    // A file would be replaced by a rename, and never by a link; a folder that holds something is not replaced.
    if made.is_dir() {
        std::fs::rename(&made, own).map_err(failed)?;
    } else {
        std::fs::hard_link(&made, own).map_err(failed)?;
    }
    let folder = own.parent().unwrap_or(own);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

#[cfg(feature = "store-redb")]
fn redb_kv(folder: &Path) -> Result<Arc<dyn OrderedKv>, AssemblyError> {
    Ok(Arc::new(tms_store_redb::RedbKv::open_blocking(folder).map_err(AssemblyError::Backend)?))
}

#[cfg(not(feature = "store-redb"))]
fn redb_kv(_folder: &Path) -> Result<Arc<dyn OrderedKv>, AssemblyError> {
    Err(not_compiled_in("store.kind", "redb", "store-redb"))
}

#[cfg(feature = "store-rocksdb")]
fn rocksdb_kv(folder: &Path) -> Result<Arc<dyn OrderedKv>, AssemblyError> {
    Ok(Arc::new(tms_store_rocksdb::RocksKv::open_blocking(folder).map_err(AssemblyError::Backend)?))
}

#[cfg(not(feature = "store-rocksdb"))]
fn rocksdb_kv(_folder: &Path) -> Result<Arc<dyn OrderedKv>, AssemblyError> {
    Err(not_compiled_in("store.kind", "rocksdb", "store-rocksdb"))
}

fn make_engine(
    name: &EngineName,
    config: &EngineConfig,
    folder: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, AssemblyError> {
    match config {
        EngineConfig::SparkSubmit(spark) => {
            spark_submit(name, spark, folder.join(ATTEMPTS).join(name.as_str()), clock)
        }
        EngineConfig::Simulated(simulated) => {
            let launcher = Arc::new(ProcessLauncher::default());
            let folder = folder.join(SIMULATED).join(name.as_str());
            let engine = SimulatedEngine::new(simulated.engine(folder), launcher, Arc::clone(clock));
            Ok(Arc::new(engine.map_err(|e| AssemblyError::Backend(e.with("engine", name)))?))
        }
    }
}

#[cfg(feature = "engine-spark")]
fn spark_config(
    name: &EngineName,
    config: &SparkSubmitConfig,
    folder: PathBuf,
) -> tms_engine_spark::SparkConfig {
    let environment: BTreeMap<OsString, OsString> =
        tms_engine_spark::config::inherited_environment(process_environment(), &config.inherit);
    let mut spark =
        tms_engine_spark::SparkConfig::new(name.clone(), folder, config.job_jar.clone().unwrap_or_default());
    spark.master.clone_from(&config.master);
    spark.spark_home.clone_from(&config.spark_home);
    spark.java_home.clone_from(&config.java_home);
    spark.bundles =
        config.bundles.iter().filter_map(|(v, jar)| Some((v.parse().ok()?, jar.clone()))).collect();
    spark.conf.clone_from(&config.conf);
    spark.environment = environment;
    spark.running_max = config.max_running;
    spark.submit_timeout = config.submit_timeout;
    spark.run_timeout = config.run_timeout;
    spark.heartbeat_silence = config.heartbeat_silence;
    spark.settle = config.settle.unwrap_or(spark.settle);
    spark.log_bytes_max = config.log_bytes_max;
    spark
}

#[cfg(feature = "engine-spark")]
fn spark_submit(
    name: &EngineName,
    config: &SparkSubmitConfig,
    folder: PathBuf,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, AssemblyError> {
    let engine = tms_engine_spark::SparkSubmit::new(spark_config(name, config, folder), Arc::clone(clock));
    Ok(Arc::new(engine.map_err(|e| AssemblyError::Backend(e.with("engine", name)))?))
}

#[cfg(not(feature = "engine-spark"))]
fn spark_submit(
    name: &EngineName,
    _config: &SparkSubmitConfig,
    _folder: PathBuf,
    _clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, AssemblyError> {
    Err(not_compiled_in(&format!("engines.{name}.kind"), "spark-submit", "engine-spark"))
}

/// Returns what an engine's own crate finds wrong with its settings.
#[must_use]
pub fn engine_faults(config: &Config) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, engine) in &config.engines {
        if let (Ok(name), EngineConfig::SparkSubmit(spark)) = (name.parse::<EngineName>(), engine) {
            faults.extend(spark_faults(&name, spark));
        }
    }
    faults
}

#[cfg(feature = "engine-spark")]
fn spark_faults(name: &EngineName, config: &SparkSubmitConfig) -> Vec<Fault> {
    let found = spark_config(name, config, PathBuf::from("/")).faults();
    found.into_iter().map(|f| Fault::new(f.key, f.problem).allowed(f.allowed)).collect()
}

#[cfg(not(feature = "engine-spark"))]
fn spark_faults(_name: &EngineName, _config: &SparkSubmitConfig) -> Vec<Fault> {
    Vec::new()
}

/// Runs the small program that stands between this server and a driver, when this process was started as one. Nothing
/// else may have been done before, above all no thread started.
#[must_use]
pub fn run_attempt(args: &[OsString]) -> Option<u8> {
    #[cfg(feature = "engine-spark")]
    match args.split_first() {
        Some((word, rest)) if word == tms_engine_spark::wrapper::SUBCOMMAND => {
            return Some(tms_engine_spark::wrapper::run(rest));
        }
        _ => {}
    }
    None
}

#[allow(dead_code, reason = "a build that has every backend never says so")]
fn not_compiled_in(key: &str, wanted: &str, feature: &'static str) -> AssemblyError {
    AssemblyError::NotCompiledIn { key: key.to_owned(), wanted: wanted.to_owned(), feature }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_is_not_compiled_in_is_named_with_the_command_that_builds_it() {
        let text = not_compiled_in("store.kind", "redb", "store-redb").to_string();
        assert!(
            text.contains("store.kind")
                && text.contains("cargo build --release -p tms-server --features store-redb")
        );
    }

    #[test]
    fn a_store_of_another_kind_is_not_begun_beside_the_one_that_is_there() {
        for (kind, wanted, own) in STORES {
            for (_, other, name) in STORES.into_iter().filter(|(of, _, _)| *of != kind) {
                let folder = tempfile::tempdir().unwrap();
                refuse_other_store(kind, folder.path()).unwrap();
                std::fs::write(folder.path().join(name), "rows").unwrap();
                let text = refuse_other_store(kind, folder.path()).unwrap_err().to_string();
                assert!([wanted, other, name].iter().all(|part| text.contains(part)), "{text}");
                std::fs::write(folder.path().join(own), "rows").unwrap();
                refuse_other_store(kind, folder.path()).unwrap();
            }
        }
    }

    #[cfg(feature = "store-redb")]
    #[test]
    fn the_file_of_redb_has_the_name_that_its_crate_says() {
        assert!(STORES.iter().any(|(_, _, name)| *name == tms_store_redb::FILE_NAME));
    }

    #[cfg(feature = "store-rocksdb")]
    #[test]
    fn the_folder_of_rocksdb_has_the_name_that_its_crate_says() {
        assert!(STORES.iter().any(|(_, _, name)| *name == tms_store_rocksdb::FOLDER_NAME));
    }

    #[cfg(not(feature = "store-rocksdb"))]
    #[tokio::test]
    async fn rocksdb_in_a_build_without_it_names_the_command_that_builds_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = open_rocksdb(folder.path()).await.unwrap_err().to_string();
        assert!(text.contains("cargo build --release -p tms-server --features store-rocksdb"), "{text}");
    }

    #[cfg(feature = "store-rocksdb")]
    #[tokio::test]
    async fn rocksdb_is_opened_and_held() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            kind: StoreKind::Rocksdb,
            path: folder.path().to_owned(),
            ..StoreConfig::default()
        };
        let store = open_store(&config, folder.path()).await.unwrap();
        store.check().await.unwrap();
        let text = open_store(&config, folder.path()).await.unwrap_err().to_string();
        for part in ["tms.rocksdb", "it is held by another process", "end the other tms-server"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[cfg(feature = "store-redb")]
    #[tokio::test]
    async fn a_second_server_on_a_store_is_told_once_who_holds_it_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let first = open_redb(folder.path()).await.unwrap();
        let text = open_redb(folder.path()).await.unwrap_err().to_string();
        assert_eq!(text.matches("cannot open the store").count(), 1, "{text}");
        for part in ["tms.redb", "it is held by another process", "end the other tms-server"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        drop(first);
    }
}
