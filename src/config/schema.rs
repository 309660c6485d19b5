//! The JSON Schema of a configuration, for editors and for the checks of this module.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Config;

/// The schema of a configuration (JSON Schema draft 7, which TOML editors read).
///
/// It is generated from the types, so it cannot say what spans two keys; those checks stand in
/// [`crate::plan`].
pub fn schema() -> Value {
    let generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    remove_null(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "A trainer experiment".into());
    }
    schema
}

/// TOML has no null: a key that is not wanted is left out. So null is no type and no default.
fn remove_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(remove_null),
        Value::Object(keys) => {
            keys.retain(|key, value| !(key == "default" && value.is_null()));
            if let Some(Value::Array(types)) = keys.get_mut("type") {
                types.retain(|name| name != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    keys.insert("type".to_owned(), one);
                }
            }
            if let Some(Value::Array(choices)) = keys.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type") != Some(&Value::from("null")));
                if let [Value::Object(one)] = choices.as_slice() {
                    let one = one.clone();
                    keys.remove("anyOf");
                    // Draft 7 ignores what stands beside `$ref`, so a description would be lost.
                    if one.contains_key("$ref") {
                        keys.insert("allOf".to_owned(), Value::Array(vec![Value::Object(one)]));
                    } else {
                        one.into_iter().for_each(|(key, value)| {
                            keys.entry(key).or_insert(value);
                        });
                    }
                }
            }
            keys.values_mut().for_each(remove_null);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds_null(schema: &Value) -> bool {
        match schema {
            Value::Null => true,
            Value::String(text) => text == "null",
            Value::Array(items) => items.iter().any(holds_null),
            Value::Object(keys) => keys.values().any(holds_null),
            _ => false,
        }
    }

    #[test]
    fn no_key_may_be_null() {
        assert!(!holds_null(&schema()));
    }

    #[test]
    fn every_key_is_described() {
        fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
            let Some(keys) = schema.as_object() else { return };
            for (name, value) in keys {
                if name == "properties" {
                    for (key, property) in value.as_object().into_iter().flatten() {
                        // A variant of a choice is described beside its table, not in it.
                        let variant = keys.contains_key("description");
                        if property.get("description").is_none() && !variant {
                            found.push(format!("{path}/{key}"));
                        }
                    }
                }
                undescribed(value, &format!("{path}/{name}"), found);
            }
        }
        let mut found = Vec::new();
        undescribed(&schema(), "", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
