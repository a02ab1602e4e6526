//! Identifiers. Each is checked when it is read, so that one that exists is well formed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::model::path::BasePath;

/// Identity of a table: the first 16 bytes of SHA-256 of its canonical base path, shown as hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId([u8; 16]);

impl TableId {
    /// Returns the id of the table at `path`.
    #[must_use]
    pub fn of(path: &BasePath) -> Self {
        let digest = Sha256::digest(path.as_str().as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }

    /// Returns the bytes, for keys.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Makes an id of the bytes of a key.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TableId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut id = [0; 16];
        hex::decode_to_slice(text, &mut id).map_err(|_| {
            Error::new(ErrorKind::Invalid, "read a table id")
                .with("id", format!("{:?}", text.chars().take(64).collect::<String>()))
                .hint("a table id is 32 hex digits; a base path is accepted too")
        })?;
        Ok(Self(id))
    }
}

impl Serialize for TableId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TableId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Identity of an instance: a UUID v7, so ids sort by the time of their making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub Uuid);

impl InstanceId {
    /// Makes a new id.
    #[must_use]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for InstanceId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for InstanceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Uuid::parse_str(text).map(Self).map_err(|e| {
            Error::new(ErrorKind::Invalid, "read an instance id")
                .with("id", format!("{:?}", text.chars().take(64).collect::<String>()))
                .hint("an instance id is a UUID as printed by `tms instance list`")
                .caused_by(e)
        })
    }
}

/// Number of a leadership; grows at each election and never falls. The fencing token of every write by a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Number of changes of one row; what compare-and-set compares. 0 = never stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// Returns the version after the next change.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A random mark of a store's life: new at creation and at each restore from a backup. Eight hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub String);

impl Incarnation {
    /// Makes a new random mark.
    #[must_use]
    pub fn random() -> Self {
        Self(hex::encode(rand::random::<[u8; 4]>()))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of one attempt for engines: `tms-<incarnation>-<instance>-<attempt>`, 50 characters of `[a-z0-9-]`.
///
/// Kubernetes labels allow 63 characters and YARN makes tags lower case, hence this alphabet and length.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Tag(String);

impl Tag {
    /// Highest attempt number that fits the fixed length.
    pub const ATTEMPT_MAX: u32 = 9_999;

    /// Returns the tag of one attempt.
    #[must_use]
    pub fn of(incarnation: &Incarnation, instance: InstanceId, attempt: u32) -> Self {
        Self(format!("tms-{incarnation}-{}-{attempt:04}", instance.0.simple()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the incarnation of the store that submitted the attempt.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.0[4..12].to_owned())
    }

    /// Returns the instance that the attempt belongs to.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        InstanceId(Uuid::parse_str(&self.0[13..45]).unwrap_or_default())
    }

    /// Returns the number of the attempt.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0[46..].parse().unwrap_or_default()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tag {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split('-').collect();
        let hex_of = |s: &str, n: usize| {
            s.len() == n && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let number = |s: &str| s.len() == 4 && s.bytes().all(|b| b.is_ascii_digit());
        match parts.as_slice() {
            ["tms", incarnation, instance, attempt]
                if hex_of(incarnation, 8) && hex_of(instance, 32) && number(attempt) =>
            {
                Ok(Self(text.to_owned()))
            }
            _ => Err(Error::new(ErrorKind::Invalid, "read a tag")
                .with("tag", format!("{:?}", text.chars().take(64).collect::<String>()))),
        }
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The random id that a driver gives itself; 32 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

impl RunId {
    /// Returns the id of a holder that nobody knows; no driver gives itself this one.
    #[must_use]
    pub fn unknown() -> Self {
        Self("0".repeat(32))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(ErrorKind::Invalid, "read a run id").hint("a run id is 32 lower-case hex digits"))
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Checks a name of a queue or engine: 1 to 64 characters of `[a-zA-Z0-9._-]`.
fn checked_name(kind: &'static str, text: &str) -> Result<String, Error> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(allowed) {
        return Err(Error::new(ErrorKind::Invalid, kind)
            .with("name", format!("{:?}", text.chars().take(64).collect::<String>()))
            .hint("a name has 1 to 64 characters of a-z, A-Z, 0-9, dot, underscore and hyphen"));
    }
    Ok(text.to_owned())
}

/// Longest name of a queue or engine, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self("default".to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                checked_name($kind, text).map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type!(
    /// Name of a queue; `default` when nobody said otherwise.
    QueueName,
    "read a queue name"
);
name_type!(
    /// Name of a configured engine.
    EngineName,
    "read an engine name"
);
name_type!(
    /// Name of a node; the host name and port unless configured.
    NodeName,
    "read a node name"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_keeps_its_parts() {
        let id = InstanceId::new();
        let tag = Tag::of(&Incarnation("0a1b2c3d".to_owned()), id, 7);
        assert_eq!(tag.as_str().len(), 50);
        assert_eq!(tag.instance(), id);
        assert_eq!(tag.attempt(), 7);
        assert_eq!(tag.as_str().parse::<Tag>().unwrap(), tag);
    }

    #[test]
    fn malformed_tags_are_refused() {
        for text in [
            "",
            "tms",
            "tms-1-2-3",
            "tms-0a1b2c3d-é-0001",
            "TMS-0a1b2c3d-00000000000000000000000000000000-0001",
        ] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_hold_no_odd_characters() {
        assert!("etl-1.a_b".parse::<QueueName>().is_ok());
        for text in ["", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(text.parse::<QueueName>().is_err(), "{text}");
        }
    }
}
