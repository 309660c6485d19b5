//! A random part of the image, resized to the whole (Szegedy et al. 2015, arXiv:1409.4842).
//!
//! The part is taken from the resized image and never from the decoded one, which a cache does not
//! keep: a part of a tenth of the area has a tenth of the pixels and comes out blurred. For sharp
//! parts give `data.image.size` with room to spare.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::area::Area;
use super::super::config::{AugmentConfig, RandomResizedCrop};
use super::super::prepare::Place;
use super::in_ratio;

/// Draws a part; none without the setting.
pub(super) fn draw(content: Area, config: &AugmentConfig, place: Place) -> Option<Area> {
    let crop = config.random_resized_crop.as_ref()?;
    Some(part(content, crop, &mut place.stream("augment/random_resized_crop")))
}

/// As torchvision's `RandomResizedCrop`: ten tries for an area and a ratio that fit, else the
/// largest part in the middle that has an allowed ratio.
fn part(content: Area, crop: &RandomResizedCrop, random: &mut ChaCha8Rng) -> Area {
    let Area { top, left, height, width } = content;
    for _ in 0..10 {
        let area = content.pixels() as f64 * random.random_range(crop.area[0]..=crop.area[1]);
        let ratio = in_ratio(random, crop.ratio);
        let across = (area * ratio).sqrt().round() as usize;
        let down = (area / ratio).sqrt().round() as usize;
        if (1..=width).contains(&across) && (1..=height).contains(&down) {
            let top = top + random.random_range(0..=height - down);
            let left = left + random.random_range(0..=width - across);
            return Area { top, left, height: down, width: across };
        }
    }
    let whole = width as f64 / height as f64;
    let ratio = whole.clamp(crop.ratio[0], crop.ratio[1]);
    let across = if ratio < whole { height as f64 * ratio } else { width as f64 };
    let down = if ratio > whole { width as f64 / ratio } else { height as f64 };
    let [across, down] = [across, down].map(|side| side.round().max(1.0) as usize);
    let (across, down) = (across.min(width), down.min(height));
    Area {
        top: top + (height - down) / 2,
        left: left + (width - across) / 2,
        height: down,
        width: across,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::augment::tests::{Fixture, assert_same_distribution};
    use crate::random::stream;

    #[test]
    fn parts_are_distributed_as_torchvision_draws_them() {
        let fixture = Fixture::read();
        assert!(fixture.resized_crop.len() >= 2);
        for case in fixture.resized_crop {
            let content = Area::whole(case.size);
            let crop = RandomResizedCrop { area: case.area, ratio: case.ratio };
            let mut random = stream(5, "test", &[]);
            let drawn: Vec<Area> =
                (0..case.draws).map(|_| part(content, &crop, &mut random)).collect();
            let ours = |of: fn(&Area) -> usize| drawn.iter().map(of).collect::<Vec<_>>();
            assert_same_distribution(ours(|area| area.top), &case.top);
            assert_same_distribution(ours(|area| area.left), &case.left);
            assert_same_distribution(ours(|area| area.height), &case.height);
            assert_same_distribution(ours(|area| area.width), &case.width);
        }
    }

    #[test]
    fn parts_lie_within_what_the_image_fills_whatever_its_shape() {
        let mut random = stream(6, "test", &[]);
        for (height, width) in [(1, 1), (1, 50), (50, 1), (7, 300), (90, 60)] {
            let content = Area { top: 3, left: 4, height, width };
            for _ in 0..200 {
                let part = part(content, &RandomResizedCrop::default(), &mut random);
                assert!(part.top >= 3 && part.top + part.height <= 3 + height, "{part:?}");
                assert!(part.left >= 4 && part.left + part.width <= 4 + width, "{part:?}");
                assert!(part.height > 0 && part.width > 0, "{part:?}");
            }
        }
    }
}
