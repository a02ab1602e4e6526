//! RocksDB's figures as metrics.

use metrics_exporter_prometheus::PrometheusBuilder;
use tms_core::store::kv::OrderedKv;
use tms_store_rocksdb::{CACHE_BYTES, MEMTABLE_BYTES, RocksKv};

use crate::rows;

#[test]
fn figures_move_with_rows_and_have_no_labels() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = |kv: &RocksKv| {
        metrics::with_local_recorder(&recorder, || kv.record_metrics());
        recorder.handle().render()
    };
    let value = |shown: &str, name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(&format!("tms_store_rocksdb_{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {shown}")).parse::<f64>().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open_blocking(folder.path()).unwrap();
    for n in 0..20 {
        rows::store(&kv, n).unwrap();
    }
    let text = shown(&kv);
    let memtables = value(&text, "memtable_bytes");
    assert!(memtables > 20.0 * 16_384.0 && memtables < MEMTABLE_BYTES as f64, "{text}");
    assert!(value(&text, "wal_bytes") > 20.0 * 16_384.0, "{text}");
    assert!(!text.contains('{'), "{text}");

    drop(kv);
    let kv = RocksKv::open_blocking(folder.path()).unwrap();
    for _ in 0..2 {
        assert!(!rows::check_all(&kv, 20, "figures"));
    }
    let text = shown(&kv);
    assert!(value(&text, "memtable_bytes") < memtables, "{text}");
    let cache = value(&text, "cache_bytes");
    assert!(cache > 0.0 && cache < CACHE_BYTES as f64, "{text}");
    for name in ["cache_hits_total", "cache_misses_total", "live_bytes", "level0_files"] {
        assert!(value(&text, name) > 0.0, "{name} in {text}");
    }
    for name in ["compaction_pending_bytes", "stall_microseconds_total"] {
        assert!(value(&text, name) >= 0.0, "{name} in {text}");
    }
}
