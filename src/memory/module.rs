//! Modules inside of a stage, for the record of a step's memory.

use std::fmt::Display;

use burn::tensor::Tensor;

use super::Activation;
use super::measure::{backward_note, within};
use crate::ops::after_backward;

/// What a module is given.
pub trait Given: Sized {
    /// The same, calling `note` when its gradient is there.
    fn noted(self, note: impl Fn() + Send + Clone + 'static) -> Self;
}

impl<const D: usize> Given for Tensor<D> {
    fn noted(self, note: impl Fn() + Send + Clone + 'static) -> Self {
        after_backward(self, note)
    }
}

impl Given for Activation {
    fn noted(self, note: impl Fn() + Send + Clone + 'static) -> Self {
        match self {
            Self::Map(map) => Self::Map(map.noted(note)),
            Self::Features(features) => Self::Features(features.noted(note)),
            other => other,
        }
    }
}

/// Runs `forward` on `input` as the module called `name`, and notes the memory before it, after it and
/// when its backward pass has made the gradient of `input`, where a record is under way; else just
/// runs it.
pub fn module<G: Given, T>(name: impl Display, input: G, forward: impl FnOnce(G) -> T) -> T {
    let input = match backward_note(&name) {
        Some(note) => input.noted(note),
        None => input,
    };
    within(name, || forward(input))
}
