//! Confinement: does a path that a plan names lie under the table's base path?
//!
//! Plans are input from outside. Paths are compared as text after the spellings that Hadoop holds equal are
//! made one (`file:/x` and `/x`; `s3`, `s3a`, `s3n`; doubled slashes). Nothing is ever decoded.

/// Scheme and authority, then the segments.
#[derive(Debug, PartialEq, Eq)]
struct Spelled<'a> {
    scheme: &'a str,
    authority: &'a str,
    segments: Vec<&'a str>,
}

fn spell(path: &str) -> Spelled<'_> {
    let (scheme, rest) = match path.split_once(':') {
        // A colon inside a segment is no scheme.
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        _ => ("", path),
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(after) if !scheme.is_empty() => after.split_at(after.find('/').unwrap_or(after.len())),
        _ => ("", rest),
    };
    let scheme = match scheme {
        "s3a" | "s3n" => "s3",
        other => other,
    };
    Spelled { scheme, authority, segments: path.split('/').filter(|s| !s.is_empty()).collect() }
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/')
        || path.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && rest.starts_with('/'))
}

fn steps_out(segment: &str) -> bool {
    segment == ".." || segment == "."
}

/// True when `path` lies under `base`: an absolute one by its segments, a relative one when it never steps out.
pub(crate) fn is_under(base: &str, path: &str) -> bool {
    if !is_absolute(path) {
        return !path.split('/').any(steps_out);
    }
    let (mut base, mut path) = (spell(base), spell(path));
    // A base path without a scheme is local, as far as this crate can know; a plan's path without one is
    // resolved on the table's own store (plans of local tables hold both spellings, measured).
    if base.scheme.is_empty() {
        base.scheme = "file";
    }
    if path.scheme.is_empty() {
        (path.scheme, path.authority) = (base.scheme, base.authority);
    }
    base.scheme == path.scheme
        && base.authority == path.authority
        && path.segments.starts_with(&base.segments)
        && !path.segments.iter().any(|segment| steps_out(segment))
}
