//! Configurations: what loads, what it resolves to, and what every mistake is told.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "config/changed.rs"]
mod changed;
#[path = "config/first_try.rs"]
mod first_try;
#[path = "config/grid.rs"]
mod grid;
#[path = "config/mistakes.rs"]
mod mistakes;
#[path = "config/overrides.rs"]
mod overrides;
#[path = "config/positions.rs"]
mod positions;
#[path = "config/reference.rs"]
mod reference;
#[path = "config/resolved.rs"]
mod resolved;

use trainer::config::{ConfigError, Loaded, read};
use trainer::plan::{Plan, plan};

const BASE: &str = include_str!("config/base.toml");
const FILE: &str = "experiment.toml";

/// Words of serde, which mean nothing to who writes TOML.
const JARGON: [&str; 12] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "missing field",
    "unknown field",
    "unknown variant",
    "did not match",
    "untagged",
    "externally",
    "a map",
    "sequence",
    "usize",
];

fn resolve(text: &str, overrides: &[String]) -> Result<Plan, ConfigError> {
    let Loaded { config, source } = read(FILE.to_owned(), text.to_owned(), overrides)?;
    plan(config).map_err(|fault| source.error(fault))
}

fn assert_helps(error: &ConfigError) {
    let position = error.position().unwrap_or_else(|| panic!("no position: {error}"));
    assert!(position.line >= 1 && position.column >= 1);
    let help = error.help().unwrap_or_else(|| panic!("says not what to write: {error}"));
    let said = format!("{} {help}", error.message());
    for word in JARGON {
        assert!(!said.contains(word), "{word:?} in {error}");
    }
    assert!(error.render(true).contains('\u{1b}'));
    assert!(!error.render(false).contains('\u{1b}'));
}
