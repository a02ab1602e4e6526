//! What is kept and how it may change. One small trait per aggregate; `Arc<dyn Store>` joins them.
//!
//! Each bullet under `# Behavior` is a case of the conformance suite with the same words.

pub mod backup;
pub mod coalescer;
pub mod disk;
pub mod kv;
pub mod memory;

use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::Error;
use crate::model::attempt::Attempt;
use crate::model::event::Event;
use crate::model::id::{Incarnation, InstanceId, NodeName, QueueName, TableId, Term, Version};
use crate::model::instance::{Instance, InstanceKey};
use crate::model::queue::Queue;
use crate::model::request::{Accepted, HandOver};
use crate::model::table::{LookState, Table, TableRecord};

/// Most items of one page of any list.
pub const PAGE_MAX: usize = 1_000;
/// Most writes of one atomic batch.
pub const BATCH_MAX: usize = 10_000;
/// Most events that are kept per instance; the oldest but the first go first.
pub const EVENTS_MAX: usize = 200;
/// Most ended attempts that are kept per instance; the oldest go first.
pub const ATTEMPTS_MAX: usize = 50;

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end. Opaque.
    pub next: Option<String>,
}

/// Which instances a list holds. Unset fields match all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceFilter {
    /// Of this table.
    pub table: Option<TableId>,
    /// Of these actions; empty = all.
    pub actions: Vec<crate::model::action::Action>,
    /// In these states, by their words; empty = all.
    pub states: Vec<String>,
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// Live ones only (`Some(true)`), ended ones only (`Some(false)`).
    pub is_live: Option<bool>,
}

impl InstanceFilter {
    /// Tells whether `instance` matches.
    #[must_use]
    pub fn matches(&self, instance: &Instance) -> bool {
        self.table.is_none_or(|t| t == instance.key.table)
            && (self.actions.is_empty() || self.actions.contains(&instance.key.action))
            && (self.states.is_empty() || self.states.iter().any(|s| s == instance.state.as_str()))
            && self.queue.as_ref().is_none_or(|q| *q == instance.queue)
            && self.is_live.is_none_or(|live| live != instance.state.is_ended())
    }
}

/// What must hold of the stored row for a write to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no instance with this id; nor one with this key, live or ended, or for a key without instant
    /// a live one. An ended instance of a plan is reopened, never doubled.
    Absent,
    /// The row has this version.
    Version(Version),
}

/// One change of one instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceWrite {
    /// Precondition.
    pub expect: Expect,
    /// The instance after the change. Its `version` is set by the store: 1 for a new one, else the old one +
    /// 1.
    pub after: Instance,
    /// Events that go with it.
    pub events: Vec<Event>,
    /// An attempt that is over and goes to the history of the instance.
    pub past_attempt: Option<Attempt>,
}

/// The end of a look: what it saw and the instances that it changes, in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct LookCommit {
    /// Table.
    pub table: TableId,
    /// What the look saw; its `looked` is the touch number read before the look.
    pub state: LookState,
    /// Changes.
    pub writes: Vec<InstanceWrite>,
}

/// Takes hand-overs.
#[async_trait]
pub trait RequestStore: Debug + Send + Sync + 'static {
    /// Stores hand-overs, one answer each, in the order given, in one durable transaction.
    ///
    /// # Behavior
    /// - an unknown table becomes known with its spelling and labels
    /// - each hand-over of a table raises its touch number
    /// - the spelling announced last is kept beside the canonical path
    /// - what told of a table last is kept
    /// - a named instant becomes one hinted instance
    /// - a named instant that is known already, live or ended or removed, changes nothing
    /// - a hand-over that is no touch registers the table and leaves its touch number alone
    /// - a hand-over is durable when the call returns
    async fn accept(&self, batch: &[HandOver]) -> Result<Vec<Accepted>, Error>;

    /// Returns the answer to a hand-over that adds nothing to one that is durable: its table is touched, and nothing has
    /// read the table since, so that a look is still to come. Only its time is lost. A store that other processes write
    /// too answers none.
    ///
    /// # Behavior
    /// - a hand-over that tells something new is never covered
    /// - a hand-over is never covered once its table was read
    /// - a hand-over of a removed table is never covered
    /// - a look that begins after a hand-over comes for each, covered or stored
    fn covered(&self, one: &HandOver) -> Option<Accepted> {
        let _ = one;
        None
    }
}

