use burn::tensor::{Device, Tensor};

use super::*;
use crate::memory::{Activation, Chain, Keep, Pass, Schedule, Statistics, executor};

const IMAGE: [usize; 3] = [2, 9, 7];

fn read(layers: &str) -> SequentialConfig {
    toml::from_str(&format!("layers = {layers}")).expect("reads")
}

fn resolve(layers: &str) -> SequentialArchitecture {
    read(layers).resolve(IMAGE).expect("is right")
}

const MIXED: &str = "[
    'relu',
    { conv = { channels = 4, kernel = 3, stride = 2 } }, 'batch_norm', 'relu',
    { repeat = { times = 2, layers = [
        { branches = { join = 'concat', of = [
            [], [{ conv = { channels = 3, kernel = 5, padding = 2 } }, { dropout = {} }],
        ] } },
        { stage = { name = 'pooled', layers = [
            { max_pool = { kernel = 3, stride = 1, padding = 1 } },
            { conv = { channels = 5, kernel = 1, bias = false } }, 'sigmoid',
            { conv = { channels = 5, kernel = 2, padding = 1 } },
        ] } },
    ] } },
    { mean_pool = { kernel = 2 } }, 'flatten',
    { branches = { join = 'concat', of = [[{ linear = { features = 6 } }], ['sigmoid']] } },
    { linear = { features = 3 } },
]";

#[test]
fn planned_shapes_and_counts_are_those_that_come_out() {
    for batch in [1, 3] {
        let [channels, height, width] = IMAGE;
        let shape = [batch, channels, height, width];
        let mut flowing = Activation::Map(Tensor::ones(shape, &Device::flex()));
        for spec in resolve(MIXED).stages() {
            let planned = spec.output(&flowing.shape());
            let stage = spec.init(&Device::flex(), 1);
            let (pass, mut none) = (Pass::evaluation(), Statistics::new());
            (flowing, _) = stage.forward(flowing, Keep::Nothing, &pass, &mut none);
            assert_eq!(flowing.shape(), planned, "{}", spec.name());
            let trained = stage.parameters().into_iter().filter(|parameter| parameter.trained);
            let count: usize = trained.map(|parameter| parameter.value.dims()[0]).sum();
            assert_eq!(count, spec.parameter_count(), "{}", spec.name());
        }
        assert_eq!(flowing.into_features().dims(), [batch, 3]);
    }
}

#[test]
fn a_stage_begins_where_recomputing_starts_to_cost_or_where_the_user_says() {
    let stages = resolve(MIXED).stages;
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    let expected = ["layer0", "layer4", "pooled.0", "layer9", "pooled.1", "layer14", "layer17"];
    assert_eq!(names, expected);
    let layers: Vec<usize> = stages.iter().map(|stage| stage.layers.len()).collect();
    assert_eq!(layers, [4, 1, 4, 1, 4, 3, 1]);
}

#[test]
fn names_and_weights_do_not_depend_on_the_stages() {
    let plain = "['flatten', { linear = { features = 4 } }, 'relu', { linear = { features = 2 } }]";
    let grouped = "[{ stage = { name = 'all', layers = ['flatten', { linear = { features = 4 } }, \
                   'relu', { linear = { features = 2 } }] } }]";
    let parameters = |layers: &str| -> Vec<(String, Vec<f32>)> {
        let chain = Chain::init(&resolve(layers).stages(), &Device::flex(), 7);
        let values = |value: Tensor<1>| value.into_data().iter().collect();
        chain.parameters().into_iter().map(|p| (p.name, values(p.value))).collect()
    };
    let names: Vec<String> = parameters(plain).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["1.weight", "1.bias", "3.weight", "3.bias"]);
    assert_eq!(parameters(plain), parameters(grouped));
    assert_eq!([resolve(plain).stages.len(), resolve(grouped).stages.len()], [2, 1]);
}

#[test]
fn weights_and_biases_are_uniform_below_one_over_the_root_of_the_fan() {
    let layers =
        "[{ conv = { channels = 300, kernel = 3 } }, { conv = { channels = 8, kernel = 1 } },
                   'flatten', { linear = { features = 400 } }]";
    let chain = Chain::init(&resolve(layers).stages(), &Device::flex(), 7);
    for (name, fan) in [("0", 2 * 9), ("1", 300), ("3", 8 * 7 * 5)] {
        let bound = 1.0 / f64::from(fan).sqrt();
        for kind in ["weight", "bias"] {
            let name = format!("{name}.{kind}");
            let one = chain.parameters().into_iter().find(|one| one.name == name);
            let values: Vec<f32> = one.expect("is there").value.into_data().iter().collect();
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let count = values.len() as f64;
            assert!(values.iter().all(|value| value.abs() <= bound), "{name}");
            // The variance of U(−b, b) is b² / 3; six standard errors of the mean and its square.
            let variance = values.iter().map(|value| value * value).sum::<f64>() / count;
            let error = 6.0 * bound * bound * (4.0 / 45.0 / count).sqrt();
            assert!((variance - bound * bound / 3.0).abs() < error, "{name}: {variance}");
            let mean = values.iter().sum::<f64>() / count;
            assert!(mean.abs() < 6.0 * bound / (3.0 * count).sqrt(), "{name}: {mean}");
        }
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    let chain = Chain::init(&resolve(MIXED).stages(), &Device::flex(), 7);
    let [channels, height, width] = IMAGE;
    let wave = (0..2 * channels * height * width).map(|i| (i as f32 * 0.7).sin());
    let values =
        burn::tensor::TensorData::new(wave.collect::<Vec<f32>>(), [2, channels, height, width]);
    let images = Tensor::from_data(values, &Device::flex());
    let schedule = Schedule::keep_all(chain.stages().len(), 1);
    let result = executor::train(
        &chain,
        &schedule,
        1,
        0,
        |_| Activation::Map(images.clone()),
        |_, output| Activation::Features(output.into_features().ones_like()),
    );
    let trained = chain.parameters().into_iter().filter(|parameter| parameter.trained);
    assert_eq!(result.gradients.len(), trained.count());
}

