//! One transaction: reads of one snapshot, each a precondition of the write, and the writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{bad_row, decode, encode};
use super::{Batch, Check, KeyRange, Keyspace, KvError, KvSnapshot, Pair, keys};
use crate::error::{Error, ErrorKind};
use crate::model::id::{NodeName, Term};

/// Maps what a backend says; the only place that does.
pub(super) fn of_kv(error: KvError, operation: &'static str) -> Error {
    match error {
        KvError::Conflict { keyspace, key } => Error::new(ErrorKind::Conflict, operation)
            .with("keyspace", keyspace.as_str())
            .with("key", hex::encode(key)),
        KvError::Unavailable(cause) => Error::new(ErrorKind::Unavailable, operation)
            .hint("look at the disk of store.path: space, permissions, and errors in the system's log")
            .caused_by(cause),
        KvError::Damaged(cause) => Error::new(ErrorKind::Unexpected, operation)
            .hint("the store is damaged: stop the server and restore store.path from a backup")
            .caused_by(cause),
        KvError::Unexpected(cause) => Error::new(ErrorKind::Unexpected, operation).caused_by(cause),
    }
}

/// Reads of one snapshot.
pub(super) struct View<'a> {
    snapshot: &'a dyn KvSnapshot,
    operation: &'static str,
}

impl<'a> View<'a> {
    pub(super) fn new(snapshot: &'a dyn KvSnapshot, operation: &'static str) -> Self {
        Self { snapshot, operation }
    }

    pub(super) fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.snapshot.get(keyspace, key).map_err(|e| of_kv(e, self.operation))
    }

    pub(super) fn read<T: DeserializeOwned>(
        &self,
        keyspace: Keyspace,
        key: &[u8],
    ) -> Result<Option<T>, Error> {
        self.get(keyspace, key)?.map(|value| decode(keyspace, key, &value)).transpose()
    }

    pub(super) fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<Pair>, Error> {
        self.snapshot.scan(keyspace, range, limit, false).map_err(|e| of_kv(e, self.operation))
    }

    pub(super) fn scan_back(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<Pair>, Error> {
        self.snapshot.scan(keyspace, range, limit, true).map_err(|e| of_kv(e, self.operation))
    }

    /// Refuses a term that is not the newest one begun, as far as this view sees.
    pub(super) fn fence(&self, term: Term) -> Result<(), Error> {
        check_term(self.read(Keyspace::Meta, keys::meta::TERM)?, term, self.operation)
    }
}

fn check_term(newest: Option<TermRow>, term: Term, operation: &'static str) -> Result<(), Error> {
    if newest.as_ref().is_some_and(|row| row.term == term) {
        return Ok(());
    }
    let newest = newest.map_or_else(|| "none".to_owned(), |row| row.term.to_string());
    Err(Error::new(ErrorKind::Fenced, operation).with("term", term).with("newest", newest))
}

type Place = (Keyspace, Vec<u8>);

/// Reads and writes of one transaction. Each row read by [`Tx::get`] is a precondition of the commit.
pub(super) struct Tx<'a> {
    /// Reads that are no preconditions and do not see this transaction's writes.
    pub(super) stored: View<'a>,
    seen: BTreeMap<Place, Option<Bytes>>,
    writes: BTreeMap<Place, Option<Bytes>>,
}

/// The newest term and who leads in it.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub(super) struct TermRow {
    pub(super) term: Term,
    pub(super) node: NodeName,
}

impl<'a> Tx<'a> {
    pub(super) fn new(snapshot: &'a dyn KvSnapshot, operation: &'static str) -> Self {
        Self { stored: View::new(snapshot, operation), seen: BTreeMap::new(), writes: BTreeMap::new() }
    }

    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.stored.operation)
    }

    pub(super) fn get(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let place = (keyspace, key.to_vec());
        if let Some(written) = self.writes.get(&place) {
            return Ok(written.clone());
        }
        if let Some(seen) = self.seen.get(&place) {
            return Ok(seen.clone());
        }
        let value = self.stored.get(keyspace, key)?;
        self.seen.insert(place, value.clone());
        Ok(value)
    }

    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
    ) -> Result<Option<T>, Error> {
        self.get(keyspace, key)?.map(|value| decode(keyspace, key, &value)).transpose()
    }

    pub(super) fn has(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<bool, Error> {
        Ok(self.get(keyspace, key)?.is_some())
    }

    pub(super) fn put(&mut self, keyspace: Keyspace, key: Vec<u8>, value: Bytes) {
        self.writes.insert((keyspace, key), Some(value));
    }

    pub(super) fn store<T: Serialize + ?Sized>(
        &mut self,
        keyspace: Keyspace,
        key: Vec<u8>,
        value: &T,
    ) -> Result<(), Error> {
        self.put(keyspace, key, encode(value)?);
        Ok(())
    }

    pub(super) fn delete(&mut self, keyspace: Keyspace, key: Vec<u8>) {
        self.writes.insert((keyspace, key), None);
    }

    pub(super) fn n_writes(&self) -> usize {
        self.writes.len()
    }

    /// Refuses a term that is not the newest one begun. One that never began is no leadership either.
    pub(super) fn fence(&mut self, term: Term) -> Result<(), Error> {
        let newest: Option<TermRow> = self.read(Keyspace::Meta, keys::meta::TERM)?;
        check_term(newest, term, self.stored.operation)
    }

    /// Returns a number of [`Keyspace::Meta`]; 0 when it was never stored.
    pub(super) fn number(&mut self, key: &[u8]) -> Result<u64, Error> {
        match self.get(Keyspace::Meta, key)? {
            Some(value) => read_number(key, &value),
            None => Ok(0),
        }
    }

    pub(super) fn set_number(&mut self, key: &[u8], number: u64) {
        self.put(Keyspace::Meta, key.to_vec(), Bytes::copy_from_slice(&number.to_be_bytes()));
    }

    /// Raises the change sequence and returns it.
    pub(super) fn raise_change_seq(&mut self) -> Result<u64, Error> {
        let seq = self.number(keys::meta::CHANGE_SEQ)? + 1;
        self.set_number(keys::meta::CHANGE_SEQ, seq);
        Ok(seq)
    }

    /// Returns what is to be committed. Writes that would leave a row as it was read are left out.
    pub(super) fn into_batch(self) -> Batch {
        let mut batch = Batch::default();
        let seen = self.seen;
        let is_change = |(place, value): &(Place, Option<Bytes>)| seen.get(place) != Some(value);
        let writes: Vec<_> = self.writes.into_iter().filter(is_change).collect();
        batch.checks.extend(seen.into_iter().map(|((keyspace, key), expected)| Check {
            keyspace,
            key,
            expected,
        }));
        for ((keyspace, key), value) in writes {
            match value {
                Some(value) => batch.puts.push((keyspace, key, value)),
                None => batch.deletes.push((keyspace, key)),
            }
        }
        batch
    }
}

/// Reads a number of [`Keyspace::Meta`].
pub(super) fn read_number(key: &[u8], value: &[u8]) -> Result<u64, Error> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| bad_row(Keyspace::Meta, key))?;
    Ok(u64::from_be_bytes(bytes))
}
