//! What is known of how good the model is: on the validation images, and what `trainer eval` has found.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::page::{Judged, Record};
use super::tables::{Table, of_groups, of_head, plain};
use crate::evaluate::{Calibration, Fitted};
use crate::report::HeadLabels;
use crate::screen::counted;

/// What the folders of evaluations begin with, and the file that each has.
const FOLDERS: &str = "eval-";
const FILE: &str = "evaluation.json";

/// An evaluation of the best state.
#[derive(Debug, Clone)]
pub struct Measured {
    pub title: String,
    /// Sentences about what its figures mean.
    pub notes: Vec<String>,
    pub tables: Vec<String>,
    /// Which images: `validation`, or another list.
    pub split: String,
    /// The configuration of other data.
    pub data: Option<String>,
    /// By the head's name, as `evaluation.json` has it.
    pub heads: Value,
    pub has_groups: bool,
}

/// The evaluations of the best state in a run's `folder`: that of the validation images first.
pub fn read(folder: &Path, record: &Record, judged: Option<&Judged>) -> Vec<Measured> {
    let heads = &record.start.heads;
    let step = record.best().map(|epoch| epoch.step as u64);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names: BTreeSet<String> = names.filter(|name| name.starts_with(FOLDERS)).collect();
    let read = |name: &String| {
        let text = fs::read_to_string(folder.join(name).join(FILE)).ok()?;
        let found: Value = serde_json::from_str(&text).ok()?;
        let models = found["models"].as_array()?;
        // Another state's figures say nothing of this one.
        let is_best = models.len() == 1 && models[0]["step"].as_u64() == step;
        is_best.then(|| Measured::new(heads, &found))
    };
    let mut all: Vec<Measured> = names.iter().filter_map(read).collect();
    let of_validation = |one: &Measured| one.split == "validation" && one.data.is_none();
    if !all.iter().any(of_validation)
        && let Some(judged) = judged.filter(|judged| !judged.found.is_empty())
    {
        let first = judged.found.values().next();
        let (images, patients) = first.map_or((0, 0), |head| (head.images, head.patients));
        let found = json!({
            "split": "validation", "images": images, "patients": patients, "heads": judged.found,
        });
        all.push(Measured::new(heads, &found));
    }
    all.sort_by_key(|one| !of_validation(one));
    all
}

impl Measured {
    fn new(heads: &[HeadLabels], found: &Value) -> Self {
        let count = |key: &str| found[key].as_u64().unwrap_or_default() as usize;
        let split = found["split"].as_str().unwrap_or_default().to_owned();
        let data = found["data"].as_str().map(|path| {
            // Where it lay says something of a machine, not of the data.
            let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
            name.unwrap_or_else(|| path.to_owned())
        });
        let name = match &data {
            Some(data) => format!("Other data: {}, {split}", plain(data)),
            None => format!("The list `{split}`"),
        };
        let (images, patients) = (
            counted(count("images"), "image", "images"),
            counted(count("patients"), "patient", "patients"),
        );
        let mut notes = Vec::new();
        if split == "validation" && data.is_none() {
            let note = "The epoch was chosen and calibration and thresholds were fitted on these very images: others \
                        give somewhat worse figures.";
            notes.push(note.to_owned());
        }
        let skipped = count("skipped");
        if skipped > 0 {
            let one = "image could not be read and is";
            let images = counted(skipped, one, "images could not be read and are");
            notes.push(format!("{images} left out."));
        }
        let mut tables = Vec::new();
        let mut has_groups = false;
        for head in heads {
            if found["heads"][&head.name].is_object() {
                tables.extend(of_head(head, &found["heads"][&head.name]));
            }
            for (by, groups) in found["subgroups"].as_object().into_iter().flatten() {
                has_groups = true;
                let groups = groups.as_array().map_or(&[][..], Vec::as_slice);
                tables.extend(Some(of_groups(head, by, groups)).filter(|table| !table.is_empty()));
            }
        }
        let title = format!("{name}: {images} of {patients}");
        Self { title, notes, tables, split, data, heads: found["heads"].clone(), has_groups }
    }
}

