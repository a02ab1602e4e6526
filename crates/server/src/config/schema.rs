//! The schema of the configuration, as made from its types. It drives the check, the reference and the reading of
//! plain texts from the environment.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::config::Config;
use crate::config::engines::DEFAULT_KIND;

/// Returns the schema with every part in its place.
#[must_use]
pub fn whole() -> Value {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value()
}

/// Returns the schema of the entries of `schema` under `key`.
#[must_use]
pub fn child<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get("properties").and_then(|p| p.get(key)).or_else(|| values_of_map(schema))
}

/// Returns the schema of a map's values, when `schema` is a map.
#[must_use]
pub fn values_of_map(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|v| v.is_object())
}

/// Returns the names of the keys that `schema` knows.
#[must_use]
pub fn keys(schema: &Value) -> Vec<&str> {
    match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => properties.keys().map(String::as_str).collect(),
        None => Vec::new(),
    }
}

/// Returns the branch of a schema that offers several by their `kind`; any other schema as it is.
pub fn branch<'a>(schema: &'a Value, kind: Option<&str>) -> Result<&'a Value, Vec<&'a str>> {
    let Some(branches) = kinds(schema) else { return Ok(schema) };
    let wanted = kind.unwrap_or(DEFAULT_KIND);
    match branches.iter().find(|(name, _)| *name == wanted) {
        Some((_, branch)) => Ok(branch),
        None => Err(branches.iter().map(|(name, _)| *name).collect()),
    }
}

/// Returns the kinds that a schema offers with the schema of each.
#[must_use]
pub fn kinds(schema: &Value) -> Option<Vec<(&str, &Value)>> {
    let branches = schema.get("oneOf")?.as_array()?;
    branches.iter().map(|b| Some((b.pointer("/properties/kind/const")?.as_str()?, b))).collect()
}

/// Returns the words that may stand there, when the schema lists them.
#[must_use]
pub fn words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return Some(list.iter().filter_map(Value::as_str).collect());
    }
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let mut found = Vec::new();
    for branch in branches {
        match (branch.get("const").and_then(Value::as_str), words(branch)) {
            (Some(word), _) => found.push(word),
            (None, Some(more)) => found.extend(more),
            (None, None) => {}
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Returns the type that a value must have; what may be unset has the type that it has when set.
#[must_use]
pub fn type_of(schema: &Value) -> Option<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => Some(one),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).find(|t| *t != "null"),
        _ => words(schema).map(|_| "string"),
    }
}

/// Returns one of our own marks, such as `x-flat`.
#[must_use]
pub fn mark<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_schema_has_a_type_and_a_doc() {
        fn walk(schema: &Value, path: &str) {
            if let Some(kinds) = kinds(schema) {
                for (kind, branch) in kinds {
                    walk(branch, &format!("{path}({kind})"));
                }
                return;
            }
            assert!(type_of(schema).is_some(), "{path} has no type: {schema}");
            for key in keys(schema) {
                let part = child(schema, key).unwrap();
                let path = format!("{path}.{key}");
                let is_documented =
                    part.get("description").is_some() || values_of_map(part).is_some() || key == "kind";
                assert!(is_documented, "{path} has no doc comment");
                walk(part, &path);
            }
        }
        walk(&whole(), "");
    }
}
