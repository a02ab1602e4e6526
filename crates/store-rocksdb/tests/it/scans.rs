//! Scans over what lies in files, with their filters, against an ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;
use tms_core::store::kv::{Batch, KeyRange, Keyspace, OrderedKv};
use tms_store_rocksdb::RocksKv;

/// One with each length of prefix, and one without. The first family has rows of the store itself.
const FAMILIES: [Keyspace; 4] = [Keyspace::Tables, Keyspace::Live, Keyspace::Index, Keyspace::Details];

/// Keys of few objects, whose ids are as long as the prefixes that filters know, and keys that are shorter than those.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let of_object = (prop::sample::select(vec![0_u8, 1, 0x7f, 0xfe, 0xff]), vec(0..3_u8, 0..3))
        .prop_flat_map(|(id, end)| {
            (16..18_usize).prop_map(move |n_bytes| [vec![id; n_bytes], end.clone()].concat())
        });
    prop_oneof![4 => of_object, 1 => vec(prop::sample::select(vec![0_u8, 1, 0xff]), 0..5)]
}

fn range() -> impl Strategy<Value = KeyRange> {
    let bound = || {
        prop_oneof![
            1 => Just(Bound::Unbounded),
            2 => key().prop_map(Bound::Included),
            2 => key().prop_map(Bound::Excluded),
        ]
    };
    prop_oneof![
        (bound(), bound()).prop_map(|(start, end)| KeyRange { start, end }),
        key().prop_map(|key| KeyRange::prefix(&key)),
        (key(), key()).prop_map(|(prefix, after)| KeyRange::prefix(&prefix).after(&after)),
        (key(), key()).prop_map(|(prefix, before)| KeyRange::prefix(&prefix).before(&before)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn scans_of_files_and_memory_find_what_an_ordered_map_finds(
        rounds in vec(vec((key(), any::<bool>()), 1..30), 1..4),
        asked in vec((range(), 1..6_usize), 60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut kv = RocksKv::open_blocking(folder.path()).unwrap();
        for (n_round, round) in rounds.into_iter().enumerate() {
            // Closing writes the rows so far into a file of its own, with its filters.
            drop(kv);
            kv = RocksKv::open_blocking(folder.path()).unwrap();
            for (key, is_removed) in round {
                let mut batch = Batch::default();
                for keyspace in FAMILIES {
                    if is_removed {
                        batch.deletes.push((keyspace, key.clone()));
                    } else {
                        batch.puts.push((keyspace, key.clone(), format!("{n_round}").into()));
                    }
                }
                kv.commit(&batch).unwrap();
                if is_removed {
                    model.remove(&key);
                } else {
                    model.insert(key, format!("{n_round}").into_bytes());
                }
            }
        }
        for (range, limit) in asked {
            let all: Vec<_> = if range.is_empty() {
                Vec::new()
            } else {
                model.range::<[u8], _>(range.as_bounds()).collect()
            };
            for keyspace in FAMILIES {
                let snapshot = kv.snapshot().unwrap();
                for is_reverse in [false, true] {
                    let found = snapshot.scan(keyspace, &range, limit, is_reverse).unwrap();
                    let found: Vec<_> = found.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                    let mut expected: Vec<_> = all.iter().map(|(k, v)| ((*k).clone(), (*v).clone())).collect();
                    if is_reverse {
                        expected.reverse();
                    }
                    expected.truncate(limit);
                    prop_assert_eq!(found, expected, "{:?} {:?} backwards: {}", keyspace, range, is_reverse);
                }
            }
        }
    }
}
