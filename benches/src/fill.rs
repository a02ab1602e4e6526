//! Fills stores through their traits, as a server would have filled them.

use std::sync::Arc;

use anyhow::{Context, Result};
use chrono::{DateTime, TimeDelta};
use tms_core::clock::Timestamp;
use tms_core::model::action::{Action, Instant};
use tms_core::model::id::TableId;
use tms_core::model::instance::{Instance, InstanceKey, InstanceState, WaitReason};
use tms_core::model::path::{BasePath, PathRules};
use tms_core::model::request::{HandOver, Trigger};
use tms_core::store::{Expect, InstanceWrite, Store};

/// Rows of one batch.
const BATCH: u64 = 5_000;

/// Returns the moment that made rows count from.
pub(crate) fn day_zero() -> Timestamp {
    DateTime::from_timestamp_millis(1_800_000_000_000).unwrap_or_default()
}

/// Returns the path of a made table; nothing lies there.
///
/// # Errors
/// Never in practice.
pub(crate) fn path(number: u64) -> Result<BasePath> {
    PathRules::default().canonical(&format!("file:/nowhere/lake/t{number}")).context("a bad path")
}

/// Returns an instant; higher numbers are later.
///
/// # Errors
/// Never in practice.
pub(crate) fn instant(number: u64) -> Result<Instant> {
    format!("{}", 20_270_101_000_000_000_u64 + number).parse().context("a bad instant")
}

/// Returns a waiting compaction, made `number` milliseconds after `zero`.
///
/// # Errors
/// Never in practice.
pub(crate) fn waiting(table: TableId, number: u64, zero: Timestamp) -> Result<Instance> {
    let key = InstanceKey { table, action: Action::Compaction, instant: Some(instant(number)?) };
    let state = InstanceState::Pending { reason: WaitReason::Ready, not_before: None };
    let at = zero + TimeDelta::milliseconds(i64::try_from(number).unwrap_or(0));
    Ok(Instance::new(key, state, Trigger::Callback, at))
}

/// Makes tables 0 to `to` known, at the paths that `path_of` returns; none of them is to be looked at.
///
/// # Errors
/// What the store says.
pub(crate) async fn tables(
    store: &Arc<dyn Store>,
    to: u64,
    at: Timestamp,
    path_of: impl Fn(u64) -> Result<BasePath>,
) -> Result<Vec<TableId>> {
    let mut ids = Vec::new();
    let mut next = 0;
    while next < to {
        let end = to.min(next + BATCH);
        let mut batch = Vec::new();
        for number in next..end {
            let base_path = path_of(number)?;
            ids.push(TableId::of(&base_path));
            batch.push(HandOver {
                spelling: base_path.as_str().to_owned(),
                base_path,
                database: Some("lake".to_owned()),
                table_name: Some(format!("t{number}")),
                hints: Vec::new(),
                queue: None,
                execution_engine: None,
                trigger: Trigger::Callback,
                at,
                touch: false,
            });
        }
        store.accept(&batch).await.context("cannot make tables known")?;
        next = end;
    }
    Ok(ids)
}

/// Stores instances that `make` returns for the numbers `from` to `to`.
///
/// # Errors
/// What the store says.
pub(crate) async fn instances(
    store: &Arc<dyn Store>,
    from: u64,
    to: u64,
    make: impl Fn(u64) -> Result<Instance>,
) -> Result<()> {
    let mut next = from;
    while next < to {
        let end = to.min(next + BATCH);
        let mut writes = Vec::new();
        for number in next..end {
            let after = make(number)?;
            writes.push(InstanceWrite {
                expect: Expect::Absent,
                after,
                events: Vec::new(),
                past_attempt: None,
            });
        }
        store.write(None, writes).await.context("cannot store instances")?;
        next = end;
    }
    Ok(())
}

/// Returns an ended compaction of a table.
///
/// # Errors
/// Never in practice.
pub(crate) fn ended(table: TableId, number: u64) -> Result<Instance> {
    let mut instance = waiting(table, number, day_zero())?;
    instance.state = InstanceState::Succeeded;
    instance.ended_at = Some(instance.created_at);
    Ok(instance)
}
