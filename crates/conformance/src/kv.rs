//! The cases of every ordered key-value backend.
#![allow(clippy::unused_async, reason = "all cases have one shape")]

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use tms_core::store::kv::{Batch, Check, KeyRange, Keyspace, KvError, OrderedKv};

/// What a backend lends to the cases.
#[async_trait]
pub trait KvHarness: Sized + Send + Sync {
    /// Opens a backend with data of its own.
    async fn open() -> Self;

    /// Returns the backend.
    fn kv(&self) -> Arc<dyn OrderedKv>;

    /// Closes the backend and opens it again with the same data. A case holds no backend over this call.
    async fn reopen(&self);
}

/// Expands to one named test per case for a [`KvHarness`].
#[macro_export]
macro_rules! kv_suite {
    ($harness:ty) => {
        $crate::kv_cases! {
            $harness;
            [
                keyspaces_share_no_rows,
                scan_is_ordered_both_ways,
                scan_holds_the_limit,
                empty_range_is_no_error,
                snapshot_is_consistent,
                batch_is_whole_or_nothing,
                changed_row_is_a_conflict,
                one_of_the_batches_at_once_is_made,
                removed_row_need_not_be_there,
                batch_is_durable,
                large_rows_come_back,
            ]
        }
    };
}

/// Expands the list of [`kv_suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! kv_cases {
    ($harness:ty; [$($case:ident),* $(,)?]) => {
        mod kv {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let harness = <$harness as $crate::kv::KvHarness>::open().await;
                    $crate::kv::$case(&harness).await;
                }
            )*
        }
    };
}

const SPACE: Keyspace = Keyspace::Index;

fn put(kv: &dyn OrderedKv, keyspace: Keyspace, key: &[u8], value: &str) {
    let puts = vec![(keyspace, key.to_vec(), value.to_owned().into())];
    kv.commit(&Batch { puts, ..Batch::default() }).unwrap();
}

