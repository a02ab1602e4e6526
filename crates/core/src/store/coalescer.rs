//! Joins concurrent hand-overs into one durable batch: group commit for every store. It stands between the
//! Managers and the store, adds no wait when nothing else is going on, and grows its batches under load.
//!
//! It must never acknowledge what is not durable, and never let one bad hand-over fail the others.

mod batch;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::batch::Part;
use super::RequestStore;
use crate::error::{Error, ErrorKind};
use crate::fail_point::{self, FailPoint};
use crate::model::event::cut;
use crate::model::id::{NAME_BYTES_MAX, TableId};
use crate::model::path::BASE_PATH_BYTES_MAX;
use crate::model::request::{Accepted, HINTS_MAX, HandOver};

/// Longest label that is kept, in bytes; a longer one is cut, since a label must not fail a writer's commit.
pub const LABEL_BYTES_MAX: usize = 256;

const OPERATION: &str = "store a hand-over";

/// Bounds of the coalescer.
#[derive(Clone, Copy, Debug)]
pub struct CoalescerLimits {
    /// Hand-overs that wait or are being stored.
    pub queue_count_max: usize,
    /// Their size in memory, in bytes.
    pub queue_bytes_max: usize,
    /// Hand-overs and named instants of one batch.
    pub batch_rows_max: usize,
    /// Size of one batch, in bytes.
    pub batch_bytes_max: usize,
    /// Times that a batch is tried again when the store is not available.
    pub retries_max: u32,
    /// Wait before the first of these; doubles with each further one.
    pub retry_wait: Duration,
    /// Longest wait of a caller for its answer.
    pub answer_wait_max: Duration,
}

impl Default for CoalescerLimits {
    fn default() -> Self {
        Self {
            queue_count_max: 10_000,
            queue_bytes_max: 64 * 1024 * 1024,
            batch_rows_max: 2_000,
            batch_bytes_max: 8 * 1024 * 1024,
            retries_max: 3,
            retry_wait: Duration::from_millis(50),
            answer_wait_max: Duration::from_secs(30),
        }
    }
}

/// The cheap handle: takes hand-overs and answers when they are durable.
#[derive(Clone, Debug)]
pub struct Coalescer {
    store: Arc<dyn RequestStore>,
    queue: mpsc::UnboundedSender<Item>,
    room: Arc<Room>,
    limits: CoalescerLimits,
}

/// The work itself; the assembly runs it once.
#[derive(Debug)]
pub struct CoalescerTask {
    store: Arc<dyn RequestStore>,
    queue: mpsc::UnboundedReceiver<Item>,
    room: Arc<Room>,
    limits: CoalescerLimits,
}

/// What the queue may still hold. The channel itself is unbounded: its items own their room.
#[derive(Debug)]
struct Room {
    count: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);
type Answer = oneshot::Sender<Result<Accepted, Error>>;

/// One hand-over on its way, with its room and where its answer goes.
#[derive(Debug)]
struct Item {
    table: TableId,
    hand_over: HandOver,
    n_bytes: usize,
    answer: Answer,
    permits: Permits,
}

impl Item {
    fn n_rows(&self) -> usize {
        1 + self.hand_over.hints.len()
    }
}

impl Coalescer {
    /// Makes a coalescer over `store`: the handle, and the task that [`CoalescerTask::run`] runs.
    #[must_use]
    pub fn new(store: Arc<dyn RequestStore>, limits: CoalescerLimits) -> (Self, CoalescerTask) {
        let (sender, queue) = mpsc::unbounded_channel();
        let semaphore = |n: usize| Arc::new(Semaphore::new(n.clamp(1, Semaphore::MAX_PERMITS)));
        let room = Arc::new(Room {
            count: semaphore(limits.queue_count_max),
            bytes: semaphore(limits.queue_bytes_max),
        });
        let handle = Self { store: Arc::clone(&store), queue: sender, room: Arc::clone(&room), limits };
        (handle, CoalescerTask { store, queue, room, limits })
    }

    /// Stores one hand-over; returns when it is durable.
    ///
    /// # Errors
    /// - `Invalid` when it could never be stored
    /// - `Unavailable`, at once, when the queue is full or the server stops; later, when the store cannot
    ///   take it. It
    ///   may have become durable all the same; a repeat changes nothing
    pub async fn hand_over(&self, hand_over: HandOver) -> Result<Accepted, Error> {
        let hand_over = checked(hand_over)?;
        if let Some(accepted) = self.covered(&hand_over) {
            return Ok(accepted);
        }
        let permits = self.room_now(bytes_of(&hand_over))?;
        self.store(hand_over, permits).await
    }

