//! History of layout 1: the blocks of `.commits_.archive.N_…` files. Pure.
//!
//! A file is a row of blocks, all numbers big endian: `#HUDI#`, i64 size of what follows, i32 version, i32 type,
//! i32 count of header entries, each i32 key, i32 length, bytes; i64 content length, content; i32 count of footer
//! entries alike; i64 size + 6. Measured on 22 files of 0.15.0 and 1.0.2.

use crate::avro::CheckedSchema;
use crate::fault::Fault;
use crate::history::HistoryEntry;
use crate::names::{HudiAction, InstantState};
use crate::wire::{Maybe, wire_record};
use crate::writes::{CommitWire, WriteFacts};

const MAGIC: &[u8; 6] = b"#HUDI#";
/// Bytes of the magic and the size behind it.
pub(crate) const BLOCK_HEAD_LENGTH: usize = 14;
const BLOCK_VERSION: i32 = 1;
const BLOCK_TYPE_AVRO: i32 = 3;
const HEADER_KEY_SCHEMA: i32 = 2;
const CONTENT_VERSION: i32 = 3;
/// Most entries of a block's header or footer; real ones have two.
const HEADER_ENTRIES_MAX: i32 = 64;

/// The number N of an archive file's name, `None` for other files.
pub(crate) fn archive_number(name: &str) -> Option<u64> {
    let tail = name.strip_prefix(".commits_.archive.")?;
    let digits = tail.split_once('_').map_or(tail, |(digits, _)| digits);
    digits.parse().ok()
}

/// Length of the whole block that begins with these bytes (at least [`BLOCK_HEAD_LENGTH`] of them).
pub(crate) fn block_length(head: &[u8]) -> Result<u64, Fault> {
    let mut cursor = Cursor(head);
    if cursor.take(MAGIC.len())? != MAGIC {
        return Err(Fault::corrupt("no archive block where one should begin (#HUDI# is missing)"));
    }
    let size = cursor.length_i64()?;
    u64::try_from(size)
        .ok()
        .and_then(|size| size.checked_add(BLOCK_HEAD_LENGTH as u64))
        .ok_or_else(|| Fault::corrupt("an archive block of an impossible size"))
}

/// Decodes blocks one after another and keeps the schema of the last one: all blocks of a table hold the same
/// text of 15 to 17 KB.
#[derive(Debug, Default)]
pub(crate) struct BlockDecoder {
    schema: Option<(Vec<u8>, CheckedSchema)>,
}

wire_record! {
    struct ArchivedWire {
        commit_time: Maybe<String> = "commitTime",
        action_type: Maybe<String> = "actionType",
        action_state: Maybe<String> = "actionState",
    }
}

wire_record! {
    struct ArchivedWriteWire {
        commit_time: Maybe<String> = "commitTime",
        action_type: Maybe<String> = "actionType",
        action_state: Maybe<String> = "actionState",
        hoodie_commit_metadata: Maybe<CommitWire> = "hoodieCommitMetadata",
        hoodie_replace_commit_metadata: Maybe<CommitWire> = "hoodieReplaceCommitMetadata",
    }
}

impl BlockDecoder {
    /// The instants of one whole block.
    pub(crate) fn entries(&mut self, block: &[u8]) -> Result<Vec<HistoryEntry>, Fault> {
        self.records(block, |schema, datum| {
            let wire: ArchivedWire = schema.decode(datum)?;
            entry(wire.commit_time.0, wire.action_type.0, wire.action_state.0.as_deref())
        })
    }

    /// The instants of one whole block with what each completed write touched.
    pub(crate) fn writes(&mut self, block: &[u8]) -> Result<Vec<(HistoryEntry, WriteFacts)>, Fault> {
        self.records(block, |schema, datum| {
            let wire: ArchivedWriteWire = schema.decode(datum)?;
            let facts = match (wire.hoodie_replace_commit_metadata.0, wire.hoodie_commit_metadata.0) {
                (Some(metadata), _) | (None, Some(metadata)) => WriteFacts::from_wire(metadata)?,
                (None, None) => WriteFacts::default(),
            };
            Ok((entry(wire.commit_time.0, wire.action_type.0, wire.action_state.0.as_deref())?, facts))
        })
    }

