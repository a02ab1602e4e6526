//! The stock writer of the quick start: starts it, reads what it says, and ends it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::components::Tools;
use crate::marks;
use crate::process::{Group, Lines, check_interrupted, lines_of, shell_word};
use crate::quickstart::settings::LOCK_EXPIRE_MINUTES;
use crate::time::Stopwatch;

const SCRIPT: &str = "xtask/assets/quickstart_writer.py";
const SCRIPT_NAME: &str = "quickstart_writer.py";
/// Longest time between two lines of the writer; a write takes a few seconds, the first one up to 30 on a
/// busy machine.
const EVENT_LIMIT: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STOP_GRACE: Duration = Duration::from_secs(20);
const LOG_LINES_SHOWN: usize = 25;

/// What a table holds: a number of rows, and a checksum that does not depend on their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) n_rows: u64,
    pub(crate) checksum: u64,
}

/// One reading of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) with_metadata_table: Rows,
    pub(crate) without_metadata_table: Rows,
}

/// One line of the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started {
        spark: String,
    },
    Commit {
        number: u64,
        n_rows: u64,
        seconds: String,
    },
    /// A compaction stands on the timeline; `written` is what the writer wrote, counted without Spark.
    Planned {
        instant: String,
        written: Rows,
    },
    Read(Reading),
}

impl Event {
    /// `None` for a line that is none of the writer's own.
    fn parse(line: &str) -> Option<Self> {
        let said: Value = serde_json::from_str(line).ok()?;
        let rows = |said: &Value| {
            Some(Rows { n_rows: said["rows"].as_u64()?, checksum: said["checksum"].as_u64()? })
        };
        match said["event"].as_str()? {
            "started" => Some(Self::Started { spark: said["spark"].as_str()?.to_owned() }),
            "commit" => Some(Self::Commit {
                number: said["number"].as_u64()?,
                n_rows: said["rows"].as_u64()?,
                seconds: said["seconds"].to_string(),
            }),
            "planned" => {
                Some(Self::Planned { instant: said["instant"].as_str()?.to_owned(), written: rows(&said)? })
            }
            "read" => Some(Self::Read(Reading {
                with_metadata_table: rows(&said["with_metadata_table"])?,
                without_metadata_table: rows(&said["without_metadata_table"])?,
            })),
            _ => None,
        }
    }
}

/// The running writer; ended when dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    group: Group,
    stdin: Option<ChildStdin>,
    lines: Lines,
    log: PathBuf,
}

/// What the writer is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) bundle: &'a Path,
    pub(crate) base_path: &'a Path,
    pub(crate) callback: &'a str,
    /// Where Spark makes its warehouse; without it, in the folder of the caller.
    pub(crate) warehouse: &'a Path,
}

impl Task<'_> {
    fn command(&self, script: &Path) -> Command {
        let mut python = self.tools.command(&self.tools.python);
        python.arg("-u").arg(script).arg("--base-path").arg(format!("file://{}", self.base_path.display()));
        python.arg("--jar").arg(self.bundle).arg("--warehouse").arg(self.warehouse);
        python.args(["--callback-url", self.callback, "--lock-expire-minutes", LOCK_EXPIRE_MINUTES]);
        python
    }

    /// Copies the writer into a folder, and returns the line that runs it from a shell.
    pub(crate) fn keep(&self, root: &Path, folder: &Path) -> Result<String> {
        let script = folder.join(SCRIPT_NAME);
        fs::copy(root.join(SCRIPT), &script).with_context(|| format!("cannot write {}", script.display()))?;
        let mut command = self.command(&script);
        command.arg("--by-hand");
        let mut words: Vec<String> = command
            .get_envs()
            .filter_map(|(name, value)| {
                Some(format!("{}={}", name.to_string_lossy(), shell_word(&value?.to_string_lossy())))
            })
            .collect();
        let program = std::iter::once(command.get_program());
        words.extend(program.chain(command.get_args()).map(|word| shell_word(&word.to_string_lossy())));
        Ok(words.join(" "))
    }
}

impl Writer {
    /// Starts it in the folder of its log, so that nothing that Spark or Java leave lands in the caller's.
    pub(crate) fn start(root: &Path, task: &Task<'_>, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut python = task.command(&root.join(SCRIPT));
        python.current_dir(log.parent().unwrap_or(root));
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut group = Group::spawn("the writer", marks::mark(&mut python))?;
        let stdin = group.child().stdin.take();
        let lines = lines_of(group.child());
        Ok(Self { group, stdin, lines, log: log.to_owned() })
    }

