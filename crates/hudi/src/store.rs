//! Reading below one base path, with the bounded patience that files of a writer at work need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::fault::Fault;
use crate::listing::{Entry, Listing, ListingError};
use crate::properties::{self, TableProperties};
use crate::timeline::PROPERTIES_FILE;

/// First wait before a file is read again. A local 0.15.0 writer leaves files at 0 bytes for up to some 15 ms
/// (measured).
const WAIT_FIRST: Duration = Duration::from_millis(50);
/// Longest single wait.
const WAIT_MAX: Duration = Duration::from_millis(400);
/// Most times one file is read again.
const READS_AGAIN_MAX: u32 = 4;
/// Most waits of one question to a table, over all its files.
const WAITS_PER_CALL_MAX: u32 = 24;
/// Decoding more than this many bytes goes to the blocking pool.
const DECODE_INLINE_BYTES_MAX: usize = 64 * 1024;

/// How often one call may still wait.
#[derive(Debug)]
pub(crate) struct Patience(AtomicU32);

impl Patience {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(WAITS_PER_CALL_MAX))
    }

    /// Waits before the reading number `n_again` (from 0) of one file; false when patience is spent.
    pub(crate) async fn wait(&self, n_again: u32) -> bool {
        if n_again >= READS_AGAIN_MAX {
            return false;
        }
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            return false;
        }
        tokio::time::sleep((WAIT_FIRST * 2_u32.pow(n_again)).min(WAIT_MAX)).await;
        true
    }
}

/// One table's place on a store.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    listing: Arc<dyn Listing>,
    base: String,
}

impl Store {
    pub(crate) fn new(listing: Arc<dyn Listing>, base_path: &str) -> Self {
        let trimmed = base_path.trim_end_matches('/');
        let base = if trimmed.is_empty() || trimmed.ends_with(':') { base_path } else { trimmed };
        Self { listing, base: base.to_owned() }
    }

    /// The store's spelling of a path below the base path.
    pub(crate) fn path(&self, relative: &str) -> String {
        if self.base.ends_with('/') {
            format!("{}{relative}", self.base)
        } else {
            format!("{}/{relative}", self.base)
        }
    }

    pub(crate) async fn list(&self, folder: &str, operation: &'static str) -> Result<Vec<Entry>, Error> {
        let path = self.path(folder);
        self.ask(operation, self.listing.list(&path)).await
    }

    /// Asks the store, unless a former question about this table hangs.
    async fn ask<T>(
        &self,
        operation: &'static str,
        question: impl Future<Output = Result<T, ListingError>>,
    ) -> Result<T, Error> {
        self.listing.check(&self.base).map_err(|e| Error::from_listing(operation, e))?;
        question.await.map_err(|e| Error::from_listing(operation, e))
    }

