//! The sources of the configuration, each as one layer; later ones win key by key.

use std::io::Read;
use std::path::Path;

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use crate::config::fault::{Fault, Faults};
use crate::config::{Sources, schema};

/// Longest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Prefix of the variables that may be configuration.
const PREFIX: &str = "TMS_";
/// What stands between section and key.
const SEPARATOR: &str = "__";

/// One source.
#[derive(Debug, Clone)]
struct Layer {
    name: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// The values of all sources, with where each came from.
#[derive(Debug)]
pub struct Merged {
    figment: Figment,
    /// The values, by section.
    pub values: Dict,
}

impl Merged {
    /// Returns the name of the source of a value.
    #[must_use]
    pub fn origin(&self, value: &Value) -> Option<String> {
        self.figment.get_metadata(value.tag()).map(|m| m.name.to_string())
    }
}

/// Joins the sources.
///
/// # Errors
/// A fault for each source that cannot be read at all.
pub fn merge(sources: &Sources) -> Result<Merged, Faults> {
    let whole = schema::whole();
    let mut faults = Faults::default();
    let mut figment = Figment::new();
    let file = sources.file.as_deref().or_else(|| sources.default_file.as_deref().filter(|f| f.exists()));
    if let Some(path) = file {
        match read_file(path, &whole) {
            Ok(values) => figment = figment.merge(Layer { name: format!("in {}", path.display()), values }),
            Err(fault) => faults.0.push(fault),
        }
    }
    for (name, value) in &sources.environment {
        if let Some(keys) = keys_of_variable(name) {
            let values = nested(&whole, keys, value);
            figment = figment.merge(Layer { name: format!("from the environment variable {name}"), values });
        }
    }
    for (key, value) in &sources.flags {
        let values = nested(&whole, key.split('.').map(str::to_owned).collect(), value);
        figment = figment.merge(Layer { name: format!("from the flag for {key}"), values });
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let values = match figment.data() {
        Ok(mut data) => data.remove(&Profile::Default).unwrap_or_default(),
        Err(e) => return Err(Fault::new("", format!("cannot join the sources: {e}")).into()),
    };
    Ok(Merged { figment, values })
}

fn read_file(path: &Path, whole: &serde_json::Value) -> Result<Dict, Fault> {
    let shown = path.display();
    let refuse =
        |why: String| Fault::new("", why).allowed("a TOML file as `tms-server --print-config` prints it");
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|e| Fault::new("", format!("cannot read the configuration file {shown}: {e}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse(format!("the configuration file {shown} is longer than {FILE_BYTES_MAX} bytes")));
    }
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| refuse(format!("the configuration file {shown} is no TOML: {e}")))?;
    let mut dict = Value::serialize(table)
        .ok()
        .and_then(Value::into_dict)
        .ok_or_else(|| refuse(format!("the configuration file {shown} is no table of sections")))?;
    flatten_options(&mut dict, whole);
    Ok(dict)
}

/// Keys of Hudi and Spark hold dots, which TOML reads as tables when they are not quoted: both spellings mean the same.
fn flatten_options(dict: &mut Dict, part: &serde_json::Value) {
    for (key, value) in dict.iter_mut() {
        let (Value::Dict(_, inner), Some(part)) = (value, child(part, key)) else { continue };
        if schema::mark(part, "x-flat").is_some() {
            let mut flat = Dict::new();
            flatten("", std::mem::take(inner), &mut flat);
            *inner = flat;
        } else {
            flatten_options(inner, part);
        }
    }
}

/// A key of an engine may be of either kind; the two know each key alike.
fn child<'a>(part: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    match schema::kinds(part) {
        Some(kinds) => kinds.into_iter().find_map(|(_, branch)| schema::child(branch, key)),
        None => schema::child(part, key),
    }
}

