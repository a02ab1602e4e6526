//! The number of the last batch that was acknowledged, in a file beside RocksDB's own. The file is also the lock of the
//! store, which is held while RocksDB is closed and opened again.
//!
//! A log that was cut, or whose lengths were damaged, reads like one whose last writes were torn by a crash, and RocksDB
//! leaves them out without a word. The mark tells the two apart: it is written after the batch is durable, so a store
//! that ends before it has lost something. It is not synced: the system may lose newer marks, never make one up, so a
//! mark never says more than was durable.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use tms_core::Error;
use tms_core::store::disk::{FILE_MODE, FileId, held_error, of_io, open_error};
use tms_core::store::kv::KvError;

use crate::config::MARK_NAME;
use crate::home::Home;

/// Begins the file, so that another one is not taken for it.
const MAGIC: [u8; 8] = *b"tmsmark1";
/// Magic, number, and the number with all bits turned. Small enough that no disk writes half of it.
const MARK_BYTES: usize = 24;

/// The open and locked file.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    file: File,
    id: FileId,
}

impl Mark {
    /// Opens and locks the mark of a store; makes an empty one when there is none.
    pub(crate) fn open(home: &Home) -> Result<Self, Error> {
        let (path, held) = (home.folder().join(MARK_NAME), home.path().join(MARK_NAME));
        let failed = |e| open_error(&path, of_io(e));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(held);
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held_error(&path, "its lock is taken")),
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        let meta = file.metadata().map_err(failed)?;
        let id = FileId::of_open(&meta);
        if meta.len() == 0 {
            // Whole before it is relied on: later ones are written in place, with no change of the file's size.
            file.write_all_at(&encode(0), 0).and_then(|()| file.sync_all()).map_err(failed)?;
            File::open(home.path()).and_then(|f| f.sync_all()).map_err(failed)?;
        }
        Ok(Self { path, file, id })
    }

    /// Returns the number of the last batch that was acknowledged, 0 when nothing is known.
    pub(crate) fn read(&self) -> Result<u64, KvError> {
        let mut bytes = [0; MARK_BYTES];
        let found = self.file.read_exact_at(&mut bytes, 0).ok().and_then(|()| decode(&bytes));
        found.ok_or_else(|| {
            let text =
                format!("{} is damaged: it does not say what was acknowledged last", self.path.display());
            KvError::Damaged(text.into())
        })
    }

    /// Notes the number of a batch that is durable.
    pub(crate) fn write(&self, number: u64) -> std::io::Result<()> {
        self.file.write_all_at(&encode(number), 0)
    }

    /// Checks that the store's folder still stands under its name: what is written into one that was removed is gone
    /// with this process, and another server may have begun a new one by now.
    pub(crate) fn check_place(&self) -> Result<(), KvError> {
        self.lost().map_or(Ok(()), |lost| Err(KvError::Unavailable(lost.into())))
    }

    /// Returns what happened to the store's folder; nothing when it stands where it should.
    pub(crate) fn lost(&self) -> Option<String> {
        self.id.check(&self.path).err()
    }
}

fn encode(number: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    bytes[16..].copy_from_slice(&(!number).to_be_bytes());
    bytes
}

fn decode(bytes: &[u8; MARK_BYTES]) -> Option<u64> {
    let number = u64::from_be_bytes(bytes[8..16].try_into().ok()?);
    (*bytes == encode(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_mark_is_noticed() {
        for number in [0, 1, 77, u64::MAX] {
            let whole = encode(number);
            assert_eq!(decode(&whole), Some(number));
            for bit in 0..MARK_BYTES * 8 {
                let mut flipped = whole;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&flipped), None, "{number}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_mark_is_held_by_one_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let mark = Mark::open(&home).unwrap();
        assert_eq!(mark.read().unwrap(), 0);
        mark.write(7).unwrap();
        assert!(Mark::open(&home).unwrap_err().hint_text().unwrap().contains("another process"));
        drop(mark);
        assert_eq!(Mark::open(&home).unwrap().read().unwrap(), 7);
    }
}
