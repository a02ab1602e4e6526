//! How rows are named. The bytes are part of the format on disk: a change needs a new schema version.

use crate::model::action::Action;
use crate::model::id::{InstanceId, NodeName, QueueName, TableId};
use crate::model::instance::InstanceKey;

/// Rows of [`super::Keyspace::Meta`].
pub(super) mod meta {
    pub(in crate::store::kv) const SCHEMA: &[u8] = b"schema";
    pub(in crate::store::kv) const INCARNATION: &[u8] = b"incarnation";
    pub(in crate::store::kv) const TERM: &[u8] = b"term";
    pub(in crate::store::kv) const CHANGE_SEQ: &[u8] = b"change_seq";
    /// Number of ended instances, so that pruning by count does not count.
    pub(in crate::store::kv) const N_ENDED: &[u8] = b"n_ended";
    /// Highest touch number of a removed table: a table that comes back starts above it, so that a look that
    /// began before the removal covers nothing of it.
    pub(in crate::store::kv) const TOUCH_FLOOR: &[u8] = b"touch_floor";
    /// Written by the check of health.
    pub(in crate::store::kv) const CHECK: &[u8] = b"check";
    /// What holds back all submissions.
    pub(in crate::store::kv) const HOLD: &[u8] = b"hold";
    /// Incarnations before the present one.
    pub(in crate::store::kv) const FORMER: &[u8] = b"former";
}

pub(super) const TABLE_ROW: u8 = b't';
pub(super) const LOOK_ROW: u8 = b'l';
pub(super) const TOUCH_ROW: u8 = b'h';
pub(super) const TOUCHED: u8 = b'd';
pub(super) const LIVE_ROW: u8 = b'i';
pub(super) const LIVE_OF_TABLE: u8 = b't';
/// The slot of a table: names the instance whose attempt is live.
pub(super) const SLOT: u8 = b's';
pub(super) const HISTORY_ROW: u8 = b'i';
pub(super) const BY_KEY: u8 = b'k';
pub(super) const BY_TABLE: u8 = b'b';
pub(super) const BY_END: u8 = b'e';
pub(super) const TOMBSTONE: u8 = b'x';
pub(super) const EVENT: u8 = b'e';
pub(super) const PAST_ATTEMPT: u8 = b'a';
pub(super) const QUEUE: u8 = b'q';
pub(super) const NODE: u8 = b'n';
pub(super) const INTENT: u8 = b'i';
/// Intents by what they ask for, so that a wish that stands is not stored twice.
pub(super) const INTENT_BY_WISH: u8 = b'w';

/// Separates the keys with an instant, the live one of `next`, and the ended ones of `next`.
const WITH_INSTANT: u8 = b'i';
const NEXT_LIVE: u8 = b'n';
const NEXT_ENDED: u8 = b'p';

pub(super) fn of_table(kind: u8, table: TableId) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(kind);
    key.extend_from_slice(table.as_bytes());
    key
}

pub(super) fn of_instance(kind: u8, id: InstanceId) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(kind);
    key.extend_from_slice(id.0.as_bytes());
    key
}

pub(super) fn of_table_instance(kind: u8, table: TableId, id: InstanceId) -> Vec<u8> {
    let mut key = of_table(kind, table);
    key.extend_from_slice(id.0.as_bytes());
    key
}

/// Returns the row that names the only instance of a key with an instant, or the live one of `next`.
pub(super) fn slot(key: &InstanceKey) -> Vec<u8> {
    of_key(BY_KEY, key)
}

pub(super) fn tombstone(key: &InstanceKey) -> Vec<u8> {
    of_key(TOMBSTONE, key)
}

/// Returns the start of the rows that name the ended instances of a key without instant, by id.
pub(super) fn ended_next_prefix(table: TableId, action: Action) -> Vec<u8> {
    let mut key = of_table(BY_KEY, table);
    key.push(action_byte(action));
    key.push(NEXT_ENDED);
    key
}

pub(super) fn ended_next(table: TableId, action: Action, id: InstanceId) -> Vec<u8> {
    let mut key = ended_next_prefix(table, action);
    key.extend_from_slice(id.0.as_bytes());
    key
}

