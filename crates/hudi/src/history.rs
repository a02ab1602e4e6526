//! Instants that are no longer on the active timeline: the archive of layout 1, the LSM tree of layout 2.
//!
//! History files never change once they are written (an archive file may grow), so what was read of one is kept
//! under its name and size.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use crate::archive::{self, BlockDecoder};
use crate::error::{Error, ErrorKind};
use crate::fault::Fault;
use crate::listing::Entry;
use crate::lsm::{self, Fetched, LsmFile, LsmRow, RowLimits};
use crate::names::{HudiAction, InstantState};
use crate::snapshot::Snapshot;
use crate::store::Patience;
use crate::table::HudiTable;

const OPERATION: &str = "read the history";
/// Most times the manifest is read again because a file it listed was merged away meanwhile.
const MANIFEST_ROUNDS_MAX: u32 = 3;
/// Files of at most this size are fetched in one piece.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024;
/// First guess for the length of a Parquet footer.
const FOOTER_GUESS_BYTES: u64 = 64 * 1024;
/// Size of one reading of a large archive file.
const ARCHIVE_CHUNK_BYTES: u64 = 4 * 1024 * 1024;
/// Largest single block of an archive file; a block holds some ten commits.
const ARCHIVE_BLOCK_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most entries kept in memory per table.
const CACHE_ENTRIES_MAX: usize = 50_000;
/// Largest manifest.
const MANIFEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryEntry {
    /// Requested time.
    pub requested: String,
    /// Completion time; layout 2 only.
    pub completed: Option<String>,
    /// The action in Hudi's word. A finished compaction of layout 1 stands as `commit` completed beside
    /// `compaction` requested and inflight.
    pub action: HudiAction,
    /// Layout 1 keeps every state as an entry of its own; layout 2 keeps completed ones only.
    pub state: InstantState,
}

/// Entries of history files by name and size.
#[derive(Debug, Default)]
pub(crate) struct HistoryCache {
    files: HashMap<(String, u64), Arc<Vec<HistoryEntry>>>,
    n_entries: usize,
}

impl HistoryCache {
    fn get(&self, name: &str, size: u64) -> Option<Arc<Vec<HistoryEntry>>> {
        self.files.get(&(name.to_owned(), size)).map(Arc::clone)
    }

    fn put(&mut self, name: &str, size: u64, entries: &Arc<Vec<HistoryEntry>>) {
        if entries.len() > CACHE_ENTRIES_MAX {
            return;
        }
        // Files that were merged away stay in here until then.
        if self.n_entries + entries.len() > CACHE_ENTRIES_MAX {
            self.files.clear();
            self.n_entries = 0;
        }
        self.n_entries += entries.len();
        self.files.insert((name.to_owned(), size), Arc::clone(entries));
    }
}

/// Bytes that one question may still read.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    left: u64,
    max: u64,
}

impl ByteBudget {
    pub(crate) fn new(max: u64) -> Self {
        Self { left: max, max }
    }

    pub(crate) fn spend(&mut self, bytes: u64, operation: &'static str, path: &str) -> Result<(), Error> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let detail = format!("more than {} bytes would have to be read", self.max);
                Err(Error::new(ErrorKind::TooLarge, operation, path, detail))
            }
        }
    }
}

/// One look-up; prefers a completed entry.
pub(crate) async fn find(
    table: &HudiTable,
    snapshot: &Snapshot,
    instant: &str,
) -> Result<Option<HistoryEntry>, Error> {
    let mut found: Vec<HistoryEntry> = Vec::new();
    let is_wanted =
        |name: &str| lsm::time_range(name).is_none_or(|(min, max)| min <= instant && instant <= max);
    let mut failed = None;
    let mut visit = |entries: Result<Arc<Vec<HistoryEntry>>, Error>| {
        match entries {
            Ok(entries) => found.extend(entries.iter().filter(|entry| entry.requested == instant).cloned()),
            Err(e) => failed = failed.take().or(Some(e)),
        }
        !found.iter().any(|entry| entry.state == InstantState::Completed)
    };
    walk(table, snapshot, &is_wanted, &mut visit).await?;
    let best = found.into_iter().max_by_key(|entry| (entry.state, is_service_end(&entry.action)));
    match (best, failed) {
        (Some(best), _) if best.state == InstantState::Completed => Ok(Some(best)),
        // An entry may stand in the file that could not be read: never conclude absence.
        (_, Some(e)) => Err(e),
        (best, None) => Ok(best),
    }
}

