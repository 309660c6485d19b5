use std::collections::BTreeSet;

use super::*;
use crate::memory::{Cpu, DryAllocator, Precision};
use crate::model::ModelConfig;
use crate::model::fuse::fuse;
use crate::ops::gpu::{DryGpu, ExchangedSums, Gpu, Kernel, Kernels};

const MODELS: [&str; 5] = [
    "[densenet]\ngrowth = 16\nblocks = [1, 2, 2]\nstem = 16",
    "[densenet]\ngrowth = 32\nblocks = [1, 2]\nstem = 64\ndropout = 0.2",
    "[resnet]\ndepth = 18",
    "[resnet]\ndepth = 50",
    "[resnet]\nform = \"cifar\"\ndepth = 20",
];

const GROUPED: [&str; 2] = [
    "[densenet]\ngrowth = 32\nblocks = [1, 2]\nstem = 64\nnorm = \"group\"",
    "[resnet]\ndepth = 50\nnorm = \"group\"",
];

/// Those that put together what was left of channels.
const TOGETHER: [&str; 6] = [
    "channel_norm",
    "channel_statistics",
    "channel_sums",
    "stem_backward_finish",
    "dense_conv_weight_sum",
    "dense_pointwise_finish",
];

fn is_synced(kernel: &Kernel) -> bool {
    kernel.variant().1.contains("#define SYNCED 1")
}

#[test]
fn a_card_of_several_exchanges_for_every_norm_once_and_never_when_it_computes_again() {
    let dense_layers = DenseLayers::Share;
    let target = Target {
        cuda: true,
        hopper: true,
        cpu: Cpu::ASSUMED,
        precision: Precision::Bf16,
        dense_layers,
    };
    let gpu = Gpu::dry(&DryGpu::new(DryAllocator::default(), true));
    let ahead = Kernels::new(gpu, target.precision.element()).of_several_cards();
    let ahead: Vec<_> = ahead.iter().map(Kernel::variant).collect();
    for model in MODELS.into_iter().chain(GROUPED) {
        let exchanges = !GROUPED.contains(&model);
        let config: ModelConfig = toml::from_str(model).expect("a model");
        let network = config.resolve([1, 64, 64]).expect("a network");
        let stages = fuse(network.layers()).expect("fuses");
        for (layers, fused) in network.layers().iter().zip(stages) {
            let fused = fused.expect("is fused");
            let (specs, name) = (layers.parameters(), &layers.name);
            let norms = specs.iter().any(|parameter| !parameter.trained);
            let parameters = StageParameters { specs, padding: fused.padding.clone() };
            // A norm in front of a convolution of few images has a launch of its own.
            for images in [2, 64] {
                let crate::memory::ActivationShape::Map(shape) = layers.input.of_batch(images)
                else {
                    panic!("{model}: {name} takes no maps");
                };
                let rows = ExchangedSums::default();
                let run = |back| {
                    let memory = DryAllocator::default();
                    let program = program(&fused.stage, dense_layers);
                    program.dry(&parameters, shape, &target, &memory).of_two_cards(&rows, back)
                };
                let (first, again) = (run(true), run(false));
                let together = |kernel: &Kernel| TOGETHER.contains(&kernel.entry());
                if !exchanges {
                    assert!(!first.iter().any(is_synced), "{model}: {name}: images are apart");
                    continue;
                }
                for kernel in first.iter().filter(|kernel| together(kernel) || is_synced(kernel)) {
                    let variant = kernel.variant();
                    assert!(is_synced(kernel), "{model}: {name} launches {variant:?}");
                    assert!(ahead.contains(&variant), "{model}: {name} launches {variant:?}");
                }
                assert!(!again.iter().any(is_synced), "{model}: {name}");
                assert_eq!(first.iter().any(together), norms, "{model}: {name}");
                let forward = |kernels: &[Kernel]| {
                    let norms = kernels.iter().filter_map(|kernel| match kernel.entry() {
                        "dense_pointwise_forward" | "dense_conv_forward" if is_synced(kernel) => {
                            Some("channel_norm")
                        }
                        entry => TOGETHER[..2].contains(&entry).then_some(entry),
                    });
                    norms.collect::<BTreeSet<_>>()
                };
                assert_eq!(forward(&first), forward(&again), "{model}: {name}");
            }
        }
    }
}

/// Between the convolutions of a dense block on Hopper, norms are made by the convolutions' kernels; where these have
/// few blocks, in launches of their own.
#[test]
fn norms_between_convolutions_of_many_pixels_take_no_launch_of_their_own() {
    let config: ModelConfig =
        toml::from_str("[densenet]\ngrowth = 32\nblocks = [6, 12]\nstem = 64").expect("a model");
    let network = config.resolve([1, 320, 320]).expect("a network");
    let launched = |precision: Precision, images: usize, hopper: bool| {
        let dense_layers = DenseLayers::Keep;
        let on = Target { cuda: true, hopper, cpu: Cpu::ASSUMED, precision, dense_layers };
        let mut shape = crate::memory::ActivationShape::Map([images, 1, 320, 320]);
        let stages = network.stages(precision, dense_layers, &[]);
        let of_stages = stages.iter().flat_map(|spec| {
            let kernels = spec.kernels(&shape, &on);
            shape = spec.output(&shape);
            kernels
        });
        of_stages.map(|kernel| kernel.entry()).any(|entry| entry == "channel_norm")
    };
    assert!(!launched(Precision::Bf16, 64, true));
    assert!(launched(Precision::Bf16, 64, false));
    assert!(launched(Precision::Tf32, 64, true));
}