    /// The next line of the writer; an error when it ended or says nothing for too long.
    pub(crate) fn next(&mut self) -> Result<Event> {
        let watch = Stopwatch::start();
        loop {
            check_interrupted()?;
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok((_, line)) => {
                    if let Some(event) = Event::parse(&line) {
                        return Ok(event);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the writer ended early; its last words:\n{}", self.last_words())
                }
                Err(RecvTimeoutError::Timeout) if watch.elapsed() > EVENT_LIMIT => {
                    bail!(
                        "the writer said nothing for {} s; its log is {}",
                        EVENT_LIMIT.as_secs(),
                        self.log.display()
                    );
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Reads the table once more, in the same Spark session.
    pub(crate) fn read_again(&mut self) -> Result<Reading> {
        let stdin = self.stdin.as_mut().ok_or_else(|| anyhow!("the writer's input is closed"))?;
        stdin.write_all(b"read\n").and_then(|()| stdin.flush()).context("the writer has ended")?;
        match self.next()? {
            Event::Read(reading) => Ok(reading),
            other => bail!("the writer said {other:?} when it was asked to read"),
        }
    }

    /// Lets it end by itself, which closes its Spark, and helps after a while.
    pub(crate) fn stop(&mut self) {
        self.stdin = None;
        let group = &mut self.group;
        crate::time::wait_until(STOP_GRACE, LOOK_EVERY, || group.poll().ok().flatten());
        group.stop(STOP_GRACE);
    }

    fn last_words(&self) -> String {
        last_lines(&self.log, LOG_LINES_SHOWN)
    }
}

/// The last lines of a log, with its address.
pub(crate) fn last_lines(log: &Path, n_lines: usize) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(n_lines)..).unwrap_or_default();
    format!("{}\n(all of it: {})", tail.join("\n"), log.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_writer_are_read_and_others_are_not() {
        let planned = r#"{"event": "planned", "instant": "20260101000000001", "rows": 1200, "checksum": 99}"#;
        let written = Rows { n_rows: 1200, checksum: 99 };
        assert_eq!(
            Event::parse(planned),
            Some(Event::Planned { instant: "20260101000000001".into(), written })
        );
        let read = r#"{"event":"read","when":"after","with_metadata_table":{"rows":1200,"checksum":99},"without_metadata_table":{"rows":1,"checksum":2}}"#;
        let other = Rows { n_rows: 1, checksum: 2 };
        assert_eq!(
            Event::parse(read),
            Some(Event::Read(Reading { with_metadata_table: written, without_metadata_table: other }))
        );
        let commit = r#"{"event":"commit","number":1,"rows":5,"seconds":2.5}"#;
        assert_eq!(Event::parse(commit), Some(Event::Commit { number: 1, n_rows: 5, seconds: "2.5".into() }));
        for noise in ["", "WARN x", "{}", "[1]", r#"{"event":"else"}"#, r#"{"event":"planned"}"#] {
            assert_eq!(Event::parse(noise), None, "{noise}");
        }
    }

    #[test]
    fn line_of_a_kept_writer_names_all_that_it_needs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let tools =
            Tools { java_home: "/java".into(), python: "/venv/python".into(), spark_home: "/spark".into() };
        let task = Task {
            tools: &tools,
            bundle: Path::new("/my cache/b.jar"),
            base_path: Path::new("/t/trips"),
            callback: "http://127.0.0.1:1/v1/hoodie/callback",
            warehouse: Path::new("/t/spark-warehouse"),
        };
        let line = task.keep(root, folder.path()).unwrap();
        let script = folder.path().join(SCRIPT_NAME);
        assert!(script.is_file());
        for words in [
            "JAVA_HOME=/java ".to_owned(),
            format!(" /venv/python -u {} ", script.display()),
            " --base-path file:///t/trips ".to_owned(),
            " --jar '/my cache/b.jar' ".to_owned(),
            " --warehouse /t/spark-warehouse ".to_owned(),
            " --callback-url http://127.0.0.1:1/v1/hoodie/callback ".to_owned(),
        ] {
            assert!(line.contains(&words), "{words} in {line}");
        }
        assert!(line.ends_with(" --by-hand"), "{line}");
    }

    #[test]
    fn last_lines_name_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("w.log");
        fs::write(&log, "a\nb\nc\n").unwrap();
        let words = last_lines(&log, 2);
        assert!(words.starts_with("b\nc\n(all of it: ") && words.contains("w.log"), "{words}");
    }
}
