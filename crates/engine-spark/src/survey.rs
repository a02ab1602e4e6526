//! One look at the processes of this host, shared by all jobs of one poll. What costs more than a list is looked up at
//! most once, and only when a job asks for it: one whose session looks empty.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use tms_core::model::id::Tag;

use crate::place::Place;
use crate::proc::{self, ProcessSeen, Processes};

/// What every process of an attempt is started with; its value is the tag.
pub const TAG_VARIABLE: &str = "TMS_JOB_TAG";
/// Name of the file that a process of an attempt holds a lock on.
pub const LOCK_FILE: &str = "alive";
/// Looks for what carries a tag: one alone can miss a process that was forked behind it, or that is in the middle of an `exec`.
const TAG_LOOKS: u32 = 2;

/// Processes by the tag of their attempt.
type ByTag = BTreeMap<String, BTreeMap<u32, ProcessSeen>>;

/// What one look at this host found.
#[derive(Debug)]
pub struct Survey {
    here: Place,
    processes: Processes,
    tagged: OnceCell<ByTag>,
    holders: OnceCell<ByTag>,
}

impl Survey {
    /// Lists the processes.
    ///
    /// # Errors
    /// `/proc` cannot be read, or does not even show this process.
    pub fn new() -> io::Result<Self> {
        let (here, processes) = (Place::here()?, proc::scan()?);
        Ok(Self { here, processes, tagged: OnceCell::new(), holders: OnceCell::new() })
    }

    /// Returns where the looker is.
    #[must_use]
    pub fn here(&self) -> &Place {
        &self.here
    }

    /// Returns all processes.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Returns the living processes, in whatever session, that were started with this tag. The first call looks at the
    /// environment of every process; one that does not show its own, as of another user, is nobody's.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn tagged(&self, tag: &Tag) -> io::Result<Vec<ProcessSeen>> {
        find(&self.tagged, tag, look_at_tags)
    }

    /// Returns the tags that living processes of this host were started with, those of another TMS too.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn all_tags(&self) -> io::Result<Vec<Tag>> {
        Ok(in_cell(&self.tagged, look_at_tags)?.keys().filter_map(|tag| tag.parse().ok()).collect())
    }

    /// Returns the living processes that inherited the lock of this tag's attempt, whatever they were started with. The
    /// first call looks at the open files of every process.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn holders(&self, tag: &Tag) -> io::Result<Vec<ProcessSeen>> {
        let look = || {
            let mut all = ByTag::new();
            each_other(|seen| {
                let is_lock = |path: &Path| path.file_name() == Some(OsStr::new(LOCK_FILE));
                for path in proc::locked_files(seen.mark.pid, is_lock) {
                    let folder = path.parent().and_then(Path::file_name).map(OsStr::to_string_lossy);
                    if let Some(tag) = folder {
                        all.entry(tag.into_owned()).or_default().insert(seen.mark.pid, seen);
                    }
                }
            })?;
            Ok(all)
        };
        find(&self.holders, tag, look)
    }
}

fn look_at_tags() -> io::Result<ByTag> {
    let mut all = ByTag::new();
    for _ in 0..TAG_LOOKS {
        each_other(|seen| {
            if let Some(tag) = proc::environment_value(seen.mark.pid, TAG_VARIABLE) {
                all.entry(tag).or_default().insert(seen.mark.pid, seen);
            }
        })?;
    }
    Ok(all)
}

fn in_cell(cell: &OnceCell<ByTag>, look: impl FnOnce() -> io::Result<ByTag>) -> io::Result<&ByTag> {
    match cell.get() {
        Some(all) => Ok(all),
        None => {
            let found = look()?;
            Ok(cell.get_or_init(|| found))
        }
    }
}

fn find(
    cell: &OnceCell<ByTag>,
    tag: &Tag,
    look: impl FnOnce() -> io::Result<ByTag>,
) -> io::Result<Vec<ProcessSeen>> {
    let all = in_cell(cell, look)?;
    Ok(all.get(tag.as_str()).map(|found| found.values().copied().collect()).unwrap_or_default())
}

/// Calls for each living process but this one, which is never part of an attempt.
fn each_other(mut with: impl FnMut(ProcessSeen)) -> io::Result<()> {
    let me = std::process::id();
    for seen in proc::scan()?.into_values().filter(|seen| !seen.is_zombie && seen.mark.pid != me) {
        with(seen);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use tempfile::TempDir;
    use tms_core::model::id::{Incarnation, InstanceId};

    use super::*;
    use crate::attempt::AttemptFolder;

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    fn tag() -> Tag {
        Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1)
    }

    fn sleeper(tag: &Tag, stdin: Stdio) -> Ended {
        Ended(Command::new("sleep").arg("60").env(TAG_VARIABLE, tag.as_str()).stdin(stdin).spawn().unwrap())
    }

    fn pids(seen: &[ProcessSeen]) -> Vec<u32> {
        seen.iter().map(|seen| seen.mark.pid).collect()
    }

    #[test]
    fn all_jobs_of_one_look_share_one_look_at_the_environments() {
        let (first, second) = (tag(), tag());
        let one = sleeper(&first, Stdio::null());
        let survey = Survey::new().unwrap();
        assert_eq!(pids(&survey.tagged(&first).unwrap()), [one.0.id()]);
        // It came after the look, which is not made again for another job.
        let two = sleeper(&second, Stdio::null());
        assert_eq!(survey.tagged(&second).unwrap(), []);
        assert_eq!(pids(&Survey::new().unwrap().tagged(&second).unwrap()), [two.0.id()]);
    }

    #[test]
    fn who_inherited_the_lock_is_found_without_its_environment() {
        let (temp, tag) = (TempDir::new().unwrap(), tag());
        let folder = AttemptFolder::of(temp.path(), &tag);
        folder.make().unwrap();
        let lock = folder.lock_alive().unwrap();
        let other = self::tag();
        let heir = sleeper(&other, Stdio::from(lock));
        // One that looks at the file, as this process does, holds nothing.
        let looker =
            sleeper(&other, Stdio::from(std::fs::File::open(folder.path().join(LOCK_FILE)).unwrap()));
        // A child of another test may hold it for the moment before its `exec`.
        let holds =
            |child: &Ended| pids(&Survey::new().unwrap().holders(&tag).unwrap()).contains(&child.0.id());
        assert!(holds(&heir) && !holds(&looker));
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(holds(&heir) && !holds(&looker));
    }
}
