//! What the kernel tells about processes. Reading only; see [`crate::process`] for signals.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Most processes that one scan takes; the kernel's own limit on 64-bit machines.
const PROCESSES_MAX: usize = 1 << 22;
/// Longest environment of a process that is searched, in bytes; the kernel allows 6 MiB for arguments and environment.
const ENVIRONMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Longest `fdinfo` that is read, in bytes.
const FDINFO_BYTES_MAX: u64 = 64 * 1024;
/// Most open files of one process that are looked at; the kernel's default limit.
const OPEN_FILES_MAX: usize = 1 << 20;
/// What the kernel adds to the path of a file that was removed.
const GONE: &str = " (deleted)";

/// One process for all time: a pid is used again, the pair of pid and start time is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessMark {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since the boot: field 22 of `/proc/<pid>/stat`. An `exec` keeps it.
    pub start: u64,
}

/// One process of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSeen {
    /// Which.
    pub mark: ProcessMark,
    /// Session.
    pub session: u32,
    /// It ended and waits for its parent.
    pub is_zombie: bool,
}

/// All processes by pid.
pub type Processes = BTreeMap<u32, ProcessSeen>;

/// Reads `/proc/<pid>/stat`. The name in it may hold anything, blanks and parentheses too.
#[must_use]
pub fn parse_stat(text: &str) -> Option<ProcessSeen> {
    let pid = text.split_once(' ')?.0.parse().ok()?;
    let after_name = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let session: i64 = fields.get(3)?.parse().ok()?;
    Some(ProcessSeen {
        mark: ProcessMark { pid, start: fields.get(19)?.parse().ok()? },
        // Kernel threads of another namespace's view may say -1: nobody's session.
        session: u32::try_from(session).unwrap_or(0),
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

/// Returns one process, or `None` when there is none of this pid.
///
/// # Errors
/// `/proc` cannot be read.
pub fn look(pid: u32) -> io::Result<Option<ProcessSeen>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(bytes) => Ok(parse_stat(&String::from_utf8_lossy(&bytes))),
        // ESRCH: it ended between open and read.
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(3) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the mark of this process.
///
/// # Errors
/// `/proc` cannot be read.
pub fn own_mark() -> io::Result<ProcessMark> {
    let seen = look(std::process::id())?;
    seen.map(|s| s.mark).ok_or_else(|| io::Error::other("/proc does not tell this process"))
}

/// Returns all processes. One that lives during the whole scan is in it.
///
/// # Errors
/// `/proc` cannot be listed, or does not even show this process.
pub fn scan() -> io::Result<Processes> {
    let mut all = Processes::new();
    for entry in fs::read_dir("/proc")?.take(PROCESSES_MAX) {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some(seen) = look(pid)? {
            all.insert(pid, seen);
        }
    }
    if !all.contains_key(&std::process::id()) {
        return Err(io::Error::other("/proc does not show this process"));
    }
    Ok(all)
}

/// Tells whether a process was started with this environment entry; `None` when that cannot be told.
#[must_use]
pub fn has_environment(pid: u32, entry: &str) -> Option<bool> {
    Some(words(&read_some(pid, "environ", ENVIRONMENT_BYTES_MAX)?).any(|e| e == entry.as_bytes()))
}

/// Returns what a process was started with under this name; `None` when it has none or does not show it.
#[must_use]
pub fn environment_value(pid: u32, name: &str) -> Option<String> {
    let bytes = read_some(pid, "environ", ENVIRONMENT_BYTES_MAX)?;
    let value = words(&bytes).find_map(|e| e.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Tells whether a word of a process's command line is this one; `None` when it shows no command line.
#[must_use]
pub fn has_word(pid: u32, word: &str) -> Option<bool> {
    let line = read_some(pid, "cmdline", ENVIRONMENT_BYTES_MAX)?;
    Some(words(&line).any(|w| w == word.as_bytes()))
}

/// Returns the name of the file that a process runs, without its folder; `None` when it does not show it, as at its end.
#[must_use]
pub fn program(pid: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = path.file_name()?.to_string_lossy();
    Some(name.strip_suffix(GONE).unwrap_or(&name).to_owned())
}

/// Names a process for people, such as `process 4711 (sleep)`.
#[must_use]
pub fn name(pid: u32) -> String {
    let known = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let known = String::from_utf8_lossy(&known);
    let known: String = known.trim_end().chars().filter(|c| !c.is_control()).collect();
    if known.is_empty() { format!("process {pid}") } else { format!("process {pid} ({known})") }
}

/// Returns the files that a process holds an exclusive lock on, by paths as the kernel knows them. Who inherited the open
/// file holds the lock as well as who took it, and both show it (`fdinfo`, since Linux 4.1).
#[must_use]
pub fn locked_files(pid: u32, is_wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let mut locked = Vec::new();
    for entry in open.take(OPEN_FILES_MAX).filter_map(Result::ok) {
        let Ok(path) = fs::read_link(entry.path()) else { continue };
        let path = path.to_str().and_then(|p| p.strip_suffix(GONE)).map_or(path.clone(), PathBuf::from);
        if is_wanted(&path) && has_exclusive_lock(pid, &entry.file_name().to_string_lossy()) {
            locked.push(path);
        }
    }
    locked
}

fn has_exclusive_lock(pid: u32, number: &str) -> bool {
    let told = read_some(pid, &format!("fdinfo/{number}"), FDINFO_BYTES_MAX).unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    told.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK") && line.contains("WRITE"))
}

/// Reads a file of a process; `None` when it cannot be read, or shows nothing as in the middle of an `exec`.
fn read_some(pid: u32, what: &str, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/{what}")).ok()?;
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let rest = "S 1 4711 4700 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 200";
        for name in ["java", "a b", "x) Z 1 2 3 (", "", "é"] {
            let seen = parse_stat(&format!("4712 ({name}) {rest}")).unwrap();
            assert_eq!(seen.mark, ProcessMark { pid: 4712, start: 987_654 });
            assert_eq!((seen.session, seen.is_zombie), (4700, false), "{name}");
        }
        assert!(parse_stat("4712 (java) Z 1 4711 4700 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 9").unwrap().is_zombie);
    }

    #[test]
    fn the_kernel_shows_this_process() {
        let me = own_mark().unwrap();
        assert_eq!(scan().unwrap()[&me.pid].mark, me);
        assert_eq!(has_environment(me.pid, "TMS_NO_SUCH_VARIABLE=1"), Some(false));
        assert_eq!(look(u32::MAX).unwrap(), None);
        let path = environment_value(me.pid, "PATH").unwrap();
        assert_eq!(has_environment(me.pid, &format!("PATH={path}")), Some(true));
        assert_eq!(environment_value(me.pid, "PAT"), None);
        assert!(name(me.pid).starts_with(&format!("process {} (", me.pid)), "{}", name(me.pid));
        assert_eq!(name(u32::MAX), format!("process {}", u32::MAX));
        let first = std::env::args().next().unwrap();
        assert_eq!(has_word(me.pid, &first), Some(true));
        assert_eq!(has_word(me.pid, "TMS_NO_SUCH_WORD"), Some(false));
        assert_eq!(has_word(u32::MAX, &first), None);
        assert_eq!(Path::new(&first).file_name().unwrap().to_str(), program(me.pid).as_deref());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}") {
            let _seen = parse_stat(&text);
        }
    }
}
