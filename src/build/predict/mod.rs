//! Predictions of images by trained models, batch by batch.
//!
//! ```text
//! for each slice of the list of images:
//!     for each way to prepare images (its size, scale, view):
//!         the loader of training makes a batch of the slice; what it cannot read has an error
//!         for each model that sees images so:
//!             outputs → probabilities (calibrated by that model's own fit)
//!     the mean over all of them, and how far they lie apart → decisions, sets
//! ```
//!
//! Nothing about an image depends on which others there are, nor on how many are taken at once.

mod error;
mod heatmaps;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use error::PredictError;
pub use heatmaps::{Heatmap, Heatmaps};

use super::machine::machine;
use super::trained::Trained;
use crate::data::{
    Batch, Cache, Dataset, Epoch, ImageConfig, Loader, LoaderConfig, OnBadImage, View,
};
use crate::evaluate::{
    ConformalHead, Coverage, Decider, Fitted, PredictedImage, PredictedTable, PredictedValue,
    coverage,
};
use crate::model::HeadConfig;
use crate::plan::{Plan, Planner};

/// What is asked for besides the models.
#[derive(Debug, Clone, Default)]
pub struct PredictOptions {
    /// Images of a batch; those of training where it is left out.
    pub batch: Option<usize>,
    /// The operating point to decide at; the first where it is left out.
    pub point: Option<String>,
    /// Whether images are looked at in several ways.
    pub views: bool,
    /// The share of images whose set of decisions may lack the truth.
    pub error: Option<f64>,
    /// Whether calibration and thresholds must be fitted anew, as `[evaluate]` of the plans says: what the
    /// saved states have was fitted by another one.
    pub refit: bool,
}

/// One or several trained models of the same heads.
pub struct Predictor {
    models: Vec<Model>,
    heads: Vec<HeadConfig>,
    /// Decides on the mean over all models, head by head.
    deciders: Vec<Decider>,
    /// Forms sets, head by head; empty where none are asked for.
    conformal: Vec<Option<ConformalHead>>,
    coverage: Vec<LabelCoverage>,
    batch: usize,
    views: bool,
}

struct Model {
    trained: Trained,
    plan: Plan,
    /// Turns outputs into probabilities, head by head.
    deciders: Vec<Decider>,
    /// How many images go through the network at once.
    at_once: usize,
}

impl Predictor {
    /// Of these models, each with the plan it was opened by.
    ///
    /// # Errors
    /// Models of different heads, or what is asked for and cannot be had.
    ///
    /// # Panics
    /// If there is no model.
    pub fn new(
        models: Vec<(Trained, Plan)>,
        options: &PredictOptions,
    ) -> Result<Self, PredictError> {
        let heads = models[0].1.heads.clone();
        let other = models.iter().find(|(_, plan)| !same_labels(&plan.heads, &heads));
        if let Some((other, _)) = other {
            return Err(PredictError::OtherHeads { state: other.state.folder.clone() });
        }
        let varies = |plan: &Plan| View::all(&plan.data.augment).len() > 1;
        if options.views && !models.iter().any(|(_, plan)| varies(plan)) {
            return Err(PredictError::NoViews);
        }
        let batch = options.batch.unwrap_or(models[0].1.train.batch_size).max(1);
        let (conformal, coverage) = match options.error {
            Some(error) => conformal(&models[0], error)?,
            None => (Vec::new(), Vec::new()),
        };
        let models =
            models.into_iter().map(|(trained, plan)| Model::new(trained, plan, options, batch));
        let models: Vec<Model> = models.collect::<Result<_, _>>()?;
        let decider = |head| {
            let of_head: Vec<&Decider> = models.iter().map(|model| &model.deciders[head]).collect();
            Decider::of_ensemble(&of_head)
        };
        let deciders = (0..heads.len()).map(decider).collect();
        let views = options.views;
        Ok(Self { models, heads, deciders, conformal, coverage, batch, views })
    }

    /// What is told of each image.
    pub fn table(&self) -> PredictedTable {
        PredictedTable {
            heads: self.heads.clone(),
            spread: self.views || self.models.len() > 1,
            sets: !self.conformal.is_empty(),
        }
    }

    /// The folders of states that have no calibration and no thresholds.
    pub fn unfitted(&self) -> Vec<&std::path::Path> {
        let fitted = |model: &&Model| model.trained.fitted().is_ok_and(|fitted| fitted.is_none());
        self.models.iter().filter(fitted).map(|model| &*model.trained.state.folder).collect()
    }

    /// What sets of decisions cover of validation images that they were not fitted on, for each label
    /// that has them.
    pub fn coverage(&self) -> &[LabelCoverage] {
        &self.coverage
    }

