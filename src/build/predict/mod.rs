//! Predictions of images by trained models, batch by batch.
//!
//! ```text
//! for each slice of the list of images:
//!     for each way to prepare images (its size, scale, view):
//!         the loader of training makes a batch of the slice; what it cannot read has an error
//!         for each model that sees images so:
//!             outputs
//!     of several views of a model, the mean of the calibrated probabilities (`evaluate::mean_outputs`)
//!     of several models likewise, as `trainer eval` takes it
//!     what is fitted to that → probabilities, decisions, sets; and how far all lie apart
//! ```
//!
//! Nothing about an image depends on which others there are, nor on how many are taken at once.

mod error;
mod heatmaps;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub use error::PredictError;
pub use heatmaps::{Heatmap, Heatmaps};

use super::evaluate::{List, open_list};
use super::machine::machine;
use super::trained::Trained;
use crate::data::{
    Batch, Cache, Dataset, ImageConfig, Loader, LoaderConfig, OnBadImage, SharedBatches, View,
    upcoming,
};
use crate::evaluate::{
    Calibration, ConformalHead, Coverage, Decider, EnsembleFit, Fitted, MeasuredTable,
    PredictedLabel, PredictedSet, Prediction, PredictionColumns, PredictionHeader, PredictionTable,
    coverage, ensemble, fit_ensemble, in_common, mean_outputs,
};
use crate::model::{HeadConfig, Task};
use crate::plan::{Plan, Planner};
use crate::report::Counting;
use crate::run::list_outputs;

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
    /// Decides on what all models say together, head by head.
    deciders: Vec<Decider>,
    /// What a person should know of how that is decided.
    warning: Option<&'static str>,
    /// Forms sets, head by head; empty where none are asked for.
    conformal: Vec<Option<ConformalHead>>,
    coverage: Vec<LabelCoverage>,
    batch: usize,
    views: bool,
}

