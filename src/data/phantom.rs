//! Synthetic chest-like radiographs in CheXpert's layout, so that everything can be tried without
//! patients' data.
//!
//! Six findings are drawn so that they must be seen: exposure is drawn anew for every picture and
//! the mean intensity tells nothing. A seed fixes every byte, whatever the number of threads; the
//! size changes the pixels and not the patients.

mod anatomy;
mod canvas;
mod findings;
mod folder;
mod patient;

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rand::RngExt;

use self::anatomy::{Frontal, Lateral};
use self::canvas::{Canvas, Exposure, Pose, Relief};
use self::folder::{Partial, RECORD, Record, is_free, verify};
use self::patient::{Patient, Picture, Study};
use super::config::{PhantomConfig, View};
use super::error::DataError;
use super::image::png::encode_deep;
use super::layout::FINDINGS;
use crate::random::stream;

/// Height and width of a phantom's images, in pixels.
pub const PHANTOM_SIZES: std::ops::RangeInclusive<usize> = 32..=3000;

const TABLE: &str = "train.csv";

/// The longest time in which it is not asked whether to go on.
const PAUSE: Duration = Duration::from_millis(50);

/// The column with the diameter of a patient's nodule in pixels, drawn or not.
const DIAMETER: &str = "Nodule Diameter";

/// What `trainer data phantom` draws, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhantomSettings {
    /// The folder that will hold `train.csv` and `train/`.
    pub root: PathBuf,
    /// How many patients, 1 or more, each with one to four images.
    pub patients: usize,
    /// Height and width in pixels, one of [`PHANTOM_SIZES`].
    pub size: usize,
    /// Fixes every byte.
    pub seed: u64,
    /// The least and the largest diameter of nodules in pixels, where they are not a share of the image.
    pub nodules: Option<[usize; 2]>,
}

impl From<&PhantomConfig> for PhantomSettings {
    fn from(config: &PhantomConfig) -> Self {
        let &PhantomConfig { patients, size, seed, nodules, .. } = config;
        Self { root: config.root.clone(), patients, size, seed, nodules }
    }
}

/// What [`ensure_phantom`] found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhantomState {
    /// The folder held this phantom already.
    Found,
    /// It was drawn.
    Written,
}

