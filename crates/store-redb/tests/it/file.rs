//! What only a file can show.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tms_conformance::store::samples::{announce, hand_over, naming, table_id};
use tms_core::ErrorKind;
use tms_core::model::action::Action;
use tms_store_redb::{FILE_NAME, open};

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
