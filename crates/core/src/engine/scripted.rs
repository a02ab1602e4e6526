//! An engine under a test's control: for our own tests and for suites of third parties. It accepts, stalls, loses
//! answers, starts twice, forgets and lies as told, counts every call, and starts no process. It is not offered by
//! any configuration.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::engine::{
    Capabilities, Engine, Force, Found, Job, JobNeed, JobRef, JobState, LivingJob, LogTail, NotReady,
    SubmitOutcome,
};
use crate::error::{Error, ErrorKind};
use crate::model::attempt::DriverPlace;
use crate::model::id::Tag;

/// Kind of the scripted engine.
pub const KIND: &str = "scripted";
/// Process id of the drivers that the engine itself started; any other one is another driver of the attempt.
pub const DRIVER_PID: u32 = 1;

/// Most submissions whose jobs are remembered by [`ScriptedEngine::jobs`]; counts go on beyond it.
pub const JOBS_KEPT_MAX: usize = 100_000;

/// What the engine does with one submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The job runs; the handle is given.
    Accept,
    /// The job waits for resources; the handle is given.
    AcceptQueued,
    /// Two drivers run for one call; one handle is given.
    AcceptTwice,
    /// Nothing runs and the call is refused.
    Refuse(String),
    /// The call is refused, and yet the job runs.
    RefuseAndRun(String),
    /// The job runs, the answer is lost.
    LoseAfterStart,
    /// Nothing runs, the answer is lost.
    LoseBeforeStart,
    /// The job runs at once, the answer comes when [`ScriptedEngine::release`] is called.
    StallAfterStart,
    /// Nothing runs before [`ScriptedEngine::release`] is called; then the job runs and the handle is given.
    StallBeforeStart,
    /// As if the engine had accepted, but it forgets the job at once.
    AcceptAndForget,
}

/// One job as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    handle: String,
    state: JobState,
}

/// Calls so far, by method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls of `submit`.
    pub submit: u64,
    /// Calls of `find`.
    pub find: u64,
    /// Calls of `poll`, however many jobs each had.
    pub poll: u64,
    /// Calls of `cancel`.
    pub cancel: u64,
    /// Calls of `logs`.
    pub logs: u64,
    /// Calls of `ready`.
    pub ready: u64,
    /// Calls of `living`.
    pub living: u64,
}

#[derive(Default)]
struct Script {
    known: BTreeMap<Tag, Known>,
    /// What `find` and `poll` say instead of the truth.
    lies: BTreeMap<Tag, JobState>,
    logs: BTreeMap<Tag, String>,
    /// Jobs that are seen on the machine only.
    elsewhere: BTreeSet<Tag>,
    /// Jobs of which it cannot be told whether they live.
    untold: BTreeSet<Tag>,
    n_submits: BTreeMap<Tag, u32>,
    n_starts: BTreeMap<Tag, u32>,
    cancels: BTreeMap<Tag, Vec<Force>>,
    jobs: Vec<Job>,
    next_answers: VecDeque<Answer>,
    answer: Option<Answer>,
    not_ready: Option<NotReady>,
    unreachable: Option<String>,
    absent_is_proof: bool,
    n_cancels_ignored: u32,
    cancel_fails: bool,
    calls: Calls,
    n_handles: u64,
}

type SubmitHook = Arc<dyn Fn(&Job) + Send + Sync>;

/// The engine under a test's control. Share it as `Arc<ScriptedEngine>`: one clone goes to the service, one stays with the test.
pub struct ScriptedEngine {
    capabilities: Mutex<Capabilities>,
    script: Mutex<Script>,
    hook: Mutex<Option<SubmitHook>>,
    /// Grows by one at each release; a stalled call waits for a number above the one it saw.
    released: watch::Sender<u64>,
    /// Calls of `submit` that have begun; lets a test wait for one.
    begun: watch::Sender<u64>,
}

impl fmt::Debug for ScriptedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedEngine").field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl Default for ScriptedEngine {
    fn default() -> Self {
        Self {
            capabilities: Mutex::new(Capabilities {
                is_fenced: true,
                finds_by_tag: true,
                refuses_duplicates: false,
                has_logs: true,
                is_simulation: true,
                settle: Duration::ZERO,
                running_max: 100,
                heartbeat_silence: Duration::from_secs(60),
                run_timeout: Duration::from_secs(24 * 3600),
                submit_timeout: Duration::from_secs(600),
            }),
            script: Mutex::new(Script::default()),
            hook: Mutex::new(None),
            released: watch::Sender::new(0),
            begun: watch::Sender::new(0),
        }
    }
}

