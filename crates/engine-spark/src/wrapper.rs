//! The wrapper: a small program beside each driver, in the driver's own session. It outlives whoever submitted the
//! attempt, keeps the newest output and stores the exit code. It asks nobody and decides nothing.
//!
//! It runs as `<program> run-attempt <folder>`, and once more as `… <folder> driver`: that second process writes down
//! its own pid and start time and then becomes `spark-submit`, which becomes the JVM. So the mark of the driver is
//! stored before the driver exists, and hence before it can ask for leave.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tms_core::clock::{Clock, SystemClock};

use crate::attempt::{AttemptFolder, Claim, ExitRecord, Plan, WrapperClaim};
use crate::place::Place;
use crate::proc::{self, ProcessMark, ProcessSeen};
use crate::process;
use crate::status::Handle;

/// First argument of the wrapper.
pub const SUBCOMMAND: &str = "run-attempt";
/// Last argument of the process that becomes the driver.
const DRIVER: &str = "driver";

/// The engine gave the attempt up before the wrapper came; nothing was started.
pub const EXIT_ABANDONED: u8 = 75;
/// The wrapper could not do its work before it claimed the attempt; nothing was started.
pub const EXIT_NOT_STARTED: u8 = 71;
/// As a shell says it when a program cannot be run.
const EXIT_CANNOT_RUN: u8 = 127;

/// How long the output may go on after the driver's end: a child that it left behind may hold the pipe open.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// Looks at the processes that must all find nothing left: one alone can miss a process that was forked behind it.
const LAST_LOOKS: u32 = 2;
/// Read size of the output.
const CHUNK_BYTES: usize = 64 * 1024;

/// Runs the wrapper with the arguments that follow `run-attempt`; returns its exit code.
///
/// Call it before anything else of a program, above all before any thread is started.
#[must_use]
pub fn run(args: &[OsString]) -> u8 {
    match args {
        [folder] => supervise(&AttemptFolder::at(PathBuf::from(folder))),
        [folder, word] if word == DRIVER => become_driver(&AttemptFolder::at(PathBuf::from(folder))),
        _ => EXIT_NOT_STARTED,
    }
}

fn supervise(folder: &AttemptFolder) -> u8 {
    let (plan, claim) = match claim(folder) {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return EXIT_ABANDONED,
        Err(_) => return EXIT_NOT_STARTED,
    };
    let mut exit = match run_driver(folder, &plan, &claim) {
        Ok(status) => exit_record(status.code(), status.signal(), None),
        Err(e) => exit_record(None, None, Some(format!("the wrapper could not run the driver: {e}"))),
    };
    exit.left_nothing = left_nothing(&claim);
    // Without the record the attempt counts as dead without an exit code, which is true enough.
    match folder.write_exit(&exit) {
        Ok(()) => 0,
        Err(_) => EXIT_NOT_STARTED,
    }
}

/// Leaves the submitter's session and claims the attempt; `None` when it was given up.
fn claim(folder: &AttemptFolder) -> io::Result<Option<(Plan, WrapperClaim)>> {
    let plan = folder.read_plan()?.ok_or_else(|| io::Error::other("there is no plan"))?;
    rustix::process::setsid()?;
    let wrapper = proc::own_mark()?;
    let claim = WrapperClaim { tag: plan.tag.clone(), place: Place::here()?, session: wrapper.pid, wrapper };
    let is_ours = folder.claim(&Claim::Wrapper(claim.clone()))?;
    Ok(is_ours.then_some((plan, claim)))
}

fn run_driver(folder: &AttemptFolder, plan: &Plan, claim: &WrapperClaim) -> io::Result<ExitStatus> {
    let (output, input) = io::pipe()?;
    let mut log = CappedLog::create(folder, plan.log_bytes_max)?;
    let mut child = start_driver(folder, input)?;
    let (drained, is_drained) = mpsc::channel();
    std::thread::spawn(move || {
        log.drain(output);
        // The receiver is gone when nobody waits any more.
        drained.send(()).ok();
    });
    let jvm = mark_of(&child);
    // The driver's process stores the same before it becomes the driver; here it is stored before anybody is answered.
    if jvm.is_none_or(|jvm| folder.write_jvm(jvm).is_ok()) {
        tell_submitter(&Handle::of(claim, jvm));
    }
    let status = child.wait()?;
    // A timeout means that somebody else still holds the pipe; the log then ends here.
    is_drained.recv_timeout(DRAIN_MAX).ok();
    Ok(status)
}

fn start_driver(folder: &AttemptFolder, input: io::PipeWriter) -> io::Result<Child> {
    // The very program that runs now, whatever lies under its name meanwhile. The ends of the pipe that are kept by
    // the command go with it, else the log would never end.
    Command::new("/proc/self/exe")
        .arg(SUBCOMMAND)
        .arg(folder.path())
        .arg(DRIVER)
        .stdin(Stdio::inherit())
        .stdout(input.try_clone()?)
        .stderr(input)
        .spawn()
}

