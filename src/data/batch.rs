//! What the loader hands to the model: host memory, no device.

use std::path::PathBuf;

/// The targets of one head for the images of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Targets {
    /// `[images, width]`, row by row. 0 or 1 (or between, for soft labels) per label; the index of
    /// the class for a `multiclass` head, or a share of each class in a batch mixed by mixup or
    /// cutmix; the number itself for `regression`. 0 where masked.
    pub values: Vec<f32>,
    /// `[images, width]`: 1 where the label is known, 0 where it is missing; all of a row alike for
    /// shares of classes.
    pub mask: Vec<f32>,
    /// Labels per image; for a `multiclass` head 1, or in a mixed batch the number of classes.
    pub width: usize,
}

impl Targets {
    /// Those of some of the images.
    pub fn part(&self, images: std::ops::Range<usize>) -> Self {
        let place = images.start * self.width..images.end * self.width;
        let (values, mask) = (self.values[place.clone()].to_vec(), self.mask[place].to_vec());
        Self { values, mask, width: self.width }
    }
}

/// Images and their targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Each image, `[channels, height, width]` in row-major order, on the scale of `data.image.normalize`.
    /// They are apart, as they were loaded: putting a batch together would copy all of it on one core.
    pub images: Vec<Vec<f32>>,
    /// `[images, channels, height, width]`.
    pub shape: [usize; 4],
    /// One for each head, in the order of the configuration.
    pub targets: Vec<Targets>,
    /// The position of each image in its data set.
    pub indices: Vec<usize>,
    /// Images that belonged here and could not be read, with `on_bad_image = "skip"`.
    pub skipped: Vec<BadImage>,
}

/// An image that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("image `{}` ({}, line {line}): {reason}", path.display(), table.display())]
pub struct BadImage {
    /// The image's file.
    pub path: PathBuf,
    /// The table that names it.
    pub table: PathBuf,
    /// The line of that table, counted from 1 with the header.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// How often each label of a head is positive and negative among known training labels.
///
/// For a `multiclass` head `positives[c]` counts the images of class c and `negatives[c]` the rest.
/// Soft labels count as their value.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelCounts {
    /// Per label or class.
    pub positives: Vec<f64>,
    /// Per label or class.
    pub negatives: Vec<f64>,
}
