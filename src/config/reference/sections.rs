//! The tables and choices of a configuration, one section each, in the order in which they are shown.

use std::fmt;

use super::super::shape::{Key, Shape, Variant};

/// Where a table or a choice stands: the keys that lead to it, and the entries of arrays.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Place(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Key(String),
    /// A table of an array of tables.
    Entry,
    /// An item of an array that is written within brackets.
    Item,
}

impl Place {
    pub(super) fn key(&self, name: &str) -> Self {
        self.with(Part::Key(name.to_owned()))
    }

    fn with(&self, part: Part) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }

    /// The last key.
    fn name(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|part| match part {
            Part::Key(name) => Some(name.as_str()),
            Part::Entry | Part::Item => None,
        })
    }

    /// How many keys lead here.
    pub(super) fn depth(&self) -> usize {
        self.0.iter().filter(|part| matches!(part, Part::Key(_))).count()
    }
}

impl fmt::Display for Place {
    /// The keys, with dots between them.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.iter().filter_map(|part| match part {
            Part::Key(name) => Some(name.as_str()),
            Part::Entry | Part::Item => None,
        });
        formatter.write_str(&keys.collect::<Vec<_>>().join("."))
    }
}

/// What is shown of one table or one choice.
pub(super) struct Section<'s> {
    pub(super) place: Place,
    pub(super) about: &'s str,
    pub(super) content: Content<'s>,
}

pub(super) enum Content<'s> {
    /// A table's keys.
    Keys(&'s [Key]),
    /// A choice's variants, of which some have settings, and the keys that may stand beside them.
    Choice(&'s [Variant], &'s [Key]),
}

impl Section<'_> {
    /// What the section is called: the header of the table, where it has one.
    pub(super) fn title(&self) -> String {
        match self.place.0.as_slice() {
            [] => "The top of the file".to_owned(),
            [.., Part::Entry] => format!("`[[{}]]`", self.place),
            [.., Part::Item] => format!("Entries of `{}`", self.place),
            [above @ .., Part::Item, Part::Key(name)] => {
                format!("`{name}` in `{}`", Place(above.to_vec()))
            }
            [.., Part::Key(_)] => format!("`[{}]`", self.place),
        }
    }
}

/// All sections of a configuration of shape `root`.
pub(super) fn sections(root: &Shape) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    add(root, Place::default(), "", &mut sections);
    sections
}

/// Adds the sections of what is at `place`, but for those that were added elsewhere under the same
/// name.
fn add<'s>(shape: &'s Shape, place: Place, about: &'s str, sections: &mut Vec<Section<'s>>) {
    if find(sections, shape, &place).is_some() {
        return;
    }
    match shape {
        Shape::Table(keys) if !keys.is_empty() => {
            sections.push(Section { place: place.clone(), about, content: Content::Keys(keys) });
            // What may stand in an array of tables in place of here is shown here.
            let (here, instead): (Vec<&Key>, Vec<&Key>) = keys
                .iter()
                .partition(|key| key.required || !matches!(key.shape, Shape::Array { .. }));
            for key in here.into_iter().chain(instead) {
                add(&key.shape, place.key(&key.name), &key.about, sections);
            }
        }
        Shape::Array { item, .. } => {
            let part = if item.keys().is_empty() { Part::Item } else { Part::Entry };
            add(item, place.with(part), about, sections);
        }
        Shape::Beside { choice, keys } => match &**choice {
            Shape::Choice(variants) => add_choice(variants, keys, place, about, sections),
            other => add(other, place, about, sections),
        },
        Shape::Choice(variants) if has_tables(variants) => {
            add_choice(variants, &[], place, about, sections);
        }
        Shape::Either(shapes) => {
            shapes.iter().for_each(|shape| add(shape, place.clone(), about, sections));
        }
        _ => {}
    }
}

/// Adds the section of a choice with these keys beside it, and those of its variants and of these keys.
fn add_choice<'s>(
    variants: &'s [Variant],
    beside: &'s [Key],
    place: Place,
    about: &'s str,
    sections: &mut Vec<Section<'s>>,
) {
    let content = Content::Choice(variants, beside);
    sections.push(Section { place: place.clone(), about, content });
    for variant in variants {
        let Some(settings) = &variant.settings else { continue };
        add(settings, place.key(&variant.name), &variant.about, sections);
    }
    for key in beside {
        add(&key.shape, place.key(&key.name), &key.about, sections);
    }
}

/// Whether settings of some variant are a table with keys.
pub(super) fn has_tables(variants: &[Variant]) -> bool {
    let has_keys =
        |variant: &Variant| variant.settings.as_ref().is_some_and(|s| !s.keys().is_empty());
    variants.iter().any(has_keys)
}

/// The section of what is at `place`, or of the same table or choice of that name elsewhere.
pub(super) fn find<'a, 's>(
    sections: &'a [Section<'s>],
    shape: &Shape,
    place: &Place,
) -> Option<&'a Section<'s>> {
    let shape = match shape {
        Shape::Beside { choice, .. } => choice,
        shape => shape,
    };
    let same = |section: &&Section<'_>| match (shape, &section.content) {
        (Shape::Table(keys), Content::Keys(other)) => {
            keys == other && section.place.name() == place.name()
        }
        // Where a choice stands inside itself, its settings are read only when they are needed.
        (Shape::Choice(variants), Content::Choice(other, _)) => {
            let names = |variants: &[Variant]| {
                variants.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
            };
            names(variants) == names(other)
        }
        _ => false,
    };
    sections.iter().find(same)
}
