//! Checks what the schema cannot say: values that must fit together.

use std::net::SocketAddr;
use std::time::Duration;

use tms_core::decision::job_options::{ALLOWED_PREFIXES, check_option};
use tms_core::model::id::EngineName;
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::policy::FOREIGN_GRACE_MIN;

use crate::config::check::scalar_address;
use crate::config::engines::EngineConfig;
use crate::config::fault::{Fault, quoted};
use crate::config::hudi::HudiConfig;
use crate::config::secrets::Secrets;
use crate::config::server::ServerConfig;
use crate::config::storage::StorageConfig;
use crate::config::{Config, tables};

/// Most entries of a list or map of the configuration.
const ENTRIES_MAX: usize = 1_000;
/// Scheme of paths on this machine, the only ones that are read.
const LOCAL: &str = "file";
/// Most engines of one node.
const ENGINES_MAX: usize = 100;
/// Longest duration that is taken: everything beyond is a slip of the unit.
const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Shortest silence after which a driver may be suspected: drivers report every 10 s, and one that misses two reports on a
/// busy machine is not dead. A shorter one would suspect every driver between two reports.
pub const HEARTBEAT_SILENCE_MIN: Duration = Duration::from_secs(30);
/// Shortest limit of a run: a driver takes longer than most of it to start.
pub const RUN_TIMEOUT_MIN: Duration = Duration::from_secs(60);
/// Shortest limit of a submission: it starts a program and writes files durably.
pub const SUBMIT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Returns all that does not fit together.
#[must_use]
pub fn validate(config: &Config, secrets: &Secrets) -> Vec<Fault> {
    let mut faults = Vec::new();
    server(&config.server, &config.storage, secrets, &mut faults);
    storage(&config.storage, &mut faults);
    engines(config, &mut faults);
    durations(config, &mut faults);
    if config.tables.default_actions.contains(&tables::ActionName::LogCompaction) {
        let fault = Fault::new("tables.default_actions", "no launcher runs logcompaction yet");
        faults.push(fault.allowed("compaction, clustering, clean"));
    }
    hudi(&config.hudi, &mut faults);
    faults
}

/// An option that no job may get would park every instance, one by one, long after the start.
fn hudi(hudi: &HudiConfig, faults: &mut Vec<Fault>) {
    if hudi.options.len() > ENTRIES_MAX {
        faults.push(Fault::new("hudi.options", format!("has more than {ENTRIES_MAX} entries")));
    }
    for (key, value) in hudi.options.iter().take(ENTRIES_MAX) {
        if let Err(bad) = check_option(key, value) {
            let fault = Fault::new(format!("hudi.options.{}", bad.key), format!("is refused: {}", bad.why));
            faults.push(fault.allowed(format!("options below {}", ALLOWED_PREFIXES.join(", "))));
        }
    }
}

fn server(server: &ServerConfig, storage: &StorageConfig, secrets: &Secrets, faults: &mut Vec<Fault>) {
    let Some(listen) = scalar_address(&server.listen) else { return };
    if !listen.ip().is_loopback() {
        if server.token_file.is_none() {
            let problem =
                format!("must be set, since server.listen is {listen}: whoever reaches it could start jobs");
            faults.push(
                Fault::new("server.token_file", problem)
                    .allowed("a file with a token, or a loopback address in server.listen"),
            );
        }
        if storage.roots.is_empty() {
            let problem =
                format!("must not be empty, since server.listen is {listen}: writers could name any folder");
            faults.push(
                Fault::new("storage.roots", problem)
                    .allowed("the folders below which tables lie, such as [\"/lake\"]"),
            );
        }
    }
    if server.advertise_url.is_none() && listen.ip().is_unspecified() {
        let problem =
            format!("must be set, since server.listen is {listen}: jobs need an address to ask for leave at");
        faults.push(
            Fault::new("server.advertise_url", problem).allowed("an address such as http://tms.example:9091"),
        );
    }
    if let (Some(token), Some(key)) = (&secrets.token, &secrets.callback_key) {
        use secrecy::ExposeSecret;
        if token.expose_secret() == key.expose_secret() {
            let problem = "holds the token of the API: each writer could then do everything";
            faults.push(
                Fault::new("server.callback_key_file", problem)
                    .allowed("another secret than that of server.token_file"),
            );
        }
    }
    if server.hosts.len() > ENTRIES_MAX {
        faults.push(Fault::new("server.hosts", format!("has more than {ENTRIES_MAX} entries")));
    }
}

fn storage(storage: &StorageConfig, faults: &mut Vec<Fault>) {
    let rules = path_rules(storage);
    for (i, root) in storage.roots.iter().enumerate().take(ENTRIES_MAX) {
        let problem = match root_path(&rules, root) {
            None => "is no usable path",
            Some(path) if path.scheme() != LOCAL => "lies where this server reads no tables",
            Some(_) => continue,
        };
        let fault = Fault::new(format!("storage.roots[{i}]"), format!("{} {problem}", quoted(root)));
        faults.push(fault.allowed("an absolute local path, such as /lake or file:/lake"));
    }
    for (from, to) in storage.aliases.iter().take(ENTRIES_MAX) {
        if root_path(&PathRules::default(), to).is_none_or(|path| path.scheme() != LOCAL) {
            let problem = format!("{} is no local path", quoted(to));
            let fault = Fault::new(format!("storage.aliases.{from}"), problem);
            faults.push(fault.allowed("an absolute local path, such as /mnt/data or file:/mnt/data"));
        }
    }
    for (key, len) in [("storage.roots", storage.roots.len()), ("storage.aliases", storage.aliases.len())] {
        if len > ENTRIES_MAX {
            faults.push(Fault::new(key, format!("has more than {ENTRIES_MAX} entries")));
        }
    }
}

