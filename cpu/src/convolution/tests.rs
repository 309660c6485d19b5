use super::*;

fn wave(count: usize, speed: f64) -> Vec<f32> {
    (0..count).map(|i| (i as f64 * speed).sin() as f32).collect()
}

/// Every kind of size: few and many pixels, of which tiles take several or parts; one and many channels.
fn cases() -> Vec<Convolution> {
    let case = |batch, channels, size, [kernel, stride, padding]: [usize; 3]| Convolution {
        batch,
        channels,
        size,
        kernel,
        stride,
        padding,
    };
    vec![
        case(2, [5, 7], [40, 33], [1, 1, 0]),
        case(3, [130, 33], [7, 7], [1, 1, 0]),
        case(37, [11, 6], [4, 4], [1, 1, 0]),
        case(2, [6, 9], [9, 8], [1, 2, 0]),
        case(5, [70, 20], [14, 15], [3, 1, 1]),
        case(1, [3, 4], [50, 37], [3, 1, 1]),
        case(33, [60, 8], [4, 3], [3, 1, 1]),
        case(35, [9, 10], [5, 5], [3, 2, 1]),
        case(2, [4, 5], [31, 28], [3, 2, 1]),
        case(2, [3, 8], [45, 41], [7, 2, 3]),
        case(2, [2, 3], [19, 16], [4, 3, 2]),
        case(2, [2, 3], [9, 11], [5, 1, 0]),
        case(1, [1, 1], [1, 1], [1, 1, 0]),
        case(2, [2, 2], [2, 2], [3, 1, 3]),
        case(1, [2, 2], [3, 2], [5, 2, 2]),
        case(2, [2, 3], [6, 6], [2, 2, 0]),
        case(2, [2, 3], [7, 7], [2, 3, 0]),
        // Few tiles, which are cut into rows too: images put together, alone, and in bands.
        case(40, [70, 100], [4, 4], [3, 1, 1]),
        case(3, [600, 70], [2, 2], [1, 1, 0]),
        case(3, [40, 130], [6, 6], [3, 2, 1]),
        case(2, [300, 100], [6, 6], [1, 1, 0]),
        case(1, [9, 75], [30, 31], [3, 1, 1]),
        case(1, [9, 200], [30, 31], [1, 1, 0]),
        // By tiles, small and large: whole images put together, bands of one, odd sides, weights larger than maps, sums of several parts.
        case(9, [40, 33], [8, 6], [3, 1, 1]),
        case(2, [33, 50], [25, 43], [3, 1, 1]),
        case(5, [130, 150], [4, 3], [3, 1, 1]),
        case(17, [200, 128], [1, 2], [3, 1, 1]),
        case(2, [33, 40], [64, 61], [3, 1, 1]),
        case(40, [40, 33], [8, 6], [3, 1, 1]),
        case(1, [130, 150], [14, 13], [3, 1, 1]),
    ]
}

/// For each value of the result: its place, and the places of the factors that it is a sum of.
fn each_term(sizes: &Convolution, mut term: impl FnMut(usize, usize, usize)) {
    let ([input, output], [height, width]) = (sizes.channels, sizes.size);
    let ([down, right], kernel) = (sizes.output(), sizes.kernel);
    for at in 0..sizes.batch * output * down * right {
        let (x, y) = (at % right, at / right % down);
        let (to, image) = (at / (right * down) % output, at / (right * down * output));
        for place in 0..input * kernel * kernel {
            let (i, j) = (place / kernel % kernel, place % kernel);
            let from = place / (kernel * kernel);
            let row = (y * sizes.stride + i).checked_sub(sizes.padding);
            let column = (x * sizes.stride + j).checked_sub(sizes.padding);
            if let (Some(row), Some(column)) = (row, column)
                && row < height
                && column < width
            {
                let map = ((image * input + from) * height + row) * width + column;
                term(at, map, to * input * kernel * kernel + place);
            }
        }
    }
}

/// Whether sums are found within `most` of what they are.
fn assert_near(found: &[f32], exact: &[f64], most: f64, what: &str) {
    assert_eq!(found.len(), exact.len(), "{what}");
    for (found, exact) in found.iter().zip(exact) {
        assert!((f64::from(*found) - exact).abs() <= most, "{what}: {found} {exact} {most}");
    }
}

