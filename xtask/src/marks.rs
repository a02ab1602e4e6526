//! Finds processes of a run that left their process group.
//!
//! A Spark driver has a session of its own and survives `tms-server` on purpose, so a process group is not
//! enough to stop all that a run started. Each program of a run carries [`MARK`] in its environment, which
//! its children inherit; the mark names the xtask process, so a stray of a killed xtask is told from one of a
//! living one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::time::wait_until;

/// The variable that marks a process as started by a run of xtask.
pub(crate) const MARK: &str = "TMS_XTASK_RUN";
const STOP_GRACE: Duration = Duration::from_secs(5);
/// A killed process is gone as soon as the kernel has cleared its memory.
const KILL_WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One marked process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) pid: i32,
    /// `<pid>-<start time in clock ticks>` of the xtask that started it.
    pub(crate) mark: String,
    pub(crate) program: String,
}

/// The mark of this xtask.
pub(crate) fn own_mark() -> String {
    let pid = std::process::id();
    format!("{pid}-{}", start_time(pid).unwrap_or_default())
}

/// Gives a command the mark of this xtask.
pub(crate) fn mark(command: &mut Command) -> &mut Command {
    command.env(MARK, own_mark())
}

/// Field 22 of `/proc/<pid>/stat`; together with the pid it names a process for ever.
fn start_time(pid: u32) -> Option<u64> {
    start_time_of(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The program's name stands in brackets and may hold spaces and brackets, so fields are counted after the
/// last `)`.
fn start_time_of(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

fn mark_in(environ: &[u8]) -> Option<String> {
    let prefix = [MARK.as_bytes(), b"="].concat();
    let entry = environ.split(|byte| *byte == 0).find(|entry| entry.starts_with(&prefix))?;
    String::from_utf8(entry.get(prefix.len()..)?.to_vec()).ok()
}

/// All marked processes of this machine that we may see, without this one and without dead ones.
pub(crate) fn all_marked() -> Vec<Marked> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let others = pids.filter(|pid| u32::try_from(*pid).is_ok_and(|pid| pid != std::process::id()));
    others.filter_map(marked).collect()
}

fn marked(pid: i32) -> Option<Marked> {
    let mark = mark_in(&fs::read(format!("/proc/{pid}/environ")).ok()?)?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let program = OsString::from_vec(line.split(|byte| *byte == 0).next()?.to_vec());
    Some(Marked { pid, mark, program: program.to_string_lossy().into_owned() })
}

/// Whether the xtask that a mark names still runs.
fn is_owner_alive(mark: &str) -> bool {
    let Some((pid, started)) = mark.split_once('-') else { return false };
    let now = pid.parse().ok().and_then(start_time);
    now.is_some() && now == started.parse().ok()
}

/// Ends every process that this run started and that is still there; returns them.
pub(crate) fn stop_own() -> Vec<Marked> {
    let own = own_mark();
    stop_where(|found| found.mark == own)
}

/// Ends every process that this run started at once, also those that are outside its process groups.
pub(crate) fn kill_own() {
    let own = own_mark();
    kill_where(|found| found.mark == own);
}

fn kill_where(wanted: impl Fn(&Marked) -> bool) {
    let look = || all_marked().into_iter().filter(|found| wanted(found)).collect::<Vec<_>>();
    signal(&look(), Signal::KILL);
    wait_until(KILL_WAIT, LOOK_EVERY, || look().is_empty().then_some(()));
}

/// Ends what an earlier xtask left behind that was itself killed hard; returns them.
pub(crate) fn stop_orphans() -> Vec<Marked> {
    stop_where(|found| !is_owner_alive(&found.mark))
}

fn stop_where(wanted: impl Fn(&Marked) -> bool) -> Vec<Marked> {
    let look = || all_marked().into_iter().filter(|found| wanted(found)).collect::<Vec<_>>();
    let found = look();
    if found.is_empty() {
        return found;
    }
    signal(&found, Signal::TERM);
    if wait_until(STOP_GRACE, LOOK_EVERY, || look().is_empty().then_some(())).is_none() {
        signal(&look(), Signal::KILL);
        wait_until(STOP_GRACE, LOOK_EVERY, || look().is_empty().then_some(()));
    }
    found
}

fn signal(processes: &[Marked], signal: Signal) {
    for pid in processes.iter().filter_map(|process| Pid::from_raw(process.pid)) {
        // One that has ended meanwhile is what was wanted.
        kill_process(pid, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::process::{Group, command};

    #[test]
    fn start_time_is_read_behind_odd_program_names() {
        let stat = "17 (a) b (c)) S 1 17 17 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(start_time_of(stat), Some(4242));
        assert_eq!(start_time_of("no bracket"), None);
    }

    #[test]
    fn mark_is_found_among_other_variables() {
        assert_eq!(mark_in(b"A=1\0TMS_XTASK_RUN=7-8\0B=2\0"), Some("7-8".to_owned()));
        assert_eq!(mark_in(b"XTMS_XTASK_RUN=7-8\0"), None);
    }

    #[test]
    fn owner_is_alive_only_with_the_same_start_time() {
        assert!(is_owner_alive(&own_mark()));
        assert!(!is_owner_alive(&format!("{}-1", std::process::id())));
        assert!(!is_owner_alive("nonsense"));
    }

    #[test]
    fn process_that_left_its_group_is_found_and_ended() {
        let stray = start_stray(1);
        let ended = stop_where(|found| found.mark == stray);
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert!(all_marked().iter().all(|found| found.mark != stray));
    }

    #[test]
    fn process_that_left_its_group_is_killed_at_a_hard_end() {
        let stray = start_stray(2);
        assert!(all_marked().iter().any(|found| found.mark == stray));
        kill_where(|found| found.mark == stray);
        assert!(all_marked().iter().all(|found| found.mark != stray));
    }

    fn start_stray(number: u32) -> String {
        let stray = format!("{}-{number}", std::process::id());
        let mut command = command("setsid");
        command.args(["--fork", "sleep", "300"]).env(MARK, &stray).stdout(Stdio::null());
        let mut group = Group::spawn("setsid", &mut command).unwrap();
        wait_until(Duration::from_secs(5), LOOK_EVERY, || group.poll().unwrap()).unwrap();
        stray
    }
}
