//! Samples in memory: where their images are and what their labels are. Opened once per run.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::batch::{LabelCounts, Targets};
use super::config::{DataConfig, UncertainPolicy};
use super::error::DataError;
use super::labels::{HeadSource, Origin};
use super::layout::{Column, Kind, Row};
use super::opened::{TableSeal, recorded};
use super::same_image;
use super::source::{Source, open_sources};
use super::split::{self, Sides};
use super::standardize::Standardizer;
use crate::model::{HeadConfig, Task};
use crate::random::stream;

/// One image of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its file, which may not exist: that is found out when it is loaded.
    pub path: PathBuf,
    /// Which image of the file it is, for arrays of images.
    pub item: Option<usize>,
    /// The table that names it.
    pub table: Arc<Path>,
    /// The line of that table, counted from 1 with the header.
    pub line: u64,
    /// The patient it is of, unique in its source: others may have patients of the same name.
    pub patient: String,
    /// Which of [`Splits::sources`] it is from.
    pub source: usize,
}

impl Sample {
    /// Its file and, where that is an array, its number there.
    fn name(&self) -> String {
        match self.item {
            Some(item) => format!("{}[{item}]", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

/// Images and their labels for every head.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    samples: Vec<Sample>,
    /// Per head, `[samples, width]`.
    labels: Vec<Targets>,
    /// Per head: the number of labels or, for `multiclass`, of classes.
    outputs: Vec<HeadShape>,
    /// Per head and label: how many images have it as uncertain, whatever became of that.
    uncertain: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadShape {
    Labels(usize),
    Classes(usize),
    Numbers(usize),
}

impl HeadShape {
    fn of(head: &HeadConfig) -> Self {
        let count = head.labels.len();
        match head.task {
            Task::Multilabel | Task::Binary => Self::Labels(count),
            Task::Multiclass => Self::Classes(count),
            Task::Regression => Self::Numbers(count),
        }
    }

    /// Labels per image.
    fn width(self) -> usize {
        match self {
            Self::Labels(count) | Self::Numbers(count) => count,
            Self::Classes(_) => 1,
        }
    }
}

/// The two sides of the data. No patient is on both.
#[derive(Debug, Clone, PartialEq)]
pub struct Splits {
    /// Images that are trained on.
    pub train: Dataset,
    /// Images that are only looked at.
    pub validation: Dataset,
    /// The official test lists of the sources that have one, from [`open_with_test`].
    pub test: Option<Dataset>,
    /// The data sets' tables below `data`: `chexpert`, or `sources[0].chexpert` and so on.
    pub sources: Vec<String>,
    /// The folder of each data set, in which the paths of its images begin.
    pub roots: Vec<PathBuf>,
    /// Every table that was read.
    pub tables: Vec<TableSeal>,
    /// What a person should know of the tables, a sentence each.
    pub warnings: Vec<String>,
}

/// Opens the data of a configuration: reads its tables (never an image) and, for the phantom, draws
/// it first if need be, with `progress` told how many of how many patients are drawn.
///
/// Every source's rows have the labels of the heads that it supplies; the others are masked. The
/// policy for uncertain labels holds for training. In validation they count as missing: a metric is
/// not computed on labels that were made up.
///
/// # Errors
/// Folders and tables that are missing or wrong, arrays of another shape, an empty side, a patient in
/// two lists of a source, an image of two patients or with two labels or on both sides, whatever
/// [`check_layouts`](super::check_layouts) and
/// [`check_labels`](super::check_labels) refuse.
pub fn open(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Splits, DataError> {
    open_lists(config, heads, seed, Purpose::Training, progress)
}

/// [`open`], and the official test lists too: what `inspect` shows, and no run reads.
///
/// # Errors
/// As [`open`]; also a patient in the test list and in another.
pub fn open_with_test(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Splits, DataError> {
    open_lists(config, heads, seed, Purpose::Inspection, progress)
}

/// [`open_with_test`] for a model to be measured on any of the lists: labels that are uncertain count
/// as missing in all of them, as do those that the data lack.
///
/// # Errors
/// As [`open_with_test`].
pub fn open_for_evaluation(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Splits, DataError> {
    open_lists(config, heads, seed, Purpose::Evaluation, progress)
}

/// Data that a model never saw, to be measured on as a whole: the images of all lists are in
/// [`Splits::validation`], and none is in another list. Labels that the data lack are masked.
///
/// # Errors
/// As [`open`], but for those of a split; also data without a label of any head.
pub fn open_in_full(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Splits, DataError> {
    open_lists(config, heads, seed, Purpose::External, progress)
}

/// What data are opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To train on one side and to validate on the other.
    Training,
    /// To look at, the test list too.
    Inspection,
    /// To measure a model on any of the lists.
    Evaluation,
    /// To measure a model on all images of other data.
    External,
}

impl Purpose {
    /// Whether the official test list is read too.
    pub fn has_test(self) -> bool {
        matches!(self, Self::Inspection | Self::Evaluation)
    }

    /// Whether a data set may lack labels of the heads.
    pub fn may_lack_labels(self) -> bool {
        matches!(self, Self::Evaluation | Self::External)
    }
}

fn open_lists(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    purpose: Purpose,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Splits, DataError> {
    let sources = open_sources(config, heads, purpose.may_lack_labels())?;
    let mut splits = Splits {
        train: Dataset::empty(heads),
        validation: Dataset::empty(heads),
        test: None,
        sources: sources.iter().map(|source| source.name.clone()).collect(),
        roots: sources.iter().map(|source| source.layout.root()).collect(),
        tables: Vec::new(),
        warnings: sources.iter().flat_map(|source| source.warnings.clone()).collect(),
    };
    for (place, source) in sources.iter().enumerate() {
        source.check_root()?;
        source.layout.check_images(&config.image)?;
        source.layout.prepare(&mut progress)?;
        let bound = Bound { place, source, seed };
        let strata = |rows: &[Row]| {
            let mut dataset = Dataset::empty(heads);
            dataset.extend(rows.to_vec(), &bound, |_| UncertainPolicy::Ignore);
            dataset.strata()
        };
        let (sides, tables) =
            recorded(|| split::read(source, &config.validation, seed, purpose, strata));
        let Sides { train, validation, test, warnings } = sides?;
        splits.tables.extend(tables);
        splits.warnings.extend(warnings);
        if purpose != Purpose::External {
            splits.warnings.extend(split::unused_list(source, &config.validation));
        }
        let odd = source.layout.odd_images(&config.image);
        splits
            .warnings
            .extend(odd.map(|odd| format!("the images of `data.{}` {odd}", source.name)));
        splits.train.extend(train, &bound, |finding| match source.layout.uncertain() {
            Some(uncertain) if !purpose.may_lack_labels() => uncertain.policy(finding),
            _ => UncertainPolicy::Ignore,
        });
        splits.validation.extend(validation, &bound, |_| UncertainPolicy::Ignore);
        if let Some(test) = test {
            let all = splits.test.get_or_insert_with(|| Dataset::empty(heads));
            all.extend(test, &bound, |_| UncertainPolicy::Ignore);
        }
    }
    if purpose != Purpose::External {
        splits.warnings.extend(split::unnamed_fold(&config.validation));
    }
    if sources.len() > 1 {
        same_image::check_apart(&splits.train, &splits.validation)?;
    }
    if config.shuffle_labels {
        splits.train.shuffle_labels(seed, 0);
        splits.validation.shuffle_labels(seed, 1);
    }
    Ok(splits)
}

/// A source and what its labels are drawn by.
struct Bound<'a> {
    place: usize,
    source: &'a Source<'a>,
    seed: u64,
}

impl Dataset {
    fn empty(heads: &[HeadConfig]) -> Self {
        let outputs: Vec<HeadShape> = heads.iter().map(HeadShape::of).collect();
        let width = |shape: &HeadShape| shape.width();
        let labels = outputs.iter().map(width);
        Self {
            samples: Vec::new(),
            labels: labels
                .map(|width| Targets { values: Vec::new(), mask: Vec::new(), width })
                .collect(),
            uncertain: outputs.iter().map(|shape| vec![0; shape.width()]).collect(),
            outputs,
        }
    }

    /// Images of which no label is known, for no head.
    pub fn unlabelled(samples: Vec<Sample>) -> Self {
        Self { samples, ..Self::empty(&[]) }
    }

    /// Adds the rows of a source, uncertain labels by `policy`.
    fn extend(&mut self, rows: Vec<Row>, bound: &Bound, policy: impl Fn(&str) -> UncertainPolicy) {
        for (head, origin) in bound.source.heads.iter().enumerate() {
            let labels = &mut self.labels[head];
            for row in &rows {
                bound.encode(row, origin.as_ref(), labels, &policy);
                let uncertain = self.uncertain[head].iter_mut().enumerate();
                uncertain.for_each(|(label, count)| {
                    *count += usize::from(bound.is_uncertain(row, origin.as_ref(), label));
                });
            }
        }
        self.samples.extend(rows.into_iter().map(|row| Sample {
            path: row.path,
            item: row.item,
            table: row.table,
            line: row.line,
            patient: row.patient,
            source: bound.place,
        }));
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

    /// The name of each image: its file and, where that is an array, its number there.
    pub fn names(&self) -> Vec<String> {
        self.samples.iter().map(Sample::name).collect()
    }

    /// The name of the image at `index`, with the line of the table that names it.
    pub fn name_in_table(&self, index: usize) -> String {
        let sample = &self.samples[index];
        format!("`{}` ({}, line {})", sample.name(), sample.table.display(), sample.line)
    }

    /// The patient of each image; where there are several sources with the source's number before it,
    /// since they may have patients of the same name.
    pub fn patients(&self) -> Vec<String> {
        let several = self.samples.iter().any(|sample| sample.source > 0);
        let patient = |sample: &Sample| match several {
            true => format!("{}:{}", sample.source, sample.patient),
            false => sample.patient.clone(),
        };
        self.samples.iter().map(patient).collect()
    }

    /// The targets of head `head` for all images.
    pub(super) fn head_targets(&self, head: usize) -> &Targets {
        &self.labels[head]
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

    /// The images that `is_in` it says.
    pub(super) fn part(&self, is_in: impl Fn(&Sample) -> bool) -> Self {
        let chosen = |place: &usize| is_in(&self.samples[*place]);
        let chosen: Vec<usize> = (0..self.len()).filter(chosen).collect();
        let uncertain = self.uncertain.clone();
        let samples = chosen.iter().map(|place| self.samples[*place].clone()).collect();
        let (labels, outputs) = (self.targets(&chosen), self.outputs.clone());
        Self { samples, labels, outputs, uncertain }
    }

    /// Every label of an image, head by head; none where it is unknown.
    pub(super) fn labels_of(&self, index: usize) -> impl Iterator<Item = Option<f32>> {
        self.labels.iter().flat_map(move |head| {
            let row = index * head.width..(index + 1) * head.width;
            let known = head.values[row.clone()].iter().zip(&head.mask[row]);
            known.map(|(value, mask)| (*mask != 0.0).then_some(*value))
        })
    }

    /// For each head how many classes it has; none for a head that is not `multiclass`.
    pub fn classes(&self) -> Vec<Option<usize>> {
        let classes = |shape: &HeadShape| match shape {
            HeadShape::Classes(count) => Some(*count),
            HeadShape::Labels(_) | HeadShape::Numbers(_) => None,
        };
        self.outputs.iter().map(classes).collect()
    }

    /// How often each label of head `head` is positive and negative; for a head of numbers, how
    /// often each is known, as positives.
    pub fn label_counts(&self, head: usize) -> LabelCounts {
        let labels = &self.labels[head];
        let shape = self.outputs[head];
        let (HeadShape::Labels(count) | HeadShape::Numbers(count) | HeadShape::Classes(count)) =
            shape;
        let (mut positives, mut negatives) = (vec![0.0; count], vec![0.0; count]);
        let mut add = |output: usize, share: f64| {
            positives[output] += share;
            negatives[output] += 1.0 - share;
        };
        let places = labels.values.iter().zip(&labels.mask).enumerate();
        for (place, (&value, _)) in places.filter(|(_, (_, mask))| **mask != 0.0) {
            match shape {
                HeadShape::Labels(_) => add(place % count, f64::from(value)),
                HeadShape::Numbers(_) => add(place % count, 1.0),
                HeadShape::Classes(_) => (0..count)
                    .for_each(|class| add(class, f64::from(u8::from(value as usize == class)))),
            }
        }
        LabelCounts { positives, negatives }
    }

    /// For each image what folds are to have alike: the numbers of its strata, ascending. A stratum is
    /// the images that have a label, or that have it not (a soft label of 0.5 counts as one that they
    /// have), or that are of a class. Numbers and unknown labels make none.
    pub(super) fn strata(&self) -> Vec<Vec<usize>> {
        let mut strata = vec![Vec::new(); self.len()];
        let mut first = 0;
        for (labels, shape) in self.labels.iter().zip(&self.outputs) {
            let rows = labels
                .values
                .chunks_exact(labels.width)
                .zip(labels.mask.chunks_exact(labels.width));
            for (image, (values, mask)) in strata.iter_mut().zip(rows) {
                let known =
                    values.iter().zip(mask).enumerate().filter(|(_, (_, mask))| **mask != 0.0);
                image.extend(known.filter_map(|(label, (&value, _))| match shape {
                    HeadShape::Labels(_) => Some(first + 2 * label + usize::from(value >= 0.5)),
                    HeadShape::Classes(_) => Some(first + value as usize),
                    HeadShape::Numbers(_) => None,
                }));
            }
            first += match shape {
                HeadShape::Labels(count) => 2 * count,
                HeadShape::Classes(count) => *count,
                HeadShape::Numbers(_) => 0,
            };
        }
        strata
    }

    /// How the numbers of head `head` are standardised, and the labels (by their place) of which all
    /// known numbers are the same.
    pub fn standardizer(&self, head: usize) -> (Standardizer, Vec<usize>) {
        Standardizer::fit(self.head_targets(head))
    }

    /// For each label of head `head` how many images have it as uncertain (−1), whatever the policy
    /// made of that: counted as missing, or as positive or negative.
    pub fn uncertain_counts(&self, head: usize) -> &[usize] {
        &self.uncertain[head]
    }

    /// Gives every image the labels of another one, those of all heads together.
    fn shuffle_labels(&mut self, seed: u64, side: u64) {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.shuffle(&mut stream(seed, "shuffle_labels", &[side]));
        self.labels = self.targets(&order);
    }
}

impl Bound<'_> {
    /// Appends a head's labels of a row; masked where the source has none.
    fn encode(
        &self,
        row: &Row,
        origin: Option<&HeadSource>,
        into: &mut Targets,
        policy: &impl Fn(&str) -> UncertainPolicy,
    ) {
        let mut add = |value: Option<f32>| {
            into.values.push(value.unwrap_or(0.0));
            into.mask.push(f32::from(u8::from(value.is_some())));
        };
        match origin {
            None => (0..into.width).for_each(|_| add(None)),
            Some(HeadSource::OneOf { column, classes }) => add(class(row, *column, classes)),
            Some(HeadSource::Each(each)) => {
                let label = |origin: Origin| self.label(row, origin, policy);
                each.iter().for_each(|origin| add(origin.and_then(label)));
            }
        }
    }

    fn is_uncertain(&self, row: &Row, origin: Option<&HeadSource>, label: usize) -> bool {
        let Some(HeadSource::Each(each)) = origin else { return false };
        let finding = |column: usize| self.source.vocabulary.columns[column].kind == Kind::Finding;
        matches!(each[label], Some(Origin::Column(column))
            if finding(column) && row.values[column] == -1.0)
    }

    fn label(
        &self,
        row: &Row,
        origin: Origin,
        policy: &impl Fn(&str) -> UncertainPolicy,
    ) -> Option<f32> {
        let column = match origin {
            Origin::Column(column) => column,
            Origin::IsClass { column, class } => {
                return row.value(column).map(|is| f32::from(u8::from(is as usize == class)));
            }
        };
        let Column { label, kind, .. } = &self.source.vocabulary.columns[column];
        if *kind == Kind::Number {
            return row.value(column);
        }
        row.finding(column, policy(label), |[low, high]| {
            let place = [row.line, column as u64, self.place as u64];
            let mut random = stream(self.seed, "uncertain", &place);
            random.random_range(low..=high) as f32
        })
    }
}

/// The class of the head that the image has; `None` where it is unknown or no class of the head.
fn class(row: &Row, column: usize, classes: &[Option<usize>]) -> Option<f32> {
    let class = row.value(column)? as usize;
    classes.get(class).copied().flatten().map(|class| class as f32)
}

#[cfg(test)]
mod tests;
