//! The reader of Hudi tables as a timeline source, over real files made by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tms_core::model::path::{BasePath, PathRules};
use tms_core::timeline::TimelineSource;
use tms_core::timeline::hudi::HudiTimelines;
use tms_hudi::{Entry, Listing, ListingError, LocalListing};

const WRITE: &str = "20270101000000001";

/// A folder whose write ends right before the heartbeats are listed for the first time.
#[derive(Debug)]
struct EndingWrite {
    timeline: PathBuf,
    is_over: AtomicBool,
}

#[async_trait]
impl Listing for EndingWrite {
    async fn list(&self, folder: &str) -> Result<Vec<Entry>, ListingError> {
        if folder.ends_with(".heartbeat") && !self.is_over.swap(true, Ordering::Relaxed) {
            fs::write(self.timeline.join(format!("{WRITE}.deltacommit")), "{}").unwrap();
            fs::remove_file(self.timeline.join(format!(".heartbeat/{WRITE}"))).unwrap();
        }
        LocalListing.list(folder).await
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, ListingError> {
        LocalListing.read(path, bytes_max).await
    }

    async fn read_range(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, ListingError> {
        LocalListing.read_range(path, offset, length).await
    }

    async fn head(&self, path: &str) -> Result<Option<Entry>, ListingError> {
        LocalListing.head(path).await
    }
}

/// A table of version 6 with one write under way.
fn table(folder: &Path) -> (PathBuf, BasePath) {
    let timeline = folder.join(".hoodie");
    fs::create_dir_all(timeline.join(".heartbeat")).unwrap();
    let properties = "hoodie.table.name=t\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=6\n\
                      hoodie.timeline.layout.version=1\n";
    fs::write(timeline.join("hoodie.properties"), properties).unwrap();
    for state in ["deltacommit.requested", "deltacommit.inflight"] {
        fs::write(timeline.join(format!("{WRITE}.{state}")), "").unwrap();
    }
    let path = PathRules::default().canonical(folder.to_str().unwrap()).unwrap();
    (timeline, path)
}

#[tokio::test]
async fn a_write_that_ends_between_two_listings_is_no_writer_without_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let (timeline, path) = table(folder.path());
    fs::write(timeline.join(format!(".heartbeat/{WRITE}")), "").unwrap();
    let source = HudiTimelines::new(Arc::new(EndingWrite { timeline, is_over: AtomicBool::new(false) }));
    assert!(source.writes_without_heartbeat(&path).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_write_that_never_beats_is_a_writer_without_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let (_, path) = table(folder.path());
    let source = HudiTimelines::local();
    assert_eq!(source.writes_without_heartbeat(&path).await.unwrap(), [WRITE]);
}