    fn records<T>(
        &mut self,
        block: &[u8],
        mut decode: impl FnMut(&CheckedSchema, &[u8]) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut cursor = Cursor(block);
        cursor.take(BLOCK_HEAD_LENGTH)?;
        let version = cursor.number_i32()?;
        if version != BLOCK_VERSION {
            return Err(Fault::unsupported(format!("an archive block of version {version}; known is 1")));
        }
        let kind = cursor.number_i32()?;
        let schema = cursor.header_entries()?;
        let content_length = cursor.length_i64()?;
        let content = cursor.take(usize::try_from(content_length).unwrap_or(usize::MAX))?;
        cursor.header_entries()?;
        let size_again = cursor.length_i64()?;
        // Its second size counts the block without that size itself.
        if usize::try_from(size_again).ok() != block.len().checked_sub(size_of::<i64>()) {
            return Err(Fault::corrupt("an archive block whose two sizes differ"));
        }
        // Command and delete blocks hold no instants.
        if kind != BLOCK_TYPE_AVRO {
            return Ok(Vec::new());
        }
        let schema = schema.ok_or_else(|| Fault::corrupt("an archive block without a schema"))?;
        if self.schema.as_ref().is_none_or(|(text, _)| text != schema) {
            self.schema = Some((schema.to_vec(), CheckedSchema::parse(schema)?));
        }
        let Some((_, schema)) = &self.schema else { return Ok(Vec::new()) };
        let mut cursor = Cursor(content);
        let version = cursor.number_i32()?;
        if version != CONTENT_VERSION {
            return Err(Fault::unsupported(format!("archive content of version {version}; known is 3")));
        }
        let n_records = cursor.number_i32()?;
        let mut records = Vec::new();
        for _ in 0..n_records {
            let length = cursor.number_i32()?;
            let length = usize::try_from(length)
                .map_err(|_| Fault::corrupt("an archive record of negative length"))?;
            records.push(decode(schema, cursor.take(length)?)?);
        }
        if !cursor.0.is_empty() {
            return Err(Fault::corrupt("an archive block with bytes behind its last record"));
        }
        Ok(records)
    }
}

fn entry(time: Option<String>, action: Option<String>, state: Option<&str>) -> Result<HistoryEntry, Fault> {
    let requested = time.ok_or_else(|| Fault::corrupt("an archive record without commitTime"))?;
    let action = action
        .ok_or_else(|| Fault::corrupt(format!("the archive record of {requested} has no actionType")))?;
    let state = match state {
        // Releases before the field existed archived completed instants only.
        None | Some("COMPLETED") => InstantState::Completed,
        Some("REQUESTED") => InstantState::Requested,
        Some("INFLIGHT") => InstantState::Inflight,
        Some(other) => {
            return Err(Fault::unsupported(format!(
                "the archive record of {requested} has the state {other:?}"
            )));
        }
    };
    Ok(HistoryEntry { requested, completed: None, action: HudiAction::from_word(&action), state })
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            return Err(Fault::corrupt("an archive block is cut"));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn number_i32(&mut self) -> Result<i32, Fault> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn length_i64(&mut self) -> Result<i64, Fault> {
        let bytes = self.take(8)?;
        let number = bytes.iter().fold(0_u64, |number, &byte| (number << 8) | u64::from(byte));
        match i64::try_from(number) {
            Ok(number) => Ok(number),
            Err(_) => Err(Fault::corrupt("an archive block with a negative length")),
        }
    }

    /// Reads header or footer entries and answers the schema among them.
    fn header_entries(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        let n_entries = self.number_i32()?;
        if !(0..=HEADER_ENTRIES_MAX).contains(&n_entries) {
            return Err(Fault::corrupt(format!("an archive block with {n_entries} header entries")));
        }
        let mut schema = None;
        for _ in 0..n_entries {
            let key = self.number_i32()?;
            let length = usize::try_from(self.number_i32()?)
                .map_err(|_| Fault::corrupt("an archive header entry of negative length"))?;
            let bytes = self.take(length)?;
            if key == HEADER_KEY_SCHEMA {
                schema = Some(bytes);
            }
        }
        Ok(schema)
    }
}
