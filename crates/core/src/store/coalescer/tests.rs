//! The coalescer over a store that blocks, fails and panics on demand, in paused time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::task::JoinHandle;

use super::*;
use crate::clock::Timestamp;
use crate::model::action::Action;
use crate::model::path::PathRules;
use crate::model::request::Trigger;
use crate::store::Store;
use crate::store::memory::memory_store;

/// Takes what the memory store takes, unless told otherwise.
#[derive(Debug)]
struct TestStore {
    inner: Arc<dyn Store>,
    /// A permit per call that may go on.
    gate: Semaphore,
    n_started: AtomicUsize,
    batches: Mutex<Vec<usize>>,
    faults: Mutex<VecDeque<ErrorKind>>,
    /// A table that the store refuses, and how.
    poison: Mutex<Option<(String, Poison)>>,
}

#[derive(Clone, Copy, Debug)]
enum Poison {
    Error,
    Panic,
}

#[async_trait]
impl RequestStore for TestStore {
    async fn accept(&self, batch: &[HandOver]) -> Result<Vec<Accepted>, Error> {
        self.n_started.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        if let Some(kind) = self.faults.lock().unwrap().pop_front() {
            return Err(Error::new(kind, "test"));
        }
        let poison = self.poison.lock().unwrap().clone();
        if let Some((path, how)) = poison
            && batch.iter().any(|one| one.base_path.as_str() == path)
        {
            match how {
                Poison::Error => return Err(Error::new(ErrorKind::Unexpected, "test")),
                Poison::Panic => panic!("a row that the store cannot bear"),
            }
        }
        let accepted = self.inner.accept(batch).await?;
        self.batches.lock().unwrap().push(batch.len());
        Ok(accepted)
    }
}

struct Setup {
    store: Arc<TestStore>,
    coalescer: Coalescer,
    task: JoinHandle<()>,
    shutdown: CancellationToken,
}

#[expect(clippy::disallowed_methods, reason = "a test is its own owner of tasks")]
fn spawned<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(future)
}

fn setup(limits: CoalescerLimits, n_open: usize) -> Setup {
    let store = Arc::new(TestStore {
        inner: memory_store(),
        gate: Semaphore::new(n_open),
        n_started: AtomicUsize::new(0),
        batches: Mutex::default(),
        faults: Mutex::default(),
        poison: Mutex::default(),
    });
    let (coalescer, task) = Coalescer::new(Arc::clone(&store) as Arc<dyn RequestStore>, limits);
    let shutdown = CancellationToken::new();
    let task = spawned(task.run(shutdown.clone()));
    Setup { store, coalescer, task, shutdown }
}

impl Setup {
    fn send(&self, hand_over: HandOver) -> JoinHandle<Result<Accepted, Error>> {
        let coalescer = self.coalescer.clone();
        spawned(async move { coalescer.hand_over(hand_over).await })
    }

    /// Sends one and waits until the store has it in hand.
    async fn send_and_stall(&self, hand_over: HandOver) -> JoinHandle<Result<Accepted, Error>> {
        let before = self.store.n_started.load(Ordering::SeqCst);
        let sent = self.send(hand_over);
        while self.store.n_started.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        sent
    }

    fn open(&self) {
        self.store.gate.add_permits(100_000);
    }

    fn batches(&self) -> Vec<usize> {
        self.store.batches.lock().unwrap().clone()
    }
}

fn path_of(n: usize) -> String {
    format!("file:/lake/t{n}")
}

