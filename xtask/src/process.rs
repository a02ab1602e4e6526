//! Starts programs, bounds them in time, and ends all that it started.
//!
//! Every program gets a process group of its own and is ended by that group's id, never by a name. The signal
//! thread of [`watch_signals`] only asks: the main thread sees [`is_interrupted`], unwinds, and its guards
//! clean up.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::environment::Environment;
use crate::marks;
use crate::time::{Stopwatch, wait_until};

/// How often a waiting loop looks at its process.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that a group gets between the gentle signal and the hard one.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Longest line kept whole; the rest of a longer one comes as further lines.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Lines that may wait between a reader thread and the main thread.
const LINES_QUEUED_MAX: usize = 1_000;
/// Most output that [`capture`] keeps.
const CAPTURE_BYTES_MAX: usize = 64 << 20;
/// How long output may trickle on after its program has ended (a grandchild may hold the pipe).
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Time for the main thread to clean up after a signal, before the signal thread ends everything hard.
const UNWIND_LIMIT: Duration = Duration::from_secs(60);
/// A signal this soon after the first one belongs to it: `timeout` for one sends it to the program and to its group.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
static LAST_WILL: Mutex<Option<LastWill>> = Mutex::new(None);

/// What is done at a hard end, when no guard of the main thread runs any more.
pub(crate) type LastWill = Box<dyn FnOnce() + Send>;

/// Sets what is done at a hard end, instead of what was set before.
pub(crate) fn set_last_will(will: Option<LastWill>) {
    *LAST_WILL.lock().unwrap_or_else(PoisonError::into_inner) = will;
}

/// Whether Ctrl-C or a termination signal has asked xtask to stop.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Fails when xtask was asked to stop; long loops call it.
pub(crate) fn check_interrupted() -> Result<()> {
    if is_interrupted() { Err(anyhow!("interrupted")) } else { Ok(()) }
}

/// Starts the thread that turns SIGINT, SIGTERM and SIGHUP into an orderly end.
pub(crate) fn watch_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch signals")?;
    std::thread::spawn(move || {
        let mut first: Option<Stopwatch> = None;
        for _ in signals.forever() {
            match is_once_more(first.map(Stopwatch::elapsed)) {
                Some(true) => end_hard(),
                Some(false) => continue,
                None => first = Some(Stopwatch::start()),
            }
            INTERRUPTED.store(true, Ordering::SeqCst);
            eprintln!("\nxtask: stopping everything that was started; once more to stop at once.");
            signal_all(Signal::TERM);
            std::thread::spawn(|| {
                let never: Option<()> = wait_until(UNWIND_LIMIT, LOOK_EVERY, || None);
                if never.is_none() {
                    end_hard();
                }
            });
        }
    });
    Ok(())
}

/// Whether a signal is a person's second one; `None` for the very first. Takes the time since the first.
fn is_once_more(since_first: Option<Duration>) -> Option<bool> {
    since_first.map(|since| since > SAME_SIGNAL_WITHIN)
}

fn end_hard() -> ! {
    signal_all(Signal::KILL);
    marks::kill_own();
    let will = LAST_WILL.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(will) = will {
        will();
    }
    std::process::exit(130)
}

fn signal_all(signal: Signal) {
    for group in GROUPS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        send(*group, signal);
    }
}

fn send(group: Pid, signal: Signal) {
    // A group that has ended meanwhile is what was wanted.
    kill_process_group(group, signal).ok();
}

/// A command that inherits neither `TMS_*` settings nor Spark's and Python's, and has no standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in Environment::removed_names() {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// The command line for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=+@%,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A running program with its process group; ended when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    id: Pid,
    name: String,
    ended: Option<ExitStatus>,
}

