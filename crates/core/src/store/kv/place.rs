//! Where an instance's rows lie: live or ended, by key, by table, by time of its end. Each instance is in all
//! of its indexes or in none, because every change goes through [`Placement`].

use serde::{Deserialize, Serialize};

use super::codec::encode;
use super::tx::Tx;
use super::{KeyRange, Keyspace, keys};
use crate::error::{Error, ErrorKind};
use crate::model::attempt::Attempt;
use crate::model::event::Event;
use crate::model::id::{InstanceId, TableId};
use crate::model::instance::{Instance, InstanceKey};
use crate::store::{ATTEMPTS_MAX, EVENTS_MAX};

/// An instance as it is stored, with the numbers that its next event and past attempt get.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    #[serde(rename = "i")]
    pub(super) instance: Instance,
    #[serde(rename = "e")]
    pub(super) n_events: u32,
    #[serde(rename = "a")]
    pub(super) n_past_attempts: u32,
}

impl Row {
    /// Returns its bytes.
    pub(super) fn encoded(&self) -> Result<bytes::Bytes, Error> {
        encode(&RowRef { i: &self.instance, e: self.n_events, a: self.n_past_attempts })
    }
}

#[derive(Serialize)]
struct RowRef<'a> {
    i: &'a Instance,
    e: u32,
    a: u32,
}

/// What the indexes hold of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) id: InstanceId,
    pub(super) key: InstanceKey,
    /// Milliseconds since 1970 when it has ended.
    pub(super) ended_millis: Option<i64>,
}

impl Placement {
    pub(super) fn of(instance: &Instance) -> Self {
        let ended_at = instance.ended_at.unwrap_or(instance.updated_at);
        Self {
            id: instance.id,
            key: instance.key.clone(),
            ended_millis: instance.state.is_ended().then(|| ended_at.timestamp_millis()),
        }
    }

    fn row(&self) -> (Keyspace, Vec<u8>) {
        match self.ended_millis {
            None => (Keyspace::Live, keys::of_instance(keys::LIVE_ROW, self.id)),
            Some(_) => (Keyspace::History, keys::of_instance(keys::HISTORY_ROW, self.id)),
        }
    }

    /// Returns the row that names the instance by its key. Ended ones without instant may be many; all others
    /// are alone in their slot.
    fn key_row(&self) -> Vec<u8> {
        if self.ended_millis.is_some() && self.key.instant.is_none() {
            return keys::ended_next(self.key.table, self.key.action, self.id);
        }
        keys::slot(&self.key)
    }

    fn enter(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let key_row = self.key_row();
        if tx.has(Keyspace::Index, &key_row)? {
            return Err(tx
                .error(ErrorKind::Conflict)
                .with("table", self.key.table)
                .with("action", self.key.action)
                .with("instant", self.key.instant.as_ref().map_or("next", |i| i.as_str()))
                .with("reason", "another instance has this key"));
        }
        tx.store(Keyspace::Index, key_row, &self.id)?;
        match self.ended_millis {
            None => {
                let place = keys::of_table_instance(keys::LIVE_OF_TABLE, self.key.table, self.id);
                tx.put(Keyspace::Live, place, bytes::Bytes::new());
            }
            Some(millis) => {
                tx.store(Keyspace::Index, keys::by_end(millis, self.id), &self.key)?;
                let n_ended = tx.number(keys::meta::N_ENDED)?;
                tx.set_number(keys::meta::N_ENDED, n_ended + 1);
            }
        }
        Ok(())
    }

    fn leave(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let (keyspace, row) = self.row();
        tx.delete(keyspace, row);
        tx.delete(Keyspace::Index, self.key_row());
        match self.ended_millis {
            None => tx.delete(
                Keyspace::Live,
                keys::of_table_instance(keys::LIVE_OF_TABLE, self.key.table, self.id),
            ),
            Some(millis) => {
                tx.delete(Keyspace::Index, keys::by_end(millis, self.id));
                let n_ended = tx.number(keys::meta::N_ENDED)?;
                tx.set_number(keys::meta::N_ENDED, n_ended.saturating_sub(1));
            }
        }
        Ok(())
    }

    /// Removes the instance with its events and past attempts.
    pub(super) fn forget(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.leave(tx)?;
        tx.delete(Keyspace::Index, keys::of_table_instance(keys::BY_TABLE, self.key.table, self.id));
        forget_details(tx, self.id)
    }
}

