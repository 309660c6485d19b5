//! The images of a batch, wherever they are.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use crate::data::Batch;

/// Images in host memory or on devices, all of one size.
#[derive(Debug, Clone, Copy)]
pub enum Images<'a> {
    /// In host memory.
    Host {
        /// All of them in row-major order.
        values: &'a [f32],
        /// `[images, channels, height, width]`.
        shape: [usize; 4],
    },
    /// `[images, channels, height, width]`, the same on each device that they are used on.
    Devices(&'a [Tensor<4>]),
}

impl<'a> From<&'a Batch> for Images<'a> {
    fn from(batch: &'a Batch) -> Self {
        Self::Host { values: &batch.images, shape: batch.shape }
    }
}

impl<'a> From<&'a Tensor<4>> for Images<'a> {
    fn from(images: &'a Tensor<4>) -> Self {
        Self::Devices(std::slice::from_ref(images))
    }
}

impl Images<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Host { shape, .. } => shape[0],
            Self::Devices(images) => images[0].dims()[0],
        }
    }

    /// Those at `part` on `device`, `[images, channels, height, width]`.
    pub fn part(&self, part: Range<usize>, device: &Device) -> Tensor<4> {
        match *self {
            Self::Host { values, shape: [_, channels, height, width] } => {
                let size = channels * height * width;
                let values = values[part.start * size..part.end * size].to_vec();
                let shape = [part.len(), channels, height, width];
                Tensor::from_data(TensorData::new(values, shape), device)
            }
            Self::Devices(images) => {
                let here = images.iter().find(|images| images.device() == *device);
                let images = here.expect("they are on each device").clone();
                match part.len() == images.dims()[0] {
                    true => images,
                    false => images.narrow(0, part.start, part.len()),
                }
            }
        }
    }
}
