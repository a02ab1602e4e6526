//! A store in memory, for tests and trials: the same aggregates over an ordered map. Nothing of it is
//! durable.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use super::Store;
use super::kv::{Batch, KeyRange, Keyspace, KvError, KvSnapshot, KvStore, OrderedKv, Pair};
use crate::error::Error;

type Rows = BTreeMap<Vec<u8>, Bytes>;
type Spaces = [Arc<Rows>; Keyspace::ALL.len()];

/// An ordered map per keyspace. A snapshot shares the maps; a commit copies only those that a snapshot still
/// holds.
#[derive(Debug, Default)]
pub struct MemoryKv {
    spaces: RwLock<Spaces>,
}

impl OrderedKv for MemoryKv {
    fn is_blocking(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError> {
        let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Box::new(MemorySnapshot { spaces }))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        for check in &batch.checks {
            if spaces[number(check.keyspace)].get(&check.key) != check.expected.as_ref() {
                return Err(KvError::Conflict { keyspace: check.keyspace, key: check.key.clone() });
            }
        }
        for (keyspace, key, value) in &batch.puts {
            Arc::make_mut(&mut spaces[number(*keyspace)]).insert(key.clone(), value.clone());
        }
        for (keyspace, key) in &batch.deletes {
            Arc::make_mut(&mut spaces[number(*keyspace)]).remove(key);
        }
        Ok(())
    }
}

struct MemorySnapshot {
    spaces: Spaces,
}

impl KvSnapshot for MemorySnapshot {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.spaces[number(keyspace)].get(key).cloned())
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
        let rows = self.spaces[number(keyspace)].range::<[u8], _>(range.as_bounds());
        let pair = |(key, value): (&Vec<u8>, &Bytes)| (Bytes::copy_from_slice(key), value.clone());
        Ok(if is_reverse {
            rows.rev().take(limit).map(pair).collect()
        } else {
            rows.take(limit).map(pair).collect()
        })
    }
}

fn number(keyspace: Keyspace) -> usize {
    keyspace as usize
}

/// Returns a new, empty store in memory.
#[must_use]
#[expect(clippy::expect_used, reason = "a new map has neither rows of another schema nor a disk that fails")]
pub fn memory_store() -> Arc<dyn Store> {
    open_memory(Arc::new(MemoryKv::default())).expect("a new map can be opened")
}

/// Opens what a map holds; two stores may share one.
///
/// # Errors
/// As [`KvStore::open_blocking`].
pub fn open_memory(kv: Arc<MemoryKv>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(KvStore::open_blocking(kv)?))
}
