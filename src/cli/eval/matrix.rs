//! `--matrix`: several runs, each measured on several data sets.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::model::Model;
use super::output::{Evaluated, unwritable};
use super::{Asked, Eval};
use crate::build::{List, TrainedFolder};
use crate::cli::report::names;
use crate::cli::{Failure, output, whole};
use crate::evaluate::Estimate;
use crate::report::estimate_text;
use crate::screen::{Column, Frame, Table, counted, say, stdout_columns, tell_progress};

/// The files of a matrix.
const FILES: [&str; 3] = ["matrix.txt", "matrix.csv", "matrix.json"];
/// The columns of the tables in a file.
const FILE_COLUMNS: usize = 120;

/// Every run on every data set, in the form that `--json` prints. Keys may be added, not renamed.
#[derive(Debug, Serialize)]
struct Matrix {
    /// Row by row.
    matrix: Vec<Cell>,
}

/// A run on a data set.
#[derive(Debug, Serialize)]
struct Cell {
    trained_on: String,
    tested_on: String,
    /// Why there is no evaluation.
    error: Option<String>,
    evaluation: Option<Evaluated>,
}

/// A data set, and which of its images.
struct Tested {
    name: String,
    config: PathBuf,
    list: List,
    /// The run whose own data these are.
    run: Option<usize>,
}

/// Measures every run on the data of every run, and on those of `--data`.
pub(super) fn execute(command: &Eval, asked: &Asked) -> Result<(), Failure> {
    let runs = names(&command.runs);
    let tested = tested(command, &runs)?;
    let mut cells = Vec::with_capacity(runs.len() * tested.len());
    for (place, (run, trained_on)) in command.runs.iter().zip(&runs).enumerate() {
        for of in &tested {
            let data = (of.run != Some(place)).then(|| of.config.clone());
            let asked = Asked { data, list: of.list, ..asked.clone() };
            tell_progress(&format!("{trained_on} on {}", of.name));
            let found = Model::open(run, &asked).and_then(|model| {
                super::check_views(&asked, std::slice::from_ref(&model))?;
                Ok(Evaluated::of_one(&model, &asked))
            });
            let (evaluation, error) = match found {
                Ok(found) => (Some(found), None),
                Err(failure) => {
                    // One cell that cannot be had does not take the others away.
                    say(format_args!("{failure}"));
                    (None, Some(failure.to_string()))
                }
            };
            let (trained_on, tested_on) = (trained_on.clone(), of.name.clone());
            cells.push(Cell { trained_on, tested_on, error, evaluation });
        }
    }
    let tested: Vec<&str> = tested.iter().map(|of| &*of.name).collect();
    Matrix { matrix: cells }.tell(&tested, command.out.as_deref(), command.json)
}

/// The data sets: of each run its own, the validation images where no list is asked for, and all of each
/// that `--data` names.
fn tested(command: &Eval, runs: &[String]) -> Result<Vec<Tested>, Failure> {
    let split = command.split.map(List::from);
    let mut tested = Vec::new();
    for (place, (run, name)) in command.runs.iter().zip(runs).enumerate() {
        let TrainedFolder { config, .. } = TrainedFolder::find(run)?;
        let list = split.unwrap_or(List::Validation);
        tested.push(Tested { name: name.clone(), config, list, run: Some(place) });
    }
    let stems: Vec<PathBuf> = command.data.iter().map(|path| path.with_extension("")).collect();
    for (config, name) in command.data.iter().zip(names(&stems)) {
        let (config, list) = (config.clone(), split.unwrap_or(List::All));
        tested.push(Tested { name, config, list, run: None });
    }
    Ok(tested)
}

impl Matrix {
    /// Writes the files into `folder`, if one is named, and prints the tables, or the JSON.
    fn tell(&self, tested: &[&str], folder: Option<&Path>, json: bool) -> Result<(), Failure> {
        if self.matrix.iter().all(|cell| cell.evaluation.is_none()) {
            return Err(Failure::data("no run could be measured on any of the data"));
        }
        for cell in &self.matrix {
            let warnings = cell.evaluation.iter().flat_map(Evaluated::warnings);
            warnings.for_each(|warning| {
                say(format_args!("warning: {} on {}: {warning}", cell.trained_on, cell.tested_on));
            });
        }
        let as_json = serde_json::to_string_pretty(self).map_err(Failure::other)?;
        if let Some(folder) = folder {
            fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
            let text = self.text(tested, Frame::Ascii, FILE_COLUMNS);
            let csv = self.csv().map_err(Failure::other)?;
            for (name, bytes) in FILES.iter().zip([text.as_bytes(), &csv, as_json.as_bytes()]) {
                let file = folder.join(name);
                whole::write(&file, bytes).map_err(|error| unwritable(&file, &error))?;
            }
            tell_progress(&format!("written to {}: {}", folder.display(), FILES.join(", ")));
        }
        match json {
            true => output::print(&as_json),
            false => output::print(&self.text(tested, Frame::of_stdout(), stdout_columns())),
        }
    }

