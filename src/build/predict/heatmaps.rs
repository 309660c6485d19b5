//! Heatmaps of the images that are predicted.

use super::{Model, PredictError, PredictedBatch, Predictor};
use crate::data::{Batch, Heat, Sample, overlay};
use crate::train::{ActivationMap, GradCam, Images};

/// Makes heatmaps of some labels: of several models the mean of each model's own.
pub struct Heatmaps {
    /// One for each model.
    cams: Vec<GradCam>,
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
        let models = predictor.models.iter();
        let cams = models.map(|of| GradCam::new(&of.plan.model, &of.trained.inference));
        Ok(Self { cams: cams.collect::<Result<_, _>>()?, labels })
    }

    /// Those of the images of a batch that all models could read, whose `samples` are those of the whole list.
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
        let models = &predictor.models;
        let by_all = |image: &usize| batch.seen.iter().all(|seen| seen.indices.contains(image));
        let read: Vec<usize> =
            (batch.first..batch.first + batch.images.len()).filter(by_all).collect();
        let at_once = models.iter().map(|model| model.at_once).min().unwrap_or(1);
        for images in read.chunks(at_once) {
            let maps = models.iter().zip(&self.cams).zip(&batch.seen);
            let maps = maps.map(|((model, cam), seen)| self.maps(model, cam, seen, images));
            let maps = maps.collect::<Result<Vec<_>, _>>()?;
            for (label, Label { head, label: name, .. }) in self.labels.iter().enumerate() {
                for (place, &image) in images.iter().enumerate() {
                    let heats = models.iter().zip(&maps).map(|(model, maps)| {
                        let ActivationMap { values, size } = &maps[label][place];
                        Heat { config: &model.plan.data.image, values, size: *size }
                    });
                    let png = overlay(&samples[image], &heats.collect::<Vec<_>>());
                    take(Heatmap { image, head, label: name, png })?;
                }
            }
        }
        Ok(())
    }

    /// For each label the maps of a model for some `images` of what it has `seen`.
    fn maps(
        &self,
        model: &Model,
        cam: &GradCam,
        seen: &Batch,
        images: &[usize],
    ) -> Result<Vec<Vec<ActivationMap>>, PredictError> {
        let of = seen.indices.iter().zip(&seen.images);
        let of = of.filter(|(index, _)| images.contains(index));
        let of: Vec<Vec<f32>> = of.map(|(_, image)| image.clone()).collect();
        let [_, channels, height, width] = seen.shape;
        let images = Images::Host { images: &of, shape: [of.len(), channels, height, width] };
        let outputs: Vec<[usize; 2]> = self.labels.iter().map(|label| label.output).collect();
        Ok(cam.maps(&model.trained.inference, images, &outputs)?)
    }
}
