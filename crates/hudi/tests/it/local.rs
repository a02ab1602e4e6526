//! Local files: spellings, odd names, and the three answers that must never be mixed up.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use tms_hudi::{ErrorKind, HudiTable, Listing, ListingErrorKind, LocalListing};

use crate::common::{look, unpack};

#[tokio::test]
async fn all_spellings_of_a_local_path_read_the_same_table() {
    let fixture = unpack("h120_v9_odd_path1_pending_compaction");
    assert!(fixture.base.ends_with("od%41d"));
    for base in [
        fixture.base.clone(),
        format!("file:{}", fixture.base),
        format!("file://{}", fixture.base),
        format!("{}/", fixture.base),
    ] {
        let snapshot = look(&HudiTable::new(Arc::new(LocalListing), base)).await;
        assert_eq!(snapshot.pending().len(), 1);
    }
}

#[tokio::test]
async fn names_are_neither_decoded_nor_encoded() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    for name in ["od%41d", "odAd", "ä b", "c%d e", "a#1", "a?b", "a+b", "%"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("x"), name).unwrap();
    }
    let mut names: Vec<String> =
        LocalListing.list(root).await.unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, ["%", "a#1", "a+b", "a?b", "c%d e", "od%41d", "odAd", "ä b"]);
    for name in names {
        let read = LocalListing.read(&format!("file://{root}/{name}/x"), 100).await.unwrap();
        assert_eq!(read, name.as_bytes());
        assert!(LocalListing.head(&format!("{root}/{name}")).await.unwrap().unwrap().is_folder);
    }
}

async fn kind_of_list(path: &str) -> ListingErrorKind {
    LocalListing.list(path).await.unwrap_err().kind()
}

#[tokio::test]
async fn missing_denied_and_wrong_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap().to_owned();
    fs::write(folder.path().join("file"), "12345").unwrap();
    assert_eq!(kind_of_list(&format!("{root}/none")).await, ListingErrorKind::NotFound);
    assert_eq!(
        kind_of_list(&format!("{root}/file")).await,
        ListingErrorKind::NotFound,
        "a file holds no folder"
    );
    assert_eq!(LocalListing.head(&format!("{root}/none")).await.unwrap(), None);
    assert_eq!(LocalListing.head(&format!("{root}/file/below")).await.unwrap(), None);
    for odd in ["relative/path", "s3://b/x", "file://host/x", "", "file:", "/a\0b"] {
        assert_eq!(kind_of_list(odd).await, ListingErrorKind::Unsupported, "{odd:?}");
    }
    let too_large = LocalListing.read(&format!("{root}/file"), 4).await.unwrap_err();
    assert_eq!(too_large.kind(), ListingErrorKind::TooLarge);
    assert_eq!(LocalListing.read(&format!("{root}/file"), 5).await.unwrap(), "12345");
    assert_eq!(LocalListing.read_range(&format!("{root}/file"), 3, 100).await.unwrap(), "45");
    assert_eq!(LocalListing.read_range(&format!("{root}/file"), 9, 1).await.unwrap(), "");
    assert_eq!(LocalListing.read("/dev/zero", 10).await.unwrap_err().kind(), ListingErrorKind::Unsupported);
    assert_eq!(LocalListing.read(&root, 10).await.unwrap_err().kind(), ListingErrorKind::Unsupported);

    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&closed).is_ok() {
        println!("SKIPPED the denied folder: this user (root) may read everything");
    } else {
        assert_eq!(kind_of_list(closed.to_str().unwrap()).await, ListingErrorKind::PermissionDenied);
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_broken_link_is_left_out_of_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", folder.path().join("link")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    assert_eq!(LocalListing.list(folder.path().to_str().unwrap()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_path_without_a_table_says_so_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let table = HudiTable::new(Arc::new(LocalListing), folder.path().to_str().unwrap());
    let error = table.look(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().contains("no Hudi table here") && error.to_string().contains("hoodie.properties"),
        "{error}"
    );
}
