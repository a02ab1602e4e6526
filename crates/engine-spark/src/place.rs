//! Where a process runs, and when two places are one.
//!
//! What holds on Linux, and what is therefore believed:
//! - One boot id is one kernel, whatever containers run on it. Another boot id may be the same machine after a boot,
//!   or another machine that shares the disk: then the driver may live there, and nothing here can see it.
//! - Two boots are of one machine only when both say so by machine id *and* host name, and the id is the machine's
//!   own. Images carry machine ids around, containers lack them, and a stateful set keeps its host names while it moves
//!   from machine to machine: so in a container the id counts only when the file is a mount of its own (somebody bound
//!   the machine's there, or the runtime made one for this container), and a host name never counts alone. One mistake
//!   is left to make: machines that share a disk, an id and a name.
//! - A pid namespace whose number is found again is the same one, or the old one is gone with all its processes: the
//!   kernel gives the number away only then. So no process of a session in sight is proof where the numbers agree,
//!   which they often do when a container starts again; where they differ it proves nothing.

use std::fs::{self, File};
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// The namespaces of the machine itself, whose numbers are fixed in the kernel (`include/uapi/linux/nsfs.h`, before
/// that `include/linux/proc_ns.h`). A container keeps the machine's at most in part.
const INITIAL_NAMESPACES: [(&str, &str); 3] =
    [("pid", "pid:[4026531836]"), ("ipc", "ipc:[4026531839]"), ("cgroup", "cgroup:[4026531835]")];
/// Where a machine's id lies (`man machine-id`).
const MACHINE_ID: &str = "/etc/machine-id";
/// Longest list of mounts that is searched, in bytes.
const MOUNTS_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Longest host name that is kept, in characters; the kernel's own limit is 64.
const HOST_CHARS_MAX: usize = 64;

/// Who and where a process is, beside its pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The kernel's random id of this boot.
    pub boot: String,
    /// The namespace that pids are counted in; mostly another one in another container. Empty in old records.
    #[serde(default)]
    pub pid_namespace: String,
    /// Effective user.
    #[serde(default)]
    pub user: u32,
    /// Host name, for people. Empty in old records.
    #[serde(default)]
    pub host: String,
    /// What two boots of one machine have in common; `None` = nothing here tells, as in old records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl Place {
    /// Returns the place of this process.
    ///
    /// # Errors
    /// `/proc` is missing or strange.
    pub fn here() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let pid_namespace = namespace("pid")?;
        if boot.is_empty() || pid_namespace.is_empty() {
            return Err(io::Error::other("/proc tells no boot id or no namespace"));
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let host: String = host.trim().chars().take(HOST_CHARS_MAX).collect();
        let machine = machine(&host);
        Ok(Self { boot, pid_namespace, user: rustix::process::geteuid().as_raw(), host, machine })
    }

    /// Tells whether both are of one boot, hence of one kernel.
    #[must_use]
    pub fn is_same_boot(&self, other: &Self) -> bool {
        self.boot == other.boot
    }

    /// Tells whether both are proven to be of one machine, so that another boot there is the end of the one before.
    #[must_use]
    pub fn is_same_machine(&self, other: &Self) -> bool {
        self.is_same_boot(other) || self.machine.is_some() && self.machine == other.machine
    }

    /// Tells whether `looker` sees every process of this place, so that one it does not see is not there.
    #[must_use]
    pub fn is_shown_to(&self, looker: &Self) -> bool {
        self.is_same_boot(looker)
            && self.pid_namespace == looker.pid_namespace
            && (self.user == looker.user || looker.user == 0)
    }

    /// Names the machine for people.
    #[must_use]
    pub fn machine_name(&self) -> String {
        let host = if self.host.is_empty() { "unknown" } else { &self.host };
        format!("{host} (boot {})", self.boot)
    }
}

fn namespace(kind: &str) -> io::Result<String> {
    Ok(fs::read_link(format!("/proc/self/ns/{kind}"))?.to_string_lossy().into_owned())
}

fn machine(host: &str) -> Option<String> {
    let text = fs::read_to_string(MACHINE_ID).ok()?;
    let id = parse_machine_id(&text)?;
    let is_trusted = is_on_the_machine_itself() || is_machine_id_mounted();
    (is_trusted && !host.is_empty()).then(|| format!("{id}/{host}"))
}

