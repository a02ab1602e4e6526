//! A consistent view of all families.

use std::ops::Bound;
use std::sync::RwLockReadGuard;

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, DBRawIterator, ReadOptions, Snapshot};
use tms_core::store::kv::{KeyRange, Keyspace, KvError, KvSnapshot, Pair};

use crate::config::prefix_bytes;
use crate::errors::of_rocks;
use crate::home::Home;
use crate::kv::Slot;

type Guard<'g> = RwLockReadGuard<'g, Slot>;

struct View<'a> {
    db: &'a DB,
    snapshot: Snapshot<'a>,
}

self_cell::self_cell! {
    /// A snapshot with what keeps its database open.
    struct HeldView<'g> {
        owner: Guard<'g>,
        #[covariant]
        dependent: View,
    }
}

/// A snapshot of RocksDB, shared by all families.
pub(crate) struct RocksSnapshot<'g> {
    view: HeldView<'g>,
    home: &'g Home,
}

impl<'g> RocksSnapshot<'g> {
    /// Takes a snapshot of the database in `slot`, which stays open as long.
    pub(crate) fn new(slot: Guard<'g>, home: &'g Home) -> Result<Self, KvError> {
        let view = HeldView::try_new(slot, |slot| {
            let db = slot.database()?;
            Ok::<_, KvError>(View { db, snapshot: db.snapshot() })
        })?;
        Ok(Self { view, home })
    }
}

/// Returns the family of a keyspace.
pub(crate) fn family(db: &DB, keyspace: Keyspace) -> Result<&ColumnFamily, KvError> {
    let name = keyspace.as_str();
    db.cf_handle(name).ok_or_else(|| KvError::Unexpected(format!("the family {name} is not open").into()))
}

impl KvSnapshot for RocksSnapshot<'_> {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let View { db, snapshot } = self.view.borrow_dependent();
        let found =
            snapshot.get_pinned_cf(family(db, keyspace)?, key).map_err(|e| of_rocks(self.home.told(&e)))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: usize,
        is_reverse: bool,
    ) -> Result<Vec<Pair>, KvError> {
        if limit == 0 || range.is_empty() {
            return Ok(Vec::new());
        }
        let Bounds { lower, upper } = Bounds::of(range);
        if upper.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let View { db, snapshot } = self.view.borrow_dependent();
        let is_of_one = !is_reverse && stays_in_one_prefix(keyspace, &lower, upper.as_deref());
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(is_of_one);
        options.set_total_order_seek(!is_of_one);
        options.set_iterate_lower_bound(lower.clone());
        if let Some(upper) = upper {
            options.set_iterate_upper_bound(upper);
        }
        let mut rows = snapshot.raw_iterator_cf_opt(family(db, keyspace)?, options);
        if is_reverse {
            rows.seek_to_last();
        } else {
            rows.seek(&lower);
        }
        let found = collect(&mut rows, limit, is_reverse);
        rows.status().map_err(|e| of_rocks(self.home.told(&e)))?;
        Ok(found)
    }
}

fn collect(rows: &mut DBRawIterator<'_>, limit: usize, is_reverse: bool) -> Vec<Pair> {
    let mut found = Vec::new();
    while let Some((key, value)) = rows.item() {
        found.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        if found.len() == limit {
            break;
        }
        if is_reverse {
            rows.prev();
        } else {
            rows.next();
        }
    }
    found
}

/// A range as RocksDB wants it: from `lower` on, and before `upper`.
struct Bounds {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Bounds {
    fn of(range: &KeyRange) -> Self {
        let lower = match &range.start {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => next(key),
        };
        let upper = match &range.end {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(next(key)),
            Bound::Excluded(key) => Some(key.clone()),
        };
        Self { lower, upper }
    }
}

/// Returns the first key after `key`.
fn next(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// Tells whether every key of a range begins with the same prefix, so that the filters of prefixes hide no row of it.
/// Only forwards: a walk back starts at the upper bound, which may have another prefix.
fn stays_in_one_prefix(keyspace: Keyspace, lower: &[u8], upper: Option<&[u8]>) -> bool {
    let Some(prefix) = prefix_bytes(keyspace).and_then(|n_bytes| lower.get(..n_bytes)) else { return false };
    let KeyRange { end: Bound::Excluded(end), .. } = KeyRange::prefix(prefix) else { return false };
    upper.is_some_and(|upper| upper <= end.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one(range: &KeyRange) -> bool {
        let Bounds { lower, upper } = Bounds::of(range);
        stays_in_one_prefix(Keyspace::Details, &lower, upper.as_deref())
    }

    #[test]
    fn a_range_within_one_prefix_is_told_from_all_others() {
        let id = [7; 16];
        let longer = [&id[..], b"e"].concat();
        assert!(of_one(&KeyRange::prefix(&id)));
        assert!(of_one(&KeyRange::prefix(&longer)));
        assert!(of_one(&KeyRange::prefix(&id).after(&longer)));
        assert!(of_one(&KeyRange::prefix(&id).before(&longer)));
        let to =
            |end: &[u8]| KeyRange { start: Bound::Included(id.to_vec()), end: Bound::Included(end.to_vec()) };
        assert!(of_one(&to(&longer)));
        let mut other = id;
        other[15] += 1;
        assert!(!of_one(&to(&other)), "the first key of the next prefix belongs to it");
        assert!(!of_one(&KeyRange::prefix(&id[..15])));
        assert!(!of_one(&KeyRange::prefix(b"")));
        assert!(!of_one(&KeyRange::prefix(&[0xff; 16])), "it has no end");
        assert!(!of_one(&KeyRange { start: Bound::Included(id.to_vec()), end: Bound::Unbounded }));
    }
}
