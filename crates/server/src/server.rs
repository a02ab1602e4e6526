//! One server: the parts of an assembly, their tasks, and how they end.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tms_core::alert::{AlertSink, LogAlerts};
use tms_core::clock::Clock;
use tms_core::election::SingleNode;
use tms_core::manager::{ManagerParts, Managers};
use tms_core::model::id::NodeName;
use tms_core::service::leader::{LeaderParts, Policies};
use tms_core::service::node::{NodeParts, run_node};
use tms_core::store::coalescer::{Coalescer, CoalescerLimits, CoalescerTask};
use tms_core::store::{NodeRow, Store};
use tms_core::wake::Wakes;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::health::Probes;
use crate::api::job_gate::JobGate;
use crate::api::state::{App, Seldom, Shared};
use crate::api::tables::ADVICE_AT_ONCE_MAX;
use crate::assembly::{self, Backends};
use crate::config::validate::{listen_address, path_rules, root_path};
use crate::config::{Config, Loaded};
use crate::engine_watch::EngineWatch;
use crate::guard::{Guard, authority_of};
use crate::{api, http, metrics};

/// Longest wait of a writer for room among the hand-overs that are being stored. A writer's own limit is 30 s or more.
const WRITER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time for the leader's Services to end at shutdown.
const NODE_TIME_MAX: Duration = Duration::from_secs(3);
/// Bits of a file's mode that let others than its owner in.
const MODE_OF_OTHERS: u32 = 0o077;
/// Time for hand-overs that were taken to become durable at shutdown.
const WRITES_TIME_MAX: Duration = Duration::from_secs(2);

/// A server that is bound to its address but does not serve yet.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    app: App,
    engines: EngineWatch,
    node: NodeParts,
    coalescer: CoalescerTask,
    /// For its figures.
    store: Arc<dyn Store>,
}

