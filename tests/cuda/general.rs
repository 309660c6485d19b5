//! Convolutions and fully connected layers of any size, and models that do not run fused.

use super::*;
use trainer::model::SequentialConfig;
use trainer::ops::{
    MatmulPrecision, Window, bias_gradient, convolution, convolution_gradients, linear,
    linear_gradients, sum,
};

/// What a product of a map and a weight gives: its result and both gradients.
type Found = [Vec<f32>; 3];

/// A convolution's shapes: of the map and of the weight; stride and padding.
#[derive(Debug, Clone, Copy)]
struct Case {
    map: [usize; 4],
    weight: [usize; 4],
    stride: usize,
    padding: usize,
}

impl Case {
    fn new(map: [usize; 4], [output, kernel]: [usize; 2], [stride, padding]: [usize; 2]) -> Self {
        Self { map, weight: [output, map[1], kernel, kernel], stride, padding }
    }

    /// Some of any size, the same every time.
    fn random(count: usize) -> Vec<Self> {
        let mut state = 9_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % bound
        };
        const CHANNELS: [usize; 12] = [1, 2, 3, 4, 5, 8, 12, 17, 24, 37, 64, 131];
        let case = |_| {
            let (kernel, stride) = (1 + below(11), 1 + below(4));
            let padding = below(kernel);
            let least = kernel.saturating_sub(2 * padding).max(1);
            let size = [least + below(30), least + below(30)];
            let channels = [CHANNELS[below(12)], CHANNELS[below(12)]];
            let map = [1 + below(4), channels[0], size[0], size[1]];
            Self::new(map, [channels[1], kernel], [stride, padding])
        };
        (0..count).map(case).collect()
    }

    /// The convolution of numbers that `dtype` has, computed on `device` in `compute`.
    fn run(
        &self,
        precision: MatmulPrecision,
        dtype: DType,
        compute: DType,
        device: &Device,
    ) -> Found {
        self.with(precision, |shape, seed| noise(shape, seed, device).cast(dtype).cast(compute))
    }

    /// The root of the sum of the squares of the terms of each number: about how large a sum of such
    /// terms is, also where they happen to cancel.
    fn size(&self, dtype: DType, device: &Device) -> Found {
        let squares = self.with(MatmulPrecision::Full, |shape, seed| {
            noise(shape, seed, device).cast(dtype).cast(DType::F64).powf_scalar(2.0)
        });
        squares.map(|squares| squares.into_iter().map(f32::sqrt).collect())
    }

    fn with(
        &self,
        precision: MatmulPrecision,
        factor: impl Fn([usize; 4], u64) -> Tensor<4>,
    ) -> Found {
        let [map, weight] = [factor(self.map, 3), factor(self.weight, 5)];
        let window = Window { kernel: self.weight[2], stride: self.stride, padding: self.padding };
        convolved(precision, map, weight, window, |shape| factor(shape, 7))
    }
}

/// A convolution and its gradients, where `direction` gives that of the result.
fn convolved(
    precision: MatmulPrecision,
    map: Tensor<4>,
    weight: Tensor<4>,
    window: Window,
    direction: impl Fn([usize; 4]) -> Tensor<4>,
) -> Found {
    let out = convolution(precision, map.clone(), weight.clone(), window);
    let direction = direction(out.dims());
    let (of_map, of_weight) =
        convolution_gradients(precision, [map, weight], window, direction, true);
    [out, of_map.expect("was asked for"), of_weight].map(values)
}

/// Of a convolution that keeps the size.
const SAME: Window = Window { kernel: 3, stride: 1, padding: 1 };

/// ‖a − b‖.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    squares.sum::<f64>().sqrt()
}

fn norm(a: &[f32]) -> f64 {
    a.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>().sqrt()
}

const NAMES: [&str; 3] = ["result", "input gradient", "weight gradient"];

fn assert_near(name: &str, ours: &Found, exact: &Found, tolerance: f64) {
    let errors = [0, 1, 2].map(|k| error(&ours[k], &exact[k]));
    println!("{name}: {}", errors.map(|error| format!("{error:.1e}")).join(", "));
    for (what, error) in NAMES.iter().zip(errors) {
        assert!(error <= tolerance, "{name}: {what} is off by {error:.1e}");
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        // The stem, a dense layer's two, a transition, a strided one and its shortcut.
        Case::new([2, 1, 65, 62], [64, 7], [2, 3]),
        Case::new([2, 3, 65, 62], [64, 7], [2, 3]),
        Case::new([3, 60, 17, 19], [48, 1], [1, 0]),
        Case::new([3, 48, 17, 19], [12, 3], [1, 1]),
        Case::new([2, 150, 16, 16], [75, 1], [1, 0]),
        Case::new([2, 64, 15, 14], [128, 3], [2, 1]),
        Case::new([2, 64, 15, 14], [256, 1], [2, 0]),
        // One pixel, one image, one channel, a kernel of the image's size.
        Case::new([1, 1, 1, 1], [1, 1], [1, 0]),
        Case::new([1, 7, 1, 1], [9, 3], [1, 1]),
        Case::new([1, 1, 11, 11], [1, 11], [4, 0]),
        Case::new([1, 20, 45, 43], [50, 3], [1, 1]),
    ];
    cases.extend(Case::random(60));
    cases
}

