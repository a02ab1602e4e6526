//! Counts what a reader of a merge-on-read table must open: the newest file slice of each file group.
//!
//! Right for a table that nobody writes to at the moment, which is what the quick start has when it counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// More files than this is no quick start's table.
const FILES_MAX: usize = 100_000;

/// Files of the newest slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slices {
    pub(crate) n_file_groups: usize,
    pub(crate) n_base_files: usize,
    /// Log files that every reader has to merge into the base files.
    pub(crate) n_log_files: usize,
}

#[derive(Default)]
struct Group {
    /// Instants of its base files.
    base: Vec<String>,
    /// Instants in the names of its log files: of the base file in table version 6, of the writing commit
    /// from 8 on.
    log: Vec<String>,
}

/// Counts the files under a table's base path.
pub(crate) fn count(base_path: &Path) -> Result<Slices> {
    let mut groups = BTreeMap::new();
    let mut n_files = 0;
    collect(base_path, &mut groups, &mut n_files)?;
    Ok(newest(&groups))
}

/// Counts the file groups whose newest base file is of this instant.
pub(crate) fn count_base_of(base_path: &Path, instant: &str) -> Result<usize> {
    let mut groups = BTreeMap::new();
    collect(base_path, &mut groups, &mut 0)?;
    Ok(groups
        .values()
        .filter(|group| group.base.iter().max().is_some_and(|newest| newest == instant))
        .count())
}

fn collect(folder: &Path, groups: &mut BTreeMap<String, Group>, n_files: &mut usize) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            if name != ".hoodie" {
                collect(&entry.path(), groups, n_files)?;
            }
            continue;
        }
        *n_files += 1;
        ensure!(*n_files <= FILES_MAX, "more than {FILES_MAX} files in the table");
        add(&format!("{}/", folder.display()), &name, groups);
    }
    Ok(())
}

fn add(folder: &str, name: &str, groups: &mut BTreeMap<String, Group>) {
    if let Some((id, instant)) = base_file(name) {
        groups.entry(format!("{folder}{id}")).or_default().base.push(instant.to_owned());
    } else if let Some((id, instant)) = log_file(name) {
        groups.entry(format!("{folder}{id}")).or_default().log.push(instant.to_owned());
    }
}

/// `<file id>_<write token>_<instant>.parquet`.
fn base_file(name: &str) -> Option<(&str, &str)> {
    let stem = name.strip_suffix(".parquet").filter(|_| !name.starts_with('.'))?;
    let (rest, instant) = stem.rsplit_once('_')?;
    let (id, _token) = rest.rsplit_once('_')?;
    is_instant(instant).then_some((id, instant))
}

/// `.<file id>_<instant>.log.<version>_<write token>`.
fn log_file(name: &str) -> Option<(&str, &str)> {
    let (stem, _version) = name.strip_prefix('.')?.split_once(".log.")?;
    let (id, instant) = stem.rsplit_once('_')?;
    (is_instant(instant) && !name.ends_with(".crc")).then_some((id, instant))
}

fn is_instant(text: &str) -> bool {
    text.len() >= 14 && text.chars().all(|c| c.is_ascii_digit())
}

fn newest(groups: &BTreeMap<String, Group>) -> Slices {
    let mut slices = Slices { n_file_groups: groups.len(), ..Slices::default() };
    for group in groups.values() {
        let base = group.base.iter().max();
        slices.n_base_files += usize::from(base.is_some());
        slices.n_log_files +=
            group.log.iter().filter(|instant| base.is_none_or(|base| *instant >= base)).count();
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        folder
    }

    fn slices(names: &[&str]) -> Slices {
        count(table(names).path()).unwrap()
    }

    #[test]
    fn new_base_files_are_those_of_the_instant() {
        let table = table(&[
            "p/a-0_0-1-2_20260101000000001.parquet",
            "p/a-0_0-7-8_20260101000000009.parquet",
            "q/b-0_0-1-2_20260101000000001.parquet",
        ]);
        let of = |instant: &str| count_base_of(table.path(), instant).unwrap();
        assert_eq!(of("20260101000000009"), 1);
        assert_eq!(of("20260101000000001"), 1);
        assert_eq!(of("20260101000000005"), 0);
    }

    #[test]
    fn log_files_of_a_compacted_slice_do_not_count() {
        // Version 6: a log file carries the instant of its base file.
        let before = [
            "p/a-0_0-1-2_20260101000000001.parquet",
            "p/.a-0_20260101000000001.log.1_0-3-4",
            "p/.a-0_20260101000000001.log.2_0-5-6",
        ];
        assert_eq!(slices(&before), Slices { n_file_groups: 1, n_base_files: 1, n_log_files: 2 });
        let after = [&before[..], &["p/a-0_0-7-8_20260101000000009.parquet"]].concat();
        assert_eq!(slices(&after), Slices { n_file_groups: 1, n_base_files: 1, n_log_files: 0 });
    }

    #[test]
    fn log_files_of_version_8_carry_the_instant_of_their_commit() {
        let names = [
            "p/a-0_0-1-2_20260101000000001.parquet",
            "p/.a-0_20260101000000002.log.1_0-3-4",
            "p/..a-0_20260101000000002.log.1_0-3-4.crc",
            "q/b-0_0-1-2_20260101000000001.parquet",
            ".hoodie/metadata/files/.files-0000-0_20260101000000002.log.1_0-3-4",
            "p/.hoodie_partition_metadata",
        ];
        assert_eq!(slices(&names), Slices { n_file_groups: 2, n_base_files: 2, n_log_files: 1 });
    }

    #[test]
    fn group_with_log_files_alone_is_all_log() {
        assert_eq!(
            slices(&["p/.a-0_20260101000000002.log.1_0-3-4"]),
            Slices { n_file_groups: 1, n_base_files: 0, n_log_files: 1 }
        );
    }
}
