//! Registers tables and changes their settings; nothing else.

use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::manager::{CONFLICT_RETRIES_MAX, ManagerParts, is_conflict, too_many_conflicts};
use crate::model::id::TableId;
use crate::model::path::{BasePath, PathRules};
use crate::model::policy::TableSettings;
use crate::model::request::{HandOver, Trigger};
use crate::model::table::{Table, TableRecord};
use crate::store::coalescer::Coalescer;
use crate::store::{Intent, Store};
use crate::timeline::TimelineSource;
use crate::wake::Wakes;

/// What a registration says.
#[derive(Clone, Debug)]
pub struct RegisterTable {
    /// Base path as it was spelt.
    pub base_path: String,
    /// Settings; unset: a known table keeps those that it has.
    pub settings: Option<TableSettings>,
    /// The settings that are set replace those of a known table one by one, options key by key. False: all of them.
    pub merge: bool,
    /// Look at it at once.
    pub look: bool,
}

/// Registers tables and changes their settings.
#[derive(Clone, Debug)]
pub struct TableManager {
    store: Arc<dyn Store>,
    coalescer: Coalescer,
    timelines: Arc<dyn TimelineSource>,
    clock: Arc<dyn Clock>,
    wakes: Wakes,
    rules: PathRules,
    roots: Vec<BasePath>,
}

impl TableManager {
    pub(super) fn new(parts: &ManagerParts) -> Self {
        Self {
            store: Arc::clone(&parts.store),
            coalescer: parts.coalescer.clone(),
            timelines: Arc::clone(&parts.timelines),
            clock: Arc::clone(&parts.clock),
            wakes: parts.wakes.clone(),
            rules: parts.rules.clone(),
            roots: parts.roots.clone(),
        }
    }

    /// Finds a known table by its id or by any spelling of its path.
    ///
    /// # Errors
    /// `NotFound` when TMS does not know it; `Invalid` when it is neither an id nor a path.
    pub async fn resolve(&self, id_or_path: &str) -> Result<TableRecord, Error> {
        if let Ok(id) = id_or_path.parse::<TableId>() {
            return self.load(id).await;
        }
        let path = self.rules.canonical(id_or_path)?;
        let found = self.store.get_table(TableId::of(&path)).await?;
        found.ok_or_else(|| unknown_table().with("table", &path))
    }

    /// Returns a known table.
    ///
    /// # Errors
    /// `NotFound` when TMS does not know it.
    pub async fn load(&self, id: TableId) -> Result<TableRecord, Error> {
        self.store.get_table(id).await?.ok_or_else(|| unknown_table().with("table", id))
    }

    /// Registers a table, or changes the settings of a known one.
    ///
    /// # Errors
    /// `Invalid` when the path is unusable or outside the roots; `Unsupported` when nothing here reads tables of its scheme.
    pub async fn register(&self, request: RegisterTable, by: &str) -> Result<TableRecord, Error> {
        if let Some(settings) = &request.settings {
            check_settings(settings)?;
        }
        let base_path = self.rules.canonical(&request.base_path)?;
        if !self.roots.is_empty() && !self.roots.iter().any(|root| base_path.is_under(root)) {
            return Err(Error::new(ErrorKind::Invalid, "register the table")
                .because("the path lies outside storage.roots")
                .with("table", &base_path)
                .hint("name a table below one of storage.roots, or add its folder there and start the server again"));
        }
        if !self.timelines.reads(base_path.scheme()) {
            return Err(Error::new(ErrorKind::Unsupported, "register the table")
                .because("this server reads no tables of such paths")
                .with("table", &base_path)
                .hint("give a local path, such as file:/lake/t: object stores and HDFS are not read yet"));
        }
        let id = TableId::of(&base_path);
        let announced = HandOver {
            base_path,
            spelling: request.base_path,
            database: None,
            table_name: None,
            hints: Vec::new(),
            queue: None,
            execution_engine: None,
            trigger: Trigger::Api,
            at: self.clock.now(),
            touch: request.look,
        };
        self.coalescer.hand_over(announced).await?;
        self.change(id, by, |table| {
            table.is_registered = true;
            match &request.settings {
                None => {}
                // Merged into what is stored at each try, so that a change by somebody else in between is kept.
                Some(settings) if request.merge => table.settings = table.settings.overlaid_by(settings),
                Some(settings) => table.settings = settings.clone(),
            }
        })
        .await
    }

    /// Replaces the settings of a known table.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when an option is refused.
    pub async fn update_settings(
        &self,
        id: TableId,
        settings: TableSettings,
        by: &str,
    ) -> Result<TableRecord, Error> {
        check_settings(&settings)?;
        self.change(id, by, |table| table.settings = settings.clone()).await
    }

    /// Notes that a person has seen the damage of a table, so that work on it may go on.
    pub(super) async fn acknowledge(&self, id: TableId, by: &str) -> Result<TableRecord, Error> {
        let now = self.clock.now();
        self.change(id, by, |table| table.acknowledged_at = Some(now)).await
    }

    /// Forgets a table with everything of it.
    ///
    /// # Errors
    /// `Conflict` while an attempt of it is live; `NotFound`.
    pub async fn remove(&self, id: TableId) -> Result<(), Error> {
        let live = self.store.live_of_table(id).await?;
        self.store.remove_table(id).await?;
        for instance in live {
            self.wakes.instance_changed(instance.id);
        }
        self.wakes.table_changed(id);
        tracing::info!(table = %id, "Removed a table.");
        Ok(())
    }

    /// Has the leader look at a table now.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` when the store has no room.
    pub async fn look_now(&self, id: TableId, by: &str) -> Result<TableRecord, Error> {
        let record = self.load(id).await?;
        let touch = HandOver {
            base_path: record.table.base_path.clone(),
            spelling: record.spelling().to_owned(),
            database: record.touch.database.clone(),
            table_name: record.touch.name.clone(),
            hints: Vec::new(),
            queue: None,
            execution_engine: None,
            trigger: Trigger::Api,
            at: self.clock.now(),
            touch: true,
        };
        self.coalescer.hand_over(touch).await?;
        tracing::debug!(table = %id, by, "Asked for a look.");
        self.wakes.table_changed(id);
        self.load(id).await
    }

    async fn change(
        &self,
        id: TableId,
        by: &str,
        change: impl Fn(&mut Table) + Send,
    ) -> Result<TableRecord, Error> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            let record = self.load(id).await?;
            let mut table = record.table.clone();
            change(&mut table);
            match self.store.put_table(table, Some(record.table.version)).await {
                Err(e) if is_conflict(&e) => {}
                Err(e) => return Err(e),
                Ok(_) => {
                    tracing::info!(table = %id, path = %record.table.base_path, by, "Registered a table or changed its settings.");
                    self.store.put_intent(Intent::Look(id)).await?;
                    self.wakes.table_changed(id);
                    return self.load(id).await;
                }
            }
        }
        Err(too_many_conflicts("change the table").with("table", id))
    }
}

fn unknown_table() -> Error {
    Error::new(ErrorKind::NotFound, "find the table")
        .hint("`tms table list` shows the known tables by path, `tms table register PATH` adds one")
}

/// Refuses settings that could not go with a job.
fn check_settings(settings: &TableSettings) -> Result<(), Error> {
    for (key, value) in &settings.hudi_options {
        if let Err(bad) = crate::decision::job_options::check_option(key, value) {
            return Err(Error::new(ErrorKind::Invalid, "take the table's settings")
                .with("option", bad.key)
                .with("reason", bad.why)
                .hint("correct or leave out the option"));
        }
    }
    Ok(())
}
