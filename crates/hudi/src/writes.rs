//! What a completed write touched: its write statistics and the file groups it replaced.

use serde::de::DeserializeOwned;

use crate::avro;
use crate::fault::Fault;
use crate::wire::{Dict, Maybe, wire_record};

wire_record! {
    /// Commit metadata of every kind (`HoodieCommitMetadata`, `HoodieReplaceCommitMetadata`), JSON or Avro.
    pub(crate) struct CommitWire {
        partition_to_write_stats: Dict<Vec<Maybe<WriteStatWire>>> = "partitionToWriteStats",
        partition_to_replace_file_ids: Dict<Vec<Maybe<String>>> = "partitionToReplaceFileIds",
    }
}

wire_record! {
    struct WriteStatWire {
        file_id: Maybe<String> = "fileId",
        path: Maybe<String> = "path",
    }
}

/// A file group as a write names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupName {
    pub(crate) partition: String,
    pub(crate) file_id: String,
}

impl GroupName {
    pub(crate) fn new(partition: &str, file_id: &str) -> Self {
        Self { partition: partition.trim_matches('/').to_owned(), file_id: file_id.to_owned() }
    }
}

/// What one write touched, without anything else of its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteFacts {
    /// Each file written: its group and bare name (`None` when the statistics name no file).
    pub(crate) files: Vec<(GroupName, Option<String>)>,
    /// File groups replaced.
    pub(crate) replaced: Vec<GroupName>,
}

impl WriteFacts {
    /// Bytes this takes in memory, roughly.
    pub(crate) fn weight(&self) -> usize {
        const PER_PIECE: usize = 100;
        let group = |group: &GroupName| group.partition.len() + group.file_id.len() + PER_PIECE;
        self.files.iter().map(|(g, name)| group(g) + name.as_ref().map_or(0, String::len)).sum::<usize>()
            + self.replaced.iter().map(group).sum::<usize>()
    }

    pub(crate) fn from_wire(wire: CommitWire) -> Result<Self, Fault> {
        let mut facts = Self::default();
        for (partition, stats) in wire.partition_to_write_stats.pairs() {
            for stat in stats.into_iter().filter_map(|stat| stat.0) {
                let file_id = stat.file_id.0.ok_or_else(|| {
                    Fault::corrupt(format!("a write statistic of partition {partition:?} has no fileId"))
                })?;
                let name = stat.path.0.and_then(|path| path.rsplit('/').next().map(str::to_owned));
                facts
                    .files
                    .push((GroupName::new(&partition, &file_id), name.filter(|name| !name.is_empty())));
            }
        }
        for (partition, file_ids) in wire.partition_to_replace_file_ids.pairs() {
            for file_id in file_ids.into_iter().filter_map(|id| id.0) {
                facts.replaced.push(GroupName::new(&partition, &file_id));
            }
        }
        Ok(facts)
    }

    /// Reads the content of a completed commit, deltacommit or replacecommit.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        decode_either(bytes).and_then(Self::from_wire)
    }
}

/// Decodes completed metadata: an Avro container, or JSON as 0.15.0 and 1.0.2 on version 6 write it (measured).
pub(crate) fn decode_either<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, Fault> {
    if bytes.is_empty() {
        return Err(Fault::empty());
    }
    if avro::is_container(bytes) {
        return avro::decode_container(bytes);
    }
    let value: Maybe<T> = serde_json::from_slice(bytes)
        .map_err(|e| Fault::corrupt(format!("neither an Avro container nor whole JSON: {e}")))?;
    Ok(value.0.unwrap_or_default())
}
