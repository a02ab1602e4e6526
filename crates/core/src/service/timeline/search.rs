//! Finds the tables to look at: by signal at once, by level now and then, so that a lost signal costs time only.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use chrono::TimeDelta;

use super::{FAILED_AGAIN, QUEUE_MAX, has_back_off};
use crate::error::Error;
use crate::model::id::TableId;
use crate::service::leader::Leader;
use crate::store::{Intent, PAGE_MAX};

/// Shortest time from the begin of one search for tables to the next: writers hand over all the time.
const GATHER_EVERY_MIN: Duration = Duration::from_millis(10);
/// Longest time between two searches of the store for touched tables, which finds those of lost signals.
const TOUCHED_EVERY_MAX: Duration = Duration::from_secs(30);
/// Most intents that one pass takes.
const INTENTS_MAX: usize = 1_000;

/// When tables are searched for.
#[derive(Debug)]
pub(super) struct Search {
    /// Somebody gave a signal since the last one began.
    pub(super) is_asked: bool,
    pub(super) not_before: Duration,
    /// When touched tables are next looked for in the store.
    pub(super) next_touched: Duration,
    /// Where that search goes on, when it found more than may wait.
    touched_after: Option<TableId>,
    /// When everything that waits for something of its table is looked at next.
    pub(super) next_scan: Duration,
}

impl Search {
    pub(super) fn new(now: Duration) -> Self {
        Self { is_asked: true, not_before: now, next_touched: now, touched_after: None, next_scan: now }
    }

    pub(super) fn begin(&mut self, now: Duration) {
        self.is_asked = false;
        self.not_before = now + GATHER_EVERY_MIN;
    }
}

/// Finds the tables to look at: touched ones by signal and by level, due ones, and those that somebody asked for; without
/// those that are `known` to wait or to be looked at, which are found again afterwards.
pub(super) async fn gather(
    leader: &Leader,
    search: &mut Search,
    known: &HashSet<TableId>,
) -> Result<Vec<TableId>, Error> {
    // What is taken away from wakes and intents becomes due, so that an error further down loses nothing.
    let now = leader.clock.now();
    let tables = leader.wakes.take_tables();
    for table in tables.changed {
        leader.unrest_table(table);
        leader.plan_look(table, now);
    }
    for table in tables.touched {
        if !leader.is_resting(table) {
            leader.plan_look(table, now);
        }
    }
    if tables.has_more {
        search.next_touched = leader.clock.monotonic();
    }
    for intent in leader.store.take_intents(leader.term, INTENTS_MAX).await? {
        match intent {
            Intent::Look(table) => {
                leader.unrest_table(table);
                leader.plan_look(table, now);
            }
            Intent::Instance(id) => leader.wakes.instance_changed(id),
        }
    }
    let mut found: BTreeSet<TableId> = BTreeSet::new();
    let is_scan = leader.clock.monotonic() >= search.next_scan;
    if is_scan {
        leader.reload_queues().await?;
    }
    // Nothing after it fails as a whole: what it found is not found again before its next round.
    if is_scan || leader.clock.monotonic() >= search.next_touched {
        touched(leader, search, known, &mut found).await?;
    }
    if is_scan {
        leader.board(|board| {
            for word in ["hinted", "parked", "waiting_foreign"] {
                found.extend(board.in_state(word).map(|i| i.key.table).take(QUEUE_MAX));
            }
        });
        search.next_scan = leader.clock.monotonic() + leader.policies.look.scan_every;
    }
    let now = leader.clock.now();
    for table in leader.take_due(QUEUE_MAX) {
        if known.contains(&table) {
            // Asked for during its look: another one afterwards.
            leader.plan_look(table, now + TimeDelta::milliseconds(200));
        } else {
            found.insert(table);
        }
    }
    // A table in trouble keeps its back-off whatever asks for it; it comes back by its due time.
    let mut ready = Vec::with_capacity(found.len());
    let is_new = |table: &TableId| !known.contains(table) && !leader.is_resting(*table);
    for table in found.into_iter().filter(is_new) {
        match leader.table(table).await {
            Ok(Some(record)) => match &record.look.trouble {
                Some(trouble) if has_back_off(trouble, now) => {
                    leader.rest_table(table, trouble.not_before);
                }
                _ => ready.push(table),
            },
            Ok(None) => leader.forget_table(table),
            Err(error) => {
                tracing::error!(table = %table, %error, "Failed to read a table's row.");
                leader.plan_look(table, now + FAILED_AGAIN);
            }
        }
    }
    Ok(ready)
}

/// Finds touched tables in the store, as many as may wait; the next search goes on behind them.
async fn touched(
    leader: &Leader,
    search: &mut Search,
    known: &HashSet<TableId>,
    found: &mut BTreeSet<TableId>,
) -> Result<(), Error> {
    // Kept only when all of it was read, so that a page that fails takes no other with it.
    let mut after = search.touched_after;
    while found.len() < QUEUE_MAX {
        let page = leader.store.touched(after, PAGE_MAX).await?;
        after = page.last().copied().filter(|_| page.len() == PAGE_MAX);
        found.extend(page.into_iter().filter(|table| !known.contains(table) && !leader.is_resting(*table)));
        if after.is_none() {
            search.next_touched = leader.clock.monotonic() + TOUCHED_EVERY_MAX;
            break;
        }
    }
    search.touched_after = after;
    Ok(())
}
