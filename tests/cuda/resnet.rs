//! ResNets on fused stages, beside their definition.

use super::{
    Activation, Chain, DenseLayers, Device, Precision, chain, compare, error, evaluate, network,
    noise, resolve_device, values,
};
use trainer::memory::{Keep, Pass, Purpose, Statistics};
use trainer::model::{Norm, ResnetBlock, ResnetConfig, ResnetForm};

pub fn resnet(form: ResnetForm, block: ResnetBlock, blocks: &[usize], stem: usize) -> ResnetConfig {
    let (block, blocks, stem) = (Some(block), Some(blocks.to_vec()), Some(stem));
    ResnetConfig { form, block, blocks, stem, ..ResnetConfig::default() }
}

fn grouped(config: ResnetConfig) -> ResnetConfig {
    ResnetConfig { norm: Norm::Group, ..config }
}

#[test]
fn fused_resnets_give_the_features_gradients_and_statistics_of_the_definition() {
    use ResnetBlock::{Basic, Bottleneck};
    use ResnetForm::{Cifar, Imagenet};
    let cases = [
        (resnet(Imagenet, Basic, &[1, 2], 16), [4, 3, 65, 64]),
        (resnet(Imagenet, Basic, &[1, 1], 64), [3, 1, 61, 70]),
        (resnet(Imagenet, Bottleneck, &[1, 1], 16), [4, 1, 66, 61]),
        (resnet(Imagenet, Bottleneck, &[1, 2], 8), [3, 3, 97, 90]),
        (resnet(Imagenet, Bottleneck, &[2], 32), [1, 3, 135, 142]),
        (resnet(Cifar, Basic, &[2, 2, 1], 16), [5, 3, 33, 31]),
        (resnet(Cifar, Basic, &[1, 1], 32), [1, 1, 64, 65]),
        (resnet(Cifar, Bottleneck, &[2, 1], 8), [4, 1, 31, 34]),
        // Widths that are no multiples of 8.
        (resnet(Imagenet, Basic, &[1, 2], 12), [4, 3, 65, 62]),
        (resnet(Imagenet, Bottleneck, &[1, 1], 5), [4, 1, 66, 61]),
        (resnet(Cifar, Basic, &[2, 1], 10), [5, 3, 33, 31]),
        (grouped(resnet(Imagenet, Bottleneck, &[1, 1], 12)), [4, 3, 65, 62]),
        (grouped(resnet(Cifar, Basic, &[2, 1], 10)), [5, 3, 33, 31]),
        (grouped(resnet(Imagenet, Basic, &[1, 2], 16)), [4, 3, 65, 64]),
        (grouped(resnet(Imagenet, Bottleneck, &[1, 2], 64)), [2, 1, 41, 38]),
        (grouped(resnet(Imagenet, Bottleneck, &[1, 1], 16)), [4, 1, 66, 61]),
        (grouped(resnet(Cifar, Basic, &[2, 2, 1], 16)), [5, 3, 33, 31]),
        (grouped(resnet(Cifar, Bottleneck, &[2, 1], 8)), [4, 1, 31, 34]),
    ];
    let case = |(config, shape): (ResnetConfig, [usize; 4])| {
        let name = format!("{:?} {:?}", config.form, config.block);
        compare(&name, shape, &[DenseLayers::Keep, DenseLayers::Share], &network(config, shape))
    };
    let failures: Vec<String> = cases.into_iter().flat_map(case).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_resnet_evaluates_with_running_statistics() {
    for form in [ResnetForm::Imagenet, ResnetForm::Cifar] {
        for block in [ResnetBlock::Basic, ResnetBlock::Bottleneck] {
            let shape = [3, 3, 50, 45];
            let difference = evaluate(shape, &network(resnet(form, block, &[1, 2], 16), shape));
            assert!(difference < 1e-5, "{form:?} {block:?}: {difference}");
        }
    }
}

#[test]
fn images_of_many_channels_pass_through_a_resnet_for_small_images() {
    let config = resnet(ResnetForm::Cifar, ResnetBlock::Basic, &[1, 1], 16);
    for channels in [5, 16] {
        let shape = [2, channels, 33, 30];
        let difference = evaluate(shape, &network(config.clone(), shape));
        assert!(difference < 1e-5, "{channels}: {difference}");
    }
}

/// What each stage gives for what the one before it gave, and how many statistics it reported.
fn outputs(chain: &Chain, purpose: Purpose, keep: Keep, device: &Device) -> Vec<(Vec<f32>, usize)> {
    let mut flowing = Activation::Map(noise([3, 3, 49, 52], 3, device));
    let mut all = Vec::new();
    for stage in chain.stages() {
        let mut statistics = Statistics::new();
        let pass = Pass::new(purpose, 1, 4, 0);
        let (output, saved) = stage.forward(flowing, keep, &pass, &mut statistics);
        assert_eq!(saved.is_some(), keep == Keep::All, "{}", stage.name());
        let read = match output.clone() {
            Activation::Features(features) => values(features),
            map => values(map.into_map()),
        };
        all.push((read, statistics.len()));
        flowing = output;
    }
    all
}

#[test]
fn a_recomputed_stage_gives_the_same_bits_and_reports_no_statistics_again() {
    let device = resolve_device("cuda").expect("a GPU");
    for form in [ResnetForm::Imagenet, ResnetForm::Cifar] {
        let network = network(resnet(form, ResnetBlock::Bottleneck, &[1, 2], 8), [3, 3, 49, 52]);
        let chain = chain(&network.stages(Precision::Fp32, DenseLayers::Keep, &[]), &device);
        let first = outputs(&chain, Purpose::First, Keep::Nothing, &device);
        let again = outputs(&chain, Purpose::Recompute, Keep::All, &device);
        let evaluated = outputs(&chain, Purpose::Evaluate, Keep::Nothing, &device);
        let last = first.len() - 1;
        for (stage, (first, again)) in first.iter().zip(&again).enumerate() {
            assert_eq!(first.0, again.0, "{form:?} {stage}");
            assert_eq!((first.1 > 0, again.1), (stage < last, 0), "{form:?} {stage}");
        }
        assert!(error(&first[last].0, &evaluated[last].0) > 1e-3, "{form:?}");
    }
}
