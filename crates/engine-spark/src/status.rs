//! From files and processes to what the engine says of an attempt. Pure: this is where "dead" is decided, and only
//! on evidence; whatever cannot be told is said to be unreachable, and frees nothing. The first row that fits decides:
//!
//! | evidence | verdict | why |
//! |---|---|---|
//! | a process of its session, or the recorded wrapper or driver in any session, is seen | alive | |
//! | the wrapper recorded that nothing was left, and the lock is not held | dead | it was there, and it starts nothing more |
//! | same boot, a process anywhere in sight was started with its tag | alive | a script may start the driver in another session, with every file closed |
//! | same boot, a process in sight holds the lock | alive | it inherited it, whatever it was started with |
//! | the lock is held, the processes are not shown here | alive | the kernel takes it from the last process that inherited it, over a network too; a boot proves nothing against it |
//! | the lock is held, the processes are shown here | unknown, or dead when a person made the file `over` | nothing in sight holds it |
//! | another boot of a machine that is proven to be the same | dead | no process outlives a boot |
//! | same boot, the processes are shown here | dead | a session without a living process has none for ever, and nothing else carries the tag |
//! | same boot, another pid namespace or user, the lock is free on a file system of this kernel, and the wrapper did not record that something was left | dead | such a lock is seen across containers, and every process of the attempt holds it twice: an old container that is gone can be told from one that lives when a new one starts on its volume |
//! | a person made the file `over` | dead | for what follows |
//! | anything else | unknown | another machine, or one that cannot be told from it; a container on a network file system or an overlay; another container, for a driver that may have left its session |
//!
//! A process that does not show what it was started with, as of another user, is of the attempt only by its session, its
//! recorded mark or its lock. What the third and the fourth row need is looked up for them only, once for all jobs of a
//! poll: see [`crate::survey`].
//!
//! An exit record alone is no end: what was started may be a script that left the driver behind. How machines and
//! namespaces are told apart: see [`crate::place`].

use std::io;

use serde::{Deserialize, Serialize};
use tms_core::engine::JobState;

use crate::attempt::{ExitRecord, LockSeen, WrapperClaim};
use crate::place::Place;
use crate::proc::{ProcessMark, ProcessSeen, Processes};

/// The engine's name of an attempt: the second mark beside the tag, so that nothing else is taken for ours (case C1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// Where it was started; old ones have the boot alone.
    #[serde(flatten)]
    pub place: Place,
    /// Session of wrapper and driver.
    pub session: u32,
    /// The wrapper.
    pub wrapper: ProcessMark,
    /// The driver, once it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jvm: Option<ProcessMark>,
}

impl Handle {
    /// Returns the handle of a claimed attempt.
    #[must_use]
    pub fn of(claim: &WrapperClaim, jvm: Option<ProcessMark>) -> Self {
        Self { place: claim.place.clone(), session: claim.session, wrapper: claim.wrapper, jvm }
    }

    /// Reads the text of a handle; `None` when it is none of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Tells whether both name one start. The driver may be missing from an early one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.place.is_same_boot(&other.place)
            && self.session == other.session
            && self.wrapper == other.wrapper
            && (self.jvm.is_none() || other.jvm.is_none() || self.jvm == other.jvm)
    }
}

/// Whether an attempt lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// A process of it may live: those that are seen here, of which there may be more.
    Alive(Vec<ProcessSeen>),
    /// None can: what proves it.
    Dead(&'static str),
    /// That cannot be told from here: where it ran. Never to be taken for death.
    Unknown(String),
}

/// Tells whether a process was started for this attempt; `None` = cannot be told.
pub type IsOurs<'a> = &'a dyn Fn(u32) -> Option<bool>;
/// Looks for living processes of the attempt by other means than their session.
pub type LookFor<'a> = &'a dyn Fn() -> io::Result<Vec<ProcessSeen>>;

/// Tells whether any process of the attempt lives. The table on top of this file, from its first row to its last.
///
/// # Errors
/// A look failed; nothing is proven then.
pub fn life(
    claim: &WrapperClaim,
    jvm: Option<ProcessMark>,
    exit: Option<&ExitRecord>,
    seen: &Seen<'_>,
) -> io::Result<Life> {
    let (place, here) = (&claim.place, seen.here);
    let living = living_members(claim, jvm, here, seen.processes, seen.is_ours);
    if !living.is_empty() {
        return Ok(Life::Alive(living));
    }
    let is_held = seen.lock == LockSeen::Held;
    if !is_held && exit.is_some_and(|exit| exit.left_nothing) {
        return Ok(Life::Dead("its wrapper saw that nothing of it was left"));
    }
    if place.is_same_boot(here) {
        let mut others = (seen.tagged)()?;
        if others.is_empty() && is_held {
            others = (seen.holders)()?;
        }
        if !others.is_empty() {
            return Ok(Life::Alive(others));
        }
    }
    Ok(match () {
        () if is_held && !place.is_shown_to(here) => Life::Alive(Vec::new()),
        () if is_held && !seen.is_said_over => Life::Unknown(format!(
            "no process of its session {} is left, and its lock is held by one that is not shown here",
            claim.session
        )),
        () if is_held => Life::Dead(SAID_OVER),
        () => without_process(claim, exit, seen),
    })
}