impl ScriptedEngine {
    /// Makes an engine that accepts and runs everything, for ever.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Changes what [`Engine::capabilities`] says.
    pub fn set_capabilities(&self, change: impl FnOnce(&mut Capabilities)) {
        change(&mut lock(&self.capabilities));
    }

    /// Sets the answer to every submission that has no answer of its own.
    pub fn answer_with(&self, answer: Answer) {
        self.script().answer = Some(answer);
    }

    /// Adds answers for the next submissions, used once each, in this order.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script().next_answers.extend(answers);
    }

    /// Runs `hook` inside each call of `submit`, before the answer takes effect; such as a driver that asks at once.
    pub fn on_submit(&self, hook: impl Fn(&Job) + Send + Sync + 'static) {
        *lock(&self.hook) = Some(Arc::new(hook));
    }

    /// Lets every stalled call go on.
    pub fn release(&self) {
        self.released.send_modify(|n| *n += 1);
    }

    /// Waits until `n` calls of `submit` have begun since the start.
    pub async fn wait_for_submits(&self, n: u64) {
        let mut begun = self.begun.subscribe();
        // The sender lives in `self`, so the only outcome is the number.
        drop(begun.wait_for(|seen| *seen >= n).await);
    }

    /// Sets what the engine knows of a job; a job that it never got is made known.
    pub fn set_state(&self, tag: &Tag, state: JobState) {
        let mut script = self.script();
        let handle = match script.known.get(tag) {
            Some(known) => known.handle.clone(),
            None => script.new_handle(),
        };
        script.known.insert(tag.clone(), Known { handle, state });
    }

    /// Makes a job end; `how` is the engine's word, such as `exit 0`.
    pub fn end(&self, tag: &Tag, how: &str) {
        self.set_state(tag, JobState::Ended { how: how.to_owned(), is_settled: true });
    }

    /// Makes something else have this tag.
    pub fn take_tag(&self, tag: &Tag, what: &str) {
        self.set_state(tag, JobState::Other { what: what.to_owned() });
    }

    /// Returns what the engine knows of a job; `None` when it knows nothing.
    #[must_use]
    pub fn state(&self, tag: &Tag) -> Option<JobState> {
        self.script().known.get(tag).map(|k| k.state.clone())
    }

    /// Makes a job one that is seen on the machine only, outside the engine's own folder.
    pub fn set_elsewhere(&self, tag: &Tag) {
        self.script().elsewhere.insert(tag.clone());
    }

    /// Makes a job one of which it cannot be told whether it lives.
    pub fn set_untold(&self, tag: &Tag) {
        self.script().untold.insert(tag.clone());
    }

    /// Makes the engine forget a job, as a restart does. Its counts stay.
    pub fn forget(&self, tag: &Tag) {
        self.script().known.remove(tag);
    }

    /// Makes the engine forget every job. Counts stay.
    pub fn forget_all(&self) {
        self.script().known.clear();
    }

    /// Makes `find` and `poll` say this instead of the truth, until `None`.
    pub fn lie(&self, tag: &Tag, state: Option<JobState>) {
        let mut script = self.script();
        match state {
            Some(state) => script.lies.insert(tag.clone(), state),
            None => script.lies.remove(tag),
        };
    }

    /// Says whether an unknown tag proves that no driver of it can ever run. False at the start.
    pub fn set_absent_is_proof(&self, is_proof: bool) {
        self.script().absent_is_proof = is_proof;
    }

    /// Makes the engine unreachable for this reason, until `None`. A submission to it is not answered, and not taken.
    pub fn set_unreachable(&self, reason: Option<&str>) {
        self.script().unreachable = reason.map(ToOwned::to_owned);
    }

    /// Makes `ready` and `health` fail, until `None`.
    pub fn set_not_ready(&self, why: Option<NotReady>) {
        self.script().not_ready = why;
    }

    /// Makes the next `n` cancels be counted and otherwise ignored.
    pub fn ignore_cancels(&self, n: u32) {
        self.script().n_cancels_ignored = n;
    }

    /// Makes cancels answer with an error.
    pub fn fail_cancels(&self, fails: bool) {
        self.script().cancel_fails = fails;
    }

    /// Sets the log of a job.
    pub fn set_log(&self, tag: &Tag, text: &str) {
        self.script().logs.insert(tag.clone(), text.to_owned());
    }

    /// Returns the calls so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.script().calls
    }

    /// Returns how often this tag was submitted.
    #[must_use]
    pub fn submits(&self, tag: &Tag) -> u32 {
        self.script().n_submits.get(tag).copied().unwrap_or_default()
    }

    /// Returns how many drivers were started for this tag.
    #[must_use]
    pub fn starts(&self, tag: &Tag) -> u32 {
        self.script().n_starts.get(tag).copied().unwrap_or_default()
    }

    /// Returns the jobs that were submitted, in order, repeats included.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        self.script().jobs.clone()
    }

    /// Returns the tags that were submitted, each once, sorted.
    #[must_use]
    pub fn tags(&self) -> Vec<Tag> {
        self.script().n_submits.keys().cloned().collect()
    }

    /// Returns the tags of the jobs that run or wait for resources, sorted.
    #[must_use]
    pub fn live_tags(&self) -> Vec<Tag> {
        let is_live = |k: &Known| matches!(k.state, JobState::Queued | JobState::Running);
        self.script().known.iter().filter(|(_, k)| is_live(k)).map(|(t, _)| t.clone()).collect()
    }

    /// Returns the cancels of a job, in order, ignored ones included.
    #[must_use]
    pub fn cancels(&self, tag: &Tag) -> Vec<Force> {
        self.script().cancels.get(tag).cloned().unwrap_or_default()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.script)
    }

    /// Counts the call and picks its answer.
    fn begin(&self, job: &Job) -> Answer {
        let mut script = self.script();
        script.calls.submit += 1;
        *script.n_submits.entry(job.tag.clone()).or_default() += 1;
        if script.jobs.len() < JOBS_KEPT_MAX {
            script.jobs.push(job.clone());
        }
        if script.unreachable.is_some() {
            return Answer::LoseBeforeStart;
        }
        let usual = script.answer.clone().unwrap_or(Answer::Accept);
        script.next_answers.pop_front().unwrap_or(usual)
    }

    async fn wait_for_release(&self, seen: u64) {
        drop(self.released.subscribe().wait_for(|n| *n > seen).await);
    }
}

