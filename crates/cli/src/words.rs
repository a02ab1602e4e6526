//! Words, names and ids of the command line, checked before anything is sent: what cannot be meant is a wrong command
//! line, never a refusal of the server.

/// States of an instance.
pub(crate) const STATES: [&str; 10] = [
    "hinted",
    "pending",
    "waiting_foreign",
    "parked",
    "active",
    "succeeding",
    "succeeded",
    "failed",
    "cancelled",
    "obsolete",
];
/// Actions that are shown.
pub(crate) const ACTIONS: [&str; 4] = ["compaction", "logcompaction", "clustering", "clean"];
/// How writers and jobs keep out of each other's way.
pub(crate) const CONCURRENCY: [&str; 2] = ["locked", "exclusive"];
/// What becomes of an abandoned table service.
pub(crate) const TAKE_OVER: [&str; 2] = ["ask", "after_grace"];

/// Longest name of a queue, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Most digits of an instant.
const INSTANT_DIGITS_MAX: usize = 32;
/// Digits of an instance's id, without hyphens.
const ID_DIGITS: usize = 32;

/// Reads an action that can be asked for.
pub(crate) fn action(text: &str) -> Result<String, String> {
    match text {
        "compaction" | "clustering" | "clean" => Ok(text.to_owned()),
        "logcompaction" => {
            Err("no procedure of Hudi runs a logcompaction: use compaction, clustering or clean".to_owned())
        }
        _ => Err("use compaction, clustering or clean".to_owned()),
    }
}

/// Reads the id of an instance.
pub(crate) fn instance_id(text: &str) -> Result<String, String> {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let is_id = digits == ID_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if is_id {
        return Ok(text.to_owned());
    }
    Err("an instance id is a UUID as printed by `tms instance list`".to_owned())
}

/// Reads an instant.
pub(crate) fn instant(text: &str) -> Result<String, String> {
    let is_instant =
        (1..=INSTANT_DIGITS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_instant {
        return Ok(text.to_owned());
    }
    Err("an instant is 1 to 32 digits, as in the file names of the timeline".to_owned())
}

/// Reads the name of a queue.
pub(crate) fn queue(text: &str) -> Result<String, String> {
    let is_name = (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if is_name {
        return Ok(text.to_owned());
    }
    Err("a name is 1 to 64 characters of a-z, A-Z, 0-9, dot, underscore and hyphen".to_owned())
}

#[cfg(test)]
mod tests {
    use tms_core::model::action::Action;
    use tms_core::model::instance::InstanceState;
    use tms_core::model::policy::{Concurrency, TakeOver};

    use super::*;

    #[test]
    fn words_are_those_of_the_server() {
        assert_eq!(STATES, InstanceState::WORDS);
        assert_eq!(ACTIONS, Action::ALL.map(Action::as_str));
        let reads = |text: &str, is: fn(&str) -> bool| is(&format!("\"{text}\""));
        for word in CONCURRENCY {
            assert!(reads(word, |json| serde_json::from_str::<Concurrency>(json).is_ok()), "{word}");
        }
        for word in TAKE_OVER {
            assert!(reads(word, |json| serde_json::from_str::<TakeOver>(json).is_ok()), "{word}");
        }
    }
}
