//! Things as people read them.

use chrono::{DateTime, Utc};
use tms_client::types::{Attempt, Instance};

/// Makes a text safe for a terminal, on one line: names and paths come from outside and may hold control characters; a
/// line end in one would forge a row.
pub(crate) fn plain(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_odd) {
        return text.to_owned();
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.extend(c.escape_default()),
            c if is_odd(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

/// A time, in whole seconds.
pub(crate) fn time(at: &DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A time that may be unset.
pub(crate) fn time_or_none(at: Option<&DateTime<Utc>>) -> Option<String> {
    at.map(time)
}

/// A state with what matters beside it.
pub(crate) fn state(instance: &Instance) -> String {
    let mut text = instance.state.clone();
    match (instance.state.as_str(), &instance.reason, &instance.attempt) {
        ("active", _, Some(attempt)) => text = format!("{text} {}", progress(attempt)),
        (_, Some(reason), _) => text = format!("{text} ({reason})"),
        _ => {}
    }
    if instance.cancel_asked.is_some() && instance.is_live {
        text.push_str(" [cancel asked]");
    }
    if instance.is_simulation {
        text.push_str(" [simulation]");
    }
    if instance.is_fenced == Some(false) {
        text.push_str(" [not fenced]");
    }
    text
}

/// How far an attempt is. Once it is over, only what the timeline says of it counts.
pub(crate) fn progress(attempt: &Attempt) -> String {
    if attempt.over_at.is_some() {
        return if attempt.end.as_deref() == Some("completed") { "100%" } else { "-" }.to_owned();
    }
    match &attempt.progress {
        // The first tasks are not the whole: a share of them would say too much or too little.
        Some(p) if p.tasks_total > 0 && p.percent == 0 => format!("{}/{} tasks", p.tasks_done, p.tasks_total),
        Some(p) if p.tasks_total > 0 => format!("{}% ({}/{} tasks)", p.percent, p.tasks_done, p.tasks_total),
        Some(p) if !p.phase.is_empty() => p.phase.clone(),
        _ => attempt.state.clone(),
    }
}

/// A size in bytes.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = n;
    let mut unit = 0;
    while shown >= 10_240 && unit + 1 < UNITS.len() {
        shown /= 1024;
        unit += 1;
    }
    format!("{shown} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_characters_cannot_reach_a_terminal() {
        assert_eq!(plain("a\x1b[31mb"), "a\\u{1b}[31mb");
        assert_eq!(plain("t\u{202e}x"), "t\\u{202e}x");
        assert_eq!(plain("x\ny\tz\r\u{85}\u{2028}"), "x\\ny\\tz\\r\\u{85}\\u{2028}");
        assert_eq!(plain("käse 🧀"), "käse 🧀");
    }

    #[test]
    fn progress_ends_with_the_attempt() {
        let said = |done: u64, percent: u64, over: bool, end: Option<&str>| {
            let at = over.then_some("2026-01-01T00:00:00Z");
            let attempt = serde_json::json!({"number": 1, "tag": "t", "engine": "e", "launcher": "procedure",
                "is_fenced": true, "state": if over { "over" } else { "holding" }, "is_revoked": false, "term": 1,
                "expected": "requested", "intended_at": "2026-01-01T00:00:00Z", "n_kills": 0, "over_at": at,
                "end": end,
                "progress": {"phase": "runs", "tasks_done": done, "tasks_total": 45, "percent": percent}});
            progress(&serde_json::from_value(attempt).unwrap())
        };
        assert_eq!(said(1, 0, false, None), "1/45 tasks");
        assert_eq!(said(42, 93, false, None), "93% (42/45 tasks)");
        assert_eq!(said(42, 93, true, Some("completed")), "100%");
        assert_eq!(said(42, 93, true, Some("failed")), "-");
    }

    #[test]
    fn sizes_keep_two_digits_at_least() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(10_240), "10 KiB");
        assert_eq!(bytes(1024 * 1024 * 500), "500 MiB");
    }
}
