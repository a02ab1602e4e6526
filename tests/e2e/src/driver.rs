//! The processes of a job, found as an administrator would: by the tag in their command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// The JVM of a driver.
#[derive(Clone, Debug)]
pub struct Driver {
    /// Its process id.
    pub pid: u32,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Driver {
    /// Waits for the JVM of an attempt.
    ///
    /// # Errors
    /// None came within the limit.
    pub fn of(tag: &str, limit: Duration) -> Result<Self> {
        wait::until_at_once(&format!("a driver with the tag {tag}"), limit, || find(tag))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("no such process id")?;
        kill_process(pid, signal).context("the driver is gone")
    }

    /// Tells whether it lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    /// Starts the same job again by hand: same arguments, same environment, token included.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run_again(&self, log: &Path) -> Result<Twin> {
        let (program, arguments) = self.arguments.split_first().context("the driver has no arguments")?;
        let output = std::fs::File::create(log).context("cannot create the twin's log")?;
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .stdin(std::process::Stdio::null())
            .stdout(output.try_clone().context("cannot share the twin's log")?)
            .stderr(output)
            .spawn()
            .context("cannot start the twin")?;
        Ok(Twin { child })
    }
}

/// A second driver of one attempt; ended when dropped.
#[derive(Debug)]
pub struct Twin {
    child: std::process::Child,
}

impl Twin {
    /// Waits for its end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for the twin")
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn split(bytes: &[u8]) -> Vec<OsString> {
    bytes
        .split(|b| *b == 0)
        .filter(|part| !part.is_empty())
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}

fn find(tag: &str) -> Option<Driver> {
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let arguments = split(&line);
        let is_java = arguments.first().is_some_and(|a| a.to_string_lossy().ends_with("/java"));
        let is_submit = arguments.iter().any(|a| a == "org.apache.spark.deploy.SparkSubmit");
        // Spark's scripts first run a short JVM that only prints the command of the driver.
        let is_launcher = arguments.iter().any(|a| a == "org.apache.spark.launcher.Main");
        if !is_java || !is_submit || is_launcher || !String::from_utf8_lossy(&line).contains(tag) {
            continue;
        }
        let variables = std::fs::read(entry.path().join("environ")).ok()?;
        let environment = split(&variables)
            .into_iter()
            .filter_map(|v| {
                let text = v.to_string_lossy().into_owned();
                text.split_once('=').map(|(k, v)| (OsString::from(k), OsString::from(v)))
            })
            .collect();
        return Some(Driver { pid, arguments, environment });
    }
    None
}
