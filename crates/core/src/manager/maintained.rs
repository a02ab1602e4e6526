//! Tables with their run-time facts: read-only, from the store, paged; and what a look would find.

use std::sync::Arc;

use crate::clock::Clock;
use crate::decision::board::{Limits, engine_for, no_engine_for};
use crate::decision::check::Verdict;
use crate::decision::job_options::{LOCK_LINES, LOCK_PREFIX, check_option, job_options};
use crate::engine::{Engines, JobNeed};
use crate::error::{Error, ErrorKind};
use crate::manager::ManagerParts;
use crate::manager::instance::{InstanceManager, InstanceView};
use crate::manager::request::RequestManager;
use crate::manager::table::TableManager;
use crate::model::action::{Action, Instant};
use crate::model::id::TableId;
use crate::model::instance::{Instance, InstanceKey, InstanceState, ParkReason, WaitReason};
use crate::model::policy::{Concurrency, Effective, TableDefaults};
use crate::model::request::Trigger;
use crate::model::table::TableRecord;
use crate::preflight::{TableNow, check_on, engine_limits, table_now};
use crate::store::{Page, Store};
use crate::timeline::{Sight, TimelineSource};

/// Most plans that an advice checks one by one.
const ADVICE_PLANS_MAX: usize = 100;

/// One table with what is live on it.
#[derive(Clone, Debug)]
pub struct TableView {
    /// All that is stored of it.
    pub record: TableRecord,
    /// Its settings with the defaults filled in.
    pub effective: Effective,
    /// Its live instances.
    pub live: Vec<InstanceView>,
    /// What is unsafe or odd.
    pub warnings: Vec<String>,
}

/// What would happen to one pending plan.
#[derive(Clone, Debug)]
pub struct PlanAdvice {
    /// Action.
    pub action: Action,
    /// Instant.
    pub instant: Instant,
    /// What TMS would do, for people.
    pub verdict: String,
}

/// What a look at a table finds, without changing anything.
#[derive(Clone, Debug)]
pub struct TableAdvice {
    /// Pending plans and what would happen to them.
    pub would_run: Vec<PlanAdvice>,
    /// What is unsafe in the table's settings.
    pub unsafe_settings: Vec<String>,
}

/// Tables with their run-time facts.
#[derive(Clone, Debug)]
pub struct MaintainedTableManager {
    store: Arc<dyn Store>,
    engines: Engines,
    timelines: Arc<dyn TimelineSource>,
    clock: Arc<dyn Clock>,
    defaults: TableDefaults,
    tables: TableManager,
    instances: InstanceManager,
}

impl MaintainedTableManager {
    pub(super) fn new(parts: &ManagerParts, tables: TableManager) -> Self {
        Self {
            store: Arc::clone(&parts.store),
            engines: parts.engines.clone(),
            timelines: Arc::clone(&parts.timelines),
            clock: Arc::clone(&parts.clock),
            defaults: parts.defaults.clone(),
            instances: InstanceManager::new(parts, RequestManager::new(parts), tables.clone()),
            tables,
        }
    }

    /// Lists tables by id.
    ///
    /// # Errors
    /// `Invalid` for a bad cursor.
    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<Page<TableRecord>, Error> {
        self.store.list_tables(cursor, limit).await
    }