    /// The predictions of `images`, batch by batch, in their order.
    pub fn predict(&mut self, images: Arc<Dataset>) -> Predictions<'_> {
        let mut feeds: Vec<Feed> = Vec::new();
        for (place, model) in self.models.iter().enumerate() {
            let image = &model.plan.data.image;
            let views = match self.views {
                true => View::all(&model.plan.data.augment),
                false => vec![View::default()],
            };
            for view in views {
                let same = |feed: &&mut Feed| feed.image == *image && feed.view == view;
                match feeds.iter_mut().find(same) {
                    Some(feed) => feed.models.push(place),
                    None => {
                        let loader = self.loader(model, images.clone(), view);
                        let (image, models) = (image.clone(), vec![place]);
                        feeds.push(Feed { image, view, models, batches: loader.epoch(0, 0) });
                    }
                }
            }
        }
        let (names, patients) = (images.names(), images.patients());
        Predictions { predictor: self, feeds, names, patients, done: 0, ended: false }
    }

    /// Batches as evaluation during training makes them, of images that need not be readable.
    fn loader(&self, model: &Model, images: Arc<Dataset>, view: View) -> Loader {
        let Plan { data, run, .. } = &model.plan;
        let config = LoaderConfig {
            view,
            on_bad_image: OnBadImage::Skip,
            ..LoaderConfig::evaluation(data, self.batch, run.seed)
        };
        Loader::new(images, config, Arc::new(Cache::off()))
    }
}

impl Model {
    fn new(
        trained: Trained,
        plan: Plan,
        options: &PredictOptions,
        batch: usize,
    ) -> Result<Self, PredictError> {
        let fitted = fitted(&trained, &plan, options.refit)?;
        let point = options.point.as_deref();
        let of_head = |head: &HeadConfig| {
            let fitted = fitted.as_ref().and_then(|fitted| fitted.heads.get(&head.name));
            Decider::new(head, fitted, point)
        };
        let deciders = plan.heads.iter().map(of_head).collect::<Result<_, _>>()?;
        // What fits in training, which takes more; where nothing does, one image by itself may.
        let machine = machine(plan.device(), trained.inference.device());
        let mut step = plan.clone();
        step.train.batch_size = batch;
        let planner = Planner::choose(&step, machine);
        let at_once = planner.map_or(1, |planner| planner.strategy().micro_batch);
        Ok(Self { trained, plan, deciders, at_once })
    }

    /// For each image of a batch, the value of each label, head by head.
    fn values(&mut self, batch: &Batch) -> Result<Vec<Vec<f64>>, PredictError> {
        let inference = &self.trained.inference;
        let outputs = inference.outputs_within_memory(batch.into(), &mut self.at_once)?;
        let mut rows = vec![Vec::new(); batch.indices.len()];
        for (decider, outputs) in self.deciders.iter().zip(outputs) {
            let values = decider.probabilities(&outputs);
            let width = values.len() / rows.len().max(1);
            for (row, values) in rows.iter_mut().zip(values.chunks_exact(width.max(1))) {
                row.extend_from_slice(values);
            }
        }
        Ok(rows)
    }
}

fn same_labels(ours: &[HeadConfig], theirs: &[HeadConfig]) -> bool {
    let same = |(a, b): (&HeadConfig, &HeadConfig)| {
        a.name == b.name && a.task == b.task && a.labels == b.labels
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
}

/// Calibration and thresholds as the plan's `[evaluate]` asks for them, fitted on the outputs for the
/// validation images; those of the saved state where it does not have these outputs, unless they must be
/// fitted anew.
fn fitted(trained: &Trained, plan: &Plan, refit: bool) -> Result<Option<Fitted>, PredictError> {
    match trained.validation()? {
        Some(validation) => Ok(Some(plan.evaluate.fit(&validation))),
        None if refit => Err(PredictError::NotRefitted { state: trained.state.folder.clone() }),
        None => Ok(trained.fitted()?),
    }
}

/// What sets cover, by the head, the label and the counts.
pub type LabelCoverage = (String, String, Coverage);

/// What forms the sets of each head, and what such sets cover.
fn conformal(
    (trained, plan): &(Trained, Plan),
    error: f64,
) -> Result<(Vec<Option<ConformalHead>>, Vec<LabelCoverage>), PredictError> {
    let folder = &trained.state.folder;
    let none = || PredictError::NoValidation { state: folder.clone() };
    let validation = trained.validation()?.ok_or_else(none)?;
    let fitted = Some(plan.evaluate.fit(&validation));
    let (mut conformal, mut measured) = (Vec::new(), Vec::new());
    for head in &plan.heads {
        let fitted = fitted.as_ref().and_then(|fitted| fitted.heads.get(&head.name));
        let calibration = fitted.and_then(|fitted| fitted.calibration.as_ref());
        let predictions = validation.heads.get(&head.name);
        conformal.push(predictions.and_then(|of| ConformalHead::fit(of, calibration, error)));
        let (patients, seed) = (&validation.patients, plan.run.seed);
        let covered = predictions.and_then(|of| coverage(of, calibration, patients, error, seed));
        let mut covered = covered.unwrap_or_default();
        let labels = head.labels.iter();
        measured.extend(
            labels.filter_map(|label| {
                Some((head.name.clone(), label.clone(), covered.remove(label)?))
            }),
        );
    }
    Ok((conformal, measured))
}

/// Images that are prepared in one way, and the models that see them so.
struct Feed {
    image: ImageConfig,
    view: View,
    models: Vec<usize>,
    batches: Epoch,
}

/// The predictions of a list of images, batch by batch. After an error there are no more.
pub struct Predictions<'a> {
    predictor: &'a mut Predictor,
    feeds: Vec<Feed>,
    names: Vec<String>,
    patients: Vec<String>,
    /// Images of the batches before.
    done: usize,
    ended: bool,
}

