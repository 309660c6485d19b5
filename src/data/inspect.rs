//! What a data set holds: counts of labels, sizes and depths of images, images that cannot be read,
//! and images that are there more than once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;

use super::config::{DataConfig, LayoutTables, Uncertain, UncertainPolicy};
use super::dataset::{Dataset, Sample, Splits, open, open_with_test};
use super::error::DataError;
use super::image::{Colour, RawImage, Samples, read_image};
use super::phantom::untold;
use super::spread::Numbers;
use crate::model::{HeadConfig, Task};
use crate::screen::counted;

/// What a data set holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// `train`, `validation` and, where the layout has one, `test`.
    pub splits: Vec<SplitCounts>,
    /// Every fold, in their order, where patients are cut into folds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folds: Vec<SplitCounts>,
    /// What was found in the files; none where they were not to be read.
    pub images: Option<ImageCounts>,
    /// What a run would say of the data when it starts.
    pub warnings: Vec<String>,
}

/// What a split holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitCounts {
    /// `train`, `validation` or `test`; of a fold `validation`, as the fold is in its turn.
    pub split: &'static str,
    /// Rows of the tables.
    pub images: usize,
    /// Patients of those.
    pub patients: usize,
    /// For each head, by its name, each label with its counts.
    pub heads: BTreeMap<String, BTreeMap<String, Counts>>,
    /// Of each source, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceCounts>,
}

/// How often a label (or a class) is what, in the tables and for the run; of a number, also its spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Counts {
    /// Of a label or a class.
    Class(ClassCounts),
    /// Of a label of a `regression` head.
    Number {
        /// Images whose number is known.
        known: usize,
        /// Images of which nothing is known.
        missing: usize,
        /// Their spread, where some are known.
        #[serde(skip_serializing_if = "Option::is_none")]
        numbers: Option<Numbers>,
    },
}

impl Counts {
    /// Images of which the label is known, uncertain ones too.
    fn known(&self) -> usize {
        match self {
            Self::Class(counts) => counts.positive + counts.negative + counts.uncertain,
            Self::Number { known, .. } => *known,
        }
    }
}

/// How often a label (or a class) is what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClassCounts {
    /// Images that have it.
    pub positive: usize,
    /// Images that have it not.
    pub negative: usize,
    /// Images labelled −1.
    pub uncertain: usize,
    /// Images of which nothing is known.
    pub missing: usize,
    /// What the loss sees as positive, uncertain labels by their policy; soft labels count as their
    /// value.
    pub used_positive: f64,
    /// What the loss sees as negative.
    pub used_negative: f64,
}

/// What of a split is from one of several sources.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceCounts {
    /// Its table below `data`, such as `sources[1].csv`.
    pub source: String,
    /// Its rows.
    pub images: usize,
    /// Patients of those.
    pub patients: usize,
    /// For each head, by its name, of how many images each label is known: for a `multiclass` head
    /// how many are of each class.
    pub heads: BTreeMap<String, BTreeMap<String, usize>>,
}

/// What was found in the files.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ImageCounts {
    /// How many images have which size, the most frequent first.
    pub sizes: Vec<SizeCount>,
    /// How many images store how many bits a sample.
    pub depths: Vec<DepthCount>,
    /// The least and the greatest number of images whose numbers are taken as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f32; 2]>,
    /// Images that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Groups of images with the same pixels.
    pub duplicates: Vec<Duplicates>,
}

/// How many images have a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// How many.
    pub images: usize,
}

/// How many images have a depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DepthCount {
    /// Bits of a sample.
    pub bits: u8,
    /// How many.
    pub images: usize,
}

/// Where an image is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// `train`, `validation` or `test`.
    pub split: &'static str,
    /// Its file.
    pub path: PathBuf,
    /// The table that names it.
    pub table: PathBuf,
    /// The line of that table, counted from 1 with the header.
    pub line: u64,
    /// The patient it is of.
    pub patient: String,
}

