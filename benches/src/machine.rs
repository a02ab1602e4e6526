//! Clocks, pauses, and what the kernel says of processes.

use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tms_core::clock::{Clock, SystemClock};

/// Ticks per second of `/proc/<pid>/stat`; the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the time since this process first asked.
pub(crate) fn now() -> Duration {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.get_or_init(SystemClock::default).monotonic()
}

/// Returns the result of some work and how long it took, in seconds.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let started = now();
    let done = work();
    (done, (now() - started).as_secs_f64())
}

/// Sleeps; a load generator waits for moments, not for conditions.
#[expect(clippy::disallowed_methods, reason = "a load generator waits for due times")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Sleeps until a moment of [`now`].
pub(crate) fn pause_until(moment: Duration) {
    let left = moment.saturating_sub(now());
    if !left.is_zero() {
        pause(left);
    }
}

/// Waits for a condition.
///
/// # Errors
/// It did not come within `most`.
pub(crate) fn wait_for(
    what: &str,
    most: Duration,
    step: Duration,
    mut is_so: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = now() + most;
    while !is_so() {
        if now() > deadline {
            bail!("{what}: not within {} s", most.as_secs());
        }
        pause(step);
    }
    Ok(())
}

/// Returns the CPU time that a process has used, its ended threads included, in seconds.
///
/// # Errors
/// There is no such process.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    // The name may hold blanks; what follows its closing bracket does not.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { bail!("cannot read /proc/{pid}/stat") };
    Ok((user + system) / TICKS_PER_SECOND)
}

/// Returns a line of `/proc/<pid>/status` such as `VmRSS`, in MiB.
///
/// # Errors
/// There is no such process or line.
pub(crate) fn memory_mib(pid: u32, line: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
    let kib = found.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).with_context(|| format!("/proc/{pid}/status has no {line}"))
}

/// A child process that is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Makes a fresh folder in `parent`, on whose disk the run shall be measured.
///
/// # Errors
/// It cannot be made.
pub(crate) fn fresh_folder(parent: &Path) -> Result<tempfile::TempDir> {
    std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    tempfile::Builder::new().prefix("tms-bench-").tempdir_in(parent).context("cannot make a folder")
}