/// Actions that a table service ends as come before a rollback or savepoint of the same time.
fn is_service_end(action: &HudiAction) -> bool {
    matches!(
        action,
        HudiAction::Commit | HudiAction::DeltaCommit | HudiAction::ReplaceCommit | HudiAction::Clean
    )
}

/// The whole history, ascending, each entry once.
pub(crate) async fn all(table: &HudiTable, snapshot: &Snapshot) -> Result<Vec<HistoryEntry>, Error> {
    let mut found: BTreeSet<HistoryEntry> = BTreeSet::new();
    let mut failed = None;
    let entries_max = table.limits().history_entries_max;
    let mut visit = |entries: Result<Arc<Vec<HistoryEntry>>, Error>| {
        match entries {
            Ok(entries) => found.extend(entries.iter().cloned()),
            Err(e) => failed = failed.take().or(Some(e)),
        }
        failed.is_none() && found.len() <= entries_max
    };
    walk(table, snapshot, &|_| true, &mut visit).await?;
    if let Some(e) = failed {
        return Err(e);
    }
    if found.len() > entries_max {
        let path = table.store().path(&snapshot.properties.history_path);
        let detail = format!("more than {entries_max} entries");
        return Err(Error::new(ErrorKind::TooLarge, OPERATION, path, detail));
    }
    Ok(found.into_iter().collect())
}

type Visit<'a> = dyn FnMut(Result<Arc<Vec<HistoryEntry>>, Error>) -> bool + Send + 'a;

/// Visits the history file by file, newest first, until `visit` answers false.
async fn walk(
    table: &HudiTable,
    snapshot: &Snapshot,
    is_wanted: &(dyn Fn(&str) -> bool + Sync),
    visit: &mut Visit<'_>,
) -> Result<(), Error> {
    let mut budget = ByteBudget::new(table.limits().history_bytes_max);
    if snapshot.properties.layout >= 2 {
        walk_lsm(table, snapshot, is_wanted, visit, &mut budget).await
    } else {
        walk_archive(table, snapshot, visit, &mut budget).await
    }
}

async fn walk_archive(
    table: &HudiTable,
    snapshot: &Snapshot,
    visit: &mut Visit<'_>,
    budget: &mut ByteBudget,
) -> Result<(), Error> {
    let folder = &snapshot.properties.history_path;
    let Some(entries) = table.store().list_if_there(folder, OPERATION).await? else { return Ok(()) };
    for file in archive_files(entries) {
        let entries = archive_entries(table, folder, &file, budget).await;
        if !visit(entries) {
            break;
        }
    }
    Ok(())
}

/// Archive files of a listing, newest first.
pub(crate) fn archive_files(entries: Vec<Entry>) -> Vec<Entry> {
    let mut files: Vec<(u64, Entry)> = entries
        .into_iter()
        .filter(|entry| !entry.is_folder)
        .filter_map(|entry| archive::archive_number(&entry.name).map(|number| (number, entry)))
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    files.into_iter().map(|(_, entry)| entry).collect()
}

async fn archive_entries(
    table: &HudiTable,
    folder: &str,
    file: &Entry,
    budget: &mut ByteBudget,
) -> Result<Arc<Vec<HistoryEntry>>, Error> {
    if let Some(known) = table.with_caches(|caches| caches.history.get(&file.name, file.size)) {
        return Ok(known);
    }
    let mut entries = Vec::new();
    let mut decoder = BlockDecoder::default();
    read_archive(table, folder, file, budget, |block| {
        entries.extend(decoder.entries(block)?);
        Ok(())
    })
    .await?;
    let entries = Arc::new(entries);
    table.with_caches(|caches| caches.history.put(&file.name, file.size, &entries));
    Ok(entries)
}

