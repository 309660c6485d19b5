//! The findings, painted over the healthy chest. Cardiomegaly is not here: the heart itself is
//! larger.

use super::anatomy::{FLUID, Frontal, Heart, Lateral, Lung};
use super::canvas::{Area, Canvas, Relief, soft};
use super::patient::{Consolidation, Device, Effusion, Findings, Lesion, Pneumothorax};

/// Paints what a frontal view shows. What changes the lung comes before what lies over it.
pub(super) fn paint_frontal(
    canvas: &mut Canvas,
    chest: &Frontal,
    findings: &Findings,
    relief: &Relief,
) {
    paint_in_lung(canvas, findings, relief, |side| &chest.lungs[usize::from(side > 0.0)]);
    match findings.device {
        Some(Device::Pacemaker { side }) => {
            paint_box(canvas, [0.52 * side, -0.46], [0.105, 0.085]);
            let [x, y] = heart_tip(&chest.heart);
            let lead = [
                [0.44 * side, -0.46],
                [0.30 * side, -0.60],
                [0.08 * side, -0.48],
                [-0.05, -0.2],
                [-0.06, 0.1],
                [x, y],
            ];
            canvas.stroke(&lead, 0.018, 0.34);
        }
        Some(Device::Lines { side }) => {
            let vein = [[0.34 * side, -1.0], [0.20 * side, -0.66], [-0.05, -0.45], [-0.07, 0.0]];
            canvas.stroke(&vein, 0.019, 0.34);
            canvas.stroke(&[[0.01, -1.1], [0.0, -0.34]], 0.030, 0.30);
            // An electrode and its wire.
            let [x, y] = [0.5 * side, 0.12];
            canvas.stroke(&[[x, y], [0.72 * side, 0.5], [0.7 * side, 1.1]], 0.016, 0.26);
            canvas.stroke(&[[x - 0.01, y], [x + 0.01, y]], 0.05, 0.3);
        }
        None => {}
    }
}

/// Paints what a lateral view shows: both sides lie over each other.
pub(super) fn paint_lateral(
    canvas: &mut Canvas,
    chest: &Lateral,
    findings: &Findings,
    relief: &Relief,
) {
    paint_in_lung(canvas, findings, relief, |_| &chest.lung);
    match findings.device {
        Some(Device::Pacemaker { .. }) => {
            paint_box(canvas, [-0.48, -0.50], [0.05, 0.10]);
            let [x, y] = chest.heart.centre;
            let lead = [[-0.46, -0.56], [-0.2, -0.62], [0.0, -0.4], [-0.05, -0.05], [x, y + 0.08]];
            canvas.stroke(&lead, 0.018, 0.34);
        }
        Some(Device::Lines { .. }) => {
            canvas.stroke(&[[0.02, -1.1], [-0.06, -0.6], [-0.04, 0.0]], 0.020, 0.32);
            canvas.stroke(&[[0.10, -1.1], [0.12, -0.45]], 0.030, 0.30);
            canvas.stroke(&[[-0.62, 0.05], [-0.3, 0.3], [-0.2, 1.1]], 0.016, 0.26);
        }
        None => {}
    }
}

fn paint_in_lung<'a>(
    canvas: &mut Canvas,
    findings: &Findings,
    relief: &Relief,
    lung: impl Fn(f32) -> &'a Lung,
) {
    if let Some(finding) = &findings.pneumothorax {
        paint_pneumothorax(canvas, lung(finding.side), finding);
    }
    if let Some(finding) = &findings.consolidation {
        paint_consolidation(canvas, lung(finding.side), finding, relief);
    }
    if let Some(finding) = &findings.lesion {
        paint_lesion(canvas, lung(finding.side), finding);
    }
    if let Some(finding) = &findings.effusion {
        paint_effusion(canvas, lung(finding.side), finding);
    }
}

