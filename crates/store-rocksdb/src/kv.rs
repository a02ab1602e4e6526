//! The ordered key-value trait on RocksDB. Each commit is one synced write of one batch over all families.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rocksdb::{DB, ReadOptions, WriteBatch, WriteOptions};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use tms_core::Error;
use tms_core::store::disk::{FILE_MODE, Trouble, make_folder, of_io, resting};
use tms_core::store::kv::{Batch, Keyspace, KvError, KvSnapshot, OrderedKv};

use crate::config::PROBE_BYTES;
use crate::errors::{of_rocks, of_write};
use crate::home::Home;
use crate::mark::Mark;
use crate::open::{check_whole, open_or_create, read_only, read_write};
use crate::options::Setup;
use crate::snapshot::{RocksSnapshot, family};
use crate::statistics;

/// Name of the file that tells whether the disk has room again.
const PROBE_NAME: &str = "PROBE";

/// The database, or nothing while it cannot be opened.
#[derive(Default)]
pub(crate) struct Slot {
    db: Option<DB>,
}

impl Slot {
    pub(crate) fn database(&self) -> Result<&DB, KvError> {
        self.db
            .as_ref()
            .ok_or_else(|| KvError::Unavailable("the store was closed after an error of the disk".into()))
    }
}

/// What only the one that commits touches.
#[derive(Debug, Default)]
struct Writer {
    /// An error ended the writes. RocksDB goes on reading, and takes no write until it is opened again.
    is_broken: bool,
    /// The mark of what is acknowledged could not be written; said once.
    is_unmarked: bool,
}

/// One RocksDB. After an error of the disk it takes no more writes, so a later commit closes it and opens it again: a
/// full disk heals without a restart of the server. Reads go on meanwhile.
pub struct RocksKv {
    /// Before the mark, which is the lock, and the home, which is its name: closed first.
    slot: RwLock<Slot>,
    mark: Mark,
    home: Home,
    setup: Setup,
    /// Held from the checks of a batch to its end: nobody comes between.
    writer: Mutex<Writer>,
    trouble: Mutex<Trouble>,
}

impl std::fmt::Debug for RocksKv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksKv").field("folder", &self.home.folder()).finish_non_exhaustive()
    }
}

impl RocksKv {
    /// Opens the store in `folder`, or begins a new one there. Blocks.
    ///
    /// # Errors
    /// - `Unavailable` when another process holds it, or the disk refuses
    /// - `Unsupported` when a newer TMS or another RocksDB wrote it
    /// - `Unexpected` when it is damaged, or holds less than was acknowledged
    pub fn open_blocking(folder: &Path) -> Result<Self, Error> {
        make_folder(folder)?;
        open_or_create(folder)
    }

    pub(crate) fn new(home: Home, mark: Mark, setup: Setup, db: DB) -> Self {
        Self {
            slot: RwLock::new(Slot { db: Some(db) }),
            mark,
            home,
            setup,
            writer: Mutex::default(),
            trouble: Mutex::default(),
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self) -> RwLockReadGuard<'_, Slot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the database for reading, when it could not be opened at all.
    fn open_for_reading(&self) -> Result<(), KvError> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        if slot.db.is_some() {
            return Ok(());
        }
        self.trouble().may_open().map_err(resting)?;
        let opened = self
            .mark
            .check_place()
            .and_then(|()| read_only(&self.setup, &self.home).map_err(|e| self.error(&e)));
        match opened {
            Ok(db) => {
                slot.db = Some(db);
                Ok(())
            }
            Err(error) => {
                self.trouble().failed_to_open();
                Err(error)
            }
        }
    }

    /// Closes the database that takes no more writes, and opens it again. Where that fails it is opened for reading.
    fn reopen(&self) -> Result<(), KvError> {
        if let Err(error) = self.probe() {
            self.trouble().failed_to_open();
            return Err(of_io(error));
        }
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        // Closed before it is opened: RocksDB holds a lock of its own.
        slot.db = None;
        let opened = self.mark.read().and_then(|acknowledged| {
            let db = read_write(&self.setup, &self.home).map_err(|e| self.error(&e))?;
            check_whole(&db, acknowledged)?;
            Ok(db)
        });
        match opened {
            Ok(db) => {
                slot.db = Some(db);
                self.trouble().opened();
                Ok(())
            }
            Err(error) => {
                slot.db = read_only(&self.setup, &self.home).ok();
                self.trouble().failed_to_open();
                Err(error)
            }
        }
    }

