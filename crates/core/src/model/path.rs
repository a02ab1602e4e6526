//! The canonical base path: the identity of a table.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// Longest base path that is accepted, in bytes; HDFS allows 8,000, object stores 1,024 for a whole key.
pub const BASE_PATH_BYTES_MAX: usize = 4_096;

/// Canonical base path of a table: `scheme:/path` or `scheme://authority/path`, without trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BasePath(String);

/// What turns a spelling into a canonical base path; from the configuration.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    /// File system of paths without scheme, such as `hdfs://ns1`; unset means local files.
    pub default_fs: Option<String>,
    /// Two names of one place: from `scheme://authority` to `scheme://authority`, or from one local folder, such as
    /// `file:/data`, to another.
    pub aliases: BTreeMap<String, String>,
}

impl BasePath {
    /// Returns the canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the scheme, such as `file` or `s3`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Tells whether this path is `root` itself or lies below it.
    #[must_use]
    pub fn is_under(&self, root: &BasePath) -> bool {
        match self.0.strip_prefix(root.0.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/') || root.0.ends_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PathRules {
    /// Makes the canonical form of one spelling. The path is never URL-decoded.
    ///
    /// # Errors
    /// `Invalid` when the spelling is empty, too long, relative, or holds `..` or control characters.
    pub fn canonical(&self, spelling: &str) -> Result<BasePath, Error> {
        let refuse = |why: &'static str| {
            Error::new(ErrorKind::Invalid, "read a base path")
                .with("path", format!("{:?}", spelling.chars().take(200).collect::<String>()))
                .with("reason", why)
                .hint("give an absolute path or URI of the table's folder")
        };
        if spelling.is_empty() {
            return Err(refuse("it is empty"));
        }
        if spelling.len() > BASE_PATH_BYTES_MAX {
            return Err(refuse("it is longer than 4096 bytes"));
        }
        if spelling.chars().any(char::is_control) {
            return Err(refuse("it holds a control character"));
        }
        let whole = self.with_scheme(spelling).ok_or_else(|| refuse("it is not absolute"))?;
        let (scheme, rest) = whole.split_once(':').ok_or_else(|| refuse("it has no scheme"))?;
        let (authority, path) = match rest.strip_prefix("//") {
            Some(after) => match after.find('/') {
                Some(at) => (&after[..at], &after[at..]),
                None => (after, ""),
            },
            None => ("", rest),
        };
        let scheme = scheme.to_ascii_lowercase();
        let scheme = if matches!(scheme.as_str(), "s3a" | "s3n") { "s3".to_owned() } else { scheme };
        let authority = if scheme == "file" && authority == "localhost" { "" } else { authority };
        if scheme == "file" && !authority.is_empty() {
            return Err(refuse("a local path has no host"));
        }
        let mut segments = Vec::new();
        for segment in path.split('/') {
            match segment {
                "" | "." => {}
                ".." => return Err(refuse("it holds a `..` segment")),
                other => segments.push(other),
            }
        }
        if segments.is_empty() && scheme == "file" {
            return Err(refuse("it is the root of the file system"));
        }
        let store = self.store_of(&scheme, &authority.to_ascii_lowercase());
        let mut text = store;
        for segment in segments {
            text.push('/');
            text.push_str(segment);
        }
        Ok(BasePath(if scheme == "file" { self.local(text) } else { text }))
    }

    /// A local path by the folders that are known under another name: by the longest of them.
    fn local(&self, text: String) -> String {
        let leads =
            |from: &str| text.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let known = self.aliases.iter().rev().filter(|(from, _)| from.starts_with("file:"));
        let longest = known
            .filter_map(|(from, to)| leads(from).map(|rest| (from.len(), to, rest)))
            .max_by_key(|(length, ..)| *length);
        match longest {
            Some((_, to, rest)) => format!("{to}{rest}"),
            None => text,
        }
    }

    fn with_scheme(&self, spelling: &str) -> Option<String> {
        if has_scheme(spelling) {
            return Some(spelling.to_owned());
        }
        if !spelling.starts_with('/') {
            return None;
        }
        Some(match &self.default_fs {
            Some(fs) => format!("{}{spelling}", fs.trim_end_matches('/')),
            None => format!("file:{spelling}"),
        })
    }

    fn store_of(&self, scheme: &str, authority: &str) -> String {
        if authority.is_empty() {
            return format!("{scheme}:");
        }
        let store = format!("{scheme}://{authority}");
        match self.aliases.get(&store) {
            Some(alias) => alias.trim_end_matches('/').to_owned(),
            None => store,
        }
    }
}

fn has_scheme(text: &str) -> bool {
    match text.split_once(':') {
        Some((scheme, rest)) => {
            rest.starts_with('/')
                && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        PathRules::default()
            .canonical(text)
            .map_or_else(|e| format!("refused: {}", e.get("reason").unwrap()), |p| p.0)
    }

    #[test]
    fn spellings_of_one_table_are_one() {
        for text in [
            "/data/t",
            "file:/data/t",
            "file:///data/t",
            "file:///data//t/",
            "FILE:/data/./t",
            "file://localhost/data/t",
        ] {
            assert_eq!(canonical(text), "file:/data/t", "{text}");
        }
        for text in ["s3://b/t", "s3a://b/t/", "s3n://b//t"] {
            assert_eq!(canonical(text), "s3://b/t", "{text}");
        }
    }

    #[test]
    fn the_path_is_never_decoded() {
        assert_eq!(canonical("/d/od%41d/ä b/c+d"), "file:/d/od%41d/ä b/c+d");
    }

    #[test]
    fn bad_spellings_are_refused() {
        for text in ["", "t", "../t", "/a/../b", "file://host/x", "/", "/a\nb", "file:"] {
            assert!(canonical(text).starts_with("refused"), "{text}");
        }
    }

    #[test]
    fn default_fs_and_aliases_apply() {
        let rules = PathRules {
            default_fs: Some("hdfs://ns1/".to_owned()),
            aliases: [("hdfs://nn1:8020".to_owned(), "hdfs://ns1".to_owned())].into(),
        };
        assert_eq!(rules.canonical("/t").unwrap().as_str(), "hdfs://ns1/t");
        assert_eq!(rules.canonical("hdfs://NN1:8020/t").unwrap().as_str(), "hdfs://ns1/t");
    }

    #[test]
    fn local_folders_may_have_another_name() {
        let alias = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let rules = PathRules {
            default_fs: None,
            aliases: [alias("file:/data", "file:/mnt/a"), alias("file:/data/hot", "file:/ssd")].into(),
        };
        let canonical = |text: &str| rules.canonical(text).unwrap().as_str().to_owned();
        assert_eq!(canonical("/data/t"), "file:/mnt/a/t");
        assert_eq!(canonical("file:///data/hot/t"), "file:/ssd/t");
        assert_eq!(canonical("/database/t"), "file:/database/t");
        assert_eq!(canonical("/mnt/a/t"), "file:/mnt/a/t");
    }

    #[test]
    fn a_root_holds_what_lies_below_it_only() {
        let root = PathRules::default().canonical("/lake").unwrap();
        let path = |t: &str| PathRules::default().canonical(t).unwrap();
        assert!(path("/lake/t").is_under(&root));
        assert!(path("/lake").is_under(&root));
        assert!(!path("/lake2/t").is_under(&root));
    }

    proptest! {
        #[test]
        fn canonical_is_stable(text in "(file:|s3a://B|/)?[/a-z%. é]{0,40}") {
            if let Ok(first) = PathRules::default().canonical(&text) {
                let again = PathRules::default().canonical(first.as_str()).unwrap();
                prop_assert_eq!(first, again);
            }
        }
    }
}
