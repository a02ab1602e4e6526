//! Asks the engines for living jobs at the start of a term, and lets nothing be submitted while one lives that the store does
//! not know: after a restore, and where a newer or older store was put beside living jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use tokio_util::sync::CancellationToken;

use crate::alert::{Alert, AlertKind};
use crate::decision::barrier::{Barrier, Round, Standing};
use crate::engine::LivingJob;
use crate::error::Error;
use crate::model::id::{EngineName, Incarnation};
use crate::service::leader::Leader;
use crate::service::{Held, LeaderService, Loop};
use crate::store::{Hold, HoldCause};

/// Longest time that one engine may take to list its living jobs.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Pace of rounds while the barrier stands or an engine gave no answer; a short quiet time has at least four of them.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Shortest pause between two rounds.
const ASK_PAUSE: Duration = Duration::from_millis(100);
/// Unknown jobs that are named to people.
const NAMED_MAX: usize = 3;
/// What the alarm is about: the store as a whole.
const SUBJECT: &str = "store";
/// Rounds without an answer of an engine after which people are told.
const SILENT_ROUNDS_ALARM: u32 = 3;

/// Holds submissions back while jobs live that the store does not know.
#[derive(Debug, Default)]
pub struct BarrierService;

#[async_trait]
impl LeaderService for BarrierService {
    fn name(&self) -> &'static str {
        "barrier"
    }

    async fn initialize(&self, leader: &Arc<Leader>) -> Result<Box<dyn Held>, Error> {
        let hold = leader.store.hold().await?;
        let mut lineage: BTreeSet<Incarnation> =
            leader.store.former_incarnations().await?.into_iter().collect();
        lineage.insert(leader.incarnation.clone());
        let barrier = Barrier::new(hold.is_some(), leader.policies.restore_quiet);
        let watch = Watch {
            leader: Arc::clone(leader),
            lineage,
            barrier,
            hold,
            unasked: all_engines(leader),
            silent: BTreeMap::new(),
            is_quiet_told: false,
        };
        Ok(Box::new(Loop::start(self.name(), leader, |stop| run(watch, stop))))
    }
}

fn all_engines(leader: &Leader) -> BTreeSet<EngineName> {
    leader.engines.keys().cloned().collect()
}

struct Watch {
    leader: Arc<Leader>,
    /// Incarnations whose jobs are ours wherever they run on this machine.
    lineage: BTreeSet<Incarnation>,
    barrier: Barrier,
    /// What the store says.
    hold: Option<Hold>,
    /// Engines that the next round asks.
    unasked: BTreeSet<EngineName>,
    /// Rounds in a row that an engine gave no answer in.
    silent: BTreeMap<EngineName, u32>,
    /// The store says until when it is to be quiet.
    is_quiet_told: bool,
}

