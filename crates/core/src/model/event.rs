//! What happened to an instance: when, who, why.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::model::id::Term;

/// Who caused an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A Service of the leader in this term.
    Service(Term),
    /// A writer.
    Writer,
    /// The driver of an attempt.
    Driver,
    /// A person or program; the name it gave, if any.
    User(String),
}

/// One entry of an instance's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// State before, as a word; empty for the first event.
    pub from: String,
    /// State after, as a word.
    pub to: String,
    /// Attempt that it concerns.
    pub attempt: Option<u32>,
    /// Why, for people.
    pub reason: String,
}

/// Longest reason that is kept, in bytes.
pub const REASON_BYTES_MAX: usize = 2_000;

/// Cuts a text to at most `bytes_max` bytes at a character boundary.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}