/// Fluid fills the lowest corner, its upper border a meniscus that climbs the outer wall.
fn paint_effusion(canvas: &mut Canvas, lung: &Lung, effusion: &Effusion) {
    let level = lung.lowest() - effusion.height * lung.half[1];
    canvas.paint(lung.area(), |x, y, value| {
        let outward = (lung.outward * (x - lung.centre[0]) / lung.half[0]).clamp(-1.0, 1.0);
        let surface = level + 0.10 - 0.24 * (0.5 + 0.5 * outward).powi(3);
        let share = soft(lung.depth(x, y) + 0.03, 0.05) * soft(y - surface, 0.08);
        value + share * (FLUID - value).max(0.0)
    });
}

fn paint_lesion(canvas: &mut Canvas, lung: &Lung, lesion: &Lesion) {
    let [x, y] = lung.at(lesion.place);
    let reach = 1.4 * lesion.radius;
    canvas.paint(Area::around(x, y, reach, reach), |px, py, value| {
        let distance = ((px - x).powi(2) + (py - y).powi(2)).sqrt();
        value + 0.38 * soft(lesion.radius - distance, 0.5 * lesion.radius)
    });
}

/// Airless lung: cloudy, without a sharp border but where the lung ends.
fn paint_consolidation(canvas: &mut Canvas, lung: &Lung, patch: &Consolidation, relief: &Relief) {
    let [x, y] = lung.at(patch.place);
    let reach = 1.9 * patch.radius;
    canvas.paint(Area::around(x, y, reach, reach), |px, py, value| {
        let distance = ((px - x).powi(2) + (py - y).powi(2)).sqrt() / patch.radius;
        let ragged = 0.35 * relief.at(px, py, 6.0) + 0.2 * relief.at(py, px, 15.0);
        let share = soft(1.0 - distance + ragged, 0.9) * soft(lung.depth(px, py), 0.05);
        let cloud = 0.29 + 0.07 * relief.at(px + 3.0, py, 13.0);
        value + share * cloud
    });
}

/// Between wall and lung is air without vessels, darker than lung; the lung's border is a line.
fn paint_pneumothorax(canvas: &mut Canvas, lung: &Lung, air: &Pneumothorax) {
    canvas.paint(lung.area(), |x, y, value| {
        // The gap is widest at the apex and the outer wall and closes towards the base.
        let low = ((y - lung.top()) / (2.0 * lung.half[1])).clamp(0.0, 1.0);
        let outward = lung.outward * (x - lung.centre[0]) / lung.half[0];
        let gap = air.gap * (1.0 - 1.3 * low).max(0.0) * (0.45 + 0.55 * soft(outward + 0.3, 0.8));
        let depth = lung.depth(x, y);
        let open = soft(gap - 0.02, 0.04);
        let space = soft(depth, 0.03) * soft(gap - depth, 0.02) * open;
        let line = soft(0.016 - (depth - gap - 0.01).abs(), 0.016) * open;
        let value = value + space * (0.10 + 0.5 * (value - 0.10) - value);
        value + 0.13 * line
    });
}

fn paint_box(canvas: &mut Canvas, centre: [f32; 2], half: [f32; 2]) {
    let area = Area::around(centre[0], centre[1], half[0] * 1.2, half[1] * 1.2);
    canvas.paint(area, |x, y, value| {
        let (u, v) = ((x - centre[0]) / half[0], (y - centre[1]) / half[1]);
        let depth = 1.0 - (u.powi(4) + v.powi(4)).sqrt().sqrt();
        value + 0.42 * soft(depth, 0.15)
    });
}

/// Where the lead of a pacemaker ends: the tip of the right ventricle.
fn heart_tip(heart: &Heart) -> [f32; 2] {
    let (sin, cos) = heart.radians.sin_cos();
    let reach = 0.55 * heart.half[0];
    [heart.centre[0] + reach * cos, heart.centre[1] + reach * sin]
}
