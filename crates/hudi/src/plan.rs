//! Plans of table services: what a `.requested` file tells about the work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::avro;
use crate::confine;
use crate::fault::Fault;
use crate::names;
use crate::wire::{Dict, List, Maybe, wire_record};

/// The services whose plans are read, in TMS's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PlanAction {
    /// Compaction.
    Compaction,
    /// Log compaction.
    LogCompaction,
    /// Clustering: a `replacecommit` plan in layout 1, `clustering` in layout 2.
    Clustering,
    /// Clean.
    Clean,
}

impl PlanAction {
    /// `compaction`, `logcompaction`, `clustering` or `clean`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::LogCompaction => "logcompaction",
            Self::Clustering => "clustering",
            Self::Clean => "clean",
        }
    }
}

impl fmt::Display for PlanAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One file slice that a plan will read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileGroupRef {
    /// Partition path, `""` for a table without partitions.
    pub partition: String,
    /// File id of the group.
    pub file_id: String,
    /// Instant of the slice: said by a compaction plan, taken from the file names of a clustering plan.
    pub base_instant: Option<String>,
    /// Base file as the plan spells it: a bare name (compaction) or a whole path (clustering).
    pub base_file: Option<String>,
    /// Log files as the plan spells them.
    pub log_files: Vec<String>,
    /// Which operation or input group of the plan it belongs to, counted from 0.
    pub group: u32,
}

impl FileGroupRef {
    /// Base file first, then log files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.base_file.iter().chain(self.log_files.iter()).map(String::as_str)
    }
}

/// What only a clean plan tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanPlan {
    /// Retention policy, such as `KEEP_LATEST_COMMITS`.
    pub policy: Option<String>,
    /// Time of the earliest instant that the clean keeps.
    pub earliest_instant: Option<String>,
    /// Number of files to be deleted, by partition.
    pub files_per_partition: BTreeMap<String, u64>,
    /// Partitions that are deleted whole.
    pub partitions_to_delete: Vec<String>,
}

/// A decoded plan. What the plan does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Version number inside the plan.
    pub version: Option<i32>,
    /// File groups (slices) the work reads; `None` for a clean, whose plan names files only.
    pub file_groups: Option<u64>,
    /// Log files the work reads.
    pub log_files: Option<u64>,
    /// Bytes the work reads, by the plan's own metrics (whole MiB where it gives only those).
    pub bytes: Option<u64>,
    /// Bytes of the largest operation or input group: it drives memory.
    pub bytes_largest: Option<u64>,
    /// Partitions touched.
    pub partitions: Option<u64>,
    /// Operations or input groups: the useful parallelism.
    pub parallelism: Option<u64>,
    /// Every file slice; empty for a clean.
    pub groups: Vec<FileGroupRef>,
    /// Execution strategy class of a clustering plan.
    pub strategy_class: Option<String>,
    /// Parameters of that strategy.
    pub strategy_params: BTreeMap<String, String>,
    /// Metrics of each operation or input group, in the plan's order.
    pub metrics: Vec<BTreeMap<String, f64>>,
    /// Output file groups of each input group (clustering only), in the plan's order.
    pub output_file_groups: Vec<i32>,
    /// The first few paths that do not lie under the base path; see [`Self::n_outside_base_path`].
    pub outside_base_path: Vec<String>,
    /// How many such paths there are. Not zero = never execute this plan.
    pub n_outside_base_path: u64,
    /// What only a clean plan tells.
    pub clean: Option<CleanPlan>,
}

/// Most paths outside the base path that are kept for showing.
const OUTSIDE_SHOWN_MAX: usize = 5;
const BYTES_PER_MIB: f64 = 1_048_576.0;

wire_record! {
    struct CompactionPlanWire {
        operations: List<CompactionOperationWire> = "operations",
        version: Maybe<i32> = "version",
    }
}

