//! Lists of instances. Ids sort by the time of their making and never change, so a page starts where the
//! former one ended whatever happened in between; live and ended instances are merged by id.

use super::codec::{decode, readable};
use super::instances::{find_row, id_in};
use super::place::Row;
use super::tx::View;
use super::{KeyRange, Keyspace, LIST_VISITS_MAX, Pair, keys};
use crate::error::Error;
use crate::model::id::{InstanceId, TableId};
use crate::model::instance::Instance;
use crate::store::{InstanceFilter, PAGE_MAX, Page};

/// Rows that one step of a filtered list reads.
const STEP_ROWS: usize = 256;

/// Reads a cursor of a list of instances.
pub(super) fn instance_cursor(text: &str) -> Result<InstanceId, Error> {
    text.parse().map_err(|e: Error| bad_cursor(text).caused_by(e))
}

/// Returns the error for a cursor that no list of ours gave.
pub(super) fn bad_cursor(text: &str) -> Error {
    Error::new(crate::error::ErrorKind::Invalid, "go on with a list")
        .with("cursor", format!("{:?}", text.chars().take(64).collect::<String>()))
        .hint("give the cursor that the former page returned, unchanged")
}

pub(super) fn page_limit(limit: usize) -> usize {
    limit.clamp(1, PAGE_MAX)
}

/// Returns a page of live instances, by id.
pub(super) fn live(
    view: &View<'_>,
    after: Option<InstanceId>,
    limit: usize,
) -> Result<Page<Instance>, Error> {
    let limit = page_limit(limit);
    let mut range = KeyRange::prefix(&[keys::LIVE_ROW]);
    if let Some(after) = after {
        range = range.after(&keys::of_instance(keys::LIVE_ROW, after));
    }
    let mut rows = view.scan(Keyspace::Live, &range, limit + 1)?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().and_then(|(key, _)| keys::instance_at(key, 1));
    let items = rows.iter().filter_map(|row| readable(instance_of(Keyspace::Live, row))).collect();
    Ok(Page { items, next: last.filter(|_| has_more).map(|id| id.to_string()) })
}

/// Returns a page of the instances whose attempt is live, by table.
pub(super) fn live_attempts(
    view: &View<'_>,
    after: Option<TableId>,
    limit: usize,
) -> Result<Page<Instance>, Error> {
    let limit = page_limit(limit);
    let mut range = KeyRange::prefix(&[keys::SLOT]);
    if let Some(after) = after {
        range = range.after(&keys::of_table(keys::SLOT, after));
    }
    let mut slots = view.scan(Keyspace::Live, &range, limit + 1)?;
    let has_more = slots.len() > limit;
    slots.truncate(limit);
    let last = slots.last().and_then(|(key, _)| keys::table_at(key, 1));
    let holder = |(key, value): &Pair| find_row(view, decode(Keyspace::Live, key, value)?);
    let items = slots.iter().filter_map(|slot| readable(holder(slot)).flatten()).collect();
    Ok(Page { items, next: last.filter(|_| has_more).map(|table| table.to_string()) })
}

fn instance_of(keyspace: Keyspace, (key, value): &Pair) -> Result<Instance, Error> {
    Ok(decode::<Row>(keyspace, key, value)?.instance)
}

/// Returns a page of the instances that match, the newest first.
pub(super) fn newest_first(
    view: &View<'_>,
    filter: &InstanceFilter,
    before: Option<InstanceId>,
    limit: usize,
) -> Result<Page<Instance>, Error> {
    let limit = page_limit(limit);
    let mut items: Vec<Instance> = Vec::new();
    let mut last = before;
    let mut n_visited = 0;
    while n_visited < LIST_VISITS_MAX {
        let step = STEP_ROWS.min(LIST_VISITS_MAX - n_visited);
        let found = match filter.table {
            Some(table) => step_of_table(view, table, last, step)?,
            None => step_of_all(view, filter, last, step)?,
        };
        let is_end = found.len() < step;
        n_visited += found.len();
        for (id, instance) in found {
            let matching = instance.filter(|instance| filter.matches(instance));
            if matching.is_some() && items.len() == limit {
                // One more than the page holds: there is a next page.
                return Ok(Page { items, next: last.map(|id| id.to_string()) });
            }
            items.extend(matching);
            last = Some(id);
        }
        if is_end {
            return Ok(Page { items, next: None });
        }
    }
    Ok(Page { items, next: last.map(|id| id.to_string()) })
}

