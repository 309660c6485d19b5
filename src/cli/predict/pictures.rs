//! `--heatmap`: pictures in a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Failure, failure};
use crate::build::{Heatmap, Heatmaps, PredictError, PredictedBatch, Predictor};
use crate::data::{Dataset, Sample};

/// Writes heatmaps into a folder, each as `<file>.<head>.<label>.png`.
pub(super) struct Pictures {
    heatmaps: Heatmaps,
    folder: PathBuf,
    /// What the pictures of each image begin with.
    names: Vec<String>,
}

impl Pictures {
    /// Makes the folder. Heatmaps are of the labels `wanted`, or of all.
    ///
    /// # Errors
    /// A folder that cannot be made, a label that is not there, a network without a feature map.
    pub fn open(
        folder: &Path,
        predictor: &Predictor,
        wanted: &[String],
        images: &Dataset,
    ) -> Result<Self, Failure> {
        let heatmaps = Heatmaps::new(predictor, wanted).map_err(failure)?;
        fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))?;
        Ok(Self { heatmaps, folder: folder.to_owned(), names: names(images.samples()) })
    }

    /// Draws and writes those of a batch.
    ///
    /// # Errors
    /// What the system refuses to write, and when the device fails.
    pub fn draw(
        &mut self,
        predictor: &Predictor,
        batch: &PredictedBatch,
        samples: &[Sample],
    ) -> Result<(), Failure> {
        self.heatmaps.draw(predictor, batch, samples, |heatmap: Heatmap<'_>| {
            let Heatmap { image, head, label, png } = heatmap;
            let name = format!("{}.{}.{}.png", self.names[image], plain(head), plain(label));
            let path = self.folder.join(name);
            let png = match png {
                Ok(png) => png,
                Err(reason) => {
                    let image = samples[image].path.display();
                    eprintln!("warning: image `{image}` has no heatmap: {reason}");
                    return Ok(());
                }
            };
            fs::write(&path, png).map_err(|error| unwritten(&path, &error))
        })
    }
}

impl From<PredictError> for Failure {
    fn from(error: PredictError) -> Self {
        failure(error)
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::other(format!("cannot write {}: {error}", path.display()))
}

/// The name of each image's file; where several have one, those after the first are numbered.
fn names(samples: &[Sample]) -> Vec<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let name = |sample: &Sample| {
        let name = sample.path.file_name().unwrap_or_default().to_string_lossy();
        let name = plain(&name);
        let times = times.entry(name.clone()).or_default();
        *times += 1;
        if *times == 1 { name } else { format!("{name}-{times}") }
    };
    samples.iter().map(name).collect()
}

/// With nothing in it that has a meaning in a path.
fn plain(name: &str) -> String {
    let allowed = |sign: char| sign.is_alphanumeric() || matches!(sign, '-' | '_' | '.');
    name.chars().map(|sign| if allowed(sign) { sign } else { '_' }).collect()
}
