//! Tables: settings, touches, looks.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::codec::{decode, readable};
use super::place::{self, Placement};
use super::requests::first_touch;
use super::tx::{Tx, View};
use super::{KeyRange, Keyspace, KvStore, Pair, instances, keys, listing};
use crate::error::{Error, ErrorKind};
use crate::model::id::{TableId, Term, Version};
use crate::model::instance::Instance;
use crate::model::table::{LookState, Table, TableRecord, Touch};
use crate::store::{LookCommit, Page, TableStore};

/// Instances or index rows of a table that one transaction of its removal takes away.
const REMOVE_STEP_ROWS: usize = 200;
/// Most transactions of one removal; a table with more rows needs another call.
const REMOVE_STEPS_MAX: usize = 10_000;

#[async_trait]
impl TableStore for KvStore {
    async fn get_table(&self, id: TableId) -> Result<Option<TableRecord>, Error> {
        let covered = Arc::clone(&self.covered);
        self.view("read a table", move |view| {
            covered.was_read(id);
            let key = keys::of_table(keys::TABLE_ROW, id);
            view.read(Keyspace::Tables, &key)?.map(|table| record(view, table)).transpose()
        })
        .await
    }

    async fn list_tables(&self, cursor: Option<&str>, limit: usize) -> Result<Page<TableRecord>, Error> {
        let after: Option<TableId> =
            cursor.map(|text| text.parse().map_err(|_| listing::bad_cursor(text))).transpose()?;
        let limit = listing::page_limit(limit);
        let covered = Arc::clone(&self.covered);
        self.view("list tables", move |view| {
            let mut range = KeyRange::prefix(&[keys::TABLE_ROW]);
            if let Some(after) = after {
                range = range.after(&keys::of_table(keys::TABLE_ROW, after));
            }
            let mut rows = view.scan(Keyspace::Tables, &range, limit + 1)?;
            let has_more = rows.len() > limit;
            rows.truncate(limit);
            let last = rows.last().and_then(|(key, _)| keys::table_at(key, 1));
            let read = |(key, value): &Pair| {
                let table: Table = decode(Keyspace::Tables, key, value)?;
                covered.was_read(table.id);
                record(view, table)
            };
            let items = rows.iter().filter_map(|row| readable(read(row))).collect();
            Ok(Page { items, next: last.filter(|_| has_more).map(|id| id.to_string()) })
        })
        .await
    }

    async fn put_table(&self, table: Table, expect: Option<Version>) -> Result<Table, Error> {
        self.transact("store a table", move |tx| put_table(tx, table.clone(), expect)).await
    }

    async fn remove_table(&self, id: TableId) -> Result<(), Error> {
        for step in 0..REMOVE_STEPS_MAX {
            let covered = Arc::clone(&self.covered);
            let body = move |tx: &mut Tx<'_>| {
                let is_done = remove_step(tx, id, step == 0)?;
                // Within the turn of the transaction, which goes on when its caller does not: no touch of before may
                // answer for a table that is gone.
                covered.was_read(id);
                Ok(is_done)
            };
            if self.transact("remove a table", body).await? {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "remove a table")
            .with("table", id)
            .hint("it has more rows than one call removes: call again to go on"))
    }

    async fn touched(&self, after: Option<TableId>, limit: usize) -> Result<Vec<TableId>, Error> {
        let limit = listing::page_limit(limit);
        self.view("list touched tables", move |view| {
            let mut range = KeyRange::prefix(&[keys::TOUCHED]);
            if let Some(after) = after {
                range = range.after(&keys::of_table(keys::TOUCHED, after));
            }
            let rows = view.scan(Keyspace::Touches, &range, limit)?;
            Ok(rows.iter().filter_map(|(key, _)| keys::table_at(key, 1)).collect())
        })
        .await
    }

    async fn commit_look(&self, term: Term, look: LookCommit) -> Result<Vec<Instance>, Error> {
        self.transact("store a look", move |tx| {
            tx.fence(term)?;
            commit_look(tx, &look)
        })
        .await
    }
}

fn record(view: &View<'_>, table: Table) -> Result<TableRecord, Error> {
    let touch = view.read(Keyspace::Touches, &keys::of_table(keys::TOUCH_ROW, table.id))?;
    let look = view.read(Keyspace::Tables, &keys::of_table(keys::LOOK_ROW, table.id))?;
    Ok(TableRecord { table, touch: touch.unwrap_or_default(), look: look.unwrap_or_default() })
}

