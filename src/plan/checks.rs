//! Every check that a type cannot make, in small functions. The families check their own
//! settings; what spans several of them stands here.

use std::collections::HashMap;

use super::{DevicePlan, MemorySettings, Plan};
use crate::config::{Config, TrainConfig};
use crate::data::{
    DataConfig, ImageConfig, ValidationConfig, check_augment, check_layouts, check_normalize,
};
use crate::fault::{Fault, fault, require};
use crate::loss;
use crate::memory::{MemoryConfig, MicroBatch, NoAmount, OffloadConfig, Precision};
use crate::model::{
    HeadConfig, MOST_LABELS, ModelConfig, Network, Task, heads_stage, stages_called,
};
use crate::optim::{OptimizerConfig, check_clip_norm};
use crate::screen::counted;

/// The first fault of a configuration.
pub(super) fn check(config: &Config) -> Result<(), Fault> {
    let Config { data, heads, train, memory, .. } = config;
    run_name(config)?;
    saving(config)?;
    pictures(config)?;
    at_least_one("train.epochs", train.epochs)?;
    batch_size(train.batch_size)?;
    image(data)?;
    check_layouts(data)?;
    validation(data)?;
    loading(config)?;
    augment(config)?;
    init(config)?;
    self::heads(heads)?;
    each_head(heads, labels)?;
    each_head(heads, head_sizes)?;
    optimizer(train)?;
    early_stopping(train)?;
    precision(config)?;
    if let Some(MicroBatch::Images(images)) = memory.micro_batch {
        at_least_one("memory.micro_batch", images)?;
    }
    budget(memory)?;
    offload(memory)?;
    config.evaluate.check().map_err(|fault| fault.below("evaluate"))
}

/// The first fault that `check` finds in one of the heads; it counts keys from the head's table.
fn each_head(
    heads: &[HeadConfig],
    check: impl Fn(&HeadConfig) -> Result<(), Fault>,
) -> Result<(), Fault> {
    heads.iter().enumerate().try_for_each(|(place, head)| {
        check(head).map_err(|fault| fault.below(&format!("heads[{place}]")))
    })
}

/// A fault at `key` unless `value` is in `range`; NaN is in none.
fn within(
    key: &str,
    value: f64,
    range: impl std::ops::RangeBounds<f64>,
    help: &str,
) -> Result<(), Fault> {
    let message = format!("`{}` is out of range: {value}", last(key));
    require(range.contains(&value), key, message, format!("write {help}"))
}

/// Heads of a model; each has a loss, metrics and weights of its own.
const MOST_HEADS: usize = 1000;
/// Images of a batch. Sizes of more do not mean anything for any machine.
const MOST_IMAGES: usize = 1 << 20;