/// Tables: settings by Managers, looks by Services.
#[async_trait]
pub trait TableStore: Debug + Send + Sync + 'static {
    /// Returns one table.
    ///
    /// # Behavior
    /// - an unknown table is none
    async fn get_table(&self, id: TableId) -> Result<Option<TableRecord>, Error>;

    /// Lists tables by id.
    ///
    /// # Behavior
    /// - pages of tables are complete and without repeats while others write
    /// - a page of tables holds at most the limit
    async fn list_tables(&self, cursor: Option<&str>, limit: usize) -> Result<Page<TableRecord>, Error>;

    /// Registers a table or replaces its settings; raises the change sequence.
    ///
    /// # Behavior
    /// - a table is inserted only when it is absent and no version is expected
    /// - replacing a table is refused with `Conflict` when the version differs
    /// - replacing a table keeps its touch and its look
    /// - a change of a table raises the change sequence
    async fn put_table(&self, table: Table, expect: Option<Version>) -> Result<Table, Error>;

    /// Forgets a table with its looks, instances, events and attempts.
    ///
    /// # Behavior
    /// - removing a table is refused with `Conflict` while an attempt of it is live
    /// - removing a table removes all rows that belong to it
    /// - removing an unknown table is refused with `NotFound`
    /// - a look that began before a removal covers nothing of the table that comes back
    async fn remove_table(&self, id: TableId) -> Result<(), Error>;

    /// Returns tables whose touch number is higher than the one their last look covered, by id.
    ///
    /// # Behavior
    /// - a touched table is found until a look covers its touch
    /// - a look that covers an older touch leaves the table touched
    async fn touched(&self, after: Option<TableId>, limit: usize) -> Result<Vec<TableId>, Error>;

    /// Stores the end of a look.
    ///
    /// # Behavior
    /// - a look is refused with `Fenced` when the term is older than the newest one seen
    /// - a look and its changes are stored together or not at all
    /// - a look at a removed table is refused with `NotFound`
    async fn commit_look(&self, term: Term, look: LookCommit) -> Result<Vec<Instance>, Error>;
}

