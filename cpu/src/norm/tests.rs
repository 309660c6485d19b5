use super::*;

const EPSILON: f32 = 1e-5;

fn wave(count: usize, speed: f64, offset: f64) -> Vec<f32> {
    (0..count).map(|i| ((i as f64 * speed).sin() + offset) as f32).collect()
}

fn cases() -> Vec<BatchNorm> {
    let case =
        |[batch, channels, pixels]: [usize; 3]| BatchNorm { batch, channels, pixels, relu: false };
    // With few pixels, whose images are put together, and with many.
    let few = [[3, 5, 49], [8, 40, 16], [64, 7, 1], [2, 3, 33], [1, 1, 2], [300, 2, 36]];
    [&few[..], &[[1, 2, 20_000], [3, 4, 130]]].concat().into_iter().map(case).collect()
}

/// Maps, their gradient, weight and bias.
fn given(sizes: &BatchNorm) -> [Vec<f32>; 4] {
    let count = sizes.batch * sizes.channels * sizes.pixels;
    [(count, 0.7, 3.0), (count, 0.9, 0.1), (sizes.channels, 1.3, 1.5), (sizes.channels, 2.1, 0.0)]
        .map(|(count, speed, offset)| wave(count, speed, offset))
}

/// Result, gradient of the maps, of weight and bias, mean and variance.
fn ours(sizes: &BatchNorm) -> [Vec<f32>; 6] {
    of(sizes, given(sizes))
}

fn of(sizes: &BatchNorm, [map, gradient, weight, bias]: [Vec<f32>; 4]) -> [Vec<f32>; 6] {
    let [map, gradient] =
        [&map, &gradient].map(|maps| Maps::new(maps, sizes.channels * sizes.pixels));
    let (result, statistics) = sizes.forward(map, [&weight, &bias], EPSILON);
    let (of_maps, [of_weight, of_bias]) =
        sizes.backward(map, &statistics, [&weight, &bias], EPSILON, gradient);
    [result, of_maps, of_weight, of_bias, statistics.mean, statistics.variance]
}

/// The result by the definition, in 64 bits.
fn exact(sizes: &BatchNorm, map: &[f64], [weight, bias]: [&[f64]; 2]) -> Vec<f64> {
    let of = |at: usize| at / sizes.pixels % sizes.channels;
    let count = (sizes.batch * sizes.pixels) as f64;
    let mean = |channel: usize, term: &dyn Fn(f64) -> f64| {
        let own = (0..map.len()).filter(|at| of(*at) == channel);
        own.map(|at| term(map[at])).sum::<f64>() / count
    };
    let means: Vec<f64> = (0..sizes.channels).map(|c| mean(c, &|value| value)).collect();
    let variances = (0..sizes.channels).map(|c| mean(c, &|value| (value - means[c]).powi(2)));
    let roots: Vec<f64> = variances.map(|v| (v + f64::from(EPSILON)).sqrt()).collect();
    let each = map.iter().enumerate().map(|(at, value)| {
        let channel = of(at);
        (value - means[channel]) / roots[channel] * weight[channel] + bias[channel]
    });
    each.collect()
}

#[test]
fn results_are_those_of_the_definition_and_gradients_its_differences() {
    for sizes in cases() {
        let given =
            given(&sizes).map(|values| values.into_iter().map(f64::from).collect::<Vec<_>>());
        let [map, gradient, weight, bias] = given;
        let found = ours(&sizes);
        let result = exact(&sizes, &map, [&weight, &bias]);
        for (found, exact) in found[0].iter().zip(&result) {
            assert!((f64::from(*found) - exact).abs() < 2e-5, "{sizes:?}: {found} {exact}");
        }
        let product = |map: &[f64], weight: &[f64], bias: &[f64]| -> f64 {
            let result = exact(&sizes, map, [weight, bias]);
            result.iter().zip(&gradient).map(|(value, gradient)| value * gradient).sum()
        };
        let step = 1e-4;
        let moved = |values: &[f64], at: usize, by: f64| {
            let mut values = values.to_vec();
            values[at] += by;
            values
        };
        for at in (0..map.len()).step_by(map.len().div_ceil(9)) {
            let at_moved = |by: f64| product(&moved(&map, at, by), &weight, &bias);
            let slope = (at_moved(step) - at_moved(-step)) / (2.0 * step);
            let found = f64::from(found[1][at]);
            assert!(
                (found - slope).abs() < 1e-4 * slope.abs().max(1.0),
                "{sizes:?}: {found} {slope}"
            );
        }
        for at in 0..sizes.channels.min(5) {
            let of_weight =
                product(&map, &moved(&weight, at, 1.0), &bias) - product(&map, &weight, &bias);
            let of_bias =
                product(&map, &weight, &moved(&bias, at, 1.0)) - product(&map, &weight, &bias);
            for (found, slope) in [(found[2][at], of_weight), (found[3][at], of_bias)] {
                // A sum of so many terms, most of which cancel.
                let terms = (sizes.batch * sizes.pixels) as f64;
                let most = 1e-5 * slope.abs().max(1.0) + 1e-7 * terms;
                assert!((f64::from(found) - slope).abs() < most, "{sizes:?}: {found} {slope}");
            }
        }
    }
}

