//! Why a batch could not be trained on or evaluated.

use burn::tensor::ExecutionError;

use super::Origin;
use crate::memory::OutOfMemory;
use crate::memory::offload::OffloadError;
use crate::optim::OptimError;
use crate::parallel::processes::Elsewhere;
use crate::screen::counted;

/// What of a step is not finite.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotFinite {
    /// The loss of a head.
    #[error("the loss of head `{head}`")]
    Loss {
        /// The head.
        head: String,
    },
    /// A gradient.
    #[error("the gradient{of}")]
    Gradient {
        /// Of which parameters, as a phrase; empty where that has not been looked for.
        of: String,
    },
    /// What running statistics move towards.
    #[error("the mean or variance of a map")]
    Statistics,
}

/// A training step that could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A loss or gradient is NaN or infinite.
    #[error("{what} is not a finite number{}\n{}", begins(origin), advice(origin, *learning_rate))]
    NotFinite {
        /// What is not finite.
        what: NotFinite,
        /// The learning rate of the step.
        learning_rate: f64,
        /// Where it begins, where that has been looked for.
        origin: Option<Box<Origin>>,
    },
    /// The step was left out, and the loss is scaled by less from now on; nothing else has changed.
    #[error("{what} is not finite in fp16; the loss is scaled by {scale} from now on")]
    Skipped {
        /// What is not finite.
        what: NotFinite,
        /// The new scale.
        scale: f64,
    },
    /// Step after step was left out, until there was nothing left of the scale of the loss.
    #[error(
        "{what} is not finite in fp16, however little the loss is scaled: {skipped} steps of this run \
         were left out{}\n{}", begins(origin), advice_in_fp16(origin, *learning_rate)
    )]
    Unscalable {
        /// What is not finite.
        what: NotFinite,
        /// Steps left out since the run began.
        skipped: u64,
        /// The learning rate of the step.
        learning_rate: f64,
        /// Where it begins, where that has been looked for.
        origin: Option<Box<Origin>>,
    },
    /// The gradient norm could not be computed.
    #[error(transparent)]
    Optim(#[from] OptimError),
    /// Memory does not suffice for the fewest images that may be taken at once.
    #[error("{out_of_memory}, with {} at a time\n{advice}", images(*at_once))]
    OutOfMemory {
        /// The images.
        at_once: usize,
        /// What the device says.
        out_of_memory: OutOfMemory,
        /// What would fit.
        advice: String,
    },
    /// What is kept for the backward pass could not be moved off the device.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A card has waited in vain for another one.
    #[error("the cards cannot go on together: {0}")]
    Stalled(String),
    /// Another process has failed.
    #[error(transparent)]
    Elsewhere(#[from] Elsewhere),
    /// The device failed.
    #[error("the device failed: {0:?}")]
    Device(#[from] ExecutionError),
}

fn images(count: usize) -> String {
    counted(count, "image", "images")
}

/// Where it begins, behind what is not finite.
fn begins(origin: &Option<Box<Origin>>) -> String {
    origin.as_ref().map(|origin| format!("; {origin}")).unwrap_or_default()
}

fn advice(origin: &Option<Box<Origin>>, learning_rate: f64) -> String {
    match origin {
        Some(origin) => origin.advice(learning_rate),
        None => format!(
            "Lower the learning rate (it was {learning_rate:e}), add `clip_norm = 1.0` under [train], or \
             look at the images and labels of this step."
        ),
    }
}

fn advice_in_fp16(origin: &Option<Box<Origin>>, learning_rate: f64) -> String {
    match origin.as_deref() {
        Some(origin @ Origin::Parameter { .. }) => origin.advice(learning_rate),
        _ => format!(
            "Numbers above 65504 do not fit in fp16. Write `precision = \"bf16\"` under [memory], or \
             lower the learning rate (it was {learning_rate:e})."
        ),
    }
}

impl TrainError {
    /// What is not finite, in an error that ends a run, and where to note where that begins.
    pub fn not_finite(&mut self) -> Option<(&NotFinite, &mut Option<Box<Origin>>)> {
        match self {
            Self::NotFinite { what, origin, .. } | Self::Unscalable { what, origin, .. } => {
                Some((what, origin))
            }
            _ => None,
        }
    }

    /// The same with what images are called, which `name` says of each place in the batch.
    pub fn with_names(mut self, name: impl FnOnce(usize) -> String) -> Self {
        if let Some((_, Some(origin))) = self.not_finite()
            && let Origin::Image { place, name: called } = &mut **origin
        {
            *called = Some(name(*place));
        }
        self
    }
}