impl Script {
    fn new_handle(&mut self) -> String {
        self.n_handles += 1;
        format!("{KIND}-{}", self.n_handles)
    }

    /// Starts `n` drivers and returns the handle of the job.
    fn start(&mut self, tag: &Tag, n: u32, state: JobState) -> String {
        *self.n_starts.entry(tag.clone()).or_default() += n;
        let handle = match self.known.get(tag) {
            Some(known) => known.handle.clone(),
            None => self.new_handle(),
        };
        self.known.insert(tag.clone(), Known { handle: handle.clone(), state });
        handle
    }

    fn look(&self, tag: &Tag, handle: Option<&str>) -> Found {
        if let Some(reason) = &self.unreachable {
            return Found { state: JobState::Unreachable { reason: reason.clone() }, handle: None };
        }
        let known = self.known.get(tag);
        if let Some(lie) = self.lies.get(tag) {
            return Found { state: lie.clone(), handle: known.map(|k| k.handle.clone()) };
        }
        match known {
            Some(known) if handle.is_some_and(|h| h != known.handle) => {
                let what = format!("{} instead of {}", known.handle, handle.unwrap_or_default());
                Found { state: JobState::Other { what }, handle: Some(known.handle.clone()) }
            }
            Some(known) => Found { state: known.state.clone(), handle: Some(known.handle.clone()) },
            None => {
                let what = "the list of the scripted engine".to_owned();
                Found { state: JobState::Absent { is_proof: self.absent_is_proof, what }, handle: None }
            }
        }
    }
}

