//! The statistics of a batch that is taken in several parts.

use super::{BatchStatistics, Statistics};

/// What running statistics move towards: the statistics of `parts`, each with its number of images,
/// put together as `rule` says. Those of one part are left as they are.
pub fn combine(parts: Vec<(Statistics, usize)>, rule: BatchStatistics) -> Statistics {
    let total: usize = parts.iter().map(|(_, images)| images).sum();
    let mut parts = parts.into_iter();
    let Some((mut combined, images)) = parts.next() else { return Statistics::new() };
    let mut rest = parts.peekable();
    if rest.peek().is_none() {
        return combined;
    }
    if rule == BatchStatistics::Last {
        return rest.last().map_or(combined, |(last, _)| last);
    }
    let share = |images: usize| images as f64 / total as f64;
    for value in combined.values_mut() {
        *value = value.clone().mul_scalar(share(images));
    }
    for (part, images) in rest {
        for (key, value) in part {
            let sum = combined.get_mut(&key).expect("every part has the same statistics");
            *sum = sum.clone() + value.mul_scalar(share(images));
        }
    }
    combined
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};

    use super::*;

    fn part(value: f32, images: usize) -> (Statistics, usize) {
        let value = Tensor::from_data([value], &Device::flex());
        (Statistics::from([("norm.running_mean".to_owned(), value)]), images)
    }

    fn read(statistics: &Statistics) -> f32 {
        statistics["norm.running_mean"].clone().into_scalar::<f32>()
    }

    #[test]
    fn parts_count_by_their_images() {
        let parts = || vec![part(1.0, 4), part(2.0, 4), part(5.0, 2)];
        assert!((read(&combine(parts(), BatchStatistics::Mean)) - 2.2).abs() < 1e-6);
        assert_eq!(read(&combine(parts(), BatchStatistics::Last)), 5.0);
        assert_eq!(read(&combine(vec![part(0.3, 7)], BatchStatistics::Mean)), 0.3);
    }
}
