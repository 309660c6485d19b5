//! Optimizer steps and gradient norms over many parameters at once.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor};
use trainer::build::resolve_device;
use trainer::memory::{Gradients, add_gradient};
use trainer::ops::gpu::{Buffer, Factor, Gpu, Moving};
use trainer::optim::{
    AdamConfig, AdamWConfig, Optimizer, OptimizerConfig, SgdConfig, Update, norm,
};

use super::{noise, values};

const STEPS: u64 = 5;

/// More than one launch takes, and of lengths around what a block takes.
fn lengths() -> Vec<usize> {
    let odd = [1, 3, 1023, 1024, 1025, 4095, 4096, 4097, 70_001];
    odd.into_iter().chain((0..31).map(|place| 64 + 37 * place)).collect()
}

fn name(place: usize) -> String {
    format!("p{place:02}")
}

fn configs() -> Vec<OptimizerConfig> {
    let sgd = |momentum, dampening, nesterov, weight_decay| {
        OptimizerConfig::Sgd(SgdConfig { lr: 0.05, momentum, dampening, nesterov, weight_decay })
    };
    let adam = AdamConfig { lr: 3e-3, weight_decay: 0.02, ..Default::default() };
    let adamw = AdamWConfig { lr: 3e-3, weight_decay: 0.3, ..Default::default() };
    vec![
        sgd(0.0, 0.0, false, 0.0),
        sgd(0.0, 0.0, false, 0.01),
        sgd(0.9, 0.0, false, 0.01),
        sgd(0.9, 0.3, false, 0.0),
        sgd(0.9, 0.0, true, 0.01),
        OptimizerConfig::Adam(adam.clone()),
        OptimizerConfig::Adam(AdamConfig { betas: [0.3, 0.4], ..adam }),
        OptimizerConfig::AdamW(adamw.clone()),
        OptimizerConfig::AdamW(AdamWConfig { amsgrad: true, ..adamw }),
    ]
}

/// Numbers away from 0. A gradient and the weight decay that is added to it have the same sign: where
/// they cancel, Adam makes a whole step of what rounding leaves.
fn away(length: usize, of: u64, size: u64, device: &Device) -> Tensor<1> {
    let sign = noise::<1>([length], of, device).sign();
    sign * noise::<1>([length], size, device).abs().add_scalar(0.1)
}

fn start(device: &Device) -> Vec<Tensor<1>> {
    let each = (11..).zip(lengths());
    each.map(|(seed, length)| away(length, seed, seed, device)).collect()
}

fn gradients(step: u64, device: &Device) -> Gradients {
    let mut gradients = Gradients::default();
    for (place, length) in lengths().into_iter().enumerate() {
        let seed = place as u64;
        let values = away(length, 11 + seed, 1000 * (step + 1) + seed, device);
        gradients.insert(name(place), values);
    }
    gradients
}

/// Who finds what gradients are multiplied by, and whether a step is taken.
#[derive(Debug, Clone, Copy)]
enum Decides {
    Host,
    Gpu,
}

/// What the GPU decides about a step with these gradients and losses.
fn decided(gradients: &Gradients, losses: &[f32], device: &Device) -> Buffer {
    let gpu = Gpu::of(device).expect("a GPU");
    let losses = Tensor::from_data(losses, device);
    let gradients = gradients.values().cloned().collect();
    gpu.step_factor(gradients, Some(losses), Some(20.0), None, None)
}

/// Takes the steps `steps`, scaled to a norm of 20 where they are above it. Every other value is held by somebody
/// else too, who finds it as it was.
fn walk(
    optimizer: &mut Optimizer,
    lr: f64,
    parameters: &mut Vec<Tensor<1>>,
    steps: std::ops::Range<u64>,
    decides: Decides,
    device: &Device,
) {
    for step in steps {
        let gradients = gradients(step, device);
        let factor = norm(&gradients).expect("a norm").factor(20.0);
        assert!(factor < 1.0);
        let held: Vec<Tensor<1>> = parameters.iter().step_by(2).cloned().collect();
        let before: Vec<Vec<f32>> = held.iter().cloned().map(values).collect();
        let update = |(place, value): (usize, Tensor<1>)| {
            let name = name(place);
            let gradient = gradients.get(&name).expect("is there").clone();
            Update { name, lr, decay: !place.is_multiple_of(3), value, gradient }
        };
        let updates = parameters.drain(..).enumerate().map(update).collect();
        let stepped = match decides {
            Decides::Host => optimizer.step_all(Factor::Known(factor), updates),
            Decides::Gpu => {
                let decided = decided(&gradients, &[0.7, 0.1], device);
                optimizer.step_all(Factor::OnGpu(&decided), updates)
            }
        };
        parameters.extend(stepped.into_values());
        assert_eq!(held.into_iter().map(values).collect::<Vec<_>>(), before);
    }
}

