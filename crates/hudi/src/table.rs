//! One Hudi table behind a [`Listing`]: every question this crate answers.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};

use crate::error::{Error, ErrorKind};
use crate::history::{self, HistoryCache, HistoryEntry};
use crate::listing::{Entry, Listing};
use crate::look;
use crate::overtaken::{self, Overtaken, OvertakenCache};
use crate::properties::TableProperties;
use crate::signs::{self, RollbackCache};
use crate::snapshot::{Look, Snapshot};
use crate::store::{Patience, Store};

/// Named limits of the reader, in bytes or pieces. The defaults are far above what real tables showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest `hoodie.properties`.
    pub properties_bytes_max: u64,
    /// Largest plan.
    pub plan_bytes_max: u64,
    /// Largest metadata file of one write.
    pub metadata_bytes_max: u64,
    /// Most bytes that one answer of [`HudiTable::overtaken`] may read.
    pub overtaken_bytes_max: u64,
    /// Most bytes that one reading of the history may read.
    pub history_bytes_max: u64,
    /// Most entries that one reading of the history may answer.
    pub history_entries_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            properties_bytes_max: MIB,
            plan_bytes_max: 32 * MIB,
            metadata_bytes_max: 64 * MIB,
            overtaken_bytes_max: 256 * MIB,
            history_bytes_max: 512 * MIB,
            history_entries_max: 1_000_000,
        }
    }
}

/// What is kept of files that never change.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    properties: Option<Arc<TableProperties>>,
    pub(crate) history: HistoryCache,
    pub(crate) overtaken: OvertakenCache,
    pub(crate) rollbacks: RollbackCache,
}

/// One table (or one metadata table). Cheap to keep; keeps what it has read of immutable files.
#[derive(Debug)]
pub struct HudiTable {
    store: Store,
    base_path: String,
    limits: Limits,
    caches: Mutex<Caches>,
}

impl HudiTable {
    /// Makes a reader of the table at `base_path`, which may be a metadata table (`<base>/.hoodie/metadata`).
    pub fn new(listing: Arc<dyn Listing>, base_path: impl Into<String>) -> Self {
        let base_path = base_path.into();
        Self {
            store: Store::new(listing, &base_path),
            base_path,
            limits: Limits::default(),
            caches: Mutex::new(Caches::default()),
        }
    }

    /// Replaces the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The base path as it was given.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// One look at the active timeline.
    ///
    /// With `previous`, an unchanged timeline costs exactly one listing and answers [`Look::Unchanged`]; a changed
    /// one costs that and the plans not read yet. Changes are found by comparing the set of names, sizes and times
    /// of the listing, never by a folder's own time. A plan that cannot be read is an error of that plan alone, and
    /// is read again by the next look where that may help.
    ///
    /// # Errors
    /// `NotFound`: no table here, or its timeline folder is missing. `PermissionDenied`, `Unreachable`: nothing is
    /// known about the table; never take it for an empty one.
    pub async fn look(&self, previous: Option<&Arc<Snapshot>>) -> Result<Look, Error> {
        look::look(self, previous).await
    }

    /// Reads `hoodie.properties` anew; the next look goes by what was found here.
    ///
    /// # Errors
    /// `NotFound` without `.hoodie/hoodie.properties`; `NotReadableYet` and `Corrupt` when it stayed cut although it
    /// was read several times.
    pub async fn properties(&self) -> Result<TableProperties, Error> {
        self.read_properties(&Patience::new()).await.map(|properties| (*properties).clone())
    }

