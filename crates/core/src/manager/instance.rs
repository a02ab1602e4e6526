//! Instances for people and programs: list, show, add, remove, cancel, retry, clear, logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Clock;
use crate::decision::transition::{Change, Ending, apply, state_word};
use crate::engine::{Engines, JobRef, LogTail};
use crate::error::{Error, ErrorKind};
use crate::manager::request::{Announcement, HandOverAnswer, RequestManager};
use crate::manager::table::TableManager;
use crate::manager::{CONFLICT_RETRIES_MAX, ManagerParts, is_conflict, note_change, too_many_conflicts};
use crate::model::action::{Action, Instant};
use crate::model::attempt::Attempt;
use crate::model::event::{Actor, Event};
use crate::model::id::{InstanceId, QueueName, TableId};
use crate::model::instance::{CancelAsked, Instance, InstanceKey, InstanceState, ParkReason, WaitReason};
use crate::model::queue::Queue;
use crate::model::request::Trigger;
use crate::model::table::TableRecord;
use crate::store::{Expect, Hold, InstanceFilter, InstanceWrite, Intent, Page, Store};
use crate::wake::Wakes;

/// An instance with what a reader needs beside it.
#[derive(Clone, Debug)]
pub struct InstanceView {
    /// The instance.
    pub instance: Instance,
    /// Canonical base path of its table.
    pub table_path: String,
    /// Name of its table.
    pub table_name: Option<String>,
    /// What it waits for, for people; none when it does not wait.
    pub waits_for: Option<String>,
    /// Its engine is a simulation.
    pub is_simulation: bool,
    /// Its jobs ask for leave; none before the first attempt.
    pub is_fenced: Option<bool>,
}

/// All that is stored of one instance.
#[derive(Clone, Debug)]
pub struct InstanceDetail {
    /// The instance.
    pub view: InstanceView,
    /// Attempts that are over, oldest first.
    pub past_attempts: Vec<Attempt>,
    /// Events, oldest first.
    pub events: Vec<Event>,
}

/// A request for one instance.
#[derive(Clone, Debug)]
pub struct AddInstance {
    /// Path or id of the table.
    pub table: String,
    /// Action.
    pub action: Action,
    /// Instant; clean may have none.
    pub instant: Option<String>,
    /// Queue.
    pub queue: Option<String>,
    /// Higher first.
    pub priority: Option<i32>,
}

/// Instances.
#[derive(Clone, Debug)]
pub struct InstanceManager {
    store: Arc<dyn Store>,
    engines: Engines,
    clock: Arc<dyn Clock>,
    wakes: Wakes,
    requests: RequestManager,
    tables: TableManager,
}

impl InstanceManager {
    pub(super) fn new(parts: &ManagerParts, requests: RequestManager, tables: TableManager) -> Self {
        Self {
            store: Arc::clone(&parts.store),
            engines: parts.engines.clone(),
            clock: Arc::clone(&parts.clock),
            wakes: parts.wakes.clone(),
            requests,
            tables,
        }
    }

    /// Lists instances, newest first.
    ///
    /// # Errors
    /// `Invalid` for a bad cursor.
    pub async fn list(
        &self,
        filter: &InstanceFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InstanceView>, Error> {
        let page = self.store.list_instances(filter, cursor, limit).await?;
        Ok(Page { items: self.views(page.items).await?, next: page.next })
    }

    /// Returns one instance with its attempts and events.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn show(&self, id: InstanceId) -> Result<InstanceDetail, Error> {
        let instance = self.load(id).await?;
        Ok(InstanceDetail {
            view: self.view(instance).await?,
            past_attempts: self.store.past_attempts(id).await?,
            events: self.store.events(id).await?,
        })
    }

