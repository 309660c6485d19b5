//! Small pictures of validation images that are worth a look, with heatmaps, for the page of a run.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Trained, open_trained, while_drawing};
use crate::contain::contained;
use crate::data::{
    self, Batch, Cache, Dataset, Loader, LoaderConfig, OnBadImage, Thumbnail, thumbnail,
};
use crate::plan::Plan;
use crate::report::{SamplePictures, Wanted, wanted};
use crate::run::{CONFIG_FILE, best_findings, state::BEST};
use crate::train::{ActivationMap, GradCam};

/// The longer side of a picture, in pixels.
const SIDE: usize = 192;
/// The bytes of all pictures of a page, which is opened on phones too.
const MOST_BYTES: usize = 1_500_000;
/// How long heatmaps may take: they are no part of the training. On a GPU it is never reached.
const PATIENCE: Duration = Duration::from_secs(20);

/// Draws the samples of the run of `plan` in `folder` that its page shows, with heatmaps by the best
/// weights, and writes them there, where they are not there already. What cannot be drawn is told in the
/// file, so that the page says it.
///
/// # Errors
/// When the best state cannot be read or the file cannot be written, in words.
pub fn draw_samples(plan: &Plan, folder: &Path) -> Result<(), String> {
    let each = plan.run.pictures;
    let Some(findings) = best_findings(folder)?.filter(|_| each > 0) else { return Ok(()) };
    if SamplePictures::read(folder, &findings).is_some_and(|found| found.are_complete(each)) {
        return Ok(());
    }
    let file = folder.join(CONFIG_FILE);
    let config = std::fs::read_to_string(&file);
    let config = config.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let wanted = wanted(&findings, &config, each)?;
    if wanted.is_empty() {
        return Ok(());
    }
    let mut pictures = SamplePictures::new(&findings, each);
    // No picture is worth a run.
    let drawn = contained(|| draw(plan, folder, &wanted, &mut pictures));
    if let Err(reason) = drawn.and_then(|drawn| drawn) {
        pictures.miss(format!("The samples have no pictures: {reason}"));
    }
    let unwritten =
        |error| format!("cannot write {}: {error}", folder.join(SamplePictures::FILE).display());
    pictures.write(folder).map_err(unwritten)
}

fn draw(
    plan: &Plan,
    folder: &Path,
    wanted: &[Wanted],
    pictures: &mut SamplePictures,
) -> Result<(), String> {
    let (data, heads, seed) = (&plan.data, &plan.heads, plan.run.seed);
    let splits = while_drawing(|tell| data::open_for_evaluation(data, heads, seed, tell));
    let images = Arc::new(splits.map_err(|error| error.to_string())?.validation);
    let names = images.names().into_iter().enumerate().map(|(place, name)| (name, place));
    let names: HashMap<String, usize> = names.collect();
    let heatmaps = Heatmaps::open(plan, folder, &images);
    if let Err(reason) = &heatmaps {
        pictures.miss(format!("The samples have no heatmaps: {reason}"));
    }
    let begin = Instant::now();
    for of in wanted {
        let Some(&place) = names.get(&of.image) else {
            pictures.add(of, Err("it is not among the validation images today".to_owned()));
            continue;
        };
        if pictures.bytes() > MOST_BYTES {
            pictures.miss(
                "The last samples have no pictures, so that the page stays small.".to_owned(),
            );
            break;
        }
        let heat = match &heatmaps {
            Ok(_) if begin.elapsed() > PATIENCE => {
                pictures.miss(format!(
                    "The last samples have no heatmaps: all that took more than {} s were left out.",
                    PATIENCE.as_secs()
                ));
                None
            }
            Ok(heatmaps) => Some(heatmaps.of(plan, place, of)),
            Err(_) => None,
        };
        let map = heat.as_ref().and_then(|heat| heat.as_ref().ok());
        let map = map.map(|map| (&map.values[..], map.size));
        let drawn = thumbnail(&images.samples()[place], &plan.data.image, map, SIDE);
        match drawn {
            Ok(Thumbnail { image, heatmap }) => {
                if let Some(Err(reason)) = heat {
                    pictures.miss(format!("The heatmap of {} is missing: {reason}", of.image));
                }
                pictures.add(of, Ok((&image, heatmap.as_deref())));
            }
            Err(reason) => pictures.add(of, Err(reason)),
        }
    }
    Ok(())
}

/// Makes the heatmaps of images, as `trainer predict` does.
struct Heatmaps {
    trained: Trained,
    cam: GradCam,
    loader: Loader,
}

impl Heatmaps {
    fn open(plan: &Plan, folder: &Path, images: &Arc<Dataset>) -> Result<Self, String> {
        let trained = open_trained(plan, &folder.join(BEST)).map_err(|error| error.to_string())?;
        let cam = GradCam::new(&plan.model, &trained.inference);
        let config = LoaderConfig {
            on_bad_image: OnBadImage::Skip,
            ..LoaderConfig::evaluation(&plan.data, 1, plan.run.seed)
        };
        let loader = Loader::new(images.clone(), config, Arc::new(Cache::off()));
        Ok(Self { cam: cam.map_err(|error| error.to_string())?, trained, loader })
    }

    /// That of the image at `place` of the list.
    fn of(&self, plan: &Plan, place: usize, of: &Wanted) -> Result<ActivationMap, String> {
        let batch = self.loader.images(0, vec![place]).next();
        let batch: Batch = match batch {
            Some(batch) => batch.map_err(|error| error.to_string())?,
            None => return Err("it was not loaded".to_owned()),
        };
        if let Some(skipped) = batch.skipped.first() {
            return Err(skipped.reason.clone());
        }
        let head = plan.heads.iter().position(|head| head.name == of.head);
        let output = head.and_then(|head| {
            let labels = plan.heads[head].labels.iter();
            Some([head, labels.take(plan.heads[head].outputs()).position(|l| *l == of.label)?])
        });
        let output = output.ok_or_else(|| format!("the model has no {}/{}", of.head, of.label))?;
        let maps = self.cam.maps(&self.trained.inference, (&batch).into(), &[output]);
        let maps = maps.map_err(|error| format!("the device failed: {error:?}"))?;
        maps.into_iter().flatten().next().ok_or_else(|| "there is none".to_owned())
    }
}
