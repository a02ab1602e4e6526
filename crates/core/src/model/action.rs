//! The table services that TMS knows, and the instant of a plan.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// One kind of table service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Merges log files of a merge-on-read table into base files.
    Compaction,
    /// Merges log files into fewer log files. Seen and shown; no launcher runs it yet.
    LogCompaction,
    /// Rewrites file groups; a `replacecommit` plan in table version 6.
    Clustering,
    /// Deletes files that no reader needs.
    Clean,
}

impl Action {
    /// All actions, in the order of their names in lists.
    pub const ALL: [Self; 4] = [Self::Compaction, Self::LogCompaction, Self::Clustering, Self::Clean];

    /// Tells whether a launcher runs it. One that none runs is seen and shown, but cannot be handed over.
    #[must_use]
    pub fn has_launcher(self) -> bool {
        self != Self::LogCompaction
    }

    /// Returns the word that people and programs use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::LogCompaction => "logcompaction",
            Self::Clustering => "clustering",
            Self::Clean => "clean",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Action {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|a| a.as_str() == text).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "read an action")
                .with("action", format!("{text:?}"))
                .hint("use compaction, logcompaction, clustering or clean")
        })
    }
}

/// Hudi's requested time of one plan. Compared as text: 14, 17 and 20 digits all occur in real tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Instant(String);

impl Instant {
    /// Longest instant that is accepted, in digits; the longest seen in a real table has 20.
    pub const DIGITS_MAX: usize = 32;

    /// Returns the digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Instant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits || text.len() > Self::DIGITS_MAX {
            return Err(Error::new(ErrorKind::Invalid, "read an instant")
                .with("instant", format!("{:?}", text.chars().take(40).collect::<String>()))
                .hint("an instant is 1 to 32 digits, as in the file names of the timeline"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