#[test]
fn parts_with_the_statistics_and_means_of_all_give_what_all_give() {
    for whole in cases().into_iter().filter(|sizes| sizes.batch > 1) {
        for relu in [false, true] {
            let whole = BatchNorm { relu, ..whole };
            let [map, gradient, weight, bias] = given(&whole);
            let expected = ours(&whole);
            let (size, parameters) = (whole.channels * whole.pixels, [&weight[..], &bias[..]]);
            let part = |images: std::ops::Range<usize>| {
                let [map, gradient] = [&map, &gradient]
                    .map(|all| Maps::new(&all[images.start * size..images.end * size], size));
                (BatchNorm { batch: images.len(), ..whole }, map, gradient)
            };
            let parts = [part(0..1), part(1..whole.batch)];
            let shares = parts.each_ref().map(|part| part.0.batch as f32 / whole.batch as f32);
            let [mean, variance] = [&expected[4], &expected[5]].map(Clone::clone);
            let all = Statistics { mean, variance };
            for (channel, mean) in all.mean.iter().enumerate() {
                let own = parts.each_ref().map(|(sizes, map, _)| sizes.statistics(*map));
                let means = own.iter().zip(shares).map(|(own, share)| own.mean[channel] * share);
                assert!((means.sum::<f32>() - mean).abs() < 1e-5);
                let around = own.iter().zip(shares).map(|(own, share)| {
                    (own.variance[channel] + (own.mean[channel] - mean).powi(2)) * share
                });
                assert!((around.sum::<f32>() - all.variance[channel]).abs() < 1e-5);
            }
            let sums = parts.each_ref().map(|(sizes, map, gradient)| {
                sizes.parameter_gradients(*map, &all, parameters, EPSILON, *gradient)
            });
            let count = (whole.batch * whole.pixels) as f32;
            let sum = |kind: usize, channel: usize| sums[0][kind][channel] + sums[1][kind][channel];
            let means = [0, 1].map(|kind| -> Vec<f32> {
                (0..whole.channels).map(|channel| sum(kind, channel) / count).collect()
            });
            let given = means.each_ref().map(Vec::as_slice);
            let [mut result, mut of_maps] = [const { Vec::new() }; 2];
            for (sizes, map, gradient) in parts {
                result.extend(sizes.apply(map, &all, parameters, EPSILON));
                of_maps
                    .extend(sizes.map_gradients(map, &all, parameters, EPSILON, gradient, given));
            }
            assert_eq!(result, expected[0], "{whole:?}");
            for (found, expected) in of_maps.iter().zip(&expected[1]) {
                assert!((found - expected).abs() < 1e-5, "{whole:?}: {found} {expected}");
            }
            for kind in [0, 1] {
                for channel in 0..whole.channels {
                    let (found, expected) = (sum(kind, channel), expected[2 + kind][channel]);
                    assert!((found - expected).abs() < 1e-4 * expected.abs().max(1.0));
                }
            }
        }
    }
}

#[test]
fn with_relu_everything_is_as_if_it_were_computed_behind() {
    for sizes in cases() {
        let alone = ours(&sizes);
        let [map, gradient, weight, bias] = given(&sizes);
        let passes = |value: &f32| *value > 0.0;
        let masked = gradient.iter().zip(&alone[0]);
        let masked =
            masked.map(|(gradient, value)| if passes(value) { *gradient } else { 0.0 }).collect();
        let mut behind = of(&sizes, [map, masked, weight, bias]);
        assert!(sizes.pixels == 1 || behind[0].iter().any(|value| !passes(value)));
        behind[0].iter_mut().for_each(|value| *value = value.max(0.0));
        assert_eq!(ours(&BatchNorm { relu: true, ..sizes }), behind, "{sizes:?}");
    }
}

#[test]
fn what_is_not_a_number_stays_so_with_relu() {
    let sizes = BatchNorm { batch: 1, channels: 2, pixels: 4, relu: true };
    let [mut map, gradient, weight, bias] = given(&sizes);
    map[1] = f32::NAN;
    let found = of(&sizes, [map, gradient, weight, bias]);
    let is_nan = |values: &[f32]| values.iter().map(|value| value.is_nan()).collect::<Vec<_>>();
    for maps in &found[..2] {
        assert_eq!(is_nan(maps), [[true; 4], [false; 4]].concat());
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let with_relu = cases().into_iter().map(|sizes| BatchNorm { relu: true, ..sizes });
    for sizes in cases().into_iter().chain(with_relu) {
        let by = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads").install(|| ours(&sizes))
        };
        let one = by(1);
        for threads in [2, 3, 4] {
            assert_eq!(by(threads), one, "{threads} threads: {sizes:?}");
        }
    }
}