    /// A table for each head: the mean AUROC, of numbers the MAE, of each run on each data set.
    fn text(&self, tested: &[&str], frame: Frame, columns: usize) -> String {
        let evaluations = || self.matrix.iter().filter_map(|cell| cell.evaluation.as_ref());
        let mut heads: Vec<&str> = Vec::new();
        for head in evaluations().flat_map(|one| &one.heads) {
            if !heads.contains(&&*head.name) {
                heads.push(&head.name);
            }
        }
        let mut text = String::new();
        for tested_on in tested {
            let mut cells = self.matrix.iter().filter(|cell| cell.tested_on == *tested_on);
            let told = match cells.find_map(|cell| cell.evaluation.as_ref()) {
                Some(one) => {
                    let images = counted(one.images, "image", "images");
                    let patients = counted(one.patients, "patient", "patients");
                    format!("{}, {images} of {patients}", one.told)
                }
                None => "could not be measured on".to_owned(),
            };
            text += &format!("{tested_on}: {told}\n");
        }
        for head in heads {
            let of = |cell: &Cell| cell.evaluation.as_ref()?.head(head).cloned();
            let is_number = self.matrix.iter().filter_map(of).any(|head| head.mae.is_some());
            let (key, title) = if is_number { ("mae", "MAE") } else { ("auroc", "mean AUROC") };
            let titles = tested.iter().map(|name| Column::numbers(*name).always());
            let first = Column::words("trained on");
            let mut table = Table::new([first].into_iter().chain(titles).collect(), 1);
            for row in self.matrix.chunks(tested.len()) {
                let value = |cell: &Cell| {
                    let head = of(cell)?;
                    let (_, table) = head.measures().find(|(measure, _)| measure.key == key)?;
                    Some(estimate_text(&table.mean()))
                };
                let cells = row.iter().map(|cell| value(cell).unwrap_or_else(|| "none".to_owned()));
                table.add([row[0].trained_on.clone()].into_iter().chain(cells).collect());
            }
            text += &format!("\n{head}: {title} (95%) on\n{}\n", table.draw(frame, columns));
        }
        text
    }

    /// A row for each measure of each label in each cell, with an empty label for the mean of a head.
    fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record([
            "trained_on",
            "tested_on",
            "split",
            "images",
            "patients",
            "head",
            "metric",
            "label",
            "value",
            "low",
            "high",
            "undefined",
        ])?;
        for cell in &self.matrix {
            let (trained_on, tested_on) = (&*cell.trained_on, &*cell.tested_on);
            let Some(found) = &cell.evaluation else {
                let mut row = [""; 12];
                row[..2].copy_from_slice(&[trained_on, tested_on]);
                row[11] = cell.error.as_deref().unwrap_or_default();
                writer.write_record(row)?;
                continue;
            };
            let counts = [found.images, found.patients].map(|count| count.to_string());
            for (head, of) in found.evaluated() {
                for (measure, table) in of.measures() {
                    let key = measure.key;
                    let labels = table.labels.iter().map(|(label, of)| (label.as_str(), *of));
                    for (label, estimate) in [("", table.mean())].into_iter().chain(labels) {
                        let Estimate { value, low, high, undefined } = estimate;
                        let number =
                            |of: Option<f64>| of.map(|of| of.to_string()).unwrap_or_default();
                        let [value, low, high] = [value, low, high].map(number);
                        let why = undefined.map(|why| why.to_string()).unwrap_or_default();
                        let [images, patients] = &counts;
                        writer.write_record([
                            trained_on,
                            tested_on,
                            &found.split,
                            images,
                            patients,
                            head,
                            key,
                            label,
                            &value,
                            &low,
                            &high,
                            &why,
                        ])?;
                    }
                }
            }
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }
}