/// An image that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Where it is listed.
    #[serde(flatten)]
    pub listed: Listed,
    /// What is wrong with it.
    pub reason: String,
}

/// Images with the same pixels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Whether they are in more than one split: what is tested on was trained on.
    pub across_splits: bool,
    /// Whether a label that is known of several of them is not the same for all.
    pub labels_differ: bool,
    /// At least two.
    pub images: Vec<Listed>,
}

/// Reads the tables of a configuration and, with `read_images`, every image; `drawing` is told how many
/// of how many patients of a phantom are drawn, `progress` how many of how many images are read. `told`
/// says what a run would say of the data when it starts.
///
/// # Errors
/// Those of [`super::open`]; an image that cannot be read is none.
pub fn inspect(
    config: &DataConfig,
    heads: &[HeadConfig],
    seed: u64,
    read_images: bool,
    drawing: impl FnMut(usize, usize) -> ControlFlow<()>,
    progress: impl Fn(usize, usize) + Sync,
    told: impl FnOnce(&Splits) -> Vec<String>,
) -> Result<Inspection, DataError> {
    let used = open_with_test(config, heads, seed, drawing)?;
    let written = open_with_test(&config.ignoring_uncertain(), heads, seed, untold)?;
    let splits = sides(&used).zip(sides(&written));
    let splits =
        splits.map(|((split, used), (_, written))| split_counts(split, used, written, heads));
    let mut splits: Vec<SplitCounts> = splits.collect();
    let folds = (1..=config.validation.folds.unwrap_or(0)).map(|fold| {
        let mut config = config.clone();
        config.validation.fold = Some(fold);
        let splits = open(&config, heads, seed, untold)?;
        Ok(split_counts("validation", &splits.validation, &splits.validation, heads))
    });
    let folds = folds.collect::<Result<Vec<SplitCounts>, DataError>>()?;
    if used.sources.len() > 1 {
        for (counts, (_, dataset)) in splits.iter_mut().zip(sides(&written)) {
            counts.sources = of_sources(&written.sources, dataset, heads);
        }
    }
    let images = read_images.then(|| {
        let places: Vec<Place> = sides(&written)
            .flat_map(|(split, dataset)| {
                (0..dataset.len()).map(move |index| Place { split, dataset, index })
            })
            .collect();
        image_counts(&places, config.workers, progress)
    });
    let mut warnings = told(&used);
    warnings.extend(images.iter().flat_map(|images| copies(&images.duplicates)));
    Ok(Inspection { splits, folds, images, warnings })
}

/// What a split holds, its labels as they are `used` by a run and as they are `written`.
fn split_counts(
    split: &'static str,
    used: &Dataset,
    written: &Dataset,
    heads: &[HeadConfig],
) -> SplitCounts {
    let patients: std::collections::BTreeSet<(usize, &str)> =
        used.samples().iter().map(|one| (one.source, one.patient.as_str())).collect();
    let heads = heads.iter().enumerate();
    let heads = heads.map(|(place, head)| (head.name.clone(), counts(written, used, place, head)));
    SplitCounts {
        split,
        images: used.len(),
        patients: patients.len(),
        heads: heads.collect(),
        sources: Vec::new(),
    }
}

/// An image and what the tables say of it.
#[derive(Clone, Copy)]
struct Place<'a> {
    split: &'static str,
    dataset: &'a Dataset,
    index: usize,
}

impl<'a> Place<'a> {
    fn sample(self) -> &'a Sample {
        &self.dataset.samples()[self.index]
    }

    fn listed(self) -> Listed {
        let sample = self.sample();
        Listed {
            split: self.split,
            path: sample.path.clone(),
            table: sample.table.to_path_buf(),
            line: sample.line,
            patient: sample.patient.clone(),
        }
    }
}

