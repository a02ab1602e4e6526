//! The ordered key-value trait on one redb file. Each commit is one write transaction, synced before it
//! returns.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind as IoKind;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use redb::{
    AccessGuard, Builder, CommitError, Database, DatabaseError, Durability, ReadOnlyTable, ReadTransaction,
    ReadableDatabase, ReadableTable, StorageBackend, StorageError, Table, TableDefinition, TableError,
    TransactionError, WriteTransaction,
};
use tms_core::store::disk::{
    FILE_MODE, FileId, Trouble, folder_error, held_error, make_folder, of_io, open_error, resting,
};
use tms_core::store::kv::{Batch, KeyRange, Keyspace, KvError, KvSnapshot, KvStore, OrderedKv, Pair};
use tms_core::{Error, ErrorKind};

use crate::config::{CACHE_BYTES, FILE_NAME};

const OPEN: &str = "open the store";

fn definition(keyspace: Keyspace) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(keyspace.as_str())
}

/// One redb file. After an error of the disk redb refuses everything until the file is opened again, so a later
/// call does that: a full disk heals without a restart of the server.
pub struct RedbKv {
    file: PathBuf,
    /// The file that was opened first: another one under its name has other rows.
    id: FileId,
    database: RwLock<Option<Database>>,
    trouble: Mutex<Trouble>,
}

impl std::fmt::Debug for RedbKv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbKv").field("file", &self.file).finish_non_exhaustive()
    }
}

impl RedbKv {
    /// Opens the file in `folder`, or begins a new store there. Blocks.
    ///
    /// # Errors
    /// - `Unavailable` when another process holds it, or the disk refuses
    /// - `Unsupported` when its file format is too old
    /// - `Unexpected` when it is damaged
    pub fn open_blocking(folder: &Path) -> Result<Self, Error> {
        make_folder(folder)?;
        let file = folder.join(FILE_NAME);
        if !file.try_exists().map_err(|e| folder_error(folder, e))? {
            create(folder, &file)?;
        }
        Self::open_file(file)
    }

    /// Opens the store on a disk of the caller's, or begins a new one there; `file` is only the name that it goes by, and
    /// must exist. For tests that take the power away: after an error of that disk the store does not come back.
    ///
    /// # Errors
    /// As [`open_blocking`](Self::open_blocking).
    pub fn open_on(file: &Path, disk: impl StorageBackend) -> Result<Self, Error> {
        let failed = |e| open_error(file, of_io(e));
        let is_new = disk.len().map_err(failed)? == 0;
        let id = FileId::of(file).map_err(failed)?;
        let database = open_database(|builder| builder.create_with_backend(disk), false);
        let database = database.map_err(|e| refused(file, e))?;
        if is_new {
            create_tables(&database).map_err(|e| open_error(file, e))?;
        }
        Ok(Self::of_database(file.to_owned(), id, database))
    }

    fn open_file(file: PathBuf) -> Result<Self, Error> {
        let length = std::fs::metadata(&file).map_err(|e| open_error(&file, of_io(e)))?.len();
        if length == 0 {
            // redb would begin a new database in it, and all acknowledged work would be gone without a word.
            return Err(open_error(&file, KvError::Damaged("the file is empty".into())));
        }
        let id = FileId::of(&file).map_err(|e| open_error(&file, of_io(e)))?;
        let database = open_database(|builder| builder.open(&file), false).map_err(|e| refused(&file, e))?;
        let kv = Self::of_database(file, id, database);
        kv.check_place().map_err(|e| open_error(&kv.file, e))?;
        Ok(kv)
    }

    fn of_database(file: PathBuf, id: FileId, database: Database) -> Self {
        Self { file, id, database: RwLock::new(Some(database)), trouble: Mutex::default() }
    }

