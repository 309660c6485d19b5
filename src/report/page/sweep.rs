//! The page of a sweep: all combinations in one table, what each swept key does, and the learning curves
//! of those that were trained.

use askama::Template;

use super::comparison::figure;
use super::curves::id;
use super::figure::{Figure, Table};
use super::record::Record;
use crate::report::table::shown;
use crate::report::{Chart, Curve, Shape};

/// Runs whose learning curves can be told apart: as many as there are colours, whole and dashed.
const CURVES: usize = 14;
/// Letters of all names below a picture that fit side by side.
const LETTERS: usize = 40;

/// A sweep as far as it has come.
#[derive(Debug, Clone, Default)]
pub struct SweepPage {
    /// The name of what is swept.
    pub name: String,
    /// How many combinations there are.
    pub combinations: usize,
    /// The swept keys.
    pub keys: Vec<String>,
    /// The titles of the cells of each row.
    pub titles: Vec<String>,
    /// What is drawn over each key, with its unit.
    pub quantities: Vec<String>,
    /// The combinations that are done.
    pub rows: Vec<SweepRow>,
    /// What a person should know, a sentence each.
    pub remarks: Vec<String>,
    /// Why combinations were not measured.
    pub reasons: Vec<String>,
}

/// A combination.
#[derive(Debug, Clone, Default)]
pub struct SweepRow {
    /// The value of each key.
    pub values: Vec<String>,
    /// What was found, below the titles.
    pub cells: Vec<String>,
    /// The quantities, where they are known.
    pub quantities: Vec<Option<f64>>,
    /// The page of the run beside this one, and the run, where the combination was trained.
    pub run: Option<(String, Record)>,
}

/// What the template shows.
#[derive(Template)]
#[template(path = "sweep.html")]
struct SweepTemplate<'a> {
    name: &'a str,
    done: String,
    remarks: &'a [String],
    /// What is the same for all combinations.
    same: Vec<(&'a str, &'a str)>,
    rows: Table,
    reasons: &'a [String],
    keys: Vec<Figure>,
    curves: Vec<Figure>,
    /// How many runs have no curves there.
    left_out: usize,
}

/// The page of a sweep, as an HTML file.
pub fn sweep_page(sweep: &SweepPage) -> String {
    let runs: Vec<(String, Record)> =
        sweep.rows.iter().filter_map(|row| named(sweep, row)).collect();
    let shown = &runs[..runs.len().min(CURVES)];
    let quantities = || sweep.quantities.iter().enumerate();
    let keys = (0..sweep.keys.len())
        .flat_map(|key| quantities().filter_map(move |one| over_key(sweep, key, one)));
    let template = SweepTemplate {
        name: &sweep.name,
        done: format!("{} of {} combinations are done.", sweep.rows.len(), sweep.combinations),
        remarks: &sweep.remarks,
        same: (0..sweep.titles.len()).filter_map(|column| same(sweep, column)).collect(),
        rows: rows(sweep),
        reasons: &sweep.reasons,
        keys: keys.collect(),
        curves: curves(shown),
        left_out: runs.len() - shown.len(),
    };
    template.render().expect("memory takes what is written")
}

/// The run of a row, called by the values of its keys.
fn named(sweep: &SweepPage, row: &SweepRow) -> Option<(String, Record)> {
    let (_, record) = row.run.as_ref()?;
    Some((combination(sweep, row, None), record.clone()))
}

