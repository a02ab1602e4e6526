//! Why an attempt failed whose plan still stands: from exit codes and the texts of Hudi's exceptions.
//!
//! The texts were measured with the stock Spark bundles of 0.15.0, 1.0.2 and 1.2.0; an unknown one counts as a failure.

use crate::model::action::Action;
use crate::model::attempt::{JobReport, UNTOUCHED};
use crate::model::instance::WaitReason;

/// What an attempt's failure means for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// It counts against the limit.
    Counted,
    /// It does not count: back-off, and a metric of its own.
    NotCounted(WaitReason),
    /// The job did not find the plan as it was told: a look decides, and nothing counts.
    LookAgain,
    /// The job refused its own commit because a write overtook it: `parked(overtaken)`, not a retry.
    Overtaken,
    /// The job refused its arguments or settings: the same ones fail again.
    BadOptions,
    /// The bundle does not fit the table's version; nothing was touched.
    WrongBundle,
}

/// The call returned.
pub const EXIT_RETURNED: i32 = 0;
/// Arguments were refused.
pub const EXIT_ARGUMENTS: i32 = 2;
/// The call threw.
pub const EXIT_THREW: i32 = 3;
/// TMS gave no leave.
pub const EXIT_NO_LEAVE: i32 = 10;
/// Nobody answered within the job's time.
pub const EXIT_NOBODY_ANSWERED: i32 = 11;
/// The timeline was not as the job was told.
pub const EXIT_NOTHING_TO_DO: i32 = 12;

/// Hudi 1.2.0 under OCC, while another runner's heartbeat of the instant is fresh; clears about 2 minutes after its death
/// (refused at 112 s, taken at 125 s; hudi-lab 9.1). It comes inside a `HoodieLockException`, so it is asked for first.
const HEARTBEAT: [&str; 2] = ["heartbeat by concurrent writer/job", "due to heartbeat by concurrent"];
/// The lock provider gave up waiting (0.15.0 after 4 min 15 s, 1.2.0 after 250 s; hudi-lab 9.8).
const LOCK: [&str; 1] = ["Unable to acquire the lock"];
/// A clustering whose commit met a newer write (0.15.0 and 1.2.0 with the set of hudi-lab 9.9; 9.3, 9.4).
const CONFLICT: [&str; 2] =
    ["HoodieWriteConflictException", "Cannot resolve conflicts for overlapping writes"];
/// The procedures of all three releases, for an instant that is completed or was never there (sic).
const NOT_THERE: [&str; 1] = ["instants is not exist"];
/// A bundle older than the table, or 1.0.2 on version 6 without the version pinned (hudi-lab 6 and 9.6).
const VERSION: [&str; 3] = ["Unknown table versionCode", "Unknown versionCode", ") and Writer version ("];

/// Classifies the failure of an attempt that is over while the timeline says that its plan still stands.
///
/// `report` is what the driver said, and wins; `engine_how` is the engine's word with the exit code when it has one. Without
/// either the attempt was killed or lost, which counts.
#[must_use]
pub fn classify_failure(action: Action, report: Option<&JobReport>, engine_how: &str) -> FailureClass {
    let exit_code = report.map(|r| r.exit_code).or_else(|| exit_code_of(engine_how));
    let said = |texts: &[&str]| {
        report.is_some_and(|r| r.error.iter().any(|line| texts.iter().any(|text| line.contains(text))))
    };
    match exit_code {
        Some(EXIT_NO_LEAVE | EXIT_NOBODY_ANSWERED) => FailureClass::NotCounted(WaitReason::NoLeave),
        Some(EXIT_NOTHING_TO_DO) => FailureClass::LookAgain,
        Some(EXIT_ARGUMENTS) => FailureClass::BadOptions,
        _ if said(&HEARTBEAT) => FailureClass::NotCounted(WaitReason::HeartbeatRefused),
        _ if said(&LOCK) => FailureClass::NotCounted(WaitReason::LockHeld),
        _ if action == Action::Clustering && said(&CONFLICT) => FailureClass::Overtaken,
        _ if said(&NOT_THERE) => FailureClass::LookAgain,
        _ if said(&VERSION) => FailureClass::WrongBundle,
        _ if report.is_some_and(|r| r.outcome == UNTOUCHED) => FailureClass::NotCounted(WaitReason::NoLeave),
        _ => FailureClass::Counted,
    }
}

