//! Checks one plain value against its schema.

use std::net::SocketAddr;

use figment::value::{Num, Value};
use serde_json::Value as Schema;

use crate::config::schema;

/// What is wrong with the value, and what may stand there.
type Wrong = (String, String);

/// Checks a value that is neither a table nor a list.
pub(super) fn check(value: &Value, schema: &Schema, parent: &Schema) -> Result<(), Wrong> {
    match schema::type_of(schema) {
        Some("integer") => integer(value, schema),
        Some("boolean") => match value {
            Value::Bool(..) => Ok(()),
            _ => Err(("is no boolean".to_owned(), "true, false".to_owned())),
        },
        _ => string(value, schema, parent),
    }
}

/// Says that a value is none of the words.
pub(super) fn not_a_word(found: Option<&str>, words: &[&str]) -> String {
    let near = found.and_then(|f| super::nearest(f, words));
    match near {
        Some(near) => format!("is not known; did you mean `{near}`?"),
        None => "is not known".to_owned(),
    }
}

/// Returns a number as text.
pub(super) fn number_text(number: Num) -> String {
    let whole = number.to_i128().or_else(|| number.to_u128().and_then(|n| i128::try_from(n).ok()));
    whole.map(|n| n.to_string()).or_else(|| number.to_f64().map(|n| n.to_string())).unwrap_or_default()
}

fn integer(value: &Value, schema: &Schema) -> Result<(), Wrong> {
    let low = schema.get("minimum").and_then(Schema::as_i64).unwrap_or(0);
    let format = schema.get("format").and_then(Schema::as_str);
    // TOML itself knows no larger integers than 64 bits with sign.
    let of_type = if format == Some("uint32") { i64::from(u32::MAX) } else { i64::MAX };
    let high = schema.get("maximum").and_then(Schema::as_i64).unwrap_or(of_type).min(of_type);
    let allowed = format!("a whole number from {low} to {high}");
    let number = match value {
        Value::Num(_, n) => n.to_i128().or_else(|| n.to_u128().and_then(|n| i128::try_from(n).ok())),
        _ => None,
    };
    match number {
        None => Err(("is no whole number".to_owned(), allowed)),
        Some(n) if n < i128::from(low) || n > i128::from(high) => {
            Err(("is out of range".to_owned(), allowed))
        }
        Some(_) => Ok(()),
    }
}

fn string(value: &Value, schema: &Schema, parent: &Schema) -> Result<(), Wrong> {
    let format = schema.get("format").and_then(Schema::as_str).unwrap_or_default();
    let item = schema::mark(parent, "x-item").and_then(Schema::as_str);
    let allowed = match (schema::words(schema), item) {
        (Some(words), _) => words.join(", "),
        (None, Some(item)) => item.to_owned(),
        (None, None) => allowed_of(format).to_owned(),
    };
    let Value::String(_, text) = value else {
        return Err(("is no text".to_owned(), allowed));
    };
    if let Some(words) = schema::words(schema) {
        let known = words.contains(&text.as_str());
        return if known { Ok(()) } else { Err((not_a_word(Some(text), &words), allowed)) };
    }
    if text.is_empty() && !format.is_empty() {
        return Err(("is empty".to_owned(), allowed));
    }
    match problem_of(format, text) {
        Some(problem) => Err((problem.to_owned(), allowed)),
        None => Ok(()),
    }
}

fn allowed_of(format: &str) -> &'static str {
    match format {
        "duration" => "a time with its unit, such as 500ms, 30s, 10m, 6h, 30days",
        "socket-address" => "an IP address (or localhost) and a port, such as 127.0.0.1:9091 or [::1]:9091",
        "url" => "an address such as http://tms.example:9091",
        "name" => "1 to 64 characters of a-z, A-Z, 0-9, dot, underscore and hyphen",
        "log-filter" => {
            "a level (error, warn, info, debug, trace), or levels by target such as info,tms_core=debug"
        }
        "path" => "a path",
        _ => "a text",
    }
}

fn problem_of(format: &str, text: &str) -> Option<&'static str> {
    let (is_good, problem) = match format {
        "duration" => (humantime::parse_duration(text).is_ok(), "is no time with a unit"),
        "socket-address" => (address(text).is_some(), "is no address with a port"),
        "url" => (is_url(text), "is no http address"),
        "name" => (text.parse::<tms_core::model::id::NodeName>().is_ok(), "is no name"),
        "log-filter" => (is_log_filter(text), "is no log level"),
        _ => (true, ""),
    };
    (!is_good).then_some(problem)
}

/// Reads an address; `localhost` is one of loopback.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    // Jobs add their own path; user info would put a secret into every job's environment.
    rest.is_some_and(|host| !host.trim_end_matches('/').is_empty() && !host.contains(['@', '?', '#', ' ']))
}

/// A word that is no level would be taken for a target, and nothing at all be logged.
fn is_log_filter(text: &str) -> bool {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_level = |word: &str| LEVELS.contains(&word.trim().to_ascii_lowercase().as_str());
    let is_part = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => !target.trim().is_empty() && is_level(level),
        None => is_level(part),
    };
    text.split(',').all(is_part) && tracing_subscriber::EnvFilter::try_new(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_port() {
        for text in ["127.0.0.1:9091", "[::1]:0", "0.0.0.0:80", "localhost:9091"] {
            assert!(address(text).is_some(), "{text}");
        }
        for text in ["127.0.0.1", "9091", ":9091", "tms.example:9091", "localhost"] {
            assert!(address(text).is_none(), "{text}");
        }
    }

    #[test]
    fn urls_hold_no_secret_and_no_query() {
        assert!(is_url("http://tms.example:9091"));
        for text in ["tms.example:9091", "http://", "http://u:p@host", "http://h/?token=x", "ftp://h"] {
            assert!(!is_url(text), "{text}");
        }
    }
}
