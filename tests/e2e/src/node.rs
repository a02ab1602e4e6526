//! A real server, asked through its API.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::http::{get, post};
use crate::lab::SHORT_JVM;
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
        let port = crate::port::free_port()?;
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
        wait::until("the server answers", START_MAX, || self.get("/readyz").ok(), || self.log_tail())?;
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

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Asks the API.
    ///
    /// # Errors
    /// No answer, or none that says 200.
    pub fn get(&self, target: &str) -> Result<Value> {
        let (status, body) = get(self.address(), target)?;
        ensure!(status == 200, "GET {target} answered {status}: {body}");
        serde_json::from_str(&body).context("the API answered no JSON")
    }

    /// Tells the API; returns the status.
    ///
    /// # Errors
    /// No answer.
    pub fn tell(&self, target: &str, body: &Value) -> Result<u16> {
        Ok(post(self.address(), target, &body.to_string())?.0)
    }

    /// Tells the API and makes sure that it agrees.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn tell_ok(&self, target: &str, body: &Value) -> Result<()> {
        let (status, text) = post(self.address(), target, &body.to_string())?;
        ensure!((200..300).contains(&status), "POST {target} answered {status}: {text}");
        Ok(())
    }

    /// Instances of an action, newest first.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn instances(&self, action: &str) -> Result<Vec<Value>> {
        let all = self.get(&format!("/api/v1/instances?action={action}"))?;
        Ok(all["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until the newest instance of an action is as wanted.
    ///
    /// # Errors
    /// It was not within the limit; the text holds the instance, its log and the server's.
    pub fn until(
        &self,
        action: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
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
        self.until(action, &format!("an attempt of the {action} is {state}"), limit, |i| {
            i["attempt"]["state"] == state
        })
    }

    /// Everything about the newest instance of an action, for messages.
    #[must_use]
    pub fn story(&self, action: &str) -> String {
        let Some(id) = self.instances(action).ok().and_then(|l| l.first().map(|i| i["id"].to_string()))
        else {
            return format!("no {action} instance\n--- server\n{}", self.log_tail());
        };
        let id = id.trim_matches('"');
        let show = |target: &str| self.get(target).unwrap_or_default();
        let detail = format!("{:#}", show(&format!("/api/v1/instances/{id}")));
        let log = show(&format!("/api/v1/instances/{id}/logs"));
        let log = log["text"].as_str().unwrap_or_default().to_owned();
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
         conf = {{ \"spark.driver.memory\" = \"1g\", \"spark.sql.shuffle.partitions\" = \"2\", \
         \"spark.driver.extraJavaOptions\" = \"{SHORT_JVM}\" }}\n\n[engines.default.bundles]",
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
