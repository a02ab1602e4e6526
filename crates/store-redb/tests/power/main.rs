//! Power cuts of redb: a disk that keeps apart what was written since the last sync, and at a cut applies a random part
//! of it. See `tms_conformance::power` for the arguments.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod disk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tms_conformance::power::{Cutter, Dice, Sync, Tally};
use tms_conformance::steps;
use tms_core::Error;
use tms_core::store::Store;
use tms_core::store::kv::KvStore;
use tms_store_redb::RedbKv;

use crate::disk::Disk;

/// Cuts that one store lives through; bounds what each check reads.
const CUTS_PER_LIFE: u32 = 25;
/// The cut comes at one of so many changes of the disk. An opening has a few of them, a commit a dozen.
const CALLS: u64 = 300;
const CALLS_OF_OPENING: u64 = 16;
/// Steps after which the power is cut between two calls.
const STEPS_MAX: u64 = 60;

struct Redb {
    runtime: tokio::runtime::Runtime,
    /// A file by the name of the store, which watches its place; what it holds is on the disk of the test.
    name: PathBuf,
}

impl Redb {
    fn open(&self, disk: &Disk) -> Result<Arc<dyn Store>, Error> {
        let kv = RedbKv::open_on(&self.name, disk.clone())?;
        Ok(Arc::new(KvStore::open_blocking(Arc::new(kv))?))
    }

    /// Makes steps until the power is cut. Returns how many were acknowledged.
    fn until_the_cut(&self, disk: &Disk, mut n_steps: u64, tally: &mut Tally) -> Result<u64, String> {
        let opened = self.open(disk);
        let store = match opened {
            Ok(store) => store,
            Err(_) if disk.is_off() => {
                tally.note("cut while it was opened", 1);
                return Ok(n_steps);
            }
            Err(error) => return Err(format!("it does not open: {}", error.chain())),
        };
        for _ in 0..STEPS_MAX {
            match self.runtime.block_on(steps::make(&*store, n_steps)) {
                Ok(()) => {
                    n_steps += 1;
                    tally.n_acknowledged += 1;
                }
                Err(_) if disk.is_off() => break,
                Err(error) => return Err(format!("step {n_steps} failed: {}", error.chain())),
            }
        }
        disk.turn_off();
        Ok(n_steps)
    }

    /// Lives through one cut, or two when the second comes while the store is opened behind the first. Returns how many
    /// steps the store holds.
    fn one_cut(&self, disk: &Disk, n_steps: u64, dice: &mut Dice, tally: &mut Tally) -> Result<u64, String> {
        disk.arm(if dice.one_in(8) { dice.below(CALLS_OF_OPENING) } else { dice.below(CALLS) });
        let n_acknowledged = self.until_the_cut(disk, n_steps, tally)?;
        for (what, n) in disk.cut(dice) {
            tally.note(what, n);
        }
        tally.n_cuts += 1;
        if dice.one_in(3) {
            disk.arm(dice.below(CALLS_OF_OPENING));
            match self.open(disk) {
                // It was opened before the cut came; then that comes now.
                Ok(store) => {
                    disk.turn_off();
                    drop(store);
                }
                Err(_) if disk.is_off() => tally.note("cut again while it was opened", 1),
                Err(error) => return Err(format!("it does not open after a cut: {}", error.chain())),
            }
            disk.cut(dice);
        }
        let store = self.open(disk).map_err(|e| format!("it does not open after a cut: {}", e.chain()))?;
        self.runtime.block_on(steps::verify(&*store, n_acknowledged)).map_err(|fault| fault.to_string())
    }
}

impl Cutter for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn cut(&self, n_cuts: u32, seed: u64, sync: Sync) -> Tally {
        let mut dice = Dice::new(seed);
        let mut tally = Tally::default();
        while tally.n_cuts < n_cuts && tally.n_missing == 0 {
            let disk = Disk::new(sync);
            drop(self.open(&disk).expect("a new store"));
            // A new store gets its name only when it is whole, so it is never cut before.
            disk.settle();
            let mut n_steps = 0;
            for _ in 0..CUTS_PER_LIFE.min(n_cuts - tally.n_cuts) {
                let n_cuts = tally.n_cuts;
                match self.one_cut(&disk, n_steps, &mut dice, &mut tally) {
                    Ok(holds) => n_steps = holds,
                    Err(what) => {
                        tally.missing(format!("cut {}: {what}", n_cuts + 1));
                        break;
                    }
                }
            }
        }
        tally
    }
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join(tms_store_redb::FILE_NAME);
    std::fs::write(&name, []).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tms_conformance::power::run(&Redb { runtime, name })
}
