//! Optimizers over flat parameters, learning-rate schedules, clipping and the average of weights.
//!
//! A parameter is a name and a [`Tensor<1>`](burn::tensor::Tensor) without autodiff, whatever its
//! shape in the model. The optimizers are written here, not taken from burn-optim, because that
//! holds its hyper-parameters and bias corrections in `f32`: `1 − 0.999` is then off by 1.3e-5,
//! and the numbers are no longer PyTorch's. Each is a rule of a few element-wise lines.

mod config;
mod check;
mod error;

mod optimizer;
mod rule;
mod fused_step;
mod sgd;
mod adam;
mod adamw;
mod rmsprop;
mod adagrad;
mod lion;
mod pesg;

mod schedule;

mod clip;
mod ema;
mod lerp;
mod loss_scale;
mod restore;

#[cfg(test)]
mod oracle;

pub use check::check_clip_norm;
pub use clip::{GradientNorm, norm, squares};
pub use config::*;
pub use ema::Ema;
pub use error::OptimError;
pub use loss_scale::LossScale;
pub use optimizer::{Optimizer, OptimizerState, Update, decays, scaled};
pub use restore::saved_part;
pub use schedule::{PlateauState, Schedule, ScheduleState};
