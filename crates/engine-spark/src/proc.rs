//! What the kernel tells about processes. Reading only; see [`crate::process`] for signals.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// Most processes that one scan takes; the kernel's own limit on 64-bit machines.
const PROCESSES_MAX: usize = 1 << 22;
/// Longest environment of a process that is searched, in bytes; the kernel allows 6 MiB for arguments and environment.
const ENVIRONMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;

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
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    if bytes.is_empty() {
        // A process in the middle of an `exec` shows nothing.
        return None;
    }
    Some(bytes.split(|b| *b == 0).any(|e| e == entry.as_bytes()))
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
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}") {
            let _seen = parse_stat(&text);
        }
    }
}
