//! Signals to the leader's Services. They only make things faster: work is found by level, so a lost one costs a scan.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::model::id::{InstanceId, TableId};

/// Most changed things that are remembered by name; beyond it the leader reads all anew.
const CHANGED_MAX: usize = 100_000;

/// Wakes one Service. A wake during a pass leads to one more pass.
#[derive(Clone, Debug, Default)]
pub struct Wake {
    notify: Arc<Notify>,
}

impl Wake {
    /// Wakes it.
    pub fn wake(&self) {
        self.notify.notify_one();
    }

    /// Waits for a wake.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }
}

/// What changed since it was asked last.
#[derive(Debug, Default)]
pub struct Changed {
    /// Instances that a Manager wrote.
    pub instances: BTreeSet<InstanceId>,
    /// Tables that were registered or removed, or whose settings changed.
    pub tables: BTreeSet<TableId>,
    /// Tables that were handed over.
    pub touched: HashSet<TableId>,
    /// More instances than can be named changed.
    pub is_overflown: bool,
    /// More tables than can be named changed or were handed over.
    pub has_more_tables: bool,
}

/// Tables that changed or were handed over since it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedTables {
    /// Registered or removed ones, and those whose settings changed.
    pub changed: BTreeSet<TableId>,
    /// Those that were handed over.
    pub touched: HashSet<TableId>,
    /// There were more than could be named.
    pub has_more: bool,
}

/// The signals of one process.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    /// Looks at tables.
    pub timeline: Wake,
    /// Starts attempts.
    pub dispatch: Wake,
    /// Watches attempts.
    pub monitor: Wake,
    /// Reads the whole live set anew.
    pub sweep: Wake,
    changed: Arc<Mutex<Changed>>,
}

impl Wakes {
    /// A Manager wrote this instance.
    pub fn instance_changed(&self, id: InstanceId) {
        let mut changed = self.lock();
        if changed.instances.len() < CHANGED_MAX {
            changed.instances.insert(id);
        } else {
            changed.is_overflown = true;
        }
        drop(changed);
        self.monitor.wake();
        self.dispatch.wake();
    }

    /// A table was registered or removed, or its settings changed.
    pub fn table_changed(&self, id: TableId) {
        let mut changed = self.lock();
        if changed.tables.len() < CHANGED_MAX {
            changed.tables.insert(id);
        } else {
            changed.has_more_tables = true;
        }
        drop(changed);
        self.timeline.wake();
    }

    /// A table was handed over.
    pub fn table_touched(&self, id: TableId) {
        let mut changed = self.lock();
        let is_news = if changed.touched.len() < CHANGED_MAX {
            changed.touched.insert(id)
        } else {
            !std::mem::replace(&mut changed.has_more_tables, true)
        };
        drop(changed);
        if is_news {
            self.timeline.wake();
        }
    }

    /// Takes the changed instances away.
    #[must_use]
    pub fn take_instances(&self) -> (BTreeSet<InstanceId>, bool) {
        let mut changed = self.lock();
        (std::mem::take(&mut changed.instances), std::mem::take(&mut changed.is_overflown))
    }

    /// Gives a changed instance back that could not be read; the next pass takes it again. It wakes nobody, so that a store
    /// that is away is not asked in a loop.
    pub(crate) fn put_back(&self, instance: InstanceId) {
        self.lock().instances.insert(instance);
    }

    /// Takes the tables away that changed or were handed over.
    #[must_use]
    pub fn take_tables(&self) -> ChangedTables {
        let mut changed = self.lock();
        ChangedTables {
            changed: std::mem::take(&mut changed.tables),
            touched: std::mem::take(&mut changed.touched),
            has_more: std::mem::take(&mut changed.has_more_tables),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
