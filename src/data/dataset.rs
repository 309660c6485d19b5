//! Samples in memory: where their images are and what their labels are. Opened once per run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::batch::{LabelCounts, Targets};
use super::chexpert::{self, Row};
use super::config::{DataConfig, Uncertain, UncertainPolicy, View};
use super::error::DataError;
use super::labels::{FINDINGS, Family, HeadSource, Source, sources};
use super::phantom::{PhantomSettings, ensure_phantom};
use super::split;
use crate::model::HeadConfig;
use crate::random::stream;

/// One image of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its file, which may not exist: that is found out when it is loaded.
    pub path: PathBuf,
    /// The table that names it.
    pub table: Arc<Path>,
    /// The line of that table, counted from 1 with the header.
    pub line: u64,
    /// The patient it is of.
    pub patient: String,
}

/// Images and their labels for every head.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    samples: Vec<Sample>,
    /// Per head, `[samples, width]`.
    labels: Vec<Targets>,
    /// Per head: the number of labels or, for `multiclass`, of classes.
    outputs: Vec<HeadShape>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadShape {
    Labels(usize),
    Classes(usize),
    Numbers(usize),
}

/// The two sides of the data. No patient is on both.
#[derive(Debug, Clone, PartialEq)]
pub struct Splits {
    /// Images that are trained on.
    pub train: Dataset,
    /// Images that are only looked at.
    pub validation: Dataset,
}

/// Opens the data of a configuration: reads its tables (never an image) and, for the phantom, draws
/// it first if need be, with `progress` told how many of how many patients are drawn.
///
/// The policy for uncertain labels holds for training. In validation they count as missing: a
/// metric is not computed on labels that were made up.
///
/// # Errors
/// Tables that are missing or wrong, an empty side, a patient on both sides, heads whose labels
/// [`check_labels`](super::check_labels) refuses.
pub fn open(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    progress: impl FnMut(usize, usize),
) -> Result<Splits, DataError> {
    let sources = sources(heads).map_err(|fault| DataError::Config(fault.message))?;
    let layout = match (&config.chexpert, &config.phantom) {
        (Some(layout), None) => {
            Layout { root: &layout.root, uncertain: &layout.uncertain, views: &layout.views }
        }
        (None, Some(layout)) => {
            ensure_phantom(&PhantomSettings::from(layout), progress)?;
            Layout { root: &layout.root, uncertain: &layout.uncertain, views: &layout.views }
        }
        _ => {
            let message = "exactly one of `data.chexpert` and `data.phantom` must be given";
            return Err(DataError::Config(message.to_owned()));
        }
    };
    let (train, validation) = layout.read(config.validation.fraction, &sources, seed)?;
    let policy = |finding: usize| layout.uncertain.policy(FINDINGS[finding]);
    let mut splits = Splits {
        train: Dataset::new(train, &sources, seed, policy),
        validation: Dataset::new(validation, &sources, seed, |_| UncertainPolicy::Ignore),
    };
    if config.shuffle_labels {
        splits.train.shuffle_labels(seed, 0);
        splits.validation.shuffle_labels(seed, 1);
    }
    Ok(splits)
}

/// What the layouts' tables have in common.
struct Layout<'a> {
    root: &'a Path,
    uncertain: &'a Uncertain,
    views: &'a Option<Vec<View>>,
}

impl Layout<'_> {
    /// The rows of both sides.
    fn read(
        &self,
        fraction: Option<f64>,
        sources: &[HeadSource],
        seed: u64,
    ) -> Result<(Vec<Row>, Vec<Row>), DataError> {
        let mut needed: Vec<&'static str> = sources.iter().flat_map(HeadSource::columns).collect();
        if self.views.is_some() {
            needed.extend(Family::View.columns());
        }
        let Some(fraction) = fraction else {
            let train = self.table(chexpert::TRAIN, &needed)?;
            let validation = self.table(chexpert::VALID, &needed)?;
            split::check_disjoint(&train, &validation)?;
            return Ok((train, validation));
        };
        let rows = self.table(chexpert::TRAIN, &needed)?;
        let sides = split::by_patient(&rows, fraction, seed)?;
        let (mut train, mut validation) = (Vec::new(), Vec::new());
        for (row, set_aside) in rows.into_iter().zip(sides) {
            if set_aside { validation.push(row) } else { train.push(row) }
        }
        Ok((train, validation))
    }

    fn table(&self, name: &str, needed: &[&'static str]) -> Result<Vec<Row>, DataError> {
        let mut rows = chexpert::read_table(self.root, name, needed)?;
        if let Some(views) = self.views {
            rows.retain(|row| row.view.is_some_and(|view| views.contains(&view)));
        }
        if rows.is_empty() {
            let reason = "no row has one of the `views`".to_owned();
            return Err(DataError::NoImages { table: self.root.join(name), reason });
        }
        Ok(rows)
    }
}

