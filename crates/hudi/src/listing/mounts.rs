//! Which mount a path lies on, told without asking that mount: it may be the one that hangs.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The kernel's number of a mount. What is mounted anew at the same place has another one.
pub(super) type MountId = u64;

/// Where the kernel lists the mounts of this process (`proc(5)`).
const MOUNTS_FILE: &str = "/proc/self/mountinfo";
/// Most links that are followed, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Returns the mount of a path; none where the kernel does not list them. Links are followed on the root's own mount
/// only: beyond it even that may hang.
pub(super) fn mount_of(path: &Path) -> Option<MountId> {
    let text = fs::read(MOUNTS_FILE).ok()?;
    let mounts = parse(&text);
    deepest(&mounts, &resolve(path, &mounts))
}

fn deepest(mounts: &[(MountId, PathBuf)], path: &Path) -> Option<MountId> {
    // Of those at one place the last one lies on top.
    mounts
        .iter()
        .filter(|(_, point)| path.starts_with(point))
        .max_by_key(|(_, point)| point.components().count())
        .map(|(id, _)| *id)
}

/// Reads `36 35 98:0 /root /mount/point …`; odd characters of the place stand as `\040`.
fn parse(text: &[u8]) -> Vec<(MountId, PathBuf)> {
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            Some((id, PathBuf::from(OsString::from_vec(unescape(fields.nth(3)?)))))
        })
        .collect()
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

fn resolve(path: &Path, mounts: &[(MountId, PathBuf)]) -> PathBuf {
    let parts_of = |path: &Path| -> Vec<OsString> {
        let named = path.components().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir));
        named.map(|c| c.as_os_str().to_owned()).collect()
    };
    let mut rest: VecDeque<OsString> = parts_of(path).into();
    let mut resolved = PathBuf::from("/");
    let mut n_links = 0;
    while let Some(part) = rest.pop_front() {
        if part.as_os_str() == OsStr::new("..") {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&part);
        if mounts.iter().any(|(_, point)| *point == next) {
            resolved = next;
            resolved.extend(rest);
            break;
        }
        match fs::read_link(&next) {
            Ok(target) if n_links < LINKS_MAX => {
                n_links += 1;
                if target.is_absolute() {
                    resolved = PathBuf::from("/");
                }
                parts_of(&target).into_iter().rev().for_each(|part| rest.push_front(part));
            }
            _ => resolved = next,
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_odd_names_and_the_deepest_and_newest_counts() {
        let text = b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 27 0:1 / /mnt/a\\040b rw shared:1 - nfs4 h:/x rw\n\
            31 30 0:2 / /mnt/a\\040b/c rw - fuse x rw\n\
            40 27 0:3 / /mnt/a\\040b/c rw - fuse y rw\nodd\n";
        let mounts = parse(text);
        let of = |path: &str| deepest(&mounts, Path::new(path));
        assert_eq!(of("/lake/t"), Some(27));
        assert_eq!(of("/mnt/a b/t"), Some(30));
        assert_eq!(of("/mnt/a bc"), Some(27));
        assert_eq!(of("/mnt/a b/c/t"), Some(40));
    }

    #[test]
    fn links_lead_to_the_mount_that_they_mean() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/dead/nfs", real.join("lake")).unwrap();
        std::os::unix::fs::symlink("lake/../other", real.join("up")).unwrap();
        std::os::unix::fs::symlink("round", real.join("round")).unwrap();
        let mounts = [(1, PathBuf::from("/")), (2, PathBuf::from("/dead/nfs"))];
        let of = |name: &str| deepest(&mounts, &resolve(&real.join(name), &mounts));
        assert_eq!(of("t"), Some(1));
        assert_eq!(of("lake/t"), Some(2));
        assert_eq!(of("round/t"), Some(1));
    }

    #[test]
    fn every_path_of_this_machine_lies_on_a_mount() {
        let root = mount_of(Path::new("/")).unwrap();
        assert_ne!(mount_of(Path::new("/proc/self")), Some(root));
        assert!(mount_of(Path::new("/no/such/place")).is_some());
    }
}
