//! The statements that CubeCL's store sends, and the values in them.

use crate::store::{Entry, Store};
use crate::{Error, Result, Row};

/// A value in a statement or a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}

/// What a value in a row may be read as.
pub trait FromValue: Sized {
    /// The value, where it is of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

/// The parameters `?1`, `?2`, … of a statement.
pub trait IntoParams {
    /// In their order.
    fn into_params(self) -> Vec<Value>;
}

impl IntoParams for () {
    fn into_params(self) -> Vec<Value> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($name:ident),+) => {
        impl<$($name: Into<Value>),+> IntoParams for ($($name,)+) {
            #[expect(non_snake_case, reason = "the names of the types are those of the values")]
            fn into_params(self) -> Vec<Value> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}

tuples!(A);
tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);

/// The namespace in which the table `meta` lies; CubeCL's own are not empty.
const META: &str = "";

/// The origin of entries that yield to those made here.
const IMPORTED: i64 = 1;

/// A statement with single spaces.
fn plain(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unknown(statement: &str, parameters: &[Value]) -> Error {
    Error::Error(format!(
        "the database of kernels does not know the statement `{statement}` with {} parameters",
        parameters.len()
    ))
}

pub fn execute(store: &mut Store, statement: &str, parameters: Vec<Value>) -> Result<u64> {
    use Value::{Blob, Integer, Text};
    const INSERT: &str = "INSERT INTO entries (namespace, key, value, origin) VALUES (?1, ?2, ?3, ?4) \
                          ON CONFLICT(namespace, key) DO UPDATE \
                          SET value = excluded.value, origin = excluded.origin";
    let statement = plain(statement);
    match (statement.as_str(), parameters.as_slice()) {
        (create, []) if create.starts_with("CREATE TABLE IF NOT EXISTS ") => Ok(0),
        ("DROP TABLE IF EXISTS entries", []) => {
            let namespaces = store.namespaces()?;
            for namespace in namespaces.iter().filter(|namespace| *namespace != META) {
                store.remove_all(namespace)?;
            }
            Ok(0)
        }
        (
            "INSERT INTO meta (k, v) VALUES (?1, ?2) ON CONFLICT(k) DO UPDATE SET v = excluded.v",
            [Text(key), Text(value)],
        ) => {
            store.write(META, key.as_bytes(), value.as_bytes(), 0)?;
            Ok(1)
        }
        (insert, [Text(namespace), Blob(key), Blob(value), Integer(origin)])
            if insert.starts_with(INSERT) =>
        {
            match insert.strip_prefix(INSERT).unwrap_or_default() {
                "" => {}
                " WHERE entries.origin = 1 AND excluded.origin = 0" => {
                    let here = store.read(namespace, key)?;
                    if here.is_some_and(|here| here.origin != IMPORTED || *origin == IMPORTED) {
                        return Ok(0);
                    }
                }
                _ => return Err(unknown(insert, &parameters)),
            }
            store.write(namespace, key, value, *origin)?;
            Ok(1)
        }
        ("DELETE FROM entries WHERE namespace = ?1", [Text(namespace)]) => {
            store.remove_all(namespace)
        }
        ("DELETE FROM entries WHERE namespace = ?1 AND key = ?2", [Text(namespace), Blob(key)]) => {
            store.remove(namespace, key)
        }
        (other, parameters) => Err(unknown(other, parameters)),
    }
}

pub fn query(store: &mut Store, statement: &str, parameters: Vec<Value>) -> Result<Vec<Row>> {
    use Value::{Blob, Text};
    let statement = plain(statement);
    let rows: Vec<Vec<Value>> = match (statement.as_str(), parameters.as_slice()) {
        ("SELECT v FROM meta WHERE k = ?1", [Text(key)]) => {
            let found = store.read(META, key.as_bytes())?;
            let text = found.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
            text.into_iter().map(|text| vec![Text(text)]).collect()
        }
        (
            "SELECT value FROM entries WHERE namespace = ?1 AND key = ?2",
            [Text(namespace), Blob(key)],
        ) => {
            let found = store.read(namespace, key)?;
            found.into_iter().map(|entry| vec![Blob(entry.value)]).collect()
        }
        ("SELECT key, value, origin FROM entries WHERE namespace = ?1", [Text(namespace)]) => store
            .entries(namespace)?
            .into_iter()
            .map(|(key, Entry { value, origin })| vec![Blob(key), Blob(value), origin.into()])
            .collect(),
        (
            "SELECT namespace, COUNT(*), SUM(length(key) + length(value)) FROM entries \
             GROUP BY namespace ORDER BY namespace",
            [],
        ) => store
            .namespaces()?
            .into_iter()
            .filter(|namespace| namespace != META)
            .map(|namespace| {
                let (entries, bytes) = store.size(&namespace);
                vec![Text(namespace), (entries as i64).into(), (bytes as i64).into()]
            })
            .collect(),
        (other, parameters) => return Err(unknown(other, parameters)),
    };
    Ok(rows.into_iter().map(Row).collect())
}
