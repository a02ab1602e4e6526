//! What is found of attempts, and whom a signal reaches.

use std::collections::BTreeSet;
use std::io;

use tms_core::engine::{Found, JobRef, JobState, LivingJob};
use tms_core::model::attempt::DriverPlace;
use tms_core::{Error, ErrorKind};

use super::{Inner, io_error};
use crate::attempt::{AttemptFolder, Claim, ExitRecord, LockSeen, WrapperClaim};
use crate::logs;
use crate::place::Place;
use crate::proc::{ProcessMark, ProcessSeen};
use crate::process::{self, Whom};
use crate::status::{self, Handle, Life, Seen};
use crate::survey::Survey;
use crate::sweep::Due;

/// Names that many machines have, so that they name none.
const NO_HOST_NAMES: [&str; 4] = ["", "localhost", "localhost.localdomain", "unknown"];

impl Inner {
    /// Looks up all of them with one survey of the processes.
    pub(super) fn look_at(&self, jobs: &[JobRef]) -> Vec<Found> {
        match Survey::new() {
            Ok(survey) => jobs.iter().map(|job| self.look(job, &survey)).collect(),
            Err(e) => {
                let state = JobState::Unreachable { reason: format!("cannot list the processes: {e}") };
                jobs.iter().map(|_| Found { state: state.clone(), handle: None }).collect()
            }
        }
    }

    /// Lists what may live: the attempts in the folder that are not proven over, and the tags of processes of this host.
    pub(super) fn living(&self) -> io::Result<Vec<LivingJob>> {
        let survey = Survey::new()?;
        let mut living = Vec::new();
        let mut known = BTreeSet::new();
        for tag in self.tags()? {
            let folder = AttemptFolder::of(&self.config.folder, &tag);
            known.insert(tag.clone());
            if folder.read_exit().is_ok_and(|exit| exit.is_some_and(|exit| exit.left_nothing)) {
                continue;
            }
            let state = self.look(&JobRef { tag: tag.clone(), handle: None }, &survey).state;
            let is_seen = !matches!(state, JobState::Unreachable { .. });
            let what = match state {
                JobState::Ended { is_settled: true, .. } | JobState::Absent { is_proof: true, .. } => {
                    continue;
                }
                JobState::Unreachable { reason } => format!("it cannot be told whether it lives: {reason}"),
                JobState::Other { what } => what,
                _ => format!("it runs, see {}", folder.path().display()),
            };
            living.push(LivingJob { tag, is_own: true, is_seen, what });
        }
        for tag in survey.all_tags()?.into_iter().filter(|tag| !known.contains(tag)) {
            let left = survey.tagged(&tag)?;
            let what = format!("started from another folder of attempts: {}", process::names(&left));
            living.push(LivingJob { tag, is_own: false, is_seen: true, what });
        }
        Ok(living)
    }

    fn look(&self, job: &JobRef, survey: &Survey) -> Found {
        let unseen = |state| Found { state, handle: None };
        if self.is_in_flight(&job.tag) {
            let what = "the submission, which is under way".to_owned();
            return unseen(JobState::Absent { is_proof: false, what });
        }
        let folder = AttemptFolder::of(&self.config.folder, &job.tag);
        let found = match folder.exists() {
            Ok(true) => self.look_into(&folder, job, survey),
            Ok(false) => without_folder(&folder, job, survey),
            Err(e) => Err(e),
        };
        found.unwrap_or_else(|e| {
            unseen(JobState::Unreachable {
                reason: format!("cannot look into {}: {e}", folder.path().display()),
            })
        })
    }

