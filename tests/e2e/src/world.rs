//! Real tables of one release: made once in one writer session, copied for each case.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::lab::{Contents, Lab, Rows, uri};
use crate::node::{Node, Settings};
use crate::tools::{Tools, table_version};

/// Expiry of the lock file in the tests, in minutes.
pub const LOCK_EXPIRE_MINUTES: &str = "1";

/// One release with its tables.
#[derive(Debug)]
pub struct World {
    /// Components.
    pub tools: Tools,
    /// Hudi release of the writer.
    pub release: String,
    /// The writer and reader.
    pub lab: Lab,
    folder: tempfile::TempDir,
    n_cases: u32,
}

/// A case: a copy of a table and the place of a server's data.
#[derive(Debug)]
pub struct Case {
    /// The table.
    pub table: PathBuf,
    /// Data of the server, logs.
    pub folder: PathBuf,
}

/// Which table a case starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Merge-on-read with one planned compaction; `locked` writer.
    Compaction,
    /// Copy-on-write with one planned clustering; `locked` writer. Lies where it was made: its plan holds whole paths.
    Clustering,
    /// Copy-on-write with five commits and nothing cleaned; `locked` writer.
    Clean,
}

impl Base {
    fn name(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::Clustering => "clustering",
            Self::Clean => "clean",
        }
    }
}

/// The five lock lines of a `locked` table.
#[must_use]
pub fn lock_lines() -> Vec<(String, String)> {
    pairs(&[
        ("hoodie.write.concurrency.mode", "optimistic_concurrency_control"),
        ("hoodie.write.lock.provider", "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"),
        ("hoodie.write.lock.filesystem.expire", LOCK_EXPIRE_MINUTES),
        ("hoodie.cleaner.policy.failed.writes", "LAZY"),
        (
            "hoodie.write.lock.conflict.resolution.strategy",
            "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy",
        ),
    ])
}

/// What every writer of the tests sets beside the locks.
#[must_use]
pub fn writer_lines() -> Vec<(String, String)> {
    pairs(&[
        ("hoodie.clean.automatic", "false"),
        ("hoodie.table.service.manager.enabled", "false"),
        ("hoodie.clustering.inline", "false"),
        ("hoodie.clustering.async.enabled", "false"),
        ("hoodie.compact.inline", "false"),
        ("hoodie.datasource.write.operation", "upsert"),
    ])
}

/// Makes owned pairs.
#[must_use]
pub fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Joins settings; later ones win.
#[must_use]
pub fn joined(lists: &[Vec<(String, String)>]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (key, value) in lists.iter().flatten() {
        all.retain(|(k, _)| k != key);
        all.push((key.clone(), value.clone()));
    }
    all
}

/// Settings of a writer of a merge-on-read table that plans a compaction every second delta commit.
#[must_use]
pub fn compaction_writer() -> Vec<(String, String)> {
    let own = pairs(&[
        ("hoodie.datasource.write.table.type", "MERGE_ON_READ"),
        ("hoodie.compact.schedule.inline", "true"),
        ("hoodie.compact.inline.max.delta.commits", "2"),
    ]);
    joined(&[writer_lines(), lock_lines(), own])
}

/// Settings of a writer of a copy-on-write table; `plans` a clustering at every second commit.
#[must_use]
pub fn clustering_writer(plans: bool) -> Vec<(String, String)> {
    let own = pairs(&[
        ("hoodie.datasource.write.table.type", "COPY_ON_WRITE"),
        ("hoodie.clustering.schedule.inline", if plans { "true" } else { "false" }),
        ("hoodie.clustering.inline.max.commits", "2"),
        // What counts for a scheduled plan (measured): the inline setting has no effect there.
        ("hoodie.clustering.async.max.commits", "2"),
        ("hoodie.clustering.plan.strategy.small.file.limit", "629145600"),
        (
            "hoodie.clustering.updates.strategy",
            "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy",
        ),
    ]);
    joined(&[writer_lines(), lock_lines(), own])
}

/// Worlds of one release at most, each with a Spark session of its own: cases that run beside each other do not wait.
const MAX_WORLDS_PER_RELEASE: usize = 2;

