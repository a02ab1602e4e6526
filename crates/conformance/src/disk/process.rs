//! Another process with a store, and the cases of it.
#![expect(clippy::print_stdout, reason = "a test program's child speaks to its parent")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tms_core::ErrorKind;

use super::{DiskHarness, full};
use crate::steps;

/// Set for a child: what it is to do, and where.
const TASK: &str = "TMS_DISK_SUITE_TASK";
pub(super) const FOLDER: &str = "TMS_DISK_SUITE_FOLDER";
/// Kills of one case.
const KILLS: u64 = 8;
/// Processes that are killed while they make a store.
const KILLS_OF_MAKERS: u64 = 12;
/// Most steps that a child stores before somebody ends it.
const STEPS_MAX: usize = 100_000;

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Stores steps without pause and says how many are acknowledged.
    Store,
    /// Fills files whose size is bounded.
    FullFiles,
    /// Fills a small disk.
    FullDisk,
}

impl Task {
    const ALL: [Self; 3] = [Self::Store, Self::FullFiles, Self::FullDisk];

    fn word(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::FullFiles => "full files",
            Self::FullDisk => "full disk",
        }
    }
}

/// Returns the name of the test that plays another process, from a path in the suite's module.
#[must_use]
pub fn child_of(module_path: &str) -> String {
    let in_program = module_path.split_once("::").map_or(module_path, |(_, path)| path);
    let suite = in_program.rsplit_once("::").map_or(in_program, |(suite, _)| suite);
    format!("{suite}::child")
}

/// Does what the parent asks for.
pub fn play<H: DiskHarness>() {
    let Some(word) = std::env::var_os(TASK) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let task = Task::ALL.into_iter().find(|task| word == task.word()).unwrap();
    let runtime = runtime();
    match task {
        Task::Store => runtime.block_on(store::<H>(&folder)),
        Task::FullFiles => runtime.block_on(full::fill_files::<H>(&folder)),
        Task::FullDisk => runtime.block_on(full::fill_disk::<H>(&folder)),
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn store<H: DiskHarness>(folder: &Path) {
    let store = H::open(folder).unwrap();
    let n_before = steps::count(&*store).await.unwrap();
    for n in (n_before..).take(STEPS_MAX) {
        println!("ACK {n}.");
        steps::make(&*store, n).await.unwrap();
    }
}

/// Returns a command that starts this program for one child; `shell`, when it is given, ends with `exec "$0" "$@"`.
pub(super) fn command(child: &str, task: Task, folder: &Path, shell: Option<&str>) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(if shell.is_some() { Path::new("sh") } else { program.as_path() });
    if let Some(shell) = shell {
        command.args(["-c", shell]).arg(&program);
    }
    command.args([child, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(TASK, task.word()).env(FOLDER, folder);
    command
}

/// A child that is killed when a case ends without it.
pub(super) struct Running {
    child: Child,
    output: ChildStdout,
    said: Vec<u8>,
}

impl Running {
    pub(super) fn start(child: &str, task: Task, folder: &Path) -> Self {
        let mut command = command(child, task, folder, None);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        Self { child, output, said: Vec::new() }
    }

    /// Waits until so many steps are acknowledged.
    pub(super) fn until(&mut self, n_steps: u64) {
        let word = format!("ACK {n_steps}.");
        while !String::from_utf8_lossy(&self.said).contains(&word) {
            let mut bytes = [0; 256];
            let n_bytes = self.output.read(&mut bytes).unwrap();
            assert!(n_bytes > 0, "it ended: {}", String::from_utf8_lossy(&self.said));
            self.said.extend(&bytes[..n_bytes]);
        }
    }

    /// Kills it and returns how many steps were acknowledged.
    pub(super) fn kill(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.output.read_to_end(&mut self.said).unwrap();
        let said = String::from_utf8_lossy(&self.said);
        let steps = said.split("ACK ").skip(1).filter_map(|rest| rest.split_once('.')?.0.parse().ok());
        steps.max().unwrap_or(0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns a folder with a store whose process was killed, and how many steps that had acknowledged.
pub(super) fn killed_after(child: &str, folder: &Path, n_steps: u64) -> u64 {
    let mut running = Running::start(child, Task::Store, folder);
    running.until(n_steps);
    running.kill()
}

/// A process that is killed in the middle of a batch leaves all that it acknowledged, and nothing half made.
pub fn killed_process_keeps_what_it_acknowledged<H: DiskHarness>(child: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut n_steps = 0;
    for round in 0..KILLS {
        let n_acknowledged = killed_after(child, folder.path(), n_steps + 20 + 9 * round);
        let store = H::open(folder.path()).unwrap();
        n_steps = runtime()
            .block_on(steps::verify(&*store, n_acknowledged))
            .unwrap_or_else(|fault| panic!("kill {round}: {fault}"));
    }
}

/// A store that another process holds is refused, and found whole when that is killed.
pub fn store_of_another_process_is_refused<H: DiskHarness>(child: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(child, Task::Store, folder.path());
    running.until(5);
    let error = H::open(folder.path()).expect_err("another process holds it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    assert!(error.hint_text().unwrap().contains("held by another process"));
    let n_acknowledged = running.kill();
    let store = H::open(folder.path()).unwrap();
    runtime().block_on(steps::verify(&*store, n_acknowledged)).unwrap();
}

/// A store that is open in this process already is refused.
pub fn second_opening_is_refused<H: DiskHarness>(_child: &str) {
    let folder = tempfile::tempdir().unwrap();
    let first = H::open(folder.path()).unwrap();
    assert_eq!(H::open(folder.path()).unwrap_err().kind(), ErrorKind::Unavailable);
    drop(first);
    H::open(folder.path()).unwrap();
}

/// Of openings at once of an empty folder at most one gets the store.
pub fn openings_at_once_make_one_store<H: DiskHarness>(_child: &str) {
    let folder = tempfile::tempdir().unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..4).map(|_| scope.spawn(|| H::open(folder.path()).ok())).collect();
        openers.into_iter().filter_map(|opener| opener.join().unwrap()).collect()
    });
    assert!(opened.len() <= 1, "one folder, two stores");
    drop(opened);
    H::open(folder.path()).unwrap();
}

/// A process that is killed while it makes a store leaves none or a whole one.
pub fn process_killed_while_it_makes_a_store_leaves_none_or_a_whole_one<H: DiskHarness>(child: &str) {
    for round in 0..KILLS_OF_MAKERS {
        let folder = tempfile::tempdir().unwrap();
        let running = Running::start(child, Task::Store, folder.path());
        let n_acknowledged = runtime().block_on(async {
            tokio::time::sleep(Duration::from_millis(5 * round)).await;
            running.kill()
        });
        let store = H::open(folder.path()).unwrap_or_else(|e| panic!("kill {round}: {}", e.chain()));
        runtime().block_on(steps::verify(&*store, n_acknowledged)).unwrap();
        runtime().block_on(async { store.check().await }).unwrap();
    }
}

/// A folder that is a file is refused with what to do.
pub fn folder_that_is_a_file_is_refused<H: DiskHarness>(_child: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"x").unwrap();
    let error = H::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.hint_text().is_some());
    assert_eq!(std::fs::read(&path).unwrap(), b"x");
}

/// Says a word to the parent.
pub(super) fn say(word: &str) {
    println!("{word}");
    drop(std::io::stdout().flush());
}
