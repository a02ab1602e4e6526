//! The tables of the day, without files: what stands on each timeline, and the writers' own book of what they planned.
//! The checker reads this book and the engine's, never the server's.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tms_core::clock::Timestamp;
use tms_core::error::{Error, ErrorKind};
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::VersionsSeen;
use tms_core::model::path::BasePath;
use tms_core::model::table::TableFacts;
use tms_core::timeline::{Overtaken, PlanContent, PlanSeen, Sight, TimelineSource};

/// A plan that a writer made, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planned {
    /// When it was planned, from the begin of the day.
    pub(crate) at: Duration,
    /// Its hand-over was acknowledged.
    pub(crate) is_acknowledged: bool,
    /// When it was first called by a driver with leave.
    pub(crate) called_at: Option<Duration>,
    /// When its first attempt was submitted.
    pub(crate) submitted_at: Option<Duration>,
    /// Completed files.
    pub(crate) n_completed: u32,
    /// Drivers that work on it now.
    pub(crate) n_at_work: u32,
}

/// What happened that must never happen.
pub(crate) type Doubled = Vec<String>;

#[derive(Debug, Default)]
struct Book {
    plans: HashMap<(usize, Action, Instant), Planned>,
    doubled: Doubled,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Lake {
    sights: Vec<Mutex<Arc<Sight>>>,
    by_path: HashMap<BasePath, usize>,
    book: Mutex<Book>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn empty(number: usize) -> Sight {
    Sight {
        facts: TableFacts {
            table_version: 9,
            layout: 2,
            table_type: "MERGE_ON_READ".to_owned(),
            metadata_table: None,
        },
        name: Some(format!("t{number}")),
        database: Some("lake".to_owned()),
        is_metadata_table: false,
        pending: Vec::new(),
        completed: BTreeMap::new(),
        commits: Vec::new(),
        upheaval: None,
    }
}

impl Lake {
    /// Makes empty tables at these paths.
    pub(crate) fn new(paths: &[BasePath]) -> Self {
        Self {
            sights: (0..paths.len()).map(|number| Mutex::new(Arc::new(empty(number)))).collect(),
            by_path: paths.iter().enumerate().map(|(number, path)| (path.clone(), number)).collect(),
            book: Mutex::default(),
        }
    }

    /// Returns the number of a table.
    pub(crate) fn number(&self, path: &BasePath) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    fn change(&self, table: usize, change: impl FnOnce(&mut Sight)) {
        change(Arc::make_mut(&mut lock(&self.sights[table])));
    }

    /// A writer puts a plan on the timeline.
    pub(crate) fn plan(&self, table: usize, action: Action, instant: &Instant, at: Duration) {
        let planned = Planned { at, ..Planned::default() };
        lock(&self.book).plans.insert((table, action, instant.clone()), planned);
        self.change(table, |sight| {
            sight.pending.push(PlanSeen {
                action,
                instant: instant.clone(),
                is_inflight: false,
                content: Ok(PlanContent::default()),
            });
        });
    }

    /// The writer got its answer.
    pub(crate) fn acknowledge(&self, table: usize, action: Action, instant: &Instant) {
        self.note(table, action, instant, |plan| plan.is_acknowledged = true);
    }

    fn note<T>(
        &self,
        table: usize,
        action: Action,
        instant: &Instant,
        note: impl FnOnce(&mut Planned) -> T,
    ) -> Option<T> {
        lock(&self.book).plans.get_mut(&(table, action, instant.clone())).map(note)
    }

    /// A driver with leave begins on a plan. False when the plan is not pending any more.
    pub(crate) fn begin(
        &self,
        table: usize,
        action: Action,
        instant: &Instant,
        submitted_at: Option<Duration>,
        now: Duration,
    ) -> bool {
        if lock(&self.sights[table]).pending(action, instant).is_none() {
            return false;
        }
        let n_others = self.note(table, action, instant, |plan| {
            plan.called_at.get_or_insert(now);
            plan.submitted_at = plan.submitted_at.or(submitted_at);
            plan.n_at_work += 1;
            plan.n_at_work - 1
        });
        if n_others != Some(0) {
            self.doubled(format!("two drivers at once on t{table} {action:?} {instant}"));
        }
        self.change(table, |sight| {
            for plan in &mut sight.pending {
                plan.is_inflight |= plan.action == action && plan.instant == *instant;
            }
        });
        true
    }

    /// A driver completes its plan, or gives it up.
    pub(crate) fn end(&self, table: usize, action: Action, instant: &Instant, is_completed: bool) {
        let n_completed = self.note(table, action, instant, |plan| {
            plan.n_at_work -= 1;
            plan.n_completed += u32::from(is_completed);
            plan.n_completed
        });
        if !is_completed {
            return;
        }
        if n_completed != Some(1) {
            self.doubled(format!("t{table} {action:?} {instant} completed twice"));
        }
        self.change(table, |sight| {
            sight.pending.retain(|plan| !(plan.action == action && plan.instant == *instant));
            *sight.completed.entry((action, instant.clone())).or_insert(0) += 1;
        });
    }

    /// Writes down what must never happen.
    pub(crate) fn doubled(&self, what: String) {
        lock(&self.book).doubled.push(what);
    }

    /// Returns how many plans are not completed yet.
    pub(crate) fn n_open(&self) -> usize {
        lock(&self.book).plans.values().filter(|plan| plan.n_completed == 0).count()
    }

    /// Returns every plan with its table and action, and what must never be.
    pub(crate) fn close(&self) -> (Vec<(usize, Action, Planned)>, Doubled) {
        let book = lock(&self.book);
        let plans = book.plans.iter().map(|((table, action, _), plan)| (*table, *action, *plan)).collect();
        (plans, book.doubled.clone())
    }

    fn sight(&self, path: &BasePath) -> Result<Arc<Sight>, Error> {
        let missing = || Error::new(ErrorKind::NotFound, "look at the table").with("table", path);
        Ok(Arc::clone(&lock(&self.sights[self.number(path).ok_or_else(missing)?])))
    }
}

#[async_trait]
impl TimelineSource for Lake {
    async fn look(&self, path: &BasePath) -> Result<Arc<Sight>, Error> {
        self.sight(path)
    }

    async fn overtaken(&self, _path: &BasePath, _instant: &Instant) -> Overtaken {
        Overtaken::No
    }

    async fn completed_in_history(
        &self,
        _path: &BasePath,
        _action: Action,
        _instant: &Instant,
    ) -> Result<bool, Error> {
        Ok(false)
    }

    async fn sign_of_life(&self, _path: &BasePath, _instant: &Instant) -> Result<Option<Timestamp>, Error> {
        Ok(None)
    }

    async fn lock_since(&self, _path: &BasePath) -> Result<Option<Timestamp>, Error> {
        Ok(None)
    }

    async fn writes_without_heartbeat(&self, _path: &BasePath) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    async fn versions(&self, path: &BasePath) -> Result<VersionsSeen, Error> {
        let facts = &self.sight(path)?.facts;
        Ok(VersionsSeen { table: (facts.table_version, facts.layout), metadata_table: facts.metadata_table })
    }

    async fn rollbacks_of(&self, _path: &BasePath, _instant: &Instant) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}
