//! What a dry run of a fused stage counts is what the device's allocator counts.

use burn::tensor::{Device, Tensor};
use trainer::build::resolve_device;
use trainer::memory::measure::Meter;
use trainer::memory::{
    Activation, Cpu, Footprint, Gradients, Keep, Pass, Precision, Purpose, Saved, Stage,
    Statistics, Target,
};
use trainer::model::{
    DensenetConfig, ModelConfig, Network, Norm, ResnetBlock, ResnetConfig, ResnetForm,
};
use trainer::ops::gpu::{Buffer, Element, Gpu, Kernels};

use super::resnet::resnet;
use super::{DenseLayers, densenet, dropping, network, noise, values};

/// A reproducible choice among so many.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % count
    }

    fn of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }
}

/// The device's allocator.
struct Allocator {
    gpu: Gpu,
    meter: Meter,
}

/// What some work took: the most bytes beyond those before, and those that stayed.
struct Taken {
    most: i64,
    stays: i64,
}

impl Allocator {
    fn live(&self) -> i64 {
        self.meter.live().expect("is known") as i64
    }

    fn take<T>(&self, work: impl FnOnce() -> T) -> (T, Taken) {
        let before = self.live();
        let (outcome, most) = self.gpu.most_bytes_in(work);
        (outcome, Taken { most: most as i64 - before, stays: self.live() - before })
    }
}

fn held(faults: &mut Vec<String>, name: &str, what: &str, found: i64, counted: i64) {
    if found != counted {
        faults.push(format!("{name}: {what}: {found}, counted {counted}"));
    }
}

/// `input` as the stage that takes it is given it: a part that begins within a dense block has its from another device, with room for what it
/// writes. Others have theirs as the stage before leaves it.
fn received(input: Activation, stage: &dyn Stage, precision: Precision) -> Activation {
    match input {
        Activation::Device(map) if stage.name().contains(".denselayer") => {
            let element = match precision {
                Precision::Bf16 => Element::Bf16,
                Precision::Fp16 => Element::F16,
                _ => Element::F32,
            };
            let kernels = Kernels::shared(map.gpu.clone(), element);
            Activation::Device(Box::new(map.with_room(&kernels, stage.room())))
        }
        other => other,
    }
}

/// Holds each pass of each stage of `network` to its footprint.
fn compare(
    network: &Network,
    shape: [usize; 4],
    on: &Target,
    device: &Device,
) -> (usize, Vec<String>) {
    let mut faults = Vec::new();
    let gpu = Gpu::of(device).expect("a GPU");
    // A tensor made of host values has rows with gaps, of which stages make a copy without.
    let images: Tensor<4> = gpu.tensor(&gpu.upload(&values::<4>(noise(shape, 3, device))), shape);
    let images = Buffer::of_tensor(images.cast(on.precision.activations()));
    let images: Tensor<4> = gpu.tensor(&images, shape);
    let allocator = Allocator { gpu, meter: Meter::open(device) };
    let specs = network.stages(on.precision, on.dense_layers, &[]);
    let pass = Pass::new(Purpose::Recompute, 1, 0, 0);
    let mut statistics = Statistics::new();
    let stages: Vec<_> = specs.iter().map(|spec| spec.init(device, 7)).collect();
    // What stages make once and keep.
    let mut input = Activation::Map(images.clone());
    for stage in &stages {
        input = received(input, stage.as_ref(), on.precision);
        drop(stage.checkpoint(&input));
        input = stage.forward(input, Keep::Nothing, &pass, &mut statistics).0;
    }
    drop(input);

    let mut input = Activation::Map(images);
    let mut behind: Vec<(Footprint, Saved, Activation)> = Vec::new();
    for (spec, stage) in specs.iter().zip(&stages) {
        input = received(input, stage.as_ref(), on.precision);
        let footprint = spec.footprint(&input.shape(), on);
        let added = if footprint.output_in_input { 0 } else { footprint.output } as i64;
        let name = format!("{shape:?} {:?} {}", on.precision, spec.name());
        let ((output, _), taken) =
            allocator.take(|| stage.forward(input.clone(), Keep::Nothing, &pass, &mut statistics));
        held(&mut faults, &name, "the output", taken.stays, added);
        held(&mut faults, &name, "forward", taken.most, added + footprint.forward_workspace as i64);
        drop(output);
        let (aside, taken) = allocator.take(|| stage.checkpoint(&input));
        held(&mut faults, &name, "put aside", taken.stays, footprint.checkpoint as i64);
        drop(aside);
        let ((output, saved), taken) =
            allocator.take(|| stage.forward(input.clone(), Keep::All, &pass, &mut statistics));
        let kept = added + footprint.saved as i64;
        held(&mut faults, &name, "the output and what is kept", taken.stays, kept);
        let most = kept + footprint.saving_workspace as i64;
        held(&mut faults, &name, "forward, keeping", taken.most, most);
        // The input is held as long as the dry run holds it.
        behind.push((footprint, saved.expect("is kept"), input));
        input = output;
    }

    let mut gradients = Gradients::default();
    let size = input.into_features().dims();
    let ones = allocator.gpu.upload(&vec![1.0; size.iter().product()]);
    let mut gradient = Some(Activation::Features(allocator.gpu.tensor(&ones, size)));
    drop(ones);
    for ((spec, stage), (footprint, saved, _input)) in specs.iter().zip(&stages).zip(behind).rev() {
        let given = gradient.take().expect("only images have none");
        let (found, taken) = allocator.take(|| stage.backward(saved, given, &mut gradients));
        let name = format!("{shape:?} {:?} {}", on.precision, spec.name());
        held(&mut faults, &name, "backward", taken.most, footprint.backward_peak as i64);
        gradient = found;
    }
    (specs.len(), faults)
}

