//! A picture of a page with its legend, and a table of the same numbers for who does not see it.

use askama::Template;

use super::super::chart::{COLOURS, escaped};
use super::super::{Chart, Curve, Shape};

/// Rows of a table beside a picture: more are neither read nor listened to.
const ROWS: usize = 40;
/// Letters that every cell has room for: those of a difference with its interval.
const LONG: usize = 30;

/// A table with a caption.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "table.html")]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The titles of the columns.
    pub heads: Vec<String>,
    /// Cells row by row; the first cells of each name it.
    pub rows: Vec<Vec<String>>,
    /// How many cells name a row.
    pub names: usize,
    /// Where the first cell of each row leads, empty where it leads nowhere; or none at all.
    pub links: Vec<String>,
}

impl Table {
    /// An empty one, whose rows begin with so many `names`.
    pub fn new<T: Into<String>>(
        caption: impl Into<String>,
        heads: impl IntoIterator<Item = T>,
        names: usize,
    ) -> Self {
        let heads = heads.into_iter().map(Into::into).collect();
        Self { caption: caption.into(), heads, rows: Vec::new(), names, links: Vec::new() }
    }

    /// Where a cell leads.
    fn link(&self, row: &usize, column: &usize) -> Option<&String> {
        self.links.get(*row).filter(|link| *column == 0 && !link.is_empty())
    }

    /// Whether a cell may be parted anywhere, so that it does not make its table wide.
    fn is_long(&self, cell: &str) -> bool {
        cell.chars().count() > LONG
    }

    /// A long cell, which is parted at slashes first.
    fn parted(&self, cell: &str) -> String {
        escaped(cell).replace('/', "/<wbr/>")
    }

    /// Whether the cells of a column are numbers, or nothing.
    fn is_number(&self, column: &usize) -> bool {
        let starts = |cell: &String| {
            cell.is_empty()
                || cell == "undefined"
                || cell.starts_with(|c: char| c.is_ascii_digit() || "+-<".contains(c))
        };
        *column >= self.names && self.rows.iter().filter_map(|row| row.get(*column)).all(starts)
    }
}

/// A picture, what its colours mean, and its numbers.
#[derive(Debug, Clone, PartialEq, Template)]
#[template(path = "figure.html")]
pub struct Figure {
    title: String,
    /// An SVG element.
    picture: String,
    legend: Vec<Key>,
    note: String,
    table: Table,
}

/// A line of a legend.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    colour: usize,
    is_dot: bool,
    name: String,
    figure: String,
}

impl Figure {
    /// `chart` in a page where nothing else has the `id`. A legend with nothing to tell apart is left
    /// out.
    pub fn new(id: &str, chart: &Chart, note: impl Into<String>, table: Table) -> Self {
        let named = chart.curves.iter().filter(|curve| curve.is_named()).enumerate();
        let key = |(number, curve): (usize, &Curve)| Key {
            colour: number % COLOURS.len(),
            is_dot: curve.shape == Shape::Dots,
            name: curve.name.clone(),
            figure: curve.figure.clone(),
        };
        let legend: Vec<Key> = named.map(key).filter(|key| !key.name.is_empty()).collect();
        let picture = chart.to_inline_svg(id);
        Self { title: chart.title.clone(), picture, legend, note: note.into(), table }
    }
}

/// Which of so many rows a table shows: all where they are few, else evenly chosen ones, the last, and
/// those that `must` names.
pub fn chosen(rows: usize, must: impl Fn(usize) -> bool) -> Vec<usize> {
    let each = rows.div_ceil(ROWS).max(1);
    (0..rows).filter(|&row| row % each == 0 || row + 1 == rows || must(row)).collect()
}

/// At most so many of `points`, evenly chosen, the last among them.
pub fn thinned<T: Copy>(points: &[T], most: usize) -> Vec<T> {
    let each = points.len().div_ceil(most.max(1)).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate().filter(|(place, _)| place % each == 0 || *place == last);
    kept.map(|(_, point)| *point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_many_rows_shows_some_the_last_and_the_best() {
        assert_eq!(chosen(3, |_| false), [0, 1, 2]);
        assert_eq!(chosen(0, |_| true), [0; 0]);
        let rows = chosen(300, |row| row == 123);
        assert!(rows.len() <= ROWS + 2 && rows.contains(&123) && rows.contains(&299), "{rows:?}");
        assert_eq!(rows[..3], [0, 8, 16]);
    }

    #[test]
    fn a_thinned_curve_ends_where_the_whole_one_does() {
        let points: Vec<usize> = (0..1001).collect();
        let thin = thinned(&points, 500);
        assert!(thin.len() <= 501 && thin.starts_with(&[0, 3]) && thin.last() == Some(&1000));
        assert_eq!(thinned(&points[..4], 500), [0, 1, 2, 3]);
    }
}
