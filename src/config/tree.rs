//! The configuration as a tree of values that know where they were written.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Where a piece of the configuration was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The file (`None`) or the override with this number.
    pub(super) flag: Option<usize>,
    /// Bytes of that text.
    pub(super) span: Range<usize>,
}

/// A mistake and its place.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// A value and its place: for a table with a header, the header.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A TOML value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// Any of TOML's dates and times, none of which a configuration uses.
    Date,
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key of a table and its value, in the order written.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) key: Place,
    pub(super) node: Node,
}

impl Node {
    /// The value of key `name` of a table.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Table(entries) => {
                entries.iter().find(|entry| entry.name == name).map(|entry| &entry.node)
            }
            _ => None,
        }
    }

    /// Without the places, for serde.
    pub(super) fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::String(text) => toml::Value::String(text.clone()),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Float(number) => toml::Value::Float(*number),
            Value::Boolean(value) => toml::Value::Boolean(*value),
            // Refused before this is called; any value does.
            Value::Date => toml::Value::String(String::new()),
            Value::Array(items) => toml::Value::Array(items.iter().map(Node::to_toml).collect()),
            Value::Table(entries) => toml::Value::Table(
                entries.iter().map(|entry| (entry.name.clone(), entry.node.to_toml())).collect(),
            ),
        }
    }
}

/// Gives places to what the parser found, `offset` bytes into the text of `flag`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) flag: Option<usize>,
    pub(super) offset: usize,
}

impl Reader {
    /// The place of `span` in what was parsed.
    pub(super) fn place(self, span: Range<usize>) -> Place {
        Place { flag: self.flag, span: span.start + self.offset..span.end + self.offset }
    }

    /// A whole file; keys that are missing in it are missing at `end`.
    pub(super) fn file(self, table: &DeTable<'_>, end: usize) -> Result<Node, Problem> {
        Ok(Node { place: self.place(end..end), value: self.table(table)? })
    }

    /// One value.
    pub(super) fn node(self, value: &toml::Spanned<DeValue<'_>>) -> Result<Node, Problem> {
        let place = self.place(value.span());
        let problem = |message: &str| Problem {
            place: place.clone(),
            message: message.to_owned(),
            help: Some(
                "TOML's integers go from -9223372036854775808 to 9223372036854775807".into(),
            ),
        };
        let read = match value.get_ref() {
            DeValue::String(text) => Value::String(text.clone().into_owned()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Value::Integer)
                .map_err(|_| problem("this integer is too large"))?,
            // What the parser lets through is a number or overflows to infinity, refused later.
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(items) => {
                Value::Array(items.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.table(table)?,
        };
        Ok(Node { place, value: read })
    }

    fn table(self, table: &DeTable<'_>) -> Result<Value, Problem> {
        let entry = |(key, value): (&toml::Spanned<_>, &_)| {
            let key: &toml::Spanned<toml::de::DeString<'_>> = key;
            Ok(Entry {
                name: key.get_ref().clone().into_owned(),
                key: self.place(key.span()),
                node: self.node(value)?,
            })
        };
        let mut entries = table.iter().map(entry).collect::<Result<Vec<_>, Problem>>()?;
        entries.sort_by_key(|entry| entry.key.span.start);
        Ok(Value::Table(entries))
    }
}
