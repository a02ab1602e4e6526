//! History of layout 2: the manifest and the Parquet files of the LSM tree. Pure.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde::Deserialize;

use crate::fault::Fault;
use crate::history::HistoryEntry;
use crate::names::{HudiAction, InstantState};

/// Length and magic at the end of a Parquet file.
const TAIL_LENGTH: usize = 8;
/// Columns that name an instant, and the one that holds its metadata.
const COLUMNS: [&str; 3] = ["instantTime", "completionTime", "action"];
const COLUMN_METADATA: &str = "metadata";

/// One data file of the tree, as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LsmFile {
    pub(crate) name: String,
    pub(crate) length: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ManifestWire {
    files: Vec<ManifestFileWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestFileWire {
    file_name: String,
    #[serde(default)]
    file_len: Option<u64>,
}

/// The number in `_version_`.
pub(crate) fn parse_version(content: &[u8]) -> Result<u64, Fault> {
    if content.is_empty() {
        return Err(Fault::empty());
    }
    std::str::from_utf8(content)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| Fault::corrupt("_version_ of the history is no number"))
}

/// The number N of `manifest_N`, `None` for other files.
pub(crate) fn manifest_number(name: &str) -> Option<u64> {
    name.strip_prefix("manifest_")?.parse().ok()
}

/// The data files a manifest lists.
pub(crate) fn parse_manifest(content: &[u8]) -> Result<Vec<LsmFile>, Fault> {
    if content.is_empty() {
        return Err(Fault::empty());
    }
    let manifest: ManifestWire = serde_json::from_slice(content)
        .map_err(|e| Fault::corrupt(format!("the manifest is damaged: {e}")))?;
    let files =
        manifest.files.into_iter().map(|file| LsmFile { name: file.file_name, length: file.file_len });
    let files: Vec<LsmFile> = files.collect();
    match files.iter().find(|file| file.name.is_empty() || file.name.contains('/')) {
        Some(odd) => Err(Fault::corrupt(format!("the manifest lists {:?}, which is no file name", odd.name))),
        None => Ok(files),
    }
}

/// Smallest and greatest requested time of a data file by its name `<min>_<max>_<level>.parquet`.
pub(crate) fn time_range(name: &str) -> Option<(&str, &str)> {
    let stem = name.strip_suffix(".parquet")?;
    let mut parts = stem.split('_');
    let (min, max, level) = (parts.next()?, parts.next()?, parts.next()?);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (parts.next().is_none() && [min, max, level].into_iter().all(is_digits)).then_some((min, max))
}

/// One row of a data file.
#[derive(Debug)]
pub(crate) struct LsmRow {
    pub(crate) entry: HistoryEntry,
    /// The completed file's content, when it was asked for.
    pub(crate) metadata: Option<Bytes>,
}

/// The parts of a file that were fetched; reading elsewhere is an error.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    length: u64,
    parts: Arc<Vec<(u64, Bytes)>>,
}

impl Fetched {
    pub(crate) fn new(length: u64, parts: Vec<(u64, Bytes)>) -> Self {
        Self { length, parts: Arc::new(parts) }
    }

