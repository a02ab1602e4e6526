//! Power cuts of RocksDB: a process stores steps under a witness, is killed, and loses what it had not synced. See
//! `tms_conformance::power` for the arguments, `witness.c` for what is followed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod witness;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use tempfile::TempDir;
use tms_conformance::power::{Cutter, Dice, Sync, Tally};
use tms_conformance::steps;
use tms_core::Error;
use tms_core::store::Store;
use tms_core::store::kv::KvStore;
use tms_store_rocksdb::{FOLDER_NAME, MARK_NAME, RocksKv};

use crate::witness::{Damage, Scene, compile};

/// Cuts that one store lives through; bounds what each check reads.
const CUTS_PER_LIFE: u32 = 25;
/// How long a process lives, in milliseconds: some end while they open or make the store.
const LIFE_MS: u64 = 500;
const SHORT_LIFE_MS: u64 = 90;
/// First argument of a process that stores.
const CHILD: &str = "--child";
/// Steps after which a process only waits for its end.
const STEPS_MAX: usize = 400;

struct Rocks {
    runtime: tokio::runtime::Runtime,
    folder: TempDir,
}

fn open(folder: &Path) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(KvStore::open_blocking(Arc::new(RocksKv::open_blocking(folder)?))?))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Stores until it is killed, and says how many steps are acknowledged.
fn child(folder: &Path, n_steps: u64, n_steps_max: usize) {
    let store = open(folder).unwrap();
    let mut output = std::io::stdout();
    let runtime = runtime();
    for n in (n_steps..).take(n_steps_max) {
        // All before it are acknowledged.
        writeln!(output, "{n}").unwrap();
        runtime.block_on(steps::make(&*store, n)).unwrap();
    }
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

impl Rocks {
    fn library(&self) -> PathBuf {
        self.folder.path().join("witness.so")
    }

    fn start(&self, scene: &Scene, store: &Path, n_steps: u64, n_max: usize) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(CHILD).arg(store).args([n_steps.to_string(), n_max.to_string()]);
        command.env("LD_PRELOAD", self.library());
        command.env("POWER_WITNESS", &scene.log).env("POWER_GRAVES", &scene.graves);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Lets a process store for a while, kills it and takes what was not synced. Returns how many steps it
    /// acknowledged in all; none when it was killed while it opened the store.
    fn one_life(
        &self,
        store: &Path,
        n_steps: u64,
        dice: &mut Dice,
        sync: Sync,
    ) -> Result<(Option<u64>, Damage), String> {
        let scene = Scene::begin(store, self.folder.path());
        let mark = store.join(FOLDER_NAME).join(MARK_NAME);
        let older_mark = std::fs::read(&mark).ok();
        let life_ms = if dice.one_in(4) { dice.below(SHORT_LIFE_MS) } else { dice.below(LIFE_MS) };
        let mut child = self.start(&scene, store, n_steps, STEPS_MAX);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (ended, has_ended) = channel::<()>();
        let said = std::thread::spawn(move || {
            let last = output.lines().map_while(Result::ok).filter_map(|line| line.parse().ok()).last();
            drop(ended);
            last
        });
        let is_early =
            has_ended.recv_timeout(Duration::from_millis(life_ms)) == Err(RecvTimeoutError::Disconnected);
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        if is_early {
            return Err(format!("the process ended: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let n_acknowledged = said.join().unwrap();
        let damage = scene.cut(dice, sync);
        // The mark is not synced: an older one may be what is left. Its length never changes.
        if let Some(older) = older_mark
            && mark.exists()
            && dice.one_in(2)
        {
            std::fs::write(&mark, older).unwrap();
        }
        Ok((n_acknowledged, damage))
    }

    /// Lives through one cut, or two when the second comes while the store is opened behind the first. Returns how many
    /// steps the store holds.
    fn one_cut(
        &self,
        store: &Path,
        n_steps: u64,
        dice: &mut Dice,
        sync: Sync,
        tally: &mut Tally,
    ) -> Result<u64, String> {
        let (said, damage) = self.one_life(store, n_steps, dice, sync)?;
        tally.n_cuts += 1;
        tally.note("bytes lost", damage.n_bytes_lost);
        tally.note("names undone", damage.n_names_undone);
        tally.note("cut while it was opened", u64::from(said.is_none()));
        let n_acknowledged = said.unwrap_or(n_steps);
        tally.n_acknowledged += n_acknowledged - n_steps;
        if dice.one_in(4) {
            // It makes no step: nobody knows yet whether the last one is there.
            let scene = Scene::begin(store, self.folder.path());
            let mut child = self.start(&scene, store, 0, 0);
            let life = Duration::from_millis(dice.below(SHORT_LIFE_MS));
            let (_open, never) = channel::<()>();
            never.recv_timeout(life).unwrap_err();
            child.kill().unwrap();
            child.wait().unwrap();
            scene.cut(dice, sync);
            tally.note("cut again while it was opened", 1);
        }
        let store = open(store).map_err(|e| format!("it does not open after a cut: {}", e.chain()))?;
        self.runtime.block_on(steps::verify(&*store, n_acknowledged)).map_err(|fault| fault.to_string())
    }
}

impl Cutter for Rocks {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn missing_tool(&self) -> Option<String> {
        let version =
            Command::new("cc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        (!version.is_ok_and(|status| status.success())).then(|| "a C compiler (cc)".to_owned())
    }

    fn cut(&self, n_cuts: u32, seed: u64, sync: Sync) -> Tally {
        compile(&self.library());
        let mut dice = Dice::new(seed);
        let mut tally = Tally::default();
        while tally.n_cuts < n_cuts && tally.n_missing == 0 {
            let store = tempfile::tempdir_in(self.folder.path()).unwrap();
            let mut n_steps = 0;
            for _ in 0..CUTS_PER_LIFE.min(n_cuts - tally.n_cuts) {
                let n_cuts = tally.n_cuts;
                match self.one_cut(store.path(), n_steps, &mut dice, sync, &mut tally) {
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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder, n_steps, n_max] = &*arguments
        && flag == CHILD
    {
        child(Path::new(folder), n_steps.parse().unwrap(), n_max.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    tms_conformance::power::run(&Rocks { runtime: runtime(), folder: tempfile::tempdir().unwrap() })
}
