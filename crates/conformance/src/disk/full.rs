//! A disk without room: an error of the right kind, nothing acknowledged that is not there, and no restart to heal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use tms_core::store::Store;
use tms_core::{Error, ErrorKind};

use super::DiskHarness;
use super::process::{FOLDER, Task, command, say};
use crate::steps;

/// Longest wait for a store to heal.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two trials of a full disk.
const PAUSE: Duration = Duration::from_millis(10);
const TRIALS: usize = 50;
/// Steps before the disk is full, and behind it.
const STEPS_BEFORE: u64 = 21;
const STEPS_AFTER: u64 = 20;
const STEPS_MAX: u64 = 20_000;
/// What files may grow until their size is bounded.
const ROOM_BYTES: u64 = 128 * 1024;
/// Bytes of the small disk, and those that are left on it.
const DISK_BYTES: u64 = 48 * 1024 * 1024;
const LEFT_BYTES: u64 = 1024 * 1024;
const BALLAST: &str = "ballast";
const HEALED: &str = "HEALED";

/// Makes the step behind those that the store holds.
async fn make_next(store: &dyn Store) -> Result<(), Error> {
    let n_steps = steps::count(store).await?;
    steps::make(store, n_steps).await
}

/// Makes steps until the disk is full. Returns how many were acknowledged in all.
async fn fill(store: &dyn Store, mut n_steps: u64) -> u64 {
    let error = loop {
        match steps::make(store, n_steps).await {
            Ok(()) => n_steps += 1,
            Err(error) => break error,
        }
        assert!(n_steps < STEPS_MAX, "the disk never was full");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(error.hint_text().is_some());
    n_steps
}

/// Tries for a while; nothing may be acknowledged, and what is there can be read.
async fn stays_full(store: &dyn Store, n_steps: u64) {
    let mut n_reads = 0;
    for _ in 0..TRIALS {
        if let Ok(found) = steps::count(store).await {
            assert!((n_steps..=n_steps + 1).contains(&found), "{found} steps of {n_steps}");
            n_reads += 1;
            assert!(steps::make(store, found).await.is_err(), "it is still full");
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert!(n_reads > 0, "nothing could be read");
}

async fn heals(store: &dyn Store, n_steps: u64) -> u64 {
    let healed = async {
        while make_next(store).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, healed).await.expect("it never healed");
    for _ in 0..STEPS_AFTER {
        make_next(store).await.unwrap();
    }
    let found = steps::count(store).await.unwrap();
    assert!((n_steps..=n_steps + 2 + STEPS_AFTER).contains(&found), "{found} steps of {n_steps}");
    steps::verify(store, found).await.unwrap_or_else(|fault| panic!("{fault}"))
}

fn largest_file(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() { largest_file(&entry.path()) } else { meta.len() }
    });
    sizes.max().unwrap_or(0)
}

/// The child of [`full_files_are_told_and_heal`].
pub(super) async fn fill_files<H: DiskHarness>(folder: &Path) {
    let store = H::open(folder).unwrap();
    for n in 0..STEPS_BEFORE {
        steps::make(&*store, n).await.unwrap();
    }
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    limit(Some(largest_file(folder) + ROOM_BYTES));
    let n_steps = fill(&*store, STEPS_BEFORE).await;
    stays_full(&*store, n_steps).await;
    limit(None);
    let n_steps = heals(&*store, n_steps).await;
    drop(store);
    steps::verify(&*H::open(folder).unwrap(), n_steps).await.unwrap_or_else(|fault| panic!("{fault}"));
    say(HEALED);
}

/// Files that may not grow are an error, nothing acknowledged is lost, and the store heals without a restart.
pub fn full_files_are_told_and_heal<H: DiskHarness>(child: &str) {
    let folder = tempfile::tempdir().unwrap();
    // The signal that a too large file brings is ignored, so that the write fails instead.
    let shell = r#"trap '' XFSZ; exec "$0" "$@""#;
    says_healed(&mut command(child, Task::FullFiles, folder.path(), Some(shell)));
}

fn says_healed(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let is_healed = output.status.success() && said.contains(HEALED);
    assert!(is_healed, "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn free(disk: &Path) -> u64 {
    let found = rustix::fs::statvfs(disk).unwrap();
    found.f_bavail * found.f_frsize
}

fn zeros(file: &Path, n_bytes: u64) {
    std::fs::write(file, vec![0; usize::try_from(n_bytes).unwrap()]).unwrap();
}

/// The child of [`full_disk_is_told_and_heals`]: once without a restart, and once with one.
pub(super) async fn fill_disk<H: DiskHarness>(disk: &Path) {
    let (folder, ballast) = (disk.join("data"), disk.join(BALLAST));
    let store = H::open(&folder).unwrap();
    for n in 0..STEPS_BEFORE {
        steps::make(&*store, n).await.unwrap();
    }
    zeros(&ballast, free(disk) - LEFT_BYTES);
    let n_steps = fill(&*store, STEPS_BEFORE).await;
    stays_full(&*store, n_steps).await;
    std::fs::remove_file(&ballast).unwrap();
    let n_steps = heals(&*store, n_steps).await;

    zeros(&ballast, free(disk) - LEFT_BYTES);
    let n_steps = fill(&*store, n_steps).await;
    drop(store);
    let rest = disk.join("rest");
    zeros(&rest, free(disk));
    if let Err(error) = H::open(&folder) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(error.hint_text().unwrap().contains("space"), "{}", error.chain());
    }
    std::fs::remove_file(&rest).unwrap();
    std::fs::remove_file(&ballast).unwrap();
    let store = H::open(&folder).unwrap();
    steps::verify(&*store, n_steps).await.unwrap_or_else(|fault| panic!("{fault}"));
    make_next(&*store).await.unwrap();
    say(HEALED);
}

/// A small disk that is full is an error, nothing acknowledged is lost, and the store heals with and without a restart.
pub fn full_disk_is_told_and_heals<H: DiskHarness>(child: &str) {
    let folder = tempfile::tempdir().unwrap();
    // A mount of the child's own, which ends with it.
    let mount = format!("mount -t tmpfs -o size={DISK_BYTES} tms \"${FOLDER}\"");
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "sh", "-c", &mount]).env(FOLDER, folder.path());
    if !probe.output().is_ok_and(|output| output.status.success()) {
        say("SKIPPED small disk: this user may not mount one");
        return;
    }
    let mounted =
        command(child, Task::FullDisk, folder.path(), Some(&format!(r#"{mount} && exec "$0" "$@""#)));
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount").arg(mounted.get_program()).args(mounted.get_args());
    unshare.envs(mounted.get_envs().filter_map(|(name, value)| Some((name, value?))));
    says_healed(&mut unshare);
}
