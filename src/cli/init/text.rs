//! The configuration as text, with comments.

use std::path::Path;

use super::Init;
use super::heads::{Head, Heads};
use crate::data::{Colour, Found, FoundTable, read_image};
use crate::model::Task;
use crate::screen::counted;

/// The size of images, unless arrays have another: that of published work on radiographs.
const USUAL: usize = 320;

/// What the text is made of.
pub(super) struct Settings<'a> {
    pub found: &'a Found,
    pub heads: &'a Heads,
    pub size: usize,
    pub budget: &'a str,
    pub init: &'a Init,
}

/// The folder or table of the data.
pub(super) fn place(found: &Found) -> &Path {
    match found {
        Found::Published(_, root) => root,
        Found::Table(table) => &table.table,
        Found::Classes(folders) => &folders.root,
        Found::Arrays(arrays) => &arrays.root,
    }
}

/// What the data are, in words.
pub(super) fn kind(found: &Found) -> String {
    let place = place(found).display();
    match found {
        Found::Published(name, _) => format!("the layout `{name}` in {place}"),
        Found::Table(_) => format!("the table {place}"),
        Found::Classes(folders) => {
            let images = counted(folders.images.len(), "image", "images");
            format!("{images} in folders by class in {place}")
        }
        Found::Arrays(_) => format!("arrays in {place}"),
    }
}

/// What is trained, in words.
pub(super) fn told(found: &Found, heads: &Heads) -> String {
    let head = |head: &Head| {
        let labels = match head.task {
            Task::Multiclass => counted(head.labels.len(), "class", "classes"),
            _ => counted(head.labels.len(), "label", "labels"),
        };
        format!("{} ({labels})", head.name)
    };
    let heads: Vec<String> = heads.heads.iter().map(head).collect();
    format!("{} from {}", heads.join(", "), kind(found))
}

/// The size to propose.
pub(super) fn usual_size(found: &Found) -> usize {
    match found {
        // Smaller ones are enlarged: nothing would be left of them after the last block.
        Found::Arrays(arrays) => arrays.shape[1].max(arrays.shape[2]).max(32) as usize,
        _ => USUAL,
    }
}

/// The whole configuration; images that lie in folders by class are named by `table`.
pub(super) fn toml(settings: &Settings<'_>, table: &Path) -> String {
    let Settings { found, heads, size, budget, init } = settings;
    let name = run_name(&init.out);
    let channels = channels(found);
    let watched = watched(&heads.heads);
    let heads_text: String = heads.heads.iter().map(head).collect();
    format!(
        r#"# Written by `trainer init`. docs/configuration.md explains every key; `trainer check` shows all defaults.

[run]
{name:<32}# its folder is checkpoints/<name>/

[data]
# Every image is brought to this height and width; letterbox keeps its shape and adds bars.
image = {{ size = [{size}, {size}], channels = {channels}, fit = "letterbox" }}
{validation}

{data}
[data.augment]                  # random changes of training images
rotate_degrees = 10.0

[model.densenet]
depth = 121

{heads_text}[train]
epochs = 20
batch_size = {batch}

[train.optimizer.adamw]
lr = 3e-4
weight_decay = 1e-5

[train.schedule.cosine]
warmup_epochs = 1

[train.early_stopping]          # ends when this has not improved for so many epochs
metric = {watched}
patience = 5

[memory]
{budget:<32}# of the device, for the run
micro_batch = "auto"            # as many images at once as fit; the gradient is that of the batch
"#,
        name = format!("name = {}", quoted(&name)),
        validation = validation(found),
        data = data(found, heads, table),
        watched = quoted(&watched),
        batch = init.batch,
        budget = format!("budget = {}", quoted(budget)),
    )
}

