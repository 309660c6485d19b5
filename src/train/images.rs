//! The images of a batch, wherever they are.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};

use super::BatchPart;
use crate::data::Batch;

/// Images in host memory or on devices, all of one size.
#[derive(Debug, Clone, Copy)]
pub enum Images<'a> {
    /// In host memory.
    Host {
        /// Each of them, `[channels, height, width]` in row-major order.
        images: &'a [Vec<f32>],
        /// `[images, channels, height, width]`.
        shape: [usize; 4],
    },
    /// A batch in host memory that can be copied to a device by another thread.
    Batch(&'a Arc<Batch>),
    /// `[images, channels, height, width]`, the same on each device that they are used on.
    Devices(&'a [Tensor<4>]),
}

impl<'a> From<&'a Batch> for Images<'a> {
    fn from(batch: &'a Batch) -> Self {
        Self::Host { images: &batch.images, shape: batch.shape }
    }
}

impl<'a> From<&'a Arc<Batch>> for Images<'a> {
    fn from(batch: &'a Arc<Batch>) -> Self {
        Self::Batch(batch)
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
            Self::Batch(batch) => batch.shape[0],
            Self::Devices(images) => images[0].dims()[0],
        }
    }

    /// Those at `images`, where another thread can copy them.
    pub fn batch_part(&self, images: Range<usize>) -> Option<BatchPart> {
        match *self {
            Self::Batch(batch) => Some(BatchPart { batch: Arc::clone(batch), images }),
            _ => None,
        }
    }

    /// Those at `part` on `device`, `[images, channels, height, width]`.
    pub fn part(&self, part: Range<usize>, device: &Device) -> Tensor<4> {
        match *self {
            Self::Host { images, shape: [_, channels, height, width] } => {
                let values = images[part.clone()].concat();
                let shape = [part.len(), channels, height, width];
                Tensor::from_data(TensorData::new(values, shape), device)
            }
            Self::Batch(batch) => Self::from(&**batch).part(part, device),
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