fn is_on_the_machine_itself() -> bool {
    INITIAL_NAMESPACES.iter().all(|(kind, number)| namespace(kind).is_ok_and(|n| n == *number))
}

fn is_machine_id_mounted() -> bool {
    let mut mounts = String::new();
    let read = File::open("/proc/self/mountinfo")
        .and_then(|file| file.take(MOUNTS_BYTES_MAX).read_to_string(&mut mounts));
    read.is_ok() && is_mount_point(&mounts, MACHINE_ID)
}

/// Reads a machine id: 32 hex digits, by `man machine-id`. `uninitialized`, an empty file and zeros are none.
fn parse_machine_id(text: &str) -> Option<&str> {
    let id = text.trim();
    let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) && id.bytes().any(|b| b != b'0');
    is_id.then_some(id)
}

/// Tells whether something is mounted at exactly `path`; the fifth field of `/proc/<pid>/mountinfo`.
fn is_mount_point(mounts: &str, path: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(boot: &str, machine: Option<&str>) -> Place {
        Place {
            boot: boot.to_owned(),
            pid_namespace: "pid:[1]".to_owned(),
            user: 1000,
            host: "h1".to_owned(),
            machine: machine.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn this_place_is_told_and_is_the_same_twice() {
        let here = Place::here().unwrap();
        assert!(!here.boot.is_empty() && here.pid_namespace.starts_with("pid:["), "{here:?}");
        assert_eq!(Place::here().unwrap(), here);
        assert!(here.is_shown_to(&here) && here.is_same_machine(&here));
        let text = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), here);
    }

    #[test]
    fn only_one_boot_or_one_known_machine_is_the_same_machine() {
        let check = |a: &Place, b: &Place, expected| {
            assert_eq!(a.is_same_machine(b), expected, "{a:?} {b:?}");
            assert_eq!(b.is_same_machine(a), expected, "{a:?} {b:?}");
        };
        check(&place("b1", Some("m1")), &place("b2", Some("m1")), true);
        check(&place("b1", Some("m1")), &place("b2", Some("m2")), false);
        check(&place("b1", None), &place("b2", Some("m1")), false);
        // Both unknown is not both the same, not even by one host name.
        check(&place("b1", None), &place("b2", None), false);
        // Two containers on one kernel.
        check(&place("b1", None), &place("b1", None), true);
        check(&place("b1", Some("m1")), &place("b1", Some("m2")), true);
    }

    #[test]
    fn a_record_from_before_machines_were_stored_names_no_machine() {
        let old: Place =
            serde_json::from_str(r#"{"boot":"b1","pid_namespace":"pid:[1]","user":1000}"#).unwrap();
        assert_eq!(old.machine, None);
        assert_eq!(old.machine_name(), "unknown (boot b1)");
        assert!(!old.is_same_machine(&place("b2", Some("m1"))));
        assert!(old.is_shown_to(&place("b1", Some("m1"))));
    }

    #[test]
    fn text_that_is_no_machine_id_is_none() {
        let id = "3d1219c7c4c5404aaa1f6d2a48adfda4";
        assert_eq!(parse_machine_id(&format!("{id}\n")), Some(id));
        for text in
            ["", "\n", "uninitialized\n", &"0".repeat(32), &id[1..], &format!("{id}0"), &"g".repeat(32)]
        {
            assert_eq!(parse_machine_id(text), None, "{text}");
        }
    }

    #[test]
    fn a_bound_machine_id_is_told_from_one_of_the_image() {
        let root = "22 1 0:20 / / rw,relatime - overlay overlay rw\n";
        let named = "30 22 8:1 /x /etc/hostname rw - ext4 /dev/sda1 rw\n31 22 8:1 /etc/machine-id /mnt rw - ext4 /dev/sda1 rw\n";
        let bound = "32 22 8:1 /etc/machine-id /etc/machine-id ro - ext4 /dev/sda1 rw\n";
        assert!(!is_mount_point("", MACHINE_ID));
        assert!(!is_mount_point(&format!("{root}{named}"), MACHINE_ID));
        assert!(is_mount_point(&format!("{root}{named}{bound}"), MACHINE_ID));
    }
}