    /// Checks that the open file still stands under its name: what is written into one that was removed is gone with
    /// this process, and another server may hold a new one by now.
    fn check_place(&self) -> Result<(), KvError> {
        self.id.check(&self.file).map_err(|lost| KvError::Unavailable(lost.into()))
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open database; opens it again when the last error closed it.
    fn database(&self) -> Result<RwLockReadGuard<'_, Option<Database>>, KvError> {
        let open = self.database.read().unwrap_or_else(PoisonError::into_inner);
        if open.is_some() {
            return Ok(open);
        }
        drop(open);
        self.reopen()?;
        Ok(self.database.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn reopen(&self) -> Result<(), KvError> {
        let mut slot = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if slot.is_some() {
            return Ok(());
        }
        self.trouble().may_open().map_err(resting)?;
        let opened = self
            .check_place()
            .and_then(|()| open_database(|builder| builder.open(&self.file), true).map_err(of_database));
        match opened {
            Ok(database) => {
                *slot = Some(database);
                self.trouble().opened();
                Ok(())
            }
            Err(error) => {
                self.trouble().failed_to_open();
                Err(error)
            }
        }
    }

    /// Closes the database when an error says that it serves no more.
    fn close_after(&self, error: &KvError) {
        if let KvError::Unavailable(cause) = error {
            let mut slot = self.database.write().unwrap_or_else(PoisonError::into_inner);
            if slot.take().is_some() {
                self.trouble().closed(&self.file, cause);
            }
        }
    }

    fn try_commit(&self, batch: &Batch) -> Result<(), KvError> {
        let guard = self.database()?;
        let Some(database) = &*guard else { return Err(closed()) };
        let mut tx = database.begin_write().map_err(of_transaction)?;
        tx.set_durability(Durability::Immediate).map_err(|e| KvError::Unexpected(e.into()))?;
        for keyspace in Keyspace::ALL {
            if let Err(error) = write_keyspace(&tx, keyspace, batch) {
                tx.abort().map_err(of_storage)?;
                return Err(error);
            }
        }
        tx.commit().map_err(of_commit)
    }
}

impl OrderedKv for RedbKv {
    fn check_place(&self) -> Result<(), KvError> {
        Self::check_place(self)
    }

    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        let open = || {
            let guard = self.database()?;
            let Some(database) = &*guard else { return Err(closed()) };
            let tx = database.begin_read().map_err(of_transaction)?;
            Ok(RedbSnapshot { tx, tables: Default::default(), _open: guard })
        };
        let snapshot = open().inspect_err(|e| self.close_after(e))?;
        Ok(Box::new(snapshot))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        self.trouble().may_write().map_err(resting)?;
        let lost = self.id.check(&self.file).err();
        self.trouble().placed(&self.file, lost.as_deref());
        if let Some(lost) = lost {
            // The file stays open: what is in it can still be read, and saved by hand.
            return Err(KvError::Unavailable(lost.into()));
        }
        self.try_commit(batch).inspect_err(|e| self.close_after(e))?;
        self.trouble().wrote(&self.file);
        // Again, before anybody is told that it is durable.
        self.check_place()
    }
}

fn write_keyspace(tx: &WriteTransaction, keyspace: Keyspace, batch: &Batch) -> Result<(), KvError> {
    let checks = || batch.checks.iter().filter(|check| check.keyspace == keyspace);
    let puts = || batch.puts.iter().filter(|(of, _, _)| *of == keyspace);
    let deletes = || batch.deletes.iter().filter(|(of, _)| *of == keyspace);
    if checks().next().is_none() && puts().next().is_none() && deletes().next().is_none() {
        return Ok(());
    }
    let mut table: Table<'_, &[u8], &[u8]> = tx.open_table(definition(keyspace)).map_err(of_table)?;
    for check in checks() {
        let found = table.get(check.key.as_slice()).map_err(of_storage)?;
        let is_as_read = match (&found, &check.expected) {
            (Some(found), Some(expected)) => found.value() == expected.as_ref(),
            (None, None) => true,
            _ => false,
        };
        if !is_as_read {
            return Err(KvError::Conflict { keyspace, key: check.key.clone() });
        }
    }
    for (_, key, value) in puts() {
        table.insert(key.as_slice(), value.as_ref()).map_err(of_storage)?;
    }
    for (_, key) in deletes() {
        table.remove(key.as_slice()).map_err(of_storage)?;
    }
    Ok(())
}

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

struct RedbSnapshot<'a> {
    tx: ReadTransaction,
    tables: [OnceCell<Rows>; Keyspace::ALL.len()],
    /// Keeps the database open while it is read.
    _open: RwLockReadGuard<'a, Option<Database>>,
}

impl RedbSnapshot<'_> {
    fn table(&self, keyspace: Keyspace) -> Result<&Rows, KvError> {
        let cell = &self.tables[keyspace as usize];
        if let Some(table) = cell.get() {
            return Ok(table);
        }
        let table = self.tx.open_table(definition(keyspace)).map_err(of_table)?;
        Ok(cell.get_or_init(|| table))
    }
}

impl KvSnapshot for RedbSnapshot<'_> {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let found = self.table(keyspace)?.get(key).map_err(of_storage)?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: usize,
        is_reverse: bool,
    ) -> Result<Vec<Pair>, KvError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = range.as_bounds();
        let rows = self.table(keyspace)?.range::<&[u8]>(bounds).map_err(of_storage)?;
        if is_reverse {
            rows.rev().take(limit).map(pair).collect()
        } else {
            rows.take(limit).map(pair).collect()
        }
    }
}

