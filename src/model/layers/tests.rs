//! What holds for the layers of every network.

use burn::tensor::{Device, Tensor};

use super::op::{Join, Op};
use super::{LayerStageSpec, StageLayers};
use crate::memory::offload::Store;
use crate::memory::{
    Activation, ActivationShape, Chain, CheckpointPlan, Cpu, Footprint, Keep, Pass, Precision,
    Purpose, Schedule, StageSpec, Statistics, Target, executor,
};
use crate::model::{HeadConfig, ModelConfig, Network};
use crate::parallel::Part;
use crate::wave::wave;

const IMAGE: [usize; 3] = [2, 40, 36];

const SEQUENTIAL: &str = "[sequential]
layers = [
    'relu',
    { conv = { channels = 4, kernel = 3, stride = 2 } }, 'batch_norm', 'relu',
    { repeat = { times = 2, layers = [
        { branches = { join = 'concat', of = [
            [], [{ conv = { channels = 3, kernel = 5, padding = 2 } }, { dropout = {} }],
        ] } },
        { max_pool = { kernel = 3, stride = 1, padding = 1 } },
        { conv = { channels = 5, kernel = 1, bias = false } }, 'sigmoid',
        { conv = { channels = 5, kernel = 2, padding = 1 } },
    ] } },
    { mean_pool = { kernel = 2 } }, 'flatten',
    { branches = { join = 'concat', of = [[{ linear = { features = 6 } }], ['sigmoid']] } },
    'batch_norm', { linear = { features = 3 } },
]";

/// A network of each kind, with dropout where the kind has it.
fn networks() -> Vec<Network> {
    let densenet = |more: &str| {
        format!("[densenet]\ngrowth = 4\nblocks = [2, 2]\nstem = 6\nbottleneck = 2\n{more}")
    };
    let resnet = |more: &str| format!("[resnet]\nblocks = [1, 2, 1]\nstem = 4\n{more}");
    [
        densenet("dropout = 0.2"),
        densenet("norm = \"group\""),
        resnet("block = \"basic\""),
        resnet("block = \"bottleneck\"\nnorm = \"group\""),
        resnet("block = \"bottleneck\"\nform = \"cifar\""),
        SEQUENTIAL.to_owned(),
    ]
    .iter()
    .map(|text| {
        toml::from_str::<ModelConfig>(text).expect("a model").resolve(IMAGE).expect("sizes")
    })
    .collect()
}

/// The network under two heads, one of them with a hidden layer and dropout.
fn stages(network: &Network) -> Vec<Box<dyn StageSpec>> {
    let plain = "name = \"a\"\ntask = \"multilabel\"\nlabels = [\"x\", \"y\"]";
    let deep = "name = \"b\"\ntask = \"binary\"\nlabels = [\"z\"]\nhidden = [5]\ndropout = 0.3";
    let heads = [plain, deep].map(|text| toml::from_str::<HeadConfig>(text).expect("a head"));
    network.stages(Default::default(), Default::default(), &heads)
}

fn chain(network: &Network) -> Chain {
    Chain::init(&stages(network), &Device::flex(), 7)
}

fn images(batch: usize) -> Activation {
    let [channels, height, width] = IMAGE;
    Activation::Map(wave([batch, channels, height, width], 0.7, &Device::flex()))
}

fn values(activation: Activation) -> Vec<f32> {
    let data = match activation {
        Activation::Features(features) => vec![features.into_data()],
        Activation::Outputs(outputs) => outputs.into_iter().map(Tensor::into_data).collect(),
        map => vec![map.into_map().into_data()],
    };
    data.iter().flat_map(|data| data.iter::<f32>().collect::<Vec<_>>()).collect()
}

