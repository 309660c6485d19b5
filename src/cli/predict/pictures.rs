//! `--heatmap`: pictures in a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Failure, failure};
use crate::build::{Heatmap, Heatmaps, PredictError, PredictedBatch, Predictor};
use crate::cli::whole;
use crate::data::{Dataset, Sample};
use crate::screen::say;

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
                    say(format_args!("warning: image `{image}` has no heatmap: {reason}"));
                    return Ok(());
                }
            };
            whole::write(&path, png).map_err(|error| unwritten(&path, &error))
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

/// What the pictures of each image are called: the name of its file, with as many of the folders above
/// before it as tell all images apart.
fn names(samples: &[Sample]) -> Vec<String> {
    let depth = |sample: &Sample| sample.path.components().count();
    let deepest = samples.iter().map(depth).max().unwrap_or(1).max(1);
    let named = |count: usize| -> Vec<String> {
        let name = |sample: &Sample| {
            let parts = sample.path.iter().skip(depth(sample).saturating_sub(count));
            let parts: Vec<_> = parts.map(|part| plain(&part.to_string_lossy())).collect();
            parts.join("_")
        };
        samples.iter().map(name).collect()
    };
    let differ = |names: &Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    (1..=deepest).map(named).find(differ).unwrap_or_else(|| {
        let numbered = named(1).into_iter().enumerate();
        numbered.map(|(place, name)| format!("{}-{name}", place + 1)).collect()
    })
}

/// With nothing in it that has a meaning in a path.
fn plain(name: &str) -> String {
    let allowed = |sign: char| sign.is_alphanumeric() || matches!(sign, '-' | '_' | '.');
    name.chars().map(|sign| if allowed(sign) { sign } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Vec<String> {
        let sample = |path: &&str| Sample {
            path: path.into(),
            item: None,
            table: Path::new("list.csv").into(),
            line: 1,
            patient: String::new(),
            source: 0,
        };
        names(&paths.iter().map(sample).collect::<Vec<_>>())
    }

    #[test]
    fn pictures_have_the_name_of_the_file_and_of_the_folders_that_tell_it_from_others() {
        assert_eq!(named(&["a/1.png", "b/2 x.png"]), ["1.png", "2_x.png"]);
        assert_eq!(named(&["p1/s1/v.png", "p1/s2/v.png"]), ["s1_v.png", "s2_v.png"]);
        assert_eq!(named(&["p1/s1/v.png", "p2/s1/v.png"]), ["p1_s1_v.png", "p2_s1_v.png"]);
        assert_eq!(named(&["a/v.png", "v.png"]), ["a_v.png", "v.png"]);
        assert_eq!(named(&["/a/v!.png", "/a/v?.png"]), ["1-v_.png", "2-v_.png"]);
    }
}