/// The thresholds of all labels, and what calibrates the heads.
pub fn fitted_tables(heads: &[HeadLabels], fitted: Option<&Fitted>) -> (String, String) {
    let Some(fitted) = fitted else {
        return ("The best state has neither.\n".to_owned(), String::new());
    };
    let mut points = Table::new(&["head", "label", "point", "threshold"]);
    let mut calibrations = Table::new(&["head", "calibration"]);
    for head in heads {
        let Some(of) = fitted.heads.get(&head.name) else { continue };
        for label in &head.labels {
            for point in of.operating_points.get(label).into_iter().flatten() {
                let threshold = match (point.threshold, &point.undefined) {
                    (Some(threshold), _) => format!("{threshold:.4}"),
                    (None, why) => format!("none: {}", why.as_deref().unwrap_or_default()),
                };
                points.add([head.name.clone(), label.clone(), point.criterion.name(), threshold]);
            }
        }
        let how = match &of.calibration {
            None => "none".to_owned(),
            Some(Calibration::Temperature(temperature)) => {
                format!("all logits divided by {:.4} (temperature)", temperature.0)
            }
            Some(Calibration::Platt(labels)) => {
                let label = |(label, platt): (&String, &crate::evaluate::Platt)| {
                    format!("{label}: {:.4} z + {:.4}", platt.slope, platt.intercept)
                };
                let labels: Vec<String> = labels.iter().map(label).collect();
                format!("Platt scaling of logits z: {}", labels.join("; "))
            }
        };
        calibrations.add([head.name.clone(), how]);
    }
    let points = match points.to_string() {
        none if none.is_empty() => {
            "No head has thresholds: of classes the most probable one is decided.\n".to_owned()
        }
        points => format!(
            "Decisions are positive from these calibrated probabilities up; `trainer predict` takes the \
                           first of each label:\n\n{points}"
        ),
    };
    (points, calibrations.to_string())
}

/// The names that hubs have for what was measured, with the keys of an evaluation.
const METRICS: [(&str, &str, &str); 4] = [
    ("auroc", "roc_auc", "AUROC"),
    ("auprc", "average_precision", "AUPRC"),
    ("mae", "mae", "MAE"),
    ("r2", "r_squared", "R²"),
];

/// The metrics that are told, as hubs call them.
pub fn metrics(evaluations: &[Measured]) -> Vec<String> {
    let heads = || evaluations.iter().filter_map(|one| one.heads.as_object()).flatten();
    let told = METRICS.into_iter().filter(|(key, ..)| heads().any(|(_, of)| of[key].is_object()));
    told.map(|(_, name, _)| name.to_owned()).collect()
}

/// The results as hubs read them (`model-index`), in JSON, which YAML includes.
pub fn index(record: &Record, config: &toml::Table, evaluations: &[Measured]) -> String {
    let data = super::facts::layouts(config).join(", ");
    let result = |one: &Measured| {
        let of_head = |(head, of): (&String, &Value)| {
            let metric = |(key, kind, title): (&str, &str, &str)| {
                let value = of[key]["mean"].as_f64()?;
                Some(
                    json!({ "type": kind, "value": value, "name": format!("{head}: mean {title}") }),
                )
            };
            METRICS.into_iter().filter_map(metric).collect::<Vec<_>>()
        };
        let metrics: Vec<Value> =
            one.heads.as_object().into_iter().flatten().flat_map(of_head).collect();
        let name = one.data.as_deref().unwrap_or(&data);
        (!metrics.is_empty()).then(|| {
            json!({
                "task": { "type": "image-classification" },
                "dataset": { "name": name, "type": "private", "split": one.split },
                "metrics": metrics,
            })
        })
    };
    let results: Vec<Value> = evaluations.iter().filter_map(result).collect();
    json!([{ "name": record.start.name, "results": results }]).to_string()
}
