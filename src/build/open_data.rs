//! The data of a run: tables read, labels counted, the first images looked at.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::while_drawing;
use crate::data::{
    self, Cache, DataError, Dataset, Fingerprint, Loader, LoaderConfig, OnBadImage, SplitList,
    Splits, check_files, check_known,
};
use crate::model::Norm;
use crate::plan::Plan;
use crate::run::undefined_for_good;

/// The data of a run.
pub(super) struct OpenData {
    /// The training images.
    pub train: Arc<Dataset>,
    /// The validation images.
    pub validation: Arc<Dataset>,
    /// Batches of training images.
    pub train_loader: Loader,
    /// Batches of validation images.
    pub validation_loader: Loader,
    /// Which image is in which list.
    pub list: SplitList,
    /// What a resumed run holds its own against.
    pub fingerprint: Fingerprint,
    /// What a person should know before the run begins, a sentence each.
    pub warnings: Vec<String>,
    /// The watched metrics of which it is said there that they have no value in any epoch.
    pub undefined: BTreeSet<String>,
}

/// What is told of data before a run begins.
struct Told {
    warnings: Vec<String>,
    undefined: BTreeSet<String>,
}

fn told(plan: &Plan, splits: &Splits) -> Result<Told, DataError> {
    let mut warnings = splits.warnings.clone();
    warnings.extend(check_known(splits, &plan.heads)?);
    let undefined = undefined_for_good(&plan.monitors, &plan.heads, &splits.validation);
    warnings.extend(undefined.values().cloned());
    Ok(Told { warnings, undefined: undefined.into_keys().collect() })
}

/// What a person should know of the data before a run begins, a sentence each.
///
/// # Errors
/// Data that a run refuses: a head without a known label in training, and no batch that is full where
/// only such are trained on.
pub fn data_warnings(plan: &Plan, splits: &Splits) -> Result<Vec<String>, DataError> {
    let told = told(plan, splits)?;
    let (images, batch) = (splits.train.len(), plan.train.batch_size);
    match plan.data.drop_last && images < batch {
        true => Err(DataError::NoBatch { images, batch }),
        false => Ok(told.warnings),
    }
}

impl OpenData {
    /// Reads the tables and loads the first image of each data set in both lists.
    ///
    /// # Errors
    /// Those of [`open_data`]; also a head without a known label in training, and a first image that
    /// cannot be used.
    pub fn open(plan: &Plan) -> Result<Self, DataError> {
        let splits = open_data(plan)?;
        let Told { warnings, undefined } = told(plan, &splits)?;
        let list = SplitList::of(&splits);
        let fingerprint = list.fingerprint(&splits.tables);
        let (train, validation) = (Arc::new(splits.train), Arc::new(splits.validation));
        let cache = Arc::new(Cache::open(&plan.data.cache.0, &plan.data.image)?);
        let train_loader = train_loader(plan, Arc::clone(&train), Arc::clone(&cache))?;
        let evaluation = LoaderConfig::evaluation(&plan.data, plan.train.batch_size, plan.run.seed);
        let validation_loader = Loader::new(Arc::clone(&validation), evaluation, cache);
        for loader in [&train_loader, &validation_loader] {
            loader.check_first(&splits.sources, plan.data.bad_image_limit)?;
        }
        Ok(Self {
            train,
            validation,
            train_loader,
            validation_loader,
            list,
            fingerprint,
            warnings,
            undefined,
        })
    }

    /// Refuses lists with files that are missing, where a run would stop at the first of them.
    ///
    /// # Errors
    /// How many are missing.
    pub fn check_files(&self, on_bad_image: OnBadImage) -> Result<(), DataError> {
        match on_bad_image {
            OnBadImage::Stop => check_files(&[&self.train, &self.validation]),
            OnBadImage::Skip => Ok(()),
        }
    }

    /// The images of the longer list.
    pub fn most_images(&self) -> usize {
        self.train.len().max(self.validation.len())
    }
}

/// Batches of training images.
pub(super) fn train_loader(
    plan: &Plan,
    train: Arc<Dataset>,
    cache: Arc<Cache>,
) -> Result<Loader, DataError> {
    let (images, batch) = (train.len(), plan.train.batch_size);
    let sampler = plan.data.sampler.0.init(&train, &plan.heads);
    let config = LoaderConfig {
        // Only a norm over the batch suffers from one image, which may be all that was asked for.
        avoid_single: batch > 1 && plan.model.norm() == Norm::Batch,
        ..LoaderConfig::training(&plan.data, batch, plan.run.seed, sampler)
    };
    let loader = Loader::new(train, config, cache);
    match loader.batches_per_epoch() {
        0 => Err(DataError::NoBatch { images, batch }),
        _ => Ok(loader),
    }
}

/// Opens the data, and says so where a phantom is drawn.
///
/// # Errors
/// As [`data::open`].
pub fn open_data(plan: &Plan) -> Result<Splits, DataError> {
    while_drawing(|tell| data::open(&plan.data, &plan.heads, plan.run.seed, tell))
}
