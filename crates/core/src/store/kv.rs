//! Every aggregate over one small ordered key-value trait: what an embedded backend has to offer is
//! [`OrderedKv`]; [`KvStore`] builds every store trait with its secondary indexes on it.
//!
//! A backend must not know what the bytes mean, and nothing here may know a backend.

mod backup;
mod codec;
mod covered;
mod instances;
mod keys;
mod leadership;
mod listing;
mod place;
mod prune;
mod requests;
mod settings;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use std::fmt::Debug;
use std::ops::Bound;

use bytes::Bytes;

pub use backup::{RestoredRows, check_copy_blocking, restore_blocking};
pub use store::{KvStore, SCHEMA_VERSION};

/// Most rows that one page of a filtered list may visit; beyond it the page ends early, with a cursor.
pub const LIST_VISITS_MAX: usize = 5_000;
/// Most rows that one pruning may visit to find what it may remove.
pub const PRUNE_VISITS_MAX: usize = 100_000;
/// Times that a transaction is run again because a precondition did not hold.
pub const CONFLICT_RETRIES_MAX: usize = 16;

/// Where a row lies. Hot and cold rows lie apart, so that history costs the hot path nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Keyspace {
    /// A few single rows: schema, incarnation, term, change sequence, counts.
    Meta,
    /// Tables and what their looks saw.
    Tables,
    /// What writers told of a table, and which tables are touched. Hot: each hand-over writes here.
    Touches,
    /// Live instances, and which table has which. Hot.
    Live,
    /// Instances by key and by table, tombstones, ended instances by time.
    Index,
    /// Ended instances. Cold.
    History,
    /// Events and attempts that are over. Cold.
    Details,
    /// Queues, nodes and intents.
    Settings,
}

impl Keyspace {
    /// All keyspaces; a position in it is the keyspace's number.
    pub const ALL: [Self; 8] = [
        Self::Meta,
        Self::Tables,
        Self::Touches,
        Self::Live,
        Self::Index,
        Self::History,
        Self::Details,
        Self::Settings,
    ];

    /// Returns the name that backends use for a table or column family. It is part of the format on disk.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Tables => "tables",
            Self::Touches => "touches",
            Self::Live => "live",
            Self::Index => "index",
            Self::History => "history",
            Self::Details => "details",
            Self::Settings => "settings",
        }
    }
}

/// A row as a scan returns it: key and value.
pub type Pair = (Bytes, Bytes);

/// A range of keys within one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where it starts.
    pub start: Bound<Vec<u8>>,
    /// Where it ends.
    pub end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Returns the range of all keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bound::Included(prefix.to_vec()), end: end_of(prefix) }
    }

    /// Returns this range without `key` and all before it.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Self {
        self.start = Bound::Excluded(key.to_vec());
        self
    }

    /// Returns this range without `key` and all after it.
    #[must_use]
    pub fn before(mut self, key: &[u8]) -> Self {
        self.end = Bound::Excluded(key.to_vec());
        self
    }

    /// Tells whether no key can lie in it. Ordered maps panic at such ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
        }
    }

    /// Returns the bounds as slices, as ordered maps want them.
    #[must_use]
    pub fn as_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_ref().map(Vec::as_slice), self.end.as_ref().map(Vec::as_slice))
    }
}

/// Returns the first key after all that start with `prefix`.
fn end_of(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// A precondition of a batch: the row is as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Where.
    pub keyspace: Keyspace,
    /// Which row.
    pub key: Vec<u8>,
    /// Its value; `None` = there is no such row.
    pub expected: Option<Bytes>,
}

/// Changes that are made together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// What must hold.
    pub checks: Vec<Check>,
    /// Rows that are stored, in order of keyspace and key.
    pub puts: Vec<(Keyspace, Vec<u8>, Bytes)>,
    /// Rows that are removed, in order of keyspace and key; one that is not there is no error.
    pub deletes: Vec<(Keyspace, Vec<u8>)>,
}

impl Batch {
    /// Tells whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }
}

/// Why a backend refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum KvError {
    /// A precondition did not hold; nothing was changed.
    Conflict {
        /// Where.
        keyspace: Keyspace,
        /// Which row.
        key: Vec<u8>,
    },
    /// It may work later: the disk is full, the file is held by another process.
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// What lies on disk is damaged.
    Damaged(Box<dyn std::error::Error + Send + Sync>),
    /// A defect.
    Unexpected(Box<dyn std::error::Error + Send + Sync>),
}

/// A consistent view of all keyspaces. Lives for the length of one call, on one thread.
pub trait KvSnapshot {
    /// Returns the value of one row.
    ///
    /// # Behavior
    /// - keyspaces share no rows
    ///
    /// # Errors
    /// `Unavailable` or `Damaged` when it cannot be read.
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError>;

    /// Returns the first `limit` rows of a range in ascending order, or the last ones in descending order.
    ///
    /// # Behavior
    /// - a scan returns the rows of its range in order, in both directions
    /// - a scan returns at most the limit
    /// - a range that holds nothing is no error
    ///
    /// # Errors
    /// `Unavailable` or `Damaged` when they cannot be read.
    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: usize,
        is_reverse: bool,
    ) -> Result<Vec<Pair>, KvError>;
}

/// What an embedded backend offers. All calls block; [`KvStore`] takes them to the blocking pool.
pub trait OrderedKv: Debug + Send + Sync + 'static {
    /// Tells whether a call may take longer than about half a millisecond; false only where nothing leaves
    /// memory.
    fn is_blocking(&self) -> bool {
        true
    }

    /// Tells whether what was committed is still where the next process will look for it. Called for hand-overs that
    /// need no write, so it must take microseconds.
    ///
    /// # Errors
    /// `Unavailable` when it was moved or removed.
    fn check_place(&self) -> Result<(), KvError> {
        Ok(())
    }

    /// Opens a view of what is committed now.
    ///
    /// # Behavior
    /// - a snapshot shows all that was committed before it and nothing that came after
    ///
    /// # Errors
    /// `Unavailable` or `Damaged` when the data cannot be read.
    fn snapshot(&self) -> Result<Box<dyn KvSnapshot + '_>, KvError>;

    /// Makes a batch durable.
    ///
    /// # Behavior
    /// - a batch is made whole or not at all
    /// - a batch is refused with `Conflict` when a row differs from what it expects
    /// - of batches at once that expect the same row one is made
    /// - a row that a batch removes need not be there
    /// - a batch is durable when the call returns
    ///
    /// # Errors
    /// `Conflict` when a precondition does not hold; `Unavailable` or `Damaged` when it cannot be written.
    /// After an error other than `Conflict` it is unknown whether the batch was made durable.
    fn commit(&self, batch: &Batch) -> Result<(), KvError>;

    /// Records what the backend measures of itself as metrics; most have nothing to say.
    fn record_metrics(&self) {}
}
