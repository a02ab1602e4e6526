//! The simulated engine of the day: jobs that take their time on the day's clock, some of which fail, start twice, or
//! whose answers are lost. Drivers ask for leave as real ones do, and keep a book of their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::ExposeSecret;
use tms_core::clock::Clock;
use tms_core::engine::{
    Capabilities, Engine, Force, Found, Job, JobNeed, JobRef, JobState, LivingJob, LogTail, NotReady,
    SubmitOutcome,
};
use tms_core::error::Error;
use tms_core::manager::attempt::{AttemptManager, LeaveAnswer, LeaveAsk, LeaveGrant, LeaveStage};
use tms_core::model::attempt::{JobReport, Progress};
use tms_core::model::id::{RunId, Tag};
use tms_core::model::path::PathRules;
use tokio::task::JoinSet;

use crate::day::lake::Lake;
use crate::day::plan::Dice;

/// Attempts that run at once.
pub(crate) const RUNNING_MAX: u32 = 64;
/// A service takes from the shortest to the longest of these, short ones more often than long ones.
const RUN_SECS: (f64, f64) = (15.0, 240.0);
const START_SECS: u64 = 3;
const PROGRESS_EVERY: Duration = Duration::from_secs(60);
/// One in so many jobs fails, is submitted without an answer, is refused, or starts two drivers.
const FAIL_ONE_IN: u64 = 100;
const LOSE_ONE_IN: u64 = 500;
const REFUSE_ONE_IN: u64 = 500;
const TWICE_ONE_IN: u64 = 500;
/// Times that a driver asks again when nobody can tell.
const ASKS_MAX: u32 = 30;
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What the engine counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Submissions that reached it.
    pub(crate) submits: u64,
    /// Drivers that started.
    pub(crate) starts: u64,
    /// Drivers that were told to go.
    pub(crate) refused: u64,
    /// Jobs that failed.
    pub(crate) failed: u64,
}

#[derive(Debug, Default)]
struct Inner {
    states: HashMap<Tag, JobState>,
    counts: Counts,
    drivers: JoinSet<()>,
}

/// The engine.
#[derive(Debug)]
pub(crate) struct DayEngine {
    inner: Mutex<Inner>,
    lake: Arc<Lake>,
    clock: Arc<dyn Clock>,
    begin: Duration,
    seed: u64,
    /// Set once the Managers are made, which need the engine.
    attempts: OnceLock<AttemptManager>,
    me: OnceLock<std::sync::Weak<Self>>,
}

impl DayEngine {
    /// Makes it. [`Self::connect`] has to follow.
    pub(crate) fn new(lake: Arc<Lake>, clock: Arc<dyn Clock>, seed: u64) -> Arc<Self> {
        let begin = clock.monotonic();
        let engine = Arc::new(Self {
            inner: Mutex::default(),
            lake,
            clock,
            begin,
            seed,
            attempts: OnceLock::new(),
            me: OnceLock::new(),
        });
        engine.me.get_or_init(|| Arc::downgrade(&engine));
        engine
    }

    /// Says whom drivers ask.
    pub(crate) fn connect(&self, attempts: AttemptManager) {
        self.attempts.get_or_init(|| attempts);
    }