/// Reads an archive file block by block, in pieces when it is large.
pub(crate) async fn read_archive(
    table: &HudiTable,
    folder: &str,
    file: &Entry,
    budget: &mut ByteBudget,
    mut on_block: impl FnMut(&[u8]) -> Result<(), Fault> + Send,
) -> Result<(), Error> {
    let path = table.store().path(&format!("{folder}/{}", file.name));
    budget.spend(file.size, OPERATION, &path)?;
    let mut buffer: Vec<u8> = Vec::new();
    let mut offset = 0_u64;
    loop {
        let mut consumed = 0;
        let mut due = 0;
        while let Some(head) = buffer.get(consumed..).filter(|rest| rest.len() >= archive::BLOCK_HEAD_LENGTH)
        {
            let length = archive::block_length(head).map_err(|fault| fault.at(OPERATION, &path))?;
            if length > ARCHIVE_BLOCK_BYTES_MAX {
                let detail = format!("an archive block of {length} bytes");
                return Err(Error::new(ErrorKind::TooLarge, OPERATION, path, detail));
            }
            let length_here = usize::try_from(length).unwrap_or(usize::MAX);
            let Some(block) = head.get(..length_here) else {
                due = length;
                break;
            };
            on_block(block).map_err(|fault| fault.at(OPERATION, &path))?;
            consumed += length_here;
        }
        buffer.drain(..consumed);
        // Never past the listed size: the file may be growing.
        let left = file.size.saturating_sub(offset);
        if left == 0 {
            break;
        }
        let length = ARCHIVE_CHUNK_BYTES.max(due).min(left);
        let piece = table.store().read_range(&path, offset, length, OPERATION).await?;
        if piece.is_empty() {
            break;
        }
        offset += piece.len() as u64;
        buffer.extend_from_slice(&piece);
    }
    if buffer.is_empty() {
        return Ok(());
    }
    let detail = format!("the archive file ends within a block: {} bytes are left over", buffer.len());
    Err(Error::new(ErrorKind::Corrupt, OPERATION, path, detail))
}

async fn walk_lsm(
    table: &HudiTable,
    snapshot: &Snapshot,
    is_wanted: &(dyn Fn(&str) -> bool + Sync),
    visit: &mut Visit<'_>,
    budget: &mut ByteBudget,
) -> Result<(), Error> {
    let folder = &snapshot.properties.history_path;
    let mut visited: BTreeSet<String> = BTreeSet::new();
    for round in 1..=MANIFEST_ROUNDS_MAX {
        let mut has_vanished = false;
        for file in manifest(table, folder).await? {
            if !is_wanted(&file.name) || visited.contains(&file.name) {
                continue;
            }
            let entries = lsm_entries(table, folder, &file, budget).await;
            let is_gone = matches!(&entries, Err(e) if e.kind() == ErrorKind::NotFound);
            if is_gone && round < MANIFEST_ROUNDS_MAX {
                has_vanished = true;
                break;
            }
            visited.insert(file.name);
            if !visit(entries) {
                return Ok(());
            }
        }
        if !has_vanished {
            break;
        }
    }
    Ok(())
}

/// The files of the newest manifest, newest first; none when the table has no history yet.
async fn manifest(table: &HudiTable, folder: &str) -> Result<Vec<LsmFile>, Error> {
    let store = table.store();
    let Some(entries) = store.list_if_there(folder, OPERATION).await? else { return Ok(Vec::new()) };
    let highest = entries.iter().filter_map(|entry| lsm::manifest_number(&entry.name)).max();
    let patience = Patience::new();
    let version_file = format!("{folder}/_version_");
    let version = store.read_decoded(&version_file, 64, OPERATION, &patience, lsm::parse_version).await;
    let has_data = entries.iter().any(|entry| entry.name.ends_with(".parquet"));
    let version = match (version, highest) {
        (Ok(version), _) => version,
        // Hudi itself takes the highest manifest when `_version_` cannot be read.
        (Err(_), Some(highest)) => highest,
        (Err(e), None) if e.kind() == ErrorKind::NotFound && !has_data => return Ok(Vec::new()),
        (Err(e), None) => return Err(e),
    };
    let file = format!("{folder}/manifest_{version}");
    let read = store.read_decoded(&file, MANIFEST_BYTES_MAX, OPERATION, &patience, lsm::parse_manifest).await;
    let mut files = match (read, highest) {
        (Ok(files), _) => files,
        (Err(e), Some(highest)) if e.kind() == ErrorKind::NotFound && highest != version => {
            let file = format!("{folder}/manifest_{highest}");
            store.read_decoded(&file, MANIFEST_BYTES_MAX, OPERATION, &patience, lsm::parse_manifest).await?
        }
        (Err(e), _) => return Err(e),
    };
    let size_of = |name: &str| entries.iter().find(|entry| entry.name == name).map(|entry| entry.size);
    for file in &mut files {
        file.length = size_of(&file.name).or(file.length);
    }
    files.sort_by(|a, b| {
        let newest = |file: &LsmFile| lsm::time_range(&file.name).map(|(_, max)| max.to_owned());
        newest(b).cmp(&newest(a))
    });
    Ok(files)
}

