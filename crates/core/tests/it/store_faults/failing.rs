//! A store that fails the call it is told to, and passes all others on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tms_core::error::{Error, ErrorKind};
use tms_core::model::attempt::Attempt;
use tms_core::model::event::Event;
use tms_core::model::id::{Incarnation, InstanceId, NodeName, TableId, Term, Version};
use tms_core::model::instance::{Instance, InstanceKey};
use tms_core::model::queue::Queue;
use tms_core::model::request::{Accepted, HandOver};
use tms_core::model::table::{Table, TableRecord};
use tms_core::store::{
    CopyPieces, CopyStore, Hold, InstanceFilter, InstanceStore, InstanceWrite, Intent, LeadershipStore,
    LookCommit, NodeRow, Page, PruneRule, RequestStore, SettingsStore, Store, TableStore,
};

/// When a failing call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// It has no effect.
    Before,
    /// It is done; the answer is lost.
    After,
}

/// Passes calls on, and fails one.
#[derive(Debug)]
pub(super) struct FailingStore {
    inner: Arc<dyn Store>,
    fail: Option<(u64, When)>,
    n_calls: AtomicU64,
    is_down: AtomicBool,
    n_reads_to_pass: AtomicU64,
    n_reads_to_fail: AtomicU64,
    failed: Mutex<&'static str>,
    names: Mutex<Vec<&'static str>>,
}

impl FailingStore {
    pub(super) fn over(inner: Arc<dyn Store>, fail: Option<(u64, When)>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fail,
            n_calls: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            n_reads_to_pass: AtomicU64::new(0),
            n_reads_to_fail: AtomicU64::new(0),
            failed: Mutex::new("none"),
            names: Mutex::default(),
        })
    }

    /// The store below, which never fails.
    pub(super) fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    pub(super) fn n_calls(&self) -> u64 {
        self.n_calls.load(Ordering::Relaxed)
    }

    /// Returns the names of the calls so far, in order.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.names.lock().unwrap().clone()
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Makes `n` readings of an instance by its id fail, after so many that pass.
    pub(super) fn fail_reads_of_instances(&self, n: u64, n_passing: u64) {
        self.n_reads_to_pass.store(n_passing, Ordering::Relaxed);
        self.n_reads_to_fail.store(n, Ordering::Relaxed);
    }

    /// Returns the name of the call that failed.
    pub(super) fn failed_call(&self) -> &'static str {
        *self.failed.lock().unwrap()
    }

    async fn call<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let number = self.n_calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.names.lock().unwrap().push(name);
        // A store takes time: others get their turn, and paused time goes on.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let down = || Error::new(ErrorKind::Unavailable, name).with("reason", "lock time-out");
        if self.is_down.load(Ordering::Relaxed) {
            return Err(down());
        }
        match self.fail {
            Some((n, When::Before)) if n == number => {
                *self.failed.lock().unwrap() = name;
                Err(down())
            }
            Some((n, When::After)) if n == number => {
                *self.failed.lock().unwrap() = name;
                work.await.and_then(|_| Err(down()))
            }
            _ => work.await,
        }
    }
}

#[async_trait]
impl RequestStore for FailingStore {
    async fn accept(&self, batch: &[HandOver]) -> Result<Vec<Accepted>, Error> {
        self.call("accept", self.inner.accept(batch)).await
    }
}

#[async_trait]
impl TableStore for FailingStore {
    async fn get_table(&self, id: TableId) -> Result<Option<TableRecord>, Error> {
        self.call("get_table", self.inner.get_table(id)).await
    }

    async fn list_tables(&self, cursor: Option<&str>, limit: usize) -> Result<Page<TableRecord>, Error> {
        self.call("list_tables", self.inner.list_tables(cursor, limit)).await
    }

    async fn put_table(&self, table: Table, expect: Option<Version>) -> Result<Table, Error> {
        self.call("put_table", self.inner.put_table(table, expect)).await
    }

    async fn remove_table(&self, id: TableId) -> Result<(), Error> {
        self.call("remove_table", self.inner.remove_table(id)).await
    }

    async fn touched(&self, after: Option<TableId>, limit: usize) -> Result<Vec<TableId>, Error> {
        self.call("touched", self.inner.touched(after, limit)).await
    }

    async fn commit_look(&self, term: Term, look: LookCommit) -> Result<Vec<Instance>, Error> {
        self.call("commit_look", self.inner.commit_look(term, look)).await
    }
}

