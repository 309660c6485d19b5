//! CLAIM, the Checklist for Artificial Intelligence in Medical Imaging (Mongan, Moy and Kahn 2020, Radiology:
//! Artificial Intelligence 2(2):e200029), by the items of its update (Tejani et al. 2024, Radiology: Artificial
//! Intelligence 6(4):e240300), filled in as far as a run knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::page::Record;
use super::evaluations::Measured;
use super::facts::{self, List, value};
use super::tables::{Table, estimate};
use crate::evaluate::MEASURES;
use crate::screen::{counted, thousands};

/// An item: its section, what it asks for, and the author's place elsewhere in the card that asks for it too, by the
/// place's name and its heading.
type Item = (&'static str, &'static str, Option<(&'static str, &'static str)>);

const USE: Option<(&str, &str)> = Some(("use", "Intended use"));
const DATA: Option<(&str, &str)> = Some(("data", "Training data"));
const LIMITATIONS: Option<(&str, &str)> = Some(("limitations", "Limitations"));

/// All items in the order of their numbers, from 1.
const ITEMS: [Item; 44] = [
    ("title", "the kind of AI named", None),
    ("abstract", "structured summary", None),
    ("introduction", "background and role of the model", USE),
    ("introduction", "aims and hypotheses", None),
    ("study design", "prospective or retrospective", None),
    ("study design", "goal", None),
    ("data", "sources", DATA),
    ("data", "who was included and excluded", DATA),
    ("data", "preprocessing", None),
    ("data", "choice of subsets", None),
    ("data", "de-identification", None),
    ("data", "missing data", None),
    ("data", "image acquisition", DATA),
    ("reference standard", "how it was obtained", DATA),
    ("reference standard", "why this one", None),
    ("reference standard", "who annotated", DATA),
    ("reference standard", "annotation of the test set", None),
    ("reference standard", "variability of annotators", None),
    ("data partitions", "assignment", None),
    ("data partitions", "level at which they are disjoint", None),
    ("testing data", "intended sample size", None),
    ("model", "description", None),
    ("model", "software", None),
    ("model", "initial weights", None),
    ("training", "details", None),
    ("training", "choice of the final model", None),
    ("training", "ensembles", None),
    ("evaluation", "metrics", None),
    ("evaluation", "uncertainty and significance", None),
    ("evaluation", "robustness", None),
    ("evaluation", "explainability", None),
    ("evaluation", "internal data", None),
    ("evaluation", "external data", None),
    ("evaluation", "trial registration", None),
    ("results: data", "numbers included and excluded", DATA),
    ("results: data", "characteristics of each partition", DATA),
    ("results: performance", "metrics with uncertainty", None),
    ("results: performance", "diagnostic performance with precision", None),
    ("results: performance", "analysis of failures", None),
    ("discussion", "limitations", LIMITATIONS),
    ("discussion", "implications for practice", USE),
    ("other information", "protocol and technical details", None),
    ("other information", "availability of software, model and data", None),
    ("other information", "funding", None),
];

/// What a run knows of the items.
pub struct Run<'a> {
    pub record: &'a Record,
    pub config: &'a toml::Table,
    /// The lists of images, by their names.
    pub lists: &'a BTreeMap<String, List>,
    pub evaluations: &'a [Measured],
}

/// What a run knows of an item.
enum Known {
    /// All that is asked for.
    Whole(String),
    /// Some of it: the rest is the author's.
    Partly(String),
}

use Known::{Partly, Whole};

/// The checklist as a table. `words` are the author's, by the names of their places.
pub fn checklist(run: &Run<'_>, words: &BTreeMap<&'static str, String>) -> String {
    let mut known = run.of_data();
    known.extend(run.of_model());
    known.extend(run.of_evaluation());
    let mut table = Table::new(&["item", "section", "asks for", "this run"]);
    for (number, (section, asked, place)) in (1..).zip(ITEMS) {
        let rest = || authors(number, place, words);
        let told = match known.get(&number) {
            Some(Whole(text)) => text.clone(),
            Some(Partly(text)) => format!("{text}; {}", rest()),
            None => rest(),
        };
        table.add([number.to_string(), section.to_owned(), asked.to_owned(), told]);
    }
    table.to_string()
}

