//! From files and processes to what the engine says of an attempt. Pure: this is where "dead" is decided, and only
//! on evidence; whatever cannot be told is said to be unreachable, and frees nothing. The first row that fits decides:
//!
//! | evidence | verdict | why |
//! |---|---|---|
//! | the lock is held | alive | the kernel takes it from the last process that inherited it, over a network too; a boot proves nothing against it |
//! | the wrapper recorded that nothing was left | dead | it was there, and it starts nothing more |
//! | another boot of a machine that is proven to be the same | dead | no process outlives a boot |
//! | same boot, the processes are shown here | what they show | a session without a living process has none for ever |
//! | same boot, another pid namespace or user, the lock is free on a file system of this kernel | dead | such a lock is seen across containers, and every process of the attempt holds it twice: an old container that is gone can be told from one that lives when a new one starts on its volume |
//! | a person made the file `over` | dead | for what follows |
//! | anything else | unknown | another machine, or one that cannot be told from it; a container on a network file system or an overlay |
//!
//! An exit record alone is no end: what was started may be a script that left the driver behind. How machines and
//! namespaces are told apart: see [`crate::place`].

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
    /// A process of it may live.
    Alive,
    /// None can: what proves it.
    Dead(&'static str),
    /// That cannot be told from here: where it ran. Never to be taken for death.
    Unknown(String),
}

/// Tells whether a process was started for this attempt; `None` = cannot be told.
pub type IsOurs<'a> = &'a dyn Fn(u32) -> Option<bool>;

/// Tells whether any process of the attempt lives. The table on top of this file, from its first row to its last.
#[must_use]
pub fn life(
    claim: &WrapperClaim,
    jvm: Option<ProcessMark>,
    exit: Option<&ExitRecord>,
    seen: &Seen<'_>,
) -> Life {
    if seen.lock == LockSeen::Held {
        return Life::Alive;
    }
    if exit.is_some_and(|exit| exit.left_nothing) {
        return Life::Dead("its wrapper saw that nothing of it was left");
    }
    let (place, here) = (&claim.place, seen.here);
    if !place.is_same_boot(here) && place.is_same_machine(here) {
        return Life::Dead("the machine was booted since");
    }
    if place.is_shown_to(here) {
        let is_alive = members(claim, jvm, seen.processes, seen.is_ours).iter().any(|p| !p.is_zombie);
        return if is_alive { Life::Alive } else { Life::Dead("no process of its session is left") };
    }
    if place.is_same_boot(here) && seen.lock == LockSeen::Free {
        return Life::Dead("its lock is free");
    }
    if seen.is_said_over {
        return Life::Dead("a person said that nothing of it lives");
    }
    Life::Unknown(out_of_sight(claim, here))
}

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
    /// A person said that no process of it lives.
    pub is_said_over: bool,
}

impl std::fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen").field("here", self.here).field("lock", &self.lock).finish_non_exhaustive()
    }
}

/// Returns the processes of the attempt's session, zombies included.
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
    if leader.is_some_and(|p| p.mark != claim.wrapper) {
        return Vec::new();
    }
    let is_member = |p: &&ProcessSeen| {
        p.session == claim.session
            && (leader.is_some() || Some(p.mark) == jvm || p.is_zombie || is_ours(p.mark.pid) != Some(false))
    };
    processes.values().filter(is_member).copied().collect()
}

/// Returns what the engine says of a claimed attempt.
#[must_use]
pub fn state(life: &Life, exit: Option<&ExitRecord>) -> JobState {
    match (life, exit) {
        // What was started may have left the driver behind and ended, as a script does that does not `exec`.
        (Life::Alive, _) => JobState::Running,
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
