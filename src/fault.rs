//! What is wrong with a setting: what every check of a configuration answers with.

/// What a check found wrong, without a position: [`crate::config::Source::error`] adds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct Fault {
    /// The key, such as `heads[1].labels[0]`; keys with other characters than letters, digits, `_`
    /// and `-` in quotes. Empty for the whole configuration. It may be absent in the file: then
    /// the table it belongs in is shown. A family counts it from its own table.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Other keys that take part, shown beside the first.
    pub also: Vec<String>,
    /// Whether the key is wrong, and not its value.
    pub on_key: bool,
}

/// A fault at `key`, and what to write instead.
pub fn fault(key: impl Into<String>, message: impl Into<String>, help: impl Into<String>) -> Fault {
    Fault { help: Some(help.into()), ..Fault::new(key, message) }
}

/// A fault at `key` unless `holds`.
///
/// # Errors
/// That fault.
pub fn require(
    holds: bool,
    key: impl Into<String>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(fault(key, message, help)) }
}

impl Fault {
    /// A fault at `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            help: None,
            also: Vec::new(),
            on_key: false,
        }
    }

    /// Shows another key that takes part.
    pub fn also(mut self, key: impl Into<String>) -> Self {
        self.also.push(key.into());
        self
    }

    /// Says that the key is wrong, and not its value.
    pub fn on_key(self) -> Self {
        Self { on_key: true, ..self }
    }

    /// The same with its keys, which count from `table`, written in full.
    pub fn below(mut self, table: &str) -> Self {
        for key in std::iter::once(&mut self.key).chain(&mut self.also) {
            *key = if key.is_empty() { table.to_owned() } else { format!("{table}.{key}") };
        }
        self
    }
}