    /// Asks for one instance; asked again, the answer is the same instance.
    ///
    /// # Errors
    /// `Invalid` for a path outside the roots, an action that needs an instant, or a bad name.
    pub async fn add(&self, request: AddInstance, by: &str) -> Result<InstanceView, Error> {
        let invalid = |hint| Error::new(ErrorKind::Invalid, "add an instance").hint(hint);
        let instant: Option<Instant> = request.instant.as_deref().map(str::parse).transpose()?;
        if instant.is_none() && request.action != Action::Clean {
            return Err(invalid("name the plan's instant; only a clean has none"));
        }
        let queue = request.queue.as_deref().map(str::parse::<QueueName>).transpose()?;
        let path = match request.table.parse::<TableId>() {
            Ok(id) => self.tables.load(id).await?.spelling().to_owned(),
            Err(_) => request.table,
        };
        let hints = instant.iter().map(|i| (request.action, i.to_string())).collect();
        if let (Some(instant), Some(path)) = (&instant, self.requests.canonical(&path)?) {
            let key = InstanceKey {
                table: TableId::of(&path),
                action: request.action,
                instant: Some(instant.clone()),
            };
            self.store.clear_tombstone(&key).await?;
        }
        let announcement = Announcement {
            base_path: path,
            database: None,
            table_name: None,
            hints,
            queue: queue.as_ref().map(ToString::to_string),
            execution_engine: None,
            trigger: Trigger::Api,
            waits: false,
        };
        let HandOverAnswer::Stored { table, .. } = self.requests.hand_over(announcement).await? else {
            return Err(invalid("the path lies outside storage.roots").hint(
                "name a table below one of storage.roots, or add its folder there and start the server again",
            ));
        };
        let key = InstanceKey { table, action: request.action, instant };
        if key.instant.is_none() {
            self.add_next(&key, queue, by).await?;
        }
        let found = self.store.find_instance(&key).await?.ok_or_else(|| {
            Error::new(ErrorKind::Unexpected, "find the instance that was added").with("table", table)
        })?;
        let found = match request.priority {
            Some(priority) if priority != found.priority && !found.state.is_ended() => {
                self.prioritise(found, priority, by).await?
            }
            _ => found,
        };
        self.wakes.instance_changed(found.id);
        self.view(found).await
    }

    /// Makes work without an instant, unless some is live.
    async fn add_next(&self, key: &InstanceKey, queue: Option<QueueName>, by: &str) -> Result<(), Error> {
        let now = self.clock.now();
        let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
        let mut instance = Instance::new(key.clone(), state, Trigger::Api, now);
        instance.is_asked_for = true;
        instance.queue = queue.unwrap_or_default();
        let event = Event {
            at: now,
            actor: Actor::User(by.to_owned()),
            from: String::new(),
            to: state_word(&instance),
            attempt: None,
            reason: "asked for".to_owned(),
        };
        let write = InstanceWrite {
            expect: Expect::Absent,
            after: instance,
            events: vec![event],
            past_attempt: None,
        };
        match self.store.write(None, vec![write]).await {
            Err(e) if is_conflict(&e) || e.kind() == ErrorKind::AlreadyExists => Ok(()),
            done => done.map(|_| ()),
        }
    }

    async fn prioritise(&self, instance: Instance, priority: i32, by: &str) -> Result<Instance, Error> {
        let mut after = instance.clone();
        after.priority = priority;
        after.updated_at = self.clock.now();
        self.put(&instance, after, by, &format!("priority {priority}")).await
    }