type FoundRow<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

fn pair(row: Result<FoundRow<'_>, StorageError>) -> Result<Pair, KvError> {
    let (key, value) = row.map_err(of_storage)?;
    Ok((Bytes::copy_from_slice(key.value()), Bytes::copy_from_slice(value.value())))
}

/// Makes a whole new store under another name and links it to its own, so that a file of that name is always
/// whole. A link, unlike a renaming, does not replace the file of a server that was faster.
fn create(folder: &Path, file: &Path) -> Result<(), Error> {
    let draft = folder.join(format!("{FILE_NAME}.{}.new", std::process::id()));
    let made = create_draft(&draft).and_then(|()| match std::fs::hard_link(&draft, file) {
        Err(e) if e.kind() != IoKind::AlreadyExists => Err(open_error(file, of_io(e))),
        _ => File::open(folder).and_then(|f| f.sync_all()).map_err(|e| open_error(file, of_io(e))),
    });
    if let Err(error) = std::fs::remove_file(&draft) {
        tracing::warn!(file = %draft.display(), %error, "Cannot remove the draft of a new store.");
    }
    made
}

fn create_draft(draft: &Path) -> Result<(), Error> {
    let whole = |e: std::io::Error| open_error(draft, of_io(e));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE_MODE).open(draft).map_err(whole)?;
    let database = builder().create(draft).map_err(|e| refused(draft, e))?;
    create_tables(&database).map_err(|e| open_error(draft, e))?;
    let id = FileId::of(draft).map_err(whole)?;
    let kv = RedbKv::of_database(draft.to_owned(), id, database);
    KvStore::open_blocking(Arc::new(kv))?;
    Ok(())
}

/// Makes all tables, so that a reader finds each.
fn create_tables(database: &Database) -> Result<(), KvError> {
    let tx = database.begin_write().map_err(of_transaction)?;
    for keyspace in Keyspace::ALL {
        tx.open_table(definition(keyspace)).map_err(of_table)?;
    }
    tx.commit().map_err(of_commit)
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// redb trusts a file that was closed well and may panic at one that was damaged since; that must not end the
/// server without saying which file it was.
fn open_database(
    open: impl FnOnce(&Builder) -> Result<Database, DatabaseError>,
    is_again: bool,
) -> Result<Database, DatabaseError> {
    let mut builder = builder();
    builder.set_repair_callback(move |session| {
        // While a disk is in trouble this comes every few seconds, and the trouble was told.
        if is_again {
            tracing::debug!(done = session.progress(), "Checking the store, which was closed by an error.");
        } else {
            tracing::info!(done = session.progress(), "Checking the store, which was not closed.");
        }
    });
    catch_unwind(AssertUnwindSafe(|| open(&builder))).unwrap_or_else(|_| {
        Err(DatabaseError::Storage(StorageError::Corrupted("redb could not make sense of it".to_owned())))
    })
}

/// Maps what redb says when it cannot open the file.
fn refused(file: &Path, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => held_error(file, error),
        DatabaseError::UpgradeRequired(_) => Error::new(ErrorKind::Unsupported, OPEN)
            .with("file", file.display())
            .hint("another release of redb made this file: use another store.path")
            .caused_by(error),
        other => open_error(file, of_database(other)),
    }
}

fn closed() -> KvError {
    KvError::Unavailable("the file was closed after an error of the disk".into())
}

fn of_storage(error: StorageError) -> KvError {
    match error {
        StorageError::Io(e) => of_io(e),
        StorageError::PreviousIo | StorageError::DatabaseClosed => KvError::Unavailable(error.into()),
        StorageError::Corrupted(_) => KvError::Damaged(error.into()),
        other => KvError::Unexpected(other.into()),
    }
}

fn of_database(error: DatabaseError) -> KvError {
    match error {
        DatabaseError::Storage(e) => of_storage(e),
        DatabaseError::DatabaseAlreadyOpen => KvError::Unavailable(error.into()),
        other => KvError::Unexpected(other.into()),
    }
}

fn of_transaction(error: TransactionError) -> KvError {
    match error {
        TransactionError::Storage(e) => of_storage(e),
        other => KvError::Unexpected(other.into()),
    }
}

fn of_table(error: TableError) -> KvError {
    match error {
        TableError::Storage(e) => of_storage(e),
        other => KvError::Damaged(other.into()),
    }
}

fn of_commit(error: CommitError) -> KvError {
    match error {
        CommitError::Storage(e) => of_storage(e),
        other => KvError::Unexpected(other.into()),
    }
}
