//! Who is drawn: a patient's body, studies, findings and labels. Nothing here knows of pixels.

use rand::{Rng, RngExt};

use crate::data::config::View;
use crate::data::layout::FINDINGS;
use crate::random::stream;

/// A body, the same in all its pictures. Lengths in body coordinates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    pub female: bool,
    pub age: u32,
    /// Factors around 1.
    pub width: f32,
    pub lung_height: f32,
    pub heart: f32,
    pub rib_spacing: f32,
    pub rib_slope: f32,
    /// Thickness of the soft tissue, around 1.
    pub flesh: f32,
    /// Sideways bend of the spine.
    pub scoliosis: f32,
    /// Names the patient's random texture.
    pub texture: u64,
}

/// What is drawn of the six findings, and where. `side` is −1 for the picture's left.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Findings {
    pub cardiomegaly: Option<f32>,
    pub effusion: Option<Effusion>,
    pub lesion: Option<Lesion>,
    pub consolidation: Option<Consolidation>,
    pub pneumothorax: Option<Pneumothorax>,
    pub device: Option<Device>,
}

/// Fluid up to `height` (share of the lung) above the lowest point of the lung.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Effusion {
    pub side: f32,
    pub height: f32,
}

/// A round nodule at a place in the lung (both −1 to 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lesion {
    pub side: f32,
    pub place: [f32; 2],
    pub radius: f32,
}

/// An ill-defined patch at a place in the lung (both −1 to 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Consolidation {
    pub side: f32,
    pub place: [f32; 2],
    pub radius: f32,
}

/// Air around a lung that has fallen away from the wall by `gap` at its apex.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pneumothorax {
    pub side: f32,
    pub gap: f32,
}

/// Metal and plastic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Device {
    /// A box below the clavicle with a lead into the heart.
    Pacemaker { side: f32 },
    /// A venous line from the neck and a tube in the trachea.
    Lines { side: f32 },
}

/// One picture of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Picture {
    pub view: View,
    /// Counted from 1 in the study.
    pub number: usize,
}

/// Pictures taken on one occasion, which share findings and labels.
#[derive(Debug, Clone)]
pub(super) struct Study {
    pub findings: Findings,
    pub pictures: Vec<Picture>,
    /// The 14 label columns: 1, 0, −1 or blank.
    pub labels: [Option<i8>; FINDINGS.len()],
}

/// A patient and all their studies.
#[derive(Debug, Clone)]
pub(super) struct Patient {
    pub body: Body,
    pub studies: Vec<Study>,
}

impl Patient {
    /// Patient `number` of the phantom with `seed`.
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut random = stream(seed, "phantom/patient", &[number]);
        let body = Body::draw(&mut random);
        // Most real films show nothing or several things.
        let healthy = random.random_bool(0.2);
        let chronic = Findings::draw(&mut random, healthy);
        let several = random.random_bool(0.3);
        let studies = (0..1 + u64::from(several)).map(|study| {
            let mut random = stream(seed, "phantom/study", &[number, study]);
            let acute = Findings::draw(&mut random, healthy);
            // What neither comes nor goes within weeks stays the same.
            let findings = Findings {
                cardiomegaly: chronic.cardiomegaly,
                lesion: chronic.lesion,
                device: chronic.device,
                ..acute
            };
            let pictures = draw_pictures(&mut random, several);
            let labels = label(&findings, &mut random);
            Study { findings, pictures, labels }
        });
        Self { body, studies: studies.collect() }
    }
}

impl Body {
    fn draw(random: &mut impl Rng) -> Self {
        Self {
            female: random.random_bool(0.5),
            age: random.random_range(18..=90),
            width: random.random_range(0.93..1.06),
            lung_height: random.random_range(0.93..1.06),
            heart: random.random_range(0.93..1.07),
            rib_spacing: random.random_range(0.93..1.07),
            rib_slope: random.random_range(0.8..1.2),
            flesh: random.random_range(0.85..1.15),
            scoliosis: random.random_range(-0.03..0.03),
            texture: random.next_u64(),
        }
    }
}

