//! A disk without room: an error of the right kind, reads that go on, and no restart to heal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use tms_conformance::store::samples::{announce, hand_over, table_id};
use tms_core::ErrorKind;
use tms_core::model::request::HandOver;
use tms_core::store::Store;
use tms_store_rocksdb::open;

use crate::child;

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit on the size of files: a few batches reach it, and the probe of the disk does not fit.
const FILE_BYTES: u64 = 512 * 1024;
/// Bytes of the small disk, and those that are left on it.
const DISK_BYTES: usize = 48 * 1024 * 1024;
const LEFT_BYTES: usize = 1024 * 1024;
const BALLAST: &str = "ballast";

fn batch(n: usize) -> Vec<HandOver> {
    (0..200).map(|of_batch| hand_over(&format!("t{n}-{of_batch}"))).collect()
}

/// Stores until the disk is full; returns how many batches were acknowledged.
async fn fill(store: &dyn Store) -> usize {
    let mut n_stored = 0;
    let error = loop {
        match store.accept(&batch(n_stored)).await {
            Ok(_) => n_stored += 1,
            Err(error) => break error,
        }
        assert!(n_stored < 2_000, "the disk never was full");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(error.hint_text().is_some());
    n_stored
}

async fn still_reads(store: &dyn Store, n_stored: usize) {
    assert!(store.get_table(table_id("before")).await.unwrap().is_some());
    for n in 0..n_stored {
        assert!(store.get_table(table_id(&format!("t{n}-0"))).await.unwrap().is_some(), "batch {n} is lost");
    }
}

/// Goes on for some trials, none of which may be acknowledged.
async fn stays_full(store: &dyn Store, n_stored: usize) {
    for _ in 0..100 {
        assert!(store.accept(&batch(n_stored)).await.is_err(), "it is still full");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    still_reads(store, n_stored).await;
}

async fn heals(store: &dyn Store, n_stored: usize) {
    let healed = async {
        while store.accept(&batch(n_stored)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, healed).await.expect("it never healed");
    store.check().await.unwrap();
    announce(store, "after").await;
    still_reads(store, n_stored + 1).await;
}

/// Fills its disk, which is bounded by a limit on the size of files, and goes on when there is room again.
#[tokio::test]
async fn child_whose_files_are_bounded() {
    let Some(folder) = child::folder() else { return };
    let store = open(&folder).await.unwrap();
    announce(&*store, "before").await;
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    limit(Some(FILE_BYTES));
    let n_stored = fill(&*store).await;
    stays_full(&*store, n_stored).await;
    limit(None);
    heals(&*store, n_stored).await;
    drop(store);
    still_reads(&*open(&folder).await.unwrap(), n_stored + 1).await;
    println!("HEALED");
}

#[test]
fn full_disk_is_an_error_and_heals_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    // The signal that a too large file brings is ignored, so that the write fails instead.
    let shell = r#"trap '' XFSZ; exec "$0" "$@""#;
    says_healed(child::command_behind(shell, "full::child_whose_files_are_bounded", folder.path()));
}

fn says_healed(mut command: Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("HEALED"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn ballast(folder: &Path, n_bytes: usize) {
    std::fs::write(folder.join(BALLAST), vec![0; n_bytes]).unwrap();
}

/// Fills a small disk of its own, comes back from that once without and once with a restart.
#[tokio::test]
async fn child_on_a_small_disk() {
    let Some(disk) = child::folder() else { return };
    let folder = disk.join("data");
    let store = open(&folder).await.unwrap();
    announce(&*store, "before").await;
    let statvfs = || rustix::fs::statvfs(&disk).unwrap();
    let free = || usize::try_from(statvfs().f_bavail * statvfs().f_frsize).unwrap();
    ballast(&disk, free() - LEFT_BYTES);
    let n_stored = fill(&*store).await;
    stays_full(&*store, n_stored).await;
    std::fs::remove_file(disk.join(BALLAST)).unwrap();
    heals(&*store, n_stored).await;

    ballast(&disk, free() - LEFT_BYTES);
    let mut n_more = n_stored + 1;
    while store.accept(&batch(n_more)).await.is_ok() {
        n_more += 1;
    }
    drop(store);
    std::fs::write(disk.join("rest"), vec![0; free()]).unwrap();
    if let Err(error) = open(&folder).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(error.hint_text().unwrap().contains("space"), "{}", error.chain());
        println!("REFUSED");
    }
    std::fs::remove_file(disk.join("rest")).unwrap();
    std::fs::remove_file(disk.join(BALLAST)).unwrap();
    let store = open(&folder).await.unwrap();
    still_reads(&*store, n_more).await;
    announce(&*store, "at last").await;
    println!("HEALED");
}

#[test]
fn small_disk_that_is_full_heals_with_and_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |then: &str| {
        let shell = format!("mount -t tmpfs -o size={DISK_BYTES} tms \"$TMS_ROCKSDB_TEST_FOLDER\" && {then}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &shell]);
        command.env("TMS_ROCKSDB_TEST_FOLDER", folder.path());
        command
    };
    // A mount of the child's own, which ends with it.
    if !mount("true").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED small disk: this user may not mount one");
        return;
    }
    let mut command = mount(r#"exec "$0" "$@""#);
    command.arg(std::env::current_exe().unwrap());
    command.args(["full::child_on_a_small_disk", "--exact", "--nocapture", "--test-threads=1"]);
    says_healed(command);
}
