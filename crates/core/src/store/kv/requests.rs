//! Hand-overs: touches and named instants.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::tx::Tx;
use super::{Keyspace, KvStore, keys, place};
use crate::error::{Error, ErrorKind};
use crate::model::action::{Action, Instant};
use crate::model::event::{Actor, Event};
use crate::model::id::{TableId, Version};
use crate::model::instance::{Instance, InstanceKey, InstanceState};
use crate::model::policy::TableSettings;
use crate::model::request::{Accepted, HINTS_MAX, HandOver, Trigger};
use crate::model::table::{Table, Touch};
use crate::store::{BATCH_MAX, RequestStore};

#[async_trait]
impl RequestStore for KvStore {
    async fn accept(&self, batch: &[HandOver]) -> Result<Vec<Accepted>, Error> {
        let read_before: Vec<u64> =
            batch.iter().map(|one| self.covered.n_reads(TableId::of(&one.base_path))).collect();
        let batch: Arc<[HandOver]> = batch.into();
        let stored = Arc::clone(&batch);
        let accepted = self.transact_first("store hand-overs", move |tx| accept_all(tx, &batch)).await?;
        for ((one, n_reads), accepted) in stored.iter().zip(read_before).zip(&accepted) {
            self.covered.stored(one, n_reads, accepted);
        }
        Ok(accepted)
    }

    fn covered(&self, one: &HandOver) -> Option<Accepted> {
        self.covered.answer(one).filter(|_| self.is_in_place())
    }
}

/// The touches that a batch reads once and writes once, however many of its hand-overs are of one table.
type Touches = BTreeMap<TableId, Touch>;

fn accept_all(tx: &mut Tx<'_>, batch: &[HandOver]) -> Result<Vec<Accepted>, Error> {
    let n_rows: usize = batch.iter().map(|one| 1 + one.hints.len()).sum();
    let too_many_hints = batch.iter().any(|one| one.hints.len() > HINTS_MAX);
    if n_rows > BATCH_MAX || too_many_hints {
        return Err(tx
            .error(ErrorKind::Invalid)
            .with("hand-overs and instants", n_rows)
            .with("most per batch", BATCH_MAX)
            .with("most instants per hand-over", HINTS_MAX)
            .hint("split the batch"));
    }
    let mut touches = Touches::new();
    let accepted: Result<Vec<_>, Error> = batch.iter().map(|one| accept(tx, &mut touches, one)).collect();
    let accepted = accepted?;
    for (table, touch) in touches {
        tx.store(Keyspace::Touches, keys::of_table(keys::TOUCH_ROW, table), &touch)?;
    }
    Ok(accepted)
}

fn accept(tx: &mut Tx<'_>, touches: &mut Touches, one: &HandOver) -> Result<Accepted, Error> {
    let table = TableId::of(&one.base_path);
    let mut is_new_table = false;
    let mut touch = match touches.remove(&table) {
        Some(touch) => touch,
        None => match tx.read(Keyspace::Touches, &keys::of_table(keys::TOUCH_ROW, table))? {
            Some(touch) => touch,
            None => {
                is_new_table = true;
                begin_table(tx, table, one)?
            }
        },
    };
    let is_writer = matches!(one.trigger, Trigger::Callback | Trigger::Client);
    // A person's spelling holds until a writer announces its own.
    let is_announced = is_writer || touch.last_heard.is_none();
    if is_announced && !one.spelling.is_empty() {
        touch.spelling.clone_from(&one.spelling);
    }
    if one.database.is_some() {
        touch.database.clone_from(&one.database);
    }
    if one.table_name.is_some() {
        touch.name.clone_from(&one.table_name);
    }
    if one.touch {
        touch.touch += 1;
        if is_writer {
            touch.last_heard = touch.last_heard.max(Some(one.at));
        }
        touch.trigger = Some(one.trigger);
        mark_touched(tx, table)?;
    }
    let mut n_hinted = 0;
    for (action, instant) in &one.hints {
        n_hinted += usize::from(hint(tx, table, *action, instant, one)?);
    }
    let accepted = Accepted { touch: touch.touch, n_hinted, is_new_table };
    touches.insert(table, touch);
    Ok(accepted)
}

fn begin_table(tx: &mut Tx<'_>, id: TableId, one: &HandOver) -> Result<Touch, Error> {
    let table = Table {
        id,
        base_path: one.base_path.clone(),
        is_registered: false,
        settings: TableSettings::default(),
        acknowledged_at: None,
        created_at: one.at,
        version: Version::default().next(),
    };
    tx.store(Keyspace::Tables, keys::of_table(keys::TABLE_ROW, id), &table)?;
    first_touch(tx)
}

/// Returns the touch of a table that becomes known; see [`keys::meta::TOUCH_FLOOR`].
pub(super) fn first_touch(tx: &mut Tx<'_>) -> Result<Touch, Error> {
    Ok(Touch { touch: tx.number(keys::meta::TOUCH_FLOOR)?, ..Touch::default() })
}

fn mark_touched(tx: &mut Tx<'_>, table: TableId) -> Result<(), Error> {
    let row = keys::of_table(keys::TOUCHED, table);
    // Read first: a busy table is touched already, and its page need not be written again.
    if !tx.has(Keyspace::Touches, &row)? {
        tx.put(Keyspace::Touches, row, Bytes::new());
    }
    Ok(())
}

/// Stores a named instant unless it is known; returns whether it was new.
fn hint(
    tx: &mut Tx<'_>,
    table: TableId,
    action: Action,
    instant: &Instant,
    one: &HandOver,
) -> Result<bool, Error> {
    let key = InstanceKey { table, action, instant: Some(instant.clone()) };
    let is_known =
        tx.has(Keyspace::Index, &keys::slot(&key))? || tx.has(Keyspace::Index, &keys::tombstone(&key))?;
    if is_known {
        return Ok(false);
    }
    let instance = hinted(key, one);
    let event = Event {
        at: one.at,
        actor: match one.trigger {
            Trigger::Callback | Trigger::Client => Actor::Writer,
            Trigger::Api | Trigger::Heartbeat | Trigger::Policy => Actor::User(String::new()),
        },
        from: String::new(),
        to: instance.state.as_str().to_owned(),
        attempt: None,
        reason: "named by a request".to_owned(),
    };
    place::store(tx, None, &instance, &[event], None)?;
    Ok(true)
}

fn hinted(key: InstanceKey, one: &HandOver) -> Instance {
    let mut instance = Instance::new(key, InstanceState::Hinted, one.trigger, one.at);
    instance.is_asked_for = one.trigger == Trigger::Api;
    instance.queue = one.queue.clone().unwrap_or_default();
    instance.execution_engine.clone_from(&one.execution_engine);
    instance.version = Version::default().next();
    instance
}
