//! A disk in memory that can lose its power. What was written since the last sync is kept apart; a cut applies a random
//! part of it, in pieces of sectors.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;
use tms_conformance::power::{Dice, Sync};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: u64 = 512;
/// No cut comes by itself.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Debug)]
struct Plates {
    sync: Sync,
    /// As its user sees it.
    shown: Vec<u8>,
    /// As it was at the last sync.
    durable: Vec<u8>,
    since: Vec<Change>,
    n_calls_left: u64,
}

/// Several hold one disk: the store, and the test behind its back.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<Plates>>);

impl Disk {
    pub(crate) fn new(sync: Sync) -> Self {
        let plates =
            Plates { sync, shown: Vec::new(), durable: Vec::new(), since: Vec::new(), n_calls_left: NEVER };
        Self(Arc::new(Mutex::new(plates)))
    }

    fn plates(&self) -> MutexGuard<'_, Plates> {
        self.0.lock().unwrap()
    }

    /// Looks at the disk while it has power.
    fn look(&self) -> io::Result<MutexGuard<'_, Plates>> {
        let plates = self.plates();
        if plates.n_calls_left == 0 {
            return Err(io::Error::other("there is no power"));
        }
        Ok(plates)
    }

    /// Counts a change or a sync; the one that the power does not last for fails, and all after it.
    fn call(&self) -> io::Result<MutexGuard<'_, Plates>> {
        let mut plates = self.look()?;
        if plates.n_calls_left != NEVER {
            plates.n_calls_left -= 1;
        }
        Ok(plates)
    }

    /// Lets the power last for so many changes and syncs.
    pub(crate) fn arm(&self, n_calls: u64) {
        self.plates().n_calls_left = n_calls;
    }

    pub(crate) fn turn_off(&self) {
        self.arm(0);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.plates().n_calls_left == 0
    }

    /// Makes all durable that was written.
    pub(crate) fn settle(&self) {
        let mut plates = self.plates();
        plates.durable = plates.shown.clone();
        plates.since.clear();
    }

    /// Decides what the cut leaves, and turns the power on again. Returns how many writes were dropped and torn.
    pub(crate) fn cut(&self, dice: &mut Dice) -> [(&'static str, u64); 2] {
        let mut plates = self.plates();
        let mut dropped = [("writes dropped", 0), ("writes torn", 0)];
        let changes = std::mem::take(&mut plates.since);
        // A file system writes down how long a file is in the order in which that changed.
        let n_lengths = changes.iter().filter(|change| matches!(change, Change::Length(_))).count();
        let mut n_kept = dice.below(n_lengths as u64 + 1);
        // Sometimes nearly all is written, sometimes nearly nothing.
        let share = 1 + dice.below(20);
        for change in changes {
            match change {
                Change::Length(n_bytes) if n_kept > 0 => {
                    n_kept -= 1;
                    plates.durable.resize(n_bytes, 0);
                }
                Change::Length(_) => {}
                Change::Write { at, bytes } => match dice.below(21) {
                    fall if fall >= share => dropped[0].1 += 1,
                    fall if fall % 4 == 0 => {
                        dropped[1].1 += 1;
                        tear(&mut plates.durable, at, &bytes, dice);
                    }
                    _ => put(&mut plates.durable, at, &bytes),
                },
            }
        }
        plates.shown = plates.durable.clone();
        plates.n_calls_left = NEVER;
        dropped
    }
}

/// Writes what lies within the length: what lies behind it belongs to no file.
fn put(durable: &mut [u8], at: usize, bytes: &[u8]) {
    let end = (at + bytes.len()).min(durable.len());
    if at < end {
        durable[at..end].copy_from_slice(&bytes[..end - at]);
    }
}

/// Writes the sectors before or behind a random one.
fn tear(durable: &mut [u8], at: usize, bytes: &[u8], dice: &mut Dice) {
    let n_sectors = (bytes.len() as u64).div_ceil(SECTOR_BYTES);
    let middle = usize::try_from(dice.below(n_sectors + 1) * SECTOR_BYTES).unwrap().min(bytes.len());
    if dice.one_in(2) {
        put(durable, at, &bytes[..middle]);
    } else {
        put(durable, at + middle, &bytes[middle..]);
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.look()?.shown.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let plates = self.look()?;
        let at = usize::try_from(offset).unwrap();
        let found = plates.shown.get(at..at + out.len());
        out.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut plates = self.call()?;
        let n_bytes = usize::try_from(len).unwrap();
        plates.shown.resize(n_bytes, 0);
        plates.since.push(Change::Length(n_bytes));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut plates = self.call()?;
        if plates.sync == Sync::Nothing {
            return Ok(());
        }
        let plates = &mut *plates;
        for change in plates.since.drain(..) {
            match change {
                Change::Write { at, bytes } => put(&mut plates.durable, at, &bytes),
                Change::Length(n_bytes) => plates.durable.resize(n_bytes, 0),
            }
        }
        assert!(plates.durable.len() == plates.shown.len());
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut plates = self.call()?;
        let at = usize::try_from(offset).unwrap();
        if plates.shown.len() < at + data.len() {
            plates.shown.resize(at + data.len(), 0);
            let n_bytes = plates.shown.len();
            plates.since.push(Change::Length(n_bytes));
        }
        put(&mut plates.shown, at, data);
        plates.since.push(Change::Write { at, bytes: data.to_vec() });
        Ok(())
    }
}
