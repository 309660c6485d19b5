//! Small pictures of samples: made once the training has ended, kept beside the page and put into it.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::judged::Findings;
use super::write;

/// A label of an image that is worth a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The head.
    pub head: String,
    /// The label; of classes the one that the model has decided on.
    pub label: String,
    /// The image, as predictions call it.
    pub image: String,
}

/// The pictures of a state's samples, as `samples.json` in the run's folder has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePictures {
    /// Epochs completed when the state was saved.
    epoch: u64,
    /// Optimizer steps completed when it was saved.
    step: u64,
    /// Samples of each kind that were wanted.
    each: usize,
    /// What is missing and why, a sentence each.
    missing: Vec<String>,
    pictures: Vec<SamplePicture>,
}

/// A picture, as text that a page holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePicture {
    head: String,
    label: String,
    image: String,
    /// A JPEG in Base64.
    pub picture: Option<String>,
    /// The same under a heatmap.
    pub heatmap: Option<String>,
    /// Why there is no picture.
    pub reason: Option<String>,
}

impl SamplePictures {
    /// The file's name.
    pub const FILE: &str = "samples.json";

    /// Of the state that `findings` are of, with so many samples of `each` kind; none yet.
    pub fn new(findings: &Findings, each: usize) -> Self {
        let Findings { epoch, step, .. } = *findings;
        Self { epoch, step, each, ..Self::default() }
    }

    /// Those in the folder of a run, where they are of the state that `findings` are of.
    pub fn read(folder: &Path, findings: &Findings) -> Option<Self> {
        let text = fs::read_to_string(folder.join(Self::FILE)).ok()?;
        let found: Self = serde_json::from_str(&text).ok()?;
        ((found.epoch, found.step) == (findings.epoch, findings.step)).then_some(found)
    }

    /// Writes them into the folder of a run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        write(&folder.join(Self::FILE), &serde_json::to_string(self)?)
    }

    /// How many samples of each kind are shown.
    pub fn each(&self) -> usize {
        self.each
    }

    /// Whether all is there that so many samples of `each` kind need.
    pub fn are_complete(&self, each: usize) -> bool {
        self.each == each && self.missing.is_empty()
    }

    /// Says that something is missing and why.
    pub fn miss(&mut self, sentence: String) {
        self.missing.extend((!self.missing.contains(&sentence)).then_some(sentence));
    }

    /// What is missing and why, a sentence each.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Adds the JPEG files of a sample, its image and that under a heatmap, or why there are none.
    pub fn add(&mut self, of: &Wanted, files: Result<(&[u8], Option<&[u8]>), String>) {
        let Wanted { head, label, image } = of.clone();
        let text = |file: &[u8]| STANDARD.encode(file);
        let (picture, heatmap, reason) = match files {
            Ok((picture, heatmap)) => (Some(text(picture)), heatmap.map(text), None),
            Err(reason) => (None, None, Some(reason)),
        };
        self.pictures.push(SamplePicture { head, label, image, picture, heatmap, reason });
    }

    /// The bytes that they take in a page.
    pub fn bytes(&self) -> usize {
        let files = self.pictures.iter().flat_map(|one| [&one.picture, &one.heatmap]);
        files.flatten().map(String::len).sum()
    }

    /// The picture of a sample.
    pub fn of(&self, wanted: &Wanted) -> Option<&SamplePicture> {
        let Wanted { head, label, image } = wanted;
        self.pictures.iter().find(|one| (&one.head, &one.label, &one.image) == (head, label, image))
    }
}
