//! Reads a configuration: the file, then the overrides, then the checks that need one key only.

use std::path::Path;

use serde::Deserialize;
use toml::de::DeTable;

use super::conform::Conform;
use super::error::{ConfigError, Position};
use super::overrides::{self, Flag};
use super::positions::Source;
use super::shape::Shape;
use super::syntax::{Explained, explain};
use super::tree::{Node, Place, Problem, Reader, Value};
use super::twice;
use super::types::Config;
use crate::fault::Fault;
use crate::paths::{looked_in, read_file};

/// Bytes of a file that is no configuration.
const LONGEST: u64 = 16 << 20;

/// A configuration and where its keys were written.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration, as written.
    pub config: Config,
    /// Where each key was written.
    pub source: Source,
}

/// Reads the configuration in the file `path`, changed by `overrides` (`train.batch_size=32`).
///
/// Relative paths in the configuration count from the folder in which the program is started, not
/// from the file's.
///
/// # Errors
///
/// When the file cannot be read, is no TOML, or holds a key or value that the types do not allow.
pub fn load(path: &Path, overrides: &[String]) -> Result<Loaded, ConfigError> {
    read(path.display().to_string(), content(path)?, overrides)
}

/// The text of the file `path`.
pub(super) fn content(path: &Path) -> Result<String, ConfigError> {
    let file = path.display().to_string();
    let bytes = read_file(path, LONGEST).map_err(|error| unreadable(&file, path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let bad = valid..valid + char::REPLACEMENT_CHARACTER.len_utf8();
        ConfigError {
            message: "the file is not UTF-8 text".to_owned(),
            help: Some("save it as UTF-8; TOML allows no other encoding".to_owned()),
            note: None,
            position: Some(Box::new(Position::new(Some(file), &text, bad))),
        }
    })
}

/// Reads a configuration from `text`, the content of a file called `file`.
///
/// # Errors
///
/// As [`load`], but for reading the file.
pub fn read(file: String, text: String, overrides: &[String]) -> Result<Loaded, ConfigError> {
    finish(overridden(file, text, overrides)?)
}

/// The file's tree with the overrides, unchecked.
pub(super) fn overridden(
    file: String,
    text: String,
    overrides: &[String],
) -> Result<Source, ConfigError> {
    let place = Place { flag: None, span: 0..0 };
    let empty = Node { place, value: Value::Table(Vec::new()) };
    let shape = Shape::of_config();
    let tree = parse(&text, &shape);
    let flags = overrides.iter().map(|text| Flag::Set.shown(text)).collect();
    let mut source = Source::new(file, text, flags, empty);
    source.tree = tree.map_err(|problem| source.problem(problem))?;
    for (number, text) in overrides.iter().enumerate() {
        source.change(|tree| overrides::apply(tree, &shape, number, text))?;
    }
    Ok(source)
}

/// Checks the tree and reads the types from it.
pub(super) fn finish(source: Source) -> Result<Loaded, ConfigError> {
    let shape = Shape::of_config();
    Conform::new(&source.tree, &shape).check().map_err(|problem| source.problem(problem))?;
    let config = deserialize(&source)?;
    Ok(Loaded { config, source })
}

/// The tree of the file.
fn parse(text: &str, shape: &Shape) -> Result<Node, Problem> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let twice = twice::explain(error.message(), text, &span, shape);
        let explained = twice.unwrap_or_else(|| explain(error.message(), text, span));
        let Explained { message, help, span } = explained;
        Problem { place: Place { flag: None, span }, message, help }
    })?;
    Reader { flag: None, offset: 0 }.file(table.get_ref(), text.trim_end().len())
}

/// What conforms to the schema of the types must be readable as these types. Were it not so, the
/// message would be serde's, at the right place nevertheless.
fn deserialize(source: &Source) -> Result<Config, ConfigError> {
    let value = source.tree.to_toml();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    Config::deserialize(tracked).map_err(|error: toml::de::Error| {
        let key = track.path().to_string();
        source.error(Fault::new(key, error.message().to_owned()))
    })
}

fn unreadable(file: &str, path: &Path, error: &std::io::Error) -> ConfigError {
    let (message, help) = if path.is_dir() {
        (format!("{file} is a folder"), "name the TOML file in it".to_owned())
    } else if error.kind() == std::io::ErrorKind::NotFound {
        (format!("there is no file {file}{}", looked_in(path)), "check the path".to_owned())
    } else {
        let help = match error.kind() {
            std::io::ErrorKind::Other => "name a TOML file",
            _ => "check the file's permissions",
        };
        (format!("cannot read {file}: {error}"), help.to_owned())
    };
    ConfigError { message, help: Some(help), note: None, position: None }
}
