//! Named places between two steps where a test kills the process, as a power-off would.
//!
//! Without the feature `fail-points` nothing of it is compiled in. `cargo xtask crash` builds a server with it.

/// A place in the code, between two steps whose order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// A batch of hand-overs was taken from the queue and is not stored.
    HandOverTaken,
    /// A batch of hand-overs is durable, and nobody was answered.
    HandOverStored,
    /// A look saw the timeline and stored nothing of it.
    LookSeen,
    /// A look is stored; nobody was woken.
    LookStored,
    /// An instance passed its check; no intent is stored.
    Checked,
    /// The intent is stored; the engine was not called, nor is that stored.
    IntentStored,
    /// That the engine is called is stored; it was not called.
    CallStored,
    /// A simulated engine has the job's folder and started no driver.
    JobWritten,
    /// The engine answered; its answer is not stored.
    EngineAnswered,
    /// The engine's answer is stored.
    AnswerStored,
    /// A driver's leave passed its check and is not stored.
    LeaveChecked,
    /// A driver's leave is stored; the driver does not know.
    LeaveStored,
    /// A driver's end is stored; the driver does not know.
    EndStored,
    /// An attempt was judged; the verdict is not stored.
    Judged,
    /// The verdict is stored; nobody was woken.
    VerdictStored,
}

impl FailPoint {
    /// All of them, in the order in which an instance passes them.
    pub const ALL: [Self; 15] = [
        Self::HandOverTaken,
        Self::HandOverStored,
        Self::LookSeen,
        Self::LookStored,
        Self::Checked,
        Self::IntentStored,
        Self::CallStored,
        Self::JobWritten,
        Self::EngineAnswered,
        Self::AnswerStored,
        Self::LeaveChecked,
        Self::LeaveStored,
        Self::EndStored,
        Self::Judged,
        Self::VerdictStored,
    ];

    /// Its name, as [`arm`] takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HandOverTaken => "hand_over_taken",
            Self::HandOverStored => "hand_over_stored",
            Self::LookSeen => "look_seen",
            Self::LookStored => "look_stored",
            Self::Checked => "checked",
            Self::IntentStored => "intent_stored",
            Self::CallStored => "call_stored",
            Self::JobWritten => "job_written",
            Self::EngineAnswered => "engine_answered",
            Self::AnswerStored => "answer_stored",
            Self::LeaveChecked => "leave_checked",
            Self::LeaveStored => "leave_stored",
            Self::EndStored => "end_stored",
            Self::Judged => "judged",
            Self::VerdictStored => "verdict_stored",
        }
    }
}

/// Passes a place; ends the process there when it is armed and its count is used up.
#[inline]
pub fn pass(point: FailPoint) {
    #[cfg(feature = "fail-points")]
    armed::pass(point);
    #[cfg(not(feature = "fail-points"))]
    let _ = point;
}

#[cfg(feature = "fail-points")]
pub use armed::arm;

#[cfg(feature = "fail-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::FailPoint;

    /// Which place, and how many times it may still be passed.
    static ARMED: OnceLock<(FailPoint, AtomicU32)> = OnceLock::new();

    /// Arms one place, written `name` or `name:N`: the process is killed when it is passed for the Nth time, 1 unless
    /// given.
    ///
    /// # Errors
    /// The text when it names no place, or N is no number from 1 on, or one is armed already.
    pub fn arm(text: &str) -> Result<(), String> {
        let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
        let point = FailPoint::ALL.into_iter().find(|point| point.name() == name);
        let nth = nth.parse::<u32>().ok().filter(|nth| *nth > 0);
        let (Some(point), Some(nth)) = (point, nth) else { return Err(text.to_owned()) };
        ARMED.set((point, AtomicU32::new(nth))).map_err(|_| text.to_owned())
    }

    pub(super) fn pass(point: FailPoint) {
        let Some((armed, left)) = ARMED.get() else { return };
        if *armed == point && left.fetch_sub(1, Ordering::SeqCst) == 1 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
            // The signal ends this thread too; nothing after it may run.
            loop {
                std::thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> =
            FailPoint::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), FailPoint::ALL.len());
    }
}
