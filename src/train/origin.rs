//! Where the first number of a step comes from that is not finite.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::replica::part_of;
use super::{LossSums, Replica, Share, TrainError};
use crate::memory::executor::StepKey;
use crate::memory::probe::{self, BrokenLayer, Extent};
use crate::memory::{Activation, ActivationShape, Purpose};
use crate::parallel::Flow;

/// Where the first number of a step comes from that is not finite; what comes first in a step is less.
#[derive(Debug, Clone, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Origin {
    /// A parameter or running statistic is not finite before the step, and so many more.
    Parameter {
        /// Its place in the model.
        place: [usize; 2],
        /// Its name.
        name: String,
        /// How many more there are.
        more: usize,
    },
    /// An image.
    Image {
        /// Its place in the global batch.
        place: usize,
        /// What it is called, where that is known.
        name: Option<String>,
    },
    /// What a layer gives.
    Layer {
        /// The device of a pipeline, the stage on it, and the layer in the stage.
        place: [usize; 3],
        /// Its name, as torchvision has it.
        name: String,
        /// The largest magnitude of what goes in, where that is known.
        largest: Option<f32>,
    },
    /// The loss of a head, whose outputs are finite.
    Loss {
        /// The head's place among the heads.
        place: usize,
        /// The head.
        head: String,
        /// The largest magnitude of its outputs.
        largest: f32,
    },
    /// A gradient: layers and losses are finite.
    Backward,
    /// Computed once more, the step has finite numbers only.
    Nowhere,
}

impl Origin {
    /// What comes first in a step of what devices have found.
    pub fn first(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().min_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal))
    }

    /// What helps, where the learning rate was this.
    pub(super) fn advice(&self, learning_rate: f64) -> String {
        match self {
            Self::Parameter { .. } => format!(
                "If it was loaded so, take other weights. If it has grown, the learning rate was too high (it \
                 was {learning_rate:e}): begin again, or with a state saved before, with a lower one or with \
                 `clip_norm = 1.0` under [train]."
            ),
            Self::Image { .. } => {
                "Look at this image and at `data.image.normalize`, or leave the image out.".to_owned()
            }
            Self::Layer { .. } => format!(
                "Lower the learning rate (it was {learning_rate:e}), add `clip_norm = 1.0` under [train], or \
                 look at the images of this step."
            ),
            Self::Loss { .. } => format!(
                "Look at the labels of this step (large numbers need `standardize = true`), or lower the learning \
                 rate (it was {learning_rate:e})."
            ),
            Self::Backward => format!(
                "Lower the `weight` of heads or the learning rate (it was {learning_rate:e}), or look at the \
                 images and labels of this step."
            ),
            Self::Nowhere => "The device or its memory may have failed: go on with --resume, and test them if it \
                              happens again."
                .to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_most = |largest: &f32| format!("at most {largest:.1e}");
        match self {
            Self::Parameter { name, more, .. } => {
                write!(f, "`{name}`")?;
                match more {
                    0 => write!(f, " is not finite before the step"),
                    more => write!(f, " and {more} more are not finite before the step"),
                }
            }
            Self::Image { place, name: None } => {
                write!(f, "image {} of the batch has pixels that are not finite", place + 1)
            }
            Self::Image { name: Some(name), .. } => {
                write!(f, "the image {name} has pixels that are not finite")
            }
            Self::Layer { name, largest: Some(largest), .. } => write!(
                f,
                "it begins in the layer `{name}`, whose output is not finite, though its input is ({})",
                at_most(largest)
            ),
            Self::Layer { name, largest: None, .. } => write!(f, "it begins in the layer `{name}`"),
            Self::Loss { head, largest, .. } => write!(
                f,
                "it begins in the loss of head `{head}`, whose outputs are finite ({})",
                at_most(largest)
            ),
            Self::Backward => write!(f, "it begins on the way back: layers and losses are finite"),
            Self::Nowhere => write!(f, "computed once more, layers and losses are finite"),
        }
    }
}

impl Replica {
    /// Runs `share` of optimizer step number `step` forward once more, whose losses or gradients are not
    /// finite, and returns where that begins; none where all of it is finite. Nothing changes.
    ///
    /// Norms are taken over the replica's own images, so that it finds what begins with these.
    ///
    /// # Errors
    /// When the device fails.
    pub fn origin(
        &self,
        share: Share<'_>,
        normalizers: &[f64],
        step: usize,
    ) -> Result<Option<Origin>, TrainError> {
        let Share { images, targets, parts, link, .. } = share;
        let device = link.map_or(0, |link| link.place().rank);
        let targets = self.inference.standardized(targets);
        let key = StepKey::alone(self.seed, step as u64, parts);
        let mut found = Vec::from_iter(self.broken_parameter(device)?);
        let mut losses = LossSums::new(normalizers);
        let mut largest = vec![0_f32; self.inference.heads.len()];
        for (micro, part) in parts.iter().enumerate() {
            let input = match link.filter(|link| !link.place().is_first()) {
                Some(link) => link.receive(Flow::Value, micro, key.images(micro + 1)),
                None => {
                    let input = self.inference.input(images, part.images.clone());
                    let place = broken_image(&input).map(|place| part.images.start + place);
                    found.extend(place.map(|place| Origin::Image { place, name: None }));
                    input
                }
            };
            let pass = key.pass(Purpose::First, micro);
            let chain = &self.inference.chain;
            let (output, layer) = probe::search(chain, self.strategy.frozen, &pass, input);
            found.extend(layer.map(|BrokenLayer { place: [stage, layer], name, largest }| {
                Origin::Layer { place: [device, stage, layer], name, largest }
            }));
            if let Some(link) = link.filter(|link| !link.place().is_last()) {
                link.send(Flow::Value, micro, output);
                continue;
            }
            let outputs = output.into_outputs();
            for (largest, output) in largest.iter_mut().zip(&outputs) {
                let output = Activation::Features(output.clone());
                *largest = largest.max(Extent::of_activation(&output).largest);
            }
            losses.add(self.sums(&outputs, &part_of(&targets, part.images.clone()), normalizers));
        }
        let broken = losses.read()?.iter().position(|loss| !loss.sum.is_finite());
        found.extend(broken.map(|place| Origin::Loss {
            place,
            head: self.inference.heads[place].config.name.clone(),
            largest: largest[place],
        }));
        Ok(Origin::first(found))
    }

    /// The parameters and running statistics that are not finite.
    fn broken_parameter(&self, device: usize) -> Result<Option<Origin>, TrainError> {
        let mut found: Option<Origin> = None;
        for (place, parameter) in self.inference.chain.parameters().into_iter().enumerate() {
            let values = parameter.value.try_into_data()?;
            match (Extent::of(values.iter::<f32>()).broken, &mut found) {
                (Some(_), Some(Origin::Parameter { more, .. })) => *more += 1,
                (Some(_), _) => {
                    let (place, name) = ([device, place], parameter.name);
                    found = Some(Origin::Parameter { place, name, more: 0 });
                }
                (None, _) => {}
            }
        }
        Ok(found)
    }
}

/// The place of the first of the images that has a pixel that is not finite.
fn broken_image(images: &Activation) -> Option<usize> {
    let ActivationShape::Map([_, channels, height, width]) = images.shape() else { return None };
    Some(Extent::of_activation(images).broken? / (channels * height * width))
}