fn train(chain: &Chain) -> executor::StepResult {
    let stages = chain.stages().len();
    let schedule = Schedule::of_plan(&CheckpointPlan::keep_all(stages), stages, 1);
    let ones = |outputs: Activation| {
        Activation::Outputs(outputs.into_outputs().iter().map(Tensor::ones_like).collect())
    };
    let parts = [Part::alone(0..1)];
    let key = executor::StepKey::alone(1, 0, &parts);
    let store = Store::nowhere();
    let loss = |_, outputs| ones(outputs);
    executor::train(&store, chain, &schedule, key, |_| images(3), loss).expect("nothing is moved")
}

#[test]
fn planned_shapes_and_counts_are_those_that_come_out() {
    for (network, batch) in networks().iter().flat_map(|network| [(network, 1), (network, 3)]) {
        let mut flowing = images(batch);
        for spec in stages(network) {
            let planned = spec.output(&flowing.shape());
            let stage = spec.init(&Device::flex(), 1);
            let (pass, mut none) = (Pass::evaluation(), Statistics::new());
            (flowing, _) = stage.forward(flowing, Keep::Nothing, &pass, &mut none);
            assert_eq!(flowing.shape(), planned, "{}", spec.name());
            let trained = stage.parameters().into_iter().filter(|parameter| parameter.trained);
            let count: usize = trained.map(|parameter| parameter.value.dims()[0]).sum();
            assert_eq!(count, spec.parameter_count(), "{}", spec.name());
        }
        assert_eq!(flowing.shape(), ActivationShape::Outputs(vec![[batch, 2], [batch, 1]]));
    }
}

#[test]
fn every_trained_parameter_gets_a_gradient_of_its_size() {
    for network in networks() {
        let chain = chain(&network);
        let gradients = train(&chain).gradients;
        let trained: Vec<_> = chain.parameters().into_iter().filter(|p| p.trained).collect();
        assert_eq!(gradients.len(), trained.len());
        for parameter in trained {
            let gradient = gradients.get(&parameter.name).expect("a gradient");
            assert_eq!(gradient.dims(), parameter.value.dims(), "{}", parameter.name);
        }
    }
}

#[test]
fn a_recomputed_stage_gives_the_same_output_and_reports_no_statistics_again() {
    for network in networks() {
        let chain = chain(&network);
        let mut flowing = images(3);
        for (stage, layers) in chain.stages().iter().zip(network.layers()) {
            let run = |purpose, keep| {
                let mut statistics = Statistics::new();
                let pass = Pass::new(purpose, 1, 4, 0);
                let (output, _) = stage.forward(flowing.clone(), keep, &pass, &mut statistics);
                (values(output), statistics.len())
            };
            let (first, reported) = run(Purpose::First, Keep::Nothing);
            let (again, reported_again) = run(Purpose::Recompute, Keep::All);
            assert_eq!(first, again, "the same dropout masks, the same bits");
            let statistics = layers.parameters().iter().filter(|one| !one.trained).count();
            assert_eq!((reported, reported_again), (statistics, 0), "{}", stage.name());
            let pass = Pass::new(Purpose::First, 1, 4, 0);
            let mut none = Statistics::new();
            (flowing, _) = stage.forward(flowing, Keep::Nothing, &pass, &mut none);
        }
    }
}

#[test]
fn training_changes_nothing_until_the_step_is_taken() {
    let mut chain = chain(&networks()[0]);
    let read = |chain: &Chain| -> Vec<Vec<f32>> {
        chain.parameters().into_iter().map(|p| p.value.into_data().iter().collect()).collect()
    };
    let before = read(&chain);
    let result = train(&chain);
    assert_eq!(read(&chain), before);
    chain.move_statistics(&result.statistics[0], None);
    let moved = chain.parameters().into_iter().zip(before).filter(|(parameter, before)| {
        parameter.value.to_data().iter::<f32>().collect::<Vec<_>>() != *before
    });
    let moved: Vec<_> = moved.map(|(parameter, _)| parameter.name).collect();
    assert_eq!(moved.len(), result.statistics[0].len());
    assert!(moved.iter().all(|name| name.contains(".running_")), "{moved:?}");
}