fn get(kv: &dyn OrderedKv, keyspace: Keyspace, key: &[u8]) -> Option<String> {
    let value = kv.snapshot().unwrap().get(keyspace, key).unwrap();
    value.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn scan(kv: &dyn OrderedKv, range: &KeyRange, limit: usize, is_reverse: bool) -> Vec<Vec<u8>> {
    let rows = kv.snapshot().unwrap().scan(SPACE, range, limit, is_reverse).unwrap();
    assert!(rows.iter().all(|(key, value)| key == value), "each row was stored with its key as its value");
    rows.into_iter().map(|(key, _)| key.to_vec()).collect()
}

const KEYS: [&[u8]; 8] = [b"", b"a", b"a\0", b"aa", b"ab", b"b", b"b\xff", b"\xff\xff"];

/// Stores a few keys that sort in a way that is easy to get wrong.
fn store_keys(kv: &dyn OrderedKv) {
    let puts = KEYS.iter().rev().map(|key| (SPACE, key.to_vec(), key.to_vec().into())).collect();
    kv.commit(&Batch { puts, ..Batch::default() }).unwrap();
}

/// keyspaces share no rows
pub async fn keyspaces_share_no_rows(h: &impl KvHarness) {
    let kv = h.kv();
    for keyspace in Keyspace::ALL {
        assert_eq!(get(&*kv, keyspace, b"key"), None);
        put(&*kv, keyspace, b"key", keyspace.as_str());
    }
    for keyspace in Keyspace::ALL {
        assert_eq!(get(&*kv, keyspace, b"key").as_deref(), Some(keyspace.as_str()));
    }
}

/// a scan returns the rows of its range in order, in both directions
pub async fn scan_is_ordered_both_ways(h: &impl KvHarness) {
    let kv = h.kv();
    store_keys(&*kv);
    put(&*kv, Keyspace::Live, b"aaa", "of another keyspace");
    let inclusive = |from: &[u8], to: &[u8]| KeyRange {
        start: Bound::Included(from.to_vec()),
        end: Bound::Included(to.to_vec()),
    };
    let ranges = [
        (KeyRange::prefix(b""), &KEYS[..]),
        (KeyRange::prefix(b"a"), &KEYS[1..5]),
        (KeyRange::prefix(b"b"), &KEYS[5..7]),
        (KeyRange::prefix(b"\xff"), &KEYS[7..]),
        (KeyRange::prefix(b"a").after(b"a"), &KEYS[2..5]),
        (KeyRange::prefix(b"a").before(b"ab"), &KEYS[1..4]),
        (KeyRange::prefix(b"").after(b"aa\x01"), &KEYS[4..]),
        (inclusive(b"a", b"b"), &KEYS[1..6]),
        (inclusive(b"aa", b"aa"), &KEYS[3..4]),
    ];
    for (range, expected) in ranges {
        assert_eq!(scan(&*kv, &range, 100, false), expected, "{range:?}");
        let mut backwards = scan(&*kv, &range, 100, true);
        backwards.reverse();
        assert_eq!(backwards, expected, "{range:?} backwards");
    }
}

/// a scan returns at most the limit
pub async fn scan_holds_the_limit(h: &impl KvHarness) {
    let kv = h.kv();
    store_keys(&*kv);
    for limit in 0..=KEYS.len() {
        assert_eq!(scan(&*kv, &KeyRange::prefix(b""), limit, false), KEYS[..limit]);
        let mut backwards = scan(&*kv, &KeyRange::prefix(b""), limit, true);
        backwards.reverse();
        assert_eq!(backwards, KEYS[KEYS.len() - limit..]);
    }
}

/// a range that holds nothing is no error
pub async fn empty_range_is_no_error(h: &impl KvHarness) {
    let kv = h.kv();
    assert!(scan(&*kv, &KeyRange::prefix(b""), 10, false).is_empty(), "nothing is stored yet");
    store_keys(&*kv);
    let backwards = KeyRange { start: Bound::Included(b"b".to_vec()), end: Bound::Excluded(b"a".to_vec()) };
    let point = KeyRange { start: Bound::Excluded(b"a".to_vec()), end: Bound::Excluded(b"a".to_vec()) };
    for range in [KeyRange::prefix(b"c"), backwards, point, KeyRange::prefix(b"a").after(b"b")] {
        for is_reverse in [false, true] {
            assert!(scan(&*kv, &range, 10, is_reverse).is_empty(), "{range:?}");
        }
    }
}

/// a snapshot shows all that was committed before it and nothing that came after
pub async fn snapshot_is_consistent(h: &impl KvHarness) {
    let kv = h.kv();
    put(&*kv, SPACE, b"a", "1");
    let snapshot = kv.snapshot().unwrap();
    let batch = Batch {
        puts: vec![(SPACE, b"b".to_vec(), "2".into()), (Keyspace::Live, b"b".to_vec(), "2".into())],
        deletes: vec![(SPACE, b"a".to_vec())],
        ..Batch::default()
    };
    kv.commit(&batch).unwrap();
    assert_eq!(snapshot.get(SPACE, b"a").unwrap(), Some("1".into()));
    assert_eq!(snapshot.get(SPACE, b"b").unwrap(), None);
    assert_eq!(snapshot.get(Keyspace::Live, b"b").unwrap(), None, "not even of a keyspace not yet read");
    assert_eq!(snapshot.scan(SPACE, &KeyRange::prefix(b""), 10, false).unwrap().len(), 1);
    drop(snapshot);
    assert_eq!(get(&*kv, SPACE, b"a"), None);
    assert_eq!(get(&*kv, Keyspace::Live, b"b").as_deref(), Some("2"));
}

fn check(key: &[u8], expected: Option<&str>) -> Check {
    let expected = expected.map(|value| value.to_owned().into());
    Check { keyspace: SPACE, key: key.to_vec(), expected }
}

/// a batch is made whole or not at all
pub async fn batch_is_whole_or_nothing(h: &impl KvHarness) {
    let kv = h.kv();
    put(&*kv, SPACE, b"a", "1");
    let mut batch = Batch {
        // The precondition that fails is of the last keyspace; the writes are of the first ones.
        checks: vec![Check { keyspace: Keyspace::Settings, key: b"x".to_vec(), expected: Some("1".into()) }],
        puts: vec![(Keyspace::Meta, b"m".to_vec(), "1".into()), (SPACE, b"b".to_vec(), "1".into())],
        deletes: vec![(SPACE, b"a".to_vec())],
    };
    assert!(matches!(kv.commit(&batch), Err(KvError::Conflict { .. })));
    assert_eq!(get(&*kv, Keyspace::Meta, b"m"), None);
    assert_eq!(get(&*kv, SPACE, b"b"), None);
    assert_eq!(get(&*kv, SPACE, b"a").as_deref(), Some("1"));
    batch.checks.clear();
    kv.commit(&batch).unwrap();
    assert_eq!(get(&*kv, Keyspace::Meta, b"m").as_deref(), Some("1"));
    assert_eq!(get(&*kv, SPACE, b"b").as_deref(), Some("1"));
    assert_eq!(get(&*kv, SPACE, b"a"), None);
}

/// a batch is refused with `Conflict` when a row differs from what it expects
pub async fn changed_row_is_a_conflict(h: &impl KvHarness) {
    let kv = h.kv();
    put(&*kv, SPACE, b"a", "1");
    put(&*kv, SPACE, b"empty", "");
    let with = |one: Check| Batch {
        checks: vec![check(b"none", None), one],
        puts: vec![(SPACE, b"new".to_vec(), "1".into())],
        ..Batch::default()
    };
    for bad in [check(b"a", None), check(b"a", Some("2")), check(b"a", Some("")), check(b"b", Some(""))]
        .into_iter()
        .chain([check(b"empty", None)])
    {
        let key = bad.key.clone();
        match kv.commit(&with(bad)) {
            Err(KvError::Conflict { keyspace, key: named }) => assert_eq!((keyspace, named), (SPACE, key)),
            other => panic!("{other:?}"),
        }
        assert_eq!(get(&*kv, SPACE, b"new"), None);
    }
    for good in [check(b"a", Some("1")), check(b"b", None), check(b"empty", Some(""))] {
        kv.commit(&with(good)).unwrap();
    }
}

/// of batches at once that expect the same row one is made
pub async fn one_of_the_batches_at_once_is_made(h: &impl KvHarness) {
    const N_ROUNDS: usize = 20;
    for round in 0..N_ROUNDS {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let kv = h.kv();
            writers.spawn_blocking(move || {
                let key = format!("row{round}");
                let puts = vec![
                    (SPACE, key.clone().into_bytes(), writer.to_string().into()),
                    (Keyspace::Live, format!("{key} {writer}").into_bytes(), "1".into()),
                ];
                let checks = vec![check(key.as_bytes(), None)];
                kv.commit(&Batch { checks, puts, ..Batch::default() }).is_ok()
            });
        }
        let results = writers.join_all().await;
        assert_eq!(results.iter().filter(|made| **made).count(), 1);
    }
    let made = h.kv().snapshot().unwrap().scan(Keyspace::Live, &KeyRange::prefix(b""), 1_000, false).unwrap();
    assert_eq!(made.len(), N_ROUNDS);
}