fn flatten(prefix: &str, from: Dict, into: &mut Dict) {
    for (key, value) in from {
        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Dict(_, inner) => flatten(&key, inner, into),
            Value::Bool(_, b) => drop(into.insert(key, Value::from(b.to_string()))),
            Value::Num(_, n) => {
                let text = n.to_u128().map(|n| n.to_string()).or_else(|| n.to_i128().map(|n| n.to_string()));
                let text = text.or_else(|| n.to_f64().map(|n| n.to_string())).unwrap_or_default();
                into.insert(key, Value::from(text));
            }
            other => drop(into.insert(key, other)),
        }
    }
}

/// Returns section and keys of a variable that is configuration.
fn keys_of_variable(name: &str) -> Option<Vec<String>> {
    let rest = name.strip_prefix(PREFIX)?;
    let lower = rest.to_ascii_lowercase();
    let keys: Vec<String> = lower.split(SEPARATOR).map(str::to_owned).collect();
    (keys.len() >= 2 && !keys.iter().any(String::is_empty)).then_some(keys)
}

/// Puts a plain text where `keys` say, in the type that the schema wants there.
fn nested(whole: &serde_json::Value, keys: Vec<String>, text: &str) -> Dict {
    let mut part = Some(whole);
    let mut path = Vec::new();
    let mut rest = keys.into_iter();
    while let Some(key) = rest.next() {
        if part.is_some_and(|p| schema::mark(p, "x-flat").is_some()) {
            // What follows is one key, dots included.
            let one: Vec<String> = std::iter::once(key).chain(rest).collect();
            part = part.and_then(schema::values_of_map);
            path.push(one.join("."));
            break;
        }
        part = part.and_then(|p| child(p, &key));
        path.push(key);
    }
    let mut value = typed(part, text);
    for key in path.iter().rev() {
        value = Value::from(Dict::from([(key.clone(), value)]));
    }
    value.into_dict().unwrap_or_default()
}

/// Reads a text as the type of its key; what cannot be read so stays a text, and the check says what is wrong with it.
fn typed(schema: Option<&serde_json::Value>, text: &str) -> Value {
    let as_toml = || toml_value(text).unwrap_or_else(|| Value::from(text));
    match schema.and_then(schema::type_of) {
        Some("integer") => match (text.trim().parse::<u64>(), text.trim().parse::<i64>()) {
            (Ok(n), _) => Value::from(n),
            (_, Ok(n)) => Value::from(n),
            _ => Value::from(text),
        },
        Some("number") => text.trim().parse::<f64>().map_or_else(|_| Value::from(text), Value::from),
        Some("boolean") => text.trim().parse::<bool>().map_or_else(|_| Value::from(text), Value::from),
        Some("array") if !text.trim_start().starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|i| !i.is_empty());
            Value::from(items.map(Value::from).collect::<Vec<_>>())
        }
        Some("array" | "object") => as_toml(),
        _ => Value::from(text),
    }
}

fn toml_value(text: &str) -> Option<Value> {
    let mut table: toml::Table = format!("value = {text}").parse().ok()?;
    Value::serialize(table.remove("value")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_with_a_section_are_configuration() {
        assert_eq!(keys_of_variable("TMS_STORE__PATH"), Some(vec!["store".to_owned(), "path".to_owned()]));
        for name in [
            "TMS_URL",
            "TMS_TOKEN",
            "TMS_CACHE",
            "TMS_JOB_URL",
            "PATH",
            "XTMS_STORE__PATH",
            "TMS___",
            "TMS_A__",
        ] {
            assert_eq!(keys_of_variable(name), None, "{name}");
        }
    }

    #[test]
    fn a_hudi_option_may_be_named_in_the_environment() {
        let keys = keys_of_variable("TMS_HUDI__OPTIONS__HOODIE__CLEAN__ASYNC").unwrap();
        let dict = nested(&schema::whole(), keys, "true");
        let options = Value::from(dict).find("hudi.options").and_then(Value::into_dict).unwrap();
        assert_eq!(options.get("hoodie.clean.async").and_then(Value::as_str), Some("true"));
    }
}