/// The rows for an attempt of which no process is seen, nor its lock.
fn without_process(claim: &WrapperClaim, exit: Option<&ExitRecord>, seen: &Seen<'_>) -> Life {
    let (place, here) = (&claim.place, seen.here);
    if !place.is_same_boot(here) && place.is_same_machine(here) {
        return Life::Dead("the machine was booted since");
    }
    if place.is_shown_to(here) {
        return Life::Dead("no process of it is left");
    }
    // What was left may have been a driver in a session of its own, with every file closed.
    let has_left_some = exit.is_some_and(|exit| !exit.left_nothing);
    if place.is_same_boot(here) && seen.lock == LockSeen::Free && !has_left_some {
        return Life::Dead("its lock is free");
    }
    if seen.is_said_over {
        return Life::Dead(SAID_OVER);
    }
    Life::Unknown(out_of_sight(claim, here))
}

const SAID_OVER: &str = "a person said that nothing of it lives";

fn out_of_sight(claim: &WrapperClaim, here: &Place) -> String {
    let (place, session) = (&claim.place, claim.session);
    let where_it_ran = if place.is_same_boot(here) {
        format!(
            "in {} of this machine as user {}, whose processes are not shown here",
            place.pid_namespace, place.user
        )
    } else {
        format!(
            "on {}, and nothing proves that this is the same machine: here is {}",
            place.machine_name(),
            here.machine_name()
        )
    };
    format!("its driver was started as session {session} {where_it_ran}")
}

/// What a look found, beside the records.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Where the looker is.
    pub here: &'a Place,
    /// The attempt's lock.
    pub lock: LockSeen,
    /// All processes.
    pub processes: &'a Processes,
    /// Tells by other means whether a process is ours.
    pub is_ours: IsOurs<'a>,
    /// Processes that were started with its tag.
    pub tagged: LookFor<'a>,
    /// Processes that hold its lock.
    pub holders: LookFor<'a>,
    /// A person said that no process of it lives.
    pub is_said_over: bool,
}

impl std::fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen").field("here", self.here).field("lock", &self.lock).finish_non_exhaustive()
    }
}

/// Returns the living processes of the attempt's session, and those that were recorded, where its numbers mean anything.
#[must_use]
pub fn living_members(
    claim: &WrapperClaim,
    jvm: Option<ProcessMark>,
    here: &Place,
    processes: &Processes,
    is_ours: IsOurs<'_>,
) -> Vec<ProcessSeen> {
    if !claim.place.is_same_boot(here) || claim.place.pid_namespace != here.pid_namespace {
        return Vec::new();
    }
    let mut living = members(claim, jvm, processes, is_ours);
    living.retain(|p| !p.is_zombie);
    living
}

/// Returns the processes of the attempt's session, zombies included, and its recorded ones in whatever session.
///
/// The kernel gives the number of a session to nobody else while a member lives, but afterwards it does: a session
/// whose leader is another process than our wrapper is another session. Where the leader is gone, the driver's mark
/// decides, and for the others what they were started with.
#[must_use]
pub fn members(
    claim: &WrapperClaim,
    jvm: Option<ProcessMark>,
    processes: &Processes,
    is_ours: IsOurs<'_>,
) -> Vec<ProcessSeen> {
    let leader = processes.get(&claim.session).filter(|p| p.session == claim.session);
    let is_another_session = leader.is_some_and(|p| p.mark != claim.wrapper);
    let is_member = |p: &&ProcessSeen| {
        // A driver may make a session of its own.
        let is_recorded = p.mark == claim.wrapper || Some(p.mark) == jvm;
        let is_in_session = p.session == claim.session && !is_another_session;
        is_recorded
            || is_in_session && (leader.is_some() || p.is_zombie || is_ours(p.mark.pid) != Some(false))
    };
    processes.values().filter(is_member).copied().collect()
}

/// Returns what the engine says of a claimed attempt.
#[must_use]
pub fn state(life: &Life, exit: Option<&ExitRecord>) -> JobState {
    match (life, exit) {
        // What was started may have left the driver behind and ended, as a script does that does not `exec`.
        (Life::Alive(_), _) => JobState::Running,
        (Life::Unknown(why), _) => JobState::Unreachable { reason: why.clone() },
        (Life::Dead(_), Some(exit)) => JobState::Ended { how: exit_word(exit), is_settled: true },
        (Life::Dead(why), None) => {
            JobState::Ended { how: format!("died without an exit code: {why}"), is_settled: true }
        }
    }
}

fn exit_word(exit: &ExitRecord) -> String {
    match (&exit.problem, exit.code, exit.signal) {
        (Some(problem), _, _) => problem.clone(),
        (None, Some(code), _) => format!("exit {code}"),
        (None, None, Some(signal)) => format!("signal {signal}"),
        (None, None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests;
