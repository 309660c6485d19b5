use std::collections::BTreeMap;

use burn::tensor::Device;

use super::*;
use crate::model::ModelConfig;
use crate::model::layers::ParameterSpec;

const IMAGE: [usize; 3] = [2, 9, 7];

fn read(layers: &str) -> SequentialConfig {
    toml::from_str(&format!("layers = {layers}")).expect("reads")
}

fn resolve(layers: &str) -> Vec<StageLayers> {
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

/// The initial values of all parameters, by their names.
fn parameters(layers: &str) -> BTreeMap<String, Vec<f32>> {
    let specs = resolve(layers).into_iter().flat_map(|stage| stage.parameters());
    let drawn = ParameterSpec::init_all(&specs.collect::<Vec<_>>(), &Device::flex(), 7);
    drawn.into_iter().map(|one| (one.name, one.value.into_data().iter().collect())).collect()
}

#[test]
fn a_stage_begins_where_recomputing_starts_to_cost_or_where_the_user_says() {
    let stages = resolve(MIXED);
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
    let names: Vec<String> = parameters(plain).into_keys().collect();
    assert_eq!(names, ["1.bias", "1.weight", "3.bias", "3.weight"]);
    assert_eq!(parameters(plain), parameters(grouped));
    assert_eq!([resolve(plain).len(), resolve(grouped).len()], [2, 1]);
}

#[test]
fn weights_and_biases_are_uniform_below_one_over_the_root_of_the_fan() {
    let layers =
        "[{ conv = { channels = 300, kernel = 3 } }, { conv = { channels = 8, kernel = 1 } },
                   'flatten', { linear = { features = 400 } }]";
    let parameters = parameters(layers);
    for (name, fan) in [("0", 2 * 9), ("1", 300), ("3", 8 * 7 * 5)] {
        let bound = 1.0 / f64::from(fan).sqrt();
        for kind in ["weight", "bias"] {
            let name = format!("{name}.{kind}");
            let values: Vec<f64> = parameters[&name].iter().copied().map(f64::from).collect();
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
fn a_resolved_network_resolves_to_itself_and_reads_back() {
    let config = ModelConfig::Sequential(read(MIXED));
    let network = config.resolve(IMAGE).expect("is right");
    assert_eq!(network.config().resolve(IMAGE).expect("is right"), network);
    let text = toml::to_string(&network.config()).expect("writes");
    assert_eq!(toml::from_str::<ModelConfig>(&text).expect("reads"), config);
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
        assert!(fault.help.is_some_and(|help| !help.is_empty()));
    }
}
