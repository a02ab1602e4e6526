//! Batches that can be recognised: batch `n` has one large row, one row that all batches change, and a removal.

use bytes::Bytes;
use tms_core::store::kv::{Batch, Check, KeyRange, Keyspace, KvError, OrderedKv};
use tms_store_rocksdb::RocksKv;

/// Bytes of a large row: a few hundred fill a memtable, so that files and logs change too.
const ROW_BYTES: usize = 16 * 1024;
const COUNT: &[u8] = b"count";

fn key(n: u64) -> Vec<u8> {
    format!("row {n:08}").into_bytes()
}

/// Bytes that no other batch has.
fn value(n: u64) -> Bytes {
    let filling = n.to_le_bytes()[0];
    [&n.to_be_bytes()[..], &vec![filling; ROW_BYTES][..]].concat().into()
}

/// Most rows lie in one family, whose memtables fill first.
fn keyspace(n: u64) -> Keyspace {
    match n % 8 {
        0 => Keyspace::Live,
        1 => Keyspace::History,
        _ => Keyspace::Details,
    }
}

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_be_bytes())
}

/// Stores batch `n`, the batches before being stored.
pub(crate) fn store(kv: &RocksKv, n: u64) -> Result<(), KvError> {
    let expected = n.checked_sub(1).map(number);
    let mut batch = Batch {
        checks: vec![Check { keyspace: Keyspace::Settings, key: COUNT.to_vec(), expected }],
        puts: vec![(keyspace(n), key(n), value(n)), (Keyspace::Settings, COUNT.to_vec(), number(n))],
        deletes: Vec::new(),
    };
    batch.puts.push((Keyspace::Touches, key(n), "waits".into()));
    if n > 0 {
        batch.deletes.push((Keyspace::Touches, key(n - 1)));
    }
    kv.commit(&batch)
}

/// Checks that batches 0 to `n_acknowledged` are there, whole, and perhaps one more. Returns whether a read said that
/// something is damaged.
pub(crate) fn check_all(kv: &RocksKv, n_acknowledged: u64, what: &str) -> bool {
    let Ok(snapshot) = kv.snapshot() else { return true };
    let mut is_damaged = false;
    let mut or_damaged = |read: Result<Option<Bytes>, KvError>| match read {
        Ok(row) => Some(row),
        Err(KvError::Damaged(_)) => {
            is_damaged = true;
            None
        }
        Err(other) => panic!("{what}: {other:?}"),
    };
    for n in 0..n_acknowledged {
        if let Some(row) = or_damaged(snapshot.get(keyspace(n), &key(n))) {
            assert!(row == Some(value(n)), "{what}: acknowledged batch {n} is lost");
        }
    }
    if let Some(count) = or_damaged(snapshot.get(Keyspace::Settings, COUNT)) {
        let allowed = [Some(number(n_acknowledged - 1)), Some(number(n_acknowledged))];
        assert!(allowed.contains(&count), "{what}: {count:?} after {n_acknowledged} batches");
    }
    for is_reverse in [false, true] {
        match snapshot.scan(Keyspace::Touches, &KeyRange::prefix(b""), 10, is_reverse) {
            Ok(rows) => assert_eq!(rows.len(), 1, "{what}: each batch removes the row of the one before"),
            Err(KvError::Damaged(_)) => is_damaged = true,
            Err(other) => panic!("{what}: {other:?}"),
        }
    }
    is_damaged
}

/// Returns how many batches are there.
pub(crate) fn count(kv: &RocksKv) -> u64 {
    let found = kv.snapshot().unwrap().get(Keyspace::Settings, COUNT).unwrap();
    found.map_or(0, |bytes| u64::from_be_bytes(bytes.as_ref().try_into().unwrap()) + 1)
}