fn hand_over(n: usize) -> HandOver {
    HandOver {
        base_path: PathRules::default().canonical(&path_of(n)).unwrap(),
        spelling: path_of(n),
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

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idle_coalescer_adds_no_wait() {
    let test = setup(CoalescerLimits::default(), 10);
    let start = tokio::time::Instant::now();
    let accepted = test.coalescer.hand_over(hand_over(1)).await.unwrap();
    assert_eq!(accepted, Accepted { touch: 1, n_hinted: 0, is_new_table: true });
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(test.batches(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_during_a_commit_shares_the_next() {
    let test = setup(CoalescerLimits::default(), 0);
    let mut sent = vec![test.send_and_stall(hand_over(0)).await];
    sent.extend((1..=50).map(|n| test.send(hand_over(n))));
    settle().await;
    assert!(sent.iter().all(|one| !one.is_finished()), "acknowledged before it was durable");
    test.open();
    for one in sent {
        assert!(one.await.unwrap().unwrap().is_new_table);
    }
    assert_eq!(test.batches(), [1, 50]);
}

#[tokio::test(start_paused = true)]
async fn equal_hand_overs_become_one_and_all_are_answered() {
    let test = setup(CoalescerLimits::default(), 0);
    let first = test.send_and_stall(hand_over(0)).await;
    let mut named = hand_over(1);
    named.hints =
        vec![(Action::Compaction, "2".parse().unwrap()), (Action::Compaction, "1".parse().unwrap())];
    let mut sent: Vec<_> = (0..10).map(|_| test.send(named.clone())).collect();
    named.hints.reverse();
    named.spelling = "file:///lake/t1".to_owned();
    sent.push(test.send(named));
    sent.push(test.send(hand_over(1)));
    settle().await;
    test.open();
    first.await.unwrap().unwrap();
    let mut answers = Vec::new();
    for one in sent {
        answers.push(one.await.unwrap().unwrap());
    }
    assert_eq!(test.batches(), [1, 2], "eleven that name the same are one, the one without names another");
    assert_eq!(answers.iter().filter(|one| one.is_new_table).count(), 1);
    assert_eq!(answers.iter().map(|one| one.n_hinted).sum::<usize>(), 2);
    let table = test.store.inner.get_table(TableId::of(&hand_over(1).base_path)).await.unwrap().unwrap();
    assert_eq!(table.touch.touch, 2);
}

#[tokio::test(start_paused = true)]
async fn batch_is_bounded_by_rows_and_sorted_by_table() {
    let limits = CoalescerLimits { batch_rows_max: 4, ..CoalescerLimits::default() };
    let test = setup(limits, 0);
    let mut sent = vec![test.send_and_stall(hand_over(0)).await];
    sent.extend((1..=10).map(|n| test.send(hand_over(n))));
    settle().await;
    test.open();
    for one in sent {
        one.await.unwrap().unwrap();
    }
    assert_eq!(test.batches(), [1, 4, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_at_once_and_writers_wait_a_bounded_time() {
    let limits = CoalescerLimits { queue_count_max: 2, ..CoalescerLimits::default() };
    let test = setup(limits, 0);
    let first = test.send_and_stall(hand_over(0)).await;
    let second = test.send(hand_over(1));
    settle().await;
    let refused = test.coalescer.hand_over(hand_over(2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);

    let start = tokio::time::Instant::now();
    let wait = Duration::from_secs(2);
    let late = test.coalescer.hand_over_waiting(hand_over(3), wait).await.unwrap_err();
    assert_eq!((late.kind(), start.elapsed()), (ErrorKind::Unavailable, wait));

    let coalescer = test.coalescer.clone();
    let waits = spawned(async move { coalescer.hand_over_waiting(hand_over(4), wait).await });
    settle().await;
    test.open();
    assert!(waits.await.unwrap().is_ok());
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
    let table = |n| TableId::of(&hand_over(n).base_path);
    assert!(test.store.inner.get_table(table(2)).await.unwrap().is_none(), "refused, yet stored");
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_by_bytes_too() {
    let limits = CoalescerLimits { queue_bytes_max: 1_000, ..CoalescerLimits::default() };
    let test = setup(limits, 0);
    let mut large = hand_over(0);
    large.spelling = format!("file:/{}", "x".repeat(2_000));
    let first = test.send_and_stall(large).await;
    assert_eq!(test.coalescer.hand_over(hand_over(1)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    test.open();
    assert!(first.await.unwrap().is_ok(), "one that is larger than the queue still goes through alone");
    assert!(test.coalescer.hand_over(hand_over(1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn store_that_comes_back_takes_the_batch_whole() {
    let test = setup(CoalescerLimits::default(), 100);
    test.store.faults.lock().unwrap().extend([ErrorKind::Unavailable; 3]);
    assert!(test.coalescer.hand_over(hand_over(1)).await.is_ok());
    assert_eq!(test.store.n_started.load(Ordering::SeqCst), 4);
    assert_eq!(test.batches(), [1]);
}

#[tokio::test(start_paused = true)]
async fn store_that_stays_away_fails_the_batch_after_the_named_retries() {
    let test = setup(CoalescerLimits::default(), 0);
    let mut sent = vec![test.send_and_stall(hand_over(0)).await];
    sent.extend((1..=8).map(|n| test.send(hand_over(n))));
    settle().await;
    test.store.faults.lock().unwrap().extend([ErrorKind::Unavailable; 8]);
    test.open();
    for one in sent {
        assert_eq!(one.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(test.store.n_started.load(Ordering::SeqCst), 8, "four tries for each of the two batches");
    assert!(test.coalescer.hand_over(hand_over(9)).await.is_ok(), "it goes on when the store is back");
}

#[tokio::test(start_paused = true)]
async fn only_the_poisonous_hand_over_gets_the_error() {
    for how in [Poison::Error, Poison::Panic] {
        let test = setup(CoalescerLimits::default(), 0);
        *test.store.poison.lock().unwrap() = Some((path_of(13), how));
        let mut sent = vec![test.send_and_stall(hand_over(0)).await];
        sent.extend((1..=40).map(|n| test.send(hand_over(n))));
        settle().await;
        test.open();
        for (n, one) in sent.into_iter().enumerate() {
            let answer = one.await.unwrap();
            assert_eq!(answer.is_ok(), n != 13, "{n}: {answer:?}");
        }
        assert!(test.coalescer.hand_over(hand_over(41)).await.is_ok(), "it goes on");
        assert!(test.store.n_started.load(Ordering::SeqCst) < 20, "halved, not one by one");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_what_is_queued_and_refuses_what_comes() {
    let test = setup(CoalescerLimits::default(), 0);
    let mut sent = vec![test.send_and_stall(hand_over(0)).await];
    sent.extend((1..=5).map(|n| test.send(hand_over(n))));
    settle().await;
    test.shutdown.cancel();
    test.open();
    for one in sent {
        assert!(one.await.unwrap().is_ok());
    }
    test.task.await.unwrap();
    let refused = test.coalescer.hand_over(hand_over(6)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let refused = test.coalescer.hand_over_waiting(hand_over(6), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn caller_does_not_wait_for_ever() {
    let test = setup(CoalescerLimits::default(), 0);
    let late = test.coalescer.hand_over(hand_over(0)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn what_no_store_could_take_is_refused_before_the_queue() {
    let test = setup(CoalescerLimits::default(), 100);
    let mut many = hand_over(1);
    many.hints = (0..=HINTS_MAX).map(|n| (Action::Clean, n.to_string().parse().unwrap())).collect();
    assert_eq!(test.coalescer.hand_over(many).await.unwrap_err().kind(), ErrorKind::Invalid);
    let mut long = hand_over(1);
    long.spelling = "x".repeat(BASE_PATH_BYTES_MAX + 1);
    assert_eq!(test.coalescer.hand_over(long).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(test.store.n_started.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn long_label_is_cut_rather_than_refused() {
    let test = setup(CoalescerLimits::default(), 100);
    let mut labelled = hand_over(1);
    labelled.table_name = Some("é".repeat(LABEL_BYTES_MAX));
    test.coalescer.hand_over(labelled).await.unwrap();
    let table = test.store.inner.get_table(TableId::of(&hand_over(1).base_path)).await.unwrap().unwrap();
    let kept = table.touch.name.unwrap();
    assert!(kept.starts_with('é') && kept.len() <= LABEL_BYTES_MAX + '…'.len_utf8(), "{}", kept.len());
}