/// Returns what makes paths canonical.
#[must_use]
pub fn path_rules(storage: &StorageConfig) -> PathRules {
    let plain = |text: &str| text.trim_end_matches('/').to_owned();
    // Hosts know no case, folders do.
    let is_local = |text: &str| text.starts_with('/') || text.to_ascii_lowercase().starts_with("file:");
    let local = |text: &str| {
        let canonical = PathRules::default().canonical(text);
        canonical.map_or_else(|_| plain(text), |path| path.as_str().to_owned())
    };
    let alias = |(from, to): (&String, &String)| match is_local(from) {
        true => (local(from), local(to)),
        false => (plain(&from.to_ascii_lowercase()), plain(to)),
    };
    PathRules { default_fs: None, aliases: storage.aliases.iter().map(alias).collect() }
}

/// Returns the canonical form of a root.
#[must_use]
pub fn root_path(rules: &PathRules, root: &str) -> Option<BasePath> {
    rules.canonical(root).ok()
}

fn engines(config: &Config, faults: &mut Vec<Fault>) {
    if config.engines.len() > ENGINES_MAX {
        faults.push(Fault::new("engines", format!("has more than {ENGINES_MAX} entries")));
    }
    for name in config.engines.keys() {
        if name.parse::<EngineName>().is_err() {
            let fault = Fault::new(format!("engines.{name}"), "is no name of an engine");
            faults.push(fault.allowed("1 to 64 characters of a-z, A-Z, 0-9, dot, underscore and hyphen"));
        }
    }
    faults.extend(crate::assembly::engine_faults(config));
}

fn durations(config: &Config, faults: &mut Vec<Fault>) {
    let mut all = vec![
        ("tables.foreign_grace".to_owned(), config.tables.foreign_grace, false),
        ("retry.backoff_first".to_owned(), config.retry.backoff_first, false),
        ("retry.backoff_max".to_owned(), config.retry.backoff_max, false),
        ("look.scan_every".to_owned(), config.look.scan_every, true),
        ("look.heartbeat_timeout".to_owned(), config.look.heartbeat_timeout, true),
        ("look.gone_grace".to_owned(), config.look.gone_grace, false),
        ("look.hint_grace".to_owned(), config.look.hint_grace, false),
        ("history.keep".to_owned(), config.history.keep, true),
    ];
    for (name, engine) in &config.engines {
        let [submit, run, silence, settle] = match engine {
            EngineConfig::SparkSubmit(e) => {
                [e.submit_timeout, e.run_timeout, e.heartbeat_silence, e.settle.unwrap_or_default()]
            }
            EngineConfig::Simulated(e) => [e.submit_timeout, e.run_timeout, e.heartbeat_silence, e.settle],
        };
        all.push((format!("engines.{name}.submit_timeout"), submit, true));
        all.push((format!("engines.{name}.run_timeout"), run, true));
        all.push((format!("engines.{name}.heartbeat_silence"), silence, true));
        all.push((format!("engines.{name}.settle"), settle, false));
    }
    for (key, duration, is_positive) in all {
        if is_positive && duration.is_zero() {
            faults.push(
                Fault::new(&key, "must be longer than nothing").allowed("a time with its unit, such as 30s"),
            );
        }
        if duration > DURATION_MAX {
            faults.push(
                Fault::new(&key, "is longer than ten years").allowed("a time with its unit, such as 30days"),
            );
        }
    }
    drivers(config, faults);
    if config.tables.foreign_grace < FOREIGN_GRACE_MIN {
        let least = humantime::format_duration(FOREIGN_GRACE_MIN);
        let problem =
            format!("is shorter than {least}: a runner that is silent for less may still be at work");
        faults.push(Fault::new("tables.foreign_grace", problem).allowed(format!("{least} or more")));
    }
    if config.retry.backoff_first > config.retry.backoff_max {
        let fault = Fault::new("retry.backoff_first", "is longer than retry.backoff_max");
        faults.push(fault.allowed("at most the value of retry.backoff_max"));
    }
}

/// Times that drivers need. The simulated engine is free: its drivers follow its own pace.
fn drivers(config: &Config, faults: &mut Vec<Fault>) {
    for (name, engine) in &config.engines {
        let EngineConfig::SparkSubmit(spark) = engine else { continue };
        for (key, value, least, why) in [
            ("submit_timeout", spark.submit_timeout, SUBMIT_TIMEOUT_MIN, "no submission answers sooner"),
            ("run_timeout", spark.run_timeout, RUN_TIMEOUT_MIN, "no job of Spark ends sooner"),
            (
                "heartbeat_silence",
                spark.heartbeat_silence,
                HEARTBEAT_SILENCE_MIN,
                "drivers report every 10 s, and a busy one may miss a report",
            ),
        ] {
            // Nothing at all was told before.
            if value < least && !value.is_zero() {
                let least = humantime::format_duration(least);
                let fault =
                    Fault::new(format!("engines.{name}.{key}"), format!("is shorter than {least}: {why}"));
                faults.push(fault.allowed(format!("{least} or more")));
            }
        }
    }
}

/// Returns the address to listen on, once the configuration was checked.
#[must_use]
pub fn listen_address(server: &ServerConfig) -> Option<SocketAddr> {
    scalar_address(&server.listen)
}
