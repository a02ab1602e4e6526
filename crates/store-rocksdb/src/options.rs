//! How RocksDB is set: small, durable, and suspicious of its own files.

use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode,
    DEFAULT_COLUMN_FAMILY_NAME, Options, SliceTransform,
};
use tms_core::store::kv::Keyspace;

use crate::config::{
    BACKGROUND_JOBS, BLOOM_BITS, CACHE_BYTES, COLD_BLOCK_BYTES, FAMILY_MEMTABLE_BYTES, HOT_BLOCK_BYTES,
    INFO_LOG_BYTES, INFO_LOGS_MAX, MANIFEST_AHEAD_BYTES, MANIFEST_BYTES, MEMTABLE_BYTES, OPEN_FILES_MAX,
    WAL_BYTES, is_cold, prefix_bytes,
};

/// Pace of the writing back of files that are written in the background, so that no sync has to write much at once.
const BYTES_PER_SYNC: u64 = 1024 * 1024;
/// Memtables of a family that may exist: one that is written to, one that is written out.
const MEMTABLES_MAX: i32 = 2;
/// Threads that open files at the start.
const OPENING_THREADS: i32 = 2;

/// Options and cache, shared by all openings of one store.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) cache: Cache,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { options: database_options(), cache: Cache::new_lru_cache(CACHE_BYTES) }
    }

    /// Returns the options of a store that is made.
    pub(crate) fn creating(&self) -> Options {
        let mut options = self.options.clone();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_error_if_exists(true);
        options
    }

    /// Returns all families with their options; the first is RocksDB's own, which stays empty.
    pub(crate) fn families(&self) -> Vec<ColumnFamilyDescriptor> {
        let own = ColumnFamilyDescriptor::new(
            DEFAULT_COLUMN_FAMILY_NAME,
            family_options(Keyspace::Meta, &self.cache),
        );
        let families = Keyspace::ALL.map(|keyspace| {
            ColumnFamilyDescriptor::new(keyspace.as_str(), family_options(keyspace, &self.cache))
        });
        std::iter::once(own).chain(families).collect()
    }
}

fn database_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(false);
    options.set_paranoid_checks(true);
    // A write that a crash tore is the last of its log and was never acknowledged: it is left out. Anything else in a
    // log is damage and refuses the opening. The default, point in time, would stop at the damage and go on without a
    // word, and all acknowledged after it would be gone; absolute consistency would refuse after every torn write.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // Logs are not used again: old records behind the end would look like damage, or hide it.
    options.set_recycle_log_file_num(0);
    // A closed log that is missing or shorter than when it was synced refuses the opening.
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_max_total_wal_size(WAL_BYTES);
    options.set_db_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_max_file_opening_threads(OPENING_THREADS);
    options.set_max_manifest_file_size(MANIFEST_BYTES);
    options.set_manifest_preallocation_size(MANIFEST_AHEAD_BYTES);
    options.set_keep_log_file_num(INFO_LOGS_MAX);
    options.set_max_log_file_size(INFO_LOG_BYTES);
    // A mapped page that the disk cannot read ends the process; a read gives an error.
    options.set_allow_mmap_reads(false);
    options.set_allow_mmap_writes(false);
    // The start must not read every file for its statistics.
    options.set_skip_stats_update_on_db_open(true);
    // The figures are metrics; RocksDB need not write them into its own log too.
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    options
}

fn family_options(keyspace: Keyspace, cache: &Cache) -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(FAMILY_MEMTABLE_BYTES);
    options.set_max_write_buffer_number(MEMTABLES_MAX);
    options.set_compression_type(DBCompressionType::Lz4);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(BLOOM_BITS, false);
    // In the cache, so that its limit is the limit.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if is_cold(keyspace) {
        table.set_block_size(COLD_BLOCK_BYTES);
        // Nine tenths of the rows lie there and are hardly ever read again.
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
    } else {
        table.set_block_size(HOT_BLOCK_BYTES);
    }
    if let Some(n_bytes) = prefix_bytes(keyspace) {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(n_bytes));
    }
    options.set_block_based_table_factory(&table);
    options
}
