//! Pruning of ended instances, the oldest first, without reading their rows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::codec::{decode, readable};
use super::place::Placement;
use super::tx::Tx;
use super::{KeyRange, Keyspace, PRUNE_VISITS_MAX, keys};
use crate::error::Error;
use crate::model::action::Instant;
use crate::model::id::TableId;
use crate::model::instance::InstanceKey;
use crate::model::table::{LookState, UNSERVED_MAX};
use crate::store::{BATCH_MAX, PruneRule};

/// Index rows that one step reads at most.
const STEP_ROWS_MAX: usize = 512;

/// Removes what the rule says and returns how many instances that were.
pub(super) fn prune(tx: &mut Tx<'_>, rule: &PruneRule) -> Result<usize, Error> {
    let batch_max = rule.batch_max.min(BATCH_MAX);
    let n_ended = tx.number(keys::meta::N_ENDED)?;
    let n_too_many = usize::try_from(n_ended.saturating_sub(rule.keep_count)).unwrap_or(usize::MAX);
    let before_millis = rule.before.timestamp_millis();
    let mut looks = Looks::default();
    let mut range = KeyRange::prefix(&[keys::BY_END]);
    let (mut n_removed, mut n_visited) = (0, 0);
    while n_visited < PRUNE_VISITS_MAX && n_removed < batch_max {
        let rows = tx.stored.scan(Keyspace::Index, &range, STEP_ROWS_MAX.min(batch_max + 1))?;
        let Some((last, _)) = rows.last() else { break };
        range = range.after(last);
        n_visited += rows.len();
        for (row, value) in &rows {
            let Some((ended_millis, id)) = keys::read_by_end(row) else { continue };
            let is_due = ended_millis < before_millis || n_removed < n_too_many;
            if !is_due || n_removed == batch_max {
                return Ok(n_removed);
            }
            let Some(key) = readable(decode::<InstanceKey>(Keyspace::Index, row, value)) else { continue };
            if looks.may_stand(tx, &key)? {
                continue;
            }
            Placement { id, key, ended_millis: Some(ended_millis) }.forget(tx)?;
            n_removed += 1;
        }
    }
    Ok(n_removed)
}

/// What the last looks saw, read once per table.
#[derive(Default)]
struct Looks {
    of: HashMap<TableId, Option<LookState>>,
}

impl Looks {
    /// Tells whether the plan of an instance may still stand on its timeline. What cannot be read counts as
    /// standing.
    fn may_stand(&mut self, tx: &mut Tx<'_>, key: &InstanceKey) -> Result<bool, Error> {
        let Some(instant) = &key.instant else { return Ok(false) };
        let look = match self.of.entry(key.table) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(read_look(tx, key.table)?),
        };
        let Some(look) = look else { return Ok(true) };
        let unserved = look.unserved.iter().map(|u| (u.action, &u.instant));
        // Whoever may execute a plan: handed over again, it must not run although somebody cancelled it.
        let foreign = look.foreign.iter().map(|plan| (plan.action, &plan.instant));
        let is_listed = unserved.chain(foreign).any(|plan| plan == (key.action, instant));
        // A full list was cut at its newest end: a plan behind it may stand too.
        let is_behind =
            |n: usize, last: Option<&Instant>| n >= UNSERVED_MAX && last.is_some_and(|l| instant >= l);
        Ok(is_listed
            || is_behind(look.unserved.len(), look.unserved.last().map(|u| &u.instant))
            || is_behind(look.foreign.len(), look.foreign.last().map(|plan| &plan.instant)))
    }
}

/// Returns what the last look at a table saw; none when it cannot be read.
fn read_look(tx: &mut Tx<'_>, table: TableId) -> Result<Option<LookState>, Error> {
    let row = keys::of_table(keys::LOOK_ROW, table);
    Ok(match tx.get(Keyspace::Tables, &row)? {
        None => Some(LookState::default()),
        Some(value) => readable(decode(Keyspace::Tables, &row, &value)),
    })
}
