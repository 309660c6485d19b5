//! Lists of what was left out: how much, and the first of it.

use super::figure::Table;
use super::record::{SkippedImage, SkippedStep};
use crate::screen::counted;

/// Rows of such a list.
const LISTED: usize = 100;

/// What was left out: how much, and the first of it.
pub struct Listed {
    /// In words.
    pub count: String,
    /// The first of it.
    pub table: Table,
}

/// Steps that were left out, if any were.
pub fn skipped_steps(all: &[SkippedStep]) -> Option<Listed> {
    let count = counted(all.len(), "step was left out", "steps were left out");
    let caption = caption("Steps that were left out", all.len());
    let mut table = Table::new(caption, ["epoch", "step", "reason"], 2);
    let row =
        |one: &SkippedStep| vec![one.epoch.to_string(), one.step.to_string(), one.reason.clone()];
    table.rows = all.iter().take(LISTED).map(row).collect();
    (!all.is_empty()).then_some(Listed { count, table })
}

/// Images that could not be read, if there are any.
pub fn skipped_images(all: &[SkippedImage]) -> Option<Listed> {
    let count = counted(all.len(), "image could not be read", "images could not be read");
    let caption = caption("Images that could not be read", all.len());
    let mut table = Table::new(caption, ["image", "listed in", "reason"], 1);
    let row = |one: &SkippedImage| {
        let place = format!("{}, line {}", one.table, one.line);
        vec![one.path.clone(), place, one.reason.clone()]
    };
    table.rows = all.iter().take(LISTED).map(row).collect();
    (!all.is_empty()).then_some(Listed { count, table })
}

fn caption(what: &str, count: usize) -> String {
    match count > LISTED {
        true => format!("{what}, the first {LISTED} of {count}"),
        false => what.to_owned(),
    }
}
