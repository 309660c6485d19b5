//! NumPy arrays: which holds images, and which the targets of as many images.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Found, Offer, OfferValues, entries, name};
use crate::data::npy::Array;

/// Integers up to this are classes rather than measurements.
const MOST_CLASSES: usize = 50;

/// Arrays of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundArrays {
    /// The folder of the arrays.
    pub root: PathBuf,
    /// The file of the images.
    pub images: String,
    /// Channels, height and width of an image.
    pub shape: [u64; 3],
    /// The file that tells patients apart.
    pub patients: Option<String>,
    /// The file that is 0 for training, 1 for validation and 2 for test images.
    pub split: Option<String>,
}

/// The arrays in `root`: images are those of most numbers with three or four sides.
pub(super) fn find(root: &Path) -> Option<(Found, Vec<Offer>)> {
    let files =
        entries(root).into_iter().filter(|path| path.extension().is_some_and(|e| e == "npy"));
    let arrays: Vec<(String, Array)> =
        files.filter_map(|path| Some((name(&path), Array::open(&path).ok()?))).collect();
    let is_images = |array: &&(String, Array)| matches!(array.1.shape().len(), 3 | 4);
    let size = |array: &&(String, Array)| array.1.shape().iter().product::<u64>();
    let (images, array) = arrays.iter().filter(is_images).max_by_key(size)?;
    let (count, shape) = match *array.shape() {
        [count, height, width] => (count, [1, height, width]),
        [count, channels, height, width] => (count, [channels, height, width]),
        _ => return None,
    };
    let beside: Vec<&(String, Array)> = arrays
        .iter()
        .filter(|(name, array)| {
            let shape = array.shape();
            name != images && matches!(shape.len(), 1 | 2) && shape.first() == Some(&count)
        })
        .collect();
    let called = |words: [&str; 2]| {
        let is = |name: &str| words.iter().any(|word| name.to_lowercase().starts_with(word));
        beside.iter().find(|(name, array)| is(name) && array.shape().len() == 1)
    };
    let patients = called(["patient", "subject"]).map(|(name, _)| name.clone());
    let split = called(["split", "fold"]).filter(|(_, array)| {
        array.numbers().is_ok_and(|numbers| numbers.iter().all(|n| [0.0, 1.0, 2.0].contains(n)))
    });
    let split = split.map(|(name, _)| name.clone());
    let taken = [&patients, &split];
    let targets = beside.iter().filter(|(name, _)| !taken.iter().any(|t| t.as_ref() == Some(name)));
    let offer = |(name, array): &&(String, Array)| {
        Some(Offer { name: name.clone(), values: values(array)?, proposed: true })
    };
    let offers = targets.copied().filter_map(|target| offer(&target)).collect();
    let (root, images) = (root.to_owned(), images.clone());
    Some((Found::Arrays(FoundArrays { root, images, shape, patients, split }), offers))
}

fn values(array: &Array) -> Option<OfferValues> {
    let labels = array.shape().get(1).map_or(1, |labels| *labels as usize);
    let numbers = array.numbers().ok()?;
    let known: Vec<f64> = numbers.into_iter().filter(|number| !number.is_nan()).collect();
    let whole = known.iter().all(|number| number.fract() == 0.0 && *number >= 0.0);
    let distinct: BTreeSet<u64> = known.iter().map(|number| *number as u64).collect();
    let classes = distinct.last().map_or(0, |last| *last as usize + 1);
    Some(match () {
        () if known.iter().all(|number| (0.0..=1.0).contains(number)) => {
            OfferValues::Findings(labels)
        }
        () if whole && labels == 1 && classes <= MOST_CLASSES && distinct.len() * 2 > classes => {
            OfferValues::Classes((0..classes).map(|class| class.to_string()).collect())
        }
        () => OfferValues::Numbers(labels),
    })
}