#[async_trait]
impl InstanceStore for FailingStore {
    async fn get_instance(&self, id: InstanceId) -> Result<Option<Instance>, Error> {
        let take = |n: &AtomicU64| {
            n.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        };
        if !take(&self.n_reads_to_pass) && take(&self.n_reads_to_fail) {
            return Err(Error::new(ErrorKind::Unavailable, "read an instance"));
        }
        self.call("get_instance", self.inner.get_instance(id)).await
    }

    async fn find_instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        self.call("find_instance", self.inner.find_instance(key)).await
    }

    async fn has_tombstone(&self, key: &InstanceKey) -> Result<bool, Error> {
        self.call("has_tombstone", self.inner.has_tombstone(key)).await
    }

    async fn write(&self, term: Option<Term>, writes: Vec<InstanceWrite>) -> Result<Vec<Instance>, Error> {
        if term.is_some() {
            // Longer than what others do, so that they get in between two writes of a Service.
            tokio::time::sleep(std::time::Duration::from_millis(4)).await;
        }
        self.call("write", self.inner.write(term, writes)).await
    }

    async fn list_instances(
        &self,
        filter: &InstanceFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Instance>, Error> {
        self.call("list_instances", self.inner.list_instances(filter, cursor, limit)).await
    }

    async fn live_attempts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Instance>, Error> {
        self.call("live_attempts", self.inner.live_attempts(cursor, limit)).await
    }

    async fn live_instances(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Instance>, Error> {
        self.call("live_instances", self.inner.live_instances(cursor, limit)).await
    }

    async fn live_of_table(&self, table: TableId) -> Result<Vec<Instance>, Error> {
        self.call("live_of_table", self.inner.live_of_table(table)).await
    }

    async fn events(&self, id: InstanceId) -> Result<Vec<Event>, Error> {
        self.call("events", self.inner.events(id)).await
    }

    async fn past_attempts(&self, id: InstanceId) -> Result<Vec<Attempt>, Error> {
        self.call("past_attempts", self.inner.past_attempts(id)).await
    }

    async fn remove_instance(&self, id: InstanceId, expect: Version, tombstone: bool) -> Result<(), Error> {
        self.call("remove_instance", self.inner.remove_instance(id, expect, tombstone)).await
    }

    async fn clear_tombstone(&self, key: &InstanceKey) -> Result<(), Error> {
        self.call("clear_tombstone", self.inner.clear_tombstone(key)).await
    }

    async fn prune(&self, term: Term, rule: PruneRule) -> Result<usize, Error> {
        self.call("prune", self.inner.prune(term, rule)).await
    }
}

#[async_trait]
impl SettingsStore for FailingStore {
    async fn queues(&self) -> Result<Vec<Queue>, Error> {
        self.call("queues", self.inner.queues()).await
    }

    async fn put_queue(&self, queue: Queue, expect: Option<Version>) -> Result<Queue, Error> {
        self.call("put_queue", self.inner.put_queue(queue, expect)).await
    }

    async fn change_seq(&self) -> Result<u64, Error> {
        self.call("change_seq", self.inner.change_seq()).await
    }

    async fn put_intent(&self, intent: Intent) -> Result<(), Error> {
        self.call("put_intent", self.inner.put_intent(intent)).await
    }

    async fn take_intents(&self, term: Term, limit: usize) -> Result<Vec<Intent>, Error> {
        self.call("take_intents", self.inner.take_intents(term, limit)).await
    }
}

#[async_trait]
impl LeadershipStore for FailingStore {
    async fn incarnation(&self) -> Result<Incarnation, Error> {
        self.call("incarnation", self.inner.incarnation()).await
    }

    async fn begin_term(&self, backend_number: u64, node: &NodeName) -> Result<Term, Error> {
        self.call("begin_term", self.inner.begin_term(backend_number, node)).await
    }

    async fn current_term(&self) -> Result<Option<(Term, NodeName)>, Error> {
        self.call("current_term", self.inner.current_term()).await
    }

    async fn put_node(&self, node: NodeRow) -> Result<(), Error> {
        self.call("put_node", self.inner.put_node(node)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        self.call("nodes", self.inner.nodes()).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.call("check", self.inner.check()).await
    }
}

#[async_trait]
impl CopyStore for FailingStore {
    async fn begin_copy(&self) -> Result<CopyPieces, Error> {
        self.call("begin_copy", self.inner.begin_copy()).await
    }

    async fn hold(&self) -> Result<Option<Hold>, Error> {
        self.call("hold", self.inner.hold()).await
    }

    async fn set_hold(&self, term: Term, hold: Option<Hold>) -> Result<(), Error> {
        self.call("set_hold", self.inner.set_hold(term, hold)).await
    }

    async fn former_incarnations(&self) -> Result<Vec<Incarnation>, Error> {
        self.call("former_incarnations", self.inner.former_incarnations()).await
    }
}