    /// Lists a folder that need not exist.
    pub(crate) async fn list_if_there(
        &self,
        folder: &str,
        operation: &'static str,
    ) -> Result<Option<Vec<Entry>>, Error> {
        match self.list(folder, operation).await {
            Ok(entries) => Ok(Some(entries)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Where a folder of the table really lies, when its path leads there by links.
    pub(crate) async fn real_path(&self, folder: &str) -> Result<Option<String>, Error> {
        let path = self.path(folder);
        let path = path.trim_end_matches('/');
        self.ask("find out where the table really lies", self.listing.real_path(path)).await
    }

    pub(crate) async fn head(&self, file: &str, operation: &'static str) -> Result<Option<Entry>, Error> {
        let path = self.path(file);
        self.ask(operation, self.listing.head(&path)).await
    }

    pub(crate) async fn read(
        &self,
        file: &str,
        bytes_max: u64,
        operation: &'static str,
    ) -> Result<Bytes, Error> {
        let path = self.path(file);
        self.ask(operation, self.listing.read(&path, bytes_max)).await
    }

    /// Reads a part of the file at `path`, which is spelled as [`Self::path`] spells it.
    pub(crate) async fn read_range(
        &self,
        path: &str,
        offset: u64,
        length: u64,
        operation: &'static str,
    ) -> Result<Bytes, Error> {
        self.ask(operation, self.listing.read_range(path, offset, length)).await
    }

    /// Reads and decodes a file in which content is due: 0 bytes, and content that cannot be decoded, are read
    /// again a few times before they count.
    pub(crate) async fn read_decoded<T: Send + 'static>(
        &self,
        file: &str,
        bytes_max: u64,
        operation: &'static str,
        patience: &Patience,
        decode: impl Fn(&[u8]) -> Result<T, Fault> + Send + Clone + 'static,
    ) -> Result<T, Error> {
        let mut n_again = 0;
        let mut length_before = None;
        loop {
            let bytes = self.read(file, bytes_max, operation).await?;
            let length = bytes.len();
            let fault = match decode_off_thread(bytes, decode.clone()).await {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            // Broken content of an unchanged length is broken for good; only empty content may still come.
            let is_settled = length > 0 && length_before == Some(length);
            if is_settled || fault.kind == ErrorKind::Unsupported || !patience.wait(n_again).await {
                return Err(fault.at(operation, &self.path(file)));
            }
            length_before = Some(length);
            n_again += 1;
        }
    }

    /// Reads `hoodie.properties` below `folder` (`.hoodie` for the table itself). A writer replaces the file by
    /// way of `hoodie.properties.backup`, so a missing or cut one is looked up there, then read again.
    pub(crate) async fn properties(
        &self,
        folder: &str,
        bytes_max: u64,
        patience: &Patience,
    ) -> Result<TableProperties, Error> {
        const OPERATION: &str = "read the table's properties";
        let file = format!("{folder}/{PROPERTIES_FILE}");
        let backup = format!("{file}.backup");
        let mut n_again = 0;
        loop {
            let mut cut = None;
            let failed = match self.read(&file, bytes_max, OPERATION).await {
                Ok(bytes) => match TableProperties::parse(&bytes, &self.path(&file)) {
                    Ok(found) if properties::ends_within_a_line(&bytes) => {
                        cut = Some(found);
                        None
                    }
                    Ok(found) => return Ok(found),
                    Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
                    Err(e) => Some(e),
                },
                Err(e) if e.kind() == ErrorKind::NotFound => Some(e),
                Err(e) => return Err(e),
            };
            match self.read(&backup, bytes_max, OPERATION).await {
                Ok(bytes) => {
                    if let Ok(found) = TableProperties::parse(&bytes, &self.path(&backup)) {
                        return Ok(found);
                    }
                }
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
            let is_missing = failed.as_ref().is_some_and(|e| e.kind() == ErrorKind::NotFound);
            // Without its folder there is no writer who could be replacing the file.
            let is_hopeless =
                is_missing && n_again == 0 && self.list_if_there(folder, OPERATION).await?.is_none();
            if !is_hopeless && patience.wait(n_again).await {
                n_again += 1;
                continue;
            }
            return match (cut, failed) {
                // Whole in every other way, and nobody is writing: edited by hand without a last line end.
                (Some(found), _) => Ok(found),
                (None, Some(e)) if is_missing => Err(no_table(&self.path(&file), is_hopeless, &e)),
                (None, Some(e)) => Err(e),
                (None, None) => Err(Fault::empty().at(OPERATION, &self.path(&file))),
            };
        }
    }
}

fn no_table(path: &str, is_without_folder: bool, source: &Error) -> Error {
    let detail = if is_without_folder {
        "no Hudi table here: there is no .hoodie folder"
    } else {
        "the .hoodie folder is there, hoodie.properties and its backup are not"
    };
    let error = Error::new(ErrorKind::NotFound, "read the table's properties", path, detail);
    let error = if is_without_folder {
        error
    } else {
        error.with_hint("restore hoodie.properties from a copy, or check the base path")
    };
    error.with_source(source.clone())
}

/// Decodes here when it is quick, else on the blocking pool.
async fn decode_off_thread<T: Send + 'static>(
    bytes: Bytes,
    decode: impl Fn(&[u8]) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    if bytes.len() <= DECODE_INLINE_BYTES_MAX {
        return decode(&bytes);
    }
    match tokio::task::spawn_blocking(move || decode(&bytes)).await {
        Ok(done) => done,
        Err(e) => Err(Fault::corrupt(format!("decoding broke off: {e}"))),
    }
}