    /// As [`Self::hand_over`], but waits up to `wait_max` for room first: a writer's commit fails with the
    /// answer, although its data is safe.
    ///
    /// # Errors
    /// As [`Self::hand_over`].
    pub async fn hand_over_waiting(
        &self,
        hand_over: HandOver,
        wait_max: Duration,
    ) -> Result<Accepted, Error> {
        let hand_over = checked(hand_over)?;
        if let Some(accepted) = self.covered(&hand_over) {
            return Ok(accepted);
        }
        let n_bytes = bytes_of(&hand_over);
        let permits = match tokio::time::timeout(wait_max, self.room_later(n_bytes)).await {
            Ok(permits) => permits?,
            Err(_) => return Err(full()),
        };
        self.store(hand_over, permits).await
    }

    fn covered(&self, hand_over: &HandOver) -> Option<Accepted> {
        let accepted = self.store.covered(hand_over)?;
        metrics::counter!("tms_hand_overs_covered_total").increment(1);
        Some(accepted)
    }

    fn room_now(&self, n_bytes: usize) -> Result<Permits, Error> {
        let refused = |e| match e {
            TryAcquireError::NoPermits => full(),
            TryAcquireError::Closed => stopping(),
        };
        let count = Arc::clone(&self.room.count).try_acquire_owned().map_err(refused)?;
        let n_permits = self.byte_permits(n_bytes);
        let bytes = Arc::clone(&self.room.bytes).try_acquire_many_owned(n_permits).map_err(refused)?;
        Ok((count, bytes))
    }

    async fn room_later(&self, n_bytes: usize) -> Result<Permits, Error> {
        let count = Arc::clone(&self.room.count).acquire_owned().await.map_err(|_| stopping())?;
        let n_permits = self.byte_permits(n_bytes);
        let bytes =
            Arc::clone(&self.room.bytes).acquire_many_owned(n_permits).await.map_err(|_| stopping())?;
        Ok((count, bytes))
    }

    /// One that is larger than the whole queue takes all of it, rather than waiting for ever.
    fn byte_permits(&self, n_bytes: usize) -> u32 {
        u32::try_from(n_bytes.min(self.limits.queue_bytes_max)).unwrap_or(u32::MAX)
    }

    async fn store(&self, hand_over: HandOver, permits: Permits) -> Result<Accepted, Error> {
        let (answer, answered) = oneshot::channel();
        let table = TableId::of(&hand_over.base_path);
        let n_bytes = bytes_of(&hand_over);
        let item = Item { table, hand_over, n_bytes, answer, permits };
        self.queue.send(item).map_err(|_| stopping())?;
        match tokio::time::timeout(self.limits.answer_wait_max, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Error::new(ErrorKind::Unexpected, OPERATION)
                .with("reason", "its batch was given up")
                .hint("repeat it: a repeat changes nothing")),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, OPERATION)
                .with("waited", format!("{} s", self.limits.answer_wait_max.as_secs()))
                .hint("the store is slow; repeat it: a repeat changes nothing")),
        }
    }
}

