//! What a model takes from a file of weights to start from, and what it does not.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::xrv::{Outputs, Shared};
use super::{Mismatch, NamedTensor, Weights, WeightsError, match_names, read};
use crate::data::{Normalize, NormalizeKind, constant_scale};
use crate::model::HeadConfig;

/// Names that a person is told one by one; more are counted.
const NAMED: usize = 3;

/// What the names of all parameters of heads begin with.
const HEADS: &str = "classifier.";

/// What a model has taken from a file of weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Initial {
    /// The file.
    pub file: PathBuf,
    /// How many of the model's tensors have their values from it.
    pub tensors: usize,
    /// Of these, the ones that were adapted to the channels of the images.
    pub adapted: Vec<Adapted>,
    /// Whether it is a model of torchxrayvision's, or an import of one, for levels from −1024 to 1024.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub torchxrayvision: bool,
    /// The heads that have their outputs from it by their labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_label: Vec<String>,
    /// Labels that it was not trained on, of heads that could have had their outputs from it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_labels: Vec<String>,
    /// Tensors of the file that the model has no use for, by their names there.
    pub unused: Vec<String>,
    /// Tensors of heads that the file does not have: their weights are random.
    pub missing: Vec<String>,
    /// Tensors of heads that the file has in another shape: their weights are random.
    pub mismatched: Vec<Mismatch>,
}

/// The weight of a convolution that was adapted to other images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Adapted {
    /// Its name in the model.
    pub name: String,
    /// Channels that it takes in the file.
    pub from: usize,
    /// Channels that it takes in the model.
    pub to: usize,
}

/// A model cannot start from a file.
#[derive(Debug, Error)]
pub enum InitialError {
    /// The file cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// It holds the weights of another model.
    #[error(
        "{} does not fit this model: {why}\nName weights of the same architecture as `init` under \
         [model], or change [model] to theirs.",
        path.display()
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// Its model saw images of another scale.
    #[error(
        "{} is a model of torchxrayvision's, which sees levels from −1024 (black) to 1024 (white), and \
         `normalize` of `image` under [data] is {normalize}\nWrite `normalize = \"xrv\"` there, or leave it \
         out.",
        path.display()
    )]
    OtherScale {
        /// The file.
        path: PathBuf,
        /// What the configuration has.
        normalize: String,
    },
}

/// The values that the file at `path` has for a model whose tensors are `wanted` (name and shape, in
/// the order in which images pass them), by name.
///
/// A first convolution of 1 or 3 channels is adapted to images of another number, see [`adapt`]. The
/// `heads` have their outputs by their labels where the file is a model of torchxrayvision's.
///
/// # Errors
/// When the file cannot be read, or does not have all that the model needs but its heads.
pub fn initial(
    path: &Path,
    wanted: &[(String, Vec<usize>)],
    heads: &[HeadConfig],
) -> Result<(Initial, BTreeMap<String, Vec<f32>>), InitialError> {
    let other = |why| InitialError::OtherModel { path: path.to_owned(), why };
    let weights = read(path)?;
    let xrv = Outputs::of(&weights);
    let torchxrayvision = is_for_xrv_levels(&weights);
    let Weights { tensors: mut file, .. } = weights;
    let shared = xrv.as_ref().map(|outputs| outputs.share_out(&mut file, heads));
    let Shared { by_label, unknown, unused } = shared.unwrap_or_default();
    let first = wanted.iter().find(|(_, shape)| shape.len() == 4);
    let mut matched = match_names(&file, wanted);
    let mut adapted = Vec::new();
    let mut values = BTreeMap::new();
    for mismatch in std::mem::take(&mut matched.mismatched) {
        let Mismatch { name, found, wanted, at } = &mismatch;
        let is_first = first.is_some_and(|(first, _)| first == name);
        if is_first && let Some((from, to)) = other_channels(found, wanted) {
            values.insert(name.clone(), adapt(&file[*at], to));
            adapted.push(Adapted { name: name.clone(), from, to });
        } else if name.starts_with(HEADS) {
            matched.mismatched.push(mismatch);
        } else {
            return Err(other(format!("its `{name}` is {found:?}, and the model's {wanted:?}")));
        }
    }
    let missing: Vec<&String> =
        matched.missing.iter().filter(|name| !name.starts_with(HEADS)).collect();
    if let [first, more @ ..] = missing.as_slice() {
        let more =
            if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        return Err(other(format!("it has no `{first}`{more}")));
    }
    for (of, at) in matched.assignments {
        values.insert(wanted[of].0.clone(), std::mem::take(&mut file[at].data));
    }
    let initial = Initial {
        file: path.to_owned(),
        tensors: values.len(),
        adapted,
        torchxrayvision,
        by_label,
        unknown_labels: unknown,
        unused: [unused, matched.unexpected].concat(),
        missing: matched.missing,
        mismatched: matched.mismatched,
    };
    Ok((initial, values))
}