#[test]
fn every_fused_stage_takes_the_bytes_of_its_dry_run() {
    let device = resolve_device("cuda").expect("a GPU");
    let mut draw = Draw(20);
    let mut stages = 0;
    let mut faults = Vec::new();
    for case in 0..96 {
        let side = |draw: &mut Draw| 33 + draw.below(64);
        let shape = [1 + draw.below(5), draw.of(&[1, 3]), side(&mut draw), side(&mut draw)];
        // Some widths are no multiples of 8.
        let even = case % 3 != 0;
        let eight = |draw: &mut Draw, most: usize| match even {
            true => 8 * (1 + draw.below(most)),
            false => 3 + draw.below(8 * most),
        };
        let norm = [Norm::Batch, Norm::Group][case / 4 % 2];
        let of = |config: DensenetConfig| DensenetConfig { norm, ..config };
        let model: ModelConfig = match case % 4 {
            0 => {
                let blocks: Vec<usize> =
                    (0..2 + draw.below(2)).map(|_| 1 + draw.below(4)).collect();
                of(densenet(eight(&mut draw, 4), &blocks, eight(&mut draw, 8))).into()
            }
            1 if case % 16 < 8 => of(dropping(32, &[2, 2, 1, 1], 64)).into(),
            1 => of(densenet(32, &[2, 2, 1, 1], 64)).into(),
            form => {
                let form = [ResnetForm::Imagenet, ResnetForm::Cifar][form - 2];
                let block = draw.of(&[ResnetBlock::Basic, ResnetBlock::Bottleneck]);
                let blocks = [1 + draw.below(3), 1 + draw.below(2)];
                let config = resnet(form, block, &blocks, eight(&mut draw, 8));
                ResnetConfig { norm, ..config }.into()
            }
        };
        let on = Target {
            cuda: true,
            hopper: Gpu::of(&device).expect("a GPU").is_hopper(),
            cpu: Cpu::ASSUMED,
            precision: draw.of(&[
                Precision::Fp32,
                Precision::Tf32,
                Precision::Bf16,
                Precision::Fp16,
            ]),
            dense_layers: draw.of(&[DenseLayers::Keep, DenseLayers::Share]),
        };
        let network = network(model, shape);
        // Some dense blocks are cut, as they are between devices.
        let network = if case % 8 == 4 { network.cut(|_| true) } else { network };
        if network.fusible().is_err() {
            continue;
        }
        let (count, found) = compare(&network, shape, &on, &device);
        stages += count;
        faults.extend(found);
    }
    println!("{stages} stages");
    assert!(stages > 300, "{stages}");
    assert!(faults.is_empty(), "{} of {stages} stages: {faults:#?}", faults.len());
}