    /// Returns one table with what is live on it.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn show(&self, id: TableId) -> Result<TableView, Error> {
        let record = self.tables.load(id).await?;
        let effective = self.defaults.effective(&record.table.settings);
        let live = self.instances.views(self.store.live_of_table(id).await?).await?;
        let mut warnings = warnings(&record, &effective);
        warnings.extend(self.resting(&record).await?);
        Ok(TableView { record, effective, live, warnings })
    }

    /// The plans that stand and that nothing runs, since people stopped them or their attempts are used up.
    async fn resting(&self, record: &TableRecord) -> Result<Vec<String>, Error> {
        let mut resting = Vec::new();
        for plan in record.look.unserved.iter().take(ADVICE_PLANS_MAX) {
            let (action, instant) = (plan.action, &plan.instant);
            let key = InstanceKey { table: record.table.id, action, instant: Some(instant.clone()) };
            if let Some(known) = self.store.find_instance(&key).await?
                && matches!(known.state, InstanceState::Cancelled | InstanceState::Failed)
            {
                let (state, id) = (known.state.as_str(), known.id);
                resting.push(format!(
                    "the {action} {instant} stands and is not run: it is {state}; `tms instance retry {id}`"
                ));
            }
        }
        Ok(resting)
    }

    /// Looks at the table now and says what would run and what is unsafe.
    ///
    /// # Errors
    /// `NotFound`; the table's when it cannot be read.
    pub async fn advice(&self, id: TableId) -> Result<TableAdvice, Error> {
        let record = self.tables.load(id).await?;
        let effective = self.defaults.effective(&record.table.settings);
        let path = &record.table.base_path;
        // The state of the table, not a fault of this server: whoever asks gets the reader's words.
        let table = table_now(&*self.timelines, path, &effective).await.map_err(|e| {
            let reason = e.get("reason").map_or_else(|| e.chain(), str::to_owned);
            Error::new(ErrorKind::Unsupported, "give advice on the table")
                .because("it cannot be read")
                .with("table", path)
                .with("reason", reason)
        })?;
        let queues =
            self.store.queues().await?.into_iter().map(|queue| (queue.name.clone(), queue)).collect();
        let engines = engine_limits(&self.engines);
        let limits = Limits { queues: &queues, engines: &engines };
        let asked = Advised { record: &record, effective: &effective, table: &table, limits };
        let sight = &table.sight;
        let mut would_run = Vec::new();
        for plan in sight.pending.iter().take(ADVICE_PLANS_MAX) {
            let key = InstanceKey { table: id, action: plan.action, instant: Some(plan.instant.clone()) };
            let verdict = if !effective.actions.contains(&plan.action) {
                "left alone: the action is not handed over".to_owned()
            } else if plan.action == Action::Clean {
                "left alone: a clean plan stays its writer's".to_owned()
            } else {
                self.verdict_of(&asked, key).await?
            };
            would_run.push(PlanAdvice { action: plan.action, instant: plan.instant.clone(), verdict });
        }
        Ok(TableAdvice { would_run, unsafe_settings: unsafe_settings(sight, &effective) })
    }

    async fn verdict_of(&self, asked: &Advised<'_>, key: InstanceKey) -> Result<String, Error> {
        let instance = match self.store.find_instance(&key).await? {
            Some(known) if matches!(known.state, InstanceState::Cancelled | InstanceState::Failed) => {
                return Ok(format!(
                    "left alone: it is {}; `tms instance retry {}`",
                    known.state.as_str(),
                    known.id
                ));
            }
            Some(known) if known.takes_slot() => return Ok("runs".to_owned()),
            Some(known) => known,
            None => {
                let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
                let mut instance = Instance::new(key, state, Trigger::Api, self.clock.now());
                instance.queue.clone_from(&asked.effective.queue);
                instance
            }
        };
        if let InstanceState::Parked { reason, detail, .. } = &instance.state
            && reason.needs_person()
        {
            return Ok(held(*reason, detail));
        }
        let (record, effective) = (asked.record, asked.effective);
        let now = self.clock.now().into();
        Ok(match check_on(&*self.timelines, record, &instance, effective, asked.table, now).await? {
            Verdict::Go(_) => self.job_verdict(asked, &instance).await,
            Verdict::Completed => "is completed".to_owned(),
            Verdict::Missing => "is gone".to_owned(),
            Verdict::NotHandedOver => "left alone: the action is not handed over".to_owned(),
            Verdict::Park(reason, detail) => held(reason, &detail),
            Verdict::WaitForeign(_) => "waits: somebody else seems to run it".to_owned(),
            Verdict::Delay(..) => "waits: a lock is held, or a restore is under way".to_owned(),
        })
    }

    /// What would become of a job of a plan that the timeline allows to run; asked as before a submission.
    async fn job_verdict(&self, asked: &Advised<'_>, instance: &Instance) -> String {
        let facts = &asked.table.sight.facts;
        let action = instance.key.action;
        let name = engine_for(instance, &asked.limits);
        let Some((name, engine)) = name.as_ref().and_then(|name| self.engines.get_key_value(name)) else {
            return held(ParkReason::NoEngine, &no_engine_for(instance));
        };
        if let Err(bad) = job_options(asked.effective, facts, action) {
            return held(ParkReason::BadOption, &bad.to_string());
        }
        if let Err(lack) = engine.ready(JobNeed::of(action, facts)).await {
            return held(lack.reason, &format!("the engine {name}: {}", lack.detail));
        }
        match asked.limits.queues.get(&instance.queue) {
            Some(queue) if queue.is_paused => {
                format!("waits: the queue {0} is paused; `tms queue resume {0}`", queue.name)
            }
            _ => "would run".to_owned(),
        }
    }
}