/// Whether the file at `path` has weights of torchxrayvision's, for levels from −1024 to 1024.
///
/// # Errors
/// When it cannot be read.
pub fn sees_xrv_levels(path: &Path) -> Result<bool, WeightsError> {
    read(path).map(|weights| is_for_xrv_levels(&weights))
}

/// All models of torchxrayvision's are, whatever their outputs.
fn is_for_xrv_levels(weights: &Weights) -> bool {
    weights.torchxrayvision || weights.xrv_levels || Outputs::of(weights).is_some()
}

/// The channels of two shapes of a convolution's weight that differ in nothing else, where the first
/// is one for grey or colour images.
fn other_channels(found: &[usize], wanted: &[usize]) -> Option<(usize, usize)> {
    match (found, wanted) {
        ([a, from @ (1 | 3), b, c], [x, to, y, z]) => {
            ([a, b, c] == [x, y, z]).then_some((*from, *to))
        }
        _ => None,
    }
}

/// The weight of a convolution for images of `channels` channels, `[outputs, channels, height,
/// width]`, from one for others.
///
/// As timm's `adapt_input_conv`: for one channel the sum over all, for more the channels in turn,
/// scaled as their numbers are. So a grey image gives the same with one channel as with three equal
/// ones, whichever of the two the weight is for.
fn adapt(tensor: &NamedTensor, channels: usize) -> Vec<f32> {
    let [outputs, found] = [tensor.shape[0], tensor.shape[1]];
    let size: usize = tensor.shape[2..].iter().product();
    let mut adapted = vec![0.0; outputs * channels * size];
    for (place, value) in adapted.iter_mut().enumerate() {
        let (pixel, plane) = (place % size, place / size);
        let (output, channel) = (plane / channels, plane % channels);
        let at = |channel: usize| tensor.data[(output * found + channel) * size + pixel];
        *value = match channels {
            1 => (0..found).map(at).sum(),
            _ => at(channel % found) * (found as f32 / channels as f32),
        };
    }
    adapted
}

impl Initial {
    /// Refuses images of another scale than the file's model was trained on, where that is known.
    ///
    /// # Errors
    /// When they are.
    pub fn check_scale(&self, normalize: &Normalize, channels: usize) -> Result<(), InitialError> {
        let xrv = Normalize::Named(NormalizeKind::Xrv);
        let scale = |normalize| constant_scale(normalize, channels);
        if !self.torchxrayvision || scale(normalize) == scale(&xrv) {
            return Ok(());
        }
        let normalize = serde_json::json!(normalize).to_string();
        Err(InitialError::OtherScale { path: self.file.clone(), normalize })
    }

    /// The names of the tensors whose weights are random.
    pub fn random(&self) -> Vec<String> {
        let mismatched = self.mismatched.iter().map(|mismatch| &mismatch.name);
        self.missing.iter().chain(mismatched).cloned().collect()
    }

    /// What a person may not expect: the weights that stay random.
    pub fn warnings(&self) -> Vec<String> {
        let file = self.file.display();
        let mut warnings = Vec::new();
        if !self.unknown_labels.is_empty() {
            let unknown = names(&self.unknown_labels);
            warnings.push(format!("{file} has no outputs for the labels {unknown}"));
        }
        if !self.missing.is_empty() {
            let missing = names(&self.missing);
            warnings.push(format!("drawn at random, because {file} does not have them: {missing}"));
        }
        if !self.mismatched.is_empty() {
            let shapes =
                |of: &Mismatch| format!("{} ({:?} there, {:?} here)", of.name, of.found, of.wanted);
            let shapes: Vec<String> = self.mismatched.iter().map(shapes).collect();
            warnings.push(format!(
                "drawn at random, because {file} has them in another shape: {}",
                names(&shapes)
            ));
        }
        warnings
    }
}

impl fmt::Display for Initial {
    /// What was taken and what was not, in a sentence.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: usize| match count {
            1 => "1 tensor".to_owned(),
            count => format!("{count} tensors"),
        };
        write!(formatter, "started from {}: {} taken", self.file.display(), count(self.tensors))?;
        for Adapted { name, from, to } in &self.adapted {
            write!(formatter, ", {name} adapted from {from} to {to} channels")?;
        }
        if !self.by_label.is_empty() {
            write!(formatter, ", outputs of {} by their labels", names(&self.by_label))?;
        }
        if !self.unused.is_empty() {
            write!(formatter, "; {} not used: {}", self.unused.len(), names(&self.unused))?;
        }
        match self.random().len() {
            0 => Ok(()),
            random => write!(formatter, "; {} of heads drawn at random", count(random)),
        }
    }
}

/// The first few names, and how many more there are.
fn names(all: &[String]) -> String {
    let shown = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
