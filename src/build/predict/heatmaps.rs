//! Heatmaps of the images that are predicted.

use super::{PredictError, PredictedBatch, Predictor};
use crate::data::{Batch, ImageConfig, Sample, overlay};
use crate::train::{GradCam, Images};

/// Makes heatmaps of some labels, by the first model.
pub struct Heatmaps {
    cam: GradCam,
    image: ImageConfig,
    labels: Vec<Label>,
}

struct Label {
    head: String,
    label: String,
    /// The head and its output.
    output: [usize; 2],
}

/// A heatmap over the image that it is of.
pub struct Heatmap<'a> {
    /// The image's place in the list.
    pub image: usize,
    /// The head that it is of.
    pub head: &'a str,
    /// The label.
    pub label: &'a str,
    /// A PNG; or the reason why there is none.
    pub png: Result<Vec<u8>, String>,
}

impl Heatmaps {
    /// Of the labels `wanted`, written `<head>/<label>`; of all where none is.
    ///
    /// # Errors
    /// A label that is not there, and a network without a feature map.
    pub fn new(predictor: &Predictor, wanted: &[String]) -> Result<Self, PredictError> {
        let model = &predictor.models[0];
        let name = |label: &Label| format!("{}/{}", label.head, label.label);
        let mut labels: Vec<Label> = Vec::new();
        for (place, head) in predictor.heads.iter().enumerate() {
            let label = |(at, label): (usize, &String)| Label {
                head: head.name.clone(),
                label: label.clone(),
                output: [place, at],
            };
            labels.extend(head.labels.iter().enumerate().take(head.outputs()).map(label));
        }
        let names: Vec<String> = labels.iter().map(name).collect();
        if let Some(label) = wanted.iter().find(|wanted| !names.contains(wanted)) {
            let known = format!("`{}`", names.join("`, `"));
            return Err(PredictError::NoLabel { label: label.clone(), known });
        }
        if !wanted.is_empty() {
            labels.retain(|label| wanted.contains(&name(label)));
        }
        let cam = GradCam::new(&model.plan.model, &model.trained.inference)?;
        Ok(Self { cam, image: model.plan.data.image.clone(), labels })
    }

    /// Those of the images of a batch that could be read, whose `samples` are those of the whole list.
    /// Each is handed to `take` as soon as it is drawn.
    ///
    /// # Errors
    /// What `take` says, and when the device fails.
    pub fn draw<E: From<PredictError>>(
        &self,
        predictor: &Predictor,
        batch: &PredictedBatch,
        samples: &[Sample],
        mut take: impl FnMut(Heatmap<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let model = &predictor.models[0];
        let Batch { images, shape, indices, .. } = &*batch.seen;
        let outputs: Vec<[usize; 2]> = self.labels.iter().map(|label| label.output).collect();
        let parts = images.chunks(model.at_once).zip(indices.chunks(model.at_once));
        for (images, indices) in parts {
            let shape = [indices.len(), shape[1], shape[2], shape[3]];
            let images = Images::Host { images, shape };
            let maps = self.cam.maps(&model.trained.inference, images, &outputs);
            let maps = maps.map_err(PredictError::from)?;
            for (label, maps) in self.labels.iter().zip(maps) {
                for (&image, map) in indices.iter().zip(maps) {
                    let png = overlay(&samples[image], &self.image, &map.values, map.size);
                    take(Heatmap { image, head: &label.head, label: &label.label, png })?;
                }
            }
        }
        Ok(())
    }
}