#[test]
fn convolutions_of_any_size_give_what_the_definition_gives() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    // Results of 16 bits are rounded once more than their sums.
    let kinds = [
        (MatmulPrecision::Full, DType::F32, 1e-5),
        (MatmulPrecision::Tf32, DType::F32, 1e-3),
        (MatmulPrecision::Full, DType::BF16, 4e-3),
        (MatmulPrecision::Full, DType::F16, 5e-4),
    ];
    for case in cases() {
        for (precision, dtype, tolerance) in kinds {
            let exact = case.run(MatmulPrecision::Full, dtype, DType::F64, &cpu);
            let ours = case.run(precision, dtype, dtype, &gpu);
            let name = format!("{case:?} {precision:?} {dtype:?}");
            let size = case.size(dtype, &cpu);
            for (what, ((ours, exact), size)) in
                NAMES.iter().zip(ours.iter().zip(&exact).zip(&size))
            {
                let off = distance(ours, exact) / norm(exact).max(norm(size));
                assert!(off <= tolerance, "{name}: {what} is off by {off:.1e}");
            }
            let again = case.run(precision, dtype, dtype, &gpu);
            assert!(ours == again, "{name}: two runs differ");
        }
    }
}

#[test]
fn it_does_not_matter_how_a_map_lies_in_memory() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    type Lay = fn(&Device) -> Tensor<4>;
    let lays: [(&str, Lay); 4] = [
        ("channels last", |device| noise([3, 9, 8, 6], 3, device).permute([0, 3, 1, 2])),
        ("some images", |device| noise([6, 6, 9, 8], 3, device).narrow(0, 1, 3)),
        ("some channels", |device| noise([3, 11, 9, 8], 3, device).narrow(1, 3, 6)),
        ("one line repeated", |device| noise([3, 6, 1, 8], 3, device).expand([3, 6, 9, 8])),
    ];
    for (name, lay) in lays {
        let run = |device: &Device, compute: DType| -> Found {
            let map = lay(device).cast(compute);
            let weight = noise([6, 5, 3, 3], 5, device).swap_dims(0, 1).cast(compute);
            let direction = noise([3, 9, 8, 5], 7, device).permute([0, 3, 1, 2]).cast(compute);
            convolved(MatmulPrecision::Full, map, weight, SAME, |_| direction.clone())
        };
        assert_near(name, &run(&gpu, DType::F32), &run(&cpu, DType::F64), 1e-5);
    }
}

/// Some rows of a map.
fn rows(map: &Tensor<4>, from: usize, count: usize) -> Tensor<4> {
    map.clone().narrow(2, from, count)
}

#[test]
fn maps_of_more_than_two_thousand_million_numbers_are_convolved_to_their_end() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let (channels, side, period) = (256, 3000, 10);
    let tile = |device: &Device| noise([1, channels, period, side], 3, device).cast(DType::BF16);
    let weight = |device: &Device| noise([8, channels, 3, 3], 5, device).cast(DType::BF16);
    let map = tile(&gpu).repeat_dim(2, side / period);
    assert!(map.dims().iter().product::<usize>() > 1 << 31);
    let full = MatmulPrecision::Full;
    let out = convolution(full, map.clone(), weight(&gpu), SAME);
    let direction = noise([1, 8, period, side], 7, &gpu).cast(DType::BF16);
    let direction = direction.repeat_dim(2, side / period);
    let (gradient, of_weight) =
        convolution_gradients(full, [map, weight(&gpu)], SAME, direction, true);
    let gradient = gradient.expect("was asked for");

    // Rows repeat, so those far behind are those in front, bit by bit.
    for map in [&out, &gradient] {
        let last = rows(map, side - 2 * period, period);
        assert!(values(last) == values(rows(map, period, period)), "rows differ");
    }
    let exact = |tensor: Tensor<4>| tensor.cast(DType::F64);
    let few = exact(tile(&cpu)).repeat_dim(2, 3);
    let few = convolution(full, few, exact(weight(&cpu)), SAME);
    let error = error(&values(rows(&out, period, period)), &values(few.narrow(2, period, period)));
    assert!(error <= 3e-3, "{error:.1e}");
    let of_weight = values(of_weight);
    assert!(of_weight.iter().all(|value| value.is_finite()));
}

