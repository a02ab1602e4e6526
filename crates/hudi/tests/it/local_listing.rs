//! What [`tms_hudi::Listing`] promises, on local files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tms_hudi::{Listing, ListingErrorKind, LocalListing};

/// Listings made while entries come and go.
const LISTINGS: usize = 300;

/// a folder that is not there is `NotFound` where the store can tell; an object store answers an empty list
#[tokio::test]
async fn a_missing_local_folder_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nothing").display().to_string();
    let error = LocalListing.list(&missing).await.unwrap_err();
    assert_eq!(error.kind(), ListingErrorKind::NotFound);
}

/// an entry that vanishes while the folder is listed is left out, never an error
#[tokio::test]
async fn entries_that_come_and_go_never_fail_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stays"), "x").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (path, until) = (folder.path().to_owned(), Arc::clone(&stop));
    let churn = std::thread::spawn(move || {
        while !until.load(Ordering::SeqCst) {
            for n in 0..20 {
                std::fs::write(path.join(format!("goes-{n}")), "").unwrap();
            }
            for n in 0..20 {
                std::fs::remove_file(path.join(format!("goes-{n}"))).unwrap();
            }
        }
    });
    for _ in 0..LISTINGS {
        let entries = LocalListing.list(&folder.path().display().to_string()).await.unwrap();
        assert!(entries.iter().any(|e| e.name == "stays"));
    }
    stop.store(true, Ordering::SeqCst);
    churn.join().unwrap();
}

/// a larger file is `TooLarge`, without having been read whole
#[tokio::test]
async fn a_local_file_over_the_limit_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    // A terabyte of nothing: reading it whole would not end in time.
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = LocalListing.read(&path.display().to_string(), 1_000).await.unwrap_err();
    assert_eq!(error.kind(), ListingErrorKind::TooLarge);
}

/// Neither opening nor reading a pipe ends while nobody writes into it.
#[tokio::test]
async fn a_pipe_or_device_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    for path in [pipe, link, "/dev/zero".into()] {
        let path = path.display().to_string();
        let whole = LocalListing.read(&path, 1_000);
        let error = tokio::time::timeout(Duration::from_secs(10), whole).await.expect(&path).unwrap_err();
        assert_eq!(error.kind(), ListingErrorKind::Unsupported, "{error}");
        assert!(error.detail().contains("not a plain file"), "{error}");
        assert!(LocalListing.read_range(&path, 5, 5).await.is_err());
    }
}
