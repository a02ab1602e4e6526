//! From files and processes to what the engine says of an attempt. Pure: this is where "dead" is decided, and only
//! on evidence; whatever cannot be told counts as alive.

use serde::{Deserialize, Serialize};
use tms_core::engine::JobState;

use crate::attempt::{ExitRecord, LockSeen, WrapperClaim};
use crate::proc::{Place, ProcessMark, ProcessSeen, Processes};

/// The engine's name of an attempt: the second mark beside the tag, so that nothing else is taken for ours (case C1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// Boot.
    pub boot: String,
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
        Self { boot: claim.place.boot.clone(), session: claim.session, wrapper: claim.wrapper, jvm }
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
        self.boot == other.boot
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
}

/// Tells whether a process was started for this attempt; `None` = cannot be told.
pub type IsOurs<'a> = &'a dyn Fn(u32) -> Option<bool>;

/// Tells whether any process of the attempt lives.
#[must_use]
pub fn life(claim: &WrapperClaim, jvm: Option<ProcessMark>, seen: &Seen<'_>) -> Life {
    if claim.place.boot != seen.here.boot {
        return Life::Dead("the machine was booted since");
    }
    if seen.lock == LockSeen::Held {
        return Life::Alive;
    }
    let can_see = claim.place.pid_namespace == seen.here.pid_namespace
        && (claim.place.user == seen.here.user || seen.here.user == 0);
    if !can_see {
        // Its processes are not shown here: only the lock can tell.
        return if seen.lock == LockSeen::Free { Life::Dead("its lock is free") } else { Life::Alive };
    }
    if members(claim, jvm, seen.processes, seen.is_ours).iter().any(|p| !p.is_zombie) {
        return Life::Alive;
    }
    Life::Dead("no process of its session is left")
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
        (Life::Alive, None) => JobState::Running,
        (Life::Alive, Some(exit)) => JobState::Ended { how: exit_word(exit), is_settled: false },
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
