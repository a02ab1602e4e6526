//! `hoodie.properties`: a Java properties file, and what the reader takes from it.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};

/// Table versions that were measured (0.15.0, 1.0.2, 1.2.0) and may be acted on; any version may be read.
pub const TABLE_VERSIONS_KNOWN: [u32; 3] = [6, 8, 9];

/// `hoodie.table.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableType {
    /// `COPY_ON_WRITE`.
    CopyOnWrite,
    /// `MERGE_ON_READ`.
    MergeOnRead,
}

impl TableType {
    /// Hudi's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CopyOnWrite => "COPY_ON_WRITE",
            Self::MergeOnRead => "MERGE_ON_READ",
        }
    }
}

/// What `hoodie.properties` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableProperties {
    /// `hoodie.table.name`.
    pub name: String,
    /// `hoodie.database.name`: often absent, often empty.
    pub database: Option<String>,
    /// `hoodie.table.type`; Hudi's default is copy-on-write.
    pub table_type: TableType,
    /// `hoodie.table.version`: 6, 8 and 9 are known, see [`Self::is_version_known`].
    pub version: u32,
    /// `hoodie.timeline.layout.version`: 1 or 2.
    pub layout: u32,
    /// Folder of the active timeline, below the base path: `.hoodie` or `.hoodie/timeline`.
    pub timeline_path: String,
    /// Folder of the history, below the base path: `.hoodie/archived` or `.hoodie/timeline/history`.
    pub history_path: String,
    /// `hoodie.archivelog.folder`, as it stands.
    pub archive_folder: Option<String>,
    /// `hoodie.table.metadata.partitions`; empty when the table has no metadata table.
    pub metadata_partitions: Vec<String>,
    /// Every key of the file.
    pub raw: BTreeMap<String, String>,
}

impl TableProperties {
    /// True for the versions that were measured; TMS acts on no other.
    pub fn is_version_known(&self) -> bool {
        TABLE_VERSIONS_KNOWN.contains(&self.version)
    }

    /// True when the properties name partitions of a metadata table.
    pub fn has_metadata_table(&self) -> bool {
        !self.metadata_partitions.is_empty()
    }

    /// One key as it stands.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.raw.get(key).map(String::as_str)
    }

    /// Reads the content of a properties file; `path` is only for the error.
    ///
    /// # Errors
    /// `NotReadableYet` for what a half-written file looks like (empty, keys missing), `Corrupt` for values that cannot be, `Unsupported` for a timeline layout this reader does not know.
    pub fn parse(content: &[u8], path: &str) -> Result<Self, Error> {
        let raw = parse_java_properties(content)
            .map_err(|detail| Error::new(ErrorKind::Corrupt, OPERATION, path, detail))?;
        let half = |detail: &str| {
            Error::new(ErrorKind::NotReadableYet, OPERATION, path, detail).with_hint(
                "look again; if it stays so, restore hoodie.properties from hoodie.properties.backup",
            )
        };
        if raw.is_empty() {
            return Err(half("no keys: empty or half-written"));
        }
        let Some(name) = raw.get("hoodie.table.name").filter(|name| !name.is_empty()) else {
            return Err(half("hoodie.table.name is missing: half-written or cut"));
        };
        let Some(version) = raw.get("hoodie.table.version") else {
            return Err(half("hoodie.table.version is missing: half-written or cut"));
        };
        let version = number(version, "hoodie.table.version", path)?;
        if version >= COMPLETE_SINCE_VERSION {
            for key in ["hoodie.table.type", "hoodie.table.checksum"] {
                if !raw.contains_key(key) {
                    return Err(half(&format!("{key} is missing: half-written or cut")));
                }
            }
        }
        let database = raw.get("hoodie.database.name").cloned();
        let table_type = match raw.get("hoodie.table.type").map(String::as_str) {
            None | Some("COPY_ON_WRITE") => TableType::CopyOnWrite,
            Some("MERGE_ON_READ") => TableType::MergeOnRead,
            Some(other) => {
                let detail =
                    format!("hoodie.table.type is {other:?}; known are COPY_ON_WRITE and MERGE_ON_READ");
                return Err(Error::new(ErrorKind::Corrupt, OPERATION, path, detail));
            }
        };
        let layout = match raw.get("hoodie.timeline.layout.version") {
            Some(text) => number(text, "hoodie.timeline.layout.version", path)?,
            // Releases before the key existed; version 8 brought layout 2.
            None => {
                if version >= 8 {
                    2
                } else {
                    1
                }
            }
        };
        let (timeline_path, history_path) = folders(&raw, layout, path)?;
        let metadata_partitions = raw
            .get("hoodie.table.metadata.partitions")
            .map(|list| list.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect())
            .unwrap_or_default();
        Ok(Self {
            name: name.clone(),
            database,
            table_type,
            version,
            layout,
            timeline_path,
            history_path,
            archive_folder: raw.get("hoodie.archivelog.folder").cloned(),
            metadata_partitions,
            raw,
        })
    }
}

const OPERATION: &str = "read the table's properties";
/// From this version on Hudi always writes type and checksum (`hoodie.table.checksum` came with it; so in all fixtures). A
/// file cut at the end of a line is known by their absence, in most cases: keys stand in no order.
const COMPLETE_SINCE_VERSION: u32 = 4;