struct Model {
    trained: Trained,
    plan: Plan,
    /// What its outputs are calibrated and decided by.
    fitted: Option<Fitted>,
    /// Its outputs for the validation images.
    validation: Option<PredictionTable>,
    /// Turns its outputs into probabilities, head by head.
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
        let models = models
            .into_iter()
            .map(|(trained, plan)| Model::new(trained, plan, batch, options.refit));
        let models: Vec<Model> = models.collect::<Result<_, _>>()?;
        if let [_, _, ..] = &models[..]
            && let Some(model) = models.iter().find(|model| model.fitted.is_none())
        {
            let state = model.trained.state.folder.clone();
            return Err(PredictError::UnfittedMember { state });
        }
        let (fitted, warning, validation) = fitted_together(&models, options.views);
        let (conformal, coverage) = match options.error {
            Some(error) => {
                let validation = of_validation(&models, validation, options.views)?;
                let seed = models[0].plan.run.seed;
                conformal(&validation.measured(fitted.as_ref()), &heads, error, seed)
            }
            None => (Vec::new(), Vec::new()),
        };
        let decider = |head: &HeadConfig| {
            let fitted = fitted.as_ref().and_then(|fitted| fitted.heads.get(&head.name));
            Decider::new(head, fitted, options.point.as_deref())
        };
        let deciders = heads.iter().map(decider).collect::<Result<_, _>>()?;
        let views = options.views;
        Ok(Self { models, heads, deciders, warning, conformal, coverage, batch, views })
    }

    /// The heads, in the order of the configuration.
    pub fn heads(&self) -> &[HeadConfig] {
        &self.heads
    }

    /// What is told of each image.
    pub fn header(&self) -> PredictionHeader {
        let of_head = |head: &HeadConfig| {
            let decides = head.task != Task::Regression;
            let columns = PredictionColumns {
                head: head.name.clone(),
                decision: decides,
                spread: self.views || self.models.len() > 1,
                conformal: decides && !self.conformal.is_empty(),
                ..Default::default()
            };
            let label =
                |label: &String| PredictionColumns { label: label.clone(), ..columns.clone() };
            head.labels.iter().map(label).collect::<Vec<_>>()
        };
        PredictionHeader { labels: self.heads.iter().flat_map(of_head).collect(), error: true }
    }

    /// The folders of states that have no calibration and no thresholds.
    pub fn unfitted(&self) -> Vec<&Path> {
        let unfitted = self.models.iter().filter(|model| model.fitted.is_none());
        unfitted.map(|model| &*model.trained.state.folder).collect()
    }

    /// What a person should know of how several models are decided together.
    pub fn warning(&self) -> Option<&'static str> {
        self.warning
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
                        feeds.push(Feed {
                            image,
                            view,
                            models,
                            batches: loader.epoch(0, 0).shared(),
                        });
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
    fn new(trained: Trained, plan: Plan, batch: usize, refit: bool) -> Result<Self, PredictError> {
        let validation = trained.validation()?;
        let fitted = match &validation {
            Some(validation) => Some(plan.evaluate.fit(validation)),
            None if refit => {
                return Err(PredictError::NotRefitted { state: trained.state.folder.clone() });
            }
            None => trained.fitted()?,
        };
        let of_head = |head: &HeadConfig| {
            let fitted = fitted.as_ref().and_then(|fitted| fitted.heads.get(&head.name));
            Decider::first(head.task, &head.labels, fitted)
        };
        let deciders = plan.heads.iter().map(of_head).collect();
        // What fits in training, which takes more; where nothing does, one image by itself may.
        let machine = machine(&plan.devices, trained.inference.device());
        let mut step = plan.on_first_device();
        step.train.batch_size = batch;
        let planner = Planner::choose(&step, machine);
        let at_once = planner.map_or(1, |planner| planner.settings().micro_batch);
        Ok(Self { trained, plan, fitted, validation, deciders, at_once })
    }

    /// For each image of a batch its outputs, head by head.
    fn outputs(
        &mut self,
        batch: &Arc<Batch>,
        next: Option<&Arc<Batch>>,
    ) -> Result<Vec<Vec<Vec<f32>>>, PredictError> {
        let inference = &self.trained.inference;
        let outputs = inference.outputs_within_memory(batch.into(), &mut self.at_once, next)?;
        let mut rows = vec![Vec::new(); batch.indices.len()];
        for (head, outputs) in self.plan.heads.iter().zip(outputs) {
            for (row, outputs) in rows.iter_mut().zip(outputs.chunks_exact(head.outputs())) {
                row.push(outputs.to_vec());
            }
        }
        Ok(rows)
    }

    fn calibration(&self, head: &str) -> Option<&Calibration> {
        self.fitted.as_ref()?.heads.get(head)?.calibration.as_ref()
    }

    /// What it says of the images that it was validated on, each looked at in several views: outputs of
    /// the mean of the calibrated probabilities.
    fn validation_in_views(&self) -> Result<PredictionTable, PredictError> {
        let folder = &self.trained.state.folder;
        let none = || PredictError::NoValidation { state: folder.clone() };
        let saved = self.validation.as_ref().ok_or_else(none)?;
        let list = open_list(&self.plan, List::Validation);
        let list = list.map_err(|source| PredictError::ValidationImages { source })?;
        let names = list.dataset.names();
        let (now, known) = (names.len(), in_common(&[&names, &saved.paths])[0].len());
        if known < now {
            let state = folder.clone();
            return Err(PredictError::OtherValidation { state, now, known });
        }
        let views = View::all(&self.plan.data.augment);
        let counting = Counting::new("validation images, each in several views", now * views.len());
        let outputs = |(number, view): (usize, &View)| {
            let limit = self.plan.data.bad_image_limit;
            let tell = |done| counting.tell(number * now + done);
            list_outputs(&self.trained.inference, &list.loader(*view), limit, tell)
        };
        let found = views.iter().enumerate().map(outputs).collect::<Result<Vec<_>, _>>()?;
        counting.finish(now * views.len());
        let views = found.iter().map(|found| (&found.predictions, self.fitted.as_ref()));
        let together = ensemble(&views.collect::<Vec<_>>());
        together.ok_or_else(|| PredictError::OtherHeads { state: folder.clone() })
    }
}