/// Live and ended instances with their attempts and events.
#[async_trait]
pub trait InstanceStore: Debug + Send + Sync + 'static {
    /// Returns one instance.
    ///
    /// # Behavior
    /// - an unknown instance is none
    async fn get_instance(&self, id: InstanceId) -> Result<Option<Instance>, Error>;

    /// Returns the live instance with this key, else the one that ended and was made last.
    ///
    /// # Behavior
    /// - an instance is found by table, action and instant
    async fn find_instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error>;

    /// Tells whether a removed instance left a tombstone for this key.
    ///
    /// # Behavior
    /// - a removed instance leaves a tombstone until it is cleared
    async fn has_tombstone(&self, key: &InstanceKey) -> Result<bool, Error>;

    /// Changes instances, all or none. `term` is the caller's when it is a Service, none for a Manager.
    ///
    /// # Behavior
    /// - an instance is inserted only when its id and its key are free
    /// - a change is refused with `Conflict` when the version differs
    /// - a change is refused with `Fenced` when the term is older than the newest one seen
    /// - a term that never began is refused with `Fenced`
    /// - one refused change refuses the whole batch
    /// - moving to an ended state takes the instance out of the live index in the same transaction
    /// - moving out of an ended state puts the instance into the live index again
    /// - one live instance per key, and of a key without instant too
    /// - events and past attempts are stored with the change
    /// - an instant given to an instance without one changes its key in the same transaction
    /// - an instance of an unknown table is refused with `NotFound`
    /// - an instance keeps its table, its action and the instant that it has
    /// - a second live attempt on a table is refused with `Conflict`
    /// - of two live attempts on a table in one batch none is made
    /// - a row with a live attempt that cannot be read keeps the slot of its table
    /// - a row without a live attempt that cannot be read keeps no slot
    async fn write(&self, term: Option<Term>, writes: Vec<InstanceWrite>) -> Result<Vec<Instance>, Error>;

    /// Lists instances, newest first. A page of a filtered list may be short, even empty, and still have a
    /// next one: how many rows a page visits is bounded too.
    ///
    /// # Behavior
    /// - pages of instances are complete and without repeats while others write
    /// - a page of instances holds at most the limit
    /// - a filter leaves out what does not match
    /// - a cursor that no list gave is refused with `Invalid`
    /// - a row that cannot be read hides no other
    async fn list_instances(
        &self,
        filter: &InstanceFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Instance>, Error>;

    /// Lists live instances by id, for the start of a term.
    ///
    /// # Behavior
    /// - every live instance is on exactly one page of live instances
    async fn live_instances(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Instance>, Error>;

    /// Lists the instances whose attempt is live, by table, for the start of a term.
    ///
    /// # Behavior
    /// - every instance with a live attempt is on exactly one page of live attempts
    /// - an instance whose attempt is over is on no page of live attempts
    async fn live_attempts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Instance>, Error>;

    /// Returns the live instances of one table.
    ///
    /// # Behavior
    /// - the live instances of a table are those of the table only
    async fn live_of_table(&self, table: TableId) -> Result<Vec<Instance>, Error>;

    /// Returns the events of an instance, oldest first, at most [`EVENTS_MAX`].
    ///
    /// # Behavior
    /// - events come back in the order of the changes
    /// - of too many events the first and the newest stay
    async fn events(&self, id: InstanceId) -> Result<Vec<Event>, Error>;

    /// Returns the attempts of an instance that are over, oldest first, at most [`ATTEMPTS_MAX`].
    ///
    /// # Behavior
    /// - past attempts come back in order
    /// - of too many past attempts the newest stay
    async fn past_attempts(&self, id: InstanceId) -> Result<Vec<Attempt>, Error>;

    /// Forgets an instance without a live attempt; leaves a tombstone when asked to.
    ///
    /// # Behavior
    /// - removing an instance is refused with `Conflict` while an attempt of it is live
    /// - removing an instance is refused with `Conflict` when the version differs
    async fn remove_instance(&self, id: InstanceId, expect: Version, tombstone: bool) -> Result<(), Error>;

    /// Removes the tombstone of a key, when there is one.
    ///
    /// # Behavior
    /// - clearing a tombstone that is not there changes nothing
    async fn clear_tombstone(&self, key: &InstanceKey) -> Result<(), Error>;

    /// Removes up to `batch_max` ended instances that ended before `before`, or that are more than
    /// `keep_count`, oldest first, and returns how many. Those whose plan stands unserved
    /// ([`LookState::unserved`]), or as one of an action that is not handed over ([`LookState::foreign`]), stay.
    ///
    /// # Behavior
    /// - pruning removes ended instances only, the oldest first
    /// - pruning removes ended instances beyond the number to keep, whatever their age
    /// - pruning removes at most the batch
    /// - pruning keeps an instance whose plan the last look saw unserved
    /// - pruning is refused with `Fenced` when the term is older than the newest one seen
    async fn prune(&self, term: Term, rule: PruneRule) -> Result<usize, Error>;
}

/// What to prune.
#[derive(Clone, Copy, Debug)]
pub struct PruneRule {
    /// Ended before this time.
    pub before: Timestamp,
    /// Ended instances that are kept at most.
    pub keep_count: u64,
    /// Most instances that one call removes.
    pub batch_max: usize,
}

/// A wish that only the leader can carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Look at this table now.
    Look(TableId),
    /// Act on what was written to this instance (a cancel, a release).
    Instance(InstanceId),
}

/// Queues, the change sequence, and intents.
#[async_trait]
pub trait SettingsStore: Debug + Send + Sync + 'static {
    /// Returns all queues by name, at most [`PAGE_MAX`].
    ///
    /// # Behavior
    /// - queues come back by name
    async fn queues(&self) -> Result<Vec<Queue>, Error>;

    /// Inserts or replaces a queue; raises the change sequence.
    ///
    /// # Behavior
    /// - a queue is inserted only when it is absent and no version is expected
    /// - replacing a queue is refused with `Conflict` when the version differs
    /// - a change of a queue raises the change sequence
    async fn put_queue(&self, queue: Queue, expect: Option<Version>) -> Result<Queue, Error>;

    /// Returns the change sequence: a number that grows with every change of settings and every intent.
    ///
    /// # Behavior
    /// - hand-overs leave the change sequence alone
    async fn change_seq(&self) -> Result<u64, Error>;

    /// Stores an intent; raises the change sequence.
    ///
    /// # Behavior
    /// - intents are taken in the order they were stored
    /// - an intent that waits already is not stored twice
    async fn put_intent(&self, intent: Intent) -> Result<(), Error>;

    /// Takes up to `limit` intents away.
    ///
    /// # Behavior
    /// - an intent is taken once
    /// - taking intents is refused with `Fenced` when the term is older than the newest one seen
    async fn take_intents(&self, term: Term, limit: usize) -> Result<Vec<Intent>, Error>;
}

/// A node as the others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub name: NodeName,
    /// A random id of this start of the node.
    pub start_id: String,
    /// Address that others reach it at.
    pub url: Option<String>,
    /// Version of the program.
    pub program_version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// When it was seen last.
    pub seen_at: Timestamp,
}

