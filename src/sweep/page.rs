//! `report.html` of a sweep.

use std::ffi::OsStr;
use std::path::Path;

use super::Sweep;
use super::row::Row;
use super::table::{figures, reasons, remarks, short, value};
use crate::contain::contained;
use crate::report::{REPORT_FILE, Record, SweepPage, SweepRow, sweep_page, write_page};
use crate::screen::Bytes;

/// What is drawn over each swept key.
type Quantity = (String, fn(&Row) -> Option<f64>);

/// Writes the page of `rows` into `folder`, from which `runs` leads to the run folders.
///
/// # Errors
/// When it cannot be written, in words.
pub(super) fn write(sweep: &Sweep, rows: &[Row], folder: &Path, runs: &str) -> Result<(), String> {
    let file = folder.join(REPORT_FILE);
    let written = contained(|| {
        let text = sweep_page(&page(sweep, rows, folder, runs));
        write_page(&file, &text).map_err(|error| error.to_string())
    });
    let told = |error| format!("cannot write {}: {error}", file.display());
    written.and_then(|written| written).map_err(told)
}

fn page(sweep: &Sweep, rows: &[Row], folder: &Path, runs: &str) -> SweepPage {
    let keys = &sweep.keys;
    let figures = figures(rows);
    let quantities = quantities(rows);
    let row = |row: &Row| SweepRow {
        values: keys.iter().map(|key| value(row, key)).collect(),
        cells: figures.iter().map(|(_, of)| of(row).unwrap_or_default()).collect(),
        quantities: quantities.iter().map(|(_, of)| of(row)).collect(),
        run: run(row, folder, runs),
    };
    SweepPage {
        name: sweep.combinations[0].plan.run.name.clone(),
        combinations: sweep.combinations.len(),
        keys: short(keys),
        titles: figures.iter().map(|(title, _)| (*title).to_owned()).collect(),
        rows: rows.iter().map(row).collect(),
        remarks: remarks(keys, rows),
        reasons: reasons(keys, rows),
        quantities: quantities.iter().map(|(name, _)| name.clone()).collect(),
    }
}

/// The best value of the metric watched; where only steps were measured, memory and speed.
fn quantities(rows: &[Row]) -> Vec<Quantity> {
    match rows.iter().find_map(|row| row.metric.as_ref()) {
        Some(metric) => vec![(format!("best {metric}"), |row| row.best)],
        None => vec![
            ("peak MiB".to_owned(), |row| row.peak.map(|bytes| Bytes(bytes).mebibytes())),
            ("images a second".to_owned(), |row| row.images_per_second),
        ],
    }
}

/// The run of a row, and the way to its page from that of the sweep.
fn run(row: &Row, folder: &Path, runs: &str) -> Option<(String, Record)> {
    // Of a fold it is a folder in another.
    let parts: Option<Vec<&str>> = Path::new(row.run.as_ref()?).iter().map(OsStr::to_str).collect();
    let parts = parts?;
    let name = runs.rsplit('/').next()?;
    let begin = parts.iter().rposition(|part| *part == name)?;
    let way = format!("{runs}/{}", parts[begin + 1..].join("/"));
    let record = Record::read(&folder.join(&way)).ok()?;
    Some((format!("{way}/{REPORT_FILE}"), record))
}