/// Where the author has written of an item, or that they have not.
fn authors(
    number: usize,
    place: Option<(&str, &str)>,
    words: &BTreeMap<&'static str, String>,
) -> String {
    let begin = format!("Item {number}:");
    let is_told = |line: &str| {
        let line = line.trim_start_matches(['-', '*', ' ']);
        line.strip_prefix(&begin).is_some_and(|told| !told.trim().is_empty())
    };
    if words.get("claim").is_some_and(|words| words.lines().any(is_told)) {
        return "see the author's words below".to_owned();
    }
    match place {
        Some((name, heading)) if words.contains_key(name) => {
            format!("see the author's words under {heading}")
        }
        Some((_, heading)) => format!("to be filled in by the author, under {heading} or below"),
        None => "to be filled in by the author".to_owned(),
    }
}

impl Run<'_> {
    /// Items 7 to 20 and of the results those of data.
    fn of_data(&self) -> BTreeMap<usize, Known> {
        let mut known = BTreeMap::new();
        let layouts = facts::layouts(self.config);
        if !layouts.is_empty() {
            let layouts: Vec<String> =
                layouts.iter().map(|layout| format!("data.{layout}")).collect();
            known.insert(7, Partly(format!("read as {}", layouts.join(", "))));
        }
        if let Some(image) = value(self.config, "data.image") {
            let text = format!("data.image = {image}, the same in training, evaluation and use");
            known.insert(9, Whole(text));
        }
        let unread = self.record.skipped_images.len();
        let unread = counted(unread, "image could", "images could");
        known.insert(
            12,
            Partly(format!(
                "how many images have each label known stands under Training data; {unread} not be read in training"
            )),
        );
        let sizes = |(list, of): (&String, &List)| {
            let images = counted(of.images, "image", "images");
            format!("{list}: {images} of {}", counted(of.patients.len(), "patient", "patients"))
        };
        let sizes: Vec<String> = self.lists.iter().map(sizes).collect();
        if sizes.is_empty() {
            return known;
        }
        let sizes = sizes.join(", ");
        known.insert(19, self.assignment(&sizes));
        known.insert(20, Whole(self.level()));
        known.insert(35, Partly(sizes));
        known.insert(36, Partly("the counts of labels stand under Training data".to_owned()));
        known
    }

    fn assignment(&self, sizes: &str) -> Known {
        let Some(validation) = value(self.config, "data.validation") else {
            return Partly(sizes.to_owned());
        };
        let seed = value(self.config, "run.seed").map(|seed| format!(", run.seed = {seed}"));
        Whole(format!("data.validation = {validation}{}; {sizes}", seed.unwrap_or_default()))
    }

    /// What keeps the lists apart, by who is in them.
    fn level(&self) -> String {
        let all: usize = self.lists.values().map(|list| list.patients.len()).sum();
        let images: usize = self.lists.values().map(|list| list.images).sum();
        let patients: BTreeSet<&String> =
            self.lists.values().flat_map(|list| &list.patients).collect();
        let shared = all - patients.len();
        if images == patients.len() {
            return "image: each image counts as a patient of its own, and is in one list"
                .to_owned();
        }
        match shared {
            0 => "patient: none is in two lists".to_owned(),
            shared => format!(
                "not disjoint by patient: {} in more than one list",
                counted(shared, "patient is", "patients are")
            ),
        }
    }

    /// Items 1 and 22 to 27, and those of what else is to be had.
    fn of_model(&self) -> BTreeMap<usize, Known> {
        let start = &self.record.start;
        let mut known = BTreeMap::new();
        if let Some(family) = facts::family(self.config) {
            known.insert(1, Partly(format!("deep learning: {family}")));
        }
        let parameters = thousands(start.parameters);
        let model = format!(
            "network, input and heads stand under Model details; {parameters} trained parameters"
        );
        known.insert(22, Whole(model));
        if let Some(version) = &start.version {
            known.insert(23, Whole(format!("trainer {version}")));
            let weights = "weights: best/weights.safetensors";
            known.insert(43, Partly(format!("program: trainer {version}; {weights}")));
        }
        known.insert(24, Whole(self.initial()));
        known
            .insert(25, Whole("under Training procedure; config.toml has all settings".to_owned()));
        if let Some(best) = self.record.best()
            && let Some(watched) = &best.watched
        {
            let done = self.record.epochs.last().map_or(0, |epoch| epoch.epoch);
            let epoch = format!("epoch {} of {done}", best.epoch);
            known.insert(26, Whole(format!("{epoch}, the best by {}", watched.metric)));
        }
        known.insert(27, Whole("none: this card is of one state of one model".to_owned()));
        let limits = "what the program knows of stands under Limitations";
        known.insert(40, Partly(limits.to_owned()));
        let reproduce = "config.toml, and the commands under How to reproduce it";
        known.insert(42, Partly(reproduce.to_owned()));
        known
    }

    /// What the weights were before training. Of a file the name alone, as its folder tells of a machine.
    fn initial(&self) -> String {
        let mut told = match value(self.config, "model.init").and_then(toml::Value::as_str) {
            Some(file) => {
                let name = Path::new(file).file_name().map(|name| name.to_string_lossy());
                format!("those of the file {}", name.as_deref().unwrap_or(file))
            }
            None => "random".to_owned(),
        };
        if let Some(freeze) = value(self.config, "model.freeze") {
            told.push_str(&format!("; model.freeze = {freeze}"));
        }
        told
    }

    /// The items of how the model was judged, and what was found.
    fn of_evaluation(&self) -> BTreeMap<usize, Known> {
        let mut known = BTreeMap::new();
        let named = |is_external: bool| {
            let of = self.evaluations.iter().filter(|one| one.data.is_some() == is_external);
            of.map(name).collect::<Vec<_>>().join("; ")
        };
        let (internal, external) = (named(false), named(true));
        let none = |how: &str| Partly(format!("not measured ({how})"));
        known.insert(
            32,
            if internal.is_empty() { none("trainer eval RUN") } else { Whole(internal) },
        );
        let how = "trainer eval RUN --data OTHER";
        known.insert(33, if external.is_empty() { none(how) } else { Whole(external) });
        if self.evaluations.is_empty() {
            return known;
        }
        let heads = || self.evaluations.iter().filter_map(|one| one.heads.as_object()).flatten();
        let measures =
            MEASURES.iter().filter(|measure| heads().any(|(_, of)| of[measure.key].is_object()));
        let measures: Vec<&str> = measures.map(|measure| measure.title).collect();
        if !measures.is_empty() {
            known.insert(28, Partly(format!("under Evaluation: {}", measures.join(", "))));
        }
        known.insert(29, Partly("intervals of 95%, as told under Evaluation".to_owned()));
        if self.evaluations.iter().any(|one| one.has_groups) {
            known.insert(30, Partly("groups of patients, under Evaluation".to_owned()));
        }
        let figures: Vec<String> =
            self.evaluations.iter().flat_map(|one| self.means(one)).collect();
        if !figures.is_empty() {
            known.insert(37, Whole(figures.join("; ")));
        }
        let decides = |of: &serde_json::Value| {
            of["operating_points"].as_object().is_some_and(|points| !points.is_empty())
        };
        if heads().any(|(_, of)| decides(of)) {
            let text = "decisions at each operating point stand under Evaluation, thresholds and calibration \
                        under Operating points and calibration";
            known.insert(38, Whole(text.to_owned()));
        }
        known
    }

    /// The mean AUROC (of numbers the MAE) of each head.
    fn means(&self, one: &Measured) -> Vec<String> {
        let of_head = |head: &crate::report::HeadLabels| {
            let of = &one.heads[&head.name];
            let key = ["auroc", "mae"].into_iter().find(|key| of[*key].is_object())?;
            let figure = estimate(&of[key], "mean");
            let title = format!("{}, {}: mean {}", name(one), head.name, key.to_uppercase());
            (!figure.is_empty()).then(|| format!("{title} {figure}"))
        };
        self.record.start.heads.iter().filter_map(of_head).collect()
    }
}

/// Which images were measured.
fn name(one: &Measured) -> String {
    match &one.data {
        Some(data) => format!("{data}, {}", one.split),
        None => format!("the list {}", one.split),
    }
}