/// Why a server could not start or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {reason}; is another tms-server running, or is server.listen wrong?"
    )]
    Listen {
        /// Address.
        address: String,
        /// Why. No source: the text has it, and a chain of causes would say it again.
        reason: std::io::Error,
    },
    /// The backends did not start.
    #[error(transparent)]
    Assembly(#[from] assembly::AssemblyError),
    /// The metrics cannot be recorded.
    #[error("cannot record metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// A task that must run as long as the server ended.
    #[error("the task `{0}` ended by itself; the log says why")]
    TaskEnded(&'static str),
}

impl Server {
    /// Binds the address and opens the backends of the configuration.
    ///
    /// # Errors
    /// When the address is taken or a backend does not start.
    pub async fn assemble(loaded: &Loaded, clock: Arc<dyn Clock>) -> Result<Self, ServerError> {
        // The address first: a second server on one machine should say so before it waits for the store's lock.
        let listener = bind(&loaded.config).await?;
        for (key, file) in secrets_for_others(&loaded.config) {
            tracing::warn!(
                key,
                file = %file.display(),
                "A file with a secret can be read by other users of this machine: `chmod 600` it if it is no mount."
            );
        }
        let backends = assembly::backends(&loaded.config, &clock).await?;
        Self::with_backends(loaded, listener, backends, clock)
    }

    /// Makes a server of given backends.
    ///
    /// # Errors
    /// When metrics cannot be recorded.
    pub fn with_backends(
        loaded: &Loaded,
        listener: TcpListener,
        backends: Backends,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServerError> {
        let config = &loaded.config;
        let failed = |reason| ServerError::Listen { address: config.server.listen.clone(), reason };
        let address = listener.local_addr().map_err(failed)?;
        let url = advertise_url(config, address);
        let rules = path_rules(&config.storage);
        let defaults = config.tables.defaults(&config.hudi.options);
        let wakes = Wakes::default();
        let (coalescer, coalescer_task) =
            Coalescer::new(Arc::clone(&backends.store) as _, CoalescerLimits::default());
        let parts = ManagerParts {
            store: Arc::clone(&backends.store),
            coalescer,
            engines: backends.engines.clone(),
            timelines: Arc::clone(&backends.timelines),
            clock: Arc::clone(&clock),
            wakes: wakes.clone(),
            roots: config.storage.roots.iter().filter_map(|root| root_path(&rules, root)).collect(),
            rules,
            defaults: defaults.clone(),
            writer_wait: WRITER_WAIT_MAX,
        };
        let policies = Policies {
            defaults,
            retry: config.retry.policy(),
            look: config.look.policy(),
            history: config.history.policy(),
            job_url: url.clone(),
            restore_quiet: config.store.restore_quiet,
        };
        let alerts: Arc<dyn AlertSink> = Arc::new(LogAlerts::default());
        let engines = EngineWatch::new(backends.engines.clone(), Arc::clone(&alerts));
        let store = Arc::clone(&backends.store);
        let leader = LeaderParts {
            store: backends.store,
            engines: backends.engines,
            timelines: backends.timelines,
            clock: Arc::clone(&clock),
            alerts,
            wakes,
            policies,
        };
        let node = NodeParts {
            leader,
            election: Arc::new(SingleNode::default()),
            node: node_row(config, address, &url, &*clock),
            leading: Arc::default(),
        };
        let app = App::new(Shared {
            managers: Managers::new(&parts),
            guard: guard(loaded, address, &url),
            clock,
            metrics: metrics::install()?,
            probes: Probes::default(),
            refused: Seldom::default(),
            callback_taken: OnceLock::new(),
            jobs: JobGate::default(),
            advice: Arc::new(Semaphore::new(ADVICE_AT_ONCE_MAX)),
        });
        Ok(Self { address, listener, app, engines, node, coalescer: coalescer_task, store })
    }

    /// Returns the address that it listens on, with the port that a 0 became.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`; then stops taking, finishes writes and leaves jobs running. Takes less than 10 s to end.
    ///
    /// # Errors
    /// When a part of it ended by itself.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServerError> {
        let stop_http = CancellationToken::new();
        let stop_node = CancellationToken::new();
        let stop_writes = CancellationToken::new();
        tracing::info!(address = %self.address, node = %self.node.node.name, "Serving.");
        let (upkeep, store) = (self.app.metrics.clone(), self.store);
        let mut http = task("http", http::serve(self.listener, api::router(self.app), stop_http.clone()));
        let mut node = task("node", run_node(self.node, stop_node.clone()));
        let mut writes = task("coalescer", self.coalescer.run(stop_writes.clone()));
        let mut engines = task("engines", self.engines.run());
        let mut metrics = task("metrics", async move {
            loop {
                tokio::time::sleep(metrics::UPKEEP_EVERY).await;
                store.record_metrics().await;
                upkeep.run_upkeep();
            }
        });
        let failed = tokio::select! {
            () = shutdown.cancelled() => None,
            name = ended(&mut http) => Some(name),
            name = ended(&mut node) => Some(name),
            name = ended(&mut writes) => Some(name),
            name = ended(&mut engines) => Some(name),
            name = ended(&mut metrics) => Some(name),
        };
        tracing::info!("Stopping: no new requests, writes are finished, jobs go on.");
        stop_http.cancel();
        finish("http", &mut http, http::DRAIN_TIME_MAX + Duration::from_millis(500)).await;
        stop_node.cancel();
        finish("node", &mut node, NODE_TIME_MAX).await;
        stop_writes.cancel();
        finish("coalescer", &mut writes, WRITES_TIME_MAX).await;
        engines.shutdown().await;
        metrics.shutdown().await;
        tracing::info!("Stopped.");
        match failed {
            Some(name) => Err(ServerError::TaskEnded(name)),
            None => Ok(()),
        }
    }
}

fn task(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> JoinSet<&'static str> {
    let mut set = JoinSet::new();
    set.spawn(async move {
        work.await;
        name
    });
    set
}

/// Waits until a task ends by itself or panics.
async fn ended(task: &mut JoinSet<&'static str>) -> &'static str {
    match task.join_next().await {
        Some(Ok(name)) => name,
        Some(Err(error)) => {
            tracing::error!(%error, "A task of the server failed.");
            "unknown"
        }
        None => "unknown",
    }
}

async fn finish(name: &'static str, task: &mut JoinSet<&'static str>, most: Duration) {
    if timeout(most, async { while task.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(task = name, "A task did not end in time and was cut off.");
        task.shutdown().await;
    }
}

/// Times that a taken address is tried again. A child of a server that was killed while it started one holds the former
/// socket until it becomes its own program: moments, more on a busy machine (seen in crash rounds).
const LISTEN_TRIES: u32 = 60;
const LISTEN_AGAIN: Duration = Duration::from_millis(50);

/// Binds the configured address.
///
/// # Errors
/// When it stays taken or is not of this machine.
pub async fn bind(config: &Config) -> Result<TcpListener, ServerError> {
    let failed = |reason| ServerError::Listen { address: config.server.listen.clone(), reason };
    let address = listen_address(&config.server)
        .ok_or_else(|| failed(std::io::Error::from(std::io::ErrorKind::AddrNotAvailable)))?;
    for _ in 0..LISTEN_TRIES {
        match TcpListener::bind(address).await {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => tokio::time::sleep(LISTEN_AGAIN).await,
            other => return other.map_err(failed),
        }
    }
    TcpListener::bind(address).await.map_err(failed)
}

fn advertise_url(config: &Config, address: SocketAddr) -> String {
    let given = config.server.advertise_url.as_deref();
    given.map_or_else(|| format!("http://{address}"), |url| url.trim_end_matches('/').to_owned())
}

/// Returns the files of secrets that others than their owner may read. They are used all the same: what Kubernetes
/// mounts is readable for all in its container.
fn secrets_for_others(config: &Config) -> Vec<(&'static str, PathBuf)> {
    let files = [
        ("server.token_file", &config.server.token_file),
        ("server.callback_key_file", &config.server.callback_key_file),
    ];
    let is_open = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & MODE_OF_OTHERS != 0)
    };
    let named = files.into_iter().filter_map(|(key, file)| Some((key, file.clone()?)));
    named.filter(|(_, file)| is_open(file)).collect()
}

fn guard(loaded: &Loaded, address: SocketAddr, url: &str) -> Guard {
    let authority = authority_of(url).unwrap_or_default().to_ascii_lowercase();
    let mut hosts: Vec<String> = loaded.config.server.hosts.iter().map(|h| h.to_ascii_lowercase()).collect();
    if let Some(host) = authority.rsplit_once(':').map_or(Some(authority.as_str()), |(host, _)| Some(host)) {
        hosts.push(host.trim_matches(['[', ']']).to_owned());
    }
    Guard {
        hosts: address.ip().is_loopback().then(|| hosts.into_iter().collect()),
        origins: [authority].into(),
        token: loaded.secrets.token.clone(),
        callback_key: loaded.secrets.callback_key.clone(),
    }
}

fn node_row(config: &Config, address: SocketAddr, url: &str, clock: &dyn Clock) -> NodeRow {
    let now = clock.now();
    let name = config.server.node_name.as_deref().and_then(|name| name.parse::<NodeName>().ok());
    NodeRow {
        name: name.unwrap_or_else(|| default_name(address)),
        start_id: hex::encode(rand::random::<[u8; 8]>()),
        url: Some(url.to_owned()),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: now,
        seen_at: now,
    }
}

/// Host name and port, with what a name cannot hold left out.
fn default_name(address: SocketAddr) -> NodeName {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_".contains(*c)).take(50).collect();
    let host = if plain.is_empty() { "localhost" } else { &plain };
    format!("{host}-{}", address.port()).parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_secrets_that_others_may_read_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (token, key) = (folder.path().join("token"), folder.path().join("key"));
        for file in [&token, &key] {
            std::fs::write(file, "a-secret").unwrap();
        }
        let mut config = Config::default();
        assert!(secrets_for_others(&config).is_empty());
        config.server.token_file = Some(token.clone());
        config.server.callback_key_file = Some(key.clone());
        let set = |file: &PathBuf, mode| {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (mode, is_found) in [(0o600, false), (0o400, false), (0o640, true), (0o644, true), (0o604, true)]
        {
            set(&token, mode);
            set(&key, 0o600);
            let found: Vec<_> = secrets_for_others(&config).into_iter().map(|(key, _)| key).collect();
            assert_eq!(found == ["server.token_file"], is_found, "{mode:o}: {found:?}");
            assert_eq!(found.is_empty(), !is_found);
        }
        set(&key, 0o644);
        assert_eq!(secrets_for_others(&config).len(), 2);
    }
}
