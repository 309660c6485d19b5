//! The rows of a sweep as tables: Markdown, CSV, and drawn on a terminal.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::row::{Row, Status};

const MIB: f64 = (1 << 20) as f64;

/// A column of figures: its title, whether it is left out where no row has it, and its text.
type Column = (&'static str, bool, fn(&Row) -> Option<String>);

const FIGURES: [Column; 13] = [
    ("status", false, |row| Some(row.status.name().to_owned())),
    ("live MiB", false, |row| row.live.map(mib)),
    ("peak MiB", false, |row| row.peak.map(mib)),
    ("predicted MiB", true, |row| row.predicted_peak.map(mib)),
    ("reserved MiB", false, |row| row.reserved.map(mib)),
    ("SMI MiB", false, |row| row.smi.map(mib)),
    ("out by MiB", false, |row| row.oversubscribed.map(mib)),
    ("peak %", false, |row| row.percent.map(|percent| format!("{percent:.1}"))),
    ("SMI %", false, |row| row.smi_percent.map(|percent| format!("{percent:.1}"))),
    ("recomputed %", true, |row| row.recomputed_percent.map(|percent| format!("{percent:.1}"))),
    ("ms/step", false, |row| row.ms_per_step.map(|ms| format!("{ms:.2}"))),
    ("images/s", false, |row| row.images_per_second.map(|rate| format!("{rate:.1}"))),
    ("loss", false, |row| row.loss.map(|loss| format!("{loss:.4}"))),
];

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / MIB)
}

/// The columns of a table for people.
struct Columns<'a> {
    keys: &'a [String],
    figures: Vec<&'static Column>,
}

impl<'a> Columns<'a> {
    /// Those that are always there, and those that some of `rows` have.
    fn new(keys: &'a [String], rows: &[Row]) -> Self {
        let has = |column: &&Column| !column.1 || rows.iter().any(|row| column.2(row).is_some());
        Self { keys, figures: FIGURES.iter().filter(has).collect() }
    }

    /// Their titles.
    fn titles(&self) -> Vec<String> {
        let figures = self.figures.iter().map(|column| column.0.to_owned());
        self.keys.iter().cloned().chain(figures).collect()
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let figures = self.figures.iter().map(|column| column.2(row).unwrap_or_default());
        self.keys.iter().map(|key| value(row, key)).chain(figures).collect()
    }

    /// The first two lines of a Markdown table.
    fn markdown_head(&self) -> String {
        let titles = self.titles();
        let rules = titles.iter().enumerate().map(|(place, _)| {
            // Swept values and the status are words.
            if place <= self.keys.len() { "---".to_owned() } else { "---:".to_owned() }
        });
        let rules: Vec<String> = rules.collect();
        format!("{}{}", line(&titles), line(&rules))
    }

    /// A line of a Markdown table.
    fn markdown_row(&self, row: &Row) -> String {
        line(&self.cells(row))
    }
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A swept value as it is written, without the quotes of a string.
fn value(row: &Row, key: &str) -> String {
    match row.set.get(key) {
        Some(toml::Value::String(text)) => text.clone(),
        // TOML's own form writes 1e38 with all its zeros.
        Some(toml::Value::Float(number)) => format!("{number:?}"),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// The rows as a Markdown table, then what the percentages are of and why rows were not measured.
pub fn markdown(keys: &[String], rows: &[Row]) -> String {
    let columns = Columns::new(keys, rows);
    let lines: String = rows.iter().map(|row| columns.markdown_row(row)).collect();
    format!("{}{lines}{}", columns.markdown_head(), notes(keys, rows))
}

/// The rows as a table on a terminal, then what the percentages are of and why rows were not measured.
pub fn drawn(keys: &[String], rows: &[Row]) -> String {
    let columns = Columns::new(keys, rows);
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let aligned = |cells: Vec<String>| {
        let cells = cells.into_iter().enumerate();
        let words = keys.len();
        cells.map(move |(place, text)| match place <= words {
            true => Cell::new(text),
            false => Cell::new(text).set_alignment(CellAlignment::Right),
        })
    };
    table.set_header(aligned(columns.titles()));
    rows.iter().for_each(|row| {
        table.add_row(aligned(columns.cells(row)));
    });
    format!("{}\n{}", table.trim_fmt(), notes(keys, rows))
}

/// What the percentages are of and why rows were not measured, a paragraph each.
fn notes(keys: &[String], rows: &[Row]) -> String {
    let name = |row: &Row| {
        let values = keys.iter().map(|key| format!("{key}={}", value(row, key)));
        values.collect::<Vec<_>>().join(", ")
    };
    let reference = rows.iter().find(|row| row.reference);
    let percentages = reference.map(|row| match row.status {
        Status::Ok => format!("\nPercentages are of {}.\n", name(row)),
        status => format!("\nNo percentages: the reference is {}: {}.\n", name(row), status.name()),
    });
    let reasons = rows.iter().filter_map(|row| {
        let message = row.message.as_ref()?.replace('\n', "\n  ");
        Some(format!("\n- {}: {}: {message}\n", name(row), row.status.name()))
    });
    percentages.into_iter().chain(reasons).collect()
}

/// One row in one line.
pub fn summary(row: &Row) -> String {
    let figures = [
        row.peak.map(|bytes| format!("peak {} MiB", mib(bytes))),
        row.percent.map(|percent| format!("{percent:.1}%")),
        row.ms_per_step.map(|ms| format!("{ms:.2} ms/step")),
        row.images_per_second.map(|rate| format!("{rate:.1} images/s")),
        row.loss.map(|loss| format!("loss {loss:.4}")),
        row.oversubscribed.map(|bytes| format!("by {} MiB", mib(bytes))),
    ];
    let status = (row.status != Status::Ok).then(|| row.status.name().to_owned());
    let first = row.message.as_ref().and_then(|text| text.lines().next()).map(str::to_owned);
    let reason = first.filter(|_| row.status == Status::Failed);
    status
        .into_iter()
        .chain(figures.into_iter().flatten())
        .chain(reason)
        .collect::<Vec<_>>()
        .join("  ")
}

/// The rows as CSV, bytes as bytes.
pub fn csv(keys: &[String], rows: &[Row]) -> String {
    const NAMES: [&str; 17] = [
        "status",
        "live",
        "peak",
        "predicted_peak",
        "reserved",
        "smi",
        "oversubscribed",
        "percent",
        "smi_percent",
        "reference",
        "recomputed_percent",
        "ms_per_step",
        "images_per_second",
        "loss",
        "device",
        "message",
        "exit_code",
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(keys.iter().map(String::as_str).chain(NAMES));
    for row in rows {
        let json = serde_json::to_value(row).unwrap_or_default();
        let figure = |name: &&str| match &json[*name] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let figures = NAMES.iter().map(figure);
        let _ = writer.write_record(keys.iter().map(|key| value(row, key)).chain(figures));
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