impl Findings {
    /// Each finding with the same chance, on a side and at a place of its own.
    fn draw(random: &mut impl Rng, healthy: bool) -> Self {
        let present: [bool; 6] = std::array::from_fn(|_| random.random_bool(0.4) && !healthy);
        let sides: [f32; 5] =
            std::array::from_fn(|_| if random.random_bool(0.5) { 1.0 } else { -1.0 });
        let drawn = Self {
            cardiomegaly: Some(random.random_range(1.3..1.5)),
            effusion: Some(Effusion { side: sides[0], height: random.random_range(0.2..0.45) }),
            lesion: Some(Lesion {
                side: sides[1],
                place: [random.random_range(-0.45..0.55), random.random_range(-0.6..0.45)],
                radius: random.random_range(0.08..0.12),
            }),
            consolidation: Some(Consolidation {
                side: sides[2],
                place: [random.random_range(-0.3..0.4), random.random_range(-0.55..0.4)],
                radius: random.random_range(0.17..0.26),
            }),
            pneumothorax: Some(Pneumothorax {
                side: sides[3],
                gap: random.random_range(0.09..0.15),
            }),
            device: Some(if random.random_bool(0.5) {
                Device::Pacemaker { side: sides[4] }
            } else {
                Device::Lines { side: sides[4] }
            }),
        };
        Self {
            cardiomegaly: drawn.cardiomegaly.filter(|_| present[0]),
            effusion: drawn.effusion.filter(|_| present[1]),
            lesion: drawn.lesion.filter(|_| present[2]),
            consolidation: drawn.consolidation.filter(|_| present[3]),
            pneumothorax: drawn.pneumothorax.filter(|_| present[4]),
            device: drawn.device.filter(|_| present[5]),
        }
    }

    /// Whether the finding of that name is drawn; `None` for names that never are.
    pub fn truth(&self, name: &str) -> Option<bool> {
        Some(match name {
            "No Finding" => *self == Self::default(),
            "Cardiomegaly" => self.cardiomegaly.is_some(),
            "Lung Opacity" => self.consolidation.is_some() || self.lesion.is_some(),
            "Lung Lesion" => self.lesion.is_some(),
            "Consolidation" => self.consolidation.is_some(),
            "Pneumothorax" => self.pneumothorax.is_some(),
            "Pleural Effusion" => self.effusion.is_some(),
            "Support Devices" => self.device.is_some(),
            _ => return None,
        })
    }
}

/// One to four pictures a patient: one to three of a single study, up to two of each of several.
fn draw_pictures(random: &mut impl Rng, several: bool) -> Vec<Picture> {
    let lateral = random.random_bool(0.4);
    let repeated = random.random_bool(0.15) && !several;
    let frontal = if random.random_bool(0.5) { View::Ap } else { View::Pa };
    let mut views = vec![frontal];
    views.extend(lateral.then_some(View::Lateral));
    views.extend(repeated.then_some(frontal));
    let numbered = views.into_iter().enumerate();
    numbered.map(|(index, view)| Picture { view, number: index + 1 }).collect()
}

/// The label columns: the truth, but for about 4 % left blank and 4 % marked uncertain whatever
/// the truth is.
fn label(findings: &Findings, random: &mut impl Rng) -> [Option<i8>; FINDINGS.len()] {
    FINDINGS.map(|name| {
        let fate: f32 = random.random();
        let truth = findings.truth(name)?;
        match fate {
            _ if name == "No Finding" => Some(i8::from(truth)),
            fate if fate < 0.04 => None,
            fate if fate < 0.08 => Some(-1),
            _ => Some(i8::from(truth)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_neither_rare_nor_common_and_blank_labels_tell_nothing() {
        let studies: Vec<Study> =
            (0..4000).flat_map(|number| Patient::draw(5, number).studies).collect();
        for (column, name) in FINDINGS.iter().enumerate() {
            let truths: Vec<bool> =
                studies.iter().filter_map(|study| study.findings.truth(name)).collect();
            let labels = || studies.iter().map(move |study| study.labels[column]);
            if truths.is_empty() {
                assert!(labels().all(|label| label.is_none()), "{name}");
                continue;
            }
            let share = truths.iter().filter(|&&truth| truth).count() as f64 / truths.len() as f64;
            if !["No Finding", "Lung Opacity"].contains(name) {
                assert!((0.25..0.4).contains(&share), "{name}: {share}");
            }
            for unknown in [None, Some(-1)].into_iter().filter(|_| *name != "No Finding") {
                let chosen: Vec<bool> = labels()
                    .zip(&truths)
                    .filter_map(|(label, &truth)| (label == unknown).then_some(truth))
                    .collect();
                let rate = chosen.len() as f64 / truths.len() as f64;
                assert!((0.03..0.05).contains(&rate), "{name}, {unknown:?}: {rate}");
                let positive =
                    chosen.iter().filter(|&&truth| truth).count() as f64 / chosen.len() as f64;
                // Four standard errors of a share among some 200.
                assert!((positive - share).abs() < 0.14, "{name}, {unknown:?}: {positive}");
            }
        }
    }

    #[test]
    fn a_patient_has_one_to_four_pictures_of_which_each_study_has_a_frontal_one() {
        let mut counts = [0; 5];
        for number in 0..500 {
            let patient = Patient::draw(1, number);
            counts[patient.studies.iter().map(|study| study.pictures.len()).sum::<usize>()] += 1;
            assert!(patient.studies.iter().all(|study| study.pictures[0].view != View::Lateral));
        }
        assert!(counts[0] == 0 && counts[1..].iter().all(|&count| count > 0), "{counts:?}");
    }
}