    /// Forgets an instance that is not running; leaves a tombstone while its plan may stand.
    ///
    /// # Errors
    /// `Conflict` while it runs; `NotFound`.
    pub async fn remove(&self, id: InstanceId, by: &str) -> Result<(), Error> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            let instance = self.load(id).await?;
            if instance.takes_slot() {
                return Err(Error::new(ErrorKind::Conflict, "remove the instance")
                    .with("instance", id)
                    .because("it runs")
                    .hint("`tms instance cancel` it first, and remove it when it has ended"));
            }
            let plan_may_stand = instance.key.instant.is_some() && instance.state != InstanceState::Succeeded;
            match self.store.remove_instance(id, instance.version, plan_may_stand).await {
                Err(e) if is_conflict(&e) => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    tracing::info!(instance = %id, by, "Removed an instance.");
                    self.wakes.instance_changed(id);
                    return Ok(());
                }
            }
        }
        Err(too_many_conflicts("remove the instance").with("instance", id))
    }

    /// Stops an instance and holds its plan until `retry`. Asked again, nothing changes.
    ///
    /// # Errors
    /// `Invalid` when it ended otherwise; `NotFound`.
    pub async fn cancel(&self, id: InstanceId, by: &str) -> Result<InstanceView, Error> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            let instance = self.load(id).await?;
            let is_under_way = instance.takes_slot() || instance.state.is_ended();
            if instance.state == InstanceState::Cancelled || (instance.cancel_asked.is_some() && is_under_way)
            {
                self.store.put_intent(Intent::Instance(id)).await?;
                self.wakes.instance_changed(id);
                return self.view(instance).await;
            }
            let now = self.clock.now();
            let change = if instance.takes_slot() {
                Change::AskCancel(CancelAsked { by: by.to_owned(), at: now })
            } else {
                Change::End(Ending::Cancelled, format!("cancelled by {by}"))
            };
            let applied = apply(&instance, change, now).map_err(|_| {
                Error::new(ErrorKind::Invalid, "cancel the instance")
                    .because("it has ended")
                    .with("instance", id)
                    .hint("`tms instance show` says how it ended; there is nothing left to cancel")
            })?;
            match self.put(&instance, applied.after, by, &format!("{by} asked to cancel it")).await {
                Err(e) if is_conflict(&e) => {}
                Err(e) => return Err(e),
                Ok(after) => {
                    self.store.put_intent(Intent::Instance(id)).await?;
                    return self.view(after).await;
                }
            }
        }
        Err(too_many_conflicts("cancel the instance").with("instance", id))
    }

    /// Has an ended, parked or waiting instance tried again.
    ///
    /// # Errors
    /// `Invalid` while it runs, or when its reason needs `take_over`; `NotFound`.
    pub async fn retry(&self, id: InstanceId, take_over: bool, by: &str) -> Result<InstanceView, Error> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            let instance = self.load(id).await?;
            let refuse = |why, hint| {
                Error::new(ErrorKind::Invalid, "retry the instance")
                    .because(why)
                    .with("instance", id)
                    .hint(hint)
            };
            let needs_take_over = match instance.state {
                InstanceState::WaitingForeign { .. } => true,
                InstanceState::Parked { reason, .. } => {
                    reason.needs_person() && reason != ParkReason::UnlockedWriter
                }
                InstanceState::Succeeded => return Err(refuse("it succeeded", "there is nothing to do")),
                _ => false,
            };
            if needs_take_over && !take_over {
                return Err(refuse(
                    "somebody else may work on its plan",
                    "make sure that nothing else works on this plan, then use --take-over",
                ));
            }
            let is_of_table = matches!(
                instance.state,
                InstanceState::Parked {
                    reason: ParkReason::DamageSuspected | ParkReason::UnlockedWriter,
                    ..
                }
            );
            if is_of_table {
                let record = self.tables.load(instance.key.table).await?;
                if record.look.damage.is_some() && !take_over {
                    return Err(refuse("the table may be damaged", "check it, then use --take-over"));
                }
                self.tables.acknowledge(instance.key.table, by).await?;
            }
            let change = Change::Reopen { take_over };
            let applied =
                apply(&instance, change, self.clock.now()).map_err(|_| match instance.takes_slot() {
                    true => refuse("it runs", "`tms instance cancel` it first, or wait for its end"),
                    false => refuse(
                        "it waits for its plan",
                        "it starts by itself when the plan is on the timeline",
                    ),
                })?;
            let text = if take_over { "asked to take it over" } else { "asked to try it again" };
            match self.put(&instance, applied.after, by, &format!("{by} {text}")).await {
                Err(e) if is_conflict(&e) => {}
                Err(e) => return Err(e),
                Ok(after) => {
                    self.store.put_intent(Intent::Instance(id)).await?;
                    self.tables.look_now(after.key.table, by).await?;
                    return self.view(after).await;
                }
            }
        }
        Err(too_many_conflicts("retry the instance").with("instance", id))
    }

    /// Cancels all waiting instances of a table, and the running ones when asked to; returns how many.
    ///
    /// # Errors
    /// The store's.
    pub async fn clear(&self, table: TableId, running: bool, by: &str) -> Result<usize, Error> {
        self.tables.load(table).await?;
        let mut n_cancelled = 0;
        for instance in self.store.live_of_table(table).await? {
            if instance.takes_slot() && !running {
                continue;
            }
            match self.cancel(instance.id, by).await {
                Ok(_) => n_cancelled += 1,
                Err(e) if matches!(e.kind(), ErrorKind::Invalid | ErrorKind::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(n_cancelled)
    }

    /// Returns the end of the log of an attempt, the last one unless named.
    ///
    /// # Errors
    /// `NotFound` when there is no such attempt; `Unsupported` when its engine is not configured here.
    pub async fn logs(
        &self,
        id: InstanceId,
        attempt: Option<u32>,
        bytes_max: usize,
    ) -> Result<LogTail, Error> {
        let instance = self.load(id).await?;
        let wanted = attempt.unwrap_or(instance.n_attempts);
        if instance.n_attempts == 0 {
            return Err(Error::new(ErrorKind::NotFound, "show the log")
                .because("it has no attempt yet")
                .with("instance", id)
                .hint("`tms instance show` tells what it waits for"));
        }
        let missing = || {
            Error::new(ErrorKind::NotFound, "show the log")
                .with("instance", id)
                .with("attempt", wanted)
                .hint("`tms instance show` lists the attempts")
        };
        let found = match instance.attempt.filter(|a| a.number == wanted) {
            Some(attempt) => *attempt,
            None => {
                let past = self.store.past_attempts(id).await?;
                past.into_iter().find(|a| a.number == wanted).ok_or_else(missing)?
            }
        };
        let engine = self.engines.get(&found.engine).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "show the log")
                .with("engine", &found.engine)
                .hint("this engine is not configured on this node")
        })?;
        engine.logs(&JobRef { tag: found.tag, handle: found.handle }, bytes_max).await
    }

    async fn load(&self, id: InstanceId) -> Result<Instance, Error> {
        self.store.get_instance(id).await?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "find the instance")
                .with("instance", id)
                .hint("`tms instance list` shows the known instances")
        })
    }

    async fn put(
        &self,
        before: &Instance,
        after: Instance,
        by: &str,
        reason: &str,
    ) -> Result<Instance, Error> {
        let event = Event {
            at: after.updated_at,
            actor: Actor::User(by.to_owned()),
            from: state_word(before),
            to: state_word(&after),
            attempt: after.attempt.as_ref().map(|a| a.number),
            reason: reason.to_owned(),
        };
        let write = InstanceWrite {
            expect: Expect::Version(before.version),
            after,
            events: vec![event.clone()],
            past_attempt: None,
        };
        let mut written = self.store.write(None, vec![write]).await?;
        self.wakes.instance_changed(before.id);
        let after =
            written.pop().ok_or_else(|| Error::new(ErrorKind::Unexpected, "read the written instance"))?;
        note_change(&after, &event, by);
        Ok(after)
    }

    /// Adds what a reader needs beside one instance.
    ///
    /// # Errors
    /// The store's.
    pub async fn view(&self, instance: Instance) -> Result<InstanceView, Error> {
        let mut views = self.views(vec![instance]).await?;
        views.pop().ok_or_else(|| Error::new(ErrorKind::Unexpected, "show the instance"))
    }

    /// Adds what a reader needs beside instances; each table and the queues are read once.
    pub(super) async fn views(&self, instances: Vec<Instance>) -> Result<Vec<InstanceView>, Error> {
        let queues = self.store.queues().await?;
        let hold = self.store.hold().await?;
        let mut tables: BTreeMap<TableId, (Option<TableRecord>, Option<InstanceId>)> = BTreeMap::new();
        let mut views = Vec::with_capacity(instances.len());
        for instance in instances {
            let table = instance.key.table;
            if let std::collections::btree_map::Entry::Vacant(slot) = tables.entry(table) {
                let record = self.store.get_table(table).await?;
                let is_waiting = matches!(instance.state, InstanceState::Pending { .. });
                let running = if is_waiting {
                    self.store
                        .live_of_table(table)
                        .await?
                        .into_iter()
                        .find(Instance::takes_slot)
                        .map(|i| i.id)
                } else {
                    None
                };
                slot.insert((record, running));
            }
            let (record, running) = &tables[&table];
            let engine = instance.attempt.as_ref().and_then(|a| self.engines.get(&a.engine));
            views.push(InstanceView {
                table_path: record.as_ref().map(|r| r.table.base_path.to_string()).unwrap_or_default(),
                table_name: record.as_ref().and_then(|r| r.name().map(str::to_owned)),
                waits_for: waits_for(&instance, record.as_ref(), *running, &queues, hold.as_ref()),
                is_simulation: engine.is_some_and(|e| e.capabilities().is_simulation),
                is_fenced: instance.attempt.as_ref().map(|a| a.launcher.is_fenced()),
                instance,
            });
        }
        Ok(views)
    }
}