    /// Returns what it counted.
    pub(crate) fn counts(&self) -> Counts {
        self.inner().counts
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.begin)
    }

    fn start(&self, job: &Job, n_drivers: u64, dice: &Dice) {
        let Some(me) = self.me.get().and_then(std::sync::Weak::upgrade) else { return };
        let mut inner = self.inner();
        inner.states.insert(job.tag.clone(), JobState::Queued);
        inner.counts.starts += n_drivers;
        let submitted_at = (job.tag.attempt() == 1).then(|| self.now());
        // What ended is taken out, so that the set stays small.
        while inner.drivers.try_join_next().is_some() {}
        for number in 0..n_drivers {
            let driver = Arc::clone(&me).drive(job.clone(), number, submitted_at, dice.clone());
            inner.drivers.spawn(driver);
        }
    }

    async fn drive(self: Arc<Self>, job: Job, number: u64, submitted_at: Option<Duration>, mut dice: Dice) {
        let Ok(run) = format!("{:016x}{number:016x}", dice.next()).parse::<RunId>() else { return };
        tokio::time::sleep(Duration::from_secs(START_SECS + number)).await;
        if number == 0 {
            self.inner().states.insert(job.tag.clone(), JobState::Running);
        }
        let exit_code = match self.leave(&job, &run).await {
            Some(grant) => self.work(&job, &run, &grant, &mut dice, submitted_at).await,
            None => {
                self.inner().counts.refused += 1;
                10
            }
        };
        if number == 0 || exit_code != 10 {
            let ended = JobState::Ended { how: format!("exit {exit_code}"), is_settled: true };
            self.inner().states.insert(job.tag.clone(), ended);
        }
    }

    /// Asks at the start and before the call.
    async fn leave(&self, job: &Job, run: &RunId) -> Option<LeaveGrant> {
        let mut given = None;
        for stage in [LeaveStage::Start, LeaveStage::Call] {
            given = Some(self.ask(job, run, stage).await?);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        given
    }

    async fn ask(&self, job: &Job, run: &RunId, stage: LeaveStage) -> Option<LeaveGrant> {
        let ask = LeaveAsk {
            tag: job.tag.clone(),
            token: job.token.expose_secret().to_owned(),
            run_id: run.clone(),
            stage,
            pid: None,
            host: None,
        };
        for _ in 0..ASKS_MAX {
            match self.attempts.get()?.leave(&ask).await {
                Ok(LeaveAnswer::Given(grant)) => return Some(*grant),
                Ok(LeaveAnswer::Refused { .. }) => return None,
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
        None
    }

    /// Works on the plan; returns the exit code.
    async fn work(
        &self,
        job: &Job,
        run: &RunId,
        grant: &LeaveGrant,
        dice: &mut Dice,
        submitted_at: Option<Duration>,
    ) -> i32 {
        let path = PathRules::default().canonical(&grant.base_path).ok();
        let table = path.and_then(|path| self.lake.number(&path));
        let (Some(table), Some(instant)) = (table, grant.instant.clone()) else { return 2 };
        if !self.lake.begin(table, grant.action, &instant, submitted_at, self.now()) {
            self.report(job, run, "untouched", 12).await;
            return 12;
        }
        let does_fail = dice.below(FAIL_ONE_IN) == 0;
        let (least, most) = RUN_SECS;
        let mut left = Duration::from_secs_f64(least * (most / least).powf(dice.share()));
        while !left.is_zero() {
            let step = left.min(PROGRESS_EVERY);
            tokio::time::sleep(step).await;
            left -= step;
            if !left.is_zero() {
                self.speak(job, run).await;
            }
        }
        self.lake.end(table, grant.action, &instant, !does_fail);
        let (outcome, exit_code) = if does_fail { ("threw", 3) } else { ("returned", 0) };
        self.inner().counts.failed += u64::from(does_fail);
        self.report(job, run, outcome, exit_code).await;
        exit_code
    }

    async fn speak(&self, job: &Job, run: &RunId) {
        let progress = Progress { phase: "running".to_owned(), tasks_done: 1, tasks_total: 2, percent: 50 };
        let Some(attempts) = self.attempts.get() else { return };
        // Like a driver, it goes on when nobody hears it.
        attempts.progress(&job.tag, job.token.expose_secret(), run, progress).await.ok();
    }

    async fn report(&self, job: &Job, run: &RunId, outcome: &str, exit_code: i32) {
        let report = JobReport {
            outcome: outcome.to_owned(),
            exit_code,
            error: Vec::new(),
            rows: Vec::new(),
            at: self.clock.now(),
        };
        let Some(attempts) = self.attempts.get() else { return };
        attempts.end(&job.tag, job.token.expose_secret(), run, report).await.ok();
    }

    fn state(&self, tag: &Tag) -> JobState {
        let absent = || JobState::Absent { is_proof: true, what: "the engine's book".to_owned() };
        self.inner().states.get(tag).cloned().unwrap_or_else(absent)
    }
}

#[async_trait]
impl Engine for DayEngine {
    fn kind(&self) -> &'static str {
        "day"
    }

    fn families(&self) -> &'static [&'static str] {
        &[]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_fenced: true,
            finds_by_tag: true,
            refuses_duplicates: false,
            has_logs: false,
            is_simulation: true,
            settle: Duration::ZERO,
            running_max: RUNNING_MAX,
            heartbeat_silence: PROGRESS_EVERY * 5,
            run_timeout: Duration::from_secs(3600),
            submit_timeout: Duration::from_secs(60),
        }
    }

    async fn ready(&self, _need: JobNeed) -> Result<(), NotReady> {
        Ok(())
    }

    async fn health(&self) -> Result<(), NotReady> {
        Ok(())
    }

    async fn submit(&self, job: &Job) -> SubmitOutcome {
        let number = {
            let mut inner = self.inner();
            inner.counts.submits += 1;
            inner.counts.submits
        };
        // By number and not by tag, which is another one in each run.
        let mut dice = Dice::new(self.seed ^ (number << 20));
        let [is_refused, is_doubled, is_lost] =
            [REFUSE_ONE_IN, TWICE_ONE_IN, LOSE_ONE_IN].map(|n| dice.below(n) == 0);
        if is_refused {
            return SubmitOutcome::Refused { reason: "the day refuses this one".to_owned() };
        }
        self.start(job, 1 + u64::from(is_doubled), &dice);
        if is_lost {
            return SubmitOutcome::Unknown { reason: "the day lost the answer".to_owned() };
        }
        SubmitOutcome::Accepted(job.tag.to_string())
    }

    async fn find(&self, tag: &Tag, _handle: Option<&str>) -> Found {
        let state = self.state(tag);
        let handle = (!matches!(state, JobState::Absent { .. })).then(|| tag.to_string());
        Found { state, handle }
    }

    async fn living(&self) -> Result<Vec<LivingJob>, Error> {
        let inner = self.inner();
        let living = inner.states.iter().filter(|(_, state)| matches!(state, JobState::Running));
        let named = living.map(|(tag, _)| LivingJob {
            tag: tag.clone(),
            is_own: true,
            is_seen: true,
            what: "the engine's book".to_owned(),
        });
        Ok(named.collect())
    }

    async fn poll(&self, jobs: &[JobRef]) -> Vec<JobState> {
        jobs.iter().map(|job| self.state(&job.tag)).collect()
    }

    async fn cancel(&self, _job: &JobRef, _force: Force) -> Result<(), Error> {
        Ok(())
    }

    async fn logs(&self, _job: &JobRef, _bytes_max: usize) -> Result<LogTail, Error> {
        Ok(LogTail::default())
    }
}

/// The day's engines by name.
pub(crate) fn only(engine: &Arc<DayEngine>) -> tms_core::engine::Engines {
    let as_engine: Arc<dyn Engine> = engine.clone();
    BTreeMap::from([("day".parse().unwrap_or_default(), as_engine)])
}