/// What an advice on one table rests on.
#[derive(Debug)]
struct Advised<'a> {
    record: &'a TableRecord,
    effective: &'a Effective,
    table: &'a TableNow,
    limits: Limits<'a>,
}

fn held(reason: ParkReason, detail: &str) -> String {
    format!("held ({}): {detail}; {}", reason.as_str(), reason.way_out())
}

/// What is unsafe in a table's settings.
fn unsafe_settings(sight: &Sight, effective: &Effective) -> Vec<String> {
    let mut found = Vec::new();
    if effective.concurrency.is_none() && sight.facts.metadata_table.is_some() {
        found.push(format!(
            "tables.concurrency is not set and the table has a metadata table: nothing will run. {}. \
             For `locked`, writers set: {LOCK_LINES}",
            ParkReason::NoLock.way_out()
        ));
    }
    if effective.concurrency == Some(Concurrency::Exclusive) {
        found.push(
            "tables.concurrency is exclusive: no writer may write while TMS works on the table".to_owned(),
        );
    }
    if !crate::decision::check::TABLE_VERSIONS.contains(&sight.facts.table_version) {
        found.push(format!(
            "hoodie.table.version {} is not one of 6, 8, 9: nothing will run",
            sight.facts.table_version
        ));
    }
    unsafe_options(effective, &mut found);
    if sight.is_metadata_table {
        found.push("this is a metadata table: TMS never runs anything on it".to_owned());
    }
    found
}

/// Options that no job takes, and options that no job gets.
fn unsafe_options(effective: &Effective, found: &mut Vec<String>) {
    let is_locked = effective.concurrency == Some(Concurrency::Locked);
    for (key, value) in &effective.hudi_options {
        if let Err(bad) = check_option(key, value) {
            found.push(format!("the option {bad}: nothing will run"));
        } else if key.starts_with(LOCK_PREFIX) && !is_locked {
            found.push(format!("the option {key} goes with no job: tables.concurrency is not locked"));
        }
    }
}

fn warnings(record: &TableRecord, effective: &Effective) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(trouble) = &record.look.trouble {
        found.push(format!("the table cannot be read: {}", trouble.error));
    }
    if let Some(damage) = &record.look.damage {
        found.push(format!(
            "the table may be damaged: {}; {}",
            damage.reason,
            ParkReason::DamageSuspected.way_out()
        ));
    }
    if record.look.n_completed_by_others >= crate::decision::reconcile::COMPLETED_BY_OTHERS_MAX {
        found.push(
            "somebody else executes this table's plans: the action is not really handed over".to_owned(),
        );
    }
    let has_metadata_table = record.look.facts.as_ref().is_some_and(|f| f.metadata_table.is_some());
    if effective.concurrency.is_none() && has_metadata_table {
        found.push(ParkReason::NoLock.way_out().to_owned());
    }
    found
}
