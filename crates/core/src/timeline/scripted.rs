//! A timeline source under a test's control, for tests of Services and for third-party suites. It reads nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::model::action::{Action, Instant};
use crate::model::attempt::VersionsSeen;
use crate::model::path::BasePath;
use crate::model::table::TableFacts;
use crate::timeline::{Overtaken, PlanContent, PlanSeen, Sight, TimelineSource};

/// What one scripted table answers.
#[derive(Clone, Debug)]
pub struct ScriptedTable {
    /// Its sight.
    pub sight: Sight,
    /// The table cannot be read.
    pub is_unreadable: bool,
    /// Its history cannot be read; the active timeline can.
    pub is_history_bad: bool,
    /// Answer of the loss guard.
    pub overtaken: Overtaken,
    /// Instants in the history.
    pub history: Vec<(Action, Instant)>,
    /// Newest sign of life of any inflight.
    pub sign: Option<Timestamp>,
    /// The lock file's time.
    pub lock_since: Option<Timestamp>,
    /// Writes without a heartbeat.
    pub unlocked_writes: Vec<String>,
    /// Rollbacks of any instant.
    pub rollbacks: Vec<String>,
    /// Looks so far.
    pub n_looks: u64,
}

impl Default for ScriptedTable {
    fn default() -> Self {
        Self {
            sight: Sight {
                facts: TableFacts {
                    table_version: 9,
                    layout: 2,
                    table_type: "MERGE_ON_READ".to_owned(),
                    metadata_table: None,
                },
                name: Some("t".to_owned()),
                database: None,
                is_metadata_table: false,
                pending: Vec::new(),
                completed: BTreeMap::new(),
                commits: Vec::new(),
                upheaval: None,
            },
            is_unreadable: false,
            is_history_bad: false,
            overtaken: Overtaken::No,
            history: Vec::new(),
            sign: None,
            lock_since: None,
            unlocked_writes: Vec::new(),
            rollbacks: Vec::new(),
            n_looks: 0,
        }
    }
}

impl ScriptedTable {
    /// Puts a pending plan on the timeline.
    pub fn plan(&mut self, action: Action, instant: &Instant) {
        self.sight.pending.push(PlanSeen {
            action,
            instant: instant.clone(),
            is_inflight: false,
            content: Ok(PlanContent::default()),
        });
    }

    /// Adds an `.inflight` to a pending plan.
    pub fn inflight(&mut self, action: Action, instant: &Instant) {
        for plan in &mut self.sight.pending {
            if plan.action == action && plan.instant == *instant {
                plan.is_inflight = true;
            }
        }
    }

    /// Completes a plan, once more when it is completed already.
    pub fn complete(&mut self, action: Action, instant: &Instant) {
        self.sight.pending.retain(|p| !(p.action == action && p.instant == *instant));
        *self.sight.completed.entry((action, instant.clone())).or_insert(0) += 1;
    }

    /// Takes a plan off the timeline.
    pub fn roll_back(&mut self, action: Action, instant: &Instant) {
        self.sight.pending.retain(|p| !(p.action == action && p.instant == *instant));
    }
}

/// Tables under a test's control.
#[derive(Debug, Default)]
pub struct ScriptedTimelines {
    tables: Mutex<BTreeMap<BasePath, ScriptedTable>>,
}

impl ScriptedTimelines {
    /// Changes one table, making it when it is new.
    pub fn table<T>(&self, path: &BasePath, change: impl FnOnce(&mut ScriptedTable) -> T) -> T {
        change(self.lock().entry(path.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BasePath, ScriptedTable>> {
        self.tables.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read(&self, path: &BasePath) -> Result<ScriptedTable, Error> {
        match self.lock().get(path) {
            None => Err(Error::new(ErrorKind::NotFound, "look at the table").with("table", path)),
            Some(t) if t.is_unreadable => {
                Err(Error::new(ErrorKind::Unavailable, "look at the table").with("table", path))
            }
            Some(t) => Ok(t.clone()),
        }
    }
}

#[async_trait]
impl TimelineSource for ScriptedTimelines {
    async fn look(&self, path: &BasePath) -> Result<Arc<Sight>, Error> {
        if let Some(table) = self.lock().get_mut(path) {
            table.n_looks += 1;
        }
        Ok(Arc::new(self.read(path)?.sight))
    }

    async fn overtaken(&self, path: &BasePath, _instant: &Instant) -> Overtaken {
        match self.read(path) {
            Ok(table) => table.overtaken,
            Err(e) => Overtaken::Unknown { reason: e.to_string() },
        }
    }

    async fn completed_in_history(
        &self,
        path: &BasePath,
        action: Action,
        instant: &Instant,
    ) -> Result<bool, Error> {
        let table = self.read(path)?;
        if table.is_history_bad {
            return Err(Error::new(ErrorKind::Unexpected, "read the history").with("table", path));
        }
        Ok(table.history.contains(&(action, instant.clone())))
    }

    async fn sign_of_life(&self, path: &BasePath, _instant: &Instant) -> Result<Option<Timestamp>, Error> {
        Ok(self.read(path)?.sign)
    }

    async fn lock_since(&self, path: &BasePath) -> Result<Option<Timestamp>, Error> {
        Ok(self.read(path)?.lock_since)
    }

    async fn writes_without_heartbeat(&self, path: &BasePath) -> Result<Vec<String>, Error> {
        Ok(self.read(path)?.unlocked_writes)
    }

    async fn versions(&self, path: &BasePath) -> Result<VersionsSeen, Error> {
        let facts = self.read(path)?.sight.facts;
        Ok(VersionsSeen { table: (facts.table_version, facts.layout), metadata_table: facts.metadata_table })
    }

    async fn rollbacks_of(&self, path: &BasePath, _instant: &Instant) -> Result<Vec<String>, Error> {
        Ok(self.read(path)?.rollbacks)
    }
}