    /// Reads the properties of the table's metadata table; `None` when it has none.
    ///
    /// # Errors
    /// As [`Self::properties`]; a metadata table without properties is an error, one that is not there is none.
    pub async fn metadata_properties(&self) -> Result<Option<TableProperties>, Error> {
        const FOLDER: &str = ".hoodie/metadata/.hoodie";
        match self.store.properties(FOLDER, self.limits.properties_bytes_max, &Patience::new()).await {
            Ok(properties) => Ok(Some(properties)),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let entries = self.store.list_if_there(FOLDER, "look for the metadata table").await?;
                // An object store shows a folder that is not there as an empty one.
                if entries.is_none_or(|entries| entries.is_empty()) { Ok(None) } else { Err(e) }
            }
            Err(e) => Err(e),
        }
    }

    /// The loss guard for the pending clustering plan at `instant` of `snapshot`.
    ///
    /// Yes when a write that completed after the plan was made (layout 2: by its completion time; layout 1: any
    /// write not older than the plan's oldest slice) wrote a file into a group of the plan that the plan does not
    /// list, or replaced such a group. Resize plans of consistent hashing are written to on purpose: there only
    /// replaced groups count. Reads newest first, stops at the first hit, reads each write's metadata once, and
    /// looks into history files that are newer than the plan.
    pub async fn overtaken(&self, snapshot: &Snapshot, instant: &str) -> Overtaken {
        overtaken::overtaken(self, snapshot, instant).await
    }

    /// Looks one requested time up in the history; prefers a completed entry. Completed or not is for the caller to
    /// check: layout 1 also archives `requested` and `inflight` entries.
    ///
    /// # Errors
    /// When it was not found and a part of the history could not be read: absence is not known then.
    pub async fn in_history(
        &self,
        snapshot: &Snapshot,
        instant: &str,
    ) -> Result<Option<HistoryEntry>, Error> {
        history::find(self, snapshot, instant).await
    }

    /// The whole history, ascending, each entry once.
    ///
    /// # Errors
    /// When any part of it cannot be read, and `TooLarge` above [`Limits::history_bytes_max`] or
    /// [`Limits::history_entries_max`].
    pub async fn history(&self, snapshot: &Snapshot) -> Result<Vec<HistoryEntry>, Error> {
        history::all(self, snapshot).await
    }

    /// Newest change among the instant's inflight file, its marker folder `.hoodie/.temp/<instant>` and its
    /// heartbeat `.hoodie/.heartbeat/<instant>`. Silence proves nothing: of the table services only 1.2.0's
    /// compaction under OCC writes a heartbeat (measured).
    ///
    /// # Errors
    /// When any of the three cannot be looked up.
    pub async fn last_sign_of_life(
        &self,
        snapshot: &Snapshot,
        instant: &str,
    ) -> Result<Option<DateTime<Utc>>, Error> {
        signs::last_sign_of_life(self, snapshot, instant).await
    }

    /// `.hoodie/lock` of Hudi's FileSystemBasedLockProvider, `None` when nobody holds it. It is empty: who holds it
    /// cannot be told, since when can (measured on 0.15.0 to 1.2.0).
    ///
    /// # Errors
    /// When the store does not say.
    pub async fn lock_file(&self) -> Result<Option<Entry>, Error> {
        signs::lock_file(self).await
    }

    /// Where the table really lies, when its path leads there by links: two paths of one table must not be two tables.
    ///
    /// # Errors
    /// When the store does not say.
    pub async fn real_path(&self) -> Result<Option<String>, Error> {
        match self.store.real_path("").await? {
            Some(real) => Ok(Some(real)),
            // A table with the timeline of another one is that other one.
            None => self.store.real_path(".hoodie").await,
        }
    }

    /// Requested times of the writes under way (`commit`, `deltacommit`, and a `replacecommit` that is a write) that
    /// have no heartbeat file: their writer does not clean lazily, so that no locked job may run beside it.
    ///
    /// # Errors
    /// When the heartbeats cannot be listed.
    pub async fn writes_without_heartbeat(&self, snapshot: &Snapshot) -> Result<Vec<String>, Error> {
        signs::writes_without_heartbeat(self, snapshot).await
    }

    /// Rollback instants, pending or completed, that name `instant`, ascending. No proof that the plan is gone: a
    /// rerun of an inflight compaction rolls the inflight back first (measured).
    ///
    /// # Errors
    /// When a rollback on the active timeline cannot be read.
    pub async fn rollbacks_of(&self, snapshot: &Snapshot, instant: &str) -> Result<Vec<String>, Error> {
        signs::rollbacks_of(self, snapshot, instant).await
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn with_caches<T>(&self, work: impl FnOnce(&mut Caches) -> T) -> T {
        work(&mut self.caches.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The properties read last, by any question.
    pub(crate) fn newest_properties(&self) -> Option<Arc<TableProperties>> {
        self.with_caches(|caches| caches.properties.clone())
    }

    pub(crate) async fn read_properties(&self, patience: &Patience) -> Result<Arc<TableProperties>, Error> {
        let read = self.store.properties(".hoodie", self.limits.properties_bytes_max, patience).await?;
        let read = Arc::new(read);
        self.with_caches(|caches| caches.properties = Some(Arc::clone(&read)));
        Ok(read)
    }
}
