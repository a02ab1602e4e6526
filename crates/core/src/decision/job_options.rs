//! The Hudi options of a job: the lines that hold for every job, the lock lines, and the table's own, each checked.

use std::collections::BTreeMap;
use std::fmt;

use crate::decision::check::{LOCK_EXPIRE_KEY, LOCK_EXPIRE_MINUTES};
use crate::model::action::Action;
use crate::model::policy::{Concurrency, Effective};
use crate::model::table::TableFacts;

/// Longest value of an option, in bytes.
pub const VALUE_BYTES_MAX: usize = 512;

/// Start of the keys of lock providers; they go with the jobs of `locked` tables only.
pub const LOCK_PREFIX: &str = "hoodie.write.lock.";

/// Keys that people may set, by prefix. Hudi's own names.
pub const ALLOWED_PREFIXES: [&str; 9] = [
    LOCK_PREFIX,
    "hoodie.clean.",
    "hoodie.cleaner.",
    "hoodie.compaction.",
    "hoodie.clustering.",
    "hoodie.memory.",
    "hoodie.parquet.",
    "hoodie.storage.",
    "hoodie.logfile.",
];

/// Keys that TMS sets itself or that were measured to lose data or stop writers, with the reason.
const REFUSED: [(&str, &str); 15] = [
    ("hoodie.write.concurrency.mode", "tables.concurrency sets it"),
    ("hoodie.cleaner.policy.failed.writes", "tables.concurrency sets it"),
    ("hoodie.clean.failed.writes.policy", "tables.concurrency sets it"),
    ("hoodie.write.lock.conflict.resolution.strategy", "tables.concurrency sets it"),
    ("hoodie.clean.automatic", "a job never cleans by itself"),
    ("hoodie.clean.async", "a job never cleans by itself"),
    ("hoodie.clean.async.enabled", "a job never cleans by itself"),
    ("hoodie.write.table.version", "the table's own version is pinned"),
    ("hoodie.write.auto.upgrade", "a job never upgrades a table"),
    ("hoodie.metadata.enable", "a job without it deletes the metadata table (measured)"),
    (
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
        "it destroys tables on 0.15.0 (measured)",
    ),
    ("hoodie.clustering.updates.strategy", "it belongs to the writer"),
    ("hoodie.clustering.inline", "a job runs one plan and no other service"),
    ("hoodie.clustering.schedule.inline", "a job runs one plan and no other service"),
    ("hoodie.clustering.async.enabled", "a job runs one plan and no other service"),
];

/// The key of the lock provider.
const LOCK_PROVIDER_KEY: &str = "hoodie.write.lock.provider";
/// Hudi's providers that lock nothing between a writer and a job, by the last part of their class, with the reason.
const NO_LOCKS: [(&str, &str); 2] = [
    ("InProcessLockProvider", "it locks inside one JVM only, and a job is another one than the writer"),
    ("NoopLockProvider", "it locks nothing"),
];

/// The lock provider that was measured; used unless `hudi.options` names another.
pub const LOCK_PROVIDER: &str = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider";
/// The strategy that lets the writer win.
pub const WRITER_WINS: &str = "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy";

/// An option that cannot go with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOption {
    /// Its key.
    pub key: String,
    /// Why, without its value.
    pub why: String,
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// Checks one option of the configuration.
///
/// # Errors
/// The key is not on the allow list, or the value holds a character that could add another option.
pub fn check_option(key: &str, value: &str) -> Result<(), BadOption> {
    let bad = |why: &str| Err(BadOption { key: key.to_owned(), why: why.to_owned() });
    if let Some((_, why)) = REFUSED.iter().find(|(k, _)| *k == key) {
        return bad(why);
    }
    if !ALLOWED_PREFIXES.iter().any(|p| key.starts_with(p)) {
        return bad(
            "it is not on the allow list (locks, cleaning, compaction, clustering, memory, file sizes)",
        );
    }
    if key == LOCK_PROVIDER_KEY
        && let Some((_, why)) =
            NO_LOCKS.iter().find(|(class, _)| value.trim().rsplit('.').next() == Some(*class))
    {
        return bad(why);
    }
    let key_ok = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if !key.bytes().all(key_ok) {
        return bad("its key holds an odd character");
    }
    let value_ok = |b: u8| b.is_ascii_alphanumeric() || b"._:/@+ -".contains(&b);
    if value.len() > VALUE_BYTES_MAX || !value.bytes().all(value_ok) {
        return bad(
            "its value may hold at most 512 of a-z, A-Z, 0-9, blank and ._:/@+- (a comma would add options)",
        );
    }
    Ok(())
}