/// Reads an exit code out of an engine's words, such as `exit 3` or `FAILED, exit code 3`.
#[must_use]
pub fn exit_code_of(engine_how: &str) -> Option<i32> {
    let (_, after) = engine_how.rsplit_once("exit")?;
    let digits = after.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '-');
    let end =
        digits.char_indices().skip(1).find(|(_, c)| !c.is_ascii_digit()).map_or(digits.len(), |(n, _)| n);
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report(exit_code: i32, outcome: &str, error: &[&str]) -> JobReport {
        JobReport {
            outcome: outcome.to_owned(),
            exit_code,
            error: error.iter().map(|&e| e.to_owned()).collect(),
            rows: Vec::new(),
            at: chrono::DateTime::from_timestamp_millis(0).unwrap(),
        }
    }

    fn class(action: Action, error: &[&str]) -> FailureClass {
        classify_failure(action, Some(&report(3, "threw", error)), "exit 3")
    }

    #[test]
    fn measured_texts_have_their_class() {
        use FailureClass::{Counted, LookAgain, NotCounted, Overtaken, WrongBundle};
        let lock = "org.apache.hudi.exception.HoodieLockException: Unable to acquire the lock. Current lock owner information :";
        let heartbeat = "org.apache.hudi.exception.HoodieLockException: Cannot execute instant 20261130092029688 due to heartbeat by concurrent writer/job";
        let conflict = "org.apache.hudi.exception.HoodieWriteConflictException: java.util.ConcurrentModificationException: Cannot resolve conflicts for overlapping writes";
        let gone =
            "org.apache.hudi.exception.HoodieException: specific 20261130092029688 instants is not exist";
        let newer = "org.apache.hudi.exception.HoodieException: Unknown table versionCode:9";
        let six = "HoodieNotSupportedException: Table version (SIX) and Writer version (EIGHT) do not match for table at: file:/t";
        let both = "HoodieLockException: Unable to acquire the lock <- heartbeat by concurrent writer/job";
        for (action, text, expected) in [
            (Action::Compaction, lock, NotCounted(WaitReason::LockHeld)),
            (Action::Compaction, heartbeat, NotCounted(WaitReason::HeartbeatRefused)),
            (Action::Clean, both, NotCounted(WaitReason::HeartbeatRefused)),
            (Action::Clustering, conflict, Overtaken),
            (Action::Compaction, conflict, Counted),
            (Action::Compaction, gone, LookAgain),
            (Action::Clustering, newer, WrongBundle),
            (Action::Compaction, six, WrongBundle),
            (Action::Clustering, "java.util.NoSuchElementException: No value present in Option", Counted),
            (Action::Compaction, "java.lang.OutOfMemoryError: Java heap space", Counted),
        ] {
            assert_eq!(
                class(action, &["org.apache.spark.SparkException: wrapper", text]),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn exit_codes_have_their_class() {
        use FailureClass::{BadOptions, Counted, LookAgain, NotCounted};
        for (code, expected) in [
            (0, Counted),
            (1, Counted),
            (2, BadOptions),
            (3, Counted),
            (10, NotCounted(WaitReason::NoLeave)),
            (11, NotCounted(WaitReason::NoLeave)),
            (12, LookAgain),
            (137, Counted),
            (143, Counted),
        ] {
            assert_eq!(
                classify_failure(Action::Compaction, None, &format!("exit {code}")),
                expected,
                "{code}"
            );
            let said = report(code, "threw", &[]);
            assert_eq!(classify_failure(Action::Compaction, Some(&said), "lost"), expected, "{code}");
        }
        assert_eq!(classify_failure(Action::Compaction, None, "killed by signal 9"), Counted);
        assert_eq!(classify_failure(Action::Compaction, None, ""), Counted);
    }

    #[test]
    fn the_driver_is_believed_before_the_engine() {
        let said = report(10, "untouched", &[]);
        assert_eq!(
            classify_failure(Action::Clean, Some(&said), "exit 1"),
            FailureClass::NotCounted(WaitReason::NoLeave)
        );
    }

    #[test]
    fn exit_codes_are_read_out_of_words() {
        for (text, expected) in [
            ("exit 3", Some(3)),
            ("FAILED, exit code: 137 (oom)", Some(137)),
            ("exitCode=12", Some(12)),
            ("exit -1", Some(-1)),
            ("exit", None),
            ("exited", None),
            ("FINISHED", None),
            ("exit 99999999999999", None),
            ("exit -", None),
            ("", None),
        ] {
            assert_eq!(exit_code_of(text), expected, "{text}");
        }
    }
}
