//! File names of a timeline: from a name to an instant's action and state, for both layouts.
//!
//! Sources of the rules: Hudi's `InstantFileNameGeneratorV1` and `…V2`, and real tables of 0.15.0 to 1.2.0.

use std::fmt;

/// An action, in Hudi's own words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HudiAction {
    /// `commit`: a write of a copy-on-write table, and what a finished compaction is called.
    Commit,
    /// `deltacommit`: a write of a merge-on-read table, and what a finished log compaction is called.
    DeltaCommit,
    /// `compaction`, only while it is pending.
    Compaction,
    /// `logcompaction`, only while it is pending.
    LogCompaction,
    /// `replacecommit`: a write that replaces file groups, a finished clustering, and in layout 1 a pending one.
    ReplaceCommit,
    /// `clustering`, only while it is pending, from layout 2 on.
    Clustering,
    /// `clean`.
    Clean,
    /// `rollback`.
    Rollback,
    /// `savepoint`.
    Savepoint,
    /// `restore`.
    Restore,
    /// `indexing`.
    Indexing,
    /// `schemacommit`.
    SchemaCommit,
    /// A word that this reader does not know, kept as it stands.
    Other(String),
}

impl HudiAction {
    /// Reads Hudi's word.
    pub fn from_word(word: &str) -> Self {
        match word {
            "commit" => Self::Commit,
            "deltacommit" => Self::DeltaCommit,
            "compaction" => Self::Compaction,
            "logcompaction" => Self::LogCompaction,
            "replacecommit" => Self::ReplaceCommit,
            "clustering" => Self::Clustering,
            "clean" => Self::Clean,
            "rollback" => Self::Rollback,
            "savepoint" => Self::Savepoint,
            "restore" => Self::Restore,
            "indexing" => Self::Indexing,
            "schemacommit" => Self::SchemaCommit,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Hudi's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Commit => "commit",
            Self::DeltaCommit => "deltacommit",
            Self::Compaction => "compaction",
            Self::LogCompaction => "logcompaction",
            Self::ReplaceCommit => "replacecommit",
            Self::Clustering => "clustering",
            Self::Clean => "clean",
            Self::Rollback => "rollback",
            Self::Savepoint => "savepoint",
            Self::Restore => "restore",
            Self::Indexing => "indexing",
            Self::SchemaCommit => "schemacommit",
            Self::Other(word) => word,
        }
    }

    /// The word an action has when it is finished: all files of one requested time and one such word are
    /// one instant (Hudi's "comparable action").
    #[must_use]
    pub fn finished(&self) -> Self {
        match self {
            Self::Compaction => Self::Commit,
            Self::LogCompaction => Self::DeltaCommit,
            Self::Clustering => Self::ReplaceCommit,
            other => other.clone(),
        }
    }
}

impl fmt::Display for HudiAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far an instant has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstantState {
    /// Planned (or announced).
    Requested,
    /// Begun; whether its runner lives cannot be told from the name.
    Inflight,
    /// Done.
    Completed,
}

impl InstantState {
    /// `requested`, `inflight` or `completed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Inflight => "inflight",
            Self::Completed => "completed",
        }
    }
}

impl fmt::Display for InstantState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One file of a timeline, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineName {
    /// Requested time: digits, compared as text (the metadata table has times that are no dates).
    pub requested: String,
    /// Completion time, in completed names of layout 2.
    pub completed: Option<String>,
    /// The action as the name says it.
    pub action: HudiAction,
    /// The state as the name says it.
    pub state: InstantState,
}

/// Reads a file name of a timeline; `None` for everything that is not one: `.crc`, `<name>.<uuid>`
/// siblings (a writer's temporary files), `hoodie.properties`, dot files.
pub fn parse_timeline_name(name: &str) -> Option<TimelineName> {
    let (times, rest) = name.split_once('.')?;
    let (requested, completed) = match times.split_once('_') {
        Some((requested, completed)) => (requested, Some(completed)),
        None => (times, None),
    };
    if !is_digits(requested) || !completed.is_none_or(is_digits) {
        return None;
    }
    let (word, ending) = match rest.split_once('.') {
        Some((word, ending)) => (word, Some(ending)),
        None => (rest, None),
    };
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return None;
    }
    let (action, state) = match (word, ending) {
        // A plain commit's inflight file carries no action in its name.
        ("inflight", None) => (HudiAction::Commit, InstantState::Inflight),
        ("requested" | "inflight", _) => return None,
        (word, None) => (HudiAction::from_word(word), InstantState::Completed),
        (word, Some("requested")) => (HudiAction::from_word(word), InstantState::Requested),
        (word, Some("inflight")) => (HudiAction::from_word(word), InstantState::Inflight),
        _ => return None,
    };
    if completed.is_some() && state != InstantState::Completed {
        return None;
    }
    Some(TimelineName {
        requested: requested.to_owned(),
        completed: completed.map(ToOwned::to_owned),
        action,
        state,
    })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The instant in a data file's name: `<file id>_<token>_<instant>.<ext>` for a base file,
/// `.<file id>_<instant>.log.<n>_<token>` for a log file (layout 1: of the slice; layout 2: of the write).
/// Folders before the name do not matter.
pub fn instant_of_data_file(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let instant = match name.strip_prefix('.') {
        Some(log) => {
            let (stem, _) = log.split_once(".log.")?;
            stem.rsplit_once('_')?.1
        }
        None => {
            let (_, tail) = name.rsplit_once('_')?;
            tail.split_once('.').map_or(tail, |(instant, _)| instant)
        }
    };
    is_digits(instant).then_some(instant)
}