/// What the outputs of all models together are calibrated and decided by, what a person should know of it,
/// and the outputs of several for the validation images, where they have the same ones. Of several `views` calibrated probabilities have been taken together already.
fn fitted_together(
    models: &[Model],
    views: bool,
) -> (Option<Fitted>, Option<&'static str>, Option<PredictionTable>) {
    if let [model] = models {
        let fitted = model.fitted.as_ref();
        return match views {
            true => (fitted.map(Fitted::of_calibrated), None, None),
            false => (fitted.cloned(), None, None),
        };
    }
    let members = models.iter().map(|model| (model.validation.as_ref(), model.fitted.as_ref()));
    let members: Vec<_> = members.collect();
    let EnsembleFit { fitted, basis, validation } =
        fit_ensemble(&members, &models[0].plan.evaluate);
    (fitted, basis.warning(), validation)
}

/// What all models together say of the images that they were validated on, looked at as those that are
/// predicted: what their sets of decisions are fitted to. `together` is what several say of them as
/// they are.
fn of_validation(
    models: &[Model],
    together: Option<PredictionTable>,
    views: bool,
) -> Result<PredictionTable, PredictError> {
    let state = |model: &Model| model.trained.state.folder.clone();
    if let Some(model) = models.iter().find(|model| model.validation.is_none()) {
        return Err(PredictError::NoValidation { state: state(model) });
    }
    let same = match models {
        [model] => model.validation.clone(),
        _ => together,
    };
    let run = || state(&models[0]).parent().map(Path::to_owned).unwrap_or_default();
    let same = same.ok_or_else(|| PredictError::NoCommonValidation { run: run() })?;
    if !views {
        return Ok(same);
    }
    let each = models.iter().map(Model::validation_in_views);
    let each = each.collect::<Result<Vec<_>, _>>()?;
    // Probabilities are calibrated already.
    let members = each.iter().map(|table| (table, None));
    let together = ensemble(&members.collect::<Vec<_>>());
    together.ok_or_else(|| PredictError::OtherHeads { state: state(&models[0]) })
}