    fn look_into(&self, folder: &AttemptFolder, job: &JobRef, survey: &Survey) -> io::Result<Found> {
        let claim = match self.decided(folder)? {
            Claim::Wrapper(claim) => claim,
            // It was started: somebody made its folder anew, and an empty one is no proof against that.
            Claim::Abandoned { .. } if recorded(job).is_some() => {
                return without_folder(folder, job, survey);
            }
            Claim::Abandoned { why } => {
                let what = format!("the claim of {}: {why}", folder.path().display());
                return Ok(Found { state: JobState::Absent { is_proof: true, what }, handle: None });
            }
        };
        let jvm = folder.read_jvm()?;
        let ours = Handle::of(&claim, jvm);
        let handle = Some(ours.text());
        if claim.tag != job.tag {
            let what = format!("the folder of this tag belongs to {}", claim.tag);
            return Ok(Found { state: JobState::Other { what }, handle });
        }
        if !is_wanted(job, &ours) {
            let what = format!("session {} of boot {} has the tag", ours.session, ours.place.boot);
            return Ok(Found { state: JobState::Other { what }, handle });
        }
        let (lock, is_said_over) = (folder.look_at_lock()?, folder.is_said_over()?);
        // Read after the look at the processes: the wrapper stores it before it is gone.
        let exit = folder.read_exit()?;
        let life = life(&claim, jvm, exit.as_ref(), lock, is_said_over, survey)?;
        match left_behind(&claim, jvm, exit.as_ref(), &life, survey)? {
            Left::Nothing => self.sweep.forget(&job.tag),
            Left::These(left) => self.sweep_left(folder, &claim, jvm, &left, is_said_over),
            Left::Unclear => {}
        }
        Ok(Found { state: status::state(&with_way_out(life, folder), exit.as_ref()), handle })
    }

    /// Ends what a driver left behind, when its time has come.
    fn sweep_left(
        &self,
        folder: &AttemptFolder,
        claim: &WrapperClaim,
        jvm: Option<ProcessMark>,
        left: &[ProcessSeen],
        is_said_over: bool,
    ) {
        let wait = self.config.settle.saturating_add(self.config.leftover_wait);
        let due = self.sweep.due(&claim.tag, self.clock.monotonic(), wait, is_said_over);
        let what = match due {
            Due::Nothing => return,
            Due::Note => format!("it is ended in {} s", wait.as_secs()),
            Due::Terminate => "it is asked to end".to_owned(),
            Due::Kill { .. } => "it is killed".to_owned(),
        };
        let names = process::names(left);
        if !matches!(due, Due::Kill { is_first: false }) {
            tracing::warn!(tag = %claim.tag, left = names, "A driver has ended and left something behind, which keeps its attempt from being over: {what}.");
            let line = format!(
                "the driver has ended and left behind {names}, which keeps the attempt from being over: {what}"
            );
            // It is in the log of this process as well.
            logs::note(folder, &line).ok();
        }
        let ended = match due {
            Due::Terminate => process::terminate(claim, jvm).map(drop),
            Due::Kill { .. } => process::kill(claim, jvm, Whom::Driver),
            Due::Nothing | Due::Note => Ok(()),
        };
        if let Err(error) = ended {
            tracing::warn!(tag = %claim.tag, left = names, %error, "Could not end what a driver left behind; it is tried again.");
        }
    }