fn mark_of(child: &Child) -> Option<ProcessMark> {
    proc::look(child.id()).ok().flatten().map(|seen| seen.mark)
}

/// Says to whoever submitted it that the attempt is under way; it may be dead by now, which changes nothing.
fn tell_submitter(handle: &Handle) {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", handle.text()).and_then(|()| stdout.flush()).ok();
}

fn become_driver(folder: &AttemptFolder) -> u8 {
    let fail = |what: &str, error: &io::Error| {
        writeln!(io::stderr(), "tms: cannot {what}: {error}").ok();
        EXIT_CANNOT_RUN
    };
    let plan = match folder.read_plan() {
        Ok(Some(plan)) => plan,
        Ok(None) => return fail("read the plan of the attempt", &io::ErrorKind::NotFound.into()),
        Err(e) => return fail("read the plan of the attempt", &e),
    };
    if let Err(e) = proc::own_mark().and_then(|mark| folder.write_jvm(mark)) {
        return fail("store which process becomes the driver", &e);
    }
    // A second hold on the lock: a shell gives its background jobs another standard input, but not another of these.
    // It is closed by no `exec`, and lives on in what this process becomes.
    let _second_hold = match rustix::io::dup(io::stdin()) {
        Ok(hold) => hold,
        Err(e) => return fail("hold the lock of the attempt", &e.into()),
    };
    let error = Command::new(&plan.program).args(&plan.args).exec();
    fail(&format!("run {}", plan.program), &error)
}

fn exit_record(code: Option<i32>, signal: Option<i32>, problem: Option<String>) -> ExitRecord {
    let ended_at_ms = SystemClock::default().now().timestamp_millis();
    ExitRecord { code, signal, problem, left_nothing: false, ended_at_ms }
}

/// Tells whether no process of the attempt but this one is left, in its session or out of it. Only here can that be
/// seen for all time to come: whoever looks later may be in another container or on another machine.
fn left_nothing(claim: &WrapperClaim) -> bool {
    let is_ours = process::is_of(&claim.tag);
    let is_left = |p: &ProcessSeen| {
        p.mark != claim.wrapper
            && !p.is_zombie
            && (p.session == claim.session || is_ours(p.mark.pid) == Some(true))
    };
    (0..LAST_LOOKS).all(|_| proc::scan().is_ok_and(|all| !all.values().any(is_left)))
}

/// The newest output: two files, of which the older one is dropped when the newer one is half the limit.
#[derive(Debug)]
struct CappedLog {
    current: PathBuf,
    previous: PathBuf,
    file: File,
    written: u64,
    half_bytes: u64,
}

impl CappedLog {
    fn create(folder: &AttemptFolder, bytes_max: u64) -> io::Result<Self> {
        let (current, previous) = folder.logs();
        let file = File::create(&current)?;
        Ok(Self { current, previous, file, written: 0, half_bytes: (bytes_max / 2).max(1) })
    }

    /// Takes everything until the end. The driver must never wait for its log, nor be ended by it: what cannot be
    /// kept, on a full disk for one, is dropped.
    fn drain(&mut self, mut output: PipeReader) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match output.read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => {
                    self.keep(&chunk[..n]).ok();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn keep(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = usize::try_from(self.half_bytes.saturating_sub(self.written)).unwrap_or(usize::MAX);
            if room == 0 {
                self.turn()?;
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.written += now.len() as u64;
            self.file.write_all(now)?;
            bytes = later;
        }
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        turn_file(&self.current, &self.previous)?;
        self.file = File::create(&self.current)?;
        self.written = 0;
        Ok(())
    }
}

fn turn_file(current: &Path, previous: &Path) -> io::Result<()> {
    std::fs::rename(current, previous)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn kept(folder: &AttemptFolder) -> String {
        let (current, previous) = folder.logs();
        let mut text = std::fs::read_to_string(previous).unwrap_or_default();
        text.push_str(&std::fs::read_to_string(current).unwrap());
        text
    }

    #[test]
    fn the_newest_output_is_kept_within_the_limit() {
        let temp = TempDir::new().unwrap();
        let folder = AttemptFolder::at(temp.path().to_owned());
        let mut log = CappedLog::create(&folder, 100).unwrap();
        let mut all = String::new();
        for n in 0..40 {
            let line = format!("line {n:03}\n");
            all.push_str(&line);
            log.keep(line.as_bytes()).unwrap();
            let kept = kept(&folder);
            assert!(kept.len() <= 100, "{}", kept.len());
            assert!(all.ends_with(&kept) && kept.len() >= all.len().min(50), "{kept}");
        }
    }

    #[test]
    fn one_chunk_larger_than_the_limit_leaves_its_end() {
        let temp = TempDir::new().unwrap();
        let folder = AttemptFolder::at(temp.path().to_owned());
        let mut log = CappedLog::create(&folder, 10).unwrap();
        log.keep(b"0123456789abcdefghijklmnopqrst").unwrap();
        assert_eq!(kept(&folder), "klmnopqrst");
    }
}
