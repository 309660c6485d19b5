//! The text of every kernel that a network can launch, for compilers that need no GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use trainer::memory::{ActivationShape, Cpu, DenseLayers, DryAllocator, Precision, Target};
use trainer::model::{
    DensenetConfig, HeadConfig, ModelConfig, Norm, ResnetConfig, ResnetForm, SequentialConfig,
};
use trainer::ops::gpu::{
    ADAM_STEP, BCE, DryGpu, Gpu, Kernel, Kernels, MOVING_AVERAGE, Over, SGD_STEP, STEP_FACTOR,
    SUMS_OF_SQUARES, message_kernel,
};

/// Networks that between them launch everything: of each family, with widths that fill whole tiles and
/// some that do not, with each kind of stem.
fn networks() -> Vec<(ModelConfig, usize)> {
    let densenet = |growth, stem| DensenetConfig {
        growth: Some(growth),
        stem: Some(stem),
        blocks: Some(vec![2, 2]),
        ..DensenetConfig::default()
    };
    let resnet = |depth, form| ResnetConfig { depth: Some(depth), form, ..ResnetConfig::default() };
    let mut all = Vec::new();
    for channels in [1, 2, 3, 4] {
        all.push((densenet(32, 64).into(), channels));
    }
    all.extend([
        (DensenetConfig { dropout: 0.1, ..densenet(32, 64) }.into(), 1),
        (densenet(48, 96).into(), 1),
        (densenet(8, 16).into(), 3),
        (DensenetConfig { dropout: 0.1, ..densenet(12, 24) }.into(), 3),
        (resnet(18, ResnetForm::Imagenet).into(), 3),
        (resnet(50, ResnetForm::Imagenet).into(), 1),
        (resnet(20, ResnetForm::Cifar).into(), 3),
    ]);
    let layers = "layers = [
        { conv = { channels = 12, kernel = 5, stride = 2, padding = 1 } }, 'batch_norm', 'relu',
        { conv = { channels = 12, kernel = 3 } }, { dropout = {} }, 'batch_norm', 'relu', 'global_pool',
    ]";
    let layers: SequentialConfig = toml::from_str(layers).expect("reads");
    let grouped = all.clone().into_iter().map(|(model, channels): (ModelConfig, usize)| {
        let norm = Norm::Group;
        let model = match model {
            ModelConfig::Densenet(config) => DensenetConfig { norm, ..config }.into(),
            ModelConfig::Resnet(config) => ResnetConfig { norm, ..config }.into(),
            other => other,
        };
        (model, channels)
    });
    all.extend(grouped.collect::<Vec<_>>());
    all.push((layers.into(), 3));
    all
}

