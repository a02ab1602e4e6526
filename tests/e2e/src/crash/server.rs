//! The server of the crash rounds: started and killed.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::http::get;
use crate::wait;

const SIGKILL: i32 = 9;
const START_MAX: Duration = Duration::from_secs(60);

/// A server that dies often. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    folder: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
    child: Option<Child>,
}

impl Server {
    /// Writes the configuration; nothing runs yet.
    ///
    /// # Errors
    /// The folder is unusable.
    pub fn new(program: &Path, folder: &Path, lake: &Path, store: &str, seed: u64) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], crate::port::free_port()?));
        let text = format!(
            r#"[server]
listen = "{address}"

[store]
kind = "{store}"
path = {data:?}

[storage]
roots = [{lake:?}]

[tables]
concurrency = "exclusive"

[retry]
max_attempts = 1000
backoff_first = "200ms"
backoff_max = "1s"

[look]
scan_every = "2s"
gone_grace = "2s"
hint_grace = "60s"

[log]
level = "info"

[engines.sim]
kind = "simulated"
folder = {records:?}
run_time = "150ms"
start_delay = "20ms"
late_every = 6
late_by = "700ms"
lost_answer_every = 5
refuse_every = 9
fail_every = 7
duplicate_start_every = 4
seed = {seed}
max_running = 6
submit_timeout = "3s"
heartbeat_silence = "5s"
"#,
            records = folder.join("simulated").display().to_string(),
            data = folder.join("data").display().to_string(),
            lake = lake.display().to_string(),
        );
        std::fs::write(folder.join("tms.toml"), text).context("cannot write the configuration")?;
        Ok(Self { program: program.to_owned(), folder: folder.to_owned(), address, child: None })
    }

    /// Folder of the engine's records.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        self.folder.join("simulated")
    }

    /// Starts it and waits until it answers, or has killed itself at its fail point.
    ///
    /// # Errors
    /// It does not.
    pub fn start(&mut self, fail_point: Option<&str>) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("server.log"));
        let log = log.context("cannot open the server's log")?;
        let child = Command::new(&self.program)
            .arg("--config")
            .arg(self.folder.join("tms.toml"))
            .args(fail_point.iter().flat_map(|point| ["--fail-point", point]))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        self.child = Some(child);
        let address = self.address;
        let log = self.folder.join("server.log");
        let ask = || {
            let answers = || get(address, "/healthz").is_ok_and(|(status, _)| status == 200);
            (self.has_ended(fail_point) || answers()).then_some(())
        };
        let story = || std::fs::read_to_string(log).unwrap_or_default();
        wait::until("the server answers", START_MAX, ask, story)
    }

    /// Whether it killed itself at its fail point.
    pub fn has_ended(&mut self, fail_point: Option<&str>) -> bool {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        fail_point.is_some() && ended.is_some_and(|status| status.signal() == Some(SIGKILL))
    }

    /// Kills it, as a power-off of the process would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
