//! Simulated tables with real timelines: properties and plans of a real table, so that the reader has nothing to forgive.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Table of the fixtures whose properties and plan are taken.
const FIXTURE: &str = "h120_v9_mor_pending_compaction";

/// What every table of the lake is made of.
#[derive(Clone, Debug)]
pub struct Lake {
    /// Folder of the tables.
    pub folder: PathBuf,
    properties: Vec<u8>,
    plan: Vec<u8>,
}

impl Lake {
    /// Makes `n_tables` tables.
    ///
    /// # Errors
    /// The fixture or the folder is unusable.
    pub fn make(folder: &Path, n_tables: usize) -> Result<Self> {
        let unpacked = folder.join("fixture");
        std::fs::create_dir_all(&unpacked).context("cannot make the fixture's folder")?;
        let archive =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/tables/{FIXTURE}.tar.xz"));
        let status = Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(&unpacked).status();
        ensure!(status.context("cannot run tar")?.success(), "tar cannot unpack {}", archive.display());
        let hoodie = unpacked.join(FIXTURE).join("table/.hoodie");
        let properties =
            std::fs::read(hoodie.join("hoodie.properties")).context("the fixture has no properties")?;
        let plan_file = std::fs::read_dir(hoodie.join("timeline"))
            .context("the fixture has no timeline")?
            .flatten()
            .find(|e| e.file_name().to_string_lossy().ends_with(".compaction.requested"))
            .context("the fixture has no plan")?;
        let plan = std::fs::read(plan_file.path()).context("cannot read the fixture's plan")?;
        let lake = Self { folder: folder.join("lake"), properties, plan };
        for table in 0..n_tables {
            let timeline = lake.timeline(table);
            std::fs::create_dir_all(timeline.join("history")).context("cannot make a table")?;
            std::fs::write(lake.table(table).join(".hoodie/hoodie.properties"), &lake.properties)
                .context("cannot write properties")?;
        }
        Ok(lake)
    }

    /// Base path of a table.
    #[must_use]
    pub fn table(&self, table: usize) -> PathBuf {
        self.folder.join(format!("t{table}"))
    }

    /// Folder of a table's timeline.
    #[must_use]
    pub fn timeline(&self, table: usize) -> PathBuf {
        self.table(table).join(".hoodie/timeline")
    }

    /// Puts a plan on a timeline, as 1.2.0 does: under another name first.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn plan(&self, table: usize, instant: &str) -> Result<()> {
        let name = self.timeline(table).join(format!("{instant}.compaction.requested"));
        let other = self.timeline(table).join(format!("{instant}.compaction.requested.0a1b"));
        std::fs::write(&other, &self.plan).context("cannot write a plan")?;
        std::fs::rename(&other, &name).context("cannot rename a plan")
    }

    /// Completed files of an instant.
    #[must_use]
    pub fn completed(&self, table: usize, instant: &str) -> usize {
        let Ok(entries) = std::fs::read_dir(self.timeline(table)) else { return 0 };
        let prefix = format!("{instant}_");
        let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.starts_with(&prefix) && n.ends_with(".commit")).count()
    }
}