fn at_least_one(key: &str, value: usize) -> Result<(), Fault> {
    let message = format!("`{}` is 0", last(key));
    require(value >= 1, key, message, "write 1 or more")
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn run_name(config: &Config) -> Result<(), Fault> {
    let name = &config.run.name;
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let help = "it is the name of a folder: use letters, digits, `.`, `_` and `-`, and do not \
                begin with `.`";
    require(!name.is_empty(), "run.name", "the run's name is empty", help)?;
    require(name.len() <= 128, "run.name", "the run's name is longer than 128 letters", help)?;
    let message = format!("{name:?} cannot be the run's name");
    require(!name.starts_with('.') && name.chars().all(letter), "run.name", message, help)?;
    let output = !config.run.output.as_os_str().is_empty();
    require(output, "run.output", "`output` is empty", "write a folder, such as \"checkpoints\"")
}

fn saving(config: &Config) -> Result<(), Fault> {
    let save = &config.run.save;
    at_least_one("run.save.keep", save.keep)?;
    within("run.save.every_minutes", save.every_minutes, 0.0.., "0 (never) or more")
}

/// Samples of a kind that the page names.
const MOST_PICTURES: usize = 8;

fn pictures(config: &Config) -> Result<(), Fault> {
    let message = format!("{} pictures of each kind are too many", config.run.pictures);
    let help = "write 0 (none) to 8";
    require(config.run.pictures <= MOST_PICTURES, "run.pictures", message, help)
}

fn batch_size(batch: usize) -> Result<(), Fault> {
    at_least_one("train.batch_size", batch)?;
    let message = format!("a batch of {batch} images is more than {MOST_IMAGES}");
    let help = "write a number that fits in memory, such as 32: `trainer plan` says what fits";
    require(batch <= MOST_IMAGES, "train.batch_size", message, help)
}

/// More channels than any camera has.
const MOST_CHANNELS: usize = 1024;

/// The least side of a radiograph that shows anything; arrays may hold what they like.
const LEAST_SIDE: usize = 32;

/// Sides beyond this overflow nothing, but no radiograph has them and no memory holds them.
const LARGEST_SIDE: usize = 16384;

fn image(data: &DataConfig) -> Result<(), Fault> {
    let image = &data.image;
    let arrays = data.layout.arrays.is_some()
        || data.sources.iter().any(|source| source.layout.arrays.is_some());
    let least = if arrays { 1 } else { LEAST_SIDE };
    for (place, side) in image.size.iter().enumerate() {
        let message = format!("an image side of {side} pixels is out of range");
        let help = format!("write `size = [height, width]`, each from {least} to {LARGEST_SIDE}");
        let key = format!("data.image.size[{place}]");
        require((least..=LARGEST_SIDE).contains(side), key, message, help)?;
    }
    let (holds, message, help) = match arrays {
        true => (
            (1..=MOST_CHANNELS).contains(&image.channels),
            format!("images of {} channels are out of range", image.channels),
            format!("write the array's channels, from 1 to {MOST_CHANNELS}"),
        ),
        false => (
            matches!(image.channels, 1 | 3),
            format!("images have 1 or 3 channels, not {}", image.channels),
            "write 1 (grey), or 3 for weights trained on colour images".to_owned(),
        ),
    };
    require(holds, "data.image.channels", message, help)
}

fn validation(data: &DataConfig) -> Result<(), Fault> {
    folds(&data.validation)?;
    let Some(fraction) = data.validation.fraction else { return Ok(()) };
    let message = format!("a share of {fraction} leaves no patients on one side of the split");
    let help = "write a number between 0 and 1, such as 0.1";
    let holds = fraction > 0.0 && fraction < 1.0;
    require(holds, "data.validation.fraction", message, help)
}

/// More folds than anyone has the time for.
const MOST_FOLDS: usize = 100;

fn folds(validation: &ValidationConfig) -> Result<(), Fault> {
    let key = |name: &str| format!("data.validation.{name}");
    let Some(folds) = validation.folds else {
        let help = "write `folds = 5` beside it, or remove it";
        let message = "`fold` names a fold, and the patients are not cut into folds";
        return require(validation.fold.is_none(), key("fold"), message, help);
    };
    let others = [("fraction", validation.fraction.is_some()), ("list", validation.list.is_some())];
    if let Some((other, _)) = others.into_iter().find(|(_, given)| *given) {
        let message = format!("each fold is validated on in turn, so there is no `{other}`");
        let help = format!("remove `{other}` or `folds`");
        return Err(fault(key(other), message, help).also(key("folds")));
    }
    let message = format!("the patients cannot be cut into {}", counted(folds, "fold", "folds"));
    let help = format!("write a number from 2 to {MOST_FOLDS}, such as 5");
    require((2..=MOST_FOLDS).contains(&folds), key("folds"), message, help)?;
    let fold = validation.fold.unwrap_or(1);
    let message = format!("there is no fold {fold}: the patients are cut into {folds}");
    let help = format!("write a number from 1 to {folds}");
    let fault = require((1..=folds).contains(&fold), key("fold"), message, help);
    fault.map_err(|fault| fault.also(key("folds")))
}

fn loading(config: &Config) -> Result<(), Fault> {
    at_least_one("data.prefetch", config.data.prefetch)?;
    config.data.sampler.0.check(&config.heads).map_err(|fault| fault.below("data.sampler"))
}

fn augment(config: &Config) -> Result<(), Fault> {
    let augment = &config.data.augment;
    check_normalize(&config.data.image).and(check_augment(augment))?;
    let mixed = [("mixup", augment.mixup), ("cutmix", augment.cutmix)];
    let Some((key, _)) = mixed.into_iter().find(|(_, alpha)| *alpha > 0.0) else { return Ok(()) };
    let message = format!("`{key}` mixes the images of a batch, and a batch has one image");
    let help = "write `batch_size = 2` or more under `[train]`, or remove it";
    let holds = config.train.batch_size >= 2;
    let fault = require(holds, format!("data.augment.{key}"), message, help);
    fault.map_err(|fault| fault.also("train.batch_size"))
}

fn init(config: &Config) -> Result<(), Fault> {
    let named = config.model.init.as_ref().is_none_or(|path| !path.as_os_str().is_empty());
    require(named, "model.init", "`init` is empty", "write the file of weights, or remove it")
}

fn heads(heads: &[HeadConfig]) -> Result<(), Fault> {
    let help = "add a table `[[heads]]` with `name`, `task` and `labels`";
    require(!heads.is_empty(), "heads", "there is no head, so nothing is predicted", help)?;
    let message =
        format!("there are {} heads, and at most {MOST_HEADS} can be trained", heads.len());
    let help = "give labels of one task to one head";
    require(heads.len() <= MOST_HEADS, format!("heads[{MOST_HEADS}].name"), message, help)?;
    for (place, head) in heads.iter().enumerate() {
        let key = format!("heads[{place}].name");
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let holds = !head.name.is_empty() && head.name.chars().all(letter);
        let message = format!("{:?} cannot be a head's name", head.name);
        let help = "it names metrics and weights: use letters, digits, `_` and `-`";
        require(holds, &key, message, help)?;
        if let Some(first) = heads[..place].iter().position(|other| other.name == head.name) {
            let message = format!("two heads are called {:?}", head.name);
            return Err(fault(key, message, "give each head its own name")
                .also(format!("heads[{first}].name")));
        }
        let message = format!("the weight of a head's loss cannot be {}", head.weight);
        let key = format!("heads[{place}].weight");
        require(head.weight >= 0.0 && head.weight.is_finite(), key, message, "write 0 or more")?;
    }
    let trained = heads.iter().any(|head| head.weight > 0.0);
    let message = "every head has the weight 0, so nothing is learnt";
    require(trained, "heads[0].weight", message, "give one of them a weight above 0")
}

fn labels(head: &HeadConfig) -> Result<(), Fault> {
    let help = "write the labels as the data set names them: `labels = [\"Edema\"]`";
    require(!head.labels.is_empty(), "labels", "`labels` is empty", help)?;
    let message = format!("a head has at most {MOST_LABELS} labels");
    require(head.labels.len() <= MOST_LABELS, "labels", message, "write fewer")?;
    let mut known = HashMap::with_capacity(head.labels.len());
    for (index, label) in head.labels.iter().enumerate() {
        let key = format!("labels[{index}]");
        require(!label.trim().is_empty(), &key, "this label is empty", help)?;
        if let Some(first) = known.insert(label, index) {
            let message = format!("the label {label:?} is given twice");
            let fault = fault(key, message, "remove one of the two");
            return Err(fault.also(format!("labels[{first}]")));
        }
    }
    let count = head.labels.len();
    let (holds, message, help) = match head.task {
        Task::Binary => (
            count == 1,
            format!("a `binary` head has one label, not {count}"),
            "keep one label, or write `task = \"multilabel\"`",
        ),
        Task::Multiclass => (
            count >= 2,
            "a `multiclass` head has two classes or more, not 1".to_owned(),
            "name all classes under `labels`, or write `task = \"binary\"`",
        ),
        Task::Multilabel | Task::Regression => (true, String::new(), ""),
    };
    require(holds, "labels", message, help).map_err(|fault| fault.also("task"))
}

/// Wider than any layer after pooled features is of use.
const WIDEST: usize = 65536;

fn head_sizes(head: &HeadConfig) -> Result<(), Fault> {
    for (index, width) in head.hidden.iter().enumerate() {
        let key = format!("hidden[{index}]");
        let message = format!("a hidden layer cannot have {width} units");
        let help = format!("write a width from 1 to {WIDEST}");
        require((1..=WIDEST).contains(width), key, message, help)?;
    }
    within("dropout", head.dropout, 0.0..1.0, "a probability from 0 up to but not including 1")
}

fn optimizer(train: &TrainConfig) -> Result<(), Fault> {
    let optimizer = &train.optimizer.0;
    optimizer.check().map_err(|fault| fault.below("train.optimizer"))?;
    let schedule = train.schedule.0.check(optimizer.lr());
    schedule.map_err(|fault| fault.below("train.schedule"))?;
    if let Some(norm) = train.clip_norm {
        check_clip_norm(norm).map_err(|fault| fault.below("train"))?;
    }
    if let Some(ema) = &train.ema {
        ema.check().map_err(|fault| fault.below("train.ema"))?;
    }
    Ok(())
}

fn early_stopping(train: &TrainConfig) -> Result<(), Fault> {
    let Some(stop) = &train.early_stopping else { return Ok(()) };
    at_least_one("train.early_stopping.patience", stop.patience)?;
    within("train.early_stopping.min_delta", stop.min_delta, 0.0.., "0 or more")
}

fn precision(config: &Config) -> Result<(), Fault> {
    let devices = DevicePlan::parse(&config.device.device);
    let is_cpu = |device: &DevicePlan| matches!(device, DevicePlan::Cpu(_));
    let cpu = devices.is_ok_and(|devices| devices.iter().any(is_cpu));
    precision_on(config.memory.precision, &config.train.optimizer.0, cpu)
}

/// What each precision needs, where it is known whether the device is the CPU; an automatic choice is
/// seen when the device is opened.
pub(super) fn precision_on(
    precision: Precision,
    optimizer: &OptimizerConfig,
    cpu: bool,
) -> Result<(), Fault> {
    if precision == Precision::Half {
        let fault = optimizer.check_half();
        return fault.map_err(|fault| fault.below("train.optimizer").also("memory.precision"));
    }
    precision.check_device(|| cpu)
}

fn budget(memory: &MemoryConfig) -> Result<(), Fault> {
    let help = "write a size, such as \"10GiB\", \"800MiB\" or \"90%\" (of the device's memory)";
    let fault = |no_amount: NoAmount| fault("memory.budget", no_amount.to_string(), help);
    memory.budget().map(drop).map_err(fault)
}

/// What BatchNorm normalises over: as PyTorch has it, more than one number of each channel.
pub(super) fn normalised(plan: &Plan) -> Result<(), Fault> {
    let MemorySettings { micro_batch, .. } =
        MemorySettings::configured(&plan.memory, plan.device_batch());
    let (batch, least) = (plan.train.batch_size, plan.least_part(micro_batch));
    if plan.normalises(micro_batch) {
        return Ok(());
    }
    let without = match plan.model.config() {
        ModelConfig::Sequential(_) => "leave out `batch_norm`".to_owned(),
        model => format!("write `norm = \"group\"` under `[model.{}]`", model.name()),
    };
    let nothing = "normalising over one image leaves nothing of maps of one pixel";
    let (key, message, write) = match micro_batch {
        _ if batch == least => ("train.batch_size", nothing.to_owned(), "write 2 or more"),
        1 => ("memory.micro_batch", nothing.to_owned(), "write 2 or more"),
        many => (
            "memory.micro_batch",
            format!("{batch} images in parts of {many} leave one, and {nothing}"),
            "write a number that leaves more",
        ),
    };
    let fault = fault(key, message, format!("{write}, take larger images, or {without}"));
    Err(if key == "train.batch_size" { fault } else { fault.also("train.batch_size") })
}

/// Whether the folder is there is seen when a file is made in it.
fn offload(memory: &MemoryConfig) -> Result<(), Fault> {
    let OffloadConfig::Disk(disk) = memory.offload() else { return Ok(()) };
    let given = !disk.path.as_os_str().is_empty();
    let help = "write a folder on a fast disk, such as \"/scratch\"";
    require(given, "memory.offload.disk.path", "`path` is empty", help)
}

/// What the learning rate of each stage is multiplied by.
pub(super) fn lr_factors(plan: &Plan) -> Result<Vec<f64>, Fault> {
    let mut stages = plan.model.layers().to_vec();
    stages.push(heads_stage(&plan.heads, plan.model.features()));
    let mut factors = vec![None; stages.len()];
    for (name, &factor) in &plan.train.lr_factors {
        let key = format!("train.lr_factors.{}", quoted(name));
        let found = stages_called(name, &stages).map_err(|fault| fault.below(&key).on_key())?;
        let message = format!("the factor of `{name}` is out of range: {factor}");
        let help =
            "write a number above 0, such as 0.1; `[model] freeze` keeps weights as they are";
        require(factor > 0.0 && factor.is_finite(), &key, message, help)?;
        for stage in found {
            if stage < plan.frozen() {
                let message =
                    format!("`{}` is frozen and has no learning rate", stages[stage].name);
                let fault = fault(key, message, "remove it here, or from `freeze`");
                return Err(fault.also("model.freeze"));
            }
            if factors[stage].replace(factor).is_some() {
                let message = format!("`{}` has two factors", stages[stage].name);
                return Err(fault(key, message, "name each stage once"));
            }
        }
    }
    Ok(factors.into_iter().map(|factor| factor.unwrap_or(1.0)).collect())
}

/// A key of a table as a fault names it.
fn quoted(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if key.chars().all(plain) { key.to_owned() } else { format!("{key:?}") }
}

/// The checkpointing policy against the stages it is for.
pub(super) fn checkpointing(plan: &Plan) -> Result<(), Fault> {
    let stages = plan.stages();
    let names: Vec<&str> = stages.iter().map(|stage| stage.name()).collect();
    // With all stages trained, as they may be later, and with those behind the frozen ones.
    let policy = plan.memory.checkpointing();
    let later = if plan.frozen() > 0 { Ok(None) } else { policy.checkpoint_plan(&names) };
    let tree = later.and_then(|_| policy.checkpoint_plan(&names[plan.freeze_stages..]));
    tree.map(drop).map_err(|fault| fault.below("memory.checkpointing"))
}

/// The network's sizes, if an image of this size passes through it.
pub(super) fn network(model: &ModelConfig, image: &ImageConfig) -> Result<Network, Fault> {
    model.resolve([image.channels, image.size[0], image.size[1]])
}

/// Heads that put out the network's features as they are.
pub(super) fn direct_heads(network: &Network, heads: &[HeadConfig]) -> Result<(), Fault> {
    each_head(heads, |head| {
        if !head.direct {
            return Ok(());
        }
        let help = "write `direct = false`, or remove them";
        for (name, given) in [("hidden", !head.hidden.is_empty()), ("dropout", head.dropout > 0.0)]
        {
            let message = format!("a direct head has no layers, and `{name}` is for its layers");
            require(!given, name, message, help).map_err(|fault| fault.also("direct"))?;
        }
        let (features, outputs) = (network.features(), head.outputs());
        let message = format!(
            "the network has {features} features, and this head must put out {outputs} numbers"
        );
        let help = "give as many labels as there are features, or remove `direct`: a linear layer \
                    then comes between";
        let fault = require(features == outputs, "direct", message, help);
        fault.map_err(|fault| fault.also("labels"))
    })
}

/// Each head's loss, and what is done to its targets before, against its task and labels.
pub(super) fn losses(heads: &[HeadConfig]) -> Result<(), Fault> {
    each_head(heads, |head| {
        let holds = !head.standardize || head.task == Task::Regression;
        let message = "only the numbers of a `regression` head can be standardised";
        let help = "remove `standardize`, or write `task = \"regression\"`";
        require(holds, "standardize", message, help).map_err(|fault| fault.also("task"))?;
        let loss = loss::check(&head.loss(), head.task, &head.labels);
        loss.map_err(|fault| fault.below("loss").also("task"))
    })
}
