//! The reference of all keys, as Markdown: what `docs/configuration.md` holds.
//!
//! It says what the JSON Schema of the types says, in an order for reading, so doc comments stay the
//! one place where keys are described.

mod sections;
#[cfg(test)]
mod tests;
mod words;

use super::shape::{Key, Shape, Variant};
use sections::{Content, Place, Section, find, has_tables, sections};
use words::{anchor, example, filled, kind, value};

const OPENING: &str = "\
# Configuration

<!-- Written by `trainer schema --markdown` from the types in the program; a test keeps it fresh. -->

A configuration is one TOML file. This page lists every key that it may have: what the key takes, what
holds where it is left out, what it means, and an example. README.md explains [a whole
configuration](../README.md#a-configuration-table-by-table), and `configs/` has some to begin with.

- **Check first.** `trainer check CONFIG` finds misspelt keys and values out of range, and prints the
  configuration with every default filled in. It opens no data and no device.
- **Paths are relative to the folder in which the program is started**, not to the configuration's.
  Absolute paths mean the same everywhere.
- **A choice is written once**: as a table with its name, `[train.optimizer.adamw]`, or, where its
  defaults will do, as a string, `optimizer = \"adamw\"`.
- **Every key can be changed on the command line**: `--set train.batch_size=32`. Entries of arrays are
  counted from 0: `--set heads[0].weight=0.5`. An example on this page goes below its table's header,
  or after `--set` with the table's name and a dot before it.
- **In an editor** that reads JSON Schema, `#:schema trainer.schema.json` in the first line of a
  configuration completes keys and shows this text.

Each key says what kind of value it takes, and then whether it is required, or what its default is. A key
that is optional has no default; its text says what happens where it is left out, if anything does.
";

/// The reference, as Markdown.
pub fn reference() -> String {
    let shape = Shape::of_config();
    let sections = sections(&shape);
    let mut writer = Writer { sections: &sections, listed: Vec::new() };
    let mut text = format!("{OPENING}\n## Contents\n\n");
    for section in &sections {
        let indent = "  ".repeat(section.place.depth().saturating_sub(1));
        text += &format!("{indent}- {}\n", link(section));
    }
    for section in &sections {
        text += &writer.section(section);
    }
    text
}

fn link(section: &Section<'_>) -> String {
    let title = section.title();
    format!("[{title}](#{})", anchor(&title))
}

struct Writer<'a, 's> {
    sections: &'a [Section<'s>],
    /// Variants whose meanings have been listed, and the title of the section where.
    listed: Vec<(&'s [Variant], String)>,
}

impl<'s> Writer<'_, 's> {
    fn section(&mut self, section: &Section<'s>) -> String {
        let level = "#".repeat(section.place.depth().clamp(1, 3) + 1);
        let mut text = format!("\n{level} {}\n\n", section.title());
        if !section.about.is_empty() {
            text += &format!("{}\n\n", filled(section.about, ""));
        }
        match section.content {
            Content::Keys(keys) => {
                for key in keys {
                    text += &self.key(key, section);
                }
            }
            Content::Choice(variants, beside) => {
                text += "One of these:\n\n";
                for variant in variants {
                    text += &self.variant(variant, &section.place);
                }
                if !beside.is_empty() {
                    text += "\nBeside it:\n\n";
                }
                for key in beside {
                    text += &self.key(key, section);
                }
            }
        }
        text
    }

    fn key(&mut self, key: &'s Key, section: &Section<'s>) -> String {
        let Key { name, about, shape, .. } = key;
        let place = section.place.key(name);
        let mut text = format!("- **`{name}`**: {}, {}. {about}", kind(shape), presence(key));
        if let Some(example) = example(key) {
            text += &format!(" Example: `{name} = {example}`.");
        }
        for shape in parts(shape) {
            if let Some(section) = find(self.sections, shape, &place) {
                text += &format!(" See {}.", link(section));
            }
        }
        let mut text = filled(&text, "  ") + "\n";
        let mut all: Vec<&[Variant]> = parts(shape).into_iter().filter_map(values).collect();
        all.dedup();
        for variants in all {
            text += &self.values(variants, section);
        }
        text
    }

    /// The meanings of names that a key takes, unless they were listed before.
    fn values(&mut self, variants: &'s [Variant], section: &Section<'s>) -> String {
        match self.listed.iter().find(|(known, _)| *known == variants) {
            Some((_, title)) => {
                format!("  - [{title}](#{}) says what each of them means.\n", anchor(title))
            }
            None => {
                self.listed.push((variants, section.title()));
                let line = |variant: &Variant| {
                    let literal = words::literal(variant);
                    filled(&format!("  - `{literal}`: {}", variant.about), "    ") + "\n"
                };
                variants.iter().map(line).collect()
            }
        }
    }

    fn variant(&self, variant: &'s Variant, place: &Place) -> String {
        let Variant { name, about, settings, .. } = variant;
        let place = place.key(name);
        let table = settings.as_ref().and_then(|settings| find(self.sections, settings, &place));
        let shown = match table {
            Some(table) => format!("[`{name}`](#{})", anchor(&table.title())),
            None => format!("`{name}`"),
        };
        let none = if table.is_none() { " It has no settings." } else { "" };
        filled(&format!("- {shown}: {about}{none}"), "  ") + "\n"
    }
}

/// Whether a key must be given, and what holds where it is not.
fn presence(key: &Key) -> String {
    match (&key.default, &key.shape) {
        _ if key.required => "required".to_owned(),
        (Some(default), shape) if !matches!(shape, Shape::Table(_)) => {
            format!("default `{}`", value(default))
        }
        // A key that is not written where it is false.
        (None, Shape::Boolean) => "default `false`".to_owned(),
        _ => "optional".to_owned(),
    }
}

/// A shape and what it consists of, as far as a value of it is written in one place.
fn parts(shape: &Shape) -> Vec<&Shape> {
    match shape {
        Shape::Array { item, .. } | Shape::Map(item) => parts(item),
        Shape::Either(shapes) => shapes.iter().flat_map(parts).collect(),
        shape => vec![shape],
    }
}

/// The names that stand for a value, where something is said of them.
fn values(shape: &Shape) -> Option<&[Variant]> {
    match shape {
        Shape::Choice(variants) if !has_tables(variants) => {
            Some(variants.as_slice()).filter(|all| all.iter().any(|one| !one.about.is_empty()))
        }
        _ => None,
    }
}