/// Where a block is cut before each of its layers, its parts multiply as often as it does whole, and read and write as much but for what puts together
/// the statistics of a layer's channels. Each part has up to two small kernels of its own; the smallest map takes as long to read as five.
#[test]
fn a_block_that_is_cut_computes_nothing_twice() {
    for norm in ["batch", "group"] {
        let model =
            format!("[densenet]\ngrowth = 32\nblocks = [4, 3]\nstem = 64\nnorm = \"{norm}\"");
        let config: ModelConfig = toml::from_str(&model).expect("a model");
        let whole = config.resolve([1, 320, 320]).expect("a network");
        let cut = whole.cut(|_| true);
        assert_eq!(cut.layers().len(), whole.layers().len() + 3 + 2);
        let work = |network: &crate::model::Network| {
            let (precision, dense_layers) = (Precision::Bf16, DenseLayers::Keep);
            let on =
                Target { cuda: true, hopper: true, cpu: Cpu::ASSUMED, precision, dense_layers };
            let mut shape = crate::memory::ActivationShape::Map([64, 1, 320, 320]);
            let mut all = [0.0; 4];
            for spec in network.stages(precision, dense_layers, &[]) {
                let found = spec.footprint(&shape, &on);
                let of_stage = [
                    found.forward_flops,
                    found.backward_flops,
                    found.forward_traffic,
                    found.backward_traffic,
                ];
                all.iter_mut().zip(of_stage).for_each(|(all, of_stage)| *all += of_stage);
                shape = spec.output(&shape);
            }
            all
        };
        let (whole, cut) = (work(&whole), work(&cut));
        assert_eq!(whole[..2], cut[..2], "{norm}: products");
        for (whole, cut) in whole[2..].iter().zip(&cut[2..]) {
            let alike = 0.01 * whole;
            let most = alike + 5.0 * 2.0 * DryGpu::LAUNCH;
            assert!((-alike..most).contains(&(cut - whole)), "{norm}: {cut} of {whole} bytes");
        }
    }
}

/// What is not kept of 1×1 convolutions is computed again by the kernels that computed it first: others may give
/// other bits.
#[test]
fn what_is_computed_again_is_computed_by_the_same_kernels() {
    use crate::memory::ActivationShape;
    let mut others = 0;
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16] {
        for model in MODELS.into_iter().chain(GROUPED) {
            let config: ModelConfig = toml::from_str(model).expect("a model");
            let network = config.resolve([1, 64, 64]).expect("a network");
            let mut shape = ActivationShape::Map([8, 1, 64, 64]);
            for spec in network.stages(precision, DenseLayers::Keep, &[]) {
                let kernels = |dense_layers: DenseLayers| -> Vec<_> {
                    let (cuda, hopper, cpu) = (true, true, Cpu::ASSUMED);
                    let on = Target { cuda, hopper, cpu, precision, dense_layers };
                    spec.kernels(&shape, &on).iter().map(Kernel::variant).collect()
                };
                let kept = kernels(DenseLayers::Keep);
                for kernel in kernels(DenseLayers::Share) {
                    let what = format!("{model}: {} in {precision:?}", spec.name());
                    assert!(kept.contains(&kernel), "{what} launches {kernel:?}");
                }
                others += usize::from(kept.iter().any(|kernel| kernel.0 == "split_product"));
                shape = spec.output(&shape);
            }
        }
    }
    assert!(others > 0, "products in 32 bits have a kernel of their own on Hopper");
}

/// A transition pools before it multiplies: its factors are not rounded to TF32, those of other stages are.
#[test]
fn transitions_round_nothing_to_tf32() {
    use crate::memory::{ActivationShape, Precision};
    const PRODUCTS: [&str; 3] =
        ["conv_forward", "transition_backward_input", "conv_backward_weight"];
    let config: ModelConfig = toml::from_str(MODELS[0]).expect("a model");
    let network = config.resolve([1, 64, 64]).expect("a network");
    let mut shape = ActivationShape::Map([8, 1, 64, 64]);
    let mut transitions = 0;
    for spec in network.stages(Precision::Tf32, DenseLayers::Keep, &[]) {
        let (precision, dense_layers, cpu) = (Precision::Tf32, DenseLayers::Keep, Cpu::ASSUMED);
        let on = Target { cuda: true, hopper: true, cpu, precision, dense_layers };
        let launched = spec.kernels(&shape, &on);
        let is_in = |kernel: &Kernel, element: &str| {
            kernel.text().contains(&format!("#define ELEMENT {element}\n"))
        };
        if spec.name().starts_with("transition") {
            let entries: Vec<_> = launched.iter().map(Kernel::entry).collect();
            assert!(PRODUCTS.iter().all(|entry| entries.contains(entry)), "{entries:?}");
            let products = launched.iter().filter(|kernel| PRODUCTS.contains(&kernel.entry()));
            assert!(products.into_iter().all(|kernel| is_in(kernel, "f32")), "{}", spec.name());
            transitions += 1;
        } else if spec.name().starts_with("denseblock") {
            assert!(launched.iter().any(|kernel| is_in(kernel, "tf32")), "{}", spec.name());
        }
        shape = spec.output(&shape);
    }
    assert!(transitions > 0);
}
