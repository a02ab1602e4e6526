//! RocksDB's figures as metrics. No label: they are of the whole store.

use std::path::Path;

use rocksdb::DB;
use rocksdb::properties::{
    CUR_SIZE_ALL_MEM_TABLES, ESTIMATE_LIVE_DATA_SIZE, ESTIMATE_PENDING_COMPACTION_BYTES, num_files_at_level,
};
use rocksdb::statistics::Ticker;
use tms_core::store::kv::Keyspace;

use crate::options::Setup;

/// End of the names of write-ahead logs.
const WAL_EXTENSION: &str = "log";

/// Records all figures as they are now.
pub(crate) fn record(db: &DB, setup: &Setup, folder: &Path) {
    let ticker = |ticker| setup.options.get_ticker_count(ticker);
    metrics::counter!("tms_store_rocksdb_cache_hits_total").absolute(ticker(Ticker::BlockCacheHit));
    metrics::counter!("tms_store_rocksdb_cache_misses_total").absolute(ticker(Ticker::BlockCacheMiss));
    metrics::counter!("tms_store_rocksdb_stall_microseconds_total").absolute(ticker(Ticker::StallMicros));
    let bytes = |n_bytes: u64| n_bytes as f64;
    metrics::gauge!("tms_store_rocksdb_cache_bytes").set(setup.cache.get_usage() as f64);
    metrics::gauge!("tms_store_rocksdb_memtable_bytes").set(bytes(total(db, CUR_SIZE_ALL_MEM_TABLES)));
    metrics::gauge!("tms_store_rocksdb_wal_bytes").set(bytes(wal_bytes(folder)));
    metrics::gauge!("tms_store_rocksdb_compaction_pending_bytes")
        .set(bytes(total(db, ESTIMATE_PENDING_COMPACTION_BYTES)));
    metrics::gauge!("tms_store_rocksdb_live_bytes").set(bytes(total(db, ESTIMATE_LIVE_DATA_SIZE)));
    let level0 = of_families(db, &num_files_at_level(0)).max().unwrap_or_default();
    metrics::gauge!("tms_store_rocksdb_level0_files").set(bytes(level0));
}

fn total(db: &DB, property: &rocksdb::properties::PropName) -> u64 {
    of_families(db, property).sum()
}

/// Returns a property of each family that has it.
fn of_families(db: &DB, property: &rocksdb::properties::PropName) -> impl Iterator<Item = u64> {
    Keyspace::ALL.into_iter().filter_map(move |keyspace| {
        let family = db.cf_handle(keyspace.as_str())?;
        let text = db.property_value_cf(family, property).ok()??;
        text.trim().parse().ok()
    })
}

fn wal_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let logs =
        entries.filter(|entry| Path::new(&entry.file_name()).extension().is_some_and(|e| e == WAL_EXTENSION));
    logs.filter_map(|log| log.metadata().ok()).map(|meta| meta.len()).sum()
}
