//! The images that a trained model is measured on.

use std::sync::Arc;

use super::while_drawing;
use crate::data::{
    self, Cache, DataError, Dataset, Loader, LoaderConfig, OnBadImage, Splits, View, check_files,
};
use crate::plan::Plan;

/// Which images of a data set a model is measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Those that the run trained on.
    Train,
    /// Those that it was validated on.
    Validation,
    /// The official test list.
    Test,
    /// All of them, as of data that the model never saw.
    All,
}

impl List {
    /// Its name, as a person writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
            Self::All => "all",
        }
    }
}

/// A list of images, opened to be measured on.
pub struct EvaluationList {
    /// The images.
    pub dataset: Arc<Dataset>,
    /// The data sets' tables below `data`.
    pub sources: Vec<String>,
    /// What a person should know of the tables, a sentence each.
    pub warnings: Vec<String>,
    config: LoaderConfig,
    cache: Arc<Cache>,
}

impl EvaluationList {
    /// Batches of the images in the table's order, each looked at so.
    pub fn loader(&self, view: View) -> Loader {
        let config = LoaderConfig { view, ..self.config.clone() };
        Loader::new(Arc::clone(&self.dataset), config, Arc::clone(&self.cache))
    }
}

/// The images that the plan's run trains on, and those that it is validated on.
///
/// # Errors
/// Those of opening data.
pub fn open_own(plan: &Plan) -> Result<[Dataset; 2], DataError> {
    let (data, heads, seed) = (&plan.data, &plan.heads, plan.run.seed);
    let splits = while_drawing(|tell| data::open_for_evaluation(data, heads, seed, tell))?;
    Ok([splits.train, splits.validation])
}

/// Opens a list of the plan's data for a trained model to be measured on, in the plan's batches. Labels
/// that are uncertain count as missing.
///
/// # Errors
/// Those of opening data; also a list that there is not, files that are missing where none may be
/// skipped, and a first image that cannot be used.
pub fn open_list(plan: &Plan, list: List) -> Result<EvaluationList, DataError> {
    let (data, heads, seed) = (&plan.data, &plan.heads, plan.run.seed);
    let splits = while_drawing(|tell| match list {
        List::All => data::open_in_full(data, heads, seed, tell),
        List::Train | List::Validation | List::Test => {
            data::open_for_evaluation(data, heads, seed, tell)
        }
    })?;
    let Splits { train, validation, test, sources, warnings, .. } = splits;
    let dataset = match list {
        List::Train => train,
        List::Validation | List::All => validation,
        List::Test => test.ok_or(DataError::NoTestList)?,
    };
    if plan.data.on_bad_image == OnBadImage::Stop {
        check_files(&[&dataset])?;
    }
    let dataset = Arc::new(dataset);
    let cache = Arc::new(Cache::open(&plan.data.cache.0, &plan.data.image)?);
    let config = LoaderConfig::evaluation(&plan.data, plan.train.batch_size, plan.run.seed);
    let list = EvaluationList { dataset, sources, warnings, config, cache };
    list.loader(View::default()).check_first(&list.sources, plan.data.bad_image_limit)?;
    Ok(list)
}
