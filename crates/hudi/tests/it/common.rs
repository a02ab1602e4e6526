//! Packed tables, an in-memory store that counts and breaks, and small builders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value as Json;
use tms_hudi::{Entry, HudiTable, Listing, ListingError, ListingErrorKind, Look, Snapshot};

pub(crate) fn fixtures_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tables")
}

/// Names of all packed tables, sorted.
pub(crate) fn fixture_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(fixtures_folder())
        .expect("tests/fixtures/tables is there")
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".tar.xz").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn unpacked(name: &str) -> Vec<u8> {
    let file =
        fs::File::open(fixtures_folder().join(format!("{name}.tar.xz"))).expect("the fixture is there");
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(file, false).read_to_end(&mut bytes).expect("the fixture is whole");
    bytes
}

/// One packed table in a temporary folder.
pub(crate) struct Fixture {
    pub(crate) base: String,
    pub(crate) expected: Json,
    _folder: tempfile::TempDir,
}

pub(crate) fn unpack(name: &str) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    tar::Archive::new(unpacked(name).as_slice()).unpack(folder.path()).unwrap();
    let root = folder.path().join(name);
    let expected: Json = serde_json::from_slice(&fs::read(root.join("expected.json")).unwrap()).unwrap();
    let base = root.join(expected["tableDir"].as_str().unwrap()).to_str().unwrap().to_owned();
    Fixture { base, expected, _folder: folder }
}

/// One packed table in memory, below `/t`.
pub(crate) fn unpack_in_memory(name: &str) -> Arc<MemoryListing> {
    let listing = MemoryListing::default();
    let bytes = unpacked(name);
    let mut archive = tar::Archive::new(bytes.as_slice());
    for item in archive.entries().unwrap() {
        let mut item = item.unwrap();
        let path = item.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
        // `<name>/<table folder>/<rest>`; expected.json lies beside the table folder.
        let Some(rest) = path.splitn(3, '/').nth(2).map(str::to_owned) else { continue };
        if item.header().entry_type().is_dir() {
            listing.add_folder(&format!("/t/{rest}"));
        } else {
            let mut content = Vec::new();
            item.read_to_end(&mut content).unwrap();
            let modified = i64::try_from(item.header().mtime().unwrap()).unwrap();
            listing.put_at(&format!("/t/{rest}"), content, DateTime::from_timestamp(modified, 0).unwrap());
        }
    }
    Arc::new(listing)
}

pub(crate) async fn look(table: &HudiTable) -> Arc<Snapshot> {
    match table.look(None).await.expect("the table can be read") {
        Look::Changed(snapshot) => snapshot,
        Look::Unchanged => panic!("a first look cannot be unchanged"),
    }
}

/// How the store answers for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Denied,
    Unreachable,
    /// Listed, and gone when it is read, this many times.
    Vanishes(u32),
    /// Read as 0 bytes, this many times.
    ReadsEmpty(u32),
}

#[derive(Debug, Default)]
struct Inside {
    files: BTreeMap<String, (Bytes, DateTime<Utc>)>,
    folders: BTreeSet<String>,
    troubles: BTreeMap<String, Trouble>,
    lists: Vec<String>,
    reads: Vec<String>,
    heads: Vec<String>,
}

/// A store in memory that counts every call.
#[derive(Debug, Default)]
pub(crate) struct MemoryListing {
    inside: Mutex<Inside>,
}

impl MemoryListing {
    pub(crate) fn put(&self, path: &str, content: impl Into<Vec<u8>>) {
        let n_files = i64::try_from(self.inside.lock().unwrap().files.len()).unwrap();
        let at = DateTime::from_timestamp(1_800_000_000, 0).unwrap() + TimeDelta::seconds(n_files);
        self.put_at(path, content, at);
    }

