//! The store itself: opening, and how transactions run. One writer at a time; readers never wait for it.

use std::sync::Arc;

use bytes::Bytes;

use super::backup::RESTORING;
use super::codec::{bad_row, encode};
use super::covered::Covered;
use super::tx::{Tx, View, of_kv, read_number};
use super::{Batch, CONFLICT_RETRIES_MAX, Check, Keyspace, KvError, OrderedKv, keys};
use crate::error::{Error, ErrorKind};
use crate::model::id::Incarnation;

/// Version of the format on disk. A store with a newer one is refused.
pub const SCHEMA_VERSION: u64 = 2;

/// Every store trait over one ordered key-value backend.
#[derive(Clone, Debug)]
pub struct KvStore {
    kv: Arc<dyn OrderedKv>,
    /// Held from the first read to the commit, so that the writers of this process do not run into each
    /// other. The preconditions of a batch are what keeps the data right; this only saves repeats.
    writer: Arc<tokio::sync::Mutex<()>>,
    /// Taken before `writer` by all but hand-overs. So at most one of the others stands in that line, and a hand-over, on
    /// which a writer's commit waits, waits for two transactions at most and not for those of all looks.
    others: Arc<tokio::sync::Mutex<()>>,
    incarnation: Incarnation,
    pub(super) covered: Arc<Covered>,
    /// One copy at a time: each keeps the backend from freeing what was replaced since it began.
    pub(super) copying: Arc<tokio::sync::Semaphore>,
}

impl KvStore {
    /// Opens what the backend holds, or begins a new store in an empty one. Blocks.
    ///
    /// # Errors
    /// `Unsupported` when a newer TMS wrote it; what the backend says otherwise.
    pub fn open_blocking(kv: Arc<dyn OrderedKv>) -> Result<Self, Error> {
        let incarnation = match stored_incarnation(&*kv)? {
            Some(incarnation) => incarnation,
            None => begin(&*kv)?,
        };
        Ok(Self {
            kv,
            writer: Arc::default(),
            others: Arc::default(),
            incarnation,
            covered: Arc::new(Covered::new()),
            copying: Arc::new(tokio::sync::Semaphore::new(1)),
        })
    }

    pub(super) fn incarnation_mark(&self) -> &Incarnation {
        &self.incarnation
    }

    pub(super) fn backend(&self) -> Arc<dyn OrderedKv> {
        Arc::clone(&self.kv)
    }

    pub(super) fn is_in_place(&self) -> bool {
        self.kv.check_place().is_ok()
    }

    /// Runs reads on one snapshot.
    pub(super) async fn view<T, F>(&self, operation: &'static str, reads: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&View<'_>) -> Result<T, Error> + Send + 'static,
    {
        let kv = Arc::clone(&self.kv);
        let work = move || {
            let snapshot = kv.snapshot().map_err(|e| of_kv(e, operation))?;
            reads(&View::new(&*snapshot, operation))
        };
        self.run(operation, work).await
    }

    /// Runs one transaction; again, from new reads, when a precondition did not hold.
    pub(super) async fn transact<T, F>(&self, operation: &'static str, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    {
        let _others = self.others.lock().await;
        self.transact_first(operation, body).await
    }

    /// As [`Self::transact`], before all others that wait.
    pub(super) async fn transact_first<T, F>(&self, operation: &'static str, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    {
        let kv = Arc::clone(&self.kv);
        // Owned and moved into the work: a caller that goes away does not let the next writer in too early.
        let turn = Arc::clone(&self.writer).lock_owned().await;
        let work = move || {
            let done = transact_blocking(&*kv, operation, &body);
            drop(turn);
            done
        };
        self.run(operation, work).await
    }

    pub(super) async fn record_backend_metrics(&self) {
        let kv = Arc::clone(&self.kv);
        let work = move || {
            kv.record_metrics();
            Ok(())
        };
        if let Err(error) = self.run("measure the store", work).await {
            tracing::warn!(%error, "Cannot measure the store.");
        }
    }

