//! Cut, flipped, emptied and missing files: each is told, or nothing that was acknowledged is lost.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tms_core::store::kv::{Batch, Keyspace, OrderedKv};
use tms_core::{Error, ErrorKind};
use tms_store_rocksdb::{FOLDER_NAME, MARK_NAME, RocksKv};

use crate::file::killed_after;
use crate::rows;

/// Batches of the store that is damaged, before and after a first kill: the opening in between writes out what its log
/// holds, then a memtable fills and is written out, and the newest log holds the rest.
const N_FIRST: u64 = 100;
const N_SECOND: u64 = 800;
/// Files that RocksDB changes in place; all others are shared between the cases by links.
const CHANGED: [&str; 3] = [MARK_NAME, "LOCK", "LOG"];
/// Positions of flipped bits per file, besides the first and the last bytes.
const FLIPS: usize = 8;
const EDGE_BYTES: usize = 8;

/// A store whose server was killed.
struct Victim {
    folder: TempDir,
    n_acknowledged: u64,
}

impl Victim {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let n_first = killed_after(folder.path(), 0, N_FIRST);
        let n_acknowledged = killed_after(folder.path(), n_first, N_SECOND);
        Self { folder, n_acknowledged }
    }

    fn files(&self) -> BTreeMap<String, PathBuf> {
        let entries = std::fs::read_dir(self.folder.path().join(FOLDER_NAME)).unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect()
    }

    /// Returns a copy, with one file as `damage` leaves it.
    fn with(&self, damaged: &str, damage: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> TempDir {
        let copy = tempfile::tempdir_in(self.folder.path()).unwrap();
        let own = copy.path().join(FOLDER_NAME);
        std::fs::create_dir(&own).unwrap();
        for (name, path) in self.files() {
            let to = own.join(&name);
            if name == damaged {
                if let Some(bytes) = damage(std::fs::read(&path).unwrap()) {
                    std::fs::write(&to, bytes).unwrap();
                }
            } else if CHANGED.contains(&name.as_str()) {
                std::fs::copy(&path, &to).unwrap();
            } else {
                std::fs::hard_link(&path, &to).unwrap();
            }
        }
        copy
    }

    /// Opens a damaged copy; what is lost must be told. Returns what was told.
    fn check(&self, what: &str, copy: &Path) -> Told {
        match RocksKv::open_blocking(copy) {
            Err(error) => {
                check_error(what, &error);
                Told::Refused
            }
            Ok(kv) if rows::check_all(&kv, self.n_acknowledged, what) => Told::Read,
            Ok(kv) => {
                rows::store(&kv, rows::count(&kv)).unwrap_or_else(|e| panic!("{what}: {e:?}"));
                Told::Nothing
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// It lost nothing.
    Nothing,
    /// By the opening.
    Refused,
    /// By a read.
    Read,
}

fn check_error(what: &str, error: &Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Unexpected | ErrorKind::Unsupported),
        "{what}: {}",
        error.chain()
    );
    assert!(error.to_string().contains(FOLDER_NAME), "{what}: {error}");
    assert!(error.hint_text().is_some(), "{what}: {}", error.chain());
}

/// Returns where bits are flipped: at both ends and at places in between that are the same each time.
fn places(n_bytes: usize, seed: usize) -> Vec<usize> {
    let edges = (0..n_bytes.min(EDGE_BYTES)).chain(n_bytes.saturating_sub(EDGE_BYTES)..n_bytes);
    let between = (1..=FLIPS).map(|n| (n * 2_654_435_761 + seed * 40_503) % n_bytes.max(1));
    let mut all: Vec<usize> = edges.chain(between).filter(|at| *at < n_bytes).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn every_cut_or_flipped_file_is_told_or_has_lost_nothing() {
    let victim = Victim::new();
    let whole = victim.with("", Some);
    assert_eq!(victim.check("undamaged", whole.path()), Told::Nothing);
    let is_long = std::env::var_os("TMS_TEST_FIGURES").is_some();
    let mut table = String::new();
    let mut n_cases = 0;
    let files = victim.files();
    // RocksDB's own messages are no data.
    for (n_files, (name, path)) in files.into_iter().filter(|(name, _)| !name.starts_with("LOG")).enumerate()
    {
        let n_bytes = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
        let mut told: BTreeMap<Told, usize> = BTreeMap::new();
        let mut case = |what: &str, damage: &dyn Fn(Vec<u8>) -> Option<Vec<u8>>| {
            let copy = victim.with(&name, damage);
            *told.entry(victim.check(&format!("{name} {what}"), copy.path())).or_default() += 1;
        };
        case("removed", &|_| None);
        for cut in [0, 1, n_bytes / 3, n_bytes / 2, n_bytes * 9 / 10, n_bytes.saturating_sub(1)] {
            case(&format!("cut to {cut}"), &|bytes| Some(bytes[..cut.min(bytes.len())].to_vec()));
        }
        // All of the list of files, when there is time: it is small, and all else hangs on it.
        let all = if is_long && name.starts_with("MANIFEST") {
            (0..n_bytes).collect()
        } else {
            places(n_bytes, n_files)
        };
        for at in all {
            case(&format!("flipped at {at}"), &|mut bytes| {
                bytes[at] ^= 1 << (at % 8);
                Some(bytes)
            });
        }
        n_cases += told.values().sum::<usize>();
        writeln!(table, "{name:22} {n_bytes:9} bytes  {told:?}").unwrap();
    }
    println!("{n_cases} cases\n{table}");
    assert!(n_cases > 200, "{n_cases}");
}

/// Opens a store of some rows, closes it, damages it and opens it again.
fn refusal(damage: impl Fn(&Path)) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open_blocking(folder.path()).unwrap();
    for n in 0..5 {
        rows::store(&kv, n).unwrap();
    }
    drop(kv);
    let own = folder.path().join(FOLDER_NAME);
    damage(&own);
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| {
            !["LOG", "LOCK", MARK_NAME].iter().any(|own| name.to_string_lossy().starts_with(own))
        });
        names.sort_unstable();
        names
    };
    let before = names();
    let error = RocksKv::open_blocking(folder.path()).expect_err("it was damaged");
    assert_eq!(names(), before, "evidence is kept: {}", error.chain());
    error
}