/// How far sums may be off: 1e-5 of the largest. By Winograd's large tiles, whose terms are larger and cancel, errors are those of the
/// terms: at most 32 roundings (2⁻²⁴ each) of the largest sum of their absolute values.
fn tolerances(sizes: &Convolution, factors: &[Vec<f32>; 3]) -> [f64; 3] {
    let largest = |sums: Vec<f64>| sums.into_iter().map(f64::abs).fold(0.0, f64::max);
    if sizes.winograd().is_some_and(|winograd| winograd.tile == 4) {
        let all = |values: &Vec<f32>| values.iter().map(|value| value.abs()).collect();
        let terms = exact(sizes, &factors.each_ref().map(all));
        return terms.map(|terms| 32.0 * 2f64.powi(-24) * largest(terms));
    }
    exact(sizes, factors).map(|sums| 1e-5 * largest(sums).max(1.0))
}

/// What map, weight and gradient of the result give, in 64 bits: the result, and the gradients of map and weight.
fn exact(sizes: &Convolution, factors: &[Vec<f32>; 3]) -> [Vec<f64>; 3] {
    let [map, weight, gradient] = factors;
    let mut exact = [gradient, map, weight].map(|values| vec![0.0; values.len()]);
    each_term(sizes, |at, from, by| {
        let [map, weight, gradient] = [map[from], weight[by], gradient[at]].map(f64::from);
        exact[0][at] += map * weight;
        exact[1][from] += gradient * weight;
        exact[2][by] += gradient * map;
    });
    exact
}

/// Map, weight and gradient of the result.
fn factors(sizes: &Convolution) -> [Vec<f32>; 3] {
    let [input, output] = sizes.channels;
    let map = wave(sizes.batch * input * sizes.pixels(), 0.7);
    let weight = wave(output * input * sizes.taps(), 1.3);
    [map, weight, wave(sizes.batch * output * sizes.output_pixels(), 0.9)]
}

/// Result and gradients of map and weight.
fn ours(sizes: &Convolution) -> [Vec<f32>; 3] {
    let [map, weight, gradient] = factors(sizes);
    let [input, output] = sizes.channels;
    let maps = Maps::new(&map, input * sizes.pixels());
    let gradients = Maps::new(&gradient, output * sizes.output_pixels());
    let made = sizes.forward(maps, &weight);
    [made, sizes.of_maps(&weight, gradients), sizes.of_weight(maps, gradients)]
}

#[test]
fn results_and_gradients_are_those_of_the_definition() {
    for sizes in cases() {
        let (found, factors) = (ours(&sizes), factors(&sizes));
        let (exact, most) = (exact(&sizes, &factors), tolerances(&sizes, &factors));
        for (what, i) in ["result", "map", "weight"].into_iter().zip(0..) {
            assert_near(&found[i], &exact[i], most[i], &format!("{what} of {sizes:?}"));
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let large = Convolution {
        batch: 3,
        channels: [300, 40],
        size: [30, 30],
        kernel: 3,
        stride: 1,
        padding: 1,
    };
    for sizes in cases().into_iter().chain([large]) {
        let by = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads").install(|| ours(&sizes))
        };
        let one = by(1);
        for threads in [2, 3, 4, 7] {
            assert_eq!(by(threads), one, "{threads} threads: {sizes:?}");
        }
    }
}

#[test]
fn images_may_lie_apart_and_do_not_depend_on_each_other() {
    for sizes in cases() {
        let [map, weight, gradient] = factors(&sizes);
        let ([input, output], [seen, made]) =
            (sizes.channels, [sizes.pixels(), sizes.output_pixels()]);
        let spread = |values: &[f32], size: usize| -> Vec<f32> {
            let images = values.chunks(size);
            images.flat_map(|image| [image, &[9.0; 5]].concat()).collect()
        };
        let (map, gradient) = (spread(&map, input * seen), spread(&gradient, output * made));
        let maps = Maps::new(&map, input * seen + 5);
        let gradients = Maps::new(&gradient, output * made + 5);
        let [result, of_map, of_weight] = ours(&sizes);
        assert_eq!(sizes.of_weight(maps, gradients), of_weight, "{sizes:?}");
        let most = tolerances(&sizes, &factors(&sizes));
        let one = Convolution { batch: 1, ..sizes };
        for image in 0..sizes.batch {
            let [map, gradient] = [maps, gradients].map(|maps| Maps::new(maps.image(image), 0));
            let found = [one.forward(map, &weight), one.of_maps(&weight, gradient)];
            for (found, (all, most)) in found.iter().zip([&result, &of_map].into_iter().zip(most)) {
                let part = &all[image * found.len()..][..found.len()];
                let part: Vec<f64> = part.iter().map(|x| f64::from(*x)).collect();
                assert_near(found, &part, most, &format!("{sizes:?}"));
            }
        }
    }
}

/// Numbers between -2 and 2 that look like chance.
fn noise(count: usize) -> Vec<f32> {
    let mut state = count as u64;
    let mut one = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| one() + one() + one() + one()).collect()
}

