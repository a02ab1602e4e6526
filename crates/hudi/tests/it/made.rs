//! Builders for hand-made tables: properties, Avro containers, archive blocks, history files.

use std::sync::Arc;

use apache_avro::types::Value;
use apache_avro::{Schema, Writer};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use tms_hudi::HudiTable;

use crate::common::MemoryListing;

pub(crate) const BASE: &str = "/t";

/// Properties of a table, as small as they may be.
pub(crate) fn properties(version: u32) -> String {
    let layout = if version >= 8 { 2 } else { 1 };
    format!(
        "#made by hand\nhoodie.table.name=t1\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version={version}\n\
         hoodie.timeline.layout.version={layout}\nhoodie.table.checksum=1\n"
    )
}

/// An empty table in memory.
pub(crate) fn table(version: u32) -> (Arc<MemoryListing>, HudiTable) {
    let listing = Arc::new(MemoryListing::default());
    listing.put("/t/.hoodie/hoodie.properties", properties(version));
    listing.add_folder("/t/.hoodie/timeline");
    let table = HudiTable::new(listing.clone(), BASE);
    (listing, table)
}

fn nullable(kind: impl Into<serde_json::Value>) -> serde_json::Value {
    json!(["null", kind.into()])
}

fn text(value: &str) -> Value {
    Value::Union(1, Box::new(Value::String(value.to_owned())))
}

/// One operation of a compaction plan: partition, file id, base file, log files.
pub(crate) type Operation<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