fn named() -> Vec<(String, usize)> {
    lengths().into_iter().enumerate().map(|(place, length)| (name(place), length)).collect()
}

/// Values and state after all steps, on the host.
fn outcome(
    config: &OptimizerConfig,
    decides: Decides,
    device: &Device,
) -> BTreeMap<String, Vec<f32>> {
    let mut optimizer = config.init(named());
    let mut parameters = start(device);
    walk(&mut optimizer, config.lr(), &mut parameters, 0..STEPS, decides, device);
    read(&optimizer, parameters)
}

fn read(optimizer: &Optimizer, parameters: Vec<Tensor<1>>) -> BTreeMap<String, Vec<f32>> {
    let state = optimizer.state().expect("a state");
    assert!(state.scalars.values().all(|steps| *steps == STEPS));
    let state = state.tensors.into_iter().map(|(name, data)| (name, data.iter().collect()));
    parameters
        .into_iter()
        .enumerate()
        .map(|(place, value)| (name(place), values(value)))
        .chain(state)
        .collect()
}

/// Of the values and of each kind of state, the largest difference relative to the largest number.
fn errors(
    ours: &BTreeMap<String, Vec<f32>>,
    theirs: &BTreeMap<String, Vec<f32>>,
) -> BTreeMap<String, f64> {
    let mut most: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (name, ours) in ours {
        let kind = name.split_once('/').map_or("value", |(_, kind)| kind);
        let (difference, size) = most.entry(kind.to_owned()).or_default();
        for (ours, theirs) in ours.iter().zip(&theirs[name]) {
            *difference = difference.max(f64::from((ours - theirs).abs()));
            *size = size.max(f64::from(theirs.abs()));
            assert!(ours.is_finite() && theirs.is_finite(), "{name}");
        }
    }
    most.into_iter().map(|(kind, (difference, size))| (kind, difference / size)).collect()
}

#[test]
fn steps_over_all_parameters_are_those_of_the_definition() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    for config in configs() {
        let host = Decides::Host;
        let (ours, theirs) = (outcome(&config, host, &gpu), outcome(&config, host, &cpu));
        let covered = !matches!(&config, OptimizerConfig::AdamW(config) if config.amsgrad);
        assert_eq!(config.init(named()).kernel().is_some(), covered, "{config:?}");
        assert!(ours.keys().eq(theirs.keys()), "{config:?}");
        let errors = errors(&ours, &theirs);
        println!("{config:?}: {errors:?}");
        assert!(errors.values().all(|error| *error <= 1e-6), "{config:?}: {errors:?}");
        let again = if covered { Decides::Gpu } else { host };
        assert_eq!(outcome(&config, again, &gpu), ours, "{config:?}: two runs differ");
    }
}

#[test]
fn a_state_saved_between_steps_on_a_gpu_goes_on_bit_for_bit() {
    let gpu = resolve_device("cuda").expect("a GPU");
    for config in configs() {
        let mut first = config.init(named());
        let mut parameters = start(&gpu);
        walk(&mut first, config.lr(), &mut parameters, 0..2, Decides::Host, &gpu);
        let saved = first.state().expect("a state");
        let mut second = config.init(named());
        second.load(saved, &gpu).expect("loads");
        walk(&mut second, config.lr(), &mut parameters, 2..STEPS, Decides::Host, &gpu);
        let whole = outcome(&config, Decides::Host, &gpu);
        assert_eq!(read(&second, parameters), whole, "{config:?}");
    }
}

