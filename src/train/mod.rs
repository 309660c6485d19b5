//! Training in parts: gradients on one device, the update that follows from them, and outputs
//! without either.
//!
//! A step is gradients, then update. A [`Replica`] computes the gradients of its [`Share`] of the
//! global batch; what the losses are divided by and where each image stands is over the whole batch,
//! so that the gradients of all shares add up to those of the batch. The [`Updater`] sees the
//! gradients of the whole batch: it checks them ([`Updater::assess`]), which changes nothing, and then
//! changes the weights ([`Updater::apply`]). A GPU that trains alone looks at them by itself
//! (`Updater::decide`), and the host reads the outcome while it computes the next step.
//! [`Inference`] is the model alone, and a replica evaluates with it.
//!
//! Where the device may run out of memory, the caller runs gradients and assessment within
//! [`catch_out_of_memory`](crate::memory::catch_out_of_memory), which says whether the attempt
//! succeeded; nothing has changed by then. The caller decides: it applies the update, or lets every
//! replica take another [`Strategy`](crate::memory::Strategy) and try again.

mod ahead;
mod error;
mod evaluating;
mod exchange;
mod grad_cam;
mod images;
mod inference;
mod loss;
mod origin;
mod replica;
mod step_losses;
mod update;

pub use ahead::BatchPart;
pub use error::{NotFinite, TrainError};
pub use evaluating::{Evaluated, Evaluating};
pub use grad_cam::{ActivationMap, GradCam, NoFeatureMap};
pub use images::Images;
pub use inference::{Head, Inference};
pub use loss::{HeadLoss, LossSums};
pub use origin::Origin;
pub use replica::{Replica, Share, StepGradients};
pub use step_losses::{LeftOut, StepLosses};
pub use update::{Assessed, CheckedGradients, Updater};
