//! Files that are shorter than they were, or in which bits were turned: each is told, or nothing is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tms_core::store::Store;
use tms_core::{Error, ErrorKind};

use super::DiskHarness;
use super::process::{killed_after, runtime, say};
use crate::power::Dice;
use crate::steps::{self, Fault};

/// Steps of the store that is damaged.
const STEPS: u64 = 120;
/// Cases of one test, shared by the files; and the fewest that a file gets.
const CASES: usize = 100;
const CASES_MIN: usize = 4;
const SEED: u64 = 18;

/// How a store that is damaged was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Killed,
    Closed,
}

struct Victim {
    folder: TempDir,
    n_steps: u64,
}

impl Victim {
    fn new<H: DiskHarness>(child: &str, left: Left) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut n_steps = killed_after(child, folder.path(), STEPS);
        if left == Left::Closed {
            let store = H::open(folder.path()).unwrap();
            n_steps = runtime().block_on(steps::verify(&*store, n_steps)).unwrap();
            close(store);
        }
        Self { folder, n_steps }
    }

    /// Copies the store, with one file as `damage` leaves it.
    fn with(&self, file: &Path, damage: impl FnOnce(Vec<u8>) -> Vec<u8>) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        for from in files(self.folder.path()) {
            let relative = from.strip_prefix(self.folder.path()).unwrap();
            let to = copy.path().join(relative);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(&from, to).unwrap();
        }
        let to = copy.path().join(file.strip_prefix(self.folder.path()).unwrap());
        let bytes = std::fs::read(&to).unwrap();
        std::fs::write(to, damage(bytes)).unwrap();
        copy
    }
}

/// A store is closed when nobody holds it, on the blocking pool neither.
fn close(store: Arc<dyn Store>) {
    drop(store);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all.sort();
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    NothingLost,
    Refused,
    ToldByARead,
    Silent,
}

fn check_told(what: &str, error: &Error) {
    let is_right =
        matches!(error.kind(), ErrorKind::Unexpected | ErrorKind::Unsupported | ErrorKind::Invalid);
    assert!(is_right, "{what}: {}", error.chain());
}

fn look<H: DiskHarness>(what: &str, folder: &Path, n_acknowledged: u64) -> (Found, String) {
    let store = match H::open(folder) {
        Ok(store) => store,
        Err(error) => {
            check_told(what, &error);
            assert!(error.hint_text().is_some(), "{what}: {}", error.chain());
            return (Found::Refused, error.chain());
        }
    };
    match runtime().block_on(steps::verify(&*store, n_acknowledged)) {
        Ok(_) => (Found::NothingLost, String::new()),
        Err(Fault::Told(error)) => {
            check_told(what, &error);
            (Found::ToldByARead, error.chain())
        }
        Err(fault @ Fault::Silent(_)) => (Found::Silent, fault.to_string()),
    }
}

/// Damages each file of a store that was killed, and of one that was closed, and looks at what comes of it.
fn damage_all<H: DiskHarness>(
    child: &str,
    is_silence_allowed: bool,
    damage: impl Fn(&mut Vec<u8>, &mut Dice),
) {
    let mut dice = Dice::new(SEED);
    for left in [Left::Killed, Left::Closed] {
        let victim = Victim::new::<H>(child, left);
        let all = files(victim.folder.path());
        let n_each = (CASES / all.len()).max(CASES_MIN);
        let mut counts: BTreeMap<Found, u32> = BTreeMap::new();
        let mut silent = Vec::new();
        for file in all.iter().filter(|file| std::fs::metadata(file).unwrap().len() > 0) {
            for n in 0..n_each {
                let name = file.file_name().unwrap().to_string_lossy();
                let what = format!("{left:?}, {name}, case {n}");
                let copy = victim.with(file, |mut bytes| {
                    damage(&mut bytes, &mut dice);
                    bytes
                });
                let (found, said) = look::<H>(&what, copy.path(), victim.n_steps);
                *counts.entry(found).or_default() += 1;
                if found == Found::Silent {
                    silent.push(format!("{what}: {said}"));
                }
            }
        }
        say(&format!("{left:?}: {counts:?}"));
        silent.iter().for_each(|what| say(what));
        assert!(silent.is_empty() || is_silence_allowed, "{silent:#?}");
    }
}

/// A file that was cut is told, or nothing that was acknowledged is lost.
pub fn cut_file_is_told_or_has_lost_nothing<H: DiskHarness>(child: &str) {
    damage_all::<H>(child, false, |bytes, dice| {
        let n_bytes = bytes.len() as u64;
        // Ends are cut as often as middles: what was written last lies there.
        let kept = match dice.below(8) {
            0 => 0,
            1 => n_bytes - 1,
            2 => n_bytes - dice.below(n_bytes.min(4_096)) - 1,
            _ => dice.below(n_bytes),
        };
        bytes.truncate(usize::try_from(kept).unwrap());
    });
}

/// A flipped bit is told, or nothing that was acknowledged is lost. A store that trusts its disk in that may be silent,
/// and does not end the process.
pub fn flipped_bit_is_told_or_has_lost_nothing<H: DiskHarness>(child: &str) {
    damage_all::<H>(child, !H::FINDS_FLIPPED_BITS, |bytes, dice| {
        let at = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
        bytes[at] ^= 1 << dice.below(8);
    });
}