impl Group {
    /// Starts the command in a process group of its own.
    pub(crate) fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        check_interrupted()?;
        let child =
            command.process_group(0).spawn().with_context(|| format!("cannot start {}", shown(command)))?;
        let id = Pid::from_child(&child);
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        Ok(Self { child, id, name: name.to_owned(), ended: None })
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status once the program itself has ended.
    pub(crate) fn poll(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))?;
        }
        Ok(self.ended)
    }

    /// Ends the whole group: gently, then hard after `grace`. Repeating it does nothing.
    pub(crate) fn stop(&mut self, grace: Duration) {
        if !self.is_registered() {
            return;
        }
        if self.ended.is_none() {
            send(self.id, Signal::TERM);
            wait_until(grace, LOOK_EVERY, || self.poll().ok().flatten());
        }
        // Also when the program itself has ended: what it started may still be there.
        send(self.id, Signal::KILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| *id != self.id);
    }

    fn is_registered(&self) -> bool {
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.id)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop(STOP_GRACE);
    }
}

/// Runs a command with its output shown, and fails when it fails or outlives `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<()> {
    let status = status(command, limit)?;
    if status.success() { Ok(()) } else { bail!("{} ended with {status}", shown(command)) }
}

/// Runs a command with its output shown; fails only when it cannot be started or outlives `limit`.
pub(crate) fn status(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let line = shown(command);
    let mut group = Group::spawn(&line, command)?;
    let watch = Stopwatch::start();
    loop {
        if let Some(status) = group.poll()? {
            return Ok(status);
        }
        check_limit(&line, watch, limit)?;
        crate::time::pause(LOOK_EVERY);
    }
}

fn check_limit(line: &str, watch: Stopwatch, limit: Duration) -> Result<()> {
    check_interrupted()?;
    if watch.elapsed() > limit {
        bail!("{line} did not end within {} s and was stopped", limit.as_secs());
    }
    Ok(())
}

/// Which of the two outputs a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Stdout,
    Stderr,
}

/// Lines of a program's outputs, in the order they were read.
pub(crate) type Lines = Receiver<(From, String)>;

/// Takes over the piped outputs of a started program and reads them line by line in threads.
pub(crate) fn lines_of(child: &mut Child) -> Lines {
    let (sender, receiver) = sync_channel(LINES_QUEUED_MAX);
    if let Some(stdout) = child.stdout.take() {
        read_lines(From::Stdout, stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        read_lines(From::Stderr, stderr, sender);
    }
    receiver
}

fn read_lines(from: From, pipe: impl Read + Send + 'static, sender: SyncSender<(From, String)>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            if sender.send((from, text.trim_end_matches(['\n', '\r']).to_owned())).is_err() {
                return;
            }
        }
    });
}

/// Runs a command and hands each line of its output to `on_line` as it comes.
pub(crate) fn stream(
    command: &mut Command,
    limit: Duration,
    mut on_line: impl FnMut(From, &str),
) -> Result<ExitStatus> {
    let name = shown(command);
    let mut group = Group::spawn(&name, command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let lines = lines_of(group.child());
    let watch = Stopwatch::start();
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok((from, line)) => on_line(from, &line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => crate::time::pause(LOOK_EVERY),
        }
        check_limit(&name, watch, limit)?;
        if let Some(status) = group.poll()? {
            let drain = Stopwatch::start();
            while drain.elapsed() < DRAIN_LIMIT {
                match lines.recv_timeout(LOOK_EVERY) {
                    Ok((from, line)) => on_line(from, &line),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            return Ok(status);
        }
    }
}

/// What a finished program said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captured {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Captured {
    pub(crate) fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// The last lines of both outputs, for error messages.
    pub(crate) fn tail(&self, n_lines: usize) -> String {
        let all: Vec<&str> = self.stdout.lines().chain(self.stderr.lines()).collect();
        let start = all.len().saturating_sub(n_lines);
        all.get(start..).unwrap_or_default().join("\n")
    }
}

/// Runs a command quietly and returns what it said.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<Captured> {
    let mut captured = Captured::default();
    let mut dropped = false;
    let status = stream(command, limit, |from, line| {
        let kept = captured.stdout.len() + captured.stderr.len();
        if kept + line.len() > CAPTURE_BYTES_MAX {
            dropped = true;
            return;
        }
        let into = if from == From::Stdout { &mut captured.stdout } else { &mut captured.stderr };
        into.push_str(&without_colours(line));
        into.push('\n');
    })?;
    if dropped {
        bail!("{} wrote more than {CAPTURE_BYTES_MAX} bytes", shown(command));
    }
    captured.code = status.code();
    Ok(captured)
}

