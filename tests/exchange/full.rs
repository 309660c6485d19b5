//! Networks of full size, both ways: `tests/fixtures/exchange.py networks DIR` writes weights of
//! PyTorch's, this test imports, computes and exports, and `… check DIR` computes with what was exported.

use std::path::{Path, PathBuf};

use trainer::build::Export;
use trainer::model::weights::{self, Initial, NamedTensor, initial};
use trainer::plan::Plan;

use super::{largest_difference, model, outputs, plan_of};

/// The files in `folder` whose names begin so.
fn files(folder: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(beginning))
    });
    paths.sort();
    paths
}

/// The model of `plan` with the weights in the file; all of them are in it.
fn imported(plan: &Plan, path: &Path) -> (trainer::train::Inference, Initial) {
    let wanted = plan.model.parameters(&plan.heads).into_iter().map(|p| (p.name, p.shape));
    let wanted: Vec<_> = wanted.collect();
    let (initial, values) = initial(path, &wanted, &plan.heads).expect("is read");
    assert_eq!(initial.random(), Vec::<String>::new(), "{}", path.display());
    (model(plan, values), initial)
}

#[test]
#[ignore = "needs the 500 MB that tests/fixtures/exchange.py networks writes"]
fn networks_of_full_size_compute_the_same_before_and_after() {
    let root = std::env::var_os("TRAINER_EXCHANGE").expect("TRAINER_EXCHANGE names the folder");
    for config in files(Path::new(&root), "").iter().map(|case| case.join("config.toml")) {
        let folder = config.parent().expect("a folder");
        let text = std::fs::read_to_string(&config).expect("reads");
        let weights_file = files(folder, "weights.").remove(0);
        for path in files(folder, "images-") {
            let mut tensors = weights::read(&path).expect("reads").tensors;
            let at = tensors.iter().position(|tensor| tensor.name == "images").expect("images");
            let NamedTensor { shape, data, .. } = tensors.remove(at);
            let shape: [usize; 4] = shape.try_into().expect("four sides");
            let plan = plan_of(&text, [shape[2], shape[3]]);
            let (model, initial) = imported(&plan, &weights_file);
            let ours = outputs(&model, &data, shape);
            for theirs in &tensors {
                let difference = largest_difference(&ours[&theirs.name], &theirs.data);
                println!("{} {shape:?} {}: {difference:.1e}", folder.display(), theirs.name);
                assert!(difference < 1e-4);
            }
            let named = |(name, data): (&String, &Vec<f32>)| NamedTensor {
                name: name.clone(),
                shape: vec![shape[0], data.len() / shape[0]],
                data: data.clone(),
            };
            let ours: Vec<NamedTensor> = ours.iter().map(named).collect();
            let write = |name: &str, bytes: Vec<u8>| {
                std::fs::write(folder.join(name), bytes).expect("is written");
            };
            let of = path.file_name().and_then(|name| name.to_str()).expect("a name");
            write(&of.replace("images-", "ours-"), weights::write(&ours).expect("writes"));
            let export = Export { plan: &plan, inference: &model, fitted: None };
            write("exported.onnx", export.onnx(false).expect("ONNX"));
            write("exported.safetensors", export.safetensors().expect("SafeTensors"));
            write("torchvision.safetensors", export.torchvision().expect("torchvision"));
            println!("{initial}");
            let (again, _) = imported(&plan, &folder.join("exported.safetensors"));
            let again = outputs(&again, &data, shape);
            assert!(ours.iter().all(|tensor| again[&tensor.name] == tensor.data));
        }
    }
}
