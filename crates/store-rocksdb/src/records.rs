//! A look at the records of RocksDB's logs and lists of files before RocksDB reads them.
//!
//! One turned bit makes a record one of a kind that is only written where logs are used again, which they never are here.
//! RocksDB 11.8 takes the first record of that kind for the end of the file, and reads any later one again and again
//! without end (measured: one bit in a list of files): the server would hang at its start and say nothing.

use std::fs::File;
use std::io::{BufReader, ErrorKind as IoKind, Read};
use std::path::Path;

use tms_core::store::disk::of_io;
use tms_core::store::kv::KvError;

use crate::home::Home;

/// RocksDB writes in blocks; no record crosses the end of one.
const BLOCK_BYTES: u64 = 32 * 1024;
/// Checksum, length and kind.
const HEAD_BYTES: usize = 7;
/// Kinds that are written only where logs are used again: whole, first, middle and last, and two that tell about logs.
const OF_USED_AGAIN: [u8; 6] = [5, 6, 7, 8, 11, 131];
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Checks the logs and lists of files of a store.
///
/// # Errors
/// `Damaged` with the file and the place; `Unavailable` when one cannot be read.
pub(crate) fn check(home: &Home) -> Result<(), KvError> {
    for entry in std::fs::read_dir(home.path()).map_err(of_io)? {
        let name = entry.map_err(of_io)?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with("MANIFEST-") || name.ends_with(".log"))
        else {
            continue;
        };
        if let Some(at) = odd_record(&home.path().join(name)).map_err(of_io)? {
            let text = format!(
                "{name} is damaged at byte {at}: it has a record of a kind that is never written here"
            );
            return Err(KvError::Damaged(text.into()));
        }
    }
    Ok(())
}

/// Returns where the first record lies that RocksDB would not get past. What is no record ends the search: RocksDB tells
/// that, or leaves it out as the end that a crash tore.
fn odd_record(file: &Path) -> std::io::Result<Option<u64>> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(file)?);
    let (mut at, head_bytes) = (0, HEAD_BYTES as u64);
    loop {
        let left = BLOCK_BYTES - at % BLOCK_BYTES;
        if left < head_bytes {
            reader.seek_relative(i64::try_from(left).unwrap_or(0))?;
            at += left;
            continue;
        }
        let mut head = [0; HEAD_BYTES];
        match reader.read_exact(&mut head) {
            Err(e) if e.kind() == IoKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let (n_bytes, kind) = (u64::from(u16::from_le_bytes([head[4], head[5]])), head[6]);
        if OF_USED_AGAIN.contains(&kind) {
            return Ok(Some(at));
        }
        if kind == 0 || head_bytes + n_bytes > left {
            return Ok(None);
        }
        reader.seek_relative(i64::try_from(n_bytes).unwrap_or(0))?;
        at += head_bytes + n_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole records of so many bytes, as RocksDB lays them out.
    fn log(lengths: &[u16]) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        for n_bytes in lengths {
            let left = 32_768 - bytes.len() % 32_768;
            if left < HEAD_BYTES {
                bytes.resize(bytes.len() + left, 0);
            }
            bytes.extend([9, 9, 9, 9]);
            bytes.extend(n_bytes.to_le_bytes());
            bytes.push(1);
            bytes.extend(vec![5; usize::from(*n_bytes)]);
        }
        bytes
    }

    fn found(bytes: &[u8]) -> Option<u64> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        odd_record(file.path()).unwrap()
    }

    #[test]
    fn record_of_another_kind_is_found_in_every_block() {
        // The first block ends with three bytes that hold no record.
        let first = u16::try_from(32_768 - 2 * HEAD_BYTES - 10 - 3).unwrap();
        let bytes = log(&[10, first, 300, 7]);
        assert_eq!(found(&bytes), None);
        let heads = [0, 17, 32_768, 33_075];
        for at in heads {
            let mut turned = bytes.clone();
            turned[at + 6] ^= 4;
            assert_eq!(found(&turned), Some(at as u64));
            assert_eq!(found(&turned[..at + 6]), None, "a head that is cut is no record");
        }
    }

    #[test]
    fn what_lies_behind_the_end_is_not_looked_at() {
        let mut bytes = log(&[10]);
        bytes.extend([0; 7]);
        bytes.extend([5; 100]);
        assert_eq!(found(&bytes), None);
        assert_eq!(found(&[]), None);
    }
}