fn heads() -> Vec<HeadConfig> {
    toml::from_str::<BTreeMap<String, Vec<HeadConfig>>>(
        "heads = [{ name = \"findings\", task = \"multilabel\", labels = [\"a\", \"b\", \"c\"], hidden = [256] },
                  { name = \"sex\", task = \"binary\", labels = [\"a\"] }]",
    )
    .expect("heads")
    .remove("heads")
    .expect("is there")
}

/// Heads compute in the 32 bits of the features that a fused stage gives them, whatever its maps have; which is what
/// a card compiled in the first step of a DenseNet-121 and a ResNet-50 in bf16 besides what was compiled ahead.
#[test]
fn heads_behind_fused_stages_launch_kernels_for_32_bits() {
    for model in [
        DensenetConfig { depth: Some(121), ..DensenetConfig::default() }.into(),
        ResnetConfig { depth: Some(50), ..ResnetConfig::default() }.into(),
    ] {
        let model: ModelConfig = model;
        let network = model.resolve([1, 320, 320]).expect("a network");
        for (precision, element) in
            [(Precision::Bf16, "f32"), (Precision::Fp16, "f32"), (Precision::Tf32, "tf32")]
        {
            let stages = network.stages(precision, DenseLayers::Keep, &heads());
            let cpu = Cpu::ASSUMED;
            let on = Target {
                cuda: true,
                hopper: true,
                cpu,
                precision,
                dense_layers: DenseLayers::Keep,
            };
            let features = ActivationShape::Features([64, network.features()]);
            let launched = stages.last().expect("heads").kernels(&features, &on);
            let entries: BTreeSet<&str> =
                launched.iter().map(|kernel| kernel.variant().0).collect();
            for entry in ["conv_forward", "conv_backward_weight", "transpose"] {
                assert!(entries.contains(entry), "{precision:?}: {entries:?}");
            }
            for kernel in &launched {
                assert!(
                    kernel.text().contains(&format!("#define ELEMENT {element}\n")),
                    "{precision:?}: {:?}",
                    kernel.variant()
                );
            }
        }
    }
}

/// What steps of a network launch on all kinds of card, in all precisions.
fn launched(model: &ModelConfig, [images, channels, side]: [usize; 3]) -> Vec<Kernel> {
    let mut all = Vec::new();
    let network = model.resolve([channels, side, side]).expect("a network");
    for precision in PRECISIONS {
        for dense_layers in [DenseLayers::Keep, DenseLayers::Share] {
            let stages = network.stages(precision, dense_layers, &heads());
            for hopper in [false, true] {
                let cpu = Cpu::ASSUMED;
                let on = Target { cuda: true, hopper, cpu, precision, dense_layers };
                let mut shape = ActivationShape::Map([images, channels, side, side]);
                for spec in &stages {
                    all.extend(spec.kernels(&shape, &on));
                    shape = spec.output(&shape);
                }
            }
        }
    }
    all
}

const PRECISIONS: [Precision; 4] =
    [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16];

/// Every kernel, by what tells it from the others.
fn kernels() -> BTreeMap<(&'static str, String), Kernel> {
    let mut all = vec![
        Kernel::probe(),
        SUMS_OF_SQUARES.clone(),
        STEP_FACTOR.clone(),
        MOVING_AVERAGE.clone(),
        BCE.clone(),
        ADAM_STEP.clone(),
        SGD_STEP.clone(),
        message_kernel(),
    ];
    for (model, channels) in networks() {
        for precision in PRECISIONS {
            for hopper in [false, true] {
                let dry = DryGpu::new(DryAllocator::default(), hopper);
                let of_cards = Kernels::new(Gpu::dry(&dry), precision.element());
                all.extend(of_cards.of_several_cards());
                // Launched where a map comes without the statistics of its channels.
                of_cards.map_partials(&of_cards.empty_map(64, 8), Over::Batch);
                all.extend(dry.kernels());
            }
        }
        // Some kernels take another form where there is little to do, and stems for lines that are no
        // multiples of four.
        for [images, side] in [[2, 64], [256, 64], [2, 62]] {
            all.extend(launched(&model, [images, channels, side]));
        }
    }
    all.into_iter().map(|kernel| (kernel.variant(), kernel)).collect()
}

/// A release that is built with all of them compiles nothing for these.
#[test]
fn whole_networks_launch_nothing_else() {
    let known = kernels();
    let densenets = [121, 161, 169, 201].map(|depth| {
        ModelConfig::from(DensenetConfig { depth: Some(depth), ..Default::default() })
    });
    let resnets = [18, 34, 50, 101, 152]
        .map(|depth| ModelConfig::from(ResnetConfig { depth: Some(depth), ..Default::default() }));
    for model in densenets.iter().chain(&resnets) {
        for shape in [[8, 1, 512], [64, 1, 320], [64, 3, 224]] {
            for kernel in launched(model, shape) {
                let (entry, macros) = kernel.variant();
                assert!(
                    known.contains_key(&(entry, macros.clone())),
                    "{model:?}: {entry} {macros}"
                );
            }
        }
    }
}

/// Writes each text to `target/tmp/kernels`, where `scripts/compile_kernels.py` finds it.
#[test]
fn every_kernel_has_its_text_written() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let (mut entries, mut index) = (BTreeSet::new(), Vec::new());
    for (number, ((entry, macros), kernel)) in kernels().into_iter().enumerate() {
        let declared = format!("{entry}(");
        assert!(kernel.text().contains(&declared), "{entry}");
        assert!(entry == "probe" || !kernel.only_read().is_empty(), "{entry}: its pointers");
        entries.insert(entry);
        let file = format!("{number:03}-{entry}.cu");
        std::fs::write(folder.join(&file), kernel.text()).expect("is written");
        index.push(serde_json::json!({
            "file": file,
            // By which the program finds the code that it was built with.
            "hash": blake3::hash(kernel.text().as_bytes()).to_hex().as_str(),
            "entry": entry,
            "macros": macros,
            "threads": kernel.threads(),
            "shared": kernel.shared(),
            "hopper": kernel.text().contains("void require_shared(u32 bytes)"),
        }));
    }
    let text = serde_json::to_string_pretty(&index).expect("JSON");
    std::fs::write(folder.join("index.json"), text).expect("is written");
    // Every file with a kernel is among them.
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops/gpu/kernels");
    let files = std::fs::read_dir(sources).expect("is there");
    let names = files.map(|file| file.expect("is read").file_name().into_string().expect("text"));
    let missing: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".cu").map(str::to_owned))
        .filter(|name| !entries.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no network here launches {missing:?}");
}
