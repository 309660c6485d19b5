//! The labels of mixed images.

use super::super::batch::Targets;

/// `share` of each image's labels and the rest of its partner's, where both are known; a label that
/// only one of them has is masked: what the mixed image shows is then not known.
///
/// For a head of `classes` the result holds a share of each class, `[images, classes]`.
pub(super) fn mix_labels(
    targets: &Targets,
    classes: Option<usize>,
    partner: usize,
    share: f32,
) -> Targets {
    let width = targets.width;
    let images = targets.values.len() / width.max(1);
    let other = |place: usize| (place / width + partner) % images * width + place % width;
    let known = |place: usize| targets.mask[place] != 0.0 && targets.mask[other(place)] != 0.0;
    let Some(classes) = classes else {
        let places = 0..targets.values.len();
        let value = |place: usize| match known(place) {
            true => targets.values[place] * share + targets.values[other(place)] * (1.0 - share),
            false => 0.0,
        };
        let mask = places.clone().map(|place| f32::from(u8::from(known(place)))).collect();
        return Targets { values: places.map(value).collect(), mask, width };
    };
    let mut values = vec![0.0; images * classes];
    let mut mask = vec![0.0; images * classes];
    for image in (0..images).filter(|&image| known(image)) {
        let row = image * classes..(image + 1) * classes;
        mask[row.clone()].fill(1.0);
        let row = &mut values[row];
        row[targets.values[image] as usize] += share;
        row[targets.values[other(image)] as usize] += 1.0 - share;
    }
    Targets { values, mask, width: classes }
}