/// Removes the events and past attempts of an instance.
pub(super) fn forget_details(tx: &mut Tx<'_>, id: InstanceId) -> Result<(), Error> {
    let range = KeyRange::prefix(id.0.as_bytes());
    for (key, _) in tx.stored.scan(Keyspace::Details, &range, EVENTS_MAX + ATTEMPTS_MAX + 2)? {
        tx.delete(Keyspace::Details, key.to_vec());
    }
    Ok(())
}

/// Returns the row of an instance, live or ended.
pub(super) fn load(tx: &mut Tx<'_>, id: InstanceId) -> Result<Option<Row>, Error> {
    if let Some(row) = tx.read(Keyspace::Live, &keys::of_instance(keys::LIVE_ROW, id))? {
        return Ok(Some(row));
    }
    tx.read(Keyspace::History, &keys::of_instance(keys::HISTORY_ROW, id))
}

/// Stores a new instance, or the next state of one whose row was `before`; its indexes follow.
pub(super) fn store(
    tx: &mut Tx<'_>,
    before: Option<Row>,
    after: &Instance,
    events: &[Event],
    past_attempt: Option<&Attempt>,
) -> Result<(), Error> {
    let placement = Placement::of(after);
    let had_slot = before.as_ref().is_some_and(|row| row.instance.takes_slot());
    let (mut n_events, mut n_past_attempts) = (0, 0);
    match before {
        None => {
            placement.enter(tx)?;
            let by_table = keys::of_table_instance(keys::BY_TABLE, after.key.table, after.id);
            tx.put(Keyspace::Index, by_table, bytes::Bytes::new());
        }
        Some(row) => {
            (n_events, n_past_attempts) = (row.n_events, row.n_past_attempts);
            let old = Placement::of(&row.instance);
            if old != placement {
                old.leave(tx)?;
                placement.enter(tx)?;
            }
        }
    }
    keep_slot(tx, had_slot, after)?;
    for event in events {
        add_event(tx, after.id, n_events, event)?;
        n_events += 1;
    }
    if let Some(attempt) = past_attempt {
        add_past_attempt(tx, after.id, n_past_attempts, attempt)?;
        n_past_attempts += 1;
    }
    let (keyspace, key) = placement.row();
    let row = encode(&RowRef { i: after, e: n_events, a: n_past_attempts })?;
    tx.put(keyspace, key, row);
    Ok(())
}

/// One live attempt per table. The row of the slot tells, so that other rows of the table, readable or not, need not.
fn keep_slot(tx: &mut Tx<'_>, had_slot: bool, after: &Instance) -> Result<(), Error> {
    if had_slot == after.takes_slot() {
        return Ok(());
    }
    let slot = keys::of_table(keys::SLOT, after.key.table);
    let holder = slot_holder(tx, after.key.table)?;
    if had_slot {
        if holder == Some(after.id) {
            tx.delete(Keyspace::Live, slot);
        }
        return Ok(());
    }
    match holder {
        Some(other) if other != after.id => Err(slot_is_taken(tx, after.key.table, other)),
        _ => tx.store(Keyspace::Live, slot, &after.id),
    }
}

/// Returns the instance whose attempt is live on a table.
pub(super) fn slot_holder(tx: &mut Tx<'_>, table: TableId) -> Result<Option<InstanceId>, Error> {
    tx.read(Keyspace::Live, &keys::of_table(keys::SLOT, table))
}

pub(super) fn slot_is_taken(tx: &Tx<'_>, table: TableId, holder: InstanceId) -> Error {
    tx.error(ErrorKind::Conflict)
        .with("table", table)
        .with("instance", holder)
        .because("an attempt of it is live")
}

/// The first event stays, since it tells where the instance came from; of the others the oldest goes.
fn add_event(tx: &mut Tx<'_>, id: InstanceId, seq: u32, event: &Event) -> Result<(), Error> {
    let kept = u32::try_from(EVENTS_MAX).unwrap_or(u32::MAX);
    if seq >= kept {
        tx.delete(Keyspace::Details, keys::detail(keys::EVENT, id, seq - kept + 1));
    }
    tx.store(Keyspace::Details, keys::detail(keys::EVENT, id, seq), event)
}

fn add_past_attempt(tx: &mut Tx<'_>, id: InstanceId, seq: u32, attempt: &Attempt) -> Result<(), Error> {
    let kept = u32::try_from(ATTEMPTS_MAX).unwrap_or(u32::MAX);
    if seq >= kept {
        tx.delete(Keyspace::Details, keys::detail(keys::PAST_ATTEMPT, id, seq - kept));
    }
    tx.store(Keyspace::Details, keys::detail(keys::PAST_ATTEMPT, id, seq), attempt)
}
