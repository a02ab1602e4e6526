//! The threads on which local files are read, and what is done about reads that hang.
//!
//! A read of a dead mount cannot be ended from outside: its thread is gone until the mount answers. The threads are
//! tokio's, which the store of a server shares; so their number is bounded here, far below tokio's own 512, and what is
//! known to hang is not asked again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::mounts::{self, MountId};
use super::{ListingError, ListingErrorKind};

/// Most threads of a process that read tables, hung ones among them.
pub const LISTING_THREADS_MAX: usize = 192;
/// Most reads of one mount that may hang; beyond it nothing of that mount is asked, so that other mounts are.
pub const HUNG_PER_MOUNT_MAX: usize = 32;
/// Age from which a read that nobody waits for any more counts as hung. Younger ones belong to callers who went away.
const HUNG_AFTER: Duration = Duration::from_secs(5);
/// Longest wait for a free thread.
const THREAD_WAIT_MAX: Duration = Duration::from_secs(5);

static PROCESS: LazyLock<Arc<ReadThreads>> = LazyLock::new(|| {
    Arc::new(ReadThreads::new(ReadLimits {
        threads: LISTING_THREADS_MAX,
        hung_per_mount: HUNG_PER_MOUNT_MAX,
        hung_after: HUNG_AFTER,
        thread_wait: THREAD_WAIT_MAX,
    }))
});

/// Limits of [`ReadThreads`].
#[derive(Clone, Copy, Debug)]
struct ReadLimits {
    threads: usize,
    hung_per_mount: usize,
    hung_after: Duration,
    thread_wait: Duration,
}

/// A bounded number of threads for reads that block.
#[derive(Debug)]
pub struct ReadThreads {
    limits: ReadLimits,
    threads: Arc<Semaphore>,
    /// Reads that nobody waits for any more and that have not ended. As many as there are threads at most.
    given_up: Mutex<Vec<GivenUp>>,
    mount_of: fn(&Path) -> Option<MountId>,
}

#[derive(Debug)]
struct Read {
    path: String,
    began: Instant,
    /// Changed under the lock of `given_up` only.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct GivenUp {
    read: Arc<Read>,
    mount: Option<MountId>,
}

impl ReadThreads {
    fn new(limits: ReadLimits) -> Self {
        let threads = Arc::new(Semaphore::new(limits.threads));
        Self { limits, threads, given_up: Mutex::default(), mount_of: mounts::mount_of }
    }

    /// Returns the threads that all reads of this process share.
    #[must_use]
    pub fn of_process() -> Arc<Self> {
        Arc::clone(&PROCESS)
    }

    fn given_up(&self) -> MutexGuard<'_, Vec<GivenUp>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_hung(&self, found: &GivenUp) -> bool {
        found.read.began.elapsed() >= self.limits.hung_after
    }

    /// Refuses `folder` while a former read of something in it hangs, so that one table costs a few threads at most.
    ///
    /// # Errors
    /// `Unreachable`, with what hangs.
    pub fn check(&self, folder: &str) -> Result<(), ListingError> {
        let folder = folder.trim_end_matches('/');
        let is_below =
            |path: &str| path.strip_prefix(folder).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let given_up = self.given_up();
        let Some(found) = given_up.iter().find(|g| is_below(&g.read.path) && self.is_hung(g)) else {
            return Ok(());
        };
        let secs = found.read.began.elapsed().as_secs();
        let detail =
            format!("a former read of {} hangs since {secs} s: nothing more is asked", found.read.path);
        Err(ListingError::new(ListingErrorKind::Unreachable, folder, detail))
    }

    fn check_mount(&self, path: &str) -> Result<(), ListingError> {
        if self.given_up().is_empty() {
            return Ok(());
        }
        let Some(mount) = self.mount(path) else { return Ok(()) };
        let n_hung = self.given_up().iter().filter(|g| g.mount == Some(mount) && self.is_hung(g)).count();
        if n_hung < self.limits.hung_per_mount {
            return Ok(());
        }
        let detail = format!(
            "{n_hung} reads of this mount hang: nothing more of it is asked until some of them end; \
             if the mount answers and this stays, start the server again"
        );
        Err(ListingError::new(ListingErrorKind::Unreachable, path, detail))
    }

    fn mount(&self, path: &str) -> Option<MountId> {
        let local = super::LocalListing::local_path(path).ok()?;
        (self.mount_of)(&local)
    }

    /// Runs one read on a thread where it may block. When the caller goes away the read goes on, and keeps its thread
    /// until it ends.
    ///
    /// # Errors
    /// `Unreachable` when no thread comes free, since too many reads hang; those of the read.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        path: &str,
        work: impl FnOnce(&str) -> Result<T, ListingError> + Send + 'static,
    ) -> Result<T, ListingError> {
        let permit = timeout(self.limits.thread_wait, Arc::clone(&self.threads).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let detail = format!(
                "too many reads of tables hang: none of the {} threads for them came free within {} s",
                self.limits.threads,
                self.limits.thread_wait.as_secs()
            );
            return Err(ListingError::new(ListingErrorKind::Unreachable, path, detail));
        };
        let read =
            Arc::new(Read { path: path.to_owned(), began: Instant::now(), is_over: AtomicBool::new(false) });
        let asker = Asker { threads: Arc::clone(self), read: Arc::clone(&read) };
        let running = Running { threads: Arc::clone(self), read, _permit: permit };
        let done = tokio::task::spawn_blocking(move || {
            running.threads.check_mount(&running.read.path)?;
            work(&running.read.path)
        })
        .await;
        drop(asker);
        done.unwrap_or_else(|e| Err(ListingError::new(ListingErrorKind::Unreachable, path, e.to_string())))
    }
}

