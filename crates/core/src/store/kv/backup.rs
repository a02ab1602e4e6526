//! Copies of a whole store, and stores made from copies; see [`crate::store::backup`] for the bytes.

use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::codec::{bad_row, decode, encode};
use super::place::Row as InstanceRow;
use super::tx::of_kv;
use super::{Batch, KeyRange, Keyspace, KvError, KvStore, OrderedKv, SCHEMA_VERSION, keys};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::model::attempt::{AttemptState, Holder};
use crate::model::id::{Incarnation, RunId, Term};
use crate::model::instance::Instance;
use crate::store::backup::{Decoder, Encoder, FORMER_MAX, Row};
use crate::store::{CopyPieces, CopyStore, Hold, HoldCause};

const BACKUP: &str = "copy the store";
const RESTORE: &str = "restore the store";
/// Rows that are read at once.
const SCAN_ROWS: usize = 1_000;
/// Size of one piece, in bytes, when rows are small.
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that wait for a slow reader.
const PIECES_WAITING_MAX: usize = 4;
/// Longest wait for a reader that takes nothing: a copy keeps the store from freeing what it replaces.
const READER_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest time that a copy takes, however steadily its reader takes a little.
const COPY_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Rows and bytes of one batch of a restore.
const RESTORE_BATCH_ROWS: usize = 5_000;
const RESTORE_BATCH_BYTES: usize = 8 * 1024 * 1024;

#[async_trait]
impl CopyStore for KvStore {
    async fn begin_copy(&self) -> Result<CopyPieces, Error> {
        let Ok(room) = Arc::clone(&self.copying).try_acquire_owned() else {
            return Err(Error::new(ErrorKind::Unavailable, BACKUP)
                .with("reason", "another copy is being made")
                .hint("wait for its end; one whose reader is gone ends within a minute"));
        };
        let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
        let (began, begun) = tokio::sync::oneshot::channel();
        let kv = self.backend();
        let handle = tokio::runtime::Handle::current();
        let until = tokio::time::Instant::now() + COPY_TIME_MAX;
        // Not awaited: it ends with its reader, or when that one takes nothing.
        drop(tokio::task::spawn_blocking(move || {
            let give = |piece| {
                let sent = async {
                    tokio::time::timeout(READER_WAIT_MAX, tokio::time::timeout_at(until, sender.send(piece)))
                        .await
                };
                matches!(handle.block_on(sent), Ok(Ok(Ok(()))))
            };
            let done = copy_all(&*kv, || began.send(()).unwrap_or_default(), |piece| give(Ok(piece)));
            drop(room);
            if let Err(error) = done {
                give(Err(error));
            }
        }));
        // A failure to begin is the first piece.
        drop(begun.await);
        Ok(pieces)
    }

    async fn hold(&self) -> Result<Option<Hold>, Error> {
        self.view("read what holds submissions back", |view| view.read(Keyspace::Meta, keys::meta::HOLD))
            .await
    }

    async fn set_hold(&self, term: Term, hold: Option<Hold>) -> Result<(), Error> {
        self.transact("store what holds submissions back", move |tx| {
            tx.fence(term)?;
            let key = keys::meta::HOLD.to_vec();
            match &hold {
                Some(hold) => tx.store(Keyspace::Meta, key, hold)?,
                None => tx.delete(Keyspace::Meta, key),
            }
            Ok(())
        })
        .await
    }

    async fn former_incarnations(&self) -> Result<Vec<Incarnation>, Error> {
        self.view("read the former incarnations", |view| {
            Ok(view.read(Keyspace::Meta, keys::meta::FORMER)?.unwrap_or_default())
        })
        .await
    }
}

/// Gives all rows of one snapshot away; ends early when nobody takes them.
fn copy_all(
    kv: &dyn OrderedKv,
    began: impl FnOnce(),
    mut give: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), Error> {
    let failed = |e: KvError| of_kv(e, BACKUP);
    let snapshot = kv.snapshot().map_err(failed)?;
    began();
    let mut piece = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
    let mut encoder = Encoder::begin(&mut piece);
    for keyspace in Keyspace::ALL {
        let mut range = KeyRange::prefix(&[]);
        loop {
            let rows = snapshot.scan(keyspace, &range, SCAN_ROWS, false).map_err(failed)?;
            for (key, value) in &rows {
                encoder.row(&mut piece, keyspace, key, value)?;
                if piece.len() >= PIECE_BYTES && !give(std::mem::take(&mut piece)) {
                    return Ok(());
                }
            }
            match rows.last() {
                Some((last, _)) if rows.len() == SCAN_ROWS => range = range.after(last),
                _ => break,
            }
        }
    }
    encoder.finish(&mut piece);
    give(piece);
    Ok(())
}

