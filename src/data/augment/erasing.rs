//! A rectangle painted over (Zhong et al. 2017, arXiv:1708.04896).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::area::Area;
use super::super::config::{AugmentConfig, RandomErasing};
use super::super::prepare::{Place, Resized};
use super::in_ratio;

/// Paints a rectangle over, with the probability given, in all planes.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    let Some(erasing) = &config.random_erasing else { return };
    let mut random = place.stream("augment/random_erasing");
    if random.random::<f64>() >= erasing.probability {
        return;
    }
    let Some(area) = rectangle(image.size, erasing, &mut random) else { return };
    let [black, white] = image.range;
    let level = black + (white - black) * erasing.value as f32;
    let width = image.size[1];
    for plane in image.planes_mut() {
        area.rows_mut(plane, width).for_each(|row| row.fill(level));
    }
}

/// As torchvision's `RandomErasing`: ten tries for one that is smaller than the image in both
/// directions, else none.
fn rectangle(
    [height, width]: [usize; 2],
    erasing: &RandomErasing,
    random: &mut ChaCha8Rng,
) -> Option<Area> {
    (0..10).find_map(|_| {
        let pixels = (height * width) as f64;
        let area = pixels * random.random_range(erasing.area[0]..=erasing.area[1]);
        let ratio = in_ratio(random, erasing.ratio);
        let across = (area * ratio).sqrt().round() as usize;
        let down = (area / ratio).sqrt().round() as usize;
        (across < width && down < height).then(|| Area {
            top: random.random_range(0..=height - down),
            left: random.random_range(0..=width - across),
            height: down,
            width: across,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::augment::tests::{Fixture, assert_same_distribution};
    use crate::random::stream;

    #[test]
    fn rectangles_are_distributed_as_torchvision_draws_them() {
        let fixture = Fixture::read();
        assert!(fixture.erasing.len() >= 2);
        for case in fixture.erasing {
            let erasing =
                RandomErasing { area: case.area, ratio: case.ratio, ..RandomErasing::default() };
            let mut random = stream(7, "test", &[]);
            let nothing = Area { top: 0, left: 0, height: 0, width: 0 };
            let drawn: Vec<Area> = (0..case.draws)
                .map(|_| rectangle(case.size, &erasing, &mut random).unwrap_or(nothing))
                .collect();
            let ours = |of: fn(&Area) -> usize| drawn.iter().map(of).collect::<Vec<_>>();
            assert_same_distribution(ours(|area| area.top), &case.top);
            assert_same_distribution(ours(|area| area.left), &case.left);
            assert_same_distribution(ours(|area| area.height), &case.height);
            assert_same_distribution(ours(|area| area.width), &case.width);
        }
    }

    #[test]
    fn a_rectangle_of_the_value_is_painted_as_often_as_asked_for() {
        let config: AugmentConfig =
            toml::from_str("random_erasing = { probability = 0.3, value = 0.75 }").expect("reads");
        let mut painted = 0;
        for number in 0..600 {
            let mut image = Resized::unit(vec![0.25; 400], [20, 20], Area::whole([20, 20]));
            apply(&mut image, &config, Place { seed: 1, epoch: 1, number });
            assert!(image.levels.iter().all(|level| [0.25, 0.75].contains(level)));
            painted += usize::from(image.levels.contains(&0.75));
        }
        // Five standard deviations around 180.
        assert!((124..=236).contains(&painted), "{painted}");
    }
}
