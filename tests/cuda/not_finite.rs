//! A number that is not finite is told where it begins, in stages that run fused too: by a norm in the stage, or by the
//! stage.

use trainer::build::Bench;

use super::broken::{batch, break_heads, break_images, plan, refused, replace};

const NETWORKS: [&str; 3] = [
    "[model.densenet]\ngrowth = 16\nblocks = [2, 2]\nstem = 16\n",
    "[model.resnet]\nblock = \"basic\"\nblocks = [1, 1]\nstem = 64\n",
    "[model.resnet]\nblock = \"bottleneck\"\nblocks = [1, 1]\nstem = 64\n",
];

const WAYS: [(&str, &str); 3] = [
    ("fp32", "[device]\nuse = \"cuda\"\n[memory]\nprecision = \"fp32\""),
    ("bf16", "[device]\nuse = \"cuda\"\n[memory]\nprecision = \"bf16\""),
    (
        "bf16, shared, micro-batches",
        "[device]\nuse = \"cuda\"\n[memory]\nprecision = \"bf16\"\ndense_layers = \"share\"\nmicro_batch = 2",
    ),
];

/// The parameters of each stage of the model in their order, the stage's name in front.
fn stages(bench: &Bench) -> Vec<(String, Vec<String>)> {
    let chain = &bench.trainer.ranks[0].replica.inference.chain;
    let named = |stage: &dyn trainer::memory::Stage| {
        let parameters = stage.parameters().into_iter().map(|parameter| parameter.name);
        (stage.name().to_owned(), parameters.collect())
    };
    chain.stages().iter().map(|stage| named(stage.as_ref())).collect()
}

#[test]
fn a_layer_that_overflows_is_told_by_its_stage_or_by_a_norm_behind_it() {
    let (mut tried, mut norms) = (0, 0);
    for (network, (name, way)) in NETWORKS.iter().flat_map(|one| WAYS.map(|way| (one, way))) {
        let mut bench = Bench::new(&plan(network, way)).expect("opens");
        let (images, targets) = batch(&bench);
        let all = bench.trainer.parameters();
        for (stage, parameters) in stages(&bench) {
            for (place, parameter) in parameters.iter().enumerate() {
                let Some(layer) = parameter.strip_suffix(".weight") else { continue };
                // What a head puts out may be just finite.
                if layer.starts_with("classifier.") {
                    continue;
                }
                let case = format!("{layer}, {name}, {network}");
                let one = all.iter().find(|one| one.name == *parameter).expect("is there");
                let before: Vec<f32> = one.value.clone().into_data().iter().collect();
                replace(&mut bench, parameter, |values| vec![3.3e38; values.len()]);
                let told = refused(&mut bench, &images, &targets, &case);
                replace(&mut bench, parameter, |_| before.clone());
                let begins = told.split("it begins in the layer `").nth(1);
                let begins = begins.and_then(|rest| rest.split('`').next());
                let begins = begins.unwrap_or_else(|| panic!("{case}: {told}"));
                let behind = parameters[place..].iter().any(|parameter| {
                    parameter.rsplit_once('.').is_some_and(|(layer, _)| layer == begins)
                });
                assert!(behind || begins == stage, "{case}: {told}");
                norms += usize::from(behind);
                tried += 1;
            }
        }
    }
    assert!(tried > 100 && norms > 50, "{tried} {norms}");
}

#[test]
fn heads_and_images_are_named() {
    for (network, (name, way)) in NETWORKS.iter().flat_map(|one| WAYS.map(|way| (one, way))) {
        break_heads(network, way, name);
        break_images(network, way, name);
    }
}