pub(crate) fn compaction_plan(operations: &[Operation<'_>]) -> Vec<u8> {
    let strings = json!({"type": "array", "items": "string"});
    let schema = json!({"type": "record", "name": "HoodieCompactionPlan", "fields": [
        {"name": "operations", "type": nullable(json!({"type": "array", "items": {
            "type": "record", "name": "HoodieCompactionOperation", "fields": [
                {"name": "baseInstantTime", "type": nullable("string")},
                {"name": "deltaFilePaths", "type": nullable(strings)},
                {"name": "dataFilePath", "type": nullable("string")},
                {"name": "fileId", "type": nullable("string")},
                {"name": "partitionPath", "type": nullable("string")},
            ]}}))},
        {"name": "version", "type": ["int", "null"]},
    ]});
    let operations = operations.iter().map(|(partition, file_id, base_file, logs)| {
        let logs = logs.iter().map(|log| Value::String((*log).to_owned())).collect();
        Value::Record(vec![
            ("baseInstantTime".to_owned(), text("20260101000000000")),
            ("deltaFilePaths".to_owned(), Value::Union(1, Box::new(Value::Array(logs)))),
            ("dataFilePath".to_owned(), text(base_file)),
            ("fileId".to_owned(), text(file_id)),
            ("partitionPath".to_owned(), text(partition)),
        ])
    });
    let plan = Value::Record(vec![
        ("operations".to_owned(), Value::Union(1, Box::new(Value::Array(operations.collect())))),
        ("version".to_owned(), Value::Union(0, Box::new(Value::Int(2)))),
    ]);
    container(&schema, plan)
}

/// One slice of a clustering plan: partition, file id, file paths (the base file first).
pub(crate) type Slice<'a> = (&'a str, &'a str, &'a [&'a str]);

pub(crate) fn clustering_plan(strategy: &str, groups: &[&[Slice<'_>]]) -> Vec<u8> {
    let strings = json!({"type": "array", "items": "string"});
    let schema = json!({"type": "record", "name": "HoodieRequestedReplaceMetadata", "fields": [
        {"name": "operationType", "type": nullable("string")},
        {"name": "clusteringPlan", "type": nullable(json!({"type": "record", "name": "HoodieClusteringPlan", "fields": [
            {"name": "inputGroups", "type": nullable(json!({"type": "array", "items": {
                "type": "record", "name": "HoodieClusteringGroup", "fields": [
                    {"name": "slices", "type": nullable(json!({"type": "array", "items": {
                        "type": "record", "name": "HoodieSliceInfo", "fields": [
                            {"name": "dataFilePath", "type": nullable("string")},
                            {"name": "deltaFilePaths", "type": nullable(strings)},
                            {"name": "fileId", "type": nullable("string")},
                            {"name": "partitionPath", "type": nullable("string")},
                        ]}}))},
                    {"name": "numOutputFileGroups", "type": ["int", "null"]},
                ]}}))},
            {"name": "strategy", "type": nullable(json!({"type": "record", "name": "HoodieClusteringStrategy", "fields": [
                {"name": "strategyClassName", "type": nullable("string")},
            ]}))},
        ]}))},
    ]});
    let some = |value: Value| Value::Union(1, Box::new(value));
    let groups = groups.iter().map(|slices| {
        let slices = slices.iter().map(|(partition, file_id, files)| {
            let logs = files.iter().skip(1).map(|log| Value::String((*log).to_owned())).collect();
            Value::Record(vec![
                ("dataFilePath".to_owned(), text(files[0])),
                ("deltaFilePaths".to_owned(), some(Value::Array(logs))),
                ("fileId".to_owned(), text(file_id)),
                ("partitionPath".to_owned(), text(partition)),
            ])
        });
        Value::Record(vec![
            ("slices".to_owned(), some(Value::Array(slices.collect()))),
            ("numOutputFileGroups".to_owned(), Value::Union(0, Box::new(Value::Int(1)))),
        ])
    });
    let plan = Value::Record(vec![
        ("inputGroups".to_owned(), some(Value::Array(groups.collect()))),
        ("strategy".to_owned(), some(Value::Record(vec![("strategyClassName".to_owned(), text(strategy))]))),
    ]);
    let requested = Value::Record(vec![
        ("operationType".to_owned(), text("CLUSTER")),
        ("clusteringPlan".to_owned(), some(plan)),
    ]);
    container(&schema, requested)
}

/// Commit metadata: files as (partition, file id, path below the base path), and replaced file groups.
#[derive(Clone, Copy, Default)]
pub(crate) struct Commit<'a> {
    pub(crate) files: &'a [(&'a str, &'a str, &'a str)],
    pub(crate) replaced: &'a [(&'a str, &'a str)],
}

impl Commit<'_> {
    /// As 0.15.0 writes it.
    pub(crate) fn json(&self) -> Vec<u8> {
        let mut stats = json!({});
        for (partition, file_id, path) in self.files {
            let stat = json!({"fileId": file_id, "path": path, "numWrites": 2, "runtimeStats": {"totalScanTime": 0}});
            match stats.get_mut(partition).and_then(|list| list.as_array_mut()) {
                Some(list) => list.push(stat),
                None => stats[partition] = json!([stat]),
            }
        }
        let mut replaced = json!({});
        for (partition, file_id) in self.replaced {
            replaced[partition] = json!([file_id]);
        }
        json!({"partitionToWriteStats": stats, "compacted": false, "partitionToReplaceFileIds": replaced})
            .to_string()
            .into_bytes()
    }

    fn schema() -> serde_json::Value {
        json!({"type": "record", "name": "HoodieReplaceCommitMetadata", "namespace": "org.apache.hudi.avro.model", "fields": [
            {"name": "partitionToWriteStats", "type": nullable(json!({"type": "map", "values": {
                "type": "array", "items": {"type": "record", "name": "HoodieWriteStat", "fields": [
                    {"name": "fileId", "type": nullable("string")},
                    {"name": "path", "type": nullable("string")},
                    {"name": "numWrites", "type": nullable("long")},
                ]}}}))},
            {"name": "compacted", "type": nullable("boolean")},
            {"name": "partitionToReplaceFileIds", "type": nullable(json!({"type": "map", "values": {
                "type": "array", "items": "string"}}))},
        ]})
    }

    fn value(&self) -> Value {
        let mut stats: std::collections::HashMap<String, Vec<Value>> = std::collections::HashMap::new();
        for (partition, file_id, path) in self.files {
            stats.entry((*partition).to_owned()).or_default().push(Value::Record(vec![
                ("fileId".to_owned(), text(file_id)),
                ("path".to_owned(), text(path)),
                ("numWrites".to_owned(), Value::Union(1, Box::new(Value::Long(2)))),
            ]));
        }
        let stats = stats.into_iter().map(|(partition, list)| (partition, Value::Array(list))).collect();
        let replaced = self.replaced.iter().map(|(partition, file_id)| {
            ((*partition).to_owned(), Value::Array(vec![Value::String((*file_id).to_owned())]))
        });
        Value::Record(vec![
            ("partitionToWriteStats".to_owned(), Value::Union(1, Box::new(Value::Map(stats)))),
            ("compacted".to_owned(), Value::Union(0, Box::new(Value::Null))),
            (
                "partitionToReplaceFileIds".to_owned(),
                Value::Union(1, Box::new(Value::Map(replaced.collect()))),
            ),
        ])
    }

    /// As 1.x writes it.
    pub(crate) fn avro(&self) -> Vec<u8> {
        container(&Self::schema(), self.value())
    }
}