/// Returns the options of a job.
///
/// # Errors
/// An option of the table or of the configuration is refused.
pub fn job_options(
    effective: &Effective,
    facts: &TableFacts,
    action: Action,
) -> Result<BTreeMap<String, String>, BadOption> {
    let mut options = BTreeMap::new();
    let is_locked = effective.concurrency == Some(Concurrency::Locked);
    for (key, value) in &effective.hudi_options {
        check_option(key, value)?;
        let is_for_other = match action {
            Action::Clean => key.starts_with("hoodie.compaction.") || key.starts_with("hoodie.clustering."),
            _ => key.starts_with("hoodie.clean.") || key.starts_with("hoodie.cleaner."),
        };
        let is_lock = key.starts_with(LOCK_PREFIX);
        if !is_for_other && (is_locked || !is_lock) {
            options.insert(key.clone(), value.clone());
        }
    }
    let mut set = |key: &str, value: &str| {
        options.insert(key.to_owned(), value.to_owned());
    };
    set("hoodie.table.service.manager.enabled", "false");
    set("hoodie.embed.timeline.server", "false");
    set("hoodie.write.auto.upgrade", "false");
    set("hoodie.write.table.version", &facts.table_version.to_string());
    set("hoodie.clean.automatic", "false");
    if facts.table_version == 6 {
        // A newer bundle adds this index to the metadata table, and the old writers fail for ever (measured).
        set("hoodie.metadata.index.column.stats.enable", "false");
    }
    if is_locked {
        set("hoodie.write.concurrency.mode", "optimistic_concurrency_control");
        set("hoodie.cleaner.policy.failed.writes", "LAZY");
        set("hoodie.write.lock.conflict.resolution.strategy", WRITER_WINS);
        options.entry(LOCK_PROVIDER_KEY.to_owned()).or_insert_with(|| LOCK_PROVIDER.to_owned());
        options.entry(LOCK_EXPIRE_KEY.to_owned()).or_insert_with(|| LOCK_EXPIRE_MINUTES.to_string());
    }
    Ok(options)
}

/// The lines that a writer of a `locked` table sets, for messages.
pub const LOCK_LINES: &str = "hoodie.write.concurrency.mode=optimistic_concurrency_control, \
hoodie.write.lock.provider=<one that writers and jobs share>, hoodie.write.lock.filesystem.expire=30, \
hoodie.cleaner.policy.failed.writes=LAZY, hoodie.write.lock.conflict.resolution.strategy=\
org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::{TableDefaults, TableSettings};

    fn facts(table_version: u32) -> TableFacts {
        TableFacts { table_version, layout: 2, table_type: "MERGE_ON_READ".to_owned(), metadata_table: None }
    }

    fn effective(concurrency: Option<Concurrency>, options: &[(&str, &str)]) -> Effective {
        let own = TableSettings {
            concurrency,
            hudi_options: options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..TableSettings::default()
        };
        TableDefaults::default().effective(&own)
    }

    #[test]
    fn a_locked_job_has_the_five_lock_lines() {
        let options =
            job_options(&effective(Some(Concurrency::Locked), &[]), &facts(9), Action::Compaction).unwrap();
        for key in [
            "hoodie.write.concurrency.mode",
            "hoodie.write.lock.provider",
            LOCK_EXPIRE_KEY,
            "hoodie.cleaner.policy.failed.writes",
            "hoodie.write.lock.conflict.resolution.strategy",
        ] {
            assert!(options.contains_key(key), "{key}");
        }
        assert_eq!(options["hoodie.write.table.version"], "9");
        assert!(!options.contains_key("hoodie.metadata.index.column.stats.enable"));
    }

    #[test]
    fn an_exclusive_job_has_none_of_the_lock_lines() {
        let own = effective(Some(Concurrency::Exclusive), &[("hoodie.write.lock.provider", "x.Y")]);
        let options = job_options(&own, &facts(6), Action::Clean).unwrap();
        assert!(
            !options.keys().any(|k| k.contains("lock") || k.contains("concurrency") || k.contains("failed"))
        );
        assert_eq!(options["hoodie.metadata.index.column.stats.enable"], "false");
    }

    #[test]
    fn options_that_lose_data_or_add_options_are_refused() {
        for (key, value) in [
            ("hoodie.metadata.enable", "false"),
            ("hoodie.clustering.rollback.pending.replacecommit.on.conflict", "true"),
            ("hoodie.cleaner.policy.failed.writes", "LAZY"),
            ("hoodie.datasource.write.operation", "delete"),
            ("hoodie.parquet.max.file.size", "1,hoodie.metadata.enable=false"),
            ("hoodie.parquet.x=y", "1"),
            ("hoodie.memory.merge", "1'"),
        ] {
            assert!(check_option(key, value).is_err(), "{key}={value}");
        }
        assert!(check_option("hoodie.write.lock.zookeeper.url", "zk1:2181").is_ok());
    }

    #[test]
    fn a_provider_that_locks_nothing_between_two_programs_is_refused() {
        for (value, why) in [
            ("org.apache.hudi.client.transaction.lock.InProcessLockProvider", "one JVM"),
            ("org.apache.hudi.client.transaction.lock.NoopLockProvider", "nothing"),
            (" InProcessLockProvider ", "one JVM"),
        ] {
            let bad = check_option(LOCK_PROVIDER_KEY, value).unwrap_err();
            assert!(bad.why.contains(why), "{value}: {bad}");
        }
        for value in
            [LOCK_PROVIDER, "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider", "x.Y"]
        {
            assert_eq!(check_option(LOCK_PROVIDER_KEY, value), Ok(()), "{value}");
        }
    }
}
