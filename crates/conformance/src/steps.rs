//! A fixed sequence of writes, each one transaction, and a check that tells how many of them a store holds: the state
//! after each is known, so whatever is lost, half made or doubled is seen. For cases that end a store in the middle.
//!
//! Steps come in pairs: an even one hands work over for two tables at once, the odd one behind it ends, changes or
//! removes the instance that came of it.

use std::collections::BTreeSet;

use tms_core::Error;
use tms_core::model::action::Action;
use tms_core::model::attempt::AttemptState;
use tms_core::model::id::{InstanceId, TableId};
use tms_core::model::instance::{Instance, InstanceKey, InstanceState, WaitReason};
use tms_core::model::request::HandOver;
use tms_core::store::{InstanceFilter, PAGE_MAX, Page, Store};

use crate::store::samples::{attempt, change, event, hand_over, in_state, instant, naming, table_id};

/// Tables that take turns.
const TABLES: u64 = 16;
/// Counts the pairs: each hands over for this table too.
const COUNTER: &str = "counter";
/// Every so many-th hand-over has a long spelling, so that logs and pages fill.
const LONG_EVERY: u64 = 4;
const LONG_BYTES: usize = 24 * 1024;

/// What is wrong with a store.
#[derive(Debug)]
pub enum Fault {
    /// It says so itself.
    Told(Error),
    /// It says nothing, and holds something else than was stored.
    Silent(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Told(error) => write!(f, "the store says: {}", error.chain()),
            Self::Silent(what) => write!(f, "the store is silent, and {what}"),
        }
    }
}

fn name(pair: u64) -> String {
    format!("t{}", pair % TABLES)
}

fn key(pair: u64) -> InstanceKey {
    let instant = Some(instant(&pair.to_string()));
    InstanceKey { table: table_id(&name(pair)), action: Action::Compaction, instant }
}

fn spelling(pair: u64) -> String {
    let short = format!("file:///lake/{}?{pair}/", name(pair));
    if pair % LONG_EVERY == 1 { short.chars().cycle().take(LONG_BYTES).collect() } else { short }
}

fn told(pair: u64) -> [HandOver; 2] {
    let named = naming(&name(pair), Action::Compaction, &[&pair.to_string()]);
    [HandOver { spelling: spelling(pair), ..named }, hand_over(COUNTER)]
}

/// What the second step of a pair makes of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Failed,
    Changed,
    Succeeded,
    Removed,
}

impl Turn {
    fn of(pair: u64) -> Self {
        match pair % 4 {
            0 => Self::Failed,
            1 => Self::Changed,
            2 => Self::Succeeded,
            _ => Self::Removed,
        }
    }

    fn state(self) -> InstanceState {
        match self {
            Self::Failed => InstanceState::Failed,
            Self::Succeeded => InstanceState::Succeeded,
            Self::Changed | Self::Removed => {
                InstanceState::Pending { reason: WaitReason::Ready, not_before: None }
            }
        }
    }
}

/// Makes step `n`, all before it being made. It is durable when this returns.
///
/// # Errors
/// Those of the store; then it is unknown whether the step was made.
pub async fn make(store: &dyn Store, n: u64) -> Result<(), Error> {
    let pair = n / 2;
    if n.is_multiple_of(2) {
        return store.accept(&told(pair)).await.map(drop);
    }
    let found = store.find_instance(&key(pair)).await?.expect("the step before made it");
    let turn = Turn::of(pair);
    if turn == Turn::Removed {
        return store.remove_instance(found.id, found.version, true).await;
    }
    let id = found.id;
    let mut write = change(in_state(found, turn.state(), i64::try_from(pair).unwrap()));
    write.events = vec![event("one"), event("two")];
    if turn == Turn::Changed {
        write.past_attempt = Some(attempt(id, 1, AttemptState::Over));
    }
    store.write(None, vec![write]).await.map(drop)
}

/// Returns how many steps a store holds.
///
/// # Errors
/// Those of the store.
pub async fn count(store: &dyn Store) -> Result<u64, Error> {
    let n_pairs = touches(store, COUNTER).await?;
    let Some(last) = n_pairs.checked_sub(1) else { return Ok(0) };
    let is_turned = match store.find_instance(&key(last)).await? {
        Some(found) => found.state != InstanceState::Hinted,
        None => store.has_tombstone(&key(last)).await?,
    };
    Ok(2 * last + 1 + u64::from(is_turned))
}

async fn touches(store: &dyn Store, name: &str) -> Result<u64, Error> {
    Ok(store.get_table(table_id(name)).await?.map_or(0, |record| record.touch.touch))
}