#[test]
fn a_resolved_network_resolves_to_itself_and_reads_back() {
    let architecture = resolve(MIXED);
    assert_eq!(architecture.to_config().resolve(IMAGE).expect("is right"), architecture);
    let text = toml::to_string(&architecture.to_config()).expect("writes");
    assert_eq!(toml::from_str::<SequentialConfig>(&text).expect("reads"), architecture.to_config());
}

#[test]
fn layers_that_do_not_fit_are_refused_at_their_key() {
    let end = "{ linear = { features = 3 } }";
    let wrong = [
        ("[]".to_owned(), "layers", "empty"),
        (format!("[{end}]"), "layers[0].linear", "needs features, and the input is 2 × 9 × 7"),
        ("['relu']".to_owned(), "layers[0]", "end in 2 × 9 × 7"),
        ("['flatten', 'flatten']".to_owned(), "layers[1].flatten", "the input is 126 features"),
        (
            "['flatten', { conv = { channels = 1, kernel = 1 } }]".to_owned(),
            "layers[1].conv",
            "a convolution needs a map",
        ),
        ("['flatten', { linear = { features = 0 } }]".to_owned(), "layers[1].linear.features", "0"),
        (
            "[{ conv = { channels = 1, kernel = 8 } }]".to_owned(),
            "layers[0].conv.kernel",
            "does not fit into the input, 2 × 9 × 7",
        ),
        (
            "[{ conv = { channels = 1, kernel = 3, padding = 3 } }]".to_owned(),
            "layers[0].conv.padding",
            "as wide as the kernel",
        ),
        (
            "[{ conv = { channels = 1, kernel = 3, stride = 0 } }]".to_owned(),
            "layers[0].conv.stride",
            "`stride` is 0",
        ),
        (
            "[{ max_pool = { kernel = 3, padding = 2 } }]".to_owned(),
            "layers[0].max_pool.padding",
            "the window 3",
        ),
        ("[{ dropout = { probability = 1.0 } }]".to_owned(), "layers[0].dropout.probability", "1"),
        (
            "[{ branches = { join = 'add', of = [[]] } }]".to_owned(),
            "layers[0].branches.of",
            "1 branches",
        ),
        (
            "[{ branches = { join = 'add', of = [[], ['flatten']] } }]".to_owned(),
            "layers[0].branches.of[1]",
            "ends in 126 features, the first in 2 × 9 × 7",
        ),
        (
            "[{ branches = { join = 'concat', of = [[], [{ max_pool = { kernel = 2 } }]] } }]"
                .to_owned(),
            "layers[0].branches.of[1]",
            "ends in 2 × 4 × 3",
        ),
        (
            format!("[{{ branches = {{ join = 'concat', of = [[], [{end}]] }} }}]"),
            "layers[0].branches.of[1][0].linear",
            "needs features",
        ),
        (
            "[{ repeat = { times = 0, layers = ['relu'] } }]".to_owned(),
            "layers[0].repeat.times",
            "repeats nothing",
        ),
        (
            "[{ repeat = { times = 20001, layers = ['relu'] } }]".to_owned(),
            "layers[0].repeat.times",
            "more than 20000",
        ),
        (
            "[{ repeat = { times = 99, layers = [{ max_pool = { kernel = 2 } }] } }]".to_owned(),
            "layers[0].repeat.layers[0].max_pool.kernel",
            "does not fit",
        ),
        (
            "[{ stage = { name = 'a', layers = [{ stage = { name = 'b', layers = [] } }] } }]"
                .to_owned(),
            "layers[0].stage.layers[0].stage",
            "inside another stage",
        ),
        (
            "[{ stage = { name = 'layer3', layers = ['relu'] } }]".to_owned(),
            "layers[0].stage.name",
            "cannot be a stage's name",
        ),
        (
            "[{ stage = { name = 'a', layers = ['relu'] } }, \
             { stage = { name = 'a', layers = ['relu'] } }]"
                .to_owned(),
            "layers[1].stage.name",
            "two stages",
        ),
    ];
    for (layers, key, message) in wrong {
        let fault = read(&layers).resolve(IMAGE).expect_err(&layers);
        assert_eq!(fault.key, key, "{fault}");
        assert!(fault.message.contains(message), "{fault}");
        assert!(!fault.help.is_empty());
    }
}
