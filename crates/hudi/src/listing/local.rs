//! Files of this machine: `/x`, `file:/x` and `file:///x`.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use rustix::fs::OFlags;

use super::threads::ReadThreads;
use super::{Entry, Listing, ListingError, ListingErrorKind};

/// Most entries of one folder that are taken; a timeline of 10,000 instants has some 30,000 (measured).
const LIST_ENTRIES_MAX: usize = 1_000_000;

/// The file systems of this machine. Plain calls of the standard library on [`ReadThreads`]:
/// its paths are byte strings, so nothing is encoded or decoded on the way.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalListing;

impl LocalListing {
    /// Makes a reader of local files.
    pub fn new() -> Self {
        Self
    }

    /// Turns a spelling of a local path into a path of this machine, without decoding anything.
    pub fn local_path(path: &str) -> Result<PathBuf, ListingError> {
        let bare = match path.strip_prefix("file:") {
            Some(rest) if rest.starts_with("///") => &rest[2..],
            Some(rest) if rest.starts_with("//") => {
                return Err(unsupported(path, "a file: path must not name a host"));
            }
            Some(rest) => rest,
            None => path,
        };
        if !bare.starts_with('/') {
            return Err(unsupported(path, "not an absolute local path (/x, file:/x or file:///x)"));
        }
        if bare.contains('\0') {
            return Err(unsupported(path, "the path holds a zero byte"));
        }
        Ok(PathBuf::from(bare))
    }
}

fn unsupported(path: &str, detail: &str) -> ListingError {
    ListingError::new(ListingErrorKind::Unsupported, path, detail)
}

fn io_error(path: &str, error: &io::Error) -> ListingError {
    let kind = match error.kind() {
        // A file where a folder of the path should be: there is nothing under this name.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ListingErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ListingErrorKind::PermissionDenied,
        io::ErrorKind::InvalidFilename | io::ErrorKind::IsADirectory => ListingErrorKind::Unsupported,
        _ => ListingErrorKind::Unreachable,
    };
    ListingError::new(kind, path, error.to_string())
}

fn entry_of(name: String, meta: &fs::Metadata) -> Entry {
    Entry {
        name,
        is_folder: meta.is_dir(),
        size: if meta.is_dir() { 0 } else { meta.len() },
        modified: meta.modified().ok().map(DateTime::<Utc>::from),
        etag: None,
    }
}

fn list_blocking(folder: &str) -> Result<Vec<Entry>, ListingError> {
    let path = LocalListing::local_path(folder)?;
    let mut entries = Vec::new();
    for item in fs::read_dir(&path).map_err(|e| io_error(folder, &e))? {
        let item = item.map_err(|e| io_error(folder, &e))?;
        // No name of Hudi's is other than UTF-8; what is cannot be asked for through this trait.
        let Ok(name) = item.file_name().into_string() else { continue };
        let meta = match fs::metadata(item.path()) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(io_error(folder, &e)),
        };
        if entries.len() >= LIST_ENTRIES_MAX {
            let detail = format!("more than {LIST_ENTRIES_MAX} entries");
            return Err(ListingError::new(ListingErrorKind::TooLarge, folder, detail));
        }
        entries.push(entry_of(name, &meta));
    }
    Ok(entries)
}

/// Opens a plain file. A pipe or device would hang or never end; Hudi writes neither.
fn open_plain(path: &str, local: &Path) -> Result<(fs::File, fs::Metadata), ListingError> {
    let plain = |meta: fs::Metadata| {
        if meta.is_file() { Ok(meta) } else { Err(unsupported(path, "not a plain file")) }
    };
    // Asked first, since the opening of a device can change it; and opened so that a pipe that takes the file's place
    // in between does not hang.
    plain(fs::metadata(local).map_err(|e| io_error(path, &e))?)?;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(local);
    let file = opened.map_err(|e| io_error(path, &e))?;
    let meta = plain(file.metadata().map_err(|e| io_error(path, &e))?)?;
    Ok((file, meta))
}

fn read_blocking(path: &str, offset: u64, length: u64, is_whole: bool) -> Result<Bytes, ListingError> {
    let local = LocalListing::local_path(path)?;
    let (mut file, meta) = open_plain(path, &local)?;
    let too_large = || {
        let detail = format!("more than {length} bytes");
        ListingError::new(ListingErrorKind::TooLarge, path, detail)
    };
    if is_whole && meta.len() > length {
        return Err(too_large());
    }
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(|e| io_error(path, &e))?;
    }
    let mut bytes = Vec::new();
    let allowed = if is_whole { length.saturating_add(1) } else { length };
    file.take(allowed).read_to_end(&mut bytes).map_err(|e| io_error(path, &e))?;
    if is_whole && u64::try_from(bytes.len()).unwrap_or(u64::MAX) > length {
        return Err(too_large());
    }
    Ok(Bytes::from(bytes))
}

fn head_blocking(path: &str) -> Result<Option<Entry>, ListingError> {
    let local = LocalListing::local_path(path)?;
    match fs::metadata(&local) {
        Ok(meta) => {
            let name = local.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
            Ok(Some(entry_of(name, &meta)))
        }
        Err(e) => match io_error(path, &e) {
            error if error.kind() == ListingErrorKind::NotFound => Ok(None),
            error => Err(error),
        },
    }
}

fn real_path_blocking(folder: &str) -> Result<Option<String>, ListingError> {
    let local = LocalListing::local_path(folder)?;
    let real = fs::canonicalize(&local).map_err(|e| io_error(folder, &e))?;
    // Compared by their parts: a trailing slash is no other path.
    let is_other = !real.components().eq(local.components());
    Ok(is_other.then(|| format!("file:{}", real.display())))
}

async fn blocking<T: Send + 'static>(
    path: &str,
    work: impl FnOnce(&str) -> Result<T, ListingError> + Send + 'static,
) -> Result<T, ListingError> {
    ReadThreads::of_process().run(path, work).await
}

#[async_trait]
impl Listing for LocalListing {
    fn check(&self, folder: &str) -> Result<(), ListingError> {
        ReadThreads::of_process().check(folder)
    }

    async fn list(&self, folder: &str) -> Result<Vec<Entry>, ListingError> {
        blocking(folder, list_blocking).await
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, ListingError> {
        blocking(path, move |p| read_blocking(p, 0, bytes_max, true)).await
    }

    async fn read_range(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, ListingError> {
        blocking(path, move |p| read_blocking(p, offset, length, false)).await
    }

    async fn real_path(&self, folder: &str) -> Result<Option<String>, ListingError> {
        blocking(folder, real_path_blocking).await
    }

    async fn head(&self, path: &str) -> Result<Option<Entry>, ListingError> {
        blocking(path, head_blocking).await
    }
}