    pub(crate) fn put_at(&self, path: &str, content: impl Into<Vec<u8>>, modified: DateTime<Utc>) {
        let mut inside = self.inside.lock().unwrap();
        let mut folder = path;
        while let Some((parent, _)) = folder.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            inside.folders.insert(parent.to_owned());
            folder = parent;
        }
        inside.files.insert(path.to_owned(), (Bytes::from(content.into()), modified));
    }

    pub(crate) fn add_folder(&self, path: &str) {
        self.inside.lock().unwrap().folders.insert(path.to_owned());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.inside.lock().unwrap().files.remove(path).expect("the file is there");
    }

    /// Takes a folder away with all that is in it.
    pub(crate) fn remove_folder(&self, path: &str) {
        let mut inside = self.inside.lock().unwrap();
        let stays = |other: &str| other != path && !other.starts_with(&format!("{path}/"));
        inside.files.retain(|other, _| stays(other));
        inside.folders.retain(|other| stays(other));
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        self.inside.lock().unwrap().files.get(path).expect("the file is there").0.to_vec()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.inside.lock().unwrap().files.keys().cloned().collect()
    }

    pub(crate) fn trouble(&self, path: &str, trouble: Option<Trouble>) {
        let mut inside = self.inside.lock().unwrap();
        match trouble {
            Some(trouble) => inside.troubles.insert(path.to_owned(), trouble),
            None => inside.troubles.remove(path),
        };
    }

    /// (lists, reads, heads) since the last call.
    pub(crate) fn take_counts(&self) -> (usize, usize, usize) {
        let mut inside = self.inside.lock().unwrap();
        let counts = (inside.lists.len(), inside.reads.len(), inside.heads.len());
        inside.lists.clear();
        inside.reads.clear();
        inside.heads.clear();
        counts
    }

    fn troubled(&self, path: &str) -> Result<Option<Trouble>, ListingError> {
        let mut inside = self.inside.lock().unwrap();
        let trouble = inside.troubles.get(path).copied();
        match trouble {
            Some(Trouble::Denied) => {
                Err(ListingError::new(ListingErrorKind::PermissionDenied, path, "denied"))
            }
            Some(Trouble::Unreachable) => {
                Err(ListingError::new(ListingErrorKind::Unreachable, path, "no answer"))
            }
            Some(Trouble::Vanishes(0) | Trouble::ReadsEmpty(0)) => Ok(None),
            Some(Trouble::Vanishes(n)) => {
                inside.troubles.insert(path.to_owned(), Trouble::Vanishes(n - 1));
                Err(ListingError::new(ListingErrorKind::NotFound, path, "gone"))
            }
            Some(Trouble::ReadsEmpty(n)) => {
                inside.troubles.insert(path.to_owned(), Trouble::ReadsEmpty(n - 1));
                Ok(trouble)
            }
            None => Ok(None),
        }
    }

    fn entry(inside: &Inside, path: &str) -> Option<Entry> {
        let name = path.rsplit('/').next().unwrap().to_owned();
        if let Some((bytes, modified)) = inside.files.get(path) {
            let size = u64::try_from(bytes.len()).unwrap();
            return Some(Entry { name, is_folder: false, size, modified: Some(*modified), etag: None });
        }
        let is_folder = inside.folders.contains(path);
        is_folder.then_some(Entry { name, is_folder, size: 0, modified: None, etag: None })
    }
}

#[async_trait]
impl Listing for MemoryListing {
    async fn list(&self, folder: &str) -> Result<Vec<Entry>, ListingError> {
        self.inside.lock().unwrap().lists.push(folder.to_owned());
        self.troubled(folder)?;
        let inside = self.inside.lock().unwrap();
        if !inside.folders.contains(folder) {
            return Err(ListingError::new(ListingErrorKind::NotFound, folder, "no such folder"));
        }
        let is_child = |path: &str| {
            path.strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| !rest.contains('/'))
        };
        let paths = inside.files.keys().chain(inside.folders.iter());
        Ok(paths.filter(|path| is_child(path)).filter_map(|path| Self::entry(&inside, path)).collect())
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, ListingError> {
        let bytes = self.read_range(path, 0, u64::MAX).await?;
        if u64::try_from(bytes.len()).unwrap() > bytes_max {
            return Err(ListingError::new(ListingErrorKind::TooLarge, path, "too large"));
        }
        Ok(bytes)
    }

    async fn read_range(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, ListingError> {
        self.inside.lock().unwrap().reads.push(path.to_owned());
        if let Some(Trouble::ReadsEmpty(_)) = self.troubled(path)? {
            return Ok(Bytes::new());
        }
        let inside = self.inside.lock().unwrap();
        let Some((bytes, _)) = inside.files.get(path) else {
            return Err(ListingError::new(ListingErrorKind::NotFound, path, "no such file"));
        };
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
        Ok(bytes.slice(start..end))
    }

    async fn head(&self, path: &str) -> Result<Option<Entry>, ListingError> {
        self.inside.lock().unwrap().heads.push(path.to_owned());
        self.troubled(path)?;
        Ok(Self::entry(&self.inside.lock().unwrap(), path))
    }
}