wire_record! {
    struct CompactionOperationWire {
        base_instant_time: Maybe<String> = "baseInstantTime",
        delta_file_paths: List<String> = "deltaFilePaths",
        data_file_path: Maybe<String> = "dataFilePath",
        file_id: Maybe<String> = "fileId",
        partition_path: Maybe<String> = "partitionPath",
        metrics: Dict<f64> = "metrics",
        external_data_file_path: Maybe<String> = "externalDataFilePath",
        bootstrap_file_path: Maybe<String> = "bootstrapFilePath",
    }
}

wire_record! {
    struct RequestedReplaceWire {
        operation_type: Maybe<String> = "operationType",
        clustering_plan: Maybe<ClusteringPlanWire> = "clusteringPlan",
    }
}

wire_record! {
    struct ClusteringPlanWire {
        input_groups: List<ClusteringGroupWire> = "inputGroups",
        strategy: Maybe<ClusteringStrategyWire> = "strategy",
        version: Maybe<i32> = "version",
    }
}

wire_record! {
    struct ClusteringStrategyWire {
        strategy_class_name: Maybe<String> = "strategyClassName",
        strategy_params: Dict<String> = "strategyParams",
    }
}

wire_record! {
    struct ClusteringGroupWire {
        slices: List<SliceWire> = "slices",
        metrics: Dict<f64> = "metrics",
        num_output_file_groups: Maybe<i32> = "numOutputFileGroups",
    }
}

wire_record! {
    struct SliceWire {
        data_file_path: Maybe<String> = "dataFilePath",
        delta_file_paths: List<String> = "deltaFilePaths",
        file_id: Maybe<String> = "fileId",
        partition_path: Maybe<String> = "partitionPath",
        bootstrap_file_path: Maybe<String> = "bootstrapFilePath",
    }
}

wire_record! {
    struct CleanerPlanWire {
        earliest_instant_to_retain: Maybe<ActionInstantWire> = "earliestInstantToRetain",
        policy: Maybe<String> = "policy",
        version: Maybe<i32> = "version",
        files_to_be_deleted_per_partition: Dict<Vec<Maybe<String>>> = "filesToBeDeletedPerPartition",
        file_paths_to_be_deleted_per_partition: Dict<Vec<Maybe<CleanFileWire>>> = "filePathsToBeDeletedPerPartition",
        partitions_to_be_deleted: List<String> = "partitionsToBeDeleted",
    }
}

wire_record! {
    struct ActionInstantWire {
        timestamp: Maybe<String> = "timestamp",
    }
}

wire_record! {
    struct CleanFileWire {
        file_path: Maybe<String> = "filePath",
    }
}

/// Collects what lies outside the base path.
struct Confinement<'a> {
    base: &'a str,
    plan: Plan,
}

impl<'a> Confinement<'a> {
    fn new(base: &'a str) -> Self {
        Self { base, plan: Plan::default() }
    }

    fn check(&mut self, path: &str) {
        if path.is_empty() || confine::is_under(self.base, path) {
            return;
        }
        self.plan.n_outside_base_path += 1;
        if self.plan.outside_base_path.len() < OUTSIDE_SHOWN_MAX {
            self.plan.outside_base_path.push(path.to_owned());
        }
    }

    fn check_group(&mut self, group: &FileGroupRef) {
        self.check_partition(&group.partition);
        for file in group.files() {
            self.check(file);
        }
    }

    /// A partition is always relative; an absolute one would leave the table when it is joined.
    fn check_partition(&mut self, partition: &str) {
        if partition.starts_with('/') {
            self.plan.n_outside_base_path += 1;
            if self.plan.outside_base_path.len() < OUTSIDE_SHOWN_MAX {
                self.plan.outside_base_path.push(partition.to_owned());
            }
        } else {
            self.check(partition);
        }
    }
}

