//! The server under test, and its peer: release programs as processes of their own.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::machine::{Guarded, now, wait_for};
use crate::stores::Kind;

const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How often a starting server is asked; bounds the error of the time to its readiness.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Guarded,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// From its start to its first answer, in seconds.
    pub(crate) ready_after: f64,
}

/// Options of a server's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// More lines of the configuration.
    pub(crate) more: String,
}

impl Server {
    /// Starts `program` on a store in `folder`, with a simulated engine, and waits until it answers.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn start(program: &Path, folder: &Path, kind: Kind, settings: &Settings) -> Result<Self> {
        ensure!(
            program.is_file(),
            "there is no server at {}; call this by `cargo xtask bench`",
            program.display()
        );
        let address = address_in(folder)?;
        let mut text = String::new();
        write!(
            text,
            "[server]\nlisten = \"{address}\"\n\n[store]\nkind = \"{}\"\npath = {:?}\n\n\
             [log]\nlevel = \"error\"\n\n[tables]\nconcurrency = \"exclusive\"\n\n\
             [engines.sim]\nkind = \"simulated\"\nfolder = {:?}\nmax_running = 2\n\n{}",
            kind.word(),
            folder.join("data").display().to_string(),
            folder.join("simulated").display().to_string(),
            settings.more,
        )
        .context("cannot write the configuration")?;
        let config = folder.join("tms.toml");
        std::fs::write(&config, text).context("cannot write the configuration")?;
        let log = std::fs::File::create(folder.join("server.log")).context("cannot make the server's log")?;
        let started = now();
        let child = Command::new(program)
            .arg("--config")
            .arg(&config)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let child = Guarded(child);
        let log = folder.join("server.log");
        wait_for("the server answers", START_MAX, ASK_EVERY, || get(address, "/healthz").is_ok())
            .with_context(|| std::fs::read_to_string(log).unwrap_or_default())?;
        Ok(Self { child, address, ready_after: (now() - started).as_secs_f64() })
    }

    /// Starts the bare axum echo of this program.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn echo() -> Result<Self> {
        let program: PathBuf = std::env::current_exe().context("this program has no path")?;
        let started = now();
        let mut child = Command::new(program)
            .arg("echo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the echo")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("the echo has no output")?;
        let child = Guarded(child);
        BufReader::new(stdout).read_line(&mut line).context("the echo does not say where it listens")?;
        let address = line.trim().parse().context("the echo names no address")?;
        Ok(Self { child, address, ready_after: (now() - started).as_secs_f64() })
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = self.pid().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status().context("cannot run kill")?;
        ensure!(asked.success(), "cannot stop the server {pid}");
        let child = &mut self.child.0;
        wait_for("the server stops", STOP_MAX, ASK_EVERY, || matches!(child.try_wait(), Ok(Some(_))))
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Returns the sum of a metric over its labels, such as `tms_store_batch_size_sum`.
    ///
    /// # Errors
    /// The metrics cannot be read. One that was never recorded is 0.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let text = get(self.address, "/metrics")?;
        let of_metric = text.lines().filter_map(|line| line.strip_prefix(name));
        let values = of_metric.filter(|rest| rest.starts_with(['{', ' ']));
        Ok(values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

/// A server that is started again keeps its address: jobs of its former life speak to it.
fn address_in(folder: &Path) -> Result<SocketAddr> {
    let file = folder.join("address");
    if let Ok(text) = std::fs::read_to_string(&file) {
        return text.parse().with_context(|| format!("{} holds no address", file.display()));
    }
    let address = free_address()?;
    std::fs::write(&file, address.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(address)
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    listener.local_addr().context("no address")
}

/// Returns the body of an answer with 200.
///
/// # Errors
/// There is none.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("cannot set a limit")?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .context("cannot ask")?;
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).context("no answer")?;
    let (head, body) = text.split_once("\r\n\r\n").context("no whole answer")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}