async fn lsm_entries(
    table: &HudiTable,
    folder: &str,
    file: &LsmFile,
    budget: &mut ByteBudget,
) -> Result<Arc<Vec<HistoryEntry>>, Error> {
    let size = file.length.unwrap_or_default();
    if let Some(known) = table.with_caches(|caches| caches.history.get(&file.name, size)) {
        return Ok(known);
    }
    let rows = lsm_rows(table, folder, file, budget).await?;
    let entries = Arc::new(rows.into_iter().map(|row| row.entry).collect::<Vec<_>>());
    table.with_caches(|caches| caches.history.put(&file.name, size, &entries));
    Ok(entries)
}

/// Names of the instants in one data file.
pub(crate) async fn lsm_rows(
    table: &HudiTable,
    folder: &str,
    file: &LsmFile,
    budget: &mut ByteBudget,
) -> Result<Vec<LsmRow>, Error> {
    let limits = table.limits();
    let limits = RowLimits { rows_max: limits.history_entries_max, bytes_max: limits.history_bytes_max };
    each_lsm_row(table, folder, file, false, limits, budget, Vec::new(), |found: &mut Vec<LsmRow>, row| {
        found.push(row);
        Ok(true)
    })
    .await
}

/// Visits one data file row by row, away from the async threads, until the visitor says no; returns what it gathered.
#[expect(clippy::too_many_arguments, reason = "what to read, how much of it, and what to do with it")]
pub(crate) async fn each_lsm_row<T: Send + 'static>(
    table: &HudiTable,
    folder: &str,
    file: &LsmFile,
    with_metadata: bool,
    limits: RowLimits,
    budget: &mut ByteBudget,
    mut gathered: T,
    mut visit: impl FnMut(&mut T, LsmRow) -> Result<bool, Fault> + Send + 'static,
) -> Result<T, Error> {
    let (path, fetched) = fetch(table, folder, file, with_metadata, budget).await?;
    let work = move || {
        lsm::each_row(&fetched, limits, with_metadata, |row| visit(&mut gathered, row)).map(|()| gathered)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(gathered) => gathered.map_err(|fault| fault.at(OPERATION, &path)),
        Err(e) => Err(Error::new(ErrorKind::Corrupt, OPERATION, path, format!("reading broke off: {e}"))),
    }
}

/// Fetches one data file: whole when it is small, else its footer and the columns that are needed.
async fn fetch(
    table: &HudiTable,
    folder: &str,
    file: &LsmFile,
    with_metadata: bool,
    budget: &mut ByteBudget,
) -> Result<(String, Fetched), Error> {
    let path = table.store().path(&format!("{folder}/{}", file.name));
    let length = match file.length {
        Some(length) => length,
        None => match table.store().head(&format!("{folder}/{}", file.name), OPERATION).await? {
            Some(entry) => entry.size,
            None => return Err(Error::new(ErrorKind::NotFound, OPERATION, path, "the history file is gone")),
        },
    };
    let mut parts: Vec<(u64, Bytes)> = Vec::new();
    if length <= WHOLE_BYTES_MAX {
        parts.push((0, range(table, &path, 0, length, budget).await?));
    } else {
        let tail = range(table, &path, length - FOOTER_GUESS_BYTES, FOOTER_GUESS_BYTES, budget).await?;
        let footer_length = lsm::footer_length(&tail).map_err(|fault| fault.at(OPERATION, &path))?;
        let start = length.checked_sub(footer_length).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                OPERATION,
                path.clone(),
                "the Parquet footer is longer than the file",
            )
        })?;
        let in_tail = usize::try_from(footer_length).ok().and_then(|length| tail.len().checked_sub(length));
        let footer = match in_tail {
            Some(at) => tail.slice(at..),
            None => range(table, &path, start, footer_length, budget).await?,
        };
        let columns =
            lsm::column_ranges(&footer, with_metadata).map_err(|fault| fault.at(OPERATION, &path))?;
        parts.push((start, footer));
        for column in columns {
            let bytes = range(table, &path, column.start, column.end - column.start, budget).await?;
            parts.push((column.start, bytes));
        }
    }
    Ok((path, Fetched::new(length, parts)))
}

async fn range(
    table: &HudiTable,
    path: &str,
    start: u64,
    length: u64,
    budget: &mut ByteBudget,
) -> Result<Bytes, Error> {
    budget.spend(length, OPERATION, path)?;
    table.store().read_range(path, start, length, OPERATION).await
}
