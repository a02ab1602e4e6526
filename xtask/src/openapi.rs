//! OpenAPI 3.1 to 3.0: the client generator reads only 3.0.
//!
//! The rules are those that were tried end to end with the generator; anything else passes through as it is.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

/// Keys whose value maps names to things: the keys below them are names, not words of OpenAPI.
const NAME_MAPS: [&str; 15] = [
    "properties",
    "patternProperties",
    "responses",
    "schemas",
    "parameters",
    "headers",
    "content",
    "paths",
    "callbacks",
    "examples",
    "securitySchemes",
    "requestBodies",
    "links",
    "mapping",
    "variables",
];
/// Keys whose value is data of the user.
const DATA: [&str; 3] = ["example", "default", "enum"];

/// Makes the 3.0 document from the 3.1 one.
pub(crate) fn to_3_0(document: &Value) -> Result<Value> {
    check_operation_ids(document)?;
    let mut out = document.clone();
    out["openapi"] = json!("3.0.3");
    if let Some(top) = out.as_object_mut() {
        top.remove("jsonSchemaDialect");
        top.remove("webhooks");
    }
    if let Some(license) = out.pointer_mut("/info/license").and_then(Value::as_object_mut) {
        license.remove("identifier");
    }
    convert(&mut out);
    Ok(out)
}

/// The generator names methods after operations.
fn check_operation_ids(document: &Value) -> Result<()> {
    let mut seen = BTreeSet::new();
    let items = document["paths"].as_object().into_iter().flatten();
    for (path, item) in items {
        for (method, operation) in
            item.as_object().into_iter().flatten().filter(|(_, found)| found.get("responses").is_some())
        {
            match operation["operationId"].as_str() {
                None => bail!("{method} {path} has no operationId"),
                Some(id) if !seen.insert(id) => bail!("{method} {path}: the operationId {id} is taken"),
                Some(_) => {}
            }
        }
    }
    Ok(())
}

fn convert(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(convert),
        Value::Object(object) => {
            schema_words(object);
            for (key, child) in object.iter_mut().filter(|(key, _)| !DATA.contains(&key.as_str())) {
                match child {
                    Value::Object(names) if NAME_MAPS.contains(&key.as_str()) => name_map(key, names),
                    child => convert(child),
                }
            }
        }
        _ => {}
    }
}

fn name_map(key: &str, names: &mut Map<String, Value>) {
    if key == "content"
        && let Some(problem) = names.remove("application/problem+json")
    {
        names.entry("application/json").or_insert(problem);
    }
    names.iter_mut().for_each(|(_, child)| convert(child));
}

fn schema_words(schema: &mut Map<String, Value>) {
    schema.remove("propertyNames");
    if let Some(Value::Array(types)) = schema.get("type").cloned() {
        types_of(schema, &types);
    }
    for union in ["oneOf", "anyOf"] {
        if let Some(Value::Array(branches)) = schema.get(union).cloned() {
            branches_of(schema, union, &branches);
        }
    }
    if let Some(only) = schema.remove("const") {
        schema.insert("enum".to_owned(), json!([only]));
    }
    if let Some(first) =
        schema.get("examples").and_then(Value::as_array).map(|examples| examples.first().cloned())
    {
        schema.remove("examples");
        schema.extend(first.map(|first| ("example".to_owned(), first)));
    }
    for (exclusive, plain) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(bound) = schema.get(exclusive).filter(|bound| bound.is_number()).cloned() {
            schema.insert(plain.to_owned(), bound);
            schema.insert(exclusive.to_owned(), json!(true));
        }
    }
}

fn types_of(schema: &mut Map<String, Value>, types: &[Value]) {
    let others: Vec<&Value> = types.iter().filter(|found| **found != "null").collect();
    if others.len() < types.len() {
        schema.insert("nullable".to_owned(), json!(true));
    }
    schema.remove("type");
    match others.as_slice() {
        [one] => schema.insert("type".to_owned(), (*one).clone()),
        several => {
            schema.insert("oneOf".to_owned(), several.iter().map(|one| json!({"type": one})).collect())
        }
    };
}

