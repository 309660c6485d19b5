//! The page of all keys, docs/configuration.md: whether what it shows can be written.

use trainer::choice::names_of;
use trainer::config::{read, reference};
use trainer::optim::{OptimizerConfig, ScheduleConfig};

use crate::{BASE, FILE, resolve};

/// A key of the page.
struct Shown {
    /// As `--set` takes it, with an entry of arrays.
    key: String,
    /// The value of its example.
    example: Option<String>,
    required: bool,
}

/// The tables of the page, each with its keys.
fn tables() -> Vec<Vec<Shown>> {
    let page = reference();
    let sections = page.split("\n#").skip(1).filter_map(|section| section.split_once('\n'));
    let tables = sections.map(|(heading, text)| {
        let text = text.replace("\n  ", " ");
        let keys = text.lines().filter_map(|line| line.strip_prefix("- **`")?.split_once("`**: "));
        let table = table(heading.trim_start_matches('#').trim());
        let shown = |(name, text): (&str, &str)| Shown {
            key: if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") },
            example: text.split_once("Example: `").map(|(_, rest)| {
                let written = rest.split('`').next().unwrap_or_default();
                written.strip_prefix(&format!("{name} = ")).unwrap().to_owned()
            }),
            required: text.split(". ").next().is_some_and(|head| head.ends_with(", required")),
        };
        keys.map(shown).collect()
    });
    tables.collect()
}

/// The table that a heading is over, as `--set` takes it.
fn table(heading: &str) -> String {
    let table = match heading.split_once("` in `") {
        Some((variant, array)) => {
            format!("{}[1].{}", array.trim_matches('`'), variant.trim_matches('`'))
        }
        None => heading.trim_matches(['`', '[', ']']).to_owned(),
    };
    match table.as_str() {
        "The top of the file" => String::new(),
        "data.sources" => "data.sources[0]".to_owned(),
        table => table.replacen("heads", "heads[0]", usize::from(table.starts_with("heads"))),
    }
}

/// What must be set before a key can be.
fn needed(key: &str) -> Vec<String> {
    let by_hand = "model.densenet={growth=32,blocks=[6,12,24,16],stem=64}";
    let sets: &[&str] = match key {
        "data.image.normalize.mean" => &["data.image.normalize.std=0.25", "data.image.channels=3"],
        "data.image.normalize.std" => &["data.image.normalize.mean=0.5"],
        "data.validation.list" | "data.validation.folds" => &["data.validation={}"],
        "data.validation.fold" => &["data.validation={folds=3}"],
        "model.densenet.growth" | "model.densenet.blocks" | "model.densenet.stem" => &[by_hand],
        "model.resnet.depth" => &[],
        "train.optimizer.sgd.dampening" | "train.optimizer.sgd.nesterov" => {
            &["train.optimizer.sgd.momentum=0.9"]
        }
        "heads[0].direct" => &["model.sequential.layers=['global_pool',{linear={features=2}}]"],
        _ if key.starts_with("model.resnet.") => &["model.resnet={block='basic',blocks=[2,2]}"],
        _ if key.starts_with("model.sequential.layers[1].linear")
            || key.starts_with("model.sequential.layers[1].repeat") =>
        {
            &["model.sequential.layers=['flatten','relu']"]
        }
        _ if key.starts_with("model.sequential.layers[1]") => {
            &["model.sequential.layers=['relu','relu','global_pool']"]
        }
        _ if key.starts_with("heads[0].loss.cross_entropy") => {
            &["heads[0].task=multiclass", "heads[0].labels=['PA','AP']"]
        }
        _ if key.starts_with("heads[0].loss.huber") => &[
            "heads[0].task=regression",
            "heads[0].labels=['Age']",
            "train.early_stopping.metric=val/loss",
        ],
        "heads[0].standardize" => &[
            "heads[0].task=regression",
            "heads[0].labels=['Age']",
            "heads[0].loss=mse",
            "train.early_stopping.metric=val/loss",
        ],
        "parallel.pipeline.copies" => &["device.use=['cpu:0','cpu:1','cpu:2','cpu:3']"],
        _ if key.starts_with("parallel.pipeline") => &["device.use=['cpu:0','cpu:1']"],
        _ if key.starts_with("data.sources") => &["data.sources=[{}]"],
        _ => &[],
    };
    sets.iter().map(|set| (*set).to_owned()).collect()
}

/// Every example of the page as changes to a configuration: the keys that its table must have, and
/// itself.
fn examples() -> Vec<Vec<String>> {
    let set = |shown: &Shown| Some(format!("{}={}", shown.key, shown.example.as_ref()?));
    let examples = |keys: &Vec<Shown>| {
        let required = || keys.iter().filter(|key| key.required).filter_map(set);
        let all = |key: &Shown| {
            let needed = needed(&key.key);
            let name = |set: &str| set.split_once('=').map(|(name, _)| name.to_owned());
            let is_needed = |set: &String| needed.iter().any(|other| name(other) == name(set));
            let required = required().filter(|set| !is_needed(set)).collect::<Vec<_>>();
            Some([needed.clone(), required, vec![set(key)?]].concat())
        };
        keys.iter().filter_map(all).collect::<Vec<_>>()
    };
    tables().iter().flat_map(examples).collect()
}

#[test]
fn every_example_on_the_page_is_read_within_a_whole_configuration() {
    let examples = examples();
    assert!(examples.len() > 150, "{}", examples.len());
    for set in examples {
        let read = read(FILE.to_owned(), BASE.to_owned(), &set);
        assert!(read.is_ok(), "{set:?}: {}", read.unwrap_err());
    }
}

/// The base's data are CheXpert's, whose labels other data sets do not have.
fn of_other_data(key: &str) -> bool {
    let layouts = ["arrays", "csv", "mimic", "mura", "nih", "padchest", "phantom", "vindr"];
    let other = |table: &str| key.starts_with(&format!("data.{table}"));
    layouts.into_iter().any(other) || other("sources") || key.starts_with("heads[0].labels.")
}

#[test]
fn the_configuration_in_the_readme_names_every_optimizer_and_schedule() {
    let readme = include_str!("../../README.md");
    for (table, names) in [
        ("[train.optimizer.", names_of::<OptimizerConfig>()),
        ("[train.schedule.", names_of::<ScheduleConfig>()),
    ] {
        let line = readme.lines().find(|line| line.starts_with(table)).unwrap();
        let (_, comment) = line.split_once('#').unwrap();
        let named: Vec<&str> = comment.split([',', ';']).map(str::trim).collect();
        for name in names {
            assert!(named.contains(&&*name), "{line}: `{name}` is missing");
        }
    }
}

#[test]
fn every_example_on_the_page_is_in_range() {
    let examples = examples();
    let of_base = |set: &Vec<String>| !of_other_data(set.last().unwrap());
    let tried: Vec<_> = examples.iter().filter(|set| of_base(set)).collect();
    assert!(tried.len() > 120, "{}", tried.len());
    for set in tried {
        resolve(BASE, set).unwrap_or_else(|error| panic!("{set:?}: {error}"));
    }
}
