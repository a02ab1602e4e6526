//! A toy store: all rows in memory, and each batch a line at the end of one file, synced before it counts.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tms_core::store::kv::{Batch, KeyRange, Keyspace, KvError, KvSnapshot, OrderedKv, Pair};

type Rows = BTreeMap<(usize, Vec<u8>), Bytes>;
/// What a line says: number of the keyspace, key, and the value; none = the row is removed.
type Line = Vec<(usize, Vec<u8>, Option<Vec<u8>>)>;

#[derive(Debug)]
pub(crate) struct Toy(Mutex<(Arc<Rows>, File)>);

impl Toy {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let (mut text, mut rows) = (Vec::new(), Rows::new());
        file.read_to_end(&mut text)?;
        // A crash may have torn the last line; nobody was told that it is durable.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            apply(&mut rows, serde_json::from_slice(line)?);
        }
        Ok(Self(Mutex::new((Arc::new(rows), file))))
    }
}

fn apply(rows: &mut Rows, line: Line) {
    for (keyspace, key, value) in line {
        match value {
            Some(value) => drop(rows.insert((keyspace, key), value.into())),
            None => drop(rows.remove(&(keyspace, key))),
        }
    }
}

impl OrderedKv for Toy {
    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        Ok(Box::new(View(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).0))))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, file) = &mut *state;
        for check in &batch.checks {
            let (keyspace, key) = (check.keyspace, check.key.clone());
            if rows.get(&(keyspace as usize, key.clone())) != check.expected.as_ref() {
                return Err(KvError::Conflict { keyspace, key });
            }
        }
        let puts =
            batch.puts.iter().map(|(of, key, value)| (*of as usize, key.clone(), Some(value.to_vec())));
        let removed = batch.deletes.iter().map(|(of, key)| (*of as usize, key.clone(), None));
        let line: Line = puts.chain(removed).collect();
        let mut text = serde_json::to_vec(&line).map_err(|e| KvError::Unexpected(e.into()))?;
        text.push(b'\n');
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        written.map_err(|e| KvError::Unavailable(e.into()))?;
        apply(Arc::make_mut(rows), line);
        Ok(())
    }
}

struct View(Arc<Rows>);

impl KvSnapshot for View {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.0.get(&(keyspace as usize, key.to_vec())).cloned())
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
        let number = keyspace as usize;
        let or = |bound: &Bound<Vec<u8>>, end| match bound {
            Bound::Unbounded => end,
            bound => bound.clone().map(|key| (number, key)),
        };
        let start = or(&range.start, Bound::Included((number, Vec::new())));
        let end = or(&range.end, Bound::Excluded((number + 1, Vec::new())));
        let rows = self.0.range((start, end)).map(|((_, key), value)| (key.clone().into(), value.clone()));
        Ok(if is_reverse { rows.rev().take(limit).collect() } else { rows.take(limit).collect() })
    }
}