fn of_key(kind: u8, key: &InstanceKey) -> Vec<u8> {
    let mut bytes = of_table(kind, key.table);
    bytes.push(action_byte(key.action));
    match &key.instant {
        Some(instant) => {
            bytes.push(WITH_INSTANT);
            bytes.extend_from_slice(instant.as_str().as_bytes());
        }
        None => bytes.push(NEXT_LIVE),
    }
    bytes
}

fn action_byte(action: Action) -> u8 {
    match action {
        Action::Compaction => b'c',
        Action::LogCompaction => b'l',
        Action::Clustering => b'r',
        Action::Clean => b'n',
    }
}

/// Returns the row that orders an ended instance by the time of its end, in milliseconds since 1970.
pub(super) fn by_end(at_millis: i64, id: InstanceId) -> Vec<u8> {
    let mut key = Vec::with_capacity(25);
    key.push(BY_END);
    key.extend_from_slice(&ordered(at_millis).to_be_bytes());
    key.extend_from_slice(id.0.as_bytes());
    key
}

/// Returns time and instance of a row made by [`by_end`].
pub(super) fn read_by_end(key: &[u8]) -> Option<(i64, InstanceId)> {
    let time: [u8; 8] = key.get(1..9)?.try_into().ok()?;
    Some((unordered(u64::from_be_bytes(time)), instance_at(key, 9)?))
}

/// Makes negative numbers sort before positive ones.
fn ordered(number: i64) -> u64 {
    number.cast_unsigned() ^ (1 << 63)
}

fn unordered(number: u64) -> i64 {
    (number ^ (1 << 63)).cast_signed()
}

pub(super) fn detail(kind: u8, id: InstanceId, seq: u32) -> Vec<u8> {
    let mut key = detail_prefix(kind, id);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// Instance first: pruning removes one range per instance.
pub(super) fn detail_prefix(kind: u8, id: InstanceId) -> Vec<u8> {
    let mut key = id.0.as_bytes().to_vec();
    key.push(kind);
    key
}

pub(super) fn queue(name: &QueueName) -> Vec<u8> {
    named(QUEUE, name.as_str())
}

pub(super) fn node(name: &NodeName) -> Vec<u8> {
    named(NODE, name.as_str())
}

fn named(kind: u8, name: &str) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(name.as_bytes());
    key
}

pub(super) fn intent(seq: u64) -> Vec<u8> {
    let mut key = vec![INTENT];
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

pub(super) fn intent_by_wish(wish: &[u8]) -> Vec<u8> {
    let mut key = vec![INTENT_BY_WISH];
    key.extend_from_slice(wish);
    key
}

/// Returns the instance id that stands at `from` in a key.
pub(super) fn instance_at(key: &[u8], from: usize) -> Option<InstanceId> {
    let bytes: [u8; 16] = key.get(from..from + 16)?.try_into().ok()?;
    Some(InstanceId(uuid::Uuid::from_bytes(bytes)))
}

/// Returns the table id that stands at `from` in a key.
pub(super) fn table_at(key: &[u8], from: usize) -> Option<TableId> {
    let bytes: [u8; 16] = key.get(from..from + 16)?.try_into().ok()?;
    Some(TableId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ends_sort_by_time(a in any::<i64>(), b in any::<i64>()) {
            let id = InstanceId::new();
            prop_assert_eq!(a.cmp(&b), by_end(a, id).cmp(&by_end(b, id)));
            prop_assert_eq!(read_by_end(&by_end(a, id)), Some((a, id)));
        }
    }

    #[test]
    fn no_key_of_a_table_is_the_start_of_another_kind() {
        let table = TableId::from_bytes([7; 16]);
        let key = |instant: Option<&str>| InstanceKey {
            table,
            action: Action::Clean,
            instant: instant.map(|i| i.parse().unwrap()),
        };
        let ended = ended_next_prefix(table, Action::Clean);
        assert!(!slot(&key(None)).starts_with(&ended));
        assert!(!slot(&key(Some("1"))).starts_with(&ended));
        assert_ne!(slot(&key(Some("1"))), slot(&key(Some("11"))));
    }
}