    /// Returns what of a job may be signalled; `None` when there is nothing to signal.
    fn target(&self, job: &JobRef) -> Result<Option<(WrapperClaim, Option<ProcessMark>)>, Error> {
        let folder = AttemptFolder::of(&self.config.folder, &job.tag);
        let fail = |e| io_error("look up a job", folder.path(), e);
        let claim = match folder.exists().map_err(fail)? {
            true => self.decided(&folder).map_err(fail)?,
            false => Claim::Abandoned { why: String::new() },
        };
        let (claim, jvm, lock) = match (claim, recorded(job)) {
            (Claim::Wrapper(claim), _) => {
                let jvm = folder.read_jvm().map_err(fail)?;
                (claim, jvm, folder.look_at_lock().map_err(fail)?)
            }
            // Its folder was removed: what is stored of it tells where it ran.
            (Claim::Abandoned { .. }, Some(handle)) => {
                let jvm = handle.jvm;
                (claim_of(job, handle), jvm, LockSeen::Missing)
            }
            (Claim::Abandoned { .. }, None) => return Ok(None),
        };
        if claim.tag != job.tag || !is_wanted(job, &Handle::of(&claim, None)) {
            return Err(Error::new(ErrorKind::Conflict, "cancel a job")
                .with("tag", &job.tag)
                .hint("another job has this tag: nothing was signalled"));
        }
        let here = Place::here().map_err(fail)?;
        let place = &claim.place;
        let is_known_over = folder.is_said_over().map_err(fail)?
            || folder.read_exit().map_err(fail)?.is_some_and(|exit| exit.left_nothing);
        let may_live_elsewhere = match lock {
            LockSeen::Held => true,
            LockSeen::Free if place.is_same_boot(&here) => false,
            _ if place.is_same_boot(&here) => !is_known_over,
            _ => !is_known_over && !place.is_same_machine(&here),
        };
        let is_here = place.is_same_boot(&here) && place.pid_namespace == here.pid_namespace;
        if !is_here && may_live_elsewhere {
            return Err(Error::new(ErrorKind::Unsupported, "signal a job")
                .with("tag", &job.tag)
                .with("machine", place.machine_name())
                .with("namespace", &place.pid_namespace)
                .with("session", claim.session)
                .hint("it was started on another machine or in another container: end its session there"));
        }
        Ok(Some((claim, jvm)))
    }

    /// Signals a job; returns whether there was one that could be.
    pub(super) fn signal(
        &self,
        job: &JobRef,
        signal: impl FnOnce(&WrapperClaim, Option<ProcessMark>) -> io::Result<()>,
    ) -> Result<bool, Error> {
        let Some((claim, jvm)) = self.target(job)? else { return Ok(false) };
        let folder = AttemptFolder::of(&self.config.folder, &job.tag);
        signal(&claim, jvm).map_err(|e| io_error("signal a job", folder.path(), e))?;
        Ok(true)
    }

    /// Names what is left of a job that was killed.
    pub(super) fn check_killed(&self, job: &JobRef) -> Result<(), Error> {
        let state = self.look_at(std::slice::from_ref(job)).pop().map(|found| found.state);
        let fail = |why: String| {
            Err(Error::new(ErrorKind::Unavailable, "kill a job")
                .with("tag", &job.tag)
                .with("left", why)
                .hint("end them on this machine yourself"))
        };
        match state {
            Some(JobState::Running) => {
                let target = self.target(job)?;
                let left = target.map(|(claim, jvm)| process::living(&claim, jvm, Whom::All));
                let names = process::names(&left.and_then(Result::ok).unwrap_or_default());
                fail(format!("these did not end when they were killed: {names}"))
            }
            Some(JobState::Unreachable { reason }) => fail(reason),
            _ => Ok(()),
        }
    }

    /// Tells whether a driver that names this place is the process that was recorded. It sees its host as the wrapper
    /// beside it does: a JVM asks the same kernel for the name, and adds no domain to it. Pids are small and alike in
    /// containers, so that a name which many machines have tells nothing.
    pub(super) fn was_driver(&self, job: &JobRef, place: &DriverPlace) -> bool {
        let folder = AttemptFolder::of(&self.config.folder, &job.tag);
        let Ok(Some(Claim::Wrapper(claim))) = folder.read_claim() else { return false };
        let Ok(Some(jvm)) = folder.read_jvm() else { return false };
        let host = &claim.place.host;
        claim.tag == job.tag
            && is_wanted(job, &Handle::of(&claim, Some(jvm)))
            && jvm.pid == place.pid
            && host.eq_ignore_ascii_case(&place.host)
            && !NO_HOST_NAMES.iter().any(|name| host.eq_ignore_ascii_case(name))
    }
}

/// The identity that was stored for a job, when it is one of ours.
fn recorded(job: &JobRef) -> Option<Handle> {
    Handle::parse(job.handle.as_deref()?)
}

/// Tells whether what was found is what was stored for the job.
fn is_wanted(job: &JobRef, found: &Handle) -> bool {
    job.handle.as_deref().is_none_or(|h| Handle::parse(h).is_some_and(|wanted| wanted.is_same(found)))
}

