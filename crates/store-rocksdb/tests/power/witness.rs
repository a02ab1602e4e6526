//! What the witness of a process wrote down, and what a power cut makes of the files: names that were not synced are
//! undone, the newest first, and every file is cut back to its last sync, or to somewhere between that and its end.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tms_conformance::power::{Dice, Sync};

/// End of the names of RocksDB's write-ahead logs.
const LOG_END: &str = ".log";

/// Compiles the library.
pub(crate) fn compile(to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/witness.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"]);
    let output = cc.arg(to).arg(source).arg("-ldl").output().expect("cc was there before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

type Inode = u64;

#[derive(Clone, Debug)]
enum Event {
    Synced(Inode, u64),
    Made { folder: Inode, inode: Inode, name: String },
    MadeFolder { folder: Inode, name: String },
    Renamed { from: (Inode, String), to: (Inode, String), old: Option<String> },
    Removed { folder: Inode, name: String, old: Option<String> },
    BeginsSync(Inode),
    SyncedFolder(Inode),
}

fn parse(line: &str) -> Event {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let name = |at: usize| words[at].to_owned();
    let old = |at: usize| Some(name(at)).filter(|name| name != "-");
    match words[0] {
        "S" => Event::Synced(number(1), number(2)),
        "C" => Event::Made { folder: number(1), inode: number(2), name: name(3) },
        "M" => Event::MadeFolder { folder: number(1), name: name(3) },
        "R" => Event::Renamed { from: (number(1), name(2)), to: (number(3), name(4)), old: old(5) },
        "U" => Event::Removed { folder: number(1), name: name(2), old: old(3) },
        "B" => Event::BeginsSync(number(1)),
        "D" => Event::SyncedFolder(number(1)),
        other => panic!("the witness says {other}"),
    }
}

impl Event {
    /// The folder whose sync makes it durable, when it changes names.
    fn folder(&self) -> Option<Inode> {
        match self {
            Self::Made { folder, .. } | Self::MadeFolder { folder, .. } | Self::Removed { folder, .. } => {
                Some(*folder)
            }
            Self::Renamed { to, .. } => Some(to.0),
            Self::Synced(..) | Self::BeginsSync(_) | Self::SyncedFolder(_) => None,
        }
    }
}

/// Lists a folder with the folders in it, itself first.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all.extend(walk(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// What a cut did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    pub(crate) n_bytes_lost: u64,
    pub(crate) n_names_undone: u64,
}

/// The files of a store before a process works on them.
pub(crate) struct Scene {
    folder: PathBuf,
    /// Where the witness writes, and where it keeps what was removed.
    pub(crate) log: PathBuf,
    pub(crate) graves: PathBuf,
    /// All that is there is durable.
    lengths: HashMap<Inode, u64>,
}

impl Scene {
    /// `beside` is a folder on the same file system.
    pub(crate) fn begin(folder: &Path, beside: &Path) -> Self {
        let (log, graves) = (beside.join("witness"), beside.join("graves"));
        if graves.exists() {
            std::fs::remove_dir_all(&graves).unwrap();
        }
        std::fs::create_dir(&graves).unwrap();
        File::create(&log).unwrap();
        let files = walk(folder).into_iter().map(|path| std::fs::metadata(path).unwrap());
        let lengths = files.filter(std::fs::Metadata::is_file).map(|meta| (meta.ino(), meta.len())).collect();
        Self { folder: folder.to_owned(), log, graves, lengths }
    }

    /// Leaves what a power cut leaves of what the process wrote, which has ended.
    pub(crate) fn cut(mut self, dice: &mut Dice, sync: Sync) -> Damage {
        let text = std::fs::read_to_string(&self.log).unwrap();
        // The last line may be of a process that was killed while it wrote.
        let events: Vec<Event> =
            text.split_inclusive('\n').filter_map(|l| l.strip_suffix('\n')).map(parse).collect();
        let n_names_undone = self.undo_names(&events, dice);
        self.follow_lengths(&events, sync);
        let files = walk(&self.folder);
        let files = files.iter().filter(|path| path.is_file());
        let n_bytes_lost = files.map(|path| self.cut_file(path, dice)).sum();
        Damage { n_bytes_lost, n_names_undone }
    }

    /// Undoes the newest of those changes of names that no sync of their folder made durable.
    fn undo_names(&self, events: &[Event], dice: &mut Dice) -> u64 {
        let mut begun: HashMap<Inode, usize> = HashMap::new();
        let mut synced: HashMap<Inode, usize> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::BeginsSync(folder) => drop(begun.insert(*folder, at)),
                Event::SyncedFolder(folder) => drop(synced.insert(*folder, begun[folder])),
                _ => {}
            }
        }
        let is_open = |(at, event): &(usize, &Event)| {
            event.folder().is_some_and(|folder| synced.get(&folder).is_none_or(|until| at > until))
        };
        let open: Vec<&Event> = events.iter().enumerate().filter(is_open).map(|(_, event)| event).collect();
        // A file system writes names down in their order.
        let n_kept = usize::try_from(dice.below(open.len() as u64 + 1)).unwrap();
        open[n_kept..].iter().rev().for_each(|event| self.undo(event));
        (open.len() - n_kept) as u64
    }

    fn path(&self, folder: Inode, name: &str) -> Option<PathBuf> {
        let folders = walk(&self.folder).into_iter().filter(|path| path.is_dir());
        let mut found = folders.filter(|path| std::fs::metadata(path).unwrap().ino() == folder);
        Some(found.next()?.join(name))
    }

    fn undo(&self, event: &Event) {
        let bring_back = |old: &Option<String>, to: &Path| {
            let Some(old) = old else { return };
            std::fs::hard_link(self.graves.join(old), to).unwrap();
        };
        match event {
            Event::Made { folder, inode, name } => {
                let Some(path) = self.path(*folder, name) else { return };
                if std::fs::metadata(&path).is_ok_and(|meta| meta.ino() == *inode) {
                    std::fs::remove_file(path).unwrap();
                }
            }
            Event::MadeFolder { folder, name } => {
                let Some(path) = self.path(*folder, name) else { return };
                if path.exists() {
                    std::fs::remove_dir_all(path).unwrap();
                }
            }
            Event::Renamed { from, to, old } => {
                let (Some(from), Some(to)) = (self.path(from.0, &from.1), self.path(to.0, &to.1)) else {
                    return;
                };
                std::fs::rename(&to, from).unwrap();
                bring_back(old, &to);
            }
            Event::Removed { folder, name, old } => {
                if let Some(path) = self.path(*folder, name) {
                    bring_back(old, &path);
                }
            }
            Event::Synced(..) | Event::BeginsSync(_) | Event::SyncedFolder(_) => {}
        }
    }

    fn follow_lengths(&mut self, events: &[Event], sync: Sync) {
        let mut logs = Vec::new();
        for event in events {
            match event {
                Event::Made { inode, name, .. } => {
                    self.lengths.insert(*inode, 0);
                    if name.ends_with(LOG_END) {
                        logs.push(*inode);
                    }
                }
                // The mutant writes its logs and never syncs them.
                Event::Synced(inode, _) if sync == Sync::Nothing && logs.contains(inode) => {}
                Event::Synced(inode, length) => drop(self.lengths.insert(*inode, *length)),
                _ => {}
            }
        }
    }

    /// Cuts a file back. Returns how many bytes that took.
    fn cut_file(&self, path: &Path, dice: &mut Dice) -> u64 {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let meta = file.metadata().unwrap();
        let durable = self.lengths.get(&meta.ino()).copied().unwrap_or(0);
        let Some(beyond) = meta.len().checked_sub(durable).filter(|beyond| *beyond > 0) else { return 0 };
        // Half of them lose all, the others some.
        let kept = if dice.one_in(2) { 0 } else { dice.below(beyond + 1) };
        file.set_len(durable + kept).unwrap();
        beyond - kept
    }
}
