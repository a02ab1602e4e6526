//! What only a file can show.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use tms_conformance::store::samples::{announce, hand_over, naming, table_id};
use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_store_redb::{FILE_NAME, open};

/// Set for the process that a test starts: the folder that it is to open.
const CHILD_FOLDER: &str = "TMS_REDB_TEST_FOLDER";

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts this test program again for one test.
fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD_FOLDER, folder);
    command
}

fn folder_of_child() -> Option<std::path::PathBuf> {
    std::env::var_os(CHILD_FOLDER).map(Into::into)
}

/// Holds the store of the parent's folder until its input ends. Passes at once when nobody asks for it.
#[tokio::test]
async fn child_that_holds_a_store() {
    let Some(folder) = folder_of_child() else { return };
    let store = open(&folder).await.unwrap();
    store.accept(&[naming("child", Action::Compaction, &["1"])]).await.unwrap();
    println!("HELD");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(store);
}

#[tokio::test]
async fn store_held_by_another_process_is_refused_and_found_whole_when_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut held = child("file::child_that_holds_a_store", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut output = held.stdout.take().unwrap();
    while !String::from_utf8_lossy(&said).contains("HELD") {
        let mut byte = [0];
        assert_eq!(output.read(&mut byte).unwrap(), 1, "the child ended: {}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    let error = open(folder.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(error.hint_text().unwrap().contains("held by another process"));

    held.kill().unwrap();
    held.wait().unwrap();
    let store = open(folder.path()).await.unwrap();
    let record = store.get_table(table_id("child")).await.unwrap().expect("it was acknowledged");
    assert_eq!(record.touch.touch, 1);
    assert_eq!(store.live_of_table(table_id("child")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn second_opening_in_one_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).await.unwrap();
    assert_eq!(open(folder.path()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    drop(first);
    open(folder.path()).await.unwrap();
}

#[tokio::test]
async fn folder_and_file_are_for_the_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let store = open(&folder).await.unwrap();
    announce(&*store, "t").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join(FILE_NAME)), 0o600);
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [FILE_NAME], "no draft is left");
}

#[tokio::test]
async fn openings_at_once_make_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let results = tokio::join!(open(folder.path()), open(folder.path()), open(folder.path()));
    let opened: Vec<_> = [results.0, results.1, results.2].into_iter().flatten().collect();
    assert!(opened.len() <= 1, "one file, two stores");
    drop(opened);
    open(folder.path()).await.unwrap();
}

/// Makes a store with some rows and closes it.
async fn make_store(folder: &Path) {
    let store = open(folder).await.unwrap();
    for n in 0..50 {
        announce(&*store, &format!("t{n}")).await;
    }
}

#[tokio::test]
async fn damaged_file_is_refused_with_its_name_and_left_alone() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let cases: [(&str, Damage); 6] = [
        ("emptied", |_| Vec::new()),
        ("a text", |_| b"hello".to_vec()),
        ("another kind of file", |bytes| vec![b'x'; bytes.len()]),
        ("cut in its head", |bytes| bytes[..100].to_vec()),
        ("cut in its body", |bytes| bytes[..8192].to_vec()),
        ("head overwritten", |mut bytes| {
            bytes[..4096].fill(0xA5);
            bytes
        }),
    ];
    for (name, damage) in cases {
        let folder = tempfile::tempdir().unwrap();
        make_store(folder.path()).await;
        let file = folder.path().join(FILE_NAME);
        std::fs::write(&file, damage(std::fs::read(&file).unwrap())).unwrap();
        check_refused(name, folder.path()).await;
    }
}

async fn check_refused(name: &str, folder: &Path) {
    let file = folder.join(FILE_NAME);
    let before = std::fs::read(&file).unwrap();
    let error = open(folder).await.map(|_| ()).expect_err(name);
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{name}: {}", error.chain());
    assert!(error.to_string().contains(FILE_NAME), "{name}: {error}");
    assert!(error.hint_text().is_some(), "{name}");
    assert_eq!(std::fs::read(&file).unwrap(), before, "{name}: evidence is kept");
}

#[tokio::test]
async fn damage_in_the_middle_of_a_closed_file_is_an_error_and_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    make_store(folder.path()).await;
    let path = folder.path().join(FILE_NAME);
    let mut bytes = std::fs::read(&path).unwrap();
    // All pages that hold rows, and none of the head that the opening trusts.
    let name = b"file:/lake/t";
    let rows: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
    assert!(rows.len() >= 50);
    for page in rows.into_iter().map(|at| at / 4096 * 4096) {
        bytes[page..page + 4096].fill(0xA5);
    }
    std::fs::write(&path, bytes).unwrap();
    let Ok(store) = open(folder.path()).await else { return };
    let error = store.list_tables(None, 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{}", error.chain());
    assert!(store.accept(&[naming("t1", Action::Compaction, &["1"])]).await.is_err());
}

/// Fills its disk, which is bounded by a limit on the size of files, and goes on when there is room again.
#[tokio::test]
async fn child_whose_disk_is_full() {
    let Some(folder) = folder_of_child() else { return };
    let store = open(&folder).await.unwrap();
    announce(&*store, "before").await;
    let size = std::fs::metadata(folder.join(FILE_NAME)).unwrap().len();
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    limit(Some(size));
    let mut n_stored = 0;
    let batch = |n_stored| (0..200).map(|n| hand_over(&format!("t{n_stored}-{n}"))).collect::<Vec<_>>();
    let error = loop {
        match store.accept(&batch(n_stored)).await {
            Ok(_) => n_stored += 1,
            Err(error) => break error,
        }
        assert!(n_stored < 1_000, "the disk never was full");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(error.hint_text().is_some());
    assert!(store.accept(&batch(n_stored)).await.is_err(), "it is still full");
    // Reads go on, and each trial of a full disk comes later than the one before.
    assert!(store.get_table(table_id("before")).await.unwrap().is_some());
    limit(None);
    let healed = async {
        while store.accept(&batch(n_stored)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, healed).await.expect("it never healed");
    store.check().await.unwrap();
    announce(&*store, "after").await;
    for name in ["before", "after"] {
        assert!(store.get_table(table_id(name)).await.unwrap().is_some(), "{name}");
    }
    for n in 0..=n_stored {
        let first = table_id(&format!("t{n}-0"));
        assert!(store.get_table(first).await.unwrap().is_some(), "acknowledged batch {n} is lost");
    }
    println!("HEALED");
}

#[test]
fn full_disk_is_an_error_and_heals_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    // The signal that a too large file brings is ignored, so that the write fails instead.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    shell.args(["file::child_whose_disk_is_full", "--exact", "--nocapture", "--test-threads=1"]);
    let output = shell.env(CHILD_FOLDER, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("HEALED"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn folder_that_is_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"x").unwrap();
    let error = open(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.hint_text().is_some());
}

#[tokio::test]
async fn nothing_is_acknowledged_while_the_folder_is_gone_or_another_file_stands_there() {
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
    let second = open(&folder).await.unwrap();
    announce(&*second, "second").await;
    refused("replaced by another file").await;
    drop(second);
    refused("replaced by another file").await;

    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    store.check().await.unwrap();
    announce(&*store, "after").await;

    std::fs::remove_dir_all(&folder).unwrap();
    refused("removed or moved").await;
}