fn target(cuda: bool) -> Target {
    let (precision, dense_layers) = (Precision::Fp32, Default::default());
    Target { cuda, hopper: cuda, cpu: Cpu::ASSUMED, precision, dense_layers }
}

/// What three images cost stage `number` on the CPU.
fn footprint(network: &Network, number: usize) -> Footprint {
    let StageLayers { input, .. } = &network.layers()[number];
    let stage = &network.stages(Default::default(), Default::default(), &[])[number];
    stage.footprint(&input.of_batch(3), &target(false))
}

/// A pass that leaves a layer out has no gradient of its parameters, and an output of another size has
/// other bytes. A GPU's allocator rounds up, and of what Burn joins on one each row does: of 9 numbers of 32 bits to 64 bytes.
#[test]
fn footprints_count_the_output_and_the_gradient_of_every_parameter() {
    for (network, cuda) in networks().iter().flat_map(|network| [(network, false), (network, true)])
    {
        let rounded = |numbers: usize| match cuda {
            true => (4 * numbers as u64).next_multiple_of(512),
            false => 4 * numbers as u64,
        };
        for stage in network.layers() {
            let spec = LayerStageSpec::new(stage.clone(), Precision::Fp32);
            let found = spec.footprint(&stage.input.of_batch(3), &target(cuda));
            let parameters = stage.parameters();
            let trained = parameters.iter().filter(|parameter| parameter.trained);
            let gradients: u64 = trained.map(|parameter| rounded(parameter.count())).sum();
            assert_eq!(found.parameter_gradients, gradients, "{} {cuda}", stage.name);
            let shape = match stage.output().of_batch(3) {
                ActivationShape::Map(map) => map.to_vec(),
                ActivationShape::Features(features) => features.to_vec(),
                ActivationShape::Outputs(_) => unreachable!("there are no heads"),
            };
            let (row, rows) = shape.split_last().expect("has dimensions");
            let last = stage.layers.last().map(|layer| &layer.op);
            let row = match last {
                Some(Op::Branches(Join::Concat, _)) if cuda && *row > 1 => {
                    row.next_power_of_two().max(4)
                }
                _ => *row,
            };
            let output = row * rows.iter().product::<usize>();
            assert_eq!(found.output, rounded(output), "{} {cuda}", stage.name);
        }
    }
}

/// The backward pass begins with the last layers, so the first ones, which take most, find gone what
/// was kept for the others.
#[test]
fn more_layers_at_the_end_leave_the_peak_of_the_first_ones_as_it_is() {
    let peak = |more: &str| {
        let conv =
            |channels| format!("{{ conv = {{ channels = {channels}, kernel = 1 }} }}, 'relu', ");
        let layers = [conv(50), conv(25), conv(10), conv(10)].concat();
        let stage = format!("{{ stage = {{ name = 'all', layers = [{layers}{more}] }} }}");
        let config = format!("[sequential]\nlayers = [{stage}, 'flatten']");
        let config: ModelConfig = toml::from_str(&config).expect("a model");
        let found = footprint(&config.resolve([1, 64, 64]).expect("sizes"), 0);
        found.saved + found.backward_workspace()
    };
    let more = "{ conv = { channels = 10, kernel = 1 } }, 'relu'";
    assert_eq!(peak(more), peak(""));
}

/// A dense block keeps its maps once, however many layers read them, and a bottleneck for each layer.
#[test]
fn a_dense_block_keeps_its_output_and_the_bottlenecks() {
    let config = "[densenet]\ngrowth = 4\nblocks = [6]\nstem = 8\nbottleneck = 2";
    let config: ModelConfig = toml::from_str(config).expect("a model");
    let footprint = footprint(&config.resolve([1, 64, 64]).expect("sizes"), 1);
    let pixels = 3 * 16 * 16;
    assert_eq!(footprint.output, 4 * pixels * (8 + 6 * 4));
    assert_eq!(footprint.saved, 4 * pixels * (6 * 8));
    assert!(footprint.saves_output && !footprint.saves_input);
}