/// a row that a batch removes need not be there
pub async fn removed_row_need_not_be_there(h: &impl KvHarness) {
    let kv = h.kv();
    put(&*kv, SPACE, b"a", "1");
    let deletes = vec![(SPACE, b"a".to_vec()), (SPACE, b"b".to_vec()), (Keyspace::History, b"a".to_vec())];
    kv.commit(&Batch { deletes, ..Batch::default() }).unwrap();
    assert_eq!(get(&*kv, SPACE, b"a"), None);
}

/// a batch is durable when the call returns
pub async fn batch_is_durable(h: &impl KvHarness) {
    for n in 0..5 {
        put(&*h.kv(), SPACE, format!("row{n}").as_bytes(), "1");
        h.reopen().await;
        for earlier in 0..=n {
            assert!(get(&*h.kv(), SPACE, format!("row{earlier}").as_bytes()).is_some());
        }
    }
}

/// Rows of some MiB, and many at once, come back as they were.
pub async fn large_rows_come_back(h: &impl KvHarness) {
    let large = "x".repeat(3 * 1024 * 1024);
    put(&*h.kv(), SPACE, b"large", &large);
    let puts = (0..10_000_u32).map(|n| (Keyspace::History, n.to_be_bytes().to_vec(), "row".into()));
    h.kv().commit(&Batch { puts: puts.collect(), ..Batch::default() }).unwrap();
    h.reopen().await;
    assert!(get(&*h.kv(), SPACE, b"large") == Some(large));
    let rows =
        h.kv().snapshot().unwrap().scan(Keyspace::History, &KeyRange::prefix(b""), 20_000, false).unwrap();
    assert_eq!(rows.len(), 10_000);
}