/// What a person should know of images with the same pixels, a sentence each.
fn copies(groups: &[Duplicates]) -> impl Iterator<Item = String> {
    let count = |chosen: fn(&Duplicates) -> bool| {
        let count = groups.iter().filter(|group| chosen(group)).count();
        (count > 0).then(|| counted(count, "group of images", "groups of images"))
    };
    let across = count(|group| group.across_splits).map(|groups| {
        format!(
            "copies of an image are on both sides of the split ({groups} with the same pixels, listed \
             above), so what is validated on was trained on: remove all but one of each, or give them \
             the same patient"
        )
    });
    let differ = count(|group| group.labels_differ).map(|groups| {
        format!(
            "copies of an image have labels that contradict each other ({groups} with the same \
             pixels, listed above): keep the row that is right and remove the others"
        )
    });
    across.into_iter().chain(differ)
}

fn sides(splits: &Splits) -> impl Iterator<Item = (&'static str, &Dataset)> {
    let test = splits.test.as_ref().map(|test| ("test", test));
    [("train", &splits.train), ("validation", &splits.validation)].into_iter().chain(test)
}

/// What a split has of each source.
fn of_sources(sources: &[String], dataset: &Dataset, heads: &[HeadConfig]) -> Vec<SourceCounts> {
    let of = |(place, source): (usize, &String)| {
        let part = dataset.part(|sample| sample.source == place);
        let patients: std::collections::BTreeSet<&str> =
            part.samples().iter().map(|sample| sample.patient.as_str()).collect();
        let known = |(place, head): (usize, &HeadConfig)| {
            let known = counts(&part, &part, place, head).into_iter().map(|(label, counts)| {
                let known = match (head.task, counts) {
                    (Task::Multiclass, Counts::Class(class)) => class.positive,
                    (_, counts) => counts.known(),
                };
                (label, known)
            });
            (head.name.clone(), known.collect())
        };
        SourceCounts {
            source: source.clone(),
            images: part.len(),
            patients: patients.len(),
            heads: heads.iter().enumerate().map(known).collect(),
        }
    };
    sources.iter().enumerate().map(of).collect()
}

fn counts(
    written: &Dataset,
    used: &Dataset,
    place: usize,
    head: &HeadConfig,
) -> BTreeMap<String, Counts> {
    let (known, seen) = (written.label_counts(place), used.label_counts(place));
    let uncertain = written.uncertain_counts(place);
    let of = |(index, label): (usize, &String)| {
        // Soft labels of the data set itself are between; whoever is nearer to 1 is positive.
        let positive = known.positives[index].round() as usize;
        let negative = known.negatives[index].round() as usize;
        let uncertain = match head.task {
            Task::Multilabel | Task::Binary => uncertain.get(index).copied().unwrap_or_default(),
            Task::Multiclass | Task::Regression => 0,
        };
        let missing = written.len().saturating_sub(positive + negative + uncertain);
        let counts = match head.task {
            Task::Regression => Counts::Number {
                known: positive,
                missing,
                numbers: Numbers::of(written.head_targets(place).known(index)),
            },
            _ => Counts::Class(ClassCounts {
                positive,
                negative,
                uncertain,
                missing,
                used_positive: seen.positives[index],
                used_negative: seen.negatives[index],
            }),
        };
        (label.clone(), counts)
    };
    head.labels.iter().enumerate().map(of).collect()
}

impl DataConfig {
    /// The same, but that uncertain labels stay unknown.
    fn ignoring_uncertain(&self) -> Self {
        let mut config = self.clone();
        let sources = config.sources.iter_mut().map(|source| &mut source.layout);
        for LayoutTables { chexpert, mimic, csv, phantom, .. } in
            sources.chain([&mut config.layout])
        {
            let policies = [
                chexpert.as_mut().map(|layout| &mut layout.uncertain),
                mimic.as_mut().map(|layout| &mut layout.uncertain),
                csv.as_mut().map(|layout| &mut layout.uncertain),
                phantom.as_mut().map(|layout| &mut layout.uncertain),
            ];
            for policy in policies.into_iter().flatten() {
                *policy = Uncertain::All(UncertainPolicy::Ignore);
            }
        }
        config
    }
}

