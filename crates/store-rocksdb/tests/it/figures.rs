//! Durable hand-overs per second. Says figures and asserts nothing about them: machines differ. Asked for by
//! `TMS_TEST_FIGURES=1`, since it takes seconds.

use std::sync::Arc;
use std::time::Duration;

use tms_conformance::store::samples::hand_over;
use tms_core::clock::{Clock, SystemClock};
use tms_core::store::coalescer::{Coalescer, CoalescerLimits};
use tms_core::store::{RequestStore, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const TIME: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_hand_overs_per_second() {
    if std::env::var_os("TMS_TEST_FIGURES").is_none() {
        println!("SKIPPED figures: TMS_TEST_FIGURES is not set");
        return;
    }
    for n_callers in [1, 64] {
        let folder = tempfile::tempdir().unwrap();
        let store = tms_store_rocksdb::open(folder.path()).await.unwrap();
        let rate = measure(store, n_callers).await;
        println!("{n_callers} callers: {rate:.0} durable hand-overs per second");
        let clock = SystemClock::default();
        let before = clock.monotonic();
        drop(tms_store_rocksdb::open(folder.path()).await.unwrap());
        println!(
            "opened again, closed and left alone in {:?}; {} MiB resident",
            clock.monotonic() - before,
            resident_mib()
        );
    }
}

/// Resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

async fn measure(store: Arc<dyn Store>, n_callers: usize) -> f64 {
    let (coalescer, task) = Coalescer::new(store as Arc<dyn RequestStore>, CoalescerLimits::default());
    let shutdown = CancellationToken::new();
    let mut owner = JoinSet::new();
    owner.spawn(task.run(shutdown.clone()));
    let clock = Arc::new(SystemClock::default());
    let mut callers = JoinSet::new();
    for caller in 0..n_callers {
        let (coalescer, clock) = (coalescer.clone(), Arc::clone(&clock));
        callers.spawn(async move {
            let mut n_done = 0_u32;
            while clock.monotonic() < TIME {
                // Tables of its own, so that nothing merges.
                let name = format!("c{caller}-{}", n_done % 10);
                coalescer.hand_over(hand_over(&name)).await.unwrap();
                n_done += 1;
            }
            n_done
        });
    }
    let n_done: u32 = callers.join_all().await.into_iter().sum();
    let elapsed = clock.monotonic();
    shutdown.cancel();
    owner.join_all().await;
    f64::from(n_done) / elapsed.as_secs_f64()
}