    /// Finds out whether the disk has room again. A store that is closed while it has none cannot be opened for writing,
    /// and each trial reads its log.
    fn probe(&self) -> std::io::Result<()> {
        let path = self.home.path().join(PROBE_NAME);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&path)?;
        let room = fallocate(&file, FallocateFlags::empty(), 0, PROBE_BYTES);
        std::fs::remove_file(&path)?;
        match room {
            // File systems that cannot tell: the opening will.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            other => other.map_err(Into::into),
        }
    }

    fn error(&self, error: &rocksdb::Error) -> KvError {
        of_rocks(self.home.told(error))
    }

    fn check(&self, db: &DB, batch: &Batch) -> Result<(), KvError> {
        let options = ReadOptions::default();
        for check in &batch.checks {
            let found = db.get_pinned_cf_opt(family(db, check.keyspace)?, &check.key, &options);
            if found.map_err(|e| self.error(&e))?.as_deref() != check.expected.as_deref() {
                return Err(KvError::Conflict { keyspace: check.keyspace, key: check.key.clone() });
            }
        }
        Ok(())
    }

    fn try_commit(&self, batch: &Batch, writer: &mut Writer) -> Result<(), KvError> {
        let slot = self.slot();
        let db = slot.database()?;
        self.check(db, batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut rows = WriteBatch::default();
        for (keyspace, key, value) in &batch.puts {
            rows.put_cf(family(db, *keyspace)?, key, value);
        }
        for (keyspace, key) in &batch.deletes {
            rows.delete_cf(family(db, *keyspace)?, key);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        db.write_opt(rows, &options).map_err(|e| of_write(self.home.told(&e)))?;
        // An older mark is right too, only less is noticed by it: the batch is durable.
        if let Err(error) = self.mark.write(db.latest_sequence_number())
            && !std::mem::replace(&mut writer.is_unmarked, true)
        {
            tracing::warn!(folder = %self.home.folder().display(), %error, "Cannot note what was acknowledged last.");
        }
        Ok(())
    }

    fn commit_as(&self, writer: &mut Writer, batch: &Batch) -> Result<(), KvError> {
        self.trouble().may_write().map_err(resting)?;
        let lost = self.mark.lost();
        self.trouble().placed(self.home.folder(), lost.as_deref());
        if let Some(lost) = lost {
            // It stays open: what is in it can still be read, and saved by hand.
            return Err(KvError::Unavailable(lost.into()));
        }
        if writer.is_broken {
            self.reopen()?;
            writer.is_broken = false;
        }
        if let Err(error) = self.try_commit(batch, writer) {
            if let KvError::Unavailable(cause) = &error {
                writer.is_broken = true;
                self.trouble().closed(self.home.folder(), cause);
            }
            return Err(error);
        }
        self.trouble().wrote(self.home.folder());
        // Again, before anybody is told that it is durable.
        self.mark.check_place()
    }
}

impl OrderedKv for RocksKv {
    fn check_place(&self) -> Result<(), KvError> {
        self.mark.check_place()
    }

    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        let slot = self.slot();
        let slot = if slot.db.is_some() {
            slot
        } else {
            drop(slot);
            self.open_for_reading()?;
            self.slot()
        };
        Ok(Box::new(RocksSnapshot::new(slot, &self.home)?))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.commit_as(&mut writer, batch)
    }

    fn record_metrics(&self) {
        if let Ok(db) = self.slot().database() {
            statistics::record(db, &self.setup, self.home.path());
        }
    }
}

impl Drop for RocksKv {
    /// Writes the memtables out, so that the next start has no log to read.
    fn drop(&mut self) {
        if self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).is_broken
            || self.mark.lost().is_some()
        {
            return;
        }
        let Some(db) = &self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).db else { return };
        for family in Keyspace::ALL.iter().filter_map(|keyspace| db.cf_handle(keyspace.as_str())) {
            if let Err(error) = db.flush_cf(family) {
                tracing::warn!(folder = %self.home.folder().display(), %error, "The next start reads the log of the store.");
                return;
            }
        }
    }
}