/// The keys with their values in a row, but for the key at `without`.
fn combination(sweep: &SweepPage, row: &SweepRow, without: Option<usize>) -> String {
    let pairs = sweep.keys.iter().zip(&row.values).enumerate();
    let pairs = pairs.filter(|(place, _)| Some(*place) != without);
    pairs.map(|(_, (key, value))| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// The title of a column and what stands in every row of it, where that is the same in several rows.
fn same(sweep: &SweepPage, column: usize) -> Option<(&str, &str)> {
    let cell = |row: &SweepRow| row.cells[column].clone();
    let (first, others) = sweep.rows.split_first().filter(|(_, others)| !others.is_empty())?;
    let is_same = others.iter().all(|row| cell(row) == cell(first));
    is_same.then(|| (sweep.titles[column].as_str(), first.cells[column].as_str()))
}

/// Every combination, with what is not the same for all.
fn rows(sweep: &SweepPage) -> Table {
    let trained = sweep.rows.iter().any(|row| row.run.is_some());
    let first = if trained { "run" } else { "row" };
    let columns: Vec<usize> =
        (0..sweep.titles.len()).filter(|&column| same(sweep, column).is_none()).collect();
    let titles = [first].into_iter().chain(sweep.keys.iter().map(String::as_str));
    let titles = titles.chain(columns.iter().map(|&column| sweep.titles[column].as_str()));
    let mut table = Table::new("What each combination took", titles, 1 + sweep.keys.len());
    for (place, row) in sweep.rows.iter().enumerate() {
        // The number stays on the line of its name.
        let cells = [format!("{first}\u{a0}{}", place + 1)].into_iter().chain(row.values.clone());
        let figures = columns.iter().map(|&column| row.cells[column].clone());
        table.rows.push(cells.chain(figures).collect());
        let link = row.run.as_ref().map(|(link, _)| link.clone());
        table.links.push(link.unwrap_or_default());
    }
    table
}

/// A quantity over the values of the key at `place`, a curve for each combination of the other keys;
/// nothing where it is never known, or the key has one value.
fn over_key(sweep: &SweepPage, place: usize, (quantity, name): (usize, &String)) -> Option<Figure> {
    let known = |row: &&SweepRow| row.quantities.get(quantity).copied().flatten().is_some();
    let rows: Vec<&SweepRow> = sweep.rows.iter().filter(known).collect();
    let values = ordered(rows.iter().map(|row| &row.values[place]));
    if values.len() < 2 {
        return None;
    }
    let mut others: Vec<String> = Vec::new();
    for row in &rows {
        let other = combination(sweep, row, Some(place));
        others.extend((!others.contains(&other)).then_some(other));
    }
    let at = |value: &String, other: &String| {
        let is = |row: &&&SweepRow| {
            row.values[place] == *value && combination(sweep, row, Some(place)) == *other
        };
        rows.iter().find(is).and_then(|row| row.quantities[quantity])
    };
    let curve = |other: &String| {
        let points = values.iter().enumerate();
        let points = points.map(|(x, value)| (x as f64, at(value, other).unwrap_or(f64::NAN)));
        let (name, figure) = (other.clone(), String::new());
        Curve { name, figure, shape: Shape::Line, points: points.collect() }
    };
    let dots = |_: &String| {
        let points = rows.iter().filter_map(|row| {
            let x = values.iter().position(|value| *value == row.values[place])?;
            Some((x as f64, row.quantities[quantity]?))
        });
        let (name, figure) = (String::new(), String::new());
        Curve { name, figure, shape: Shape::Dots, points: points.collect() }
    };
    let curves = match others.len() <= CURVES {
        true => others.iter().map(curve).collect(),
        false => others.iter().take(1).map(dots).collect(),
    };
    let key = &sweep.keys[place];
    let (names, note) = places(&values);
    let title = format!("{name} by {key}");
    let (x, y) = (key.clone(), name.clone());
    let chart = Chart { title: title.clone(), x, y, from_zero: false, names, curves };
    let columns = [key.as_str()].into_iter();
    let columns = columns.chain(others.iter().map(|other| match other.as_str() {
        "" => name.as_str(),
        other => other,
    }));
    let mut table = Table::new(title.clone(), columns, 1);
    for value in &values {
        let cells = others.iter().map(|other| at(value, other).map(|v| shown(Some(v))));
        let cells = cells.map(Option::unwrap_or_default);
        table.rows.push([value.clone()].into_iter().chain(cells).collect());
    }
    Some(Figure::new(&id(&title), &chart, note, table))
}

/// The values, each once: by their size where all are numbers, else as they come.
fn ordered<'a>(values: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        found.extend((!found.contains(value)).then(|| value.clone()));
    }
    let numbers: Option<Vec<f64>> = found.iter().map(|value| value.parse().ok()).collect();
    if let Some(numbers) = numbers {
        let mut pairs: Vec<(f64, String)> = numbers.into_iter().zip(found).collect();
        pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
        found = pairs.into_iter().map(|(_, value)| value).collect();
    }
    found
}

/// What stands below the places of `values`, and a note where that is not the values themselves.
fn places(values: &[String]) -> (Vec<String>, String) {
    let room = (LETTERS / values.len()).saturating_sub(1);
    if values.iter().all(|value| value.chars().count() <= room) {
        return (values.to_vec(), String::new());
    }
    let numbers: Vec<String> = (1..=values.len()).map(|number| number.to_string()).collect();
    let told = numbers.iter().zip(values).map(|(number, value)| format!("{number}: {value}"));
    let note = told.collect::<Vec<_>>().join("; ");
    (numbers, note)
}

/// The losses and the metric watched of all runs.
fn curves(runs: &[(String, Record)]) -> Vec<Figure> {
    let watched = runs.iter().find_map(|(_, record)| record.epochs.last()?.watched.as_ref());
    let metric = watched.and_then(|watched| watched.metric.strip_prefix("val/"));
    let metric = metric.filter(|metric| *metric != "loss");
    let metric =
        metric.and_then(|metric| figure(runs, &format!("Validation {metric}"), false, metric));
    let losses = [("Training loss", true), ("Validation loss", false)];
    let losses = losses.into_iter().filter_map(|(title, train)| figure(runs, title, train, "loss"));
    metric.into_iter().chain(losses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn numbers_stand_by_their_size_and_words_as_they_come() {
        let numbers = texts(&["1e-3", "0.01", "5e-4", "0.01"]);
        assert_eq!(ordered(numbers.iter()), ["5e-4", "1e-3", "0.01"]);
        let words = texts(&["none", "16", "every"]);
        assert_eq!(ordered(words.iter()), ["none", "16", "every"]);
    }

    #[test]
    fn names_that_have_no_room_are_numbers_that_the_note_explains() {
        let short = texts(&["8", "16", "32"]);
        assert_eq!(places(&short), (short, String::new()));
        let (names, note) = places(&texts(&["none", "{sequential={segments=4}}"]));
        assert_eq!(names, ["1", "2"]);
        assert_eq!(note, "1: none; 2: {sequential={segments=4}}");
    }
}