/// For `progress` where nobody asks how far it is.
pub fn untold(_: usize, _: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Draws the phantom unless its folder holds it already. `progress` is told how many of how many
/// patients are done, several times a second; where it breaks, all that was drawn is removed.
///
/// It is written beside the folder and renamed at the end: a folder is complete or absent. What an
/// interrupted call leaves (`<root>.partial-…`) the next one removes.
///
/// # Errors
/// Settings out of range, whatever the file system refuses, and a folder that holds something else or
/// a phantom with other settings, which is left alone.
pub fn ensure_phantom(
    settings: &PhantomSettings,
    progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<PhantomState, DataError> {
    check(settings)?;
    if !is_free(&settings.root)? {
        verify(settings)?;
        return Ok(PhantomState::Found);
    }
    write_phantom(settings, progress)?;
    Ok(PhantomState::Written)
}

/// Draws the phantom into a folder that does not exist yet or is empty.
fn write_phantom(
    settings: &PhantomSettings,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<(), DataError> {
    // Whoever is to undo it when a signal comes must know before there is anything to undo.
    if progress(0, settings.patients).is_break() {
        return Err(DataError::Stopped);
    }
    let root = &settings.root;
    let partial = Partial::create(root)?;
    draw_all(settings, &partial.path, progress)?;
    write_synced(&partial.path.join(TABLE), &table(settings)?)?;
    let record = serde_json::to_vec_pretty(&Record::of(settings))
        .map_err(|error| DataError::PhantomSettings(error.to_string()))?;
    write_synced(&partial.path.join(RECORD), &record)?;
    match partial.commit(root) {
        // Another process was faster; what it wrote serves as well if it is the same.
        Err(_) if !is_free(root)? => verify(settings),
        outcome => outcome,
    }
}

fn check(settings: &PhantomSettings) -> Result<(), DataError> {
    if !PHANTOM_SIZES.contains(&settings.size) {
        return Err(DataError::PhantomSettings(format!(
            "a phantom's images are {} to {} pixels high and wide, not {}",
            PHANTOM_SIZES.start(),
            PHANTOM_SIZES.end(),
            settings.size
        )));
    }
    if settings.patients == 0 {
        return Err(DataError::PhantomSettings("a phantom needs at least one patient".to_owned()));
    }
    match settings.nodules.and_then(|nodules| wrong_nodules(nodules, settings.size)) {
        Some(message) => Err(DataError::PhantomSettings(message)),
        None => Ok(()),
    }
}

/// What is wrong with diameters of nodules in images of `size` pixels a side, if anything is.
pub(super) fn wrong_nodules([least, most]: [usize; 2], size: usize) -> Option<String> {
    let limit = size / 5;
    (least < 2 || most < least || most > limit).then(|| {
        format!(
            "nodules of {least} to {most} pixels are not drawn in images of {size}: diameters go from 2 to \
             {limit}, the least first"
        )
    })
}

/// The diameter in pixels that the nodule of patient `index` has, or would have.
fn diameter(settings: &PhantomSettings, index: usize) -> Option<f32> {
    let [least, most] = settings.nodules?;
    let mut random = stream(settings.seed, "phantom/nodule", &[index as u64]);
    // As the table has it.
    let tenths = random.random_range(10 * least..=10 * most);
    Some(tenths as f32 / 10.0)
}

/// Draws all patients' images below `folder`, on all cores.
fn draw_all(
    settings: &PhantomSettings,
    folder: &Path,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<(), DataError> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(settings.patients);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (next, failed, sender) = (&next, &failed, sender.clone());
            scope.spawn(move || {
                while !failed.load(Ordering::Relaxed) {
                    let patient = next.fetch_add(1, Ordering::Relaxed);
                    if patient >= settings.patients {
                        break;
                    }
                    let outcome = draw_patient(settings, patient, folder, failed);
                    failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    if sender.send(outcome).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        loop {
            match receiver.recv_timeout(PAUSE) {
                Ok(outcome) => {
                    outcome?;
                    done += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if progress(done, settings.patients).is_break() {
                failed.store(true, Ordering::Relaxed);
                return Err(DataError::Stopped);
            }
        }
    })
}

/// Draws the images of one patient, or where it is to `stop`, some of them.
fn draw_patient(
    settings: &PhantomSettings,
    index: usize,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<(), DataError> {
    let patient = Patient::draw(settings.seed, index as u64);
    for (number, study) in patient.studies.iter().enumerate() {
        for picture in &study.pictures {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let path = folder.join(picture_path(index, number, picture));
            let film = draw(settings, index, &patient, number, picture);
            let study_folder = path.parent().unwrap_or(folder);
            fs::create_dir_all(study_folder).map_err(DataError::io("make", study_folder))?;
            fs::write(
                &path,
                encode_deep(&film, [settings.size; 2]).map_err(|error| {
                    DataError::io("encode", &path)(std::io::Error::other(error))
                })?,
            )
            .map_err(DataError::io("write", &path))?;
        }
    }
    Ok(())
}

/// `train/patient00001/study1/view1_frontal.png`.
fn picture_path(patient: usize, study: usize, picture: &Picture) -> String {
    let side = if picture.view == View::Lateral { "lateral" } else { "frontal" };
    let (patient, study) = (patient + 1, study + 1);
    format!("train/patient{patient:05}/study{study}/view{}_{side}.png", picture.number)
}

/// One picture, `[size, size]`, row by row.
fn draw(
    settings: &PhantomSettings,
    index: usize,
    patient: &Patient,
    study: usize,
    picture: &Picture,
) -> Vec<u16> {
    let place = [index as u64, study as u64, picture.number as u64];
    let mut random = stream(settings.seed, "phantom/picture", &place);
    let pose = Pose {
        radians: random.random_range(-0.09..0.09),
        scale: random.random_range(0.88..1.04),
        shift: [random.random_range(-0.07..0.07), random.random_range(-0.06..0.06)],
    };
    let exposure = Exposure {
        gamma: random.random_range(0.75..1.35),
        mean: random.random_range(0.38..0.58),
        contrast: random.random_range(0.16..0.23),
        grain: random.random_range(0.06..0.22),
    };
    let body = &patient.body;
    let mut findings = patient.studies[study].findings;
    if let (Some(lesion), Some(diameter)) = (&mut findings.lesion, diameter(settings, index)) {
        // The picture is 2 wide, and the body as large in it as the pose has it.
        lesion.radius = diameter / (settings.size as f32 * pose.scale);
    }
    let findings = &findings;
    let relief = Relief::new(&mut stream(body.texture, "phantom/texture", &[]));
    let mut canvas = Canvas::new(settings.size, pose);
    if picture.view == View::Lateral {
        let chest = Lateral::new(body, findings.cardiomegaly);
        chest.paint(&mut canvas, body, &relief);
        findings::paint_lateral(&mut canvas, &chest, findings, &relief);
    } else {
        let ap = picture.view == View::Ap;
        let chest = Frontal::new(body, ap, findings.cardiomegaly);
        chest.paint(&mut canvas, body, ap, &relief);
        findings::paint_frontal(&mut canvas, &chest, findings, &relief);
    }
    canvas.expose(&exposure, &mut random)
}

/// `train.csv`.
fn table(settings: &PhantomSettings) -> Result<Vec<u8>, DataError> {
    let path = settings.root.join(TABLE);
    let failed = |error: csv::Error| DataError::io("write", &path)(std::io::Error::other(error));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let columns = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA"].into_iter().chain(FINDINGS);
    let columns = columns.chain(settings.nodules.map(|_| DIAMETER));
    writer.write_record(columns).map_err(failed)?;
    for index in 0..settings.patients {
        let patient = Patient::draw(settings.seed, index as u64);
        let diameter = diameter(settings, index).map(|diameter| format!("{diameter:.1}"));
        for (number, study) in patient.studies.iter().enumerate() {
            for picture in &study.pictures {
                let file = picture_path(index, number, picture);
                let row = row(file, &patient, study, picture.view).into_iter();
                writer.write_record(row.chain(diameter.clone())).map_err(failed)?;
            }
        }
    }
    writer.into_inner().map_err(|error| DataError::io("write", &path)(error.into_error()))
}

fn row(file: String, patient: &Patient, study: &Study, view: View) -> Vec<String> {
    let sex = if patient.body.female { "Female" } else { "Male" };
    let (side, projection) = match view {
        View::Pa => ("Frontal", "PA"),
        View::Ap => ("Frontal", "AP"),
        View::Lateral => ("Lateral", ""),
    };
    let mut row =
        vec![file, sex.into(), patient.body.age.to_string(), side.into(), projection.into()];
    row.extend(study.labels.map(|label| label.map_or(String::new(), |label| format!("{label}.0"))));
    row
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    let mut file = File::create(path).map_err(DataError::io("write", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(DataError::io("write", path))
}

#[cfg(test)]
mod tests;
