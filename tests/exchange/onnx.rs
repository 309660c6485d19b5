//! ONNX files of small networks: their bytes are those that onnxruntime has run, and our outputs are
//! those that it gave.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use trainer::build::Export;
use trainer::data::Standardizer;
use trainer::evaluate::Fitted;
use trainer::plan::Plan;
use trainer::train::Inference;

use super::{largest_difference, levels, model, outputs, plan_of};

/// A network that is exported.
struct Case {
    name: &'static str,
    /// `[data.image]` but for its size, `[model]` and heads.
    table: &'static str,
    normalize_inside: bool,
}

const FINDINGS: &str =
    "heads = [{ name = 'findings', task = 'multilabel', labels = ['A', 'B', 'C'] }]";

/// Every operation that a configuration can ask for.
const CASES: [Case; 6] = [
    Case {
        name: "densenet",
        table: "data.image.normalize = 'imagenet'
            model.densenet = { growth = 4, blocks = [2, 2], stem = 4, bottleneck = 2, dropout = 0.1 }
            heads = [
                { name = 'images', task = 'multilabel', labels = ['A', 'B', 'C'], dropout = 0.2 },
                { name = 'age', task = 'regression', labels = ['age', 'weight'], hidden = [5], standardize = true },
            ]",
        normalize_inside: true,
    },
    Case {
        name: "densenet_group_norm",
        table: "data.image.normalize = { mean = [0.4, 0.5, 0.6], std = 0.25 }
            data.image.channels = 3
            model.densenet = { growth = 4, blocks = [2, 2], stem = 4, bottleneck = 2, norm = 'group' }",
        normalize_inside: true,
    },
    Case {
        name: "resnet",
        table: "model.resnet = { block = 'bottleneck', blocks = [1, 2, 1, 1], stem = 2 }",
        normalize_inside: false,
    },
    Case {
        name: "resnet_cifar",
        table: "model.resnet = { form = 'cifar', block = 'basic', blocks = [1, 1, 1], stem = 2 }
            heads = [{ name = 'view', task = 'multiclass', labels = ['PA', 'AP'] }]",
        normalize_inside: false,
    },
    Case {
        name: "sequential",
        table: "model.sequential.layers = [
                { stage = { name = 'stem', layers = [
                    { conv = { channels = 4, kernel = 3, stride = 2, padding = 1 } }, 'batch_norm', 'relu',
                ] } },
                { max_pool = { kernel = 3, stride = 2, padding = 1 } },
                { branches = { join = 'concat', of = [
                    [{ conv = { channels = 2, kernel = 1 } }, 'sigmoid'],
                    [{ mean_pool = { kernel = 3, stride = 1, padding = 1 } },
                     { branches = { join = 'add', of = [[], [{ conv = { channels = 4, kernel = 1 } }], []] } }],
                ] } },
                { dropout = { probability = 0.3 } }, { mean_pool = { kernel = 2 } }, 'flatten',
                { linear = { features = 4, bias = false } }, 'batch_norm', 'sigmoid',
                { repeat = { times = 2, layers = [{ linear = { features = 4 } }, 'sigmoid'] } },
            ]",
        normalize_inside: false,
    },
    Case {
        name: "sequential_direct",
        table: "model.sequential.layers = [{ conv = { channels = 3, kernel = 5, stride = 3 } }, 'global_pool']
            heads = [{ name = 'findings', task = 'multilabel', labels = ['A', 'B', 'C'], direct = true }]",
        normalize_inside: false,
    },
];

const SIZE: [usize; 2] = [32, 32];

impl Case {
    fn plan(&self, size: [usize; 2]) -> Plan {
        let heads = if self.table.contains("heads =") { "" } else { FINDINGS };
        let table = self.table;
        let text = format!(
            "device.use = 'cpu'\ntrain = {{ epochs = 1, batch_size = 2, optimizer = 'adamw' }}\n\
             run.name = 'case'\ndata.csv = {{ table = 'a.csv', image = 'path' }}\n{table}\n{heads}"
        );
        plan_of(&text, size)
    }

    /// The model with weights that any machine computes alike, bit for bit.
    fn model(&self, plan: &Plan) -> Inference {
        let specs = plan.model.parameters(&plan.heads).into_iter();
        let values = specs.enumerate().map(|(place, spec)| {
            let fan = (spec.count() / spec.shape[0]).max(1) as f32;
            let value = |at: usize| {
                let share = ((at * 7919 + place * 104_729 + 1) % 2003) as f32 / 2003.0;
                match spec.name.rsplit('.').next() {
                    Some("running_var") => 0.25 + share,
                    Some("weight") if spec.shape.len() == 1 => 0.5 + share,
                    Some("weight") => (share - 0.5) * 4.0 / fan.sqrt(),
                    _ => share - 0.5,
                }
            };
            (spec.name.clone(), (0..spec.count()).map(value).collect())
        });
        let mut model = model(plan, values.collect::<BTreeMap<_, _>>());
        for head in model.heads.iter_mut().filter(|head| head.config.standardize) {
            head.standardizer = Some(Standardizer { mean: vec![1.5, -2.0], std: vec![2.0, 0.5] });
        }
        model
    }