impl Dataset {
    fn new(
        rows: Vec<Row>,
        sources: &[HeadSource],
        seed: u64,
        policy: impl Fn(usize) -> UncertainPolicy,
    ) -> Self {
        let labels = sources.iter().map(|source| encode(&rows, source, seed, &policy)).collect();
        let outputs = sources.iter().map(|source| match source {
            HeadSource::OneOf { classes, .. } => HeadShape::Classes(classes.len()),
            HeadSource::Each(each) if each.contains(&Source::Age) => HeadShape::Numbers(each.len()),
            HeadSource::Each(each) => HeadShape::Labels(each.len()),
        });
        let outputs = outputs.collect();
        let samples = rows.into_iter().map(|row| Sample {
            path: row.path,
            table: row.table,
            line: row.line,
            patient: row.patient,
        });
        Self { samples: samples.collect(), labels, outputs }
    }

    /// How many images.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The images, in the order of their table.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The targets of every head for the images at `indices`, in that order.
    pub fn targets(&self, indices: &[usize]) -> Vec<Targets> {
        let chosen = |head: &Targets| {
            let pick = |values: &[f32]| -> Vec<f32> {
                let rows = indices.iter().map(|index| index * head.width);
                rows.flat_map(|start| values[start..start + head.width].iter().copied()).collect()
            };
            Targets { values: pick(&head.values), mask: pick(&head.mask), width: head.width }
        };
        self.labels.iter().map(chosen).collect()
    }

    /// How often each label of head `head` is positive and negative; for a head of numbers, how
    /// often each is known, as positives.
    pub fn label_counts(&self, head: usize) -> LabelCounts {
        let labels = &self.labels[head];
        let (count, classes) = match self.outputs[head] {
            HeadShape::Labels(count) | HeadShape::Numbers(count) => (count, false),
            HeadShape::Classes(count) => (count, true),
        };
        let numbers = matches!(self.outputs[head], HeadShape::Numbers(_));
        let (mut positives, mut negatives) = (vec![0.0; count], vec![0.0; count]);
        for (place, (&value, &mask)) in labels.values.iter().zip(&labels.mask).enumerate() {
            if mask == 0.0 {
                continue;
            }
            for output in 0..count {
                let share = match (classes, place % labels.width == output) {
                    (true, _) => f64::from(u8::from(value as usize == output)),
                    (false, true) if numbers => 1.0,
                    (false, true) => f64::from(value),
                    (false, false) => continue,
                };
                positives[output] += share;
                negatives[output] += 1.0 - share;
            }
        }
        LabelCounts { positives, negatives }
    }

    /// Gives every image the labels of another one, those of all heads together.
    fn shuffle_labels(&mut self, seed: u64, side: u64) {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.shuffle(&mut stream(seed, "shuffle_labels", &[side]));
        self.labels = self.targets(&order);
    }
}

fn encode(
    rows: &[Row],
    source: &HeadSource,
    seed: u64,
    policy: &impl Fn(usize) -> UncertainPolicy,
) -> Targets {
    let width = source.width();
    let known: Vec<Option<f32>> = rows
        .iter()
        .flat_map(|row| match source {
            HeadSource::OneOf { family, classes } => vec![class(row, *family, classes)],
            HeadSource::Each(each) => {
                each.iter().map(|source| label(row, *source, seed, policy)).collect()
            }
        })
        .collect();
    Targets {
        values: known.iter().map(|value| value.unwrap_or(0.0)).collect(),
        mask: known.iter().map(|value| f32::from(u8::from(value.is_some()))).collect(),
        width,
    }
}