/// Identity of the store and leadership.
#[async_trait]
pub trait LeadershipStore: Debug + Send + Sync + 'static {
    /// Returns the mark of the store's life.
    ///
    /// # Behavior
    /// - the incarnation stays the same when the store is opened again
    async fn incarnation(&self) -> Result<Incarnation, Error>;

    /// Starts a term: `max(term in the store, number of the election backend) + 1`, in the winner's first
    /// transaction.
    ///
    /// # Behavior
    /// - each term is higher than all before it and than the number of the election backend
    async fn begin_term(&self, backend_number: u64, node: &NodeName) -> Result<Term, Error>;

    /// Returns the newest term and its leader; none before the first election.
    ///
    /// # Behavior
    /// - the newest term is known with its leader
    async fn current_term(&self) -> Result<Option<(Term, NodeName)>, Error>;

    /// Stores or renews a node's row.
    ///
    /// # Behavior
    /// - a node has one row however often it is stored
    async fn put_node(&self, node: NodeRow) -> Result<(), Error>;

    /// Returns all nodes by name, at most [`PAGE_MAX`].
    ///
    /// # Behavior
    /// - nodes come back by name
    async fn nodes(&self) -> Result<Vec<NodeRow>, Error>;

    /// Makes sure that the store can take a durable write.
    ///
    /// # Behavior
    /// - a healthy store answers the check
    async fn check(&self) -> Result<(), Error>;

    /// Records what the store measures of itself as metrics, to be called every few seconds; most have nothing to say.
    async fn record_metrics(&self) {}
}

/// Why a store holds back all submissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum HoldCause {
    /// It was made from a copy of this incarnation: jobs may run that the copy does not know.
    Restored {
        /// Incarnation of the store that was copied.
        from: Incarnation,
    },
    /// Jobs were found alive that it does not know: it is newer or older than they are.
    UnknownJobs,
}

/// A hold: while it stands nothing is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why.
    pub cause: HoldCause,
    /// Since when.
    pub since: Timestamp,
    /// What is in the way now, for people.
    pub detail: String,
}

impl std::fmt::Display for Hold {
    /// Says what is waited for.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match &self.cause {
            HoldCause::Restored { .. } => "the end of a hold: the store was restored from a copy",
            HoldCause::UnknownJobs => "the end of a hold: jobs ran that the store does not know",
        };
        write!(f, "{why}; {}", self.detail)
    }
}

/// The pieces of a copy, in order; an error ends it.
pub type CopyPieces = tokio::sync::mpsc::Receiver<Result<Vec<u8>, Error>>;

/// Copies of the whole store, and what follows from being made from one.
#[async_trait]
pub trait CopyStore: Debug + Send + Sync + 'static {
    /// Begins a copy of one snapshot, in the bytes of [`backup`]. It is given up when nobody takes a piece for a while.
    ///
    /// # Behavior
    /// - a copy holds what was committed before it and nothing that came after
    /// - a copy is refused with `Unavailable` while another one is made
    /// - a store made from a copy has the tables, instances and queues of the copied one
    /// - a store made from a copy has another incarnation and knows the former one
    /// - a store made from a copy holds back submissions and has every table looked at
    /// - a store made from a copy explains no inflight and trusts no missing holder
    /// - a copy is refused by a store that holds tables
    async fn begin_copy(&self) -> Result<CopyPieces, Error>;

    /// Returns what holds back all submissions.
    ///
    /// # Behavior
    /// - a new store holds nothing back
    /// - a hold stands until it is lifted, over a restart too
    async fn hold(&self) -> Result<Option<Hold>, Error>;

    /// Stores a hold, or lifts it.
    ///
    /// # Behavior
    /// - a hold is refused with `Fenced` when the term is older than the newest one seen
    async fn set_hold(&self, term: Term, hold: Option<Hold>) -> Result<(), Error>;

    /// Returns the incarnations that this store had before it was restored, oldest first, at most
    /// [`backup::FORMER_MAX`].
    ///
    /// # Behavior
    /// - a new store has no former incarnations
    async fn former_incarnations(&self) -> Result<Vec<Incarnation>, Error>;
}

/// A whole store.
pub trait Store:
    RequestStore + TableStore + InstanceStore + SettingsStore + LeadershipStore + CopyStore
{
}

impl<T: RequestStore + TableStore + InstanceStore + SettingsStore + LeadershipStore + CopyStore> Store for T {}
