//! Plans of whole configurations, and the schema.

use std::path::Path;

use trainer::config::{reference, schema};

use crate::{BASE, resolve};

/// Every configuration below `configs/`, by name.
pub fn committed() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    files_in(&[root.clone(), root.join("experiments")])
}

/// Those to begin with, one for each layout: alike but for their data.
fn for_layouts() -> Vec<(String, String)> {
    files_in(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/layouts")])
}

fn files_in(folders: &[std::path::PathBuf]) -> Vec<(String, String)> {
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn the_committed_configurations_resolve_as_before() {
    let files = committed();
    assert!(files.len() >= 2);
    for (name, text) in files.into_iter().chain(for_layouts()) {
        let plan = resolve(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(plan.run.name, name, "a run is named after its file");
        insta::assert_snapshot!(name, plan.to_toml().unwrap());
    }
}

#[test]
fn every_layout_has_a_configuration_to_begin_with() {
    let schema = schema();
    let tables = schema["definitions"]["SourceConfig"]["properties"].as_object().unwrap();
    let layouts = tables.keys().filter(|key| !["heads", "labels"].contains(&key.as_str()));
    for layout in layouts {
        let table = format!("\n[data.{layout}]");
        let begins =
            committed().iter().chain(&for_layouts()).any(|(_, text)| text.contains(&table));
        assert!(begins, "{layout}");
    }
}

#[test]
fn the_committed_configurations_open_with_what_they_cost() {
    for (name, text) in committed().into_iter().chain(for_layouts()) {
        for line in ["#:schema ", "# Command: ", "# Hardware: ", "# Takes: ", "# Reaches: "] {
            let head = text.lines().take_while(|line| line.starts_with('#'));
            assert!(head.into_iter().any(|one| one.starts_with(line)), "{name}: {line}");
        }
    }
}

/// The documentation's own configurations are whole, and say no word of a key that there is not.
#[test]
fn the_configurations_of_the_examples_resolve() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        let text = block.split("```").next().unwrap();
        let plan = resolve(text, &[]).unwrap_or_else(|error| panic!("{error}"));
        let name = text.strip_prefix("# ").unwrap().split(".toml").next().unwrap();
        assert!(name.ends_with(&plan.run.name), "{name}");
    }
}

#[test]
fn googlenet_has_as_many_weights_as_the_one_released_with_caffe() {
    let (_, text) = committed().into_iter().find(|(name, _)| name.contains("googlenet")).unwrap();
    let plan = resolve(&text, &[]).unwrap();
    let memory = &plan.memory;
    let stages = plan.model.stages(memory.precision, memory.dense_layers(), &[]);
    let below: usize = stages.iter().map(|stage| stage.parameter_count()).sum();
    // BVLC's bvlc_googlenet without the auxiliary classifiers, for the 1000 classes of ImageNet.
    assert_eq!(below + plan.model.features() * 1000 + 1000, 6_998_552);
}

#[test]
fn a_resolved_configuration_resolves_to_itself() {
    let more = [
        "train.optimizer=lion\ntrain.schedule.plateau.metric=val/findings/auprc\ntrain.clip_norm=1",
        "train.optimizer=rmsprop\ntrain.schedule=one_cycle\ntrain.ema.decay=0.99\ndata.workers=3",
        "heads[0].loss=focal\nheads[1].hidden=[64, 32]\nmodel.densenet.depth=161\nrun.seed=9",
        "data.chexpert.uncertain={Edema='zeros', default={smooth=[0.1, 0.3]}}\ndevice.use=cuda:3",
        "heads[1].task=regression\nheads[1].labels=['Age']\nheads[1].loss=huber\n\
         train.best_metric=val/view/mae",
        "data.image.normalize=xrv\ndata.augment.clahe={clip_limit=3}\ndata.augment.mixup=0.2",
        "data.image.normalize={mean=0.5, std=[0.25]}\ndata.augment.random_erasing={}",
        "data.image.normalize={percentile=[0.5, 99.5]}\ndata.augment.random_resized_crop={}",
        "heads[0].loss.bce.pos_weight=[1, 1.5]\nmodel.densenet.norm=group\ntrain.batch_size=1",
    ];
    let layout = "[data.chexpert]\nroot = \"datasets/chexpert\"\nuncertain = \"ones\"";
    let sources =
        BASE.replace("{ fraction = 0.1 }", "{}").replace("views = [\"PA\", \"AP\"]", "").replace(
            layout,
            "[[data.sources]]\nlabels = { \"Pleural Effusion\" = \"Effusion\" }\n\
             nih = { root = \"a\" }\n[[data.sources]]\nheads = [\"findings\", \"view\"]\n\
             mimic = { root = \"b\", views = [\"PA\"], uncertain = { Edema = \"ones\" } }",
        );
    assert!(resolve(&sources, &[]).is_ok(), "{:?}", resolve(&sources, &[]));
    let bases = committed().into_iter().map(|(_, text)| text);
    let bases = bases.chain([sources, BASE.to_owned()]);
    for base in bases {
        for flags in std::iter::once("").chain(more) {
            let flags: Vec<String> = flags.lines().map(str::to_owned).collect();
            let Ok(plan) = resolve(&base, &flags) else {
                assert_ne!(base, BASE, "{flags:?}: {:?}", resolve(&base, &flags));
                continue;
            };
            let text = plan.to_toml().unwrap();
            let again = resolve(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again, plan);
            assert_eq!(again.to_toml().unwrap(), text);
        }
    }
}

/// Holds the committed file `name` to what the types say, or writes it where that is asked for.
fn assert_fresh(name: &str, fresh: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("REFRESH").is_some() {
        std::fs::write(&path, fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "{name} is stale; refresh it with: REFRESH=1 cargo test --test config committed"
    );
}

#[test]
fn the_least_that_the_schema_allows_is_the_least_that_is_taken() {
    let schema = schema();
    for (table, key, path) in [
        ("TrainConfig", "epochs", "train.epochs"),
        ("TrainConfig", "batch_size", "train.batch_size"),
        ("EarlyStoppingConfig", "patience", "train.early_stopping.patience"),
        ("DataConfig", "prefetch", "data.prefetch"),
        ("SaveConfig", "keep", "run.save.keep"),
        ("EvaluateConfig", "bins", "evaluate.bins"),
        ("EvaluateConfig", "resamples", "evaluate.resamples"),
        ("SequentialConfig", "segments", "memory.checkpointing.sequential.segments"),
        ("StepConfig", "every_epochs", "train.schedule.step.every_epochs"),
    ] {
        let property = &schema["definitions"][table]["properties"][key];
        // A key that may be left out says its type beside.
        let least = property["minimum"].as_u64().unwrap_or_else(|| panic!("{path}: {property}"));
        assert!(least > 0, "{path}");
        let set = |value: u64| resolve(BASE, &[format!("{path}={value}")]);
        set(least).unwrap_or_else(|error| panic!("{path} = {least}: {error}"));
        set(least - 1).expect_err(path);
    }
}

#[test]
fn the_committed_schema_is_fresh() {
    let fresh = serde_json::to_string_pretty(&schema()).unwrap();
    assert_fresh("trainer.schema.json", &format!("{fresh}\n"));
}

#[test]
fn the_committed_reference_is_fresh() {
    assert_fresh("docs/configuration.md", &reference());
}
