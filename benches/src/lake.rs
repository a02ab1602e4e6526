//! Tables on disk whose properties and plans are a real table's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const FIXTURE: &str = "../tests/fixtures/tables/h120_v9_mor_pending_compaction.tar.xz";
const FIXTURE_TABLE: &str = "h120_v9_mor_pending_compaction/table/.hoodie";
const FIXTURE_COMMIT: &str = "20261130092210355";
const FIXTURE_COMMIT_DONE: &str = "20261130092210355_20261130092221149";
const FIXTURE_PLAN: &str = "20261130092224913.compaction.requested";

/// What made tables consist of.
#[derive(Clone, Debug)]
pub(crate) struct Lake {
    folder: PathBuf,
    properties: Vec<u8>,
    inflight: Vec<u8>,
    done: Vec<u8>,
    plan: Vec<u8>,
}

impl Lake {
    /// Reads the fixture; tables are made in `folder`.
    ///
    /// # Errors
    /// The fixture cannot be unpacked.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURE);
        let unpacked = tempfile::tempdir().context("cannot make a folder")?;
        let status = Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(unpacked.path()).status();
        ensure!(status.context("cannot run tar")?.success(), "tar cannot unpack {}", archive.display());
        let made = unpacked.path().join(FIXTURE_TABLE);
        let read = |name: String| std::fs::read(made.join(&name)).with_context(|| format!("no {name}"));
        Ok(Self {
            folder: folder.to_owned(),
            properties: read("hoodie.properties".to_owned())?,
            inflight: read(format!("timeline/{FIXTURE_COMMIT}.deltacommit.inflight"))?,
            done: read(format!("timeline/{FIXTURE_COMMIT_DONE}.deltacommit"))?,
            plan: read(format!("timeline/{FIXTURE_PLAN}"))?,
        })
    }

    /// Makes an empty table and returns its folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn table(&self, name: &str) -> Result<PathBuf> {
        let table = self.folder.join(name);
        std::fs::create_dir_all(table.join(".hoodie/timeline/history")).context("cannot make a table")?;
        std::fs::write(table.join(".hoodie/hoodie.properties"), &self.properties)
            .context("cannot write the properties")?;
        Ok(table)
    }

    /// Puts a pending compaction on a timeline.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn plan(&self, table: &Path, instant: &str) -> Result<()> {
        put(table, &format!("{instant}.compaction.requested"), &self.plan)
    }

    /// Puts a completed commit on a timeline.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn commit(&self, table: &Path, requested: &str, completed: &str) -> Result<()> {
        put(table, &format!("{requested}.deltacommit.requested"), b"")?;
        put(table, &format!("{requested}.deltacommit.inflight"), &self.inflight)?;
        put(table, &format!("{requested}_{completed}.deltacommit"), &self.done)
    }
}

fn put(table: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    std::fs::write(table.join(".hoodie/timeline").join(name), bytes).context("cannot write an instant")
}
