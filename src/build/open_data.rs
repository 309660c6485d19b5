//! The data of a run: tables read, labels counted, the first images looked at.

use std::sync::Arc;

use super::Drawing;
use crate::data::{
    self, Cache, DataError, Dataset, Fingerprint, Loader, LoaderConfig, SplitList, Splits,
    check_known,
};
use crate::model::{HeadConfig, Norm};
use crate::plan::Plan;

/// The data of a run.
pub(super) struct OpenData {
    /// The heads, in the order of the configuration.
    pub heads: Vec<HeadConfig>,
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
}

impl OpenData {
    /// Reads the tables and loads the first image of each data set in both lists.
    ///
    /// # Errors
    /// Those of [`open_data`]; also a head without a known label in training, and a first image that
    /// cannot be used.
    pub fn open(plan: &Plan) -> Result<Self, DataError> {
        let heads: Vec<HeadConfig> = plan.heads.iter().map(|head| head.to_config()).collect();
        let splits = open_data(plan, &heads)?;
        let mut warnings = splits.warnings.clone();
        warnings.extend(check_known(&splits, &heads)?);
        let list = SplitList::of(&splits);
        let fingerprint = list.fingerprint(&splits.tables);
        let (train, validation) = (Arc::new(splits.train), Arc::new(splits.validation));
        let cache = Arc::new(Cache::open(&plan.data.cache.0, &plan.data.image)?);
        let train_loader = train_loader(plan, &heads, Arc::clone(&train), Arc::clone(&cache))?;
        let evaluation = LoaderConfig::evaluation(&plan.data, plan.train.batch_size, plan.run.seed);
        let validation_loader = Loader::new(Arc::clone(&validation), evaluation, cache);
        for loader in [&train_loader, &validation_loader] {
            loader.check_first(&splits.sources, plan.data.bad_image_limit)?;
        }
        Ok(Self {
            heads,
            train,
            validation,
            train_loader,
            validation_loader,
            list,
            fingerprint,
            warnings,
        })
    }

    /// The images of the longer list.
    pub fn most_images(&self) -> usize {
        self.train.len().max(self.validation.len())
    }
}

/// Batches of training images.
pub(super) fn train_loader(
    plan: &Plan,
    heads: &[HeadConfig],
    train: Arc<Dataset>,
    cache: Arc<Cache>,
) -> Result<Loader, DataError> {
    let (images, batch) = (train.len(), plan.train.batch_size);
    let sampler = plan.data.sampler.0.init(&train, heads);
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
pub fn open_data(plan: &Plan, heads: &[HeadConfig]) -> Result<Splits, DataError> {
    let mut drawing = Drawing::default();
    data::open(&plan.data, heads, plan.run.seed, |done, all| drawing.tell(done, all))
}