fn same_labels(ours: &[HeadConfig], theirs: &[HeadConfig]) -> bool {
    let same = |(a, b): (&HeadConfig, &HeadConfig)| {
        a.name == b.name && a.task == b.task && a.labels == b.labels
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
}

/// What sets cover, by the head, the label and the counts.
pub type LabelCoverage = (String, String, Coverage);

/// What forms the sets of each head, and what such sets cover, as fitted to what is predicted of the
/// validation images.
fn conformal(
    validation: &MeasuredTable,
    heads: &[HeadConfig],
    error: f64,
    seed: u64,
) -> (Vec<Option<ConformalHead>>, Vec<LabelCoverage>) {
    let (mut conformal, mut measured) = (Vec::new(), Vec::new());
    for head in heads {
        let predictions = validation.heads.get(&head.name);
        conformal.push(predictions.and_then(|of| ConformalHead::fit(of, error)));
        let covered = predictions.and_then(|of| coverage(of, &validation.patients, error, seed));
        let mut covered = covered.unwrap_or_default();
        let labels = head.labels.iter();
        measured.extend(
            labels.filter_map(|label| {
                Some((head.name.clone(), label.clone(), covered.remove(label)?))
            }),
        );
    }
    (conformal, measured)
}

/// What a model says of an image, seen in one way.
struct Said {
    model: usize,
    /// Outputs, head by head.
    heads: Vec<Vec<f32>>,
}

/// Images that are prepared in one way, and the models that see them so.
struct Feed {
    image: ImageConfig,
    view: View,
    models: Vec<usize>,
    batches: SharedBatches,
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
    pub images: Vec<Prediction>,
    /// The place of the first in the list.
    pub first: usize,
    /// What each model saw, as they are, of those that it could read.
    pub seen: Vec<Arc<Batch>>,
}

impl Predictions<'_> {
    /// The models, between two batches.
    pub fn predictor(&self) -> &Predictor {
        self.predictor
    }

    fn batch(&mut self) -> Option<Result<PredictedBatch, PredictError>> {
        let (mut said, mut bad) = (BTreeMap::<usize, Vec<Said>>::new(), BTreeMap::new());
        let mut seen = BTreeMap::new();
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
                let models = &mut self.predictor.models;
                let ahead =
                    feed.models.iter().any(|&of| models[of].trained.inference.sends_ahead());
                let next = if ahead { upcoming(&mut feed.batches) } else { None };
                for &model in &feed.models {
                    match models[model].outputs(&batch, next) {
                        Ok(rows) => batch.indices.iter().zip(rows).for_each(|(&index, heads)| {
                            said.entry(index).or_default().push(Said { model, heads });
                        }),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
            if feed.view == View::default() {
                seen.extend(feed.models.iter().map(|&model| (model, Arc::clone(&batch))));
            }
        }
        let image = |index: usize| Prediction {
            path: self.names[index].clone(),
            patient: self.patients[index].clone(),
            told: match (bad.remove(&index), said.remove(&index)) {
                (None, Some(said)) => Ok(self.predictor.together(&said)),
                (reason, _) => Err(reason.unwrap_or_else(|| "it was lost".to_owned())),
            },
        };
        let images = (self.done..end).map(image).collect();
        let seen = seen.into_values().collect();
        let found = PredictedBatch { images, first: self.done, seen };
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
    /// What is predicted of an image, of which each model has `said` something for each view.
    fn together(&self, said: &[Said]) -> Vec<PredictedLabel> {
        let mut all = Vec::new();
        for (place, head) in self.heads.iter().enumerate() {
            let told = self.deciders[place].told(&self.outputs(place, said));
            let spreads = (said.len() > 1).then(|| self.spreads(place, said));
            let conformal = self.conformal.get(place).and_then(Option::as_ref);
            let set = |at: usize, value| {
                let set = conformal?.labels[at].set(value);
                Some(match head.task {
                    Task::Multiclass => PredictedSet::Class(set.positive),
                    _ => PredictedSet::Decisions(set),
                })
            };
            let label = |(at, (value, decision)): (usize, (f64, Option<bool>))| PredictedLabel {
                value,
                decision,
                truth: None,
                spread: spreads.as_ref().map(|spreads| spreads[at]),
                conformal: set(at, value),
            };
            debug_assert_eq!(told.len(), head.outputs());
            all.extend(told.into_iter().enumerate().map(label));
        }
        all
    }

    /// The outputs of all models together for the head at `place`.
    fn outputs(&self, place: usize, said: &[Said]) -> Vec<f32> {
        let head = &self.heads[place];
        let mut models = Vec::with_capacity(self.models.len());
        for (number, model) in self.models.iter().enumerate() {
            let calibration = model.calibration(&head.name);
            let views = said.iter().filter(|said| said.model == number);
            let views = views.map(|said| (calibration, said.heads[place].as_slice()));
            let views: Vec<_> = views.collect();
            models.push(match (&views[..], self.views) {
                ([(_, outputs)], false) => (calibration, outputs.to_vec()),
                (views, _) => (None, mean_outputs(head.task, &head.labels, views)),
            });
        }
        match &models[..] {
            [(_, outputs)] => outputs.clone(),
            models => {
                let models = models.iter().map(|(of, outputs)| (*of, outputs.as_slice()));
                mean_outputs(head.task, &head.labels, &models.collect::<Vec<_>>())
            }
        }
    }

    /// For each label of the head at `place`, the standard deviation of what was said.
    fn spreads(&self, place: usize, said: &[Said]) -> Vec<f64> {
        let values = said
            .iter()
            .map(|said| self.models[said.model].deciders[place].probabilities(&said.heads[place]));
        let values: Vec<Vec<f64>> = values.collect();
        let count = values.len() as f64;
        let label = |at: usize| {
            let of_label = values.iter().map(|values| values[at]);
            let mean = of_label.clone().sum::<f64>() / count;
            (of_label.map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
        };
        (0..self.heads[place].outputs()).map(label).collect()
    }
}