/// What an instance waits for, for people.
fn waits_for(
    instance: &Instance,
    record: Option<&TableRecord>,
    running: Option<InstanceId>,
    queues: &[Queue],
    hold: Option<&Hold>,
) -> Option<String> {
    let until = |at: Option<crate::clock::Timestamp>| {
        at.map(|t| format!(", until {}", t.format("%Y-%m-%dT%H:%M:%SZ"))).unwrap_or_default()
    };
    if let Some(trouble) = record.and_then(|r| r.look.trouble.as_ref())
        && !instance.state.is_ended()
        && !instance.takes_slot()
    {
        return Some(format!("the table to be readable: {}", trouble.error));
    }
    match &instance.state {
        InstanceState::Hinted => Some("its plan to appear on the timeline".to_owned()),
        InstanceState::Parked { reason, detail, .. } => Some(format!("{detail}; {}", reason.way_out())),
        InstanceState::WaitingForeign { sign, .. } => Some(match sign {
            Some(at) => format!("another runner, last seen {}", at.format("%Y-%m-%dT%H:%M:%SZ")),
            None => "another runner".to_owned(),
        }),
        InstanceState::Pending { .. } if let Some(hold) = hold => Some(hold.to_string()),
        InstanceState::Pending { reason, not_before } => Some(match reason {
            WaitReason::Ready => {
                if queues.iter().any(|q| q.name == instance.queue && q.is_paused) {
                    format!("the queue {} to be resumed", instance.queue)
                } else if let Some(other) = running.filter(|id| *id != instance.id) {
                    format!("the table's running instance {other}")
                } else {
                    format!("room in the queue {} and on its engine{}", instance.queue, until(*not_before))
                }
            }
            WaitReason::Backoff => format!("the back-off after a failed attempt{}", until(*not_before)),
            WaitReason::LockHeld => format!("the table's lock{}", until(*not_before)),
            WaitReason::HeartbeatRefused => {
                format!("Hudi's heartbeat of a dead runner to expire{}", until(*not_before))
            }
            WaitReason::NoLeave => format!("another try after a job left untouched{}", until(*not_before)),
            WaitReason::EngineRefused => format!("the engine to take it{}", until(*not_before)),
            WaitReason::Upheaval => format!("a restore or savepoint of the table{}", until(*not_before)),
            WaitReason::Unreadable => format!("the table to be readable{}", until(*not_before)),
        }),
        InstanceState::Active | InstanceState::Succeeding => None,
        _ => None,
    }
}
