//! The reader of Hudi tables as a timeline source, over real files made by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tms_core::decision::check::Verdict;
use tms_core::model::action::Action;
use tms_core::model::attempt::Expected;
use tms_core::model::id::{TableId, Version};
use tms_core::model::instance::{Instance, InstanceKey, InstanceState, ParkReason, WaitReason};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::policy::{TableDefaults, TableSettings};
use tms_core::model::request::Trigger;
use tms_core::model::table::{LookState, Table, TableRecord, Touch};
use tms_core::preflight::preflight;
use tms_core::timeline::TimelineSource;
use tms_core::timeline::hudi::HudiTimelines;
use tms_hudi::{Entry, Listing, ListingError, LocalListing};

use crate::rig::day_zero;

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
    let properties = "hoodie.table.name=t\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.checksum=1\nhoodie.table.version=6\n\
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

/// A person reads it in a log line, an alarm and the list of tables.
#[tokio::test]
async fn what_keeps_a_table_from_being_read_is_told_once_with_file_and_advice() {
    let folder = tempfile::tempdir().unwrap();
    let (timeline, path) = table(folder.path());
    let file = timeline.join("hoodie.properties");
    let cut = fs::read_to_string(&file).unwrap().replace("hoodie.table.type=MERGE_ON_READ\n", "");
    fs::write(&file, cut).unwrap();
    let error = HudiTimelines::local().look(&path).await.unwrap_err();
    let told = error.chain();
    assert_eq!(told, error.to_string(), "the causes say more than the error");
    let whole = format!(
        "table {path}, reason cannot read the table's properties: {path}/.hoodie/hoodie.properties: "
    );
    for part in [whole.as_str(), "hoodie.table.type is missing", "(look again"] {
        assert_eq!(told.matches(part).count(), 1, "{part} in {told}");
    }
}

/// A link is a second name of the table: under it nothing is run, whoever announced it.
#[tokio::test]
async fn a_table_behind_a_link_is_parked_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let real = fs::canonicalize(folder.path()).unwrap();
    fs::create_dir(real.join("lake")).unwrap();
    let (_, path) = table(&real.join("lake/t"));
    std::os::unix::fs::symlink(real.join("lake"), real.join("link")).unwrap();
    let linked = PathRules::default().canonical(real.join("link/t").to_str().unwrap()).unwrap();
    let source = HudiTimelines::local();
    assert_eq!(source.real_path(&path).await.unwrap(), None);
    assert_eq!(source.real_path(&linked).await.unwrap().as_deref(), Some(path.as_str()));
    let (record, instance) = waiting(&linked);
    let effective = TableDefaults::default().effective(&record.table.settings);
    let found = preflight(&source, &record, &instance, &effective, day_zero().into()).await.unwrap().verdict;
    assert!(
        matches!(&found, Verdict::Park(ParkReason::PathAlias, to) if to.contains(path.as_str())),
        "{found:?}"
    );
}

/// A look does not read the properties again; the check before a job does.
#[tokio::test]
async fn the_check_before_a_job_sees_what_changed_in_the_properties() {
    let folder = tempfile::tempdir().unwrap();
    let (timeline, path) = table(folder.path());
    let source = HudiTimelines::local();
    let (record, instance) = waiting(&path);
    let effective = TableDefaults::default().effective(&record.table.settings);
    let verdict =
        async || preflight(&source, &record, &instance, &effective, day_zero().into()).await.unwrap().verdict;
    assert_eq!(verdict().await, Verdict::Go(Expected::None));
    let metadata = timeline.join("metadata/.hoodie");
    fs::create_dir_all(&metadata).unwrap();
    fs::copy(timeline.join("hoodie.properties"), metadata.join("hoodie.properties")).unwrap();
    let found = verdict().await;
    assert!(matches!(found, Verdict::Park(ParkReason::NoLock, _)), "{found:?}");
}

/// A clean that waits, of a table as it is stored.
fn waiting(path: &BasePath) -> (TableRecord, Instance) {
    let id = TableId::of(path);
    let table = Table {
        id,
        base_path: path.clone(),
        is_registered: true,
        settings: TableSettings::default(),
        acknowledged_at: None,
        created_at: day_zero(),
        version: Version(1),
    };
    let key = InstanceKey { table: id, action: Action::Clean, instant: None };
    let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    let record = TableRecord { table, touch: Touch::default(), look: LookState::default() };
    let mut instance = Instance::new(key, state, Trigger::Api, day_zero());
    instance.is_asked_for = true;
    (record, instance)
}

#[tokio::test]
async fn a_write_that_never_beats_is_a_writer_without_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    let (_, path) = table(folder.path());
    let source = HudiTimelines::local();
    assert_eq!(source.writes_without_heartbeat(&path).await.unwrap(), [WRITE]);
}