/// A fully connected layer without bias of numbers that repeat `times` along the output: its result,
/// the gradient of its input and the first rows of its weight's, on `device`.
fn connected(sizes: [usize; 3], times: usize, dtype: DType, device: &Device) -> Found {
    let [batch, input, output] = sizes;
    let features = noise([batch, input], 3, device).cast(dtype);
    let weight = noise([output, input], 5, device).cast(dtype).repeat_dim(0, times);
    let start = std::time::Instant::now();
    let full = MatmulPrecision::Full;
    let out = linear(full, features.clone(), weight.clone());
    let direction = noise([batch, output], 7, device).cast(dtype).repeat_dim(1, times);
    let (of_input, of_weight) = linear_gradients(full, [features, weight], direction, true);
    let of_input = of_input.expect("was asked for");
    let of_weight = of_weight.narrow(0, output * (times - 1), output);
    let found = [out, of_input, of_weight].map(values);
    println!("{batch} × {input} → {}: {:?} in all", output * times, start.elapsed());
    found
}

#[test]
fn fully_connected_layers_of_any_width_give_what_the_definition_gives() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    for sizes in [[1, 1, 1], [5, 37, 14], [64, 1024, 3], [7, 513, 130], [100, 4180, 3258]] {
        let exact = connected(sizes, 1, DType::F64, &cpu);
        let ours = connected(sizes, 1, DType::F32, &gpu);
        assert_near(&format!("{sizes:?}"), &ours, &exact, 1e-5);
        assert!(ours == connected(sizes, 1, DType::F32, &gpu), "{sizes:?}: two runs differ");
    }
}

/// On Hopper cards they are products of parts, where all widths are multiples of 4.
#[test]
fn fully_connected_layers_of_32_bits_are_as_exact_as_sums_in_32_bits() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let mut state = 5_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let mut random = || [1 + below(700), 4 * (1 + below(70)), 4 * (1 + below(70))];
    let mut all: Vec<_> = (0..12).map(|_| random()).collect();
    all.extend([[1, 4, 4], [128, 128, 128], [129, 132, 260], [4100, 32, 864], [17_000, 36, 8]]);
    for sizes in all {
        let exact = connected(sizes, 1, DType::F64, &cpu);
        let ours = connected(sizes, 1, DType::F32, &gpu);
        assert_near(&format!("{sizes:?}"), &ours, &exact, 1e-6);
        assert!(ours == connected(sizes, 1, DType::F32, &gpu), "{sizes:?}: two runs differ");
    }
}

#[test]
fn gradients_of_biases_of_large_batches_are_the_sums_of_their_columns() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    for [rows, columns] in [[1000, 5], [1024, 3], [1031, 7], [59_392, 12], [70_000, 1]] {
        let drawn = |device: &Device| noise([rows, columns], 3, device);
        let ours = values(bias_gradient(drawn(&gpu), DType::F32));
        let exact = |drawn: Tensor<2>| values(bias_gradient(drawn.cast(DType::F64), DType::F64));
        let (sums, magnitudes) = (exact(drawn(&cpu)), exact(drawn(&cpu).abs()));
        // What is added up may nearly cancel, so that roundings are held to the sum of magnitudes. A row
        // left out of the most rows is 1.4e-5 of it.
        for ((ours, sum), magnitude) in ours.iter().zip(sums).zip(magnitudes) {
            let off = (ours - sum).abs() / magnitude;
            assert!(off <= 2.5e-7, "{rows} rows of {columns}: off by {off:.1e}");
        }
    }
}

#[test]
fn a_layer_of_579_million_weights_gives_what_the_definition_gives() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let (batch, input, output, times) = (100, 19_350, 177, 169);
    let [few, of_input, of_weight] = connected([batch, input, output], 1, DType::F64, &cpu);
    let out = few.chunks(output).flat_map(|row| row.repeat(times)).collect();
    let of_input = of_input.iter().map(|value| value * times as f32).collect();
    let ours = connected([batch, input, output], times, DType::F32, &gpu);
    assert_near("29,913 outputs", &ours, &[out, of_input, of_weight], 1e-5);
    let again = connected([batch, input, output], times, DType::F32, &gpu);
    assert!(ours == again, "two runs differ");
}

#[test]
fn sums_are_the_same_every_time() {
    let gpu = resolve_device("cuda").expect("a GPU");
    let many = noise([300, 1234], 3, &gpu);
    let exact: f64 = values(many.clone()).iter().map(|value| f64::from(*value)).sum();
    let first = values(sum(many.clone()));
    assert!((f64::from(first[0]) - exact).abs() < 1e-2, "{first:?} {exact}");
    assert!((0..50).all(|_| values(sum(many.clone())) == first));
    let leaf = many.autodiff().require_grad();
    let found = sum(leaf.clone().mul_scalar(3.0)).backward();
    let gradient = values(leaf.grad(&found).expect("a gradient"));
    assert!(gradient.iter().all(|value| *value == 3.0));
}

