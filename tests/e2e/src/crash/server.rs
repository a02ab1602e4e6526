//! The server of the crash rounds: started, killed, asked by the smallest HTTP client there is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::wait;

const ANSWER_MAX: Duration = Duration::from_secs(10);
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
    pub fn new(program: &Path, folder: &Path, lake: &Path, seed: u64) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
        let address = listener.local_addr().context("cannot read the port")?;
        let text = format!(
            r#"[server]
listen = "{address}"

[store]
kind = "redb"
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
            data = folder.join("data").display().to_string(),
            lake = lake.display().to_string(),
        );
        std::fs::write(folder.join("tms.toml"), text).context("cannot write the configuration")?;
        Ok(Self { program: program.to_owned(), folder: folder.to_owned(), address, child: None })
    }

    /// Folder of the engine's records.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        self.folder.join("data/simulated/sim")
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// It does not.
    pub fn start(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("server.log"));
        let log = log.context("cannot open the server's log")?;
        let child = Command::new(&self.program)
            .arg("--config")
            .arg(self.folder.join("tms.toml"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        self.child = Some(child);
        let address = self.address;
        let ask = || get(address, "/healthz").is_ok_and(|(status, _)| status == 200).then_some(());
        let story = || std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
        wait::until("the server answers", START_MAX, ask, story)
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

/// Asks by GET; returns status and body.
///
/// # Errors
/// No answer.
pub fn get(address: SocketAddr, target: &str) -> Result<(u16, String)> {
    exchange(address, &format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Posts JSON; returns status and body.
///
/// # Errors
/// No answer.
pub fn post(address: SocketAddr, target: &str, body: &str) -> Result<(u16, String)> {
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    exchange(address, &(head + body))
}

fn exchange(address: SocketAddr, request: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("cannot set a limit")?;
    stream.write_all(request.as_bytes()).context("cannot send")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("no answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).context("no status")?;
    // A server killed while it answers may leave a head without its body: that is no acknowledgement.
    let length = head
        .lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(k, _)| k.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, v)| v.trim().parse::<usize>().ok());
    ensure!(length.is_none_or(|n| n == body.len()), "half a body");
    Ok((status, body.to_owned()))
}