/// Decodes a compaction or log compaction plan.
pub(crate) fn decode_compaction(bytes: &[u8], base: &str) -> Result<Plan, Fault> {
    let wire: CompactionPlanWire = avro::decode_container(bytes)?;
    let mut confined = Confinement::new(base);
    confined.plan.version = wire.version.0;
    if !wire.operations.is_some() {
        return Err(Fault::corrupt("the plan names no operations (operations is null or missing)"));
    }
    for (at, operation) in (0_u32..).zip(wire.operations.items()) {
        let group = FileGroupRef {
            partition: operation.partition_path.0.unwrap_or_default(),
            file_id: operation
                .file_id
                .0
                .ok_or_else(|| Fault::corrupt(format!("operation {at} has no fileId")))?,
            base_instant: operation.base_instant_time.0,
            base_file: operation.data_file_path.0.filter(|path| !path.is_empty()),
            log_files: operation.delta_file_paths.items().collect(),
            group: at,
        };
        confined.check_group(&group);
        for outer in
            [operation.external_data_file_path.0, operation.bootstrap_file_path.0].into_iter().flatten()
        {
            confined.check(&outer);
        }
        confined.plan.metrics.push(operation.metrics.pairs().collect());
        confined.plan.groups.push(group);
    }
    Ok(with_sums(confined.plan))
}

/// Decodes the `.requested` file of a `clustering` instant.
pub(crate) fn decode_clustering(bytes: &[u8], base: &str) -> Result<Plan, Fault> {
    let wire: RequestedReplaceWire = avro::decode_container(bytes)?;
    let plan = wire.clustering_plan.0.ok_or_else(|| Fault::corrupt("the file holds no clustering plan"))?;
    clustering(plan, base)
}

/// Decodes the `.requested` file of a `replacecommit`: it is a clustering only when it says `CLUSTER`
/// (Hudi's `ClusteringUtils`). An insert overwrite leaves both fields null (measured on 0.15.0 and 1.0.2): that is a
/// write under way, never to be touched, and answers `None`.
pub(crate) fn decode_replace(bytes: &[u8], base: &str) -> Result<Option<Plan>, Fault> {
    let wire: RequestedReplaceWire = avro::decode_container(bytes)?;
    if wire.operation_type.as_ref().map(String::as_str) != Some("CLUSTER") {
        return Ok(None);
    }
    let plan =
        wire.clustering_plan.0.ok_or_else(|| Fault::corrupt("the file says CLUSTER and holds no plan"))?;
    clustering(plan, base).map(Some)
}

fn clustering(wire: ClusteringPlanWire, base: &str) -> Result<Plan, Fault> {
    let mut confined = Confinement::new(base);
    confined.plan.version = wire.version.0;
    let strategy = wire.strategy.0.unwrap_or_default();
    confined.plan.strategy_class = strategy.strategy_class_name.0;
    confined.plan.strategy_params = strategy.strategy_params.pairs().collect();
    if !wire.input_groups.is_some() {
        return Err(Fault::corrupt("the plan names no input groups (inputGroups is null or missing)"));
    }
    for (at, input) in (0_u32..).zip(wire.input_groups.items()) {
        for slice in input.slices.items() {
            let base_file = slice.data_file_path.0.filter(|path| !path.is_empty());
            let log_files: Vec<String> = slice.delta_file_paths.items().collect();
            let first = base_file.as_ref().or(log_files.first());
            let group = FileGroupRef {
                partition: slice.partition_path.0.unwrap_or_default(),
                file_id: slice
                    .file_id
                    .0
                    .ok_or_else(|| Fault::corrupt(format!("a slice of input group {at} has no fileId")))?,
                base_instant: first.and_then(|path| names::instant_of_data_file(path)).map(str::to_owned),
                base_file,
                log_files,
                group: at,
            };
            confined.check_group(&group);
            if let Some(outer) = slice.bootstrap_file_path.0 {
                confined.check(&outer);
            }
            confined.plan.groups.push(group);
        }
        confined.plan.metrics.push(input.metrics.pairs().collect());
        confined.plan.output_file_groups.push(input.num_output_file_groups.0.unwrap_or_default());
    }
    Ok(with_sums(confined.plan))
}

