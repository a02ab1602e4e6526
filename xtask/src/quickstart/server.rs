//! The server of the quick start, and `tms` as the only way to talk to it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::components::Tools;
use crate::marks;
use crate::process::{Captured, Group, capture, check_interrupted, command, stdout_of};
use crate::quickstart::folder::RunFolder;
use crate::quickstart::settings::{Config, config_text, free_port};
use crate::quickstart::writer::last_lines;
use crate::repo::Repo;
use crate::time::{Stopwatch, pause};

/// A server that starts at all answers within a second.
const READY_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Somebody may take the port between our look and the server's start.
const PORT_TRIES: usize = 3;
const LOG_LINES_SHOWN: usize = 25;
/// The server promises to end within 10 s.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// What the server is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) job_jar: &'a Path,
    pub(crate) bundle: &'a Path,
    pub(crate) table_version: u8,
}

/// The running server; ended when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    group: Group,
    pub(crate) url: String,
    pub(crate) log: PathBuf,
    tms: PathBuf,
}

impl Server {
    /// Writes the configuration, starts the server and waits until it answers.
    pub(crate) fn start(repo: &Repo, folder: &RunFolder, parts: &Parts<'_>) -> Result<Self> {
        let mut last = None;
        for _ in 0..PORT_TRIES {
            match Self::start_once(repo, folder, parts) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
            check_interrupted()?;
        }
        last.map_or_else(|| bail!("the server was not started"), Err)
    }

    fn start_once(repo: &Repo, folder: &RunFolder, parts: &Parts<'_>) -> Result<Self> {
        let port = free_port()?;
        let text = config_text(&Config {
            port,
            data: &folder.data(),
            tables: &folder.tables(),
            spark_home: &parts.tools.spark_home,
            java_home: &parts.tools.java_home,
            job_jar: parts.job_jar,
            bundle: parts.bundle,
            table_version: parts.table_version,
        })?;
        let config = folder.config();
        fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let log = folder.logs().join("server.log");
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = file.try_clone().context("cannot share the log")?;
        let mut server = parts.tools.command(&repo.built("tms-server"));
        server.current_dir(&folder.root).arg("--config").arg(&config).stdout(file).stderr(errors);
        let group = Group::spawn("tms-server", marks::mark(&mut server))?;
        let mut server = Self { group, url: format!("http://127.0.0.1:{port}"), log, tms: repo.built("tms") };
        server.wait_ready()?;
        Ok(server)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let watch = Stopwatch::start();
        loop {
            check_interrupted()?;
            self.check_alive()?;
            let said = self.tms(&["node", "list", "-o", "json"])?;
            if said.is_ok() {
                return Ok(());
            }
            if watch.elapsed() > READY_LIMIT {
                bail!(
                    "tms-server did not answer within {} s ({})\n{}",
                    READY_LIMIT.as_secs(),
                    said.tail(2),
                    self.last_words()
                );
            }
            pause(LOOK_EVERY);
        }
    }

    /// Fails with the end of its log when the server is gone.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.group.poll()? {
            Some(status) => bail!("tms-server ended with {status}; its last words:\n{}", self.last_words()),
            None => Ok(()),
        }
    }

    fn last_words(&self) -> String {
        last_lines(&self.log, LOG_LINES_SHOWN)
    }

    /// Calls `tms` against this server.
    pub(crate) fn tms(&self, arguments: &[&str]) -> Result<Captured> {
        capture(command(&self.tms).args(arguments).env("TMS_URL", &self.url), CALL_LIMIT)
    }

    /// Calls `tms … -o json` and reads the answer.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let said = self.tms(&[arguments, &["-o", "json"]].concat())?;
        if !said.is_ok() {
            bail!("tms {} failed: {}", arguments.join(" "), said.tail(5));
        }
        serde_json::from_str(&said.stdout)
            .with_context(|| format!("tms {} wrote no JSON", arguments.join(" ")))
    }

    /// Where the writer sends its commit callbacks.
    pub(crate) fn callback_url(&self) -> String {
        format!("{}/v1/hoodie/callback", self.url)
    }

    pub(crate) fn stop(&mut self) {
        self.group.stop(STOP_GRACE);
    }
}

/// State of one instant on a table's own timeline, by `tms inspect`, which asks no server.
pub(crate) fn state_on_timeline(repo: &Repo, base_path: &Path, instant: &str) -> Result<Option<String>> {
    let mut inspect = command(repo.built("tms"));
    let text = stdout_of(inspect.arg("inspect").arg(base_path).args(["-o", "json"]), CALL_LIMIT)?;
    let said: Value = serde_json::from_str(&text).context("tms inspect wrote no JSON")?;
    Ok(state_in(&said, instant))
}

/// A completed entry wins: in layout 1 an instant's three files may be listed one by one.
fn state_in(inspected: &Value, instant: &str) -> Option<String> {
    let all = inspected["instants"].as_array()?;
    let mut states =
        all.iter().filter(|found| found["requested"] == instant).filter_map(|found| found["state"].as_str());
    let first = states.next()?;
    let is_completed = first == "completed" || states.any(|state| state == "completed");
    Some(if is_completed { "completed" } else { first }.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_is_that_of_the_instant_and_no_other() {
        let said = json!({"instants": [
            {"requested": "1", "action": "deltacommit", "state": "completed"},
            {"requested": "2", "action": "compaction", "state": "inflight"},
            {"requested": "3", "action": "compaction", "state": "requested"},
            {"requested": "3", "action": "commit", "state": "completed"},
        ]});
        assert_eq!(state_in(&said, "2").as_deref(), Some("inflight"));
        assert_eq!(state_in(&said, "3").as_deref(), Some("completed"));
        assert_eq!(state_in(&said, "4"), None);
        assert_eq!(state_in(&json!({}), "2"), None);
    }
}