/// A row that was visited; no instance when it cannot be read.
type Visited = (InstanceId, Option<Instance>);

fn step_of_table(
    view: &View<'_>,
    table: TableId,
    before: Option<InstanceId>,
    n_rows: usize,
) -> Result<Vec<Visited>, Error> {
    let mut range = KeyRange::prefix(&keys::of_table(keys::BY_TABLE, table));
    if let Some(before) = before {
        range = range.before(&keys::of_table_instance(keys::BY_TABLE, table, before));
    }
    let rows = view.scan_back(Keyspace::Index, &range, n_rows)?;
    rows.iter()
        .map(|(key, _)| {
            let id = id_in(Keyspace::Index, key, 17)?;
            Ok((id, readable(find_row(view, id)).flatten()))
        })
        .collect()
}

fn step_of_all(
    view: &View<'_>,
    filter: &InstanceFilter,
    before: Option<InstanceId>,
    n_rows: usize,
) -> Result<Vec<Visited>, Error> {
    let mut merged = Vec::new();
    if wants(filter, false) {
        merged.extend(step_of(view, Keyspace::Live, keys::LIVE_ROW, before, n_rows)?);
    }
    if wants(filter, true) {
        merged.extend(step_of(view, Keyspace::History, keys::HISTORY_ROW, before, n_rows)?);
    }
    merged.sort_by_key(|visited| std::cmp::Reverse(visited.0));
    merged.truncate(n_rows);
    Ok(merged)
}

fn step_of(
    view: &View<'_>,
    keyspace: Keyspace,
    kind: u8,
    before: Option<InstanceId>,
    n_rows: usize,
) -> Result<Vec<Visited>, Error> {
    let mut range = KeyRange::prefix(&[kind]);
    if let Some(before) = before {
        range = range.before(&keys::of_instance(kind, before));
    }
    let rows = view.scan_back(keyspace, &range, n_rows)?;
    rows.iter().map(|row| Ok((id_in(keyspace, &row.0, 1)?, readable(instance_of(keyspace, row))))).collect()
}

/// Tells whether a filter can match live (`ended` false) or ended instances at all.
fn wants(filter: &InstanceFilter, ended: bool) -> bool {
    if filter.is_live == Some(ended) {
        return false;
    }
    filter.states.is_empty() || filter.states.iter().any(|word| is_ended_word(word) == ended)
}

/// The words of the ended states; all others are words of live ones, or of none.
const ENDED_WORDS: [&str; 4] = ["succeeded", "failed", "cancelled", "obsolete"];

fn is_ended_word(word: &str) -> bool {
    ENDED_WORDS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::instance::InstanceState;

    #[test]
    fn ended_words_are_those_of_the_ended_states() {
        let ended = [
            InstanceState::Succeeded,
            InstanceState::Failed,
            InstanceState::Cancelled,
            InstanceState::Obsolete,
        ];
        assert!(ended.iter().all(|state| state.is_ended() && is_ended_word(state.as_str())));
        assert_eq!(ended.len(), ENDED_WORDS.len());
    }

    #[test]
    fn filter_skips_the_side_that_cannot_match() {
        let filter = InstanceFilter { states: vec!["failed".to_owned()], ..InstanceFilter::default() };
        assert!(wants(&filter, true) && !wants(&filter, false));
        let filter = InstanceFilter { is_live: Some(true), ..InstanceFilter::default() };
        assert!(!wants(&filter, true) && wants(&filter, false));
        assert!(wants(&InstanceFilter::default(), true) && wants(&InstanceFilter::default(), false));
    }
}
