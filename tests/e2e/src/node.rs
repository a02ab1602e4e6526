//! A real server and its command line.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tools::Tools;
use crate::wait;

/// Longest start of a server.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest job of a test, with a machine that does other things too.
pub const JOB_MAX: Duration = Duration::from_secs(420);

/// What a test sets beside the usual.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Bundles by table version.
    pub bundles: Vec<(u32, PathBuf)>,
    /// `tables.concurrency`.
    pub concurrency: Option<&'static str>,
    /// `tables.default_actions`.
    pub actions: Vec<&'static str>,
    /// `tables.clean_after_commits`.
    pub clean_after_commits: u32,
    /// Further lines of `[hudi.options]`.
    pub options: Vec<(String, String)>,
}

/// A server with its folder. Killed when dropped; its jobs are ended by the test.
#[derive(Debug)]
pub struct Node {
    tools: Tools,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Node {
    /// Writes the configuration and starts a server whose data lie in `folder`.
    ///
    /// # Errors
    /// It did not answer in time.
    pub fn start(tools: &Tools, folder: &Path, roots: &Path, settings: &Settings) -> Result<Self> {
        std::fs::create_dir_all(folder).context("cannot create the server's folder")?;
        let port = free_port()?;
        std::fs::write(folder.join("tms.toml"), configuration(tools, folder, roots, port, settings))
            .context("cannot write the configuration")?;
        let mut node = Self { tools: tools.clone(), folder: folder.to_owned(), port, child: None };
        node.restart()?;
        Ok(node)
    }

    /// Address of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts the server again on the same data.
    ///
    /// # Errors
    /// It did not answer in time.
    pub fn restart(&mut self) -> Result<()> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("server.log"))
            .context("cannot open the server's log")?;
        let child = Command::new(&self.tools.server)
            .arg("--config")
            .arg(self.folder.join("tms.toml"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        self.child = Some(child);
        wait::until("the server answers", START_MAX, || self.json(&["node", "list"]).ok(), || self.log_tail())?;
        Ok(())
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// The end of the server's log, for messages.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Runs the command line.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn tms(&self, arguments: &[&str]) -> Result<Output> {
        Command::new(&self.tools.tms)
            .args(arguments)
            .env("TMS_URL", self.url())
            .stdin(Stdio::null())
            .output()
            .context("cannot run tms")
    }

    /// Runs the command line and makes sure that it succeeds.
    ///
    /// # Errors
    /// It did not.
    pub fn tms_ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.tms(arguments)?;
        if !output.status.success() {
            bail!("tms {arguments:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the command line for a program.
    ///
    /// # Errors
    /// It did not succeed or printed no JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut arguments = arguments.to_vec();
        arguments.extend(["-o", "json"]);
        serde_json::from_str(&self.tms_ok(&arguments)?).context("tms printed no JSON")
    }

    /// Instances of an action, newest first.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn instances(&self, action: &str) -> Result<Vec<Value>> {
        let all = self.json(&["instance", "list", "--action", action])?;
        Ok(all.as_array().cloned().unwrap_or_default())
    }

    /// Waits until the newest instance of an action is as wanted.
    ///
    /// # Errors
    /// It was not within the limit; the text holds the instance, its log and the server's.
    pub fn until(&self, action: &str, what: &str, limit: Duration, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let look = || self.instances(action).ok()?.into_iter().next().filter(|i| wanted(i));
        wait::until(what, limit, look, || self.story(action))
    }

    /// Waits until the newest instance of an action is in a state.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub fn until_state(&self, action: &str, state: &str, limit: Duration) -> Result<Value> {
        self.until(action, &format!("the {action} is {state}"), limit, |i| i["state"] == state)
    }

    /// Waits until an attempt of the newest instance is in a state.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub fn until_attempt(&self, action: &str, state: &str, limit: Duration) -> Result<Value> {
        self.until(action, &format!("an attempt of the {action} is {state}"), limit, |i| i["attempt"]["state"] == state)
    }

    /// Everything about the newest instance of an action, for messages.
    #[must_use]
    pub fn story(&self, action: &str) -> String {
        let Some(id) = self.instances(action).ok().and_then(|l| l.first().map(|i| i["id"].to_string())) else {
            return format!("no {action} instance\n--- server\n{}", self.log_tail());
        };
        let id = id.trim_matches('"');
        let detail = self.tms_ok(&["instance", "show", id]).unwrap_or_default();
        let log = self.tms_ok(&["instance", "logs", id]).unwrap_or_default();
        let log: Vec<&str> = log.lines().collect();
        let log = log[log.len().saturating_sub(60)..].join("\n");
        format!("{detail}\n--- job\n{log}\n--- server\n{}", self.log_tail())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    Ok(listener.local_addr().context("cannot read the port")?.port())
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn configuration(tools: &Tools, folder: &Path, roots: &Path, port: u16, settings: &Settings) -> String {
    let path = |p: &Path| quoted(&p.display().to_string());
    let mut text = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n\n[store]\nkind = \"redb\"\npath = {}\n\n[storage]\nroots = [{}]\n\n",
        path(&folder.join("data")),
        path(roots),
    );
    text.push_str("[retry]\nmax_attempts = 5\nbackoff_first = \"3s\"\nbackoff_max = \"30s\"\n\n");
    text.push_str("[look]\nscan_every = \"5s\"\ngone_grace = \"3s\"\n\n[log]\nlevel = \"info,tms_core=debug\"\n\n[tables]\n");
    if let Some(concurrency) = settings.concurrency {
        writeln!(text, "concurrency = {}", quoted(concurrency)).ok();
    }
    if !settings.actions.is_empty() {
        let actions: Vec<String> = settings.actions.iter().map(|a| quoted(a)).collect();
        writeln!(text, "default_actions = [{}]", actions.join(", ")).ok();
    }
    writeln!(text, "clean_after_commits = {}\n", settings.clean_after_commits).ok();
    writeln!(
        text,
        "[engines.default]\nkind = \"spark-submit\"\nmaster = \"local[2]\"\nspark_home = {}\njava_home = {}\njob_jar = {}\n\
         conf = {{ \"spark.driver.memory\" = \"1g\", \"spark.sql.shuffle.partitions\" = \"2\" }}\n\n[engines.default.bundles]",
        path(&tools.spark_home),
        path(&tools.java_home),
        path(&tools.job_jar),
    )
    .ok();
    for (version, bundle) in &settings.bundles {
        writeln!(text, "{version} = {}", path(bundle)).ok();
    }
    text.push_str("\n[hudi.options]\n");
    for (key, value) in &settings.options {
        writeln!(text, "{} = {}", quoted(key), quoted(value)).ok();
    }
    text
}