/// Fills a store that was just begun with the rows of a copy, as a new incarnation. The copy is read twice: nothing is
/// changed before it was found whole. Until the end the store cannot be opened, so a restore that was interrupted is
/// never served. Blocks.
///
/// What the copy knows of running work is not trusted: since it was made, drivers that it does not know may have begun
/// any plan. So no inflight counts as ours any more, and every table is to be looked at.
///
/// # Errors
/// - `Invalid`, `Unsupported` or `Unexpected` when the copy cannot be used
/// - `AlreadyExists` when the store holds tables
/// - what the backend says otherwise
pub fn restore_blocking(
    kv: &Arc<dyn OrderedKv>,
    mut copy: impl Read + Seek,
    at: Timestamp,
) -> Result<RestoredRows, Error> {
    let unreadable = |e: std::io::Error| {
        Error::new(ErrorKind::Unavailable, RESTORE).hint("look at the copy's disk").caused_by(e)
    };
    copy.rewind().map_err(unreadable)?;
    let verified = verify(&mut copy)?;
    refuse_used(&**kv)?;
    copy.rewind().map_err(unreadable)?;
    let mut filling =
        Filling { kv: &**kv, batch: Batch::default(), n_bytes: 0, at, rows: RestoredRows::default() };
    filling.put(Keyspace::Meta, keys::meta::SCHEMA.to_vec(), number(RESTORING));
    filling.flush()?;
    let mut rows = Decoder::begin(std::io::BufReader::new(&mut copy))?;
    while let Some(row) = rows.next_row()? {
        filling.take(row)?;
    }
    let detail = "the engines have not been asked yet for jobs that the copy does not know".to_owned();
    let hold = Hold { cause: HoldCause::Restored { from: verified.incarnation.clone() }, since: at, detail };
    let mut former = verified.former;
    former.push(verified.incarnation);
    former.drain(..former.len().saturating_sub(FORMER_MAX));
    filling.put(Keyspace::Meta, keys::meta::HOLD.to_vec(), encode(&hold)?);
    filling.put(Keyspace::Meta, keys::meta::FORMER.to_vec(), encode(&former)?);
    filling.put(Keyspace::Meta, keys::meta::INCARNATION.to_vec(), encode(&Incarnation::random())?);
    filling.flush()?;
    // Last and alone: with it the store can be opened.
    filling.put(Keyspace::Meta, keys::meta::SCHEMA.to_vec(), number(SCHEMA_VERSION));
    filling.flush()?;
    Ok(filling.rows)
}

/// Schema of a store that is being restored; no server opens it.
pub(super) const RESTORING: u64 = 0;

/// What a restore brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredRows {
    /// Tables.
    pub n_tables: u64,
    /// Live instances.
    pub n_live: u64,
    /// Ended instances.
    pub n_ended: u64,
}

impl RestoredRows {
    fn count(&mut self, row: &Row) {
        match (row.keyspace, row.key.first().copied()) {
            (Keyspace::Tables, Some(keys::TABLE_ROW)) => self.n_tables += 1,
            (Keyspace::Live, Some(keys::LIVE_ROW)) => self.n_live += 1,
            (Keyspace::History, Some(keys::HISTORY_ROW)) => self.n_ended += 1,
            _ => {}
        }
    }
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// What was found in a copy that is whole.
struct Verified {
    incarnation: Incarnation,
    former: Vec<Incarnation>,
    rows: RestoredRows,
}

/// Reads a copy to its end and tells what it holds, without a store. Blocks.
///
/// # Errors
/// `Invalid`, `Unsupported` or `Unexpected` when it cannot be used.
pub fn check_copy_blocking(copy: impl Read) -> Result<RestoredRows, Error> {
    Ok(verify(copy)?.rows)
}

fn verify(copy: impl Read) -> Result<Verified, Error> {
    let mut decoder = Decoder::begin(std::io::BufReader::new(copy))?;
    let (mut incarnation, mut former, mut rows) = (None, Vec::new(), RestoredRows::default());
    while let Some(row) = decoder.next_row()? {
        rows.count(&row);
        if row.keyspace != Keyspace::Meta {
            continue;
        }
        if row.key == keys::meta::INCARNATION {
            incarnation = Some(decode(row.keyspace, &row.key, &row.value)?);
        } else if row.key == keys::meta::FORMER {
            former = decode(row.keyspace, &row.key, &row.value)?;
        }
    }
    let incarnation = incarnation.ok_or_else(|| bad_row(Keyspace::Meta, keys::meta::INCARNATION))?;
    Ok(Verified { incarnation, former, rows })
}

/// Refuses a store that was ever used.
fn refuse_used(kv: &dyn OrderedKv) -> Result<(), Error> {
    let snapshot = kv.snapshot().map_err(|e| of_kv(e, RESTORE))?;
    let mut is_used =
        snapshot.get(Keyspace::Meta, keys::meta::TERM).map_err(|e| of_kv(e, RESTORE))?.is_some();
    for keyspace in [Keyspace::Tables, Keyspace::Live, Keyspace::History, Keyspace::Settings] {
        let rows = snapshot.scan(keyspace, &KeyRange::prefix(&[]), 1, false);
        is_used |= !rows.map_err(|e| of_kv(e, RESTORE))?.is_empty();
    }
    if !is_used {
        return Ok(());
    }
    Err(Error::new(ErrorKind::AlreadyExists, RESTORE)
        .with("reason", "the store was used before")
        .hint("restore into a store.path that has no store"))
}

struct Filling<'a> {
    kv: &'a dyn OrderedKv,
    batch: Batch,
    n_bytes: usize,
    at: Timestamp,
    rows: RestoredRows,
}

