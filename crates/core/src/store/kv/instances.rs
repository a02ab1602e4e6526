//! Instances with their attempts and events.

use async_trait::async_trait;

use super::codec::{bad_row, decode, readable};
use super::place::{self, Placement, Row};
use super::tx::{Tx, View};
use super::{KeyRange, Keyspace, KvStore, keys, listing, prune};
use crate::error::{Error, ErrorKind};
use crate::model::attempt::Attempt;
use crate::model::event::Event;
use crate::model::id::{InstanceId, TableId, Term, Version};
use crate::model::instance::{Instance, InstanceKey};
use crate::store::{
    ATTEMPTS_MAX, BATCH_MAX, EVENTS_MAX, Expect, InstanceFilter, InstanceStore, InstanceWrite, Page,
    PruneRule,
};

/// Most live instances of one table that are returned; a sane table has a few.
const LIVE_OF_TABLE_MAX: usize = 100_000;

#[async_trait]
impl InstanceStore for KvStore {
    async fn get_instance(&self, id: InstanceId) -> Result<Option<Instance>, Error> {
        self.view("read an instance", move |view| find_row(view, id)).await
    }

    async fn find_instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        let key = key.clone();
        self.view("find an instance", move |view| match id_of(view, &key)? {
            Some(id) => find_row(view, id),
            None => Ok(None),
        })
        .await
    }

    async fn has_tombstone(&self, key: &InstanceKey) -> Result<bool, Error> {
        let row = keys::tombstone(key);
        self.view("read a tombstone", move |view| Ok(view.get(Keyspace::Index, &row)?.is_some())).await
    }

    async fn write(&self, term: Option<Term>, writes: Vec<InstanceWrite>) -> Result<Vec<Instance>, Error> {
        self.transact("change instances", move |tx| {
            if let Some(term) = term {
                tx.fence(term)?;
            }
            apply_all(tx, &writes)
        })
        .await
    }

    async fn list_instances(
        &self,
        filter: &InstanceFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Instance>, Error> {
        let filter = filter.clone();
        let before = cursor.map(listing::instance_cursor).transpose()?;
        self.view("list instances", move |view| listing::newest_first(view, &filter, before, limit)).await
    }

    async fn live_instances(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Instance>, Error> {
        let after = cursor.map(listing::instance_cursor).transpose()?;
        self.view("list live instances", move |view| listing::live(view, after, limit)).await
    }

    async fn live_attempts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Instance>, Error> {
        let after: Option<TableId> =
            cursor.map(|text| text.parse().map_err(|_| listing::bad_cursor(text))).transpose()?;
        self.view("list live attempts", move |view| listing::live_attempts(view, after, limit)).await
    }

    async fn live_of_table(&self, table: TableId) -> Result<Vec<Instance>, Error> {
        self.view("list the live instances of a table", move |view| {
            let range = KeyRange::prefix(&keys::of_table(keys::LIVE_OF_TABLE, table));
            let found = view.scan(Keyspace::Live, &range, LIVE_OF_TABLE_MAX)?;
            let ids = found.iter().filter_map(|(key, _)| keys::instance_at(key, 17));
            Ok(ids.filter_map(|id| readable(find_row(view, id)).flatten()).collect())
        })
        .await
    }

    async fn events(&self, id: InstanceId) -> Result<Vec<Event>, Error> {
        self.view("read the events of an instance", move |view| details(view, keys::EVENT, id, EVENTS_MAX))
            .await
    }

    async fn past_attempts(&self, id: InstanceId) -> Result<Vec<Attempt>, Error> {
        self.view("read the past attempts of an instance", move |view| {
            details(view, keys::PAST_ATTEMPT, id, ATTEMPTS_MAX)
        })
        .await
    }

    async fn remove_instance(&self, id: InstanceId, expect: Version, tombstone: bool) -> Result<(), Error> {
        self.transact("remove an instance", move |tx| {
            let Some(row) = place::load(tx, id)? else {
                return Err(tx.error(ErrorKind::NotFound).with("instance", id));
            };
            if row.instance.version != expect {
                return Err(stale(tx, id, expect, Some(row.instance.version)));
            }
            if row.instance.takes_slot() {
                return Err(tx
                    .error(ErrorKind::Conflict)
                    .with("instance", id)
                    .because("an attempt of it is live")
                    .hint("cancel it first and wait until its attempt is over"));
            }
            if tombstone {
                tx.put(Keyspace::Index, keys::tombstone(&row.instance.key), bytes::Bytes::new());
            }
            Placement::of(&row.instance).forget(tx)
        })
        .await
    }

    async fn clear_tombstone(&self, key: &InstanceKey) -> Result<(), Error> {
        let row = keys::tombstone(key);
        self.transact("clear a tombstone", move |tx| {
            if tx.has(Keyspace::Index, &row)? {
                tx.delete(Keyspace::Index, row.clone());
            }
            Ok(())
        })
        .await
    }

    async fn prune(&self, term: Term, rule: PruneRule) -> Result<usize, Error> {
        self.transact("prune the history", move |tx| {
            tx.fence(term)?;
            prune::prune(tx, &rule)
        })
        .await
    }
}

/// Makes all changes, or returns why one is refused.
pub(super) fn apply_all(tx: &mut Tx<'_>, writes: &[InstanceWrite]) -> Result<Vec<Instance>, Error> {
    if writes.len() > BATCH_MAX {
        return Err(tx
            .error(ErrorKind::Invalid)
            .with("changes", writes.len())
            .with("most", BATCH_MAX)
            .hint("split the batch"));
    }
    writes.iter().map(|write| apply(tx, write)).collect()
}

fn apply(tx: &mut Tx<'_>, write: &InstanceWrite) -> Result<Instance, Error> {
    let mut after = write.after.clone();
    let before = expected_row(tx, write)?;
    match &before {
        None => {
            let table = keys::of_table(keys::TABLE_ROW, after.key.table);
            if !tx.has(Keyspace::Tables, &table)? {
                return Err(tx.error(ErrorKind::NotFound).with("table", after.key.table));
            }
            after.version = Version::default().next();
        }
        Some(row) => {
            check_key(tx, &row.instance.key, &after.key)?;
            after.version = row.instance.version.next();
        }
    }
    place::store(tx, before, &after, &write.events, write.past_attempt.as_ref())?;
    Ok(after)
}

/// Returns the stored row that a change starts from, or refuses the change.
fn expected_row(tx: &mut Tx<'_>, write: &InstanceWrite) -> Result<Option<Row>, Error> {
    let id = write.after.id;
    let stored = place::load(tx, id)?;
    match (write.expect, stored) {
        (Expect::Absent, None) => Ok(None),
        (Expect::Version(expect), Some(row)) if row.instance.version == expect => Ok(Some(row)),
        (Expect::Absent, Some(row)) => Err(stale(tx, id, Version::default(), Some(row.instance.version))),
        (Expect::Version(expect), row) => Err(stale(tx, id, expect, row.map(|r| r.instance.version))),
    }
}

/// A key stays for life, but for the instant that work without one gets when its plan appears.
fn check_key(tx: &Tx<'_>, before: &InstanceKey, after: &InstanceKey) -> Result<(), Error> {
    let gets_instant = before.instant.is_none();
    let keeps_instant = before.instant == after.instant;
    if before.table == after.table && before.action == after.action && (gets_instant || keeps_instant) {
        return Ok(());
    }
    Err(tx
        .error(ErrorKind::Invalid)
        .with("table", before.table)
        .with("action", before.action)
        .with("reason", "an instance keeps its table, its action and the instant that it has"))
}

fn stale(tx: &Tx<'_>, id: InstanceId, expect: Version, found: Option<Version>) -> Error {
    tx.error(ErrorKind::Conflict)
        .with("instance", id)
        .with("expected version", expect.0)
        .with("found", found.map_or_else(|| "none".to_owned(), |v| v.0.to_string()))
}

/// Returns an instance, live or ended.
pub(super) fn find_row(view: &View<'_>, id: InstanceId) -> Result<Option<Instance>, Error> {
    let live = view.read::<Row>(Keyspace::Live, &keys::of_instance(keys::LIVE_ROW, id))?;
    let row = match live {
        Some(row) => Some(row),
        None => view.read::<Row>(Keyspace::History, &keys::of_instance(keys::HISTORY_ROW, id))?,
    };
    Ok(row.map(|row| row.instance))
}

/// Returns the instance of a key: the live one, else the newest that ended.
fn id_of(view: &View<'_>, key: &InstanceKey) -> Result<Option<InstanceId>, Error> {
    let slot = view.read(Keyspace::Index, &keys::slot(key))?;
    if slot.is_some() || key.instant.is_some() {
        return Ok(slot);
    }
    let range = KeyRange::prefix(&keys::ended_next_prefix(key.table, key.action));
    let newest = view.scan_back(Keyspace::Index, &range, 1)?;
    newest.first().map(|(row, value)| decode(Keyspace::Index, row, value)).transpose()
}

fn details<T: serde::de::DeserializeOwned>(
    view: &View<'_>,
    kind: u8,
    id: InstanceId,
    limit: usize,
) -> Result<Vec<T>, Error> {
    let range = KeyRange::prefix(&keys::detail_prefix(kind, id));
    let found = view.scan(Keyspace::Details, &range, limit)?;
    Ok(found.iter().filter_map(|(key, value)| readable(decode(Keyspace::Details, key, value))).collect())
}

/// Returns the instance id in an index row, or why it cannot be read.
pub(super) fn id_in(keyspace: Keyspace, key: &[u8], from: usize) -> Result<InstanceId, Error> {
    keys::instance_at(key, from).ok_or_else(|| bad_row(keyspace, key))
}