/// Decodes a clean plan.
pub(crate) fn decode_clean(bytes: &[u8], base: &str) -> Result<Plan, Fault> {
    let wire: CleanerPlanWire = avro::decode_container(bytes)?;
    let mut confined = Confinement::new(base);
    confined.plan.version = wire.version.0;
    let mut clean = CleanPlan {
        policy: wire.policy.0,
        earliest_instant: wire.earliest_instant_to_retain.0.and_then(|instant| instant.timestamp.0),
        ..CleanPlan::default()
    };
    let mut add = |confined: &mut Confinement<'_>, partition: String, files: Vec<String>| {
        confined.check_partition(&partition);
        files.iter().for_each(|file| confined.check(file));
        let n_files = u64::try_from(files.len()).unwrap_or(u64::MAX);
        clean.files_per_partition.insert(partition, n_files);
    };
    // Older plans fill only the first field, newer ones only the second.
    let has_newer = wire.file_paths_to_be_deleted_per_partition.as_ref().is_some_and(|map| !map.is_empty());
    if has_newer {
        for (partition, files) in wire.file_paths_to_be_deleted_per_partition.pairs() {
            let files =
                files.into_iter().filter_map(|file| file.0.and_then(|file| file.file_path.0)).collect();
            add(&mut confined, partition, files);
        }
    } else {
        for (partition, files) in wire.files_to_be_deleted_per_partition.pairs() {
            add(&mut confined, partition, files.into_iter().filter_map(|file| file.0).collect());
        }
    }
    clean.partitions_to_delete = wire.partitions_to_be_deleted.items().collect();
    clean.partitions_to_delete.iter().for_each(|partition| confined.check_partition(partition));
    let mut plan = confined.plan;
    let partitions: BTreeSet<&String> =
        clean.files_per_partition.keys().chain(clean.partitions_to_delete.iter()).collect();
    plan.partitions = Some(count(partitions.len()));
    plan.clean = Some(clean);
    Ok(plan)
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Fills the sums of a plan that names file slices.
fn with_sums(mut plan: Plan) -> Plan {
    plan.file_groups = Some(count(plan.groups.len()));
    plan.log_files = Some(plan.groups.iter().map(|group| count(group.log_files.len())).sum());
    let partitions: BTreeSet<&str> = plan.groups.iter().map(|group| group.partition.as_str()).collect();
    plan.partitions = Some(count(partitions.len()));
    plan.parallelism = Some(count(plan.metrics.len()));
    let sizes: Vec<u64> = plan.metrics.iter().filter_map(bytes_to_read).collect();
    if sizes.len() == plan.metrics.len() {
        plan.bytes = Some(sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size)));
        plan.bytes_largest = sizes.iter().max().copied();
    }
    plan
}

/// Bytes one operation reads. `TOTAL_IO_READ_MB` is base and log files in whole MiB, rounded down, and missing in
/// plans of the native Rust writer; `TOTAL_LOG_FILES_SIZE` is the log files alone, in bytes (`FileSliceMetricUtils`).
fn bytes_to_read(metrics: &BTreeMap<String, f64>) -> Option<u64> {
    let read = metrics.get("TOTAL_IO_READ_MB").map(|mib| mib * BYTES_PER_MIB);
    let logs = metrics.get("TOTAL_LOG_FILES_SIZE").copied();
    let bytes = match (read, logs) {
        (Some(read), Some(logs)) => read.max(logs),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    whole_bytes(bytes)
}

/// A float of a plan as a number of bytes; nothing for what no size can be.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
fn whole_bytes(bytes: f64) -> Option<u64> {
    const EXABYTE: f64 = 1e18;
    (bytes.is_finite() && (0.0..EXABYTE).contains(&bytes)).then(|| bytes.round() as u64)
}