impl Filling<'_> {
    fn put(&mut self, keyspace: Keyspace, key: Vec<u8>, value: Bytes) {
        self.n_bytes += key.len() + value.len();
        self.batch.puts.push((keyspace, key, value));
    }

    fn flush(&mut self) -> Result<(), Error> {
        // A batch is in order of keyspace and key; rows that a restore adds lie elsewhere than the row they follow from.
        let mut batch = std::mem::take(&mut self.batch);
        batch.puts.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        self.n_bytes = 0;
        if batch.is_empty() { Ok(()) } else { self.kv.commit(&batch).map_err(|e| of_kv(e, RESTORE)) }
    }

    fn take(&mut self, row: Row) -> Result<(), Error> {
        self.rows.count(&row);
        let Row { keyspace, key, value } = row;
        let mut value = Bytes::from(value);
        match (keyspace, key.first().copied()) {
            (Keyspace::Meta, _) if OF_ONE_LIFE.contains(&key.as_slice()) => return Ok(()),
            // Nodes of the copied store do not run here.
            (Keyspace::Settings, Some(keys::NODE)) => return Ok(()),
            // Made anew for each table.
            (Keyspace::Touches, Some(keys::TOUCHED)) => return Ok(()),
            (Keyspace::Tables, Some(keys::TABLE_ROW)) => {
                if let Some(table) = keys::table_at(&key, 1) {
                    // What was handed over since the copy was made is not in it: only a look finds it.
                    self.put(Keyspace::Touches, keys::of_table(keys::TOUCHED, table), Bytes::new());
                }
            }
            (Keyspace::Live, Some(keys::LIVE_ROW)) | (Keyspace::History, Some(keys::HISTORY_ROW)) => {
                value = distrusted(keyspace, &key, value, self.at)?;
            }
            _ => {}
        }
        self.put(keyspace, key, value);
        if self.batch.puts.len() >= RESTORE_BATCH_ROWS || self.n_bytes >= RESTORE_BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }
}

/// Single rows that say something of one life of a store, not of its content.
const OF_ONE_LIFE: [&[u8]; 5] =
    [keys::meta::SCHEMA, keys::meta::INCARNATION, keys::meta::HOLD, keys::meta::FORMER, keys::meta::CHECK];

/// An instance without what a copy cannot know. A row that cannot be read stays as it is.
fn distrusted(keyspace: Keyspace, key: &[u8], value: Bytes, at: Timestamp) -> Result<Bytes, Error> {
    let Ok(mut row) = decode::<InstanceRow>(keyspace, key, &value) else { return Ok(value) };
    distrust(&mut row.instance, at);
    row.encoded()
}

/// Since the copy was made, an attempt that it does not know may have begun the plan: no inflight counts as ours. And a
/// driver may have got leave of the attempt that it does know: that nobody holds it must not be believed, or a revoke
/// would free a table that somebody works on.
fn distrust(instance: &mut Instance, at: Timestamp) {
    instance.has_called = false;
    instance.take_over = false;
    let Some(attempt) = instance.attempt.as_mut().filter(|attempt| attempt.state.is_live()) else { return };
    attempt.is_restored = true;
    attempt.called_at.get_or_insert(at);
    attempt.leave_at.get_or_insert(at);
    attempt.call_at.get_or_insert(at);
    if !matches!(attempt.state, AttemptState::Holding | AttemptState::Suspect) {
        attempt.state = AttemptState::Holding;
        attempt.holder = Holder::Run(RunId::unknown());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::PathRules;
    use crate::model::request::{HandOver, Trigger};
    use crate::store::memory::memory_store;

    fn hand_over(n: usize) -> HandOver {
        HandOver {
            base_path: PathRules::default().canonical(&format!("/lake/{n}")).unwrap(),
            spelling: format!("file:///lake/{n}"),
            database: None,
            table_name: None,
            hints: Vec::new(),
            queue: None,
            execution_engine: None,
            trigger: Trigger::Callback,
            at: Timestamp::UNIX_EPOCH,
            touch: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_whose_reader_takes_nothing_is_given_up_and_its_end_tells() {
        let store = memory_store();
        for from in [0, 5_000, 10_000] {
            let many: Vec<HandOver> = (from..from + 5_000).map(hand_over).collect();
            store.accept(&many).await.unwrap();
        }
        let mut stalled = store.begin_copy().await.unwrap();
        let begun = tokio::time::Instant::now();
        while store.begin_copy().await.is_err() {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(begun.elapsed() < COPY_TIME_MAX * 1_000, "it is never given up");
        }
        assert!(begun.elapsed() >= READER_WAIT_MAX, "{:?}", begun.elapsed());
        let mut copy = Vec::new();
        while let Some(piece) = stalled.recv().await {
            copy.extend(piece.unwrap());
        }
        let error = check_copy_blocking(copy.as_slice()).unwrap_err();
        assert!(error.to_string().contains("it is cut"), "{error}");
    }
}
