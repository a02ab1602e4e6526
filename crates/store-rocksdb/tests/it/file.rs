//! What only files can show: a second process, a killed one, a folder that goes away.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tms_conformance::store::samples::{announce, hand_over, naming, table_id};
use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_core::store::kv::OrderedKv;
use tms_store_rocksdb::{FOLDER_NAME, RocksKv, open};

use crate::{child, rows};

/// Holds the store of the parent's folder until its input ends. Passes at once when nobody asks for it.
#[tokio::test]
async fn child_that_holds_a_store() {
    let Some(folder) = child::folder() else { return };
    let store = open(&folder).await.unwrap();
    store.accept(&[naming("child", Action::Compaction, &["1"])]).await.unwrap();
    println!("HELD");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(store);
}

/// Holds the store of the parent's folder as RocksDB's own tools do.
#[test]
fn child_that_is_another_program() {
    let Some(folder) = child::folder() else { return };
    let own = folder.join(FOLDER_NAME);
    let options = rocksdb::Options::default();
    let names = rocksdb::DB::list_cf(&options, &own).unwrap();
    let held = rocksdb::DB::open_cf(&options, &own, names).unwrap();
    println!("HELD");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(held);
}

/// RocksDB has a lock of its own, which its tools respect.
#[tokio::test]
async fn store_held_by_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).await.unwrap());
    let mut tool =
        child::Running::start(child::command("file::child_that_is_another_program", folder.path()));
    tool.until("HELD");
    let error = open(folder.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(error.hint_text().unwrap().contains("held by another process"));
    assert!(!error.chain().contains("/proc"), "{}", error.chain());
    tool.kill();
    open(folder.path()).await.unwrap();
}

#[tokio::test]
async fn folders_are_for_the_owner_only_and_no_draft_is_left() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let store = open(&folder).await.unwrap();
    announce(&*store, "t").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join(FOLDER_NAME)), 0o700);
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [FOLDER_NAME]);
}

#[tokio::test]
async fn draft_of_a_killed_server_is_no_store_and_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let draft = folder.path().join(format!("{FOLDER_NAME}.1-0.new"));
    std::fs::create_dir(&draft).unwrap();
    std::fs::write(draft.join("CURRENT"), "half a store").unwrap();
    let store = open(folder.path()).await.unwrap();
    announce(&*store, "t").await;
    assert!(!draft.exists());
}

/// Stores batches without pause and says each one that was acknowledged.
#[test]
fn child_that_stores_without_pause() {
    let Some(folder) = child::folder() else { return };
    let kv = RocksKv::open_blocking(&folder).unwrap();
    for n in rows::count(&kv).. {
        rows::store(&kv, n).unwrap();
        println!("ACK {n}");
    }
}

/// Starts a child that stores without pause, kills it after `n_more` batches, and returns how many were acknowledged.
pub(crate) fn killed_after(folder: &Path, n_before: u64, n_more: u64) -> u64 {
    let mut child = child::Running::start(child::command("file::child_that_stores_without_pause", folder));
    let mut said = child.until(&format!("ACK {}\n", n_before + n_more - 1));
    said.push_str(&child.kill());
    let acknowledged =
        said.lines().filter_map(|line| line.strip_prefix("ACK ")).filter_map(|n| n.parse().ok());
    acknowledged.max().unwrap_or(n_before) + 1
}

#[tokio::test]
async fn nothing_is_acknowledged_while_the_folder_is_gone_or_another_one_stands_there() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, away) = (parent.path().join("data"), parent.path().join("away"));
    let store = open(&folder).await.unwrap();
    announce(&*store, "before").await;
    let refused = async |what: &str| {
        let error = store.accept(&[hand_over("lost")]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(error.chain().contains(what), "{}", error.chain());
        assert!(store.check().await.is_err(), "not ready");
        assert!(store.get_table(table_id("before")).await.unwrap().is_some(), "it can still be read");
        assert!(store.get_table(table_id("lost")).await.unwrap().is_none());
    };
    std::fs::rename(&folder, &away).unwrap();
    refused("removed or moved").await;
    // A second server begins a store of its own there; both must not be told apart by their path alone.
    let mut second = child::Running::start(child::command("file::child_that_holds_a_store", &folder));
    second.until("HELD");
    refused("replaced by another file").await;
    second.kill();
    refused("replaced by another file").await;

    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    store.check().await.unwrap();
    announce(&*store, "after").await;

    std::fs::remove_dir_all(folder.join(FOLDER_NAME)).unwrap();
    refused("removed or moved").await;
    assert!(!folder.join(FOLDER_NAME).exists(), "nothing is begun in its place");
}

/// RocksDB makes and removes files by name in the background and when it is closed.
#[tokio::test]
async fn store_that_was_moved_away_does_nothing_to_the_one_in_its_place() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, away) = (parent.path().join("data"), parent.path().join("away"));
    // Opened a few times, so that its files have higher numbers than the other's, which it would take for old ones.
    let mut kv = RocksKv::open_blocking(&folder).unwrap();
    for n in 0..20 {
        if n % 4 == 0 {
            drop(kv);
            kv = RocksKv::open_blocking(&folder).unwrap();
        }
        rows::store(&kv, n).unwrap();
    }
    std::fs::rename(&folder, &away).unwrap();
    let mut second = child::Running::start(child::command("file::child_that_holds_a_store", &folder));
    second.until("HELD");
    second.kill();
    let content = || {
        let own = folder.join(FOLDER_NAME);
        let files = std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect();
        files.sort();
        files
    };
    let before = content();
    assert!(rows::store(&kv, 20).is_err());
    assert!(!rows::check_all(&kv, 20, "moved away"), "it can still be read");
    drop(kv);
    assert!(content() == before, "the other store was changed");
    let store = open(&folder).await.unwrap();
    assert!(store.get_table(table_id("child")).await.unwrap().is_some());
    assert!(!rows::check_all(&RocksKv::open_blocking(&away).unwrap(), 20, "opened where it lies now"));
}

#[tokio::test]
async fn closing_writes_out_what_the_log_held() {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open_blocking(folder.path()).unwrap();
    for n in 0..20 {
        rows::store(&kv, n).unwrap();
    }
    drop(kv);
    let own = folder.path().join(FOLDER_NAME);
    let logs = std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path());
    for log in logs.filter(|path| path.extension().is_some_and(|e| e == "log")) {
        std::fs::write(&log, []).unwrap();
    }
    let kv = RocksKv::open_blocking(folder.path()).unwrap();
    assert!(!rows::check_all(&kv, 20, "without the log"));
    drop(kv.snapshot().unwrap());
}
