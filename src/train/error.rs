//! Why a batch could not be trained on or evaluated.

use burn::tensor::ExecutionError;

use crate::memory::OutOfMemory;
use crate::memory::offload::OffloadError;
use crate::optim::OptimError;
use crate::parallel::processes::Elsewhere;
use crate::screen::counted;

/// A training step that could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The loss is NaN or infinite.
    #[error(
        "the loss of head `{head}` is not a finite number\nLower the learning rate (it was \
         {learning_rate:e}), add `clip_norm = 1.0` under [train], or look at the images and labels \
         of this step."
    )]
    Loss {
        /// The head.
        head: String,
        /// The learning rate of the step.
        learning_rate: f64,
    },
    /// A gradient is NaN or infinite.
    #[error(
        "the gradient of `{parameter}`{others} is not a finite number\nLower the learning rate (it \
         was {learning_rate:e}) or look at the images and labels of this step."
    )]
    Gradient {
        /// The first such parameter.
        parameter: String,
        /// How many more there are, as a phrase.
        others: String,
        /// The learning rate of the step.
        learning_rate: f64,
    },
    /// The step was left out, and the loss is scaled by less from now on; nothing else has changed.
    #[error("{what} is not finite in fp16; the loss is scaled by {scale} from now on")]
    Skipped {
        /// What is not finite.
        what: String,
        /// The new scale.
        scale: f64,
    },
    /// Step after step was left out, until there was nothing left of the scale of the loss.
    #[error(
        "{what} is not finite in fp16, however little the loss is scaled: {skipped} steps of this run \
         were left out\nNumbers above 65504 do not fit in fp16. Write `precision = \"bf16\"` under \
         [memory], or lower the learning rate (it was {learning_rate:e})."
    )]
    Unscalable {
        /// What is not finite.
        what: String,
        /// Steps left out since the run began.
        skipped: u64,
        /// The learning rate of the step.
        learning_rate: f64,
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

impl TrainError {
    /// Of the gradients of these parameters.
    pub(super) fn gradient(names: &[String], learning_rate: f64) -> Self {
        let others = match names.len() {
            0 | 1 => String::new(),
            count => format!(" (and of {} more)", count - 1),
        };
        let parameter = names.first().cloned().unwrap_or_else(|| "all parameters together".into());
        Self::Gradient { parameter, others, learning_rate }
    }
}