pub(crate) fn container(schema: &serde_json::Value, value: Value) -> Vec<u8> {
    let schema = Schema::parse(schema).unwrap();
    let mut writer = Writer::new(&schema, Vec::new()).unwrap();
    writer.append_value(value).unwrap();
    writer.into_inner().unwrap()
}

/// One file of the version 6 archive with one block that holds one completed commit.
pub(crate) fn archive_file(time: &str, action: &str, commit: &Commit<'_>) -> Vec<u8> {
    let schema = json!({"type": "record", "name": "HoodieArchivedMetaEntry", "namespace": "org.apache.hudi.avro.model", "fields": [
        {"name": "hoodieReplaceCommitMetadata", "type": nullable(Commit::schema())},
        {"name": "commitTime", "type": nullable("string")},
        {"name": "actionType", "type": nullable("string")},
        {"name": "actionState", "type": nullable("string")},
        {"name": "kind", "type": nullable(json!({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}))},
    ]});
    let value = Value::Record(vec![
        ("hoodieReplaceCommitMetadata".to_owned(), Value::Union(1, Box::new(commit.value()))),
        ("commitTime".to_owned(), text(time)),
        ("actionType".to_owned(), text(action)),
        ("actionState".to_owned(), text("COMPLETED")),
        ("kind".to_owned(), Value::Union(1, Box::new(Value::Enum(1, "B".to_owned())))),
    ]);
    let parsed = Schema::parse(&schema).unwrap();
    let datum = apache_avro::writer::datum::GenericDatumWriter::builder(&parsed)
        .build()
        .unwrap()
        .write_value_to_vec(value)
        .unwrap();
    block(&schema.to_string(), &datum)
}

fn block(schema: &str, datum: &[u8]) -> Vec<u8> {
    let int = |number: usize| i32::try_from(number).unwrap().to_be_bytes().to_vec();
    let long = |number: usize| i64::try_from(number).unwrap().to_be_bytes().to_vec();
    let content = [int(3), int(1), int(datum.len()), datum.to_vec()].concat();
    let header = [int(1), int(2), int(schema.len()), schema.as_bytes().to_vec()].concat();
    let body = [int(1), int(3), header, long(content.len()), content, int(0)].concat();
    let size = body.len() + 8;
    [b"#HUDI#".to_vec(), long(size), body, long(size + 6)].concat()
}

/// One file of the LSM history with one completed instant.
pub(crate) fn lsm_file(time: &str, completed: &str, action: &str, metadata: &[u8]) -> Vec<u8> {
    packed_lsm_file(time, completed, action, metadata, Compression::UNCOMPRESSED)
}

pub(crate) fn packed_lsm_file(
    time: &str,
    completed: &str,
    action: &str,
    metadata: &[u8],
    compression: Compression,
) -> Vec<u8> {
    let schema = "message HoodieLSMTimelineInstant {
        required binary instantTime (STRING); required binary completionTime (STRING);
        required binary action (STRING); optional binary metadata; optional binary plan; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let columns: [Option<&[u8]>; 5] =
        [Some(time.as_bytes()), Some(completed.as_bytes()), Some(action.as_bytes()), Some(metadata), None];
    for value in columns {
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = value.iter().map(|bytes| ByteArray::from(bytes.to_vec())).collect();
        let level = [i16::from(value.is_some())];
        column.typed::<ByteArrayType>().write_batch(&values, Some(&level), None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}
