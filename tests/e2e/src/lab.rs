//! A stock Hudi writer and reader in one long-lived Spark session.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::tools::Tools;

/// Rows of one write: ids from first to last, their `ts`, and the partition (none spreads over `a` and `b`).
pub type Rows<'a> = (u32, u32, u32, Option<&'a str>);

/// Options of every JVM of the tests. They live for seconds: the second compiler would not pay for itself.
pub const SHORT_JVM: &str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";

/// What a reader sees of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Rows.
    pub count: u64,
    /// Distinct keys.
    pub distinct: u64,
    /// Sum of `ts`.
    pub sum_ts: u64,
    /// Smallest `ts`.
    pub min_ts: u64,
    /// Largest `ts`.
    pub max_ts: u64,
    /// Sum of a hash of every row.
    pub checksum: String,
}

/// The session. Ended when dropped.
#[derive(Debug)]
pub struct Lab {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Lab {
    /// Starts a session with the stock bundle of a release; its output goes to `log`.
    ///
    /// # Errors
    /// Spark did not start.
    pub fn start(tools: &Tools, release: &str, log: &Path) -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/lab.py");
        let stderr = std::fs::File::create(log).context("cannot create the lab's log")?;
        let mut child = Command::new(&tools.python)
            .arg(script)
            .arg(tools.bundle(release))
            .env("SPARK_HOME", &tools.spark_home)
            .env("JAVA_HOME", &tools.java_home)
            .env("PYSPARK_PYTHON", &tools.python)
            .env(
                "PYSPARK_SUBMIT_ARGS",
                format!("--driver-memory 1g --driver-java-options '{SHORT_JVM}' pyspark-shell"),
            )
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .context("cannot start the lab's Python")?;
        let input = child.stdin.take().context("the lab has no input")?;
        let output = BufReader::new(child.stdout.take().context("the lab has no output")?);
        let mut lab = Self { child, input, output };
        lab.answer().with_context(|| format!("the lab did not start; its log is {}", log.display()))?;
        Ok(lab)
    }

    /// The process of the lab's Python; the JVM is its child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one command without waiting; [`Self::answer`] takes its answer.
    ///
    /// # Errors
    /// The session has ended.
    pub fn send(&mut self, command: &Value) -> Result<()> {
        writeln!(self.input, "{command}").context("the lab has ended")?;
        self.input.flush().context("the lab has ended")
    }

    /// Waits for one answer.
    ///
    /// # Errors
    /// The session has ended, or the command failed.
    pub fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).context("cannot read from the lab")? == 0 {
                bail!("the lab has ended");
            }
            let Some(text) = line.strip_prefix("LAB ") else { continue };
            let answer: Value = serde_json::from_str(text).context("the lab answered no JSON")?;
            if answer["ok"] != json!(true) {
                bail!("the lab's command failed: {}", answer["error"].as_str().unwrap_or_default());
            }
            return Ok(answer);
        }
    }

    fn call(&mut self, command: &Value) -> Result<Value> {
        self.send(command)?;
        self.answer()
    }

    /// Writes rows as a stock writer.
    ///
    /// # Errors
    /// The writer's exception.
    pub fn write(&mut self, path: &Path, options: &[(String, String)], rows: &[Rows<'_>]) -> Result<()> {
        self.call(&write_command(path, options, rows)).map(|_| ())
    }

    /// Reads a table with or without its metadata table.
    ///
    /// # Errors
    /// The reader's exception.
    pub fn read(&mut self, path: &Path, with_metadata_table: bool) -> Result<Contents> {
        let answer = self.call(&json!({"op": "read", "path": uri(path), "mdt": with_metadata_table}))?;
        let number = |key: &str| answer[key].as_u64().with_context(|| format!("the reader gave no {key}"));
        Ok(Contents {
            count: number("count")?,
            distinct: number("distinct")?,
            sum_ts: number("sum_ts")?,
            min_ts: number("min_ts")?,
            max_ts: number("max_ts")?,
            checksum: answer["checksum"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Reads a table in both ways and makes sure that they agree.
    ///
    /// # Errors
    /// They differ, or the reader's exception.
    pub fn read_both(&mut self, path: &Path) -> Result<Contents> {
        let with = self.read(path, true)?;
        let without = self.read(path, false)?;
        if with != without {
            bail!("the reads with and without the metadata table differ: {with:?} and {without:?}");
        }
        Ok(with)
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// Its exception.
    pub fn sql(&mut self, text: &str) -> Result<Value> {
        Ok(self.call(&json!({"op": "sql", "text": text}))?["rows"].clone())
    }
}

/// The command of one write, for a writer that is not waited for.
#[must_use]
pub fn write_command(path: &Path, options: &[(String, String)], rows: &[Rows<'_>]) -> Value {
    let options: serde_json::Map<String, Value> =
        options.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    let sets: Vec<Value> =
        rows.iter().map(|(first, last, ts, part)| json!([first, last, ts, part])).collect();
    json!({"op": "write", "path": uri(path), "name": "t", "options": options, "sets": sets})
}

/// The spelling of a local path that a user gives to Spark.
#[must_use]
pub fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

impl Drop for Lab {
    fn drop(&mut self) {
        if writeln!(self.input, "{}", json!({"op": "exit"})).is_err() {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}