impl CoalescerTask {
    /// Stores what the handles send until `shutdown`; then finishes what is queued and refuses what comes.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut waiting: VecDeque<Item> = VecDeque::new();
        let mut is_closing = false;
        loop {
            if shutdown.is_cancelled() && !is_closing {
                is_closing = true;
                self.queue.close();
                self.room.count.close();
                self.room.bytes.close();
            }
            if waiting.is_empty() {
                tokio::select! {
                    () = shutdown.cancelled(), if !is_closing => continue,
                    item = self.queue.recv() => match item {
                        Some(item) => waiting.push_back(item),
                        None => return,
                    },
                }
            }
            while let Ok(item) = self.queue.try_recv() {
                waiting.push_back(item);
            }
            let batch = self.next_batch(&mut waiting);
            // A defect here must cost the callers of one batch, not the server.
            let done = AssertUnwindSafe(self.store_batch(batch)).catch_unwind().await;
            if done.is_err() {
                metrics::counter!("tms_store_commit_errors_total", "kind" => "panic").increment(1);
                tracing::error!("The storing of a batch of hand-overs panicked; its callers got errors.");
            }
        }
    }

    /// Takes from the front what fits one batch; at least one.
    fn next_batch(&self, waiting: &mut VecDeque<Item>) -> Vec<Item> {
        let mut batch = Vec::new();
        let (mut n_rows, mut n_bytes) = (0, 0);
        while let Some(next) = waiting.front() {
            n_rows += next.n_rows();
            n_bytes += next.n_bytes;
            let fits = n_rows <= self.limits.batch_rows_max && n_bytes <= self.limits.batch_bytes_max;
            if !fits && !batch.is_empty() {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        batch
    }

    /// Stores a batch and answers each of its callers. A batch that the store refuses for what is in it is
    /// halved until only the hand-over that it refuses is left.
    async fn store_batch(&self, items: Vec<Item>) {
        metrics::histogram!("tms_store_batch_size")
            .record(f64::from(u32::try_from(items.len()).unwrap_or(u32::MAX)));
        let mut parts = vec![Part::merged(items)];
        while let Some(mut part) = parts.pop() {
            match self.accept(&part).await {
                Ok(accepted) => part.answer(accepted),
                Err(error) if error.is_transient() => {
                    // The store is down for all: halving would only make each of them wait.
                    part.refuse(&error);
                    parts.drain(..).for_each(|other| other.refuse(&error));
                }
                Err(error) => match part.split() {
                    Some(second) => {
                        parts.push(second);
                        parts.push(part);
                    }
                    None => {
                        tracing::warn!(error = %error.chain(), "The store refused a hand-over.");
                        part.refuse(&error);
                    }
                },
            }
        }
    }

    /// Stores a part whole; again while the store is not available, a bounded number of times.
    async fn accept(&self, part: &Part) -> Result<Vec<Accepted>, Error> {
        let mut wait = self.limits.retry_wait;
        for n_retries in 0.. {
            let error = match self.accept_once(part).await {
                Ok(accepted) => return Ok(accepted),
                Err(error) => error,
            };
            metrics::counter!("tms_store_commit_errors_total", "kind" => kind_of(&error)).increment(1);
            if !error.is_transient() || n_retries == self.limits.retries_max {
                return Err(error);
            }
            tracing::warn!(error = %error.chain(), n_retries, "The store is not available; trying again.");
            tokio::time::sleep(wait).await;
            wait = wait.saturating_mul(2);
        }
        Err(Error::new(ErrorKind::Unexpected, OPERATION))
    }

    async fn accept_once(&self, part: &Part) -> Result<Vec<Accepted>, Error> {
        fail_point::pass(FailPoint::HandOverTaken);
        let accepted =
            AssertUnwindSafe(self.store.accept(part.hand_overs())).catch_unwind().await.map_err(|_| {
                Error::new(ErrorKind::Unexpected, OPERATION).with("reason", "the store panicked")
            })??;
        if accepted.len() != part.hand_overs().len() {
            return Err(Error::new(ErrorKind::Unexpected, OPERATION)
                .with("answers", accepted.len())
                .with("hand-overs", part.hand_overs().len()));
        }
        fail_point::pass(FailPoint::HandOverStored);
        metrics::counter!("tms_store_commits_total").increment(1);
        Ok(accepted)
    }
}

fn kind_of(error: &Error) -> &'static str {
    if error.is_transient() { "unavailable" } else { "refused" }
}

/// Refuses what no store could take, and cuts what is for people only.
fn checked(mut hand_over: HandOver) -> Result<HandOver, Error> {
    let invalid = |reason: String| {
        Error::new(ErrorKind::Invalid, OPERATION).with("table", &hand_over.base_path).with("reason", reason)
    };
    if hand_over.hints.len() > HINTS_MAX {
        return Err(invalid(format!("it names more than {HINTS_MAX} instants"))
            .hint("name the instants that are pending only, or none: TMS reads the timeline"));
    }
    if hand_over.base_path.as_str().len().max(hand_over.spelling.len()) > BASE_PATH_BYTES_MAX {
        return Err(invalid(format!("its base path is longer than {BASE_PATH_BYTES_MAX} bytes")));
    }
    let shorten = |text: &mut Option<String>, bytes_max: usize| {
        if let Some(text) = text.as_mut().filter(|text| text.len() > bytes_max) {
            *text = cut(text, bytes_max);
        }
    };
    shorten(&mut hand_over.database, LABEL_BYTES_MAX);
    shorten(&mut hand_over.table_name, LABEL_BYTES_MAX);
    shorten(&mut hand_over.execution_engine, NAME_BYTES_MAX);
    hand_over.hints.sort_unstable();
    hand_over.hints.dedup();
    Ok(hand_over)
}

/// Returns about how much memory a hand-over takes, in bytes.
fn bytes_of(hand_over: &HandOver) -> usize {
    let texts = hand_over.base_path.as_str().len()
        + hand_over.spelling.len()
        + [&hand_over.database, &hand_over.table_name, &hand_over.execution_engine]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum::<usize>();
    let hints: usize = hand_over.hints.iter().map(|hint| size_of_val(hint) + hint.1.as_str().len()).sum();
    size_of::<Item>() + texts + hints
}

fn full() -> Error {
    metrics::counter!("tms_store_queue_full_total").increment(1);
    Error::new(ErrorKind::Unavailable, OPERATION)
        .with("reason", "too many hand-overs wait for the store")
        .hint("try again in a second; a repeat changes nothing")
}

fn stopping() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION)
        .with("reason", "the server is stopping")
        .hint("try again when it is up; a repeat changes nothing")
}