/// The claim of a job that ran, out of its handle alone.
fn claim_of(job: &JobRef, handle: Handle) -> WrapperClaim {
    let Handle { place, session, wrapper, .. } = handle;
    WrapperClaim { tag: job.tag.clone(), place, session, wrapper }
}

fn life(
    claim: &WrapperClaim,
    jvm: Option<ProcessMark>,
    exit: Option<&ExitRecord>,
    lock: LockSeen,
    is_said_over: bool,
    survey: &Survey,
) -> io::Result<Life> {
    let seen = Seen {
        here: survey.here(),
        lock,
        processes: survey.processes(),
        is_ours: &process::is_of(&claim.tag),
        tagged: &|| survey.tagged(&claim.tag),
        holders: &|| survey.holders(&claim.tag),
        is_said_over,
    };
    status::life(claim, jvm, exit, &seen)
}

/// What a driver that has ended left behind.
enum Left {
    /// Nothing, or a driver lives.
    Nothing,
    /// These, and none of them is a driver.
    These(Vec<ProcessSeen>),
    /// Whether a driver is among them cannot be told now.
    Unclear,
}

fn left_behind(
    claim: &WrapperClaim,
    jvm: Option<ProcessMark>,
    exit: Option<&ExitRecord>,
    life: &Life,
    survey: &Survey,
) -> io::Result<Left> {
    let Life::Alive(living) = life else { return Ok(Left::Nothing) };
    let is_recorded = |p: &ProcessSeen| p.mark == claim.wrapper || Some(p.mark) == jvm;
    let was_started = exit.is_some() || jvm.is_some();
    if !was_started || !claim.place.is_shown_to(survey.here()) || living.iter().any(is_recorded) {
        return Ok(Left::Nothing);
    }
    // A driver may be in another session than what is seen so far.
    let mut all = survey.tagged(&claim.tag)?;
    let others: Vec<ProcessSeen> = living.iter().filter(|p| !all.contains(p)).copied().collect();
    all.extend(others);
    let are_drivers: Vec<Option<bool>> = all.iter().map(|p| process::is_driver(p.mark.pid)).collect();
    Ok(match () {
        () if are_drivers.contains(&Some(true)) => Left::Nothing,
        () if are_drivers.contains(&None) => Left::Unclear,
        () => Left::These(all),
    })
}

/// Adds what a person can do where only a person can.
fn with_way_out(life: Life, folder: &AttemptFolder) -> Life {
    match life {
        Life::Unknown(why) => Life::Unknown(format!(
            "{why}; make sure that no process of that session is left there, then make the empty file {}",
            folder.over().display()
        )),
        known => known,
    }
}

/// What can be said of a job whose folder is not there, or holds nothing of it.
fn without_folder(folder: &AttemptFolder, job: &JobRef, survey: &Survey) -> io::Result<Found> {
    let Some(handle) = recorded(job) else {
        // A restored store may look from another folder than the one that it was started from.
        let left = survey.tagged(&job.tag)?;
        if !left.is_empty() {
            let reason = format!("it was started from another folder of attempts: {}", process::names(&left));
            return Ok(Found { state: JobState::Unreachable { reason }, handle: None });
        }
        let what = "the folder of attempts, which has none of this tag".to_owned();
        return Ok(Found { state: JobState::Absent { is_proof: true, what }, handle: None });
    };
    // It ran: the handle alone tells where.
    let jvm = handle.jvm;
    let claim = claim_of(job, handle);
    // A lock that lies there now is not the one that its processes hold.
    let life = life(&claim, jvm, None, LockSeen::Missing, folder.is_said_over()?, survey)?;
    let state = match with_way_out(life, folder) {
        Life::Dead(why) => {
            JobState::Ended { how: format!("its folder was removed, and {why}"), is_settled: true }
        }
        life => status::state(&life, None),
    };
    Ok(Found { state, handle: job.handle.clone() })
}
