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
//! [`bootstrap`] does so for any metric.

pub mod bootstrap;

mod delong;
mod estimate;
mod midranks;
mod undefined;

pub use delong::{Comparison, Delong, Scale, compare};
pub use estimate::{Estimate, Range, wilson};
pub use undefined::Undefined;