/// CheXpert comes with a validation list; what is only laid out as it is may lack that.
fn validation(found: &Found) -> &'static str {
    match found {
        Found::Published("chexpert", root) if !root.join("valid.csv").exists() => {
            "# There is no valid.csv, so a tenth of the patients is set aside for validation.\n\
             validation = { fraction = 0.1 }"
        }
        _ => {
            "# Where the data have no validation list of their own, a tenth of the patients is set aside:\n\
             # validation = { fraction = 0.1 }"
        }
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// The name of the file, as far as it may name a folder.
fn run_name(out: &Path) -> String {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let allowed = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-');
    let name: String = stem.chars().map(|c| if allowed(c) { c } else { '_' }).take(100).collect();
    if name.is_empty() { "experiment".to_owned() } else { name }
}

/// 3 where the first image has colours, and an array's own; radiographs have 1.
fn channels(found: &Found) -> u64 {
    let first = match found {
        Found::Published(..) => return 1,
        Found::Arrays(arrays) => return arrays.shape[0],
        Found::Table(table) => table.first.clone(),
        Found::Classes(folders) => match folders.images.first() {
            Some((image, ..)) => folders.root.join(image),
            None => return 1,
        },
    };
    match read_image(&first, None, None, Colour::Rgb) {
        Ok(image) if image.planes == 3 => 3,
        _ => 1,
    }
}

fn data(found: &Found, heads: &Heads, class_table: &Path) -> String {
    match found {
        Found::Published(name, root) => {
            let uncertain = match *name {
                "chexpert" | "mimic" => {
                    "uncertain = \"ignore\"            # what -1 becomes in training\n"
                }
                _ => "",
            };
            format!("[data.{name}]\nroot = {}\n{uncertain}", path(root))
        }
        Found::Table(table) => csv(table, heads),
        Found::Classes(folders) => {
            let (table, root) = (path(class_table), path(&folders.root));
            let lists = folders.images.iter().any(|(_, _, list)| list.is_some());
            let split = if lists { "split = \"split\"\n" } else { "" };
            format!(
                "[data.csv]                      # the table was made of the folders\ntable = {table}\n\
                 root = {root}\nimage = \"image\"\n{split}"
            )
        }
        Found::Arrays(arrays) => {
            let mut text = format!("[data.arrays]\nroot = {}\n", path(&arrays.root));
            text += &format!("images = {}\n", quoted(&arrays.images));
            let pairs = [("patients", &arrays.patients), ("split", &arrays.split)];
            for (key, file) in pairs {
                text.extend(file.iter().map(|file| format!("{key} = {}\n", quoted(file))));
            }
            let target = |(head, file): (&String, &String)| format!("{head} = {}", quoted(file));
            let targets: Vec<String> = heads.targets.iter().map(target).collect();
            text + &format!("targets = {{ {} }}\n", targets.join(", "))
        }
    }
}

fn csv(table: &FoundTable, heads: &Heads) -> String {
    let mut text = format!("[data.csv]\ntable = {}\n", path(&table.table));
    text.extend(table.root.iter().map(|root| format!("root = {}\n", path(root))));
    text += &format!("image = {}\n", quoted(&table.image));
    match &table.patient {
        Some(column) => text += &format!("patient = {}\n", quoted(column)),
        None => {
            text += "# patient = \"…\"                 # the column that tells patients apart, if there is one\n"
        }
    }
    text.extend(table.split.iter().map(|column| format!("split = {}\n", quoted(column))));
    if table.decimal_comma {
        text += "decimal = \",\"\n";
    }
    if !heads.columns.is_empty() {
        let column = |(head, column): (&String, &String)| format!("{head} = {}", quoted(column));
        let columns: Vec<String> = heads.columns.iter().map(column).collect();
        text += &format!("columns = {{ {} }}\n", columns.join(", "));
    }
    text
}

fn head(head: &Head) -> String {
    let labels: Vec<String> = head.labels.iter().map(|label| quoted(label)).collect();
    let (task, more) = match head.task {
        Task::Multilabel => ("multilabel", "loss = { bce = { pos_weight = \"balanced\" } }\n"),
        Task::Binary => ("binary", "loss = { bce = { pos_weight = \"balanced\" } }\n"),
        Task::Multiclass => ("multiclass", ""),
        Task::Regression => {
            ("regression", "standardize = true              # metrics stay in the labels' units\n")
        }
    };
    let list = match labels.iter().map(String::len).sum::<usize>() {
        ..70 => format!("[{}]", labels.join(", ")),
        _ => format!("[\n    {},\n]", labels.join(",\n    ")),
    };
    let name = quoted(&head.name);
    format!("[[heads]]\nname = {name}\ntask = \"{task}\"\nlabels = {list}\n{more}\n")
}

/// The metric that decides which epoch is best.
fn watched(heads: &[Head]) -> String {
    match heads.first() {
        Some(head) if matches!(head.task, Task::Multilabel | Task::Binary) => {
            format!("val/{}/auroc", head.name)
        }
        _ => "val/loss".to_owned(),
    }
}