#[test]
fn a_step_with_a_number_that_is_not_finite_changes_nothing() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    let mut broken = gradients(1, &device);
    let last = lengths().len() - 1;
    add_gradient(&mut broken, &name(last), Tensor::<1>::full([lengths()[last]], f32::NAN, &device));
    let sound = gradients(1, &device);
    let all = |of: &Gradients| of.values().cloned().collect::<Vec<_>>();
    let after = |before: &Buffer| gpu.step_factor(all(&sound), None, None, Some(before), None);
    let refused = decided(&sound, &[0.1, f32::NAN], &device);
    let cases = [
        ("a gradient", decided(&broken, &[0.1, 0.7], &device)),
        ("a loss", decided(&sound, &[0.1, f32::INFINITY], &device)),
        ("the step before", after(&refused)),
        ("a step two before", after(&after(&refused))),
    ];
    let taken = after(&decided(&sound, &[0.7], &device));
    assert_eq!(values::<1>(gpu.tensor(&taken, [2])), [1.0, 0.0]);
    for (config, (what, decided)) in
        configs().iter().flat_map(|one| cases.iter().map(move |case| (one, case)))
    {
        let mut optimizer = config.init(named());
        if optimizer.kernel().is_none() {
            continue;
        }
        let mut parameters = start(&device);
        walk(&mut optimizer, config.lr(), &mut parameters, 0..STEPS, Decides::Gpu, &device);
        let before = read(&optimizer, parameters.clone());
        let update = |(place, value): (usize, Tensor<1>)| {
            let (name, lr) = (name(place), config.lr());
            let gradient = sound.get(&name).expect("is there").clone();
            Update { name, lr, decay: true, value, gradient }
        };
        let updates = parameters.into_iter().enumerate().map(update).collect();
        let stepped = optimizer.step_all(Factor::OnGpu(decided), updates);
        for (name, value) in stepped {
            assert_eq!(values(value), before[&name], "{what}, {config:?}, {name}");
        }
        for (name, kept) in optimizer.state().expect("a state").tensors {
            assert_eq!(kept.iter::<f32>().collect::<Vec<_>>(), before[&name], "{what}, {config:?}");
        }
    }
}

#[test]
fn norms_of_many_gradients_are_exact_and_name_the_broken_ones() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let (ours, theirs) = (gradients(0, &gpu), gradients(0, &cpu));
    let exact: f64 = theirs
        .values()
        .flat_map(|gradient| values(gradient.clone()))
        .map(|value| f64::from(value) * f64::from(value))
        .sum();
    let found = norm(&ours).expect("a norm");
    assert!((found.total / exact.sqrt() - 1.0).abs() < 1e-6, "{} {}", found.total, exact.sqrt());
    assert_eq!(found, norm(&ours).expect("a norm"));
    let mut broken = gradients(0, &gpu);
    for place in [4, 35] {
        let length = lengths()[place];
        add_gradient(&mut broken, &name(place), Tensor::<1>::full([length], f32::INFINITY, &gpu));
    }
    assert_eq!(norm(&broken).expect("a norm").non_finite, [name(4), name(35)]);
}

#[test]
fn moving_averages_move_as_burn_moves_them() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    let (old, values_towards) = (start(&device), gradients(3, &device));
    let sound = gradients(1, &device);
    let taken = decided(&sound, &[0.7], &device);
    let left_out = decided(&sound, &[f32::NAN], &device);
    let forms = [(Moving::Statistics, 0.1), (Moving::Lerp, 0.001), (Moving::Lerp, 0.7)];
    for (moving, share) in forms {
        for (what, decided) in
            [("host", None), ("taken", Some(&taken)), ("left out", Some(&left_out))]
        {
            let towards = |place| values_towards.get(&name(place)).expect("is there").clone();
            let pair = |(place, average): (usize, &Tensor<1>)| {
                [average.clone(), towards(place)].map(Buffer::of_tensor)
            };
            let averages = old.iter().enumerate().map(pair).collect();
            let moved = gpu.moving_average(moving, share, averages, decided);
            for (place, (old, moved)) in old.iter().zip(moved).enumerate() {
                let (old, value) = (old.clone(), towards(place));
                let way = value.clone() - old.clone();
                let expected = match moving {
                    _ if what == "left out" => old,
                    Moving::Statistics => old.mul_scalar(1.0 - share) + value.mul_scalar(share),
                    Moving::Lerp if share < 0.5 => old + way.mul_scalar(share),
                    Moving::Lerp => value - way.mul_scalar(1.0 - share),
                };
                let found = gpu.tensor::<1>(&moved, [moved.len()]);
                assert_eq!(values(found), values(expected), "{moving:?}, {share}, {what}, {place}");
            }
        }
    }
}
