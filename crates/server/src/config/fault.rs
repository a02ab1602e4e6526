//! What is wrong with a configuration, for the person who wrote it.

use std::fmt;

/// Longest value that a fault quotes, in characters.
const QUOTED_CHARS_MAX: usize = 80;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key, such as `server.listen`; empty when a whole source is unusable.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What may stand there.
    pub allowed: Option<String>,
    /// Where it was read.
    pub origin: Option<String>,
}

impl Fault {
    /// Makes a fault of `key`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into(), allowed: None, origin: None }
    }

    /// Adds what may stand there.
    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// Adds where it was read.
    #[must_use]
    pub fn origin(mut self, origin: Option<String>) -> Self {
        self.origin = origin;
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)?;
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        match &self.allowed {
            Some(allowed) => write!(f, "; allowed: {allowed}"),
            None => Ok(()),
        }
    }
}

/// All that is wrong, in one answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// Tells whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds faults of keys that have none yet: a second one would only follow from the first.
    pub fn add_new(&mut self, found: impl IntoIterator<Item = Fault>) {
        for fault in found {
            if !self.0.iter().any(|known| known.key == fault.key) {
                self.0.push(fault);
            }
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        write!(f, "the configuration has {n} fault{}", if n == 1 { "" } else { "s" })?;
        for fault in &self.0 {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

/// Quotes a value for a fault, cut.
#[must_use]
pub fn quoted(value: &str) -> String {
    let cut: String = value.chars().take(QUOTED_CHARS_MAX).collect();
    if cut.len() < value.len() { format!("{cut:?}…") } else { format!("{cut:?}") }
}
