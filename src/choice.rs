//! Choices in a configuration: one table named after the variant, or its bare name.
//!
//! A choice is an externally tagged enum, `[train.optimizer.adamw] lr = 3e-4`, because that keeps
//! serde's error positions exact where internally tagged and flattened enums lose them. A variant
//! whose settings all have defaults may also be written as a string: `optimizer = "adamw"`.
//! Every variant is a newtype over a settings struct; one without settings wraps [`NoSettings`].

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// The settings of a variant that has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// The name of a variant, as a configuration writes it.
pub fn name_of(variant: &impl Serialize) -> &'static str {
    serde_variant::to_variant_name(variant).expect("an enum of the configuration")
}

/// The names of all variants of a choice, as a configuration writes them.
pub fn names_of<T: JsonSchema>() -> Vec<String> {
    names_in(&T::json_schema(&mut SchemaGenerator::default()))
}

/// The names of the variants that a schema allows.
fn names_in(variants: &Schema) -> Vec<String> {
    let variants = variants.get("oneOf").and_then(|variants| variants.as_array());
    let name = |variant: &serde_json::Value| Some(variant.get("required")?[0].as_str()?.to_owned());
    variants.into_iter().flatten().filter_map(name).collect()
}

/// A choice `T`, read from a table with one key or from the bare name of a variant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice<T>(pub T);

impl<T> std::ops::Deref for Choice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoiceVisitor(PhantomData)).map(Choice)
    }
}

struct ChoiceVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ChoiceVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a choice, or a table with that name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<T, E> {
        let settings = MapDeserializer::new(std::iter::empty::<(String, String)>());
        let choice = [(name.to_owned(), EmptyTable(settings))];
        T::deserialize(MapAccessDeserializer::new(MapDeserializer::new(choice.into_iter())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// The settings table that a bare name stands for.
struct EmptyTable<'de, E: serde::de::Error>(
    MapDeserializer<'de, std::iter::Empty<(String, String)>, E>,
);

impl<'de, E: serde::de::Error> IntoDeserializer<'de, E> for EmptyTable<'de, E> {
    type Deserializer =
        MapAccessDeserializer<MapDeserializer<'de, std::iter::Empty<(String, String)>, E>>;

    fn into_deserializer(self) -> Self::Deserializer {
        MapAccessDeserializer::new(self.0)
    }
}

impl<T: JsonSchema> JsonSchema for Choice<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("ChoiceOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = T::json_schema(generator);
        json_schema!({ "anyOf": [{ "enum": names_in(&table) }, table] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Policy {
        None(NoSettings),
        Sequential(Sequential),
    }

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Sequential {
        #[serde(default = "four")]
        segments: usize,
    }

    fn four() -> usize {
        4
    }

    #[derive(Debug, serde::Deserialize)]
    struct Memory {
        checkpointing: Choice<Policy>,
    }

    fn read(text: &str) -> Result<Policy, toml::de::Error> {
        toml::from_str::<Memory>(text).map(|memory| memory.checkpointing.0)
    }

    #[test]
    fn a_bare_name_is_the_variant_with_its_defaults() {
        assert_eq!(read("checkpointing = 'none'").expect("reads"), Policy::None(NoSettings {}));
        assert_eq!(
            read("checkpointing = 'sequential'").expect("reads"),
            Policy::Sequential(Sequential { segments: 4 })
        );
    }

    #[test]
    fn a_table_gives_the_settings() {
        assert_eq!(
            read("[checkpointing.sequential]\nsegments = 8").expect("reads"),
            Policy::Sequential(Sequential { segments: 8 })
        );
    }

    #[test]
    fn the_names_are_those_that_are_read() {
        let names = names_of::<Policy>();
        assert_eq!(names, ["none", "sequential"]);
        for name in names {
            read(&format!("checkpointing = '{name}'")).expect("reads");
        }
    }

    #[test]
    fn an_unknown_variant_names_the_known_ones() {
        let error = read("checkpointing = 'sqrrt'").expect_err("is refused");
        assert!(error.message().contains("`none`"), "{error}");
    }
}
