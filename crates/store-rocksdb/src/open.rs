//! Opening and making a store. A store is made whole under another name and renamed, so that a folder of its own name
//! always was one; and nothing is changed in one that is refused, except RocksDB's own log of messages.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind as IoKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::DB;
use tms_core::Error;
use tms_core::store::disk::{FOLDER_MODE, folder_error, of_io, open_error};
use tms_core::store::kv::{KvError, KvStore};

use crate::config::FOLDER_NAME;
use crate::errors::refused;
use crate::home::Home;
use crate::kv::RocksKv;
use crate::mark::Mark;
use crate::options::Setup;
use crate::records;

/// File that names RocksDB's list of files: where it is, a store is.
const CURRENT: &str = "CURRENT";
/// End of the name of a store that is being made.
const DRAFT_END: &str = ".new";
/// Most drafts of servers that were killed while they made a store, or are making one now.
const DRAFTS_MAX: u32 = 100;

/// Opens the store in `folder`, or begins a new one there.
pub(crate) fn open_or_create(folder: &Path) -> Result<RocksKv, Error> {
    let own = folder.join(FOLDER_NAME);
    let is_there = || own.try_exists().map_err(|e| folder_error(folder, e));
    if !is_there()? {
        let made = create(folder, &own);
        // Another server may have been faster; then its store is the one.
        if !is_there()? {
            made?;
        }
    }
    let kv = open_existing(&own)?;
    remove_drafts(folder);
    Ok(kv)
}

fn open_existing(own: &Path) -> Result<RocksKv, Error> {
    let home = check_shape(own)?;
    let mark = Mark::open(&home)?;
    let setup = Setup::new();
    let acknowledged = mark.read().map_err(|e| open_error(own, e))?;
    records::check(&home).map_err(|e| open_error(own, e))?;
    // Looked at before it is opened for writing, which makes new files of what was found and removes the old ones.
    let looked_at = read_only(&setup, &home).map_err(|e| refused(&home, &e))?;
    check_whole(&looked_at, acknowledged).map_err(|e| open_error(own, e))?;
    drop(looked_at);
    let db = read_write(&setup, &home).map_err(|e| refused(&home, &e))?;
    check_whole(&db, acknowledged).map_err(|e| open_error(own, e))?;
    mark.check_place().map_err(|e| open_error(own, e))?;
    Ok(RocksKv::new(home, mark, setup, db))
}

/// RocksDB would begin a new store where its list of files is missing, and all acknowledged work would be gone without a
/// word.
fn check_shape(own: &Path) -> Result<Home, Error> {
    let failed = |e| open_error(own, of_io(e));
    if !std::fs::metadata(own).map_err(failed)?.is_dir() {
        return Err(open_error(own, KvError::Damaged("it is no folder".into())));
    }
    let home = Home::open(own).map_err(failed)?;
    if home.path().join(CURRENT).try_exists().map_err(failed)? {
        return Ok(home);
    }
    let is_empty = std::fs::read_dir(home.path()).map_err(failed)?.next().is_none();
    let text =
        if is_empty { "the folder of the store is empty" } else { "the file is missing, others are there" };
    let named = if is_empty { own.to_owned() } else { own.join(CURRENT) };
    Err(open_error(&named, KvError::Damaged(text.into())))
}

/// Opens for reading: nothing is written but RocksDB's log of messages.
pub(crate) fn read_only(setup: &Setup, home: &Home) -> Result<DB, rocksdb::Error> {
    DB::open_cf_descriptors_read_only(&setup.options, home.path(), setup.families(), false)
}

/// Opens for writing.
pub(crate) fn read_write(setup: &Setup, home: &Home) -> Result<DB, rocksdb::Error> {
    DB::open_cf_descriptors(&setup.options, home.path(), setup.families())
}

/// Checks that a database holds all that was acknowledged.
pub(crate) fn check_whole(db: &DB, acknowledged: u64) -> Result<(), KvError> {
    let found = db.latest_sequence_number();
    if found >= acknowledged {
        return Ok(());
    }
    let text = format!(
        "acknowledged writes are missing: the files end at write {found}, and {acknowledged} were acknowledged; a \
         write-ahead log (*.log) was cut, damaged or removed, or older files were put back"
    );
    Err(KvError::Damaged(text.into()))
}

/// Makes a whole new store under another name and renames it. That replaces no store of a server that was faster: a
/// folder that holds something cannot be replaced.
fn create(folder: &Path, own: &Path) -> Result<(), Error> {
    let draft = draft_folder(folder)?;
    let failed = |e| open_error(own, of_io(e));
    let made = create_draft(&draft).and_then(|()| {
        sync(&draft).map_err(failed)?;
        match std::fs::rename(&draft, own) {
            Err(e) if !matches!(e.kind(), IoKind::DirectoryNotEmpty | IoKind::AlreadyExists) => {
                Err(failed(e))
            }
            _ => sync(folder).map_err(failed),
        }
    });
    if draft.exists()
        && let Err(error) = std::fs::remove_dir_all(&draft)
    {
        tracing::warn!(folder = %draft.display(), %error, "Cannot remove the draft of a new store.");
    }
    made
}

/// Makes a folder that nobody else uses: two servers may have one process number, in two containers.
fn draft_folder(folder: &Path) -> Result<PathBuf, Error> {
    let mut builder = DirBuilder::new();
    builder.mode(FOLDER_MODE);
    for n in 0..DRAFTS_MAX {
        let draft = folder.join(format!("{FOLDER_NAME}.{}-{n}{DRAFT_END}", std::process::id()));
        match builder.create(&draft) {
            Ok(()) => return Ok(draft),
            Err(e) if e.kind() == IoKind::AlreadyExists => {}
            Err(e) => return Err(folder_error(folder, e)),
        }
    }
    Err(folder_error(folder, IoKind::AlreadyExists.into()))
}

fn create_draft(draft: &Path) -> Result<(), Error> {
    let home = Home::open(draft).map_err(|e| open_error(draft, of_io(e)))?;
    let mark = Mark::open(&home)?;
    let setup = Setup::new();
    let db = DB::open_cf_descriptors(&setup.creating(), home.path(), setup.families());
    let db = db.map_err(|e| refused(&home, &e))?;
    KvStore::open_blocking(Arc::new(RocksKv::new(home, mark, setup, db)))?;
    Ok(())
}

fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes what servers left that were killed while they made this store. The store is there and held: a draft that
/// somebody still makes comes too late.
fn remove_drafts(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for draft in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_draft)) {
        if let Err(error) = std::fs::remove_dir_all(draft.path()) {
            tracing::warn!(folder = %draft.path().display(), %error, "Cannot remove the draft of a new store.");
        }
    }
}

/// Tells whether a name is one that [`draft_folder`] makes: what a person put there stays.
fn is_draft(name: &str) -> bool {
    let numbers = name
        .strip_prefix(FOLDER_NAME)
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|rest| rest.strip_suffix(DRAFT_END))
        .and_then(|numbers| numbers.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, n)| is_number(process) && is_number(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_as_a_draft_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let made = draft_folder(folder.path()).unwrap();
        assert_ne!(draft_folder(folder.path()).unwrap(), made, "each is somebody's own");
        assert!(is_draft(made.file_name().unwrap().to_str().unwrap()));
        for other in [
            "tms.rocksdb",
            "tms.rocksdb.new",
            "tms.rocksdb.old-1.new",
            "tms.rocksdb.1-0.bak",
            "tms.rocksdb.-.new",
        ] {
            assert!(!is_draft(other), "{other}");
        }
    }
}