/// Holds that a model gives on a GPU what it gives on the CPU, and the same twice.
fn assert_same(name: &str, model: impl Into<ModelConfig>, shape: [usize; 4]) {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let stages = network(model, shape).stages(Precision::Fp32, DenseLayers::Keep, &[]);
    let mut exact = chain(&stages, &cpu);
    let single = train(&exact, shape, &cpu, DType::F32);
    exact.map_parameters(|_, value| value.cast(DType::F64));
    let exact = train(&exact, shape, &cpu, DType::F64);
    let single = Errors::of(&format!("{name} on the CPU in fp32"), &single, &exact);
    let general = chain(&stages, &gpu);
    let ours = train(&general, shape, &gpu, DType::F32);
    let errors = Errors::of(name, &ours, &exact);
    let tolerance = 1e-5;
    assert!(errors.features <= tolerance, "{name}: {errors:?}");
    assert!(errors.gradients <= (4.0 * single.gradients).max(tolerance), "{name}: {errors:?}");
    for (parameter, error) in &errors.each {
        // Some gradients all but cancel, and in 32 bits the CPU gives no better ones.
        let most = (4.0 * single.each[parameter]).max(tolerance);
        assert!(*error <= most, "{name}: {parameter} is off by {error:.1e}");
    }
    let again = train(&general, shape, &gpu, DType::F32);
    assert_same_bits(name, &ours, &again);
}

/// Convolutions, and masks that all devices draw alike.
fn dropping_list() -> SequentialConfig {
    let layers = "layers = [
        { conv = { channels = 12, kernel = 5, stride = 2, padding = 2 } }, 'batch_norm', 'relu',
        { conv = { channels = 7, kernel = 3, padding = 1 } }, { dropout = { probability = 0.2 } }, 'batch_norm', 'relu',
        'global_pool', { dropout = { probability = 0.4 } }, { linear = { features = 10 } },
    ]";
    toml::from_str(layers).expect("reads")
}

/// Small maps: where a number is rounded across 0, ReLU passes another gradient.
#[test]
fn chains_that_do_not_run_fused_give_what_they_give_on_the_cpu() {
    assert_same("dropout", dropping_list(), [3, 1, 40, 36]);
    // Images of 4 channels, for which stems have no fused kernels.
    let groups = DensenetConfig { norm: Norm::Group, ..densenet(12, &[2, 2], 20) };
    assert_same("group norm", groups, [2, 4, 33, 38]);
}

#[test]
fn lists_of_layers_give_what_they_give_on_the_cpu() {
    for (image, layers) in layer_lists() {
        assert_same(&format!("{image:?}"), layers, [3, image[0], image[1], image[2]]);
    }
}

#[test]
fn a_chain_with_dropout_gives_the_same_bits_twice() {
    let gpu = resolve_device("cuda").expect("a GPU");
    let shape = [4, 1, 64, 60];
    let stages = network(dropping_list(), shape).stages(Precision::Fp32, DenseLayers::Keep, &[]);
    let chain = chain(&stages, &gpu);
    let [first, second] = [0, 1].map(|_| train(&chain, shape, &gpu, DType::F32));
    assert_same_bits("dropout", &first, &second);
}

/// Networks with every kind of layer, and the images they are for.
pub fn layer_lists() -> Vec<([usize; 3], SequentialConfig)> {
    let read = |layers: &str| toml::from_str(&format!("layers = {layers}")).expect("reads");
    let convolutions = "[
        { conv = { channels = 12, kernel = 5, stride = 2, padding = 1 } }, 'batch_norm', 'relu',
        { max_pool = { kernel = 3, stride = 2, padding = 1 } },
        { branches = { join = 'concat', of = [
            [{ conv = { channels = 7, kernel = 1 } }, 'relu'],
            ['sigmoid', { conv = { channels = 8, kernel = 3, padding = 1, bias = false } }],
            [{ mean_pool = { kernel = 3, stride = 1, padding = 1 } }], [],
        ] } },
        { branches = { join = 'add', of = [[], [{ conv = { channels = 39, kernel = 3, padding = 1 } }]] } },
        { conv = { channels = 24, kernel = 3 } }, 'relu', 'global_pool',
        { linear = { features = 10 } },
    ]";
    let features = "['sigmoid', 'flatten', { repeat = { times = 3, layers = [
        { linear = { features = 61 } }, 'relu',
    ] } }, { linear = { features = 9, bias = false } }, 'batch_norm']";
    vec![([3, 45, 38], read(convolutions)), ([2, 9, 7], read(features))]
}
