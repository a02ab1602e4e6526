//! The configuration: one struct per section, whose doc comments are the reference text. It is read once, at start,
//! from defaults, a file, the environment and flags, in this order; every fault comes in one answer.
//!
//! Nothing else reads the environment.

pub mod check;
pub mod engines;
pub mod fault;
pub mod history;
pub mod hudi;
pub mod layers;
pub mod log;
pub mod look;
pub mod print;
pub mod reference;
pub mod retry;
pub mod schema;
pub mod secrets;
pub mod server;
pub mod storage;
pub mod store;
pub mod tables;
pub mod validate;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::engines::EngineConfig;
use crate::config::fault::Faults;
use crate::config::secrets::Secrets;

/// The whole configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: server::ServerConfig,
    pub storage: storage::StorageConfig,
    pub store: store::StoreConfig,
    pub engines: BTreeMap<String, EngineConfig>,
    pub tables: tables::TablesConfig,
    pub retry: retry::RetryConfig,
    pub look: look::LookConfig,
    pub history: history::HistoryConfig,
    pub hudi: hudi::HudiConfig,
    pub log: log::LogConfig,
}

/// Name of the engine that is there when none is configured.
pub const DEFAULT_ENGINE: &str = "default";
/// File that is read when no other is named and it exists.
pub const DEFAULT_FILE: &str = "tms.toml";

/// Where the configuration comes from, besides the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that was named; it must exist.
    pub file: Option<PathBuf>,
    /// The file that is read when none was named and it exists.
    pub default_file: Option<PathBuf>,
    /// Environment variables; those that are not `TMS_<SECTION>__<KEY>` are ignored.
    pub environment: Vec<(String, String)>,
    /// `section.key` and value, as given on the command line.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// Returns the sources of this process: `./tms.toml` and its environment.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Self {
        Self {
            file,
            default_file: Some(PathBuf::from(DEFAULT_FILE)),
            // A variable that is not UTF-8 is none of ours: our names and values are text.
            environment: std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
            flags,
        }
    }

    /// Returns an environment variable, for defaults that follow one.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(k, v)| k == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }
}

/// Returns the environment of this process, for engines that pass named parts of it on.
pub(crate) fn process_environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

/// A configuration that was found free of faults, with the secrets of its files.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What stands in the files that it names.
    pub secrets: Secrets,
}

/// Reads and checks the configuration.
///
/// # Errors
/// All faults of all sources at once.
pub fn load(sources: &Sources) -> Result<Loaded, Faults> {
    let merged = layers::merge(sources)?;
    let (config, mut faults) = check::read(&merged, sources);
    let (secrets, of_secrets) = secrets::read(&config.server);
    let found = of_secrets.into_iter().chain(validate::validate(&config, &secrets));
    faults.add_new(found);
    if faults.is_empty() { Ok(Loaded { config, secrets }) } else { Err(faults) }
}