    fn file(&self) -> Vec<u8> {
        let plan = self.plan(SIZE);
        let fitted = r#"{"version": 1, "heads": {"findings": {
            "calibration": {"temperature": 1.5},
            "operating_points": {"A": [{"criterion": "youden", "threshold": 0.25}]}}}}"#;
        let fitted = Fitted::from_json(fitted, Path::new("fitted.json")).expect("reads");
        let export = Export { plan: &plan, inference: &self.model(&plan), fitted: Some(&fitted) };
        export.onnx(self.normalize_inside).expect("is exported")
    }
}

/// What `tests/fixtures/exchange.py onnx` found.
#[derive(Deserialize)]
struct Found {
    /// Of the file.
    blake3: String,
    runs: Vec<FoundRun>,
}

#[derive(Deserialize)]
struct FoundRun {
    /// Of the images, whose levels follow from the formula in [`levels`].
    shape: [usize; 4],
    outputs: BTreeMap<String, Vec<f32>>,
}

fn found() -> BTreeMap<String, Found> {
    let text = include_str!("../fixtures/exchange_onnx.json");
    serde_json::from_str(text).expect("the fixture reads")
}

#[test]
fn onnx_files_are_byte_for_byte_those_that_onnxruntime_has_run() {
    let found = found();
    assert_eq!(found.len(), CASES.len());
    for case in CASES {
        let file = blake3::hash(&case.file()).to_hex().to_string();
        let name = case.name;
        let help = "run tests/fixtures/exchange.py anew, as it says at its top";
        assert_eq!(file, found[name].blake3, "{name} is written otherwise: {help}");
    }
}

#[test]
fn outputs_are_those_that_onnxruntime_gives_for_the_exported_files() {
    for case in CASES {
        let found = &found()[case.name];
        let [batches, sizes]: [Vec<usize>; 2] =
            [0, 2].map(|axis| found.runs.iter().map(|run| run.shape[axis]).collect());
        assert!(batches.iter().any(|batch| *batch != batches[0]), "{}", case.name);
        let fixed = case.name == "sequential";
        assert_eq!(sizes.iter().all(|size| *size == sizes[0]), fixed, "{}", case.name);
        for FoundRun { shape, outputs: theirs } in &found.runs {
            let plan = case.plan([shape[2], shape[3]]);
            let mut images = levels(*shape);
            if case.normalize_inside {
                let image = &plan.data.image;
                let scale = trainer::data::constant_scale(&image.normalize, image.channels);
                let scale = scale.expect("is constant");
                for (place, level) in images.iter_mut().enumerate() {
                    let channel = place / (shape[2] * shape[3]) % shape[1];
                    let [black, gain] = scale[channel.min(scale.len() - 1)];
                    *level = (*level - black) * gain;
                }
            }
            let ours = outputs(&case.model(&plan), &images, *shape);
            assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
            for (head, ours) in ours {
                let difference = largest_difference(&ours, &theirs[&head]);
                println!("{} {shape:?} {head}: {difference:.1e}", case.name);
                assert!(difference < 1e-4, "{} {shape:?} {head}: {difference}", case.name);
                let spread =
                    ours.iter().fold(0.0_f32, |most, value| most.max((value - ours[0]).abs()));
                assert!(spread > 1e-3, "{} {head}: the images hardly differ: {ours:?}", case.name);
            }
        }
    }
}

#[test]
#[ignore = "writes the files that tests/fixtures/exchange.py onnx runs"]
fn onnx_files_are_written() {
    let folder = std::env::var_os("TRAINER_EXCHANGE").expect("TRAINER_EXCHANGE names the folder");
    for case in CASES {
        let path = Path::new(&folder).join(format!("{}.onnx", case.name));
        std::fs::write(path, case.file()).expect("is written");
    }
}

#[test]
fn a_scale_that_follows_each_image_stays_outside() {
    for (normalize, said) in [
        ("'per_image'", "`data.image.normalize` is \"per_image\""),
        ("{ percentile = [1.0, 99.0] }", "`data.image.normalize` is {\"percentile\":[1.0,99.0]}"),
    ] {
        let table = format!(
            "data.image.normalize = {normalize}\nmodel.sequential.layers = ['global_pool']"
        );
        let case = Case { table: table.leak(), name: "", normalize_inside: true };
        let plan = case.plan(SIZE);
        let export = Export { plan: &plan, inference: &case.model(&plan), fitted: None };
        let error = export.onnx(true).expect_err("is refused").to_string();
        assert!(error.starts_with(said), "{error}");
        export.onnx(false).expect("is exported");
    }
}