/// Waits for a read; notes it when it goes away before.
struct Asker {
    threads: Arc<ReadThreads>,
    read: Arc<Read>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        if self.read.is_over.load(Ordering::Acquire) {
            return;
        }
        let mount = self.threads.mount(&self.read.path);
        let mut given_up = self.threads.given_up();
        if !self.read.is_over.load(Ordering::Acquire) {
            given_up.push(GivenUp { read: Arc::clone(&self.read), mount });
        }
    }
}

/// A read that runs; also one that panics ends.
struct Running {
    threads: Arc<ReadThreads>,
    read: Arc<Read>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut given_up = self.threads.given_up();
        self.read.is_over.store(true, Ordering::Release);
        given_up.retain(|g| !Arc::ptr_eq(&g.read, &self.read));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use super::*;

    /// A dead mount: whoever reads it waits until it is opened.
    #[derive(Default)]
    struct Gate {
        is_open: Mutex<bool>,
        opened: Condvar,
    }

    impl Gate {
        fn pass(&self) {
            let is_open = self.is_open.lock().unwrap();
            drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        }

        fn open(&self) {
            *self.is_open.lock().unwrap() = true;
            self.opened.notify_all();
        }
    }

    /// Also when a test fails: the end of its runtime waits for the threads.
    struct Opened(Arc<Gate>);

    impl Drop for Opened {
        fn drop(&mut self) {
            self.0.open();
        }
    }

    const BRIEFLY: Duration = Duration::from_millis(20);
    const SOON: Duration = Duration::from_secs(10);

    /// Threads and a gate: `/dead/…` is one mount, `/live/…` another.
    fn threads(n: usize, hung_per_mount: usize) -> (Arc<ReadThreads>, Opened) {
        let limits =
            ReadLimits { threads: n, hung_per_mount, hung_after: Duration::ZERO, thread_wait: BRIEFLY };
        let mut threads = ReadThreads::new(limits);
        threads.mount_of = |path| Some(if path.starts_with("/dead") { 1 } else { 2 });
        (Arc::new(threads), Opened(Arc::default()))
    }

    /// Asks for what does not answer; `Ok` when it was asked and given up.
    async fn give_up(threads: &Arc<ReadThreads>, gate: &Opened, path: &str) -> Result<(), String> {
        let gate = Arc::clone(&gate.0);
        let read = threads.run(path, move |_| {
            gate.pass();
            Ok(())
        });
        match timeout(BRIEFLY * 5, read).await {
            Err(_) => Ok(()),
            Ok(done) => Err(done.unwrap_err().to_string()),
        }
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let wait = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, wait).await.unwrap_or_else(|_| panic!("{what}"));
    }

    #[tokio::test]
    async fn a_table_whose_read_hangs_is_not_asked_again_until_it_ends() {
        let (threads, gate) = threads(4, 4);
        give_up(&threads, &gate, "/dead/a/.hoodie").await.unwrap();
        let error = threads.check("/dead/a").unwrap_err();
        assert_eq!(error.kind(), ListingErrorKind::Unreachable);
        assert!(error.detail().contains("/dead/a/.hoodie hangs"), "{error}");
        for other in ["/dead/ab", "/dead/b", "/live/a"] {
            threads.check(other).unwrap();
        }
        gate.0.open();
        until("the read never ended", || threads.check("/dead/a").is_ok()).await;
        threads.run("/dead/a/.hoodie", |_| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn hundreds_of_hung_tables_of_one_mount_leave_threads_for_others() {
        let (threads, gate) = threads(20, 8);
        for n in 0..8 {
            give_up(&threads, &gate, &format!("/dead/{n}")).await.unwrap();
        }
        for n in 8..600 {
            let error = give_up(&threads, &gate, &format!("/dead/{n}")).await.unwrap_err();
            assert!(error.contains("8 reads of this mount hang"), "{error}");
        }
        assert_eq!(threads.threads.available_permits(), 12);
        assert_eq!(threads.run("/live/a", |_| Ok(7)).await.unwrap(), 7);
        gate.0.open();
        until("no thread came back", || threads.threads.available_permits() == 20).await;
        assert!(threads.given_up().is_empty());
    }

    #[tokio::test]
    async fn a_read_that_finds_no_thread_says_that_too_many_hang() {
        let (threads, gate) = threads(2, 99);
        for n in 0..2 {
            give_up(&threads, &gate, &format!("/dead/{n}")).await.unwrap();
        }
        let error = threads.run("/live/a", |_| Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), ListingErrorKind::Unreachable);
        assert!(error.detail().contains("too many reads of tables hang"), "{error}");
    }

    #[tokio::test]
    async fn a_read_that_panics_gives_its_thread_back() {
        let (threads, _gate) = threads(1, 1);
        let panics = threads.run("/live/a", |_| -> Result<(), _> { panic!("odd") });
        assert_eq!(panics.await.unwrap_err().kind(), ListingErrorKind::Unreachable);
        threads.run("/live/a", |_| Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_makes_no_table_hang() {
        let (_, gate) = threads(1, 1);
        let threads = Arc::new(ReadThreads::new(ReadLimits { hung_after: SOON * 100, ..PROCESS.limits }));
        give_up(&threads, &gate, "/dead/a").await.unwrap();
        assert_eq!(threads.given_up().len(), 1);
        threads.check("/dead/a").unwrap();
    }
}