/// What one image is.
struct Look {
    size: [usize; 2],
    depth: u8,
    range: Option<[f32; 2]>,
    /// Of its pixels, so that the same image in another file format is found too.
    content: [u8; 32],
}

fn look(sample: &Sample) -> Result<Look, String> {
    let RawImage { width, height, planes, samples, depth } =
        read_image(&sample.path, sample.item, None, Colour::Luma)?;
    let range = samples.range();
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{width} {height} {planes}").as_bytes());
    match samples {
        Samples::U8(values) => {
            hasher.update(&values);
        }
        Samples::U16(values) => {
            for chunk in values.chunks(4096) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
                hasher.update(&bytes);
            }
        }
        Samples::F32(values) => {
            for chunk in values.chunks(4096) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
                hasher.update(&bytes);
            }
        }
    }
    Ok(Look { size: [width, height], depth, range, content: hasher.finalize().into() })
}

fn image_counts(
    places: &[Place],
    workers: Option<usize>,
    progress: impl Fn(usize, usize) + Sync,
) -> ImageCounts {
    let looks = look_at_all(places, workers, progress);
    let (mut sizes, mut depths) = (BTreeMap::new(), BTreeMap::new());
    let mut groups: BTreeMap<[u8; 32], Vec<usize>> = BTreeMap::new();
    let mut found = ImageCounts::default();
    for (place, look) in looks.into_iter().enumerate() {
        match look {
            Ok(Look { size, depth, range, content }) => {
                *sizes.entry(size).or_insert(0) += 1;
                *depths.entry(depth).or_insert(0) += 1;
                groups.entry(content).or_default().push(place);
                let ends = found.range.into_iter().chain(range);
                found.range = ends.reduce(|[low, high], one| [low.min(one[0]), high.max(one[1])]);
            }
            Err(reason) => {
                found.unreadable.push(Unreadable { listed: places[place].listed(), reason });
            }
        }
    }
    found.sizes = sizes
        .into_iter()
        .map(|([width, height], images)| SizeCount { width, height, images })
        .collect();
    found.sizes.sort_by_key(|size| std::cmp::Reverse(size.images));
    found.depths = depths.into_iter().map(|(bits, images)| DepthCount { bits, images }).collect();
    let mut groups: Vec<Vec<usize>> =
        groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort();
    found.duplicates = groups
        .into_iter()
        .map(|group| Duplicates {
            across_splits: group.iter().any(|at| places[*at].split != places[group[0]].split),
            labels_differ: labels_differ(&group, places),
            images: group.into_iter().map(|at| places[at].listed()).collect(),
        })
        .collect();
    found
}

fn look_at_all(
    places: &[Place],
    workers: Option<usize>,
    progress: impl Fn(usize, usize) + Sync,
) -> Vec<Result<Look, String>> {
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let looks: Mutex<Vec<Option<Result<Look, String>>>> =
        Mutex::new(places.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..workers.unwrap_or_else(cores).max(1) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(image) = places.get(place) else { return };
                    let look = look(image.sample());
                    looks.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(look);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, places.len());
                }
            });
        }
    });
    let looks = looks.into_inner().unwrap_or_else(PoisonError::into_inner);
    looks
        .into_iter()
        .map(|look| look.unwrap_or_else(|| Err("it was not looked at".to_owned())))
        .collect()
}

/// Whether what is known of a label differs within a group.
fn labels_differ(group: &[usize], places: &[Place]) -> bool {
    let mut known: Vec<Option<f32>> = Vec::new();
    for Place { dataset, index, .. } in group.iter().map(|at| places[*at]) {
        let labels: Vec<Option<f32>> = dataset.labels_of(index).collect();
        known.resize(labels.len(), None);
        for (known, label) in known.iter_mut().zip(labels) {
            if known.zip(label).is_some_and(|(known, label)| known != label) {
                return true;
            }
            *known = known.or(label);
        }
    }
    false
}
