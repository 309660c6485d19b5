//! Modules inside of a stage, for the record of a step's memory.

use std::fmt::Display;

use super::Activation;
use super::measure::{backward_note, within};
use crate::ops::after_backward;

/// Runs `forward` on `input` as the module called `name`, and notes the memory before it, after it and
/// when its backward pass has made the gradient of `input`, where a record is under way; else just
/// runs it.
pub fn module<T>(
    name: impl Display,
    input: Activation,
    forward: impl FnOnce(Activation) -> T,
) -> T {
    let input = match (backward_note(&name), input) {
        (Some(note), Activation::Map(map)) => Activation::Map(after_backward(map, note)),
        (Some(note), Activation::Features(features)) => {
            Activation::Features(after_backward(features, note))
        }
        (_, input) => input,
    };
    within(name, || forward(input))
}