#[derive(Debug, Default)]
struct Pool {
    release: String,
    n_made: usize,
    idle: Vec<World>,
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());
static GIVEN_BACK: Condvar = Condvar::new();

fn pool_of<'a>(pools: &'a mut Vec<Pool>, release: &str) -> &'a mut Pool {
    let at = pools.iter().position(|p| p.release == release).unwrap_or_else(|| {
        pools.push(Pool { release: release.to_owned(), ..Pool::default() });
        pools.len() - 1
    });
    &mut pools[at]
}

/// The place of a world in its pool: given back with the world when dropped, without it when none could be made.
#[derive(Debug)]
struct Place {
    release: String,
    world: Option<World>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pool_of(&mut pools, &self.release);
        match self.world.take() {
            Some(world) => pool.idle.push(world),
            None => pool.n_made -= 1,
        }
        GIVEN_BACK.notify_all();
    }
}

/// Calls a case with a world of a release: one that no other case uses, made when there is none and the limit allows.
///
/// # Errors
/// Those of the case; Spark or the writer does not work.
pub fn with_world(tools: &Tools, release: &str, case: impl FnOnce(&mut World) -> Result<()>) -> Result<()> {
    let mut place = Place { release: release.to_owned(), world: reserve(release) };
    let world = match place.world.take() {
        Some(world) => world,
        None => {
            World::make(tools, release).with_context(|| format!("cannot make the tables of {release}"))?
        }
    };
    case(place.world.insert(world))
}

/// Waits for a free place; an idle world is in it or one may be made for it.
fn reserve(release: &str) -> Option<World> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let pool = pool_of(&mut pools, release);
        if let Some(world) = pool.idle.pop() {
            return Some(world);
        }
        if pool.n_made < MAX_WORLDS_PER_RELEASE {
            pool.n_made += 1;
            return None;
        }
        pools = GIVEN_BACK.wait(pools).unwrap_or_else(PoisonError::into_inner);
    }
}

impl World {
    fn make(tools: &Tools, release: &str) -> Result<Self> {
        let folder = real_temp_folder("tms-e2e-")?;
        let lab = Lab::start(tools, release, &folder.path().join("lab.log"))?;
        let mut world = Self { tools: tools.clone(), release: release.to_owned(), lab, folder, n_cases: 0 };
        world.make_compaction()?;
        world.make_clustering()?;
        world.make_clean()?;
        Ok(world)
    }