/// Sums of products in 32 bits: by Winograd's tiles the terms are sums themselves, and those of large tiles cancel each other. By the
/// points ±1 and ±2 errors of large tiles are larger than is allowed here.
#[test]
#[expect(clippy::print_stdout, reason = "the figures of docs/architecture.md")]
fn by_tiles_errors_are_of_the_size_of_those_by_columns() {
    let rms = |found: &[f32], exact: &[f64]| {
        let errors =
            found.iter().zip(exact).map(|(found, exact)| (f64::from(*found) - exact).powi(2));
        (errors.sum::<f64>() / exact.iter().map(|exact| exact * exact).sum::<f64>()).sqrt()
    };
    // How many times those of columns they may be, and how large.
    const SMALL: [f64; 2] = [4.0, 1e-6];
    const LARGE: [f64; 2] = [8.0, 2e-6];
    for (batch, channels, side, [times, most]) in [
        (2, [64, 64], 16, LARGE),
        (2, [256, 256], 16, LARGE),
        (2, [128, 32], 28, LARGE),
        (4, [256, 256], 8, SMALL),
        (8, [256, 256], 4, SMALL),
    ] {
        let size = [side; 2];
        let tiles = Convolution { batch, channels, size, kernel: 3, stride: 1, padding: 1 };
        // The same with zeros around its windows, which is none of Winograd's.
        let columns = Convolution { kernel: 5, padding: 2, ..tiles };
        assert!(tiles.winograd().is_some() && columns.winograd().is_none());
        let pixels = batch * side * side;
        let counts = [pixels * channels[0], channels[0] * channels[1] * 9, pixels * channels[1]];
        let [map, weight, gradient] = counts.map(noise);
        let (mut wide, mut places) = (Vec::new(), Vec::new());
        for window in weight.chunks(9) {
            for place in 0..25 {
                let inner = (place / 5 % 4 > 0 && place % 5 % 4 > 0)
                    .then(|| (place / 5 - 1) * 3 + place % 5 - 1);
                wide.push(inner.map_or(0.0, |inner| window[inner]));
                places.push(inner.is_some());
            }
        }
        let maps = Maps::new(&map, channels[0] * side * side);
        let gradients = Maps::new(&gradient, channels[1] * side * side);
        let all = |sizes: &Convolution, weight: &[f32]| {
            let made = sizes.forward(maps, weight);
            [made, sizes.of_maps(weight, gradients), sizes.of_weight(maps, gradients)]
        };
        let (by_tiles, mut by_columns) = (all(&tiles, &weight), all(&columns, &wide));
        let of_weight = std::mem::take(&mut by_columns[2]).into_iter().zip(places);
        by_columns[2] = of_weight.filter(|(_, inner)| *inner).map(|(value, _)| value).collect();
        let exact = exact(&tiles, &[map, weight, gradient]);
        for (what, place) in ["result", "map", "weight"].into_iter().zip(0..) {
            let [tiles, columns] =
                [&by_tiles, &by_columns].map(|found| rms(&found[place], &exact[place]));
            println!(
                "{channels:?}, {side}²: {what} by tiles {tiles:.1e}, by columns {columns:.1e}"
            );
            assert!(tiles < times * columns && tiles < most, "{what}: {tiles} and {columns}");
        }
    }
}