fn number(text: &str, key: &str, path: &str) -> Result<u32, Error> {
    text.trim().parse().map_err(|_| {
        Error::new(ErrorKind::Corrupt, OPERATION, path, format!("{key} is {text:?}, not a number"))
    })
}

/// Folders of timeline and history. Layout 1 ignores `hoodie.timeline.path`, which 1.0.2 sets there too (measured).
fn folders(raw: &BTreeMap<String, String>, layout: u32, path: &str) -> Result<(String, String), Error> {
    let folder = |key: &str, default: &str| -> Result<String, Error> {
        let value = raw.get(key).map_or(default, String::as_str);
        let is_inside = !value.starts_with('/')
            && !value.contains(':')
            && value.split('/').all(|segment| segment != ".." && segment != ".");
        if is_inside {
            return Ok(value.trim_end_matches('/').to_owned());
        }
        let detail = format!("{key} is {value:?}, which is no folder inside .hoodie");
        Err(Error::new(ErrorKind::Corrupt, OPERATION, path, detail))
    };
    let join = |parent: &str, child: &str| {
        if child.is_empty() { parent.to_owned() } else { format!("{parent}/{child}") }
    };
    match layout {
        0 | 1 => {
            let archive = folder("hoodie.archivelog.folder", "archived")?;
            Ok((".hoodie".to_owned(), join(".hoodie", &archive)))
        }
        2 => {
            let timeline = join(".hoodie", &folder("hoodie.timeline.path", "timeline")?);
            let history = join(&timeline, &folder("hoodie.timeline.history.path", "history")?);
            Ok((timeline, history))
        }
        other => {
            let detail = format!("hoodie.timeline.layout.version is {other}; known are 1 and 2");
            Err(Error::new(ErrorKind::Unsupported, OPERATION, path, detail))
        }
    }
}

/// True when the text ends in the middle of a line: a writer always ends the last one.
pub(crate) fn ends_within_a_line(content: &[u8]) -> bool {
    !matches!(content.last(), Some(b'\n' | b'\r'))
}

/// Reads Java's properties format: Latin-1, comments, `=` or `:` or a blank as separator, `\` escapes,
/// `\uXXXX`, lines continued by a trailing `\`.
///
/// # Errors
/// A text that says what is wrong: only a broken `\uXXXX` is.
pub fn parse_java_properties(content: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let mut pairs = BTreeMap::new();
    let text: Vec<char> = content.iter().map(|&byte| char::from(byte)).collect();
    let mut at = 0;
    while at < text.len() {
        let line = logical_line(&text, &mut at);
        let first = line.first().copied();
        if matches!(first, None | Some('#' | '!')) {
            continue;
        }
        let (key, value) = split_pair(&line);
        pairs.insert(unescape(key)?, unescape(value)?);
    }
    Ok(pairs)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// One line with its continuations, without leading blanks, still escaped.
fn logical_line(text: &[char], at: &mut usize) -> Vec<char> {
    let mut line: Vec<char> = Vec::new();
    loop {
        while *at < text.len() && is_blank(text[*at]) {
            *at += 1;
        }
        let is_comment = line.is_empty() && matches!(text.get(*at), Some('#' | '!'));
        let mut is_escaped = false;
        while *at < text.len() && !matches!(text[*at], '\n' | '\r') {
            is_escaped = text[*at] == '\\' && !is_escaped;
            line.push(text[*at]);
            *at += 1;
        }
        let is_windows = text.get(*at) == Some(&'\r') && text.get(*at + 1) == Some(&'\n');
        *at += if is_windows { 2 } else { 1 };
        if !is_escaped || is_comment || *at >= text.len() {
            return line;
        }
        line.pop();
    }
}

fn split_pair(line: &[char]) -> (&[char], &[char]) {
    let mut end = 0;
    let mut is_escaped = false;
    while end < line.len() {
        let c = line[end];
        if !is_escaped && (is_blank(c) || c == '=' || c == ':') {
            break;
        }
        is_escaped = c == '\\' && !is_escaped;
        end += 1;
    }
    let (key, mut rest) = line.split_at(end);
    let skip_blanks = |rest: &mut &[char]| {
        while rest.first().copied().is_some_and(is_blank) {
            *rest = &rest[1..];
        }
    };
    skip_blanks(&mut rest);
    if matches!(rest.first(), Some('=' | ':')) {
        rest = &rest[1..];
        skip_blanks(&mut rest);
    }
    (key, rest)
}

fn unescape(text: &[char]) -> Result<String, String> {
    // UTF-16 units, as in Java: the halves of a surrogate pair are escaped one by one.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.iter().copied();
    while let Some(c) = chars.next() {
        let plain = match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', None) => break,
            ('\\', Some('u')) => {
                let digits: String = chars.by_ref().take(4).collect();
                let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
                units.push(unit.ok_or_else(|| format!("the escape \\u{digits} is not four hex digits"))?);
                continue;
            }
            ('\\', Some('t')) => '\t',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('f')) => '\x0c',
            ('\\', Some(other)) => other,
            (plain, _) => plain,
        };
        let mut buffer = [0_u16; 2];
        units.extend_from_slice(plain.encode_utf16(&mut buffer));
    }
    Ok(String::from_utf16_lossy(&units))
}