    /// Folder of everything of this release.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    fn made(&self, base: Base) -> PathBuf {
        self.folder.path().join("made").join(base.name())
    }

    fn make_compaction(&mut self) -> Result<()> {
        let path = self.made(Base::Compaction);
        for ts in 1..=3 {
            self.lab.write(&path, &compaction_writer(), &[(0, 199, ts, None)])?;
        }
        expect_plan(&path, ".compaction.requested")
    }

    fn make_clustering(&mut self) -> Result<()> {
        let path = self.made(Base::Clustering);
        self.lab.write(&path, &clustering_writer(false), &[(0, 199, 1, None)])?;
        let mut insert = clustering_writer(true);
        insert.extend(pairs(&[("hoodie.parquet.small.file.limit", "0")]));
        let insert = joined(&[insert, pairs(&[("hoodie.datasource.write.operation", "insert")])]);
        self.lab.write(&path, &insert, &[(200, 399, 1, None)])?;
        expect_plan(
            &path,
            if table_version(&self.release) == 6 {
                ".replacecommit.requested"
            } else {
                ".clustering.requested"
            },
        )?;
        copy(&path, &path.with_extension("kept"))
    }

    fn make_clean(&mut self) -> Result<()> {
        let path = self.made(Base::Clean);
        for ts in 1..=5 {
            self.lab.write(&path, &clustering_writer(false), &[(0, 99, ts, None)])?;
        }
        Ok(())
    }

    /// Gives a case its own table.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn case(&mut self, base: Base) -> Result<Case> {
        self.n_cases += 1;
        let folder = self.folder.path().join(format!("case-{}", self.n_cases));
        std::fs::create_dir_all(&folder).context("cannot make the case's folder")?;
        let table = match base {
            Base::Clustering => {
                let place = self.made(base);
                std::fs::remove_dir_all(&place).context("cannot clear the table's place")?;
                copy(&place.with_extension("kept"), &place)?;
                place
            }
            _ => {
                let place = folder.join("table");
                copy(&self.made(base), &place)?;
                place
            }
        };
        Ok(Case { table, folder })
    }

    /// The usual settings of a server for this release.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            bundles: vec![(table_version(&self.release), self.tools.bundle(&self.release))],
            concurrency: Some("locked"),
            actions: Vec::new(),
            clean_after_commits: 0,
            options: pairs(&[("hoodie.write.lock.filesystem.expire", LOCK_EXPIRE_MINUTES)]),
        }
    }

    /// Starts a server for a case.
    ///
    /// # Errors
    /// It did not start.
    pub fn node(&self, case: &Case, settings: &Settings) -> Result<Node> {
        Node::start(&self.tools, &case.folder.join("server"), self.root(), settings)
    }

    /// Makes sure that the old writer can still write, and that the rows are then as told.
    ///
    /// # Errors
    /// The writer's exception, or other rows.
    pub fn writer_goes_on(&mut self, case: &Case, writer: &[(String, String)], rows: Rows<'_>) -> Result<()> {
        self.lab.write(&case.table, writer, &[rows]).context("the old writer cannot write any more")?;
        self.lab.read_both(&case.table).map(|_| ())
    }

    /// Makes sure that the rows are the same as before, with and without the metadata table.
    ///
    /// # Errors
    /// They differ.
    pub fn expect_rows(&mut self, case: &Case, before: &Contents) -> Result<()> {
        let after = self.lab.read_both(&case.table)?;
        if after != *before {
            bail!("the rows changed: {before:?} became {after:?}");
        }
        Ok(())
    }
}

/// Registers a table and has it looked at.
///
/// # Errors
/// The command failed.
pub fn announce(node: &Node, case: &Case) -> Result<()> {
    node.tell_ok("/api/v1/tables", &json!({"base_path": uri(&case.table), "look": true}))
}

/// The folder of a table's active timeline.
#[must_use]
pub fn timeline(table: &Path) -> PathBuf {
    let new = table.join(".hoodie/timeline");
    if new.is_dir() { new } else { table.join(".hoodie") }
}

/// Names of timeline files that end in `suffix`.
#[must_use]
pub fn instants(table: &Path, suffix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(timeline(table)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut found: Vec<String> =
        names.filter(|n| n.starts_with(|c: char| c.is_ascii_digit()) && n.ends_with(suffix)).collect();
    found.sort();
    found
}

fn expect_plan(table: &Path, suffix: &str) -> Result<()> {
    if instants(table, suffix).len() != 1 {
        bail!("the writer did not leave one {suffix} in {}: {:?}", table.display(), instants(table, ""));
    }
    Ok(())
}

/// Makes a temporary folder under its real path: a table behind a link is not run.
///
/// # Errors
/// It cannot be made.
pub fn real_temp_folder(prefix: &str) -> Result<tempfile::TempDir> {
    let parent =
        std::fs::canonicalize(std::env::temp_dir()).context("cannot find the folder of temporary files")?;
    tempfile::Builder::new().prefix(prefix).tempdir_in(parent).context("cannot make a folder")
}

/// Copies a folder with everything in it.
///
/// # Errors
/// A file cannot be copied.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry.context("cannot list")?;
        let target = to.join(entry.file_name());
        if entry.file_type().context("cannot stat")?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            copy_file(&entry.path(), &target)
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// With its time: on layout 1 Hudi takes the time of a completed file for the time of the completion, so that copies of now
/// would all be writes after every plan (measured on 0.15.0: a clustering refused its own commit).
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(from, to)?;
    let modified = std::fs::metadata(from)?.modified()?;
    std::fs::File::options().write(true).open(to)?.set_modified(modified)
}