fn put_table(tx: &mut Tx<'_>, mut table: Table, expect: Option<Version>) -> Result<Table, Error> {
    if TableId::of(&table.base_path) != table.id {
        return Err(tx
            .error(ErrorKind::Invalid)
            .with("table", &table.base_path)
            .with("reason", "its id is not that of its base path"));
    }
    let row = keys::of_table(keys::TABLE_ROW, table.id);
    let stored: Option<Table> = tx.read(Keyspace::Tables, &row)?;
    table.version = match (&stored, expect) {
        (None, None) => {
            let touch = first_touch(tx)?;
            tx.store(Keyspace::Touches, keys::of_table(keys::TOUCH_ROW, table.id), &touch)?;
            Version::default().next()
        }
        (Some(_), None) => {
            return Err(tx.error(ErrorKind::AlreadyExists).with("table", &table.base_path));
        }
        (Some(stored), Some(expect)) if stored.version == expect => expect.next(),
        (stored, Some(expect)) => {
            let found = stored.as_ref().map_or_else(|| "none".to_owned(), |t| t.version.0.to_string());
            return Err(tx
                .error(ErrorKind::Conflict)
                .with("table", &table.base_path)
                .with("expected version", expect.0)
                .with("found", found));
        }
    };
    tx.store(Keyspace::Tables, row, &table)?;
    tx.raise_change_seq()?;
    Ok(table)
}

fn commit_look(tx: &mut Tx<'_>, look: &LookCommit) -> Result<Vec<Instance>, Error> {
    let touch: Option<Touch> = tx.read(Keyspace::Touches, &keys::of_table(keys::TOUCH_ROW, look.table))?;
    let Some(touch) = touch else {
        return Err(tx.error(ErrorKind::NotFound).with("table", look.table));
    };
    if look.writes.iter().any(|write| write.after.key.table != look.table) {
        return Err(tx
            .error(ErrorKind::Invalid)
            .with("table", look.table)
            .with("reason", "a look changes instances of its own table only"));
    }
    let touched = keys::of_table(keys::TOUCHED, look.table);
    if touch.touch > look.state.looked {
        tx.put(Keyspace::Touches, touched, Bytes::new());
    } else {
        tx.delete(Keyspace::Touches, touched);
    }
    write_look(tx, look.table, &look.state)?;
    instances::apply_all(tx, &look.writes)
}

fn write_look(tx: &mut Tx<'_>, table: TableId, state: &LookState) -> Result<(), Error> {
    tx.store(Keyspace::Tables, keys::of_table(keys::LOOK_ROW, table), state)
}

/// Takes some rows of a table away, the table itself with the last ones; returns whether all are gone. In
/// steps, since a table may have more history than one transaction should hold.
fn remove_step(tx: &mut Tx<'_>, id: TableId, is_first: bool) -> Result<bool, Error> {
    let row = keys::of_table(keys::TABLE_ROW, id);
    if !tx.has(Keyspace::Tables, &row)? {
        return if is_first { Err(tx.error(ErrorKind::NotFound).with("table", id)) } else { Ok(true) };
    }
    refuse_live_attempts(tx, id)?;
    remove_instances(tx, id)?;
    if tx.n_writes() == 0 {
        // Whatever bad rows left behind, and the tombstones.
        for kind in [keys::BY_KEY, keys::TOMBSTONE] {
            remove_range(tx, Keyspace::Index, &keys::of_table(kind, id))?;
        }
        remove_range(tx, Keyspace::Live, &keys::of_table(keys::LIVE_OF_TABLE, id))?;
    }
    if tx.n_writes() > 0 {
        return Ok(false);
    }
    let touch_row = keys::of_table(keys::TOUCH_ROW, id);
    let touch = tx.read::<Touch>(Keyspace::Touches, &touch_row)?.unwrap_or_default();
    let floor = tx.number(keys::meta::TOUCH_FLOOR)?;
    tx.set_number(keys::meta::TOUCH_FLOOR, floor.max(touch.touch));
    tx.delete(Keyspace::Touches, touch_row);
    tx.delete(Keyspace::Touches, keys::of_table(keys::TOUCHED, id));
    tx.delete(Keyspace::Tables, keys::of_table(keys::LOOK_ROW, id));
    tx.delete(Keyspace::Tables, row);
    tx.raise_change_seq()?;
    Ok(true)
}

fn refuse_live_attempts(tx: &mut Tx<'_>, id: TableId) -> Result<(), Error> {
    match place::slot_holder(tx, id)? {
        Some(holder) => {
            Err(place::slot_is_taken(tx, id, holder)
                .hint("cancel it first and wait until its attempt is over"))
        }
        None => Ok(()),
    }
}

fn remove_instances(tx: &mut Tx<'_>, id: TableId) -> Result<(), Error> {
    let range = KeyRange::prefix(&keys::of_table(keys::BY_TABLE, id));
    for (key, _) in tx.stored.scan(Keyspace::Index, &range, REMOVE_STEP_ROWS)? {
        let instance = instances::id_in(Keyspace::Index, &key, 17)?;
        match readable(place::load(tx, instance)) {
            Some(Some(row)) => Placement::of(&row.instance).forget(tx)?,
            Some(None) | None => {
                tx.delete(Keyspace::History, keys::of_instance(keys::HISTORY_ROW, instance));
                place::forget_details(tx, instance)?;
                tx.delete(Keyspace::Index, key.to_vec());
            }
        }
    }
    Ok(())
}

fn remove_range(tx: &mut Tx<'_>, keyspace: Keyspace, prefix: &[u8]) -> Result<(), Error> {
    for (key, _) in tx.stored.scan(keyspace, &KeyRange::prefix(prefix), REMOVE_STEP_ROWS)? {
        tx.delete(keyspace, key.to_vec());
    }
    Ok(())
}