fn manifest(own: &Path) -> PathBuf {
    own.join(std::fs::read_to_string(own.join("CURRENT")).unwrap().trim_end())
}

#[test]
fn no_store_is_begun_where_one_was() {
    type Damage = fn(&Path);
    let cases: [(&str, &str, Damage); 6] = [
        ("the folder is empty", "is empty", |own| {
            std::fs::remove_dir_all(own).unwrap();
            std::fs::create_dir(own).unwrap();
        }),
        ("CURRENT is missing", "CURRENT", |own| std::fs::remove_file(own.join("CURRENT")).unwrap()),
        ("CURRENT is empty", "CURRENT", |own| std::fs::write(own.join("CURRENT"), []).unwrap()),
        ("the list of files is missing", "MANIFEST", |own| std::fs::remove_file(manifest(own)).unwrap()),
        ("the list of files is empty", "", |own| std::fs::write(manifest(own), []).unwrap()),
        ("the list of files is cut", "", |own| {
            let bytes = std::fs::read(manifest(own)).unwrap();
            std::fs::write(manifest(own), &bytes[..bytes.len() / 2]).unwrap();
        }),
    ];
    for (what, part, damage) in cases {
        let error = refusal(damage);
        check_error(what, &error);
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{what}");
        assert!(error.chain().contains(part), "{what}: {}", error.chain());
    }
}

#[test]
fn folder_that_is_something_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join(FOLDER_NAME);
    std::fs::write(&own, "hello").unwrap();
    check_error("a file", &RocksKv::open_blocking(folder.path()).unwrap_err());
    assert_eq!(std::fs::read(&own).unwrap(), b"hello");
}