/// Takes the escape sequences of a terminal out of a line: what is captured is shown again in messages, and some tools
/// colour what they write whoever reads it.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
        } else if characters.next() == Some('[') {
            characters.by_ref().find(|last| ('@'..='~').contains(last));
        }
    }
    plain
}

/// Runs a command quietly and returns its standard output; its last lines become part of the error.
pub(crate) fn stdout_of(command: &mut Command, limit: Duration) -> Result<String> {
    let captured = capture(command, limit)?;
    if !captured.is_ok() {
        bail!("{} failed:\n{}", shown(command), captured.tail(30));
    }
    Ok(captured.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Command {
        let mut command = command("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn is_alive(pid: &str) -> bool {
        std::path::Path::new("/proc").join(pid.trim()).join("status").exists()
            && !std::fs::read_to_string(format!("/proc/{}/status", pid.trim()))
                .unwrap_or_default()
                .contains("State:\tZ")
    }

    #[test]
    fn captured_output_keeps_both_streams_and_the_code() {
        let captured = capture(&mut shell("echo out; echo err >&2; exit 3"), SHORT).unwrap();
        assert_eq!(
            (captured.code, captured.stdout.as_str(), captured.stderr.as_str()),
            (Some(3), "out\n", "err\n")
        );
        assert_eq!(captured.tail(1), "err");
    }

    #[test]
    fn captured_output_has_no_colours() {
        let captured =
            capture(&mut shell(r"printf '\033[1;31m[ERROR]\033[m no \033[1mjar\033[0m\n'"), SHORT).unwrap();
        assert_eq!(captured.stdout, "[ERROR] no jar\n");
        assert_eq!(without_colours("a\u{1b}"), "a");
    }

    #[test]
    fn failing_command_is_an_error_with_its_last_lines() {
        let error = stdout_of(&mut shell("echo reason >&2; exit 1"), SHORT).unwrap_err();
        assert!(error.to_string().contains("reason"), "{error}");
        assert!(run(&mut shell("exit 4"), SHORT).is_err());
    }

    #[test]
    fn command_that_outlives_its_limit_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 300 & echo $! > {}; wait", file.display());
        let error = capture(&mut shell(&script), Duration::from_millis(700)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        let child = std::fs::read_to_string(&file).unwrap();
        assert!(
            wait_until(SHORT, LOOK_EVERY, || (!is_alive(&child)).then_some(())).is_some(),
            "{child} still lives"
        );
    }

    #[test]
    fn stop_ends_a_program_that_ignores_the_gentle_signal() {
        let mut group =
            Group::spawn("stubborn", &mut shell("trap '' TERM; while :; do sleep 1; done")).unwrap();
        let pid = group.child().id().to_string();
        group.stop(Duration::from_millis(200));
        assert!(!is_alive(&pid));
        group.stop(Duration::from_millis(200));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("file:///t/run-1/tables/trips"), "file:///t/run-1/tables/trips");
        assert_eq!(shell_word("/my cache/it's"), r"'/my cache/it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn one_signal_that_arrives_twice_is_not_a_second_one() {
        assert_eq!(is_once_more(None), None);
        assert_eq!(is_once_more(Some(Duration::from_millis(5))), Some(false));
        assert_eq!(is_once_more(Some(Duration::from_secs(2))), Some(true));
    }

    #[test]
    fn children_do_not_inherit_our_settings() {
        let out = stdout_of(&mut shell("echo ${PYTHONPATH-unset}"), SHORT).unwrap();
        assert_eq!(out, "unset\n");
    }
}