    async fn run<T, F>(&self, operation: &'static str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, Error> + Send + 'static,
    {
        if !self.kv.is_blocking() {
            return work();
        }
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|e| Error::new(ErrorKind::Unexpected, operation).caused_by(e))?
    }
}

fn transact_blocking<T>(
    kv: &dyn OrderedKv,
    operation: &'static str,
    body: &impl Fn(&mut Tx<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    for _ in 0..CONFLICT_RETRIES_MAX {
        let (batch, result) = {
            let snapshot = kv.snapshot().map_err(|e| of_kv(e, operation))?;
            let mut tx = Tx::new(&*snapshot, operation);
            let result = body(&mut tx)?;
            (tx.into_batch(), result)
        };
        if batch.is_empty() {
            return Ok(result);
        }
        match kv.commit(&batch) {
            Ok(()) => return Ok(result),
            Err(KvError::Conflict { keyspace, .. }) => {
                metrics::counter!("tms_store_conflicts_total", "keyspace" => keyspace.as_str()).increment(1);
            }
            Err(e) => return Err(of_kv(e, operation)),
        }
    }
    Err(Error::new(ErrorKind::Unavailable, operation)
        .with("attempts", CONFLICT_RETRIES_MAX)
        .hint("other writers were always faster; try again"))
}

/// Returns the incarnation of a store that exists; none when the backend is empty.
fn stored_incarnation(kv: &dyn OrderedKv) -> Result<Option<Incarnation>, Error> {
    const OPERATION: &str = "open the store";
    let snapshot = kv.snapshot().map_err(|e| of_kv(e, OPERATION))?;
    let view = View::new(&*snapshot, OPERATION);
    let Some(schema) = view.get(Keyspace::Meta, keys::meta::SCHEMA)? else { return Ok(None) };
    let schema = read_number(keys::meta::SCHEMA, &schema)?;
    if schema > SCHEMA_VERSION {
        return Err(Error::new(ErrorKind::Unsupported, OPERATION)
            .with("schema", schema)
            .with("newest known", SCHEMA_VERSION)
            .hint("a newer TMS wrote this store: start that version, or give this one another store.path"));
    }
    if schema == RESTORING {
        return Err(Error::new(ErrorKind::Unsupported, OPERATION)
            .with("reason", "a restore of it has not come to its end")
            .hint("wait for the `tms-server restore` that runs; when none does, restore into another store.path"));
    }
    if schema < SCHEMA_VERSION {
        // Without the rows of the slots a live attempt would not keep a second one off its table.
        return Err(Error::new(ErrorKind::Unsupported, OPERATION)
            .with("schema", schema)
            .with("oldest known", SCHEMA_VERSION)
            .hint("a TMS before the first release wrote this store: let its jobs end with it, then give this one another store.path"));
    }
    match view.read(Keyspace::Meta, keys::meta::INCARNATION)? {
        Some(incarnation) => Ok(Some(incarnation)),
        None => Err(bad_row(Keyspace::Meta, keys::meta::INCARNATION)),
    }
}

fn begin(kv: &dyn OrderedKv) -> Result<Incarnation, Error> {
    const OPERATION: &str = "begin a new store";
    let incarnation = Incarnation::random();
    let meta = |key: &[u8], value: Bytes| (Keyspace::Meta, key.to_vec(), value);
    let batch = Batch {
        checks: vec![Check { keyspace: Keyspace::Meta, key: keys::meta::SCHEMA.to_vec(), expected: None }],
        puts: vec![
            meta(keys::meta::INCARNATION, encode(&incarnation)?),
            meta(keys::meta::SCHEMA, Bytes::copy_from_slice(&SCHEMA_VERSION.to_be_bytes())),
        ],
        deletes: Vec::new(),
    };
    kv.commit(&batch).map_err(|e| of_kv(e, OPERATION))?;
    Ok(incarnation)
}
