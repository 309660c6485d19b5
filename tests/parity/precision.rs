//! 16 bits cost what they cost PyTorch.

use serde::Deserialize;
use trainer::memory::{Parameter, Precision};

use super::*;

/// What PyTorch finds in one precision, and how far that is from what is exact.
#[derive(Deserialize)]
struct Found {
    logits: Vec<f32>,
    loss: f32,
    gradient: f64,
    statistics: BTreeMap<String, f64>,
}

const SCALE: f32 = 65536.0;

/// A step in `precision`, its gradients without the loss's scale.
fn narrow_step(network: &Network, oracle: &Oracle, precision: Precision) -> (Chain, Step) {
    let chain = chain(network, oracle, DType::F32).cast(precision.parameters());
    let numbers = precision.activations();
    let scale = if precision.scales_loss() { SCALE } else { 1.0 };
    let mut found = step_of(&chain, images(numbers), |logits| {
        assert_eq!(logits.dtype(), numbers);
        let logits = logits.cast(DType::F32);
        let count = (BATCH * OUTPUTS) as f32;
        let gradient = (sigmoid(logits) - targets(DType::F32)).mul_scalar(scale / count);
        gradient.cast(numbers)
    });
    for gradient in found.result.gradients.values_mut() {
        assert_eq!(gradient.dtype(), precision.parameters());
        *gradient = gradient.clone().cast(DType::F32).div_scalar(scale);
    }
    (chain, found)
}

/// All gradients, one behind the other.
fn whole(oracle: &Oracle, of: &executor::StepResult) -> [Vec<f32>; 2] {
    let each = of.gradients.iter().map(|(name, gradient)| {
        let exact = oracle.get(&format!("exact/{}", torch_name(name))).to_vec();
        (vector(gradient.clone()), exact)
    });
    let (ours, exact): (Vec<_>, Vec<_>) = each.unzip();
    [ours.concat(), exact.concat()]
}

fn costs_what_it_costs_pytorch(table: &str, name: &str) {
    let network = network(table);
    let oracle =
        Oracle::read(&Path::new("tests/fixtures").join(format!("{name}_parity.safetensors")));
    let fixture = std::fs::read_to_string("tests/fixtures/precision.json").expect("is there");
    let mut fixture: serde_json::Value = serde_json::from_str(&fixture).expect("JSON");
    let of: BTreeMap<String, Found> =
        serde_json::from_value(fixture[name].take()).expect("the network's");
    for (precision, key) in
        [(Precision::Bf16, "bf16"), (Precision::Fp16, "fp16"), (Precision::Half, "half")]
    {
        let theirs = &of[key];
        let (mut chain, ours) = narrow_step(&network, &oracle, precision);
        let exact = oracle.get("logits");
        let logits = [&ours.logits, &theirs.logits].map(|found| relative_error(found, exact));
        as_far(logits, &format!("{name} in {key}: logits"));
        assert!(2.0 * logits[0] >= logits[1], "{name} was not computed in {key}");
        let [gradients, exact] = whole(&oracle, &ours.result);
        let gradient = [relative_error(&gradients, &exact), theirs.gradient];
        as_far(gradient, &format!("{name} in {key}: gradient"));
        let loss = f64::from((ours.loss - theirs.loss).abs() / theirs.loss);
        assert!(loss < theirs.gradient, "{name} in {key}: loss {} {}", ours.loss, theirs.loss);
        chain.move_statistics(&ours.result.statistics[0], None);
        let statistics = chain.parameters().into_iter().filter(|parameter| !parameter.trained);
        let statistics = statistics.map(|Parameter { name, value, .. }| {
            assert_eq!(value.dtype(), precision.parameters());
            let exact = oracle.get(&format!("statistic/{name}"));
            [relative_error(&vector(value), exact), theirs.statistics[&name]]
        });
        let worst = statistics.reduce(|a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        as_far(worst.expect("there are statistics"), &format!("{name} in {key}: statistics"));
    }
}

/// Asserts that we are no farther from what is exact than PyTorch is. As many numbers are rounded, to
/// the same bits, so only chance tells the errors apart.
fn as_far([ours, theirs]: [f64; 2], what: &str) {
    println!("{what}: {ours:.1e} from what is exact, PyTorch {theirs:.1e}");
    assert!(ours <= 1.5 * theirs, "{what}: {ours:.1e}, PyTorch {theirs:.1e}");
}

#[test]
fn sixteen_bits_cost_a_densenet_what_they_cost_pytorchs() {
    let table = "densenet = { growth = 4, blocks = [2, 2], stem = 8, bottleneck = 4 }";
    costs_what_it_costs_pytorch(table, "densenet");
}

#[test]
fn sixteen_bits_cost_a_resnet_what_they_cost_pytorchs() {
    let table = "resnet = { block = 'basic', blocks = [1, 1, 1, 1], stem = 2 }";
    costs_what_it_costs_pytorch(table, "resnet_basic");
    let table = "resnet = { block = 'bottleneck', blocks = [1, 2, 1, 1], stem = 2 }";
    costs_what_it_costs_pytorch(table, "resnet_bottleneck");
}