#[test]
fn store_with_a_family_of_a_newer_release_is_refused_as_newer() {
    let error = refusal(|own| {
        let options = rocksdb::Options::default();
        let names = rocksdb::DB::list_cf(&options, own).unwrap();
        let mut db = rocksdb::DB::open_cf(&options, own, names).unwrap();
        db.create_cf("of_tomorrow", &options).unwrap();
    });
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
    assert!(error.hint_text().unwrap().contains("newer TMS"));
}

#[test]
fn store_without_one_of_its_families_is_damaged() {
    let error = refusal(|own| {
        let options = rocksdb::Options::default();
        let names = rocksdb::DB::list_cf(&options, own).unwrap();
        let mut db = rocksdb::DB::open_cf(&options, own, names).unwrap();
        db.drop_cf(Keyspace::History.as_str()).unwrap();
    });
    check_error("without a family", &error);
}

#[test]
fn older_files_put_back_under_a_newer_mark_are_told() {
    let error = refusal(|own| {
        let mark = own.join(MARK_NAME);
        let mut newer = std::fs::read(&mark).unwrap();
        newer[14] += 1;
        newer[22] -= 1;
        std::fs::write(&mark, newer).unwrap();
    });
    check_error("older files", &error);
    assert!(error.chain().contains("acknowledged writes are missing"), "{}", error.chain());
}

/// RocksDB itself reads such a record again and again, without end, unless it is the first one.
#[test]
fn record_of_a_kind_that_is_never_written_is_refused_and_no_start_hangs() {
    /// Where a record has its length and its kind, and how long its head is.
    const LENGTH_AT: usize = 4;
    const KIND_AT: usize = 6;
    const HEAD_BYTES: usize = 7;
    let victim = Victim::new();
    let mut n_refused = 0;
    for (name, path) in victim.files() {
        let bytes = std::fs::read(&path).unwrap();
        if !(name.starts_with("MANIFEST-") || name.ends_with(".log")) || bytes.is_empty() {
            continue;
        }
        let second = HEAD_BYTES + usize::from(u16::from_le_bytes([bytes[LENGTH_AT], bytes[LENGTH_AT + 1]]));
        for at in [0, second] {
            let copy = victim.with(&name, |mut bytes| {
                bytes[at + KIND_AT] ^= 4;
                Some(bytes)
            });
            let error = RocksKv::open_blocking(copy.path()).expect_err(&name);
            check_error(&name, &error);
            assert!(error.chain().contains(&format!("{name} is damaged at byte {at}:")), "{}", error.chain());
            n_refused += 1;
        }
    }
    assert!(n_refused >= 4, "a list of files and a log: {n_refused}");
}

#[test]
fn store_without_its_mark_opens_and_gets_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = |n| {
        let kv = RocksKv::open_blocking(folder.path()).unwrap();
        rows::store(&kv, n).unwrap();
    };
    store(0);
    let mark = folder.path().join(FOLDER_NAME).join(MARK_NAME);
    let first = std::fs::read(&mark).unwrap();
    std::fs::remove_file(&mark).unwrap();
    store(1);
    let second = std::fs::read(&mark).unwrap();
    assert_eq!(second.len(), first.len());
    assert!(second[8..16] > first[8..16], "it counts on");
}

#[test]
fn damaged_row_file_of_a_running_store_is_an_error_of_the_read() {
    let folder = tempfile::tempdir().unwrap();
    let kv = RocksKv::open_blocking(folder.path()).unwrap();
    for n in 0..30 {
        rows::store(&kv, n).unwrap();
    }
    drop(kv);
    let own = folder.path().join(FOLDER_NAME);
    let files = std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|e| e == "sst")) {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 3;
        bytes[middle] ^= 0xA5;
        std::fs::write(&file, bytes).unwrap();
    }
    let Ok(kv) = RocksKv::open_blocking(folder.path()) else { return };
    assert!(rows::check_all(&kv, 30, "damaged rows"), "no read told it");
    drop(kv.commit(&Batch::default()));
}