/// Some images in a row.
pub struct PredictedBatch {
    /// Their predictions.
    pub images: Vec<PredictedImage>,
    /// The place of the first in the list.
    pub first: usize,
    /// What the first model saw of those that could be read.
    pub seen: Batch,
}

impl Predictions<'_> {
    /// The models, between two batches.
    pub fn predictor(&self) -> &Predictor {
        self.predictor
    }

    fn batch(&mut self) -> Option<Result<PredictedBatch, PredictError>> {
        let (mut values, mut bad) = (BTreeMap::<usize, Vec<Vec<f64>>>::new(), BTreeMap::new());
        let mut first = None;
        let end = self.names.len().min(self.done + self.predictor.batch);
        for feed in &mut self.feeds {
            let batch = match feed.batches.next()? {
                Ok(batch) => batch,
                Err(error) => return Some(Err(error.into())),
            };
            // What was skipped is told in its order.
            let mut skipped = batch.skipped.iter();
            for index in (self.done..end).filter(|index| !batch.indices.contains(index)) {
                bad.extend(skipped.next().map(|image| (index, image.reason.clone())));
            }
            if !batch.indices.is_empty() {
                for &model in &feed.models {
                    match self.predictor.models[model].values(&batch) {
                        Ok(rows) => batch.indices.iter().zip(rows).for_each(|(&index, row)| {
                            values.entry(index).or_default().push(row);
                        }),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
            first.get_or_insert(batch);
        }
        let image = |index: usize| PredictedImage {
            path: self.names[index].clone(),
            patient: self.patients[index].clone(),
            labels: match (bad.remove(&index), values.remove(&index)) {
                (None, Some(values)) => Ok(self.predictor.together(&values)),
                (reason, _) => Err(reason.unwrap_or_else(|| "it was lost".to_owned())),
            },
        };
        let images = (self.done..end).map(image).collect();
        let found = PredictedBatch { images, first: self.done, seen: first? };
        self.done = end;
        Some(Ok(found))
    }
}

impl Iterator for Predictions<'_> {
    type Item = Result<PredictedBatch, PredictError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let found = self.batch();
        self.ended = !matches!(found, Some(Ok(_)));
        found
    }
}

impl Predictor {
    /// What is predicted of an image: `values` has those of every label, for each model and view.
    fn together(&self, values: &[Vec<f64>]) -> Vec<PredictedValue> {
        let count = values.len() as f64;
        let spreads = self.table().spread;
        let label = |place: usize| {
            let of_label = values.iter().map(|values| values[place]);
            let mean = match values {
                [only] => only[place],
                _ => of_label.clone().sum::<f64>() / count,
            };
            let squares = of_label.map(|value| (value - mean).powi(2)).sum::<f64>();
            let spread = spreads.then(|| (squares / count).sqrt());
            PredictedValue { value: mean, decision: None, spread, set: None }
        };
        let mut all: Vec<PredictedValue> = (0..values[0].len()).map(label).collect();
        let mut rest = &mut all[..];
        for (place, head) in self.heads.iter().enumerate() {
            let (labels, others) = rest.split_at_mut(head.outputs());
            let means: Vec<f64> = labels.iter().map(|label| label.value).collect();
            let decisions = self.deciders[place].decisions(&means);
            let conformal = self.conformal.get(place).and_then(Option::as_ref);
            for (at, (label, decision)) in labels.iter_mut().zip(decisions).enumerate() {
                label.decision = decision;
                label.set = conformal.map(|head| head.labels[at].set(label.value));
            }
            rest = others;
        }
        all
    }
}
