//! Walks the merged values along the schema, so that every unknown key and wrong value is found at once; serde would
//! stop at the first.

use figment::value::{Dict, Value};
use serde_json::Value as Schema;

use crate::config::fault::{Fault, Faults, quoted};
use crate::config::layers::Merged;
use crate::config::{Config, DEFAULT_ENGINE, Sources, schema};
use crate::redact;

mod scalar;

pub(crate) use scalar::address as scalar_address;

/// Most faults that are shown; a file of another program would give thousands.
const FAULTS_MAX: usize = 100;
/// Names that differ by more than a third of their letters are not suggested.
const LETTERS_PER_TYPO: usize = 3;

/// Reads the configuration. Where a value is faulty, the configuration holds the default, so that the rest can be
/// checked as well.
#[must_use]
pub fn read(merged: &Merged, sources: &Sources) -> (Config, Faults) {
    let whole = schema::whole();
    let mut walk = Walk { merged, whole: &whole, faults: Vec::new() };
    let clean = walk.section("", &merged.values, &whole);
    let mut faults = Faults(walk.faults);
    faults.0.truncate(FAULTS_MAX);
    let mut config = match Value::from(clean).deserialize::<Config>() {
        Ok(config) => config,
        Err(e) => {
            faults.0.push(Fault::new(e.path.join("."), e.to_string()));
            Config::default()
        }
    };
    if config.engines.is_empty() {
        config.engines.insert(DEFAULT_ENGINE.to_owned(), Default::default());
    }
    crate::config::engines::fill_in(&mut config.engines, sources);
    (config, faults)
}

struct Walk<'a> {
    merged: &'a Merged,
    whole: &'a Schema,
    faults: Vec<Fault>,
}

impl Walk<'_> {
    /// Checks a table of keys and returns it without what is faulty.
    fn section(&mut self, path: &str, dict: &Dict, schema: &Schema) -> Dict {
        let mut clean = Dict::new();
        for (key, value) in dict {
            let at = join(path, key);
            let Some(part) = schema::child(schema, key) else {
                let fault = self.unknown_key(path, key, schema);
                self.faults.push(fault.origin(self.origin(value)));
                continue;
            };
            if let Some(keys) = schema::mark(schema, "x-keys").and_then(Schema::as_array)
                && !keys.iter().any(|k| k == key)
            {
                let names: Vec<&str> = keys.iter().filter_map(Schema::as_str).collect();
                let fault = Fault::new(at, "this key is not known").allowed(names.join(", "));
                self.faults.push(fault.origin(self.origin(value)));
                continue;
            }
            if let Some(value) = self.value(&at, value, part, schema) {
                clean.insert(key.clone(), value);
            }
        }
        clean
    }

    fn value(&mut self, at: &str, value: &Value, schema: &Schema, parent: &Schema) -> Option<Value> {
        if matches!(value, Value::Empty(..)) {
            return None;
        }
        match (schema::type_of(schema), value) {
            (Some("object"), Value::Dict(tag, dict)) => {
                Some(Value::Dict(*tag, self.section(at, dict, schema)))
            }
            (None, Value::Dict(tag, dict)) => self.engine(at, dict, schema).map(|d| Value::Dict(*tag, d)),
            (None | Some("object"), _) => {
                self.wrong(at, value, "this is a section", "keys and values below it")
            }
            (Some("array"), Value::Array(tag, items)) => {
                let item_schema = schema.get("items").unwrap_or(&Schema::Null);
                let clean: Vec<Value> = items
                    .iter()
                    .enumerate()
                    .filter_map(|(i, item)| self.value(&format!("{at}[{i}]"), item, item_schema, schema))
                    .collect();
                Some(Value::Array(*tag, clean))
            }
            (Some("array"), _) => self.wrong(at, value, "is no list", "a list, such as [\"a\", \"b\"]"),
            (Some(_), _) => match scalar::check(value, schema, parent) {
                Ok(()) => Some(value.clone()),
                Err((problem, allowed)) => self.wrong(at, value, &problem, &allowed),
            },
        }
    }

    /// An engine's keys depend on its kind.
    fn engine(&mut self, at: &str, dict: &Dict, schema: &Schema) -> Option<Dict> {
        let kind = dict.get("kind");
        let word = kind.map(|k| k.as_str().unwrap_or_default());
        match schema::branch(schema, word) {
            Ok(branch) => {
                let mut clean = self.section(at, dict, branch);
                if kind.is_none() {
                    clean.insert("kind".to_owned(), Value::from(crate::config::engines::DEFAULT_KIND));
                }
                Some(clean)
            }
            Err(kinds) => {
                let at = join(at, "kind");
                let kind = kind?;
                self.wrong::<Dict>(&at, kind, &scalar::not_a_word(kind.as_str(), &kinds), &kinds.join(", "))
            }
        }
    }

    fn wrong<T>(&mut self, at: &str, value: &Value, problem: &str, allowed: &str) -> Option<T> {
        let shown = if redact::is_secret_key(at) { "the value".to_owned() } else { shown(value) };
        let fault = Fault::new(at, format!("{shown} {problem}")).allowed(allowed);
        self.faults.push(fault.origin(self.origin(value)));
        None
    }

    fn origin(&self, value: &Value) -> Option<String> {
        // A table is made of parts of several sources; its first leaf says where the name was written.
        match value {
            Value::Dict(_, dict) => dict.values().find_map(|v| self.origin(v)),
            other => self.merged.origin(other),
        }
    }

    fn unknown_key(&self, path: &str, key: &str, schema: &Schema) -> Fault {
        let known = schema::keys(schema);
        let elsewhere = places_of(self.whole, key);
        let problem = match (nearest(key, &known), elsewhere.first()) {
            (Some(near), _) => format!("this key is not known; did you mean `{}`?", join(path, near)),
            (None, Some(place)) => format!("this key is not known here; did you mean `{place}`?"),
            (None, None) => "this key is not known".to_owned(),
        };
        Fault::new(join(path, key), problem).allowed(known.join(", "))
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => quoted(&redact::text(text)),
        Value::Char(_, c) => quoted(&c.to_string()),
        Value::Bool(_, b) => b.to_string(),
        Value::Num(_, n) => scalar::number_text(*n),
        Value::Array(..) => "a list".to_owned(),
        Value::Dict(..) => "a section".to_owned(),
        Value::Empty(..) => "nothing".to_owned(),
    }
}

/// Returns every place where a key of this name stands.
fn places_of(whole: &Schema, key: &str) -> Vec<String> {
    let sections = schema::keys(whole);
    let holds =
        |section: &&str| schema::child(whole, section).is_some_and(|s| schema::keys(s).contains(&key));
    sections.into_iter().filter(holds).map(|section| format!("{section}.{key}")).collect()
}

/// Returns the name that is nearest, when it is near.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let letters = word.chars().count();
    known
        .iter()
        .map(|name| (distance(word, name), *name))
        .filter(|(d, name)| *d <= letters.max(name.chars().count()).div_ceil(LETTERS_PER_TYPO))
        .min()
        .map(|(_, name)| name)
}

/// Letters to change, add or drop between two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_found_and_far_ones_are_not() {
        assert_eq!(distance("listen", "lisen"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(nearest("lisen", &["listen", "hosts"]), Some("listen"));
        assert_eq!(nearest("max_atempts", &["max_attempts", "backoff_max"]), Some("max_attempts"));
        assert_eq!(nearest("zzzzzz", &["listen", "hosts"]), None);
    }
}
