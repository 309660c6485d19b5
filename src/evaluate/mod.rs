//! What a trained model's predictions are worth, and how sure that is.
//!
//! All of it is host arithmetic in 64-bit on numbers that are already there: no device, no file opened. What
//! holds throughout:
//!
//! - A **cluster** is what was drawn independently of the rest: a patient. Images of one patient are
//!   not independent, so intervals count patients. Clusters are numbers, one for each image.
//! - A missing label is left out; a soft target counts as positive from 0.5 up, as in
//!   [`crate::metric`].
//! - What has no value has a reason instead: [`Undefined`], never NaN.
//! - Intervals are of 95%.
//!
//! [`Delong`] and [`compare`] tell how far an AUROC, or the difference of two, may be off;
//! [`bootstrap`] does so for any metric. A [`Criterion`] fits the threshold of a decision, a
//! [`Confusion`] says what the decisions are worth. [`Reliability`] shows whether probabilities mean
//! what they say, [`Temperature`] and [`Platt`] correct them. What is fitted on validation is a
//! [`Fitted`], which is saved and later applied to other images; [`evaluate()`] brings everything
//! together in an [`Evaluation`]. [`PredictionWriter`] and [`PredictionReader`] are for the table of
//! predictions that people look at; a [`PredictionTable`] holds what a model said of a list of images.
//! A [`ConformalHead`] says which decisions cannot be ruled out.

pub mod bootstrap;
mod jackknife;

mod calibration;
mod comparison;
mod config;
mod conformal;
mod confusion;
mod curves;
mod decided;
mod decider;
mod delong;
mod discordance;
mod ensemble;
mod ensemble_fit;
mod estimate;
mod evaluation;
mod few;
mod few_positives;
mod fitted;
mod head;
mod hybrid;
mod influence;
mod measured;
mod midranks;
mod operating_point;
mod paired;
mod platt;
mod pooled;
mod predictions;
mod regression;
mod reliability;
mod repeated;
mod score_interval;
mod settings;
mod subgroups;
mod table;
mod temperature;
mod undefined;

pub use calibration::{Calibration, CalibrationMethod};
pub use comparison::{Comparison, compare};
pub use config::{CalibrationUse, EvaluateConfig, OperatingPointsConfig};
pub use conformal::{ConformalHead, ConformalLabel, Coverage, DecisionSet, coverage};
pub use confusion::{Confusion, ConfusionMatrix, DecisionMeasures};
pub use curves::{CurvePoint, curve_points};
pub use decider::{Decider, UnknownPoint};
pub use delong::{Delong, Scale};
pub use ensemble::{ensemble, mean_outputs};
pub use ensemble_fit::{EnsembleBasis, EnsembleFit, fit_ensemble};
pub use estimate::{Estimate, Range, wilson};
pub use evaluation::{
    Evaluation, HeadEvaluation, MEASURES, Measure, MetricTable, PointEvaluation, SubgroupEvaluation,
};
pub use fitted::{Fitted, FittedError, FittedHead, FittedPoint};
pub use head::{evaluate, evaluate_subgroups};
pub use measured::{Measured, MeasuredTable, in_common};
pub use operating_point::Criterion;
pub use paired::{ComparisonTable, HeadComparison, MetricComparison, PairError, compare_heads};
pub use platt::Platt;
pub use pooled::{PoolError, pooled};
pub use predictions::{
    PredictedLabel, PredictedSet, Prediction, PredictionColumns, PredictionError, PredictionHeader,
    PredictionLines, PredictionReader, PredictionWriter,
};
pub use regression::r2;
pub use reliability::{Bin, Reliability, brier, multiclass_brier};
pub use settings::{AurocMethod, Settings};
pub use subgroups::{Bands, Group, groups, part};
pub use table::PredictionTable;
pub use temperature::Temperature;
pub use undefined::Undefined;
