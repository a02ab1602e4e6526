//! Whether a driver may go on, once the check before the submission was repeated.

use crate::decision::check::Verdict;
use crate::model::attempt::Expected;

/// Why a driver must exit untouched: a word for programs, a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLeave {
    /// Word.
    pub reason: &'static str,
    /// Text.
    pub detail: String,
}

/// Compares what the timeline says now with what the attempt was made for.
///
/// # Errors
/// The driver must exit untouched.
pub fn leave_allowed(verdict: &Verdict, expected: Expected) -> Result<(), NoLeave> {
    match verdict {
        Verdict::Go(found) if *found == expected => Ok(()),
        Verdict::Go(found) => Err(NoLeave {
            reason: "timeline_changed",
            detail: format!("the attempt was made for {expected:?}, the timeline now says {found:?}"),
        }),
        Verdict::Completed => {
            Err(NoLeave { reason: "completed", detail: "the instant is completed".to_owned() })
        }
        Verdict::Missing => {
            Err(NoLeave { reason: "missing", detail: "the instant is not on the timeline".to_owned() })
        }
        Verdict::NotHandedOver => Err(NoLeave {
            reason: "not_handed_over",
            detail: "the action is not handed over any more".to_owned(),
        }),
        Verdict::Park(reason, detail) => Err(NoLeave { reason: reason.as_str(), detail: detail.clone() }),
        Verdict::WaitForeign(_) => {
            Err(NoLeave { reason: "foreign_runner", detail: "somebody else runs the instant".to_owned() })
        }
        Verdict::Delay(..) => {
            Err(NoLeave { reason: "not_now", detail: "a lock is held or a restore is under way".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::instance::ParkReason;

    #[test]
    fn only_the_expected_state_of_the_timeline_gives_leave() {
        assert!(leave_allowed(&Verdict::Go(Expected::Requested), Expected::Requested).is_ok());
        for verdict in [
            Verdict::Go(Expected::InflightOfOurs),
            Verdict::Completed,
            Verdict::Missing,
            Verdict::Park(ParkReason::Overtaken, String::new()),
            Verdict::WaitForeign(None),
        ] {
            assert!(leave_allowed(&verdict, Expected::Requested).is_err(), "{verdict:?}");
        }
    }
}