#[async_trait]
impl Engine for ScriptedEngine {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn families(&self) -> &'static [&'static str] {
        &[]
    }

    fn capabilities(&self) -> Capabilities {
        *lock(&self.capabilities)
    }

    async fn ready(&self, _need: JobNeed) -> Result<(), NotReady> {
        let mut script = self.script();
        script.calls.ready += 1;
        script.not_ready.clone().map_or(Ok(()), Err)
    }

    async fn health(&self) -> Result<(), NotReady> {
        self.script().not_ready.clone().map_or(Ok(()), Err)
    }

    async fn submit(&self, job: &Job) -> SubmitOutcome {
        // Read before the test can see that the call has begun, so that its release is not missed.
        let seen = *self.released.borrow();
        let answer = self.begin(job);
        self.begun.send_modify(|n| *n += 1);
        let hook = lock(&self.hook).clone();
        if let Some(hook) = hook {
            hook(job);
        }
        let accepted = |n, state| SubmitOutcome::Accepted(self.script().start(&job.tag, n, state));
        let lost = || SubmitOutcome::Unknown { reason: "the scripted answer was lost".to_owned() };
        match answer {
            Answer::Accept => accepted(1, JobState::Running),
            Answer::AcceptQueued => accepted(1, JobState::Queued),
            Answer::AcceptTwice => accepted(2, JobState::Running),
            Answer::Refuse(reason) => SubmitOutcome::Refused { reason },
            Answer::RefuseAndRun(reason) => {
                accepted(1, JobState::Running);
                SubmitOutcome::Refused { reason }
            }
            Answer::LoseAfterStart => {
                accepted(1, JobState::Running);
                lost()
            }
            Answer::LoseBeforeStart => lost(),
            Answer::StallAfterStart => {
                let outcome = accepted(1, JobState::Running);
                self.wait_for_release(seen).await;
                outcome
            }
            Answer::StallBeforeStart => {
                self.wait_for_release(seen).await;
                accepted(1, JobState::Running)
            }
            Answer::AcceptAndForget => {
                let outcome = accepted(1, JobState::Running);
                self.forget(&job.tag);
                outcome
            }
        }
    }

    async fn find(&self, tag: &Tag, handle: Option<&str>) -> Found {
        let mut script = self.script();
        script.calls.find += 1;
        script.look(tag, handle)
    }

    async fn living(&self) -> Result<Vec<LivingJob>, Error> {
        let mut script = self.script();
        script.calls.living += 1;
        if let Some(reason) = &script.unreachable {
            return Err(Error::new(ErrorKind::Unavailable, "list living jobs").with("reason", reason));
        }
        let is_live = |known: &Known| matches!(known.state, JobState::Queued | JobState::Running);
        let living = |(tag, known): (&Tag, &Known)| LivingJob {
            tag: tag.clone(),
            is_own: !script.elsewhere.contains(tag),
            is_seen: !script.untold.contains(tag),
            what: known.handle.clone(),
        };
        Ok(script.known.iter().filter(|(_, known)| is_live(known)).map(living).collect())
    }

    async fn poll(&self, jobs: &[JobRef]) -> Vec<JobState> {
        let mut script = self.script();
        script.calls.poll += 1;
        jobs.iter().map(|job| script.look(&job.tag, job.handle.as_deref()).state).collect()
    }

    async fn cancel(&self, job: &JobRef, force: Force) -> Result<(), Error> {
        let mut script = self.script();
        script.calls.cancel += 1;
        script.cancels.entry(job.tag.clone()).or_default().push(force);
        if script.cancel_fails {
            return Err(Error::new(ErrorKind::Unavailable, "cancel a job").with("tag", &job.tag));
        }
        if script.n_cancels_ignored > 0 {
            script.n_cancels_ignored -= 1;
            return Ok(());
        }
        let word = match force {
            Force::Gentle => "terminated",
            Force::Kill => "killed",
        };
        if let Some(known) = script.known.get_mut(&job.tag)
            && matches!(known.state, JobState::Queued | JobState::Running)
        {
            known.state = JobState::Ended { how: word.to_owned(), is_settled: true };
        }
        Ok(())
    }

    async fn was_driver(&self, _job: &JobRef, place: &DriverPlace) -> bool {
        place.pid == DRIVER_PID
    }

    async fn logs(&self, job: &JobRef, bytes_max: usize) -> Result<LogTail, Error> {
        let mut script = self.script();
        script.calls.logs += 1;
        let Some(text) = script.logs.get(&job.tag) else {
            return Err(Error::new(ErrorKind::NotFound, "read the log of a job").with("tag", &job.tag));
        };
        let mut from = text.len().saturating_sub(bytes_max);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        Ok(LogTail { text: text[from..].to_owned(), address: None, is_cut: from > 0 })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