/// The class of the head that the image has; `None` where it is unknown or no class of the head.
fn class(row: &Row, family: Family, classes: &[usize]) -> Option<f32> {
    let class = match family {
        Family::View => match row.view? {
            View::Pa => 0,
            View::Ap => 1,
            View::Lateral => 2,
        },
        Family::Side => usize::from(row.lateral?),
        Family::Sex => usize::from(!row.female?),
    };
    classes.iter().position(|wanted| *wanted == class).map(|place| place as f32)
}

fn label(
    row: &Row,
    source: Source,
    seed: u64,
    policy: &impl Fn(usize) -> UncertainPolicy,
) -> Option<f32> {
    let finding = match source {
        Source::Age => return row.age,
        Source::IsSex(sex) => {
            return row.female.map(|female| f32::from(u8::from(usize::from(!female) == sex)));
        }
        Source::Finding(finding) => finding,
    };
    match row.findings[finding]? {
        label if label >= 0.0 => Some(label),
        _ => match policy(finding) {
            UncertainPolicy::Ignore => None,
            UncertainPolicy::Zeros => Some(0.0),
            UncertainPolicy::Ones => Some(1.0),
            UncertainPolicy::Smooth([low, high]) => {
                let mut random = stream(seed, "uncertain", &[row.line, finding as u64]);
                Some(random.random_range(low..=high) as f32)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TABLE: &str = "\
Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture
train/patient1/study1/view1_frontal.png,Female,61,Frontal,AP,1.0,
train/patient1/study1/view2_lateral.png,Female,61,Lateral,,1.0,-1.0
train/patient2/study1/view1_frontal.png,Male,30,Frontal,PA,-1.0,0.0
train/patient3/study1/view1_frontal.png,Unknown,,Frontal,PA,0.0,-1.0
";
    const VALID: &str = "\
Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture
valid/patient9/study1/view1_frontal.png,Male,50,Frontal,PA,-1.0,1.0
";

    fn heads() -> Vec<HeadConfig> {
        let head = |task: &str, labels: &[&str]| {
            let text = format!("name = 'h'\ntask = '{task}'\nlabels = {labels:?}");
            toml::from_str(&text).expect("reads")
        };
        vec![
            head("multilabel", &["Edema", "Fracture"]),
            head("multiclass", &["PA", "Lateral"]),
            head("binary", &["Male"]),
            head("regression", &["Age"]),
        ]
    }

    fn open_with(settings: &str) -> Result<Splits, DataError> {
        let folder = tempfile::tempdir().expect("is made");
        fs::write(folder.path().join("train.csv"), TABLE).expect("is written");
        fs::write(folder.path().join("valid.csv"), VALID).expect("is written");
        let (data, layout) = settings.split_once('|').expect("has two parts");
        let text = format!(
            "image = {{ size = [32, 32] }}\n{data}\n[chexpert]\nroot = {:?}\n{layout}",
            folder.path()
        );
        open(&toml::from_str(&text).expect("reads"), &heads(), 3, |_, _| {})
    }

    #[test]
    fn labels_are_encoded_per_head_and_unknown_ones_masked() {
        let splits = open_with("|uncertain = 'ones'").expect("opens");
        assert_eq!((splits.train.len(), splits.validation.len()), (4, 1));
        let [findings, views, male, age] = &splits.train.labels[..] else { panic!("four heads") };
        assert_eq!(findings.values, [1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(findings.mask, [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(
            (&views.values[..], &views.mask[..]),
            (&[0.0, 1.0, 0.0, 0.0][..], &[0.0, 1.0, 1.0, 1.0][..])
        );
        assert_eq!(
            (&male.values[..], &male.mask[..]),
            (&[0.0, 0.0, 1.0, 0.0][..], &[1.0, 1.0, 1.0, 0.0][..])
        );
        assert_eq!(
            (&age.values[..], &age.mask[..]),
            (&[61.0, 61.0, 30.0, 0.0][..], &[1.0, 1.0, 1.0, 0.0][..])
        );
    }

    #[test]
    fn uncertain_labels_follow_their_policy_in_training_and_are_missing_in_validation() {
        let edema = |policy: &str| {
            let splits = open_with(&format!("|uncertain = {policy}")).expect("opens");
            assert_eq!(splits.validation.labels[0].mask, [0.0, 1.0]);
            let head = &splits.train.labels[0];
            (head.values[4], head.mask[4])
        };
        assert_eq!(edema("'ignore'"), (0.0, 0.0));
        assert_eq!(edema("'zeros'"), (0.0, 1.0));
        assert_eq!(edema("{ default = 'zeros', Edema = 'ones' }"), (1.0, 1.0));
        let (value, mask) = edema("{ smooth = [0.55, 0.85] }");
        assert!((0.55..=0.85).contains(&value) && mask == 1.0);
        assert_eq!(edema("{ smooth = [0.55, 0.85] }"), (value, mask));
        let splits = open_with("|uncertain = { smooth = [0.55, 0.85] }").expect("opens");
        let fractures = [splits.train.labels[0].values[3], splits.train.labels[0].values[7]];
        assert_ne!(fractures[0], fractures[1], "each row draws its own");
    }

    #[test]
    fn views_leave_only_their_images() {
        let splits = open_with("|views = ['PA']").expect("opens");
        assert_eq!(splits.train.samples().iter().map(|s| s.line).collect::<Vec<_>>(), [4, 5]);
        let error = open_with("|views = ['Lateral']").expect_err("is refused").to_string();
        assert!(
            error.contains("valid.csv` leaves no image: no row has one of the `views`"),
            "{error}"
        );
    }

    #[test]
    fn counts_are_of_known_labels() {
        let counts =
            |head| open_with("|uncertain = 'ones'").expect("opens").train.label_counts(head);
        assert_eq!(counts(0), LabelCounts { positives: vec![3.0, 2.0], negatives: vec![1.0, 1.0] });
        assert_eq!(counts(1), LabelCounts { positives: vec![2.0, 1.0], negatives: vec![1.0, 2.0] });
        assert_eq!(counts(2), LabelCounts { positives: vec![1.0], negatives: vec![2.0] });
        assert_eq!(counts(3), LabelCounts { positives: vec![3.0], negatives: vec![0.0] });
    }

    #[test]
    fn a_fraction_splits_the_training_list_by_patient() {
        let splits = open_with("validation = { fraction = 0.34 }|").expect("opens");
        let patients = |side: &Dataset| -> std::collections::BTreeSet<String> {
            side.samples().iter().map(|sample| sample.patient.clone()).collect()
        };
        assert_eq!(splits.train.len() + splits.validation.len(), 4);
        assert_eq!(patients(&splits.validation).len(), 1);
        assert!(patients(&splits.train).is_disjoint(&patients(&splits.validation)));
    }

    #[test]
    fn shuffled_labels_are_the_same_rows_in_another_order() {
        let folder = tempfile::tempdir().expect("is made");
        let mut table = TABLE.lines().next().expect("has a header").to_owned();
        for patient in 0..60 {
            table += &format!("\ntrain/patient{patient}/s/v.png,Male,{patient},Frontal,PA,1,0");
        }
        fs::write(folder.path().join("train.csv"), table).expect("is written");
        let ages = |shuffle| {
            let text = format!(
                "image = {{ size = [32, 32] }}\nvalidation = {{ fraction = 0.5 }}\n\
                 shuffle_labels = {shuffle}\n[chexpert]\nroot = {:?}",
                folder.path()
            );
            let config = toml::from_str(&text).expect("reads");
            open(&config, &heads(), 3, |_, _| {}).expect("opens").train.labels[3].values.clone()
        };
        let (plain, shuffled) = (ages(false), ages(true));
        assert_ne!(plain, shuffled);
        assert_eq!(shuffled, ages(true));
        let sorted = |mut ages: Vec<f32>| {
            ages.sort_by(f32::total_cmp);
            ages
        };
        assert_eq!(sorted(plain), sorted(shuffled));
    }
}
