//! Tables that are as wide as the page.

use std::io::IsTerminal;

use comfy_table::presets::{ASCII_FULL_CONDENSED, UTF8_FULL_CONDENSED};
use comfy_table::{Cell, CellAlignment, ColumnConstraint, Width};

use super::{columns_of, side_by_side, wrapped};

/// The characters a table is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// `+-|`: readable everywhere.
    Ascii,
    /// Box-drawing characters.
    Utf8,
}

impl Frame {
    /// What standard output shows: UTF-8 on a terminal whose locale says so.
    pub fn of_stdout() -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .unwrap_or_default()
            .to_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        if utf8 && std::io::stdout().is_terminal() { Self::Utf8 } else { Self::Ascii }
    }
}

/// A column of a [`Table`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    title: String,
    right: bool,
    stays: bool,
}

impl Column {
    /// A column of words.
    pub fn words(title: impl Into<String>) -> Self {
        Self { title: title.into(), right: false, stays: false }
    }

    /// A column of numbers, which are aligned on the right.
    pub fn numbers(title: impl Into<String>) -> Self {
        Self { right: true, ..Self::words(title) }
    }

    /// The same column, shown also where all its cells are the same or empty.
    pub fn always(self) -> Self {
        Self { stays: true, ..self }
    }
}

/// Rows under titles.
///
/// What says nothing takes no room: a column whose cells are all empty is left out, and one whose cells
/// are all the same is told once above the rows. Where the others do not fit side by side, the table
/// is drawn in parts, one below the other, and the columns that name a row stand in each. Where
/// that makes too many parts, each row is a few lines by itself.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    names: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows, whose first `names` columns say what a row is.
    pub fn new(columns: Vec<Column>, names: usize) -> Self {
        Self { columns, names, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn add(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// The table in lines of at most `columns`, without a new line at its end.
    pub fn draw(&self, frame: Frame, columns: usize) -> String {
        let (mut shown, mut everywhere, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..self.columns.len() {
            let told = |text: &str| format!("{} {text}", self.columns[place].title);
            match self.only_text(place) {
                Some(("", _)) => {}
                Some((text, true)) => everywhere.push(told(text)),
                Some((text, false)) => known.push(told(text)),
                None => shown.push(place),
            }
        }
        let mut text = Vec::new();
        for (begin, told) in [("in every row", everywhere), ("in every row that has it", known)] {
            if !told.is_empty() {
                text.push(wrapped(&format!("{begin}: {}", told.join(", ")), columns, 2));
            }
        }
        text.push(match self.parts(&shown, columns) {
            Some(parts) => {
                let drawn = parts.iter().map(|places| self.draw_part(places, frame, columns));
                drawn.collect::<Vec<_>>().join("\n\n")
            }
            None => self.list(&shown, columns),
        });
        text.join("\n")
    }

    /// What stands in all cells of a column that need not be shown, and whether none of them is empty.
    fn only_text(&self, place: usize) -> Option<(&str, bool)> {
        if self.columns[place].stays || self.rows.is_empty() {
            return None;
        }
        let mut cells = self.rows.iter().map(|row| row[place].as_str()).filter(|c| !c.is_empty());
        let Some(first) = cells.next() else { return Some(("", false)) };
        let (same, filled) =
            cells.fold((true, 1), |(same, filled), cell| (same && cell == first, filled + 1));
        let whole = filled == self.rows.len();
        // A single cell is to be seen where it is, and what names a row, too.
        (same && filled > 1 && (whole || place >= self.names)).then_some((first, whole))
    }

    /// `shown` in groups of columns that fit side by side; `None` where there would be too many, or a
    /// single figure does not fit beside the names.
    fn parts(&self, shown: &[usize], columns: usize) -> Option<Vec<Vec<usize>>> {
        const MOST: usize = 4;
        let fits = |places: &[usize]| {
            total(&places.iter().map(|place| self.least(*place)).collect::<Vec<_>>()) <= columns
        };
        let (names, figures): (Vec<usize>, Vec<usize>) =
            shown.iter().partition(|place| **place < self.names);
        let mut parts = vec![names.clone()];
        for place in figures {
            let last = parts.last_mut()?;
            last.push(place);
            if !fits(last) {
                last.pop();
                parts.push([&names[..], &[place]].concat());
            }
        }
        // The first figure may not have fitted.
        if parts.len() > 1 && parts[0].len() == names.len() {
            parts.remove(0);
        }
        (parts.len() <= MOST && parts.iter().all(|part| fits(part))).then_some(parts)
    }

    /// Each row as lines of its titles and cells, what names it in the first.
    fn list(&self, shown: &[usize], columns: usize) -> String {
        let told = |row: &[String], names: bool| -> Vec<String> {
            let places = shown.iter().filter(|place| (**place < self.names) == names);
            let cells = places.map(|&place| (&self.columns[place].title, &row[place]));
            let cells = cells.filter(|(_, cell)| !cell.is_empty());
            cells.map(|(title, cell)| format!("{title} {cell}").trim().to_owned()).collect()
        };
        let rows = self.rows.iter().map(|row| {
            let figures = side_by_side(&told(row, false), columns.saturating_sub(2), 0);
            let figures = figures.lines().map(|line| format!("\n  {line}")).collect::<String>();
            side_by_side(&told(row, true), columns, 2) + &figures
        });
        rows.collect::<Vec<_>>().join("\n")
    }

    /// The longest word of a column.
    fn least(&self, place: usize) -> usize {
        let words = self.cells(place).flat_map(|cell| cell.split(' ').map(columns_of));
        words.max().unwrap_or(0)
    }

    /// The longest cell of a column.
    fn most(&self, place: usize) -> usize {
        self.cells(place).map(columns_of).max().unwrap_or(0)
    }

    fn cells(&self, place: usize) -> impl Iterator<Item = &str> {
        let title = self.columns[place].title.as_str();
        std::iter::once(title).chain(self.rows.iter().map(move |row| row[place].as_str()))
    }

    fn draw_part(&self, places: &[usize], frame: Frame, columns: usize) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(match frame {
            Frame::Ascii => ASCII_FULL_CONDENSED,
            Frame::Utf8 => UTF8_FULL_CONDENSED,
        });
        let cell = |place: usize, text: &str| match self.columns[place].right {
            true => Cell::new(text).set_alignment(CellAlignment::Right),
            false => Cell::new(text),
        };
        table.set_header(places.iter().map(|&place| cell(place, &self.columns[place].title)));
        for row in &self.rows {
            table.add_row(places.iter().map(|&place| cell(place, &row[place])));
        }
        let widths = self.widths(places, columns);
        table.set_constraints(widths.into_iter().map(|width| {
            let padded = u16::try_from(width + PADDING).unwrap_or(u16::MAX);
            ColumnConstraint::Absolute(Width::Fixed(padded))
        }));
        table.trim_fmt()
    }

    /// The width of each column: that of its longest cell where all fit so; else the widest are made
    /// narrower, down to their longest word.
    fn widths(&self, places: &[usize], columns: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = places.iter().map(|place| self.most(*place)).collect();
        let words: Vec<usize> = places.iter().map(|place| self.least(*place)).collect();
        while total(&widths) > columns {
            let above = widths.iter_mut().zip(&words).filter(|(width, word)| **width > **word);
            let Some((widest, _)) = above.max_by_key(|(width, _)| **width) else { break };
            *widest -= 1;
        }
        widths
    }
}

/// Spaces beside the text of a cell.
const PADDING: usize = 2;

/// The columns of a table with columns of these widths: each with its padding and a line before it, and
/// a line after the last.
fn total(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + PADDING + 1).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as a sweep's, with an empty column and one that is the same everywhere.
    fn table() -> Table {
        let figures = ["peak MiB", "predicted MiB", "out by MiB", "ms/step", "images/s", "loss"];
        let mut columns = vec![Column::words("batch_size"), Column::words("checkpointing")];
        columns.push(Column::words("status"));
        columns.extend(figures.map(Column::numbers));
        let mut table = Table::new(columns, 2);
        for (batch, policy, peak) in [
            ("8", "none", "635.2"),
            ("8", "{sequential = {segments = 4}}", "412.0"),
            ("16", "none", "1270.4"),
        ] {
            let loss = if policy == "none" { "0.6931" } else { "" };
            let row =
                [batch, policy, "ok", peak, "640.0", "", "83.21", "96.1", loss].map(str::to_owned);
            table.add(row.to_vec());
        }
        table
    }

    #[test]
    fn a_table_fits_every_width() {
        for columns in [40, 80, 120, 200] {
            let drawn = table().draw(Frame::Utf8, columns);
            assert!(drawn.lines().all(|line| columns_of(line) <= columns), "{columns}\n{drawn}");
            insta::assert_snapshot!(format!("table_{columns}"), drawn);
        }
    }

    #[test]
    fn no_cell_is_lost_at_any_width() {
        let table = table();
        for columns in 20..140 {
            let drawn = table.draw(Frame::Ascii, columns);
            assert!(drawn.lines().all(|line| columns_of(line) <= columns), "{columns}\n{drawn}");
            for word in ["1270.4", "412.0", "segments", "ok", "0.6931", "16"] {
                assert!(drawn.contains(word), "{word} at {columns}\n{drawn}");
            }
        }
    }

    #[test]
    fn of_a_single_row_every_cell_is_shown_and_columns_may_be_kept() {
        let mut table = Table::new(vec![Column::words("a"), Column::numbers("b").always()], 1);
        table.add(vec!["x".to_owned(), "1".to_owned()]);
        assert!(table.draw(Frame::Ascii, 80).contains("| x | 1 |"));
        table.add(vec!["y".to_owned(), "1".to_owned()]);
        let drawn = table.draw(Frame::Ascii, 80);
        assert!(drawn.contains("| y | 1 |") && !drawn.contains("in every row"), "{drawn}");
    }

    #[test]
    fn a_table_without_rows_has_its_titles() {
        let table = Table::new(vec![Column::words("a"), Column::words("b")], 1);
        assert!(table.draw(Frame::Ascii, 80).contains("| a | b |"));
    }
}