/// Checks that a store holds what the first steps leave, and nothing else: those that were acknowledged, and perhaps the
/// one behind them. Returns how many steps it holds.
///
/// # Errors
/// What is wrong.
pub async fn verify(store: &dyn Store, n_acknowledged: u64) -> Result<u64, Fault> {
    let n_steps = count(store).await?;
    if !(n_acknowledged..=n_acknowledged + 1).contains(&n_steps) {
        return Err(Fault::Silent(format!("holds {n_steps} steps of {n_acknowledged} acknowledged ones")));
    }
    let n_pairs = n_steps.div_ceil(2);
    verify_tables(store, n_pairs).await?;
    let mut expected = Expected::default();
    for pair in 0..n_pairs {
        verify_pair(store, pair, 2 * pair + 1 < n_steps, &mut expected).await?;
    }
    if store.find_instance(&key(n_pairs)).await?.is_some() {
        return Err(Fault::Silent(format!("holds half of step {n_steps}")));
    }
    verify_lists(store, &expected).await?;
    store.check().await?;
    Ok(n_steps)
}

/// Which instances the lists must hold.
#[derive(Default)]
struct Expected {
    live: BTreeSet<InstanceId>,
    ended: BTreeSet<InstanceId>,
}

async fn verify_tables(store: &dyn Store, n_pairs: u64) -> Result<(), Fault> {
    for of in 0..TABLES.min(n_pairs) {
        let n_touches = (0..n_pairs).filter(|pair| pair % TABLES == of).count();
        let last = (0..n_pairs).rev().find(|pair| pair % TABLES == of).unwrap();
        let record = store.get_table(table_id(&name(of))).await?;
        let found = record.map(|record| (record.touch.touch, record.touch.spelling));
        if found != Some((n_touches as u64, spelling(last))) {
            let found = found.map(|(touch, _)| touch);
            return Err(Fault::Silent(format!("table {of} has touch {found:?}, not {n_touches}")));
        }
    }
    let known = pages(async |cursor| store.list_tables(cursor.as_deref(), PAGE_MAX).await).await?;
    let n_known = usize::try_from(TABLES.min(n_pairs)).unwrap() + usize::from(n_pairs > 0);
    let ids: BTreeSet<TableId> = known.iter().map(|record| record.table.id).collect();
    if known.len() != n_known || ids.len() != n_known {
        return Err(Fault::Silent(format!("lists {} tables of {n_known}", known.len())));
    }
    Ok(())
}

async fn verify_pair(
    store: &dyn Store,
    pair: u64,
    is_turned: bool,
    expected: &mut Expected,
) -> Result<(), Fault> {
    let silent = |what: &str| Err(Fault::Silent(format!("the instance of pair {pair} {what}")));
    let found = store.find_instance(&key(pair)).await?;
    let turn = Turn::of(pair);
    if is_turned && turn == Turn::Removed {
        if found.is_some() {
            return silent("is there again");
        }
        return if store.has_tombstone(&key(pair)).await? { Ok(()) } else { silent("has no tombstone") };
    }
    let Some(found) = found else { return silent("is lost") };
    let (state, version) = if is_turned { (turn.state(), 2) } else { (InstanceState::Hinted, 1) };
    if found.state != state || found.version.0 != version {
        return silent(&format!("is {:?} of version {}", found.state, found.version.0));
    }
    let n_attempts = usize::from(is_turned && turn == Turn::Changed);
    let n_events = if is_turned { 2 } else { 0 };
    if store.past_attempts(found.id).await?.len() != n_attempts {
        return silent("has not its attempts");
    }
    let events = store.events(found.id).await?;
    if events.iter().filter(|event| ["one", "two"].contains(&&*event.reason)).count() != n_events {
        return silent("has not its events");
    }
    let of = if found.state.is_ended() { &mut expected.ended } else { &mut expected.live };
    of.insert(found.id);
    Ok(())
}

async fn verify_lists(store: &dyn Store, expected: &Expected) -> Result<(), Fault> {
    let live = pages(async |cursor| store.live_instances(cursor.as_deref(), PAGE_MAX).await).await?;
    same("live", &live, &expected.live)?;
    let ended = InstanceFilter { is_live: Some(false), ..InstanceFilter::default() };
    let ended = pages(async |cursor| store.list_instances(&ended, cursor.as_deref(), PAGE_MAX).await).await?;
    same("ended", &ended, &expected.ended)
}

fn same(what: &str, found: &[Instance], expected: &BTreeSet<InstanceId>) -> Result<(), Fault> {
    let ids: BTreeSet<InstanceId> = found.iter().map(|instance| instance.id).collect();
    if ids.len() == found.len() && ids == *expected {
        return Ok(());
    }
    Err(Fault::Silent(format!("lists {} {what} instances of {}", found.len(), expected.len())))
}

async fn pages<T>(read: impl AsyncFn(Option<String>) -> Result<Page<T>, Error>) -> Result<Vec<T>, Error> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page = read(cursor).await?;
        items.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}