async fn run(mut watch: Watch, stop: CancellationToken) {
    let quiet = watch.leader.policies.restore_quiet;
    let pause = ASK_EVERY.min(quiet / 4).max(ASK_PAUSE);
    loop {
        let done = tokio::select! {
            () = stop.cancelled() => return,
            done = watch.pass() => done,
        };
        match done {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                watch.leader.heed(&error);
                tracing::warn!(
                    error = error.chain(),
                    "Failed to ask whether unknown jobs live; it is tried again."
                );
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Watch {
    /// One round; tells whether nothing is left to ask.
    async fn pass(&mut self) -> Result<bool, Error> {
        let now = self.leader.clock.monotonic();
        let (unanswered, living) = self.ask().await;
        self.tell_silent(&unanswered);
        let unknown = self.unknown_of(living).await?;
        let round = Round { unanswered, n_unknown: unknown.len() };
        let standing = self.barrier.after(&round, now);
        self.tell(&unknown);
        if standing == Standing::Open {
            if self.hold.is_some() {
                self.leader.store.set_hold(self.leader.term, None).await?;
                self.hold = None;
                tracing::info!(term = %self.leader.term, "No unknown job lives: submissions go on.");
            }
            self.unasked = round.unanswered.clone();
            if self.leader.gate.open(round.unanswered, self.leader.clock.now()) {
                self.leader.wakes.dispatch.wake();
            }
            return Ok(self.unasked.is_empty());
        }
        self.leader.gate.close();
        self.unasked = all_engines(&self.leader);
        self.keep(standing, &round.unanswered, &unknown).await?;
        Ok(false)
    }

    /// Asks the engines of this round, all at once.
    async fn ask(&self) -> (BTreeSet<EngineName>, Vec<LivingJob>) {
        let asked = self.unasked.iter().filter_map(|name| Some((name, self.leader.engines.get(name)?)));
        let answers = asked.map(|(name, engine)| async move {
            (name, tokio::time::timeout(ASK_TIMEOUT, engine.living()).await)
        });
        let (mut unanswered, mut living) = (BTreeSet::new(), Vec::new());
        for (name, answer) in futures::future::join_all(answers).await {
            match answer {
                Ok(Ok(jobs)) => living.extend(jobs),
                Ok(Err(error)) => {
                    tracing::warn!(engine = %name, error = error.chain(), "An engine cannot say which jobs live.");
                    unanswered.insert(name.clone());
                }
                Err(_) => {
                    tracing::warn!(engine = %name, "An engine did not say within {ASK_TIMEOUT:?} which jobs live.");
                    unanswered.insert(name.clone());
                }
            }
        }
        (unanswered, living)
    }

    /// Leaves the jobs that the store does not know.
    async fn unknown_of(&self, living: Vec<LivingJob>) -> Result<Vec<LivingJob>, Error> {
        let mut unknown = Vec::new();
        for job in living {
            let is_of_lineage = self.lineage.contains(&job.tag.incarnation());
            // Of ours that were pruned or removed long ago it may be that nobody can tell: that alone begins no hold.
            let is_doubt = !job.is_seen && is_of_lineage && self.hold.is_none();
            if is_doubt || !(job.is_own || is_of_lineage) {
                continue;
            }
            match self.is_known(&job).await {
                Ok(true) => {}
                Ok(false) => unknown.push(job),
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    // A row that can never be read must not keep the door shut without a word.
                    tracing::error!(tag = %job.tag, error = error.chain(), "Cannot read the instance of a living job.");
                    unknown.push(job);
                }
            }
        }
        Ok(unknown)
    }

    async fn is_known(&self, job: &LivingJob) -> Result<bool, Error> {
        let id = job.tag.instance();
        let Some(instance) = self.leader.store.get_instance(id).await? else { return Ok(false) };
        if instance.attempt.is_some_and(|attempt| attempt.tag == job.tag) {
            return Ok(true);
        }
        // Of too many attempts the oldest are forgotten, and were made by this incarnation in its own order.
        if job.tag.incarnation() == self.leader.incarnation && job.tag.attempt() <= instance.n_attempts {
            return Ok(true);
        }
        let past = self.leader.store.past_attempts(id).await?;
        Ok(past.iter().any(|attempt| attempt.tag == job.tag))
    }

    /// Tells people of engines that give no answer: nothing is submitted to them, and after a restore to none.
    fn tell_silent(&mut self, unanswered: &BTreeSet<EngineName>) {
        let subject = |name: &EngineName| format!("{name}, living jobs");
        for name in &self.unasked {
            if !unanswered.contains(name) && self.silent.remove(name).is_some() {
                self.leader.alerts.clear(AlertKind::EngineTrouble, &subject(name));
            }
        }
        for name in unanswered {
            let n_rounds = self.silent.entry(name.clone()).or_default();
            *n_rounds = n_rounds.saturating_add(1);
            if *n_rounds == SILENT_ROUNDS_ALARM {
                self.leader.alerts.raise(&Alert {
                    kind: AlertKind::EngineTrouble,
                    subject: subject(name),
                    text: format!(
                        "the engine {name} cannot say which jobs live: nothing is submitted to it until it can, and after a \
                         restore to no engine; the log says why"
                    ),
                });
            }
        }
    }

    fn tell(&self, unknown: &[LivingJob]) {
        if unknown.is_empty() {
            return self.leader.alerts.clear(AlertKind::UnknownJobs, SUBJECT);
        }
        self.leader.alerts.raise(&Alert {
            kind: AlertKind::UnknownJobs,
            subject: SUBJECT.to_owned(),
            text: format!(
                "{}; nothing is submitted until they have ended: wait, or end them yourself",
                named(unknown)
            ),
        });
    }

    /// Stores what holds submissions back, where everybody can read it.
    async fn keep(
        &mut self,
        standing: Standing,
        unanswered: &BTreeSet<EngineName>,
        unknown: &[LivingJob],
    ) -> Result<(), Error> {
        let now = self.leader.clock.now();
        let detail = match standing {
            Standing::Unknown => named(unknown),
            Standing::Unanswered => {
                let names: Vec<&str> = unanswered.iter().map(EngineName::as_str).collect();
                format!("the engine {} cannot say which jobs live", names.join(", "))
            }
            // The time was stored when the quiet began, in this term.
            Standing::Quiet { .. } if self.is_quiet_told => return Ok(()),
            Standing::Quiet { left } => {
                let until = now + TimeDelta::from_std(left).unwrap_or(TimeDelta::MAX);
                format!(
                    "no unknown job was found alive, and submissions go on about {}",
                    until.format("%Y-%m-%dT%H:%M:%SZ")
                )
            }
            Standing::Open => return Ok(()),
        };
        let hold = match &self.hold {
            Some(hold) if hold.detail == detail => return Ok(()),
            Some(hold) => Hold { detail, ..hold.clone() },
            None => Hold { cause: HoldCause::UnknownJobs, since: now, detail },
        };
        tracing::warn!(term = %self.leader.term, cause = ?hold.cause, "Submissions are held back: {}.", hold.detail);
        self.leader.store.set_hold(self.leader.term, Some(hold.clone())).await?;
        self.hold = Some(hold);
        self.is_quiet_told = matches!(standing, Standing::Quiet { .. });
        Ok(())
    }
}

fn named(unknown: &[LivingJob]) -> String {
    let mut names: Vec<String> =
        unknown.iter().take(NAMED_MAX).map(|job| format!("{} ({})", job.tag, job.what)).collect();
    if unknown.len() > NAMED_MAX {
        names.push(format!("{} more", unknown.len() - NAMED_MAX));
    }
    format!("jobs live that the store does not know: {}", names.join(", "))
}
