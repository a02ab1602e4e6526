//! A timeline source that counts, slows down and fails what the scripted one answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tms_core::clock::Timestamp;
use tms_core::error::{Error, ErrorKind};
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::VersionsSeen;
use tms_core::model::path::BasePath;
use tms_core::timeline::scripted::ScriptedTimelines;
use tms_core::timeline::{Overtaken, Sight, TimelineSource};

/// What happened so far.
#[derive(Debug, Default)]
struct Seen {
    /// Looks under way, by table.
    running: BTreeMap<BasePath, usize>,
    /// Most looks at one table at once.
    most_at_once: usize,
    delay: Duration,
    delay_of: BTreeMap<String, Duration>,
    versions_fail: bool,
    n_versions: u64,
}

/// Watches the looks at scripted tables.
#[derive(Debug)]
pub(crate) struct WatchedTimelines {
    inner: Arc<ScriptedTimelines>,
    seen: Mutex<Seen>,
}

impl WatchedTimelines {
    pub(crate) fn new(inner: Arc<ScriptedTimelines>) -> Self {
        Self { inner, seen: Mutex::default() }
    }

    /// Makes every look take this long.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.seen.lock().unwrap().delay = delay;
    }

    /// Makes every look at one table take this long.
    pub(crate) fn set_delay_of(&self, name: &str, delay: Duration) {
        self.seen.lock().unwrap().delay_of.insert(format!("file:/lake/{name}"), delay);
    }

    /// Makes the reading of both properties files fail.
    pub(crate) fn fail_versions(&self, fails: bool) {
        self.seen.lock().unwrap().versions_fail = fails;
    }

    /// Returns how often the versions were asked for.
    pub(crate) fn n_versions(&self) -> u64 {
        self.seen.lock().unwrap().n_versions
    }

    /// Returns the most looks at one table that ran at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.seen.lock().unwrap().most_at_once
    }
}

#[async_trait]
impl TimelineSource for WatchedTimelines {
    async fn look(&self, path: &BasePath) -> Result<Arc<Sight>, Error> {
        let delay = {
            let mut seen = self.seen.lock().unwrap();
            let running = seen.running.entry(path.clone()).or_default();
            *running += 1;
            let running = *running;
            seen.most_at_once = seen.most_at_once.max(running);
            seen.delay_of.get(path.as_str()).copied().unwrap_or(seen.delay)
        };
        // The answer is as old as the start of the look, as with a slow listing.
        let found = self.inner.look(path).await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        *self.seen.lock().unwrap().running.entry(path.clone()).or_default() -= 1;
        found
    }

    async fn overtaken(&self, path: &BasePath, instant: &Instant) -> Overtaken {
        self.inner.overtaken(path, instant).await
    }

    async fn completed_in_history(
        &self,
        path: &BasePath,
        action: Action,
        instant: &Instant,
    ) -> Result<bool, Error> {
        self.inner.completed_in_history(path, action, instant).await
    }

    async fn sign_of_life(&self, path: &BasePath, instant: &Instant) -> Result<Option<Timestamp>, Error> {
        self.inner.sign_of_life(path, instant).await
    }

    async fn lock_since(&self, path: &BasePath) -> Result<Option<Timestamp>, Error> {
        self.inner.lock_since(path).await
    }

    async fn real_path(&self, path: &BasePath) -> Result<Option<String>, Error> {
        self.inner.real_path(path).await
    }

    async fn writes_without_heartbeat(&self, path: &BasePath) -> Result<Vec<String>, Error> {
        self.inner.writes_without_heartbeat(path).await
    }

    async fn versions(&self, path: &BasePath) -> Result<VersionsSeen, Error> {
        let fails = {
            let mut seen = self.seen.lock().unwrap();
            seen.n_versions += 1;
            seen.versions_fail
        };
        if fails {
            return Err(Error::new(ErrorKind::Unavailable, "read the properties").with("table", path));
        }
        self.inner.versions(path).await
    }

    async fn rollbacks_of(&self, path: &BasePath, instant: &Instant) -> Result<Vec<String>, Error> {
        self.inner.rollbacks_of(path, instant).await
    }
}