fn branches_of(schema: &mut Map<String, Value>, union: &str, branches: &[Value]) {
    let others: Vec<Value> = branches.iter().filter(|branch| branch["type"] != "null").cloned().collect();
    if others.len() == branches.len() {
        return;
    }
    schema.insert("nullable".to_owned(), json!(true));
    schema.remove(union);
    let word = if others.len() == 1 { "allOf" } else { union };
    schema.insert(word.to_owned(), Value::Array(others));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "reads better at the call sites")]
    fn schema(from: Value) -> Value {
        let document = json!({"openapi": "3.1.0", "components": {"schemas": {"X": from}}});
        to_3_0(&document).unwrap()["components"]["schemas"]["X"].clone()
    }

    #[test]
    fn document_level_words_of_3_1_go() {
        let from = json!({"openapi": "3.1.0", "jsonSchemaDialect": "d", "webhooks": {},
            "info": {"title": "t", "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}}});
        assert_eq!(
            to_3_0(&from).unwrap(),
            json!({"openapi": "3.0.3", "info": {"title": "t", "license": {"name": "Apache-2.0"}}})
        );
    }

    #[test]
    fn nullable_types_and_unions() {
        assert_eq!(schema(json!({"type": ["string", "null"]})), json!({"type": "string", "nullable": true}));
        assert_eq!(
            schema(json!({"type": ["string", "integer", "null"]})),
            json!({"oneOf": [{"type": "string"}, {"type": "integer"}], "nullable": true})
        );
        let reference = json!({"$ref": "#/components/schemas/Y"});
        assert_eq!(
            schema(json!({"oneOf": [{"type": "null"}, reference]})),
            json!({"allOf": [reference], "nullable": true})
        );
        assert_eq!(
            schema(json!({"anyOf": [reference, {"type": "string"}, {"type": "null"}]})),
            json!({"anyOf": [reference, {"type": "string"}], "nullable": true})
        );
        assert_eq!(
            schema(json!({"oneOf": [reference, reference]})),
            json!({"oneOf": [reference, reference]})
        );
    }

    #[test]
    fn constants_examples_and_bounds() {
        assert_eq!(schema(json!({"const": "a"})), json!({"enum": ["a"]}));
        assert_eq!(schema(json!({"examples": [1, 2]})), json!({"example": 1}));
        assert_eq!(
            schema(
                json!({"exclusiveMinimum": 1, "exclusiveMaximum": 9, "propertyNames": {"type": "string"}})
            ),
            json!({"minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": true})
        );
    }

    #[test]
    fn names_are_not_words_and_data_is_not_touched() {
        let properties = json!({"const": {"type": ["string", "null"]}, "default": {"const": 1}, "examples": {"type": "string"}});
        assert_eq!(
            schema(
                json!({"properties": properties, "default": {"const": 1}, "example": {"type": ["a", "null"]}, "enum": [{"const": 1}]})
            ),
            json!({
                "properties": {"const": {"type": "string", "nullable": true}, "default": {"enum": [1]}, "examples": {"type": "string"}},
                "default": {"const": 1}, "example": {"type": ["a", "null"]}, "enum": [{"const": 1}]
            })
        );
    }

    #[test]
    fn problems_become_json_also_in_the_default_response() {
        let response =
            json!({"description": "d", "content": {"application/problem+json": {"schema": {"const": 1}}}});
        let from =
            json!({"paths": {"/a": {"get": {"operationId": "a", "responses": {"default": response}}}}});
        let content = to_3_0(&from).unwrap()["paths"]["/a"]["get"]["responses"]["default"]["content"].clone();
        assert_eq!(content, json!({"application/json": {"schema": {"enum": [1]}}}));
    }

    #[test]
    fn operations_need_their_own_ids() {
        let with = |first: Value, second: Value| json!({"paths": {"/a": {"get": first, "post": second, "summary": "s"}}});
        let named = |id: &str| json!({"operationId": id, "responses": {}});
        assert!(to_3_0(&with(named("a"), named("b"))).is_ok());
        assert!(to_3_0(&with(named("a"), named("a"))).unwrap_err().to_string().contains("is taken"));
        assert!(
            to_3_0(&with(named("a"), json!({"responses": {}})))
                .unwrap_err()
                .to_string()
                .contains("no operationId")
        );
    }
}