    fn from(&self, start: u64) -> Option<Bytes> {
        self.parts.iter().find_map(|(at, bytes)| {
            let skip = usize::try_from(start.checked_sub(*at)?).ok()?;
            // A part that ends here is not it: the next one may begin here.
            (skip < bytes.len()).then(|| bytes.slice(skip..))
        })
    }
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Fetched {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.from(start).map(Buf::reader).ok_or_else(|| not_fetched(start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes =
            self.from(start).filter(|bytes| bytes.len() >= length).ok_or_else(|| not_fetched(start))?;
        Ok(bytes.slice(..length))
    }
}

fn not_fetched(start: u64) -> ParquetError {
    ParquetError::General(format!("nothing is there at byte {start}"))
}

/// How many bytes from the end hold the whole footer, by the file's last bytes.
pub(crate) fn footer_length(tail: &[u8]) -> Result<u64, Fault> {
    let end = tail.len().checked_sub(TAIL_LENGTH).and_then(|at| tail.get(at..));
    match end {
        Some([a, b, c, d, b'P', b'A', b'R', b'1']) => {
            Ok(u64::from(u32::from_le_bytes([*a, *b, *c, *d])) + TAIL_LENGTH as u64)
        }
        _ => Err(Fault::corrupt("no Parquet file: it does not end with PAR1")),
    }
}

/// Byte ranges of the columns that [`rows`] needs, by a footer of exactly [`footer_length`] bytes.
pub(crate) fn column_ranges(footer: &[u8], with_metadata: bool) -> Result<Vec<Range<u64>>, Fault> {
    guarded(|| {
        let thrift =
            footer.len().checked_sub(TAIL_LENGTH).and_then(|end| footer.get(..end)).unwrap_or_default();
        let metadata = ParquetMetaDataReader::decode_metadata(thrift).map_err(|e| damaged(&e))?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
            if !is_wanted(column.column_descr().name(), with_metadata) {
                continue;
            }
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let bounds = (u64::try_from(start), u64::try_from(column.compressed_size()));
            let (Ok(start), Ok(length)) = bounds else {
                return Err(Fault::corrupt("a Parquet column of an impossible size"));
            };
            let end = start
                .checked_add(length)
                .ok_or_else(|| Fault::corrupt("a Parquet column of an impossible size"))?;
            ranges.push(start..end);
        }
        ranges.sort_by_key(|range| range.start);
        Ok(ranges)
    })
}

fn is_wanted(column: &str, with_metadata: bool) -> bool {
    COLUMNS.contains(&column) || (with_metadata && column == COLUMN_METADATA)
}

/// How much of one data file is unpacked at most; the file's own size tells nothing about that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLimits {
    pub(crate) rows_max: usize,
    /// Bytes of all rows together.
    pub(crate) bytes_max: u64,
}

/// Visits the rows of one data file, one in memory at a time, until the visitor says no.
pub(crate) fn each_row(
    file: &Fetched,
    limits: RowLimits,
    with_metadata: bool,
    mut visit: impl FnMut(LsmRow) -> Result<bool, Fault>,
) -> Result<(), Fault> {
    guarded(|| {
        let reader = SerializedFileReader::new(file.clone()).map_err(|e| damaged(&e))?;
        let schema = reader.metadata().file_metadata().schema();
        let fields: Vec<_> = schema
            .get_fields()
            .iter()
            .filter(|field| is_wanted(field.name(), with_metadata))
            .cloned()
            .collect();
        let projection =
            Type::group_type_builder(schema.name()).with_fields(fields).build().map_err(|e| damaged(&e))?;
        let mut bytes_left = limits.bytes_max;
        for (n, row) in reader.get_row_iter(Some(projection)).map_err(|e| damaged(&e))?.enumerate() {
            if n >= limits.rows_max {
                return Err(Fault::too_large(format!(
                    "more than {} instants in one history file",
                    limits.rows_max
                )));
            }
            let row = row_of(row.map_err(|e| damaged(&e))?)?;
            let size = row.metadata.as_ref().map_or(0, Bytes::len) + row.entry.requested.len();
            bytes_left = bytes_left.checked_sub(size as u64).ok_or_else(|| {
                Fault::too_large(format!(
                    "more than {} bytes unpacked from one history file",
                    limits.bytes_max
                ))
            })?;
            if !visit(row)? {
                break;
            }
        }
        Ok(())
    })
}

fn row_of(row: Row) -> Result<LsmRow, Fault> {
    let mut texts: HashMap<String, String> = HashMap::new();
    let mut metadata = None;
    for (name, field) in row.into_columns() {
        match field {
            Field::Str(text) => {
                texts.insert(name, text);
            }
            Field::Bytes(bytes) if name == COLUMN_METADATA => {
                metadata = Some(Bytes::copy_from_slice(bytes.data()));
            }
            Field::Bytes(bytes) => {
                texts.insert(name, String::from_utf8_lossy(bytes.data()).into_owned());
            }
            _ => {}
        }
    }
    let mut text = |name: &str| {
        texts.remove(name).ok_or_else(|| Fault::corrupt(format!("a row of the history without {name}")))
    };
    let entry = HistoryEntry {
        requested: text("instantTime")?,
        completed: text("completionTime").ok(),
        action: HudiAction::from_word(&text("action")?),
        state: InstantState::Completed,
    };
    Ok(LsmRow { entry, metadata })
}

fn damaged(error: &ParquetError) -> Fault {
    Fault::corrupt(format!("the Parquet file is damaged: {error}"))
}

/// Keeps a panic of the Parquet reader, should a damaged file cause one, from reaching anybody.
fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Fault::corrupt("the Parquet file is damaged")))
}
