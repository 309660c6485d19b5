//! `trainer init`.

mod ask;
mod heads;
mod text;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{Failure, output};
use crate::config;
use crate::data::{ClassFolders, Found, Offer, recognise};
use crate::model::Task as HeadTask;
use heads::Heads;

/// Looks at data and writes a configuration to begin with
///
/// It recognises a published data set, a table with a row for each image, a folder for each class, and
/// NumPy arrays. On a terminal it asks where the data are, what is to be predicted, how large images are,
/// and how much memory a run may take. The default answer is what it found; a flag answers a question in
/// advance. Where there is no terminal, give the flags, or --yes, which takes all defaults. The
/// configuration has comments and passes `trainer check`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer init
  trainer init scans/labels.csv --out scans.toml
  trainer init datasets/ChestX-ray14 --labels Effusion,Mass --size 512 --yes
  trainer init scans/labels.csv --labels grade --task multiclass --size 320 --budget 11GiB")]
pub struct Init {
    /// The folder or table with the data
    #[arg(value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration to write
    #[arg(long, value_name = "FILE", default_value = "trainer.toml")]
    out: PathBuf,
    /// What is predicted: columns of the table, findings of the data set, or names of arrays
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    labels: Option<Vec<String>>,
    /// The task of the labels, if their values do not show it
    #[arg(long, value_enum)]
    task: Option<Task>,
    /// The height and width that images are resized to, in pixels
    #[arg(long, value_name = "PIXELS")]
    size: Option<usize>,
    /// How much memory a run may take: a size, such as 11GiB, or a share of the device's memory, such as 90%
    #[arg(long, value_name = "SIZE")]
    budget: Option<String>,
    /// Images in a step of the optimizer
    #[arg(long, value_name = "N", default_value_t = 16)]
    batch: usize,
    /// Takes the default answer to every question that no flag answers
    #[arg(long, short)]
    yes: bool,
    /// Replaces existing files
    #[arg(long)]
    overwrite: bool,
}

/// The share of the device's memory that a run may take, unless another is asked for.
const BUDGET: &str = "90%";

/// The kinds of prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Task {
    /// Each label is present or absent
    Multilabel,
    /// Each image belongs to one of several classes
    Multiclass,
    /// Each label is a number
    Regression,
}

/// The answers to the questions.
struct Answers {
    found: Found,
    heads: Heads,
    size: usize,
    budget: String,
}

/// Asks and writes.
pub fn execute(init: &Init) -> Result<(), Failure> {
    let Answers { found, heads, size, budget } = answers(init)?;
    let table = init.out.with_extension("csv");
    let plain = |path: &Path| path.to_str().is_some();
    if !plain(&init.out) || !plain(text::place(&found)) {
        return Err(Failure::configuration("a configuration cannot name a path that is not UTF-8"));
    }
    let written = text::Settings { found: &found, heads: &heads, size, budget: &budget, init };
    let toml = text::toml(&written, &table);
    // What is wrong with an answer is told where it stands, and nothing is written.
    let loaded = config::read(init.out.display().to_string(), toml.clone(), &[])?;
    crate::plan::plan(loaded.config).map_err(|fault| loaded.source.error(fault))?;
    let mut files = vec![(init.out.as_path(), toml)];
    if let Found::Classes(folders) = &found {
        files.insert(0, (&table, table_of(folders)?));
    }
    if let Some((there, _)) = files.iter().find(|(path, _)| path.exists() && !init.overwrite) {
        let told = format!("{} is there already, and is not replaced", there.display());
        let help = "--out names another file, --overwrite replaces this one".to_owned();
        return Err(Failure::configuration(told).with_help(Some(help)));
    }
    for (path, text) in &files {
        write(path, text, init.overwrite)
            .map_err(|error| Failure::other(format!("cannot write {}: {error}", path.display())))?;
    }
    let name = init.out.display();
    output::print(&format!(
        "{name} is written: {}\nnext:\n  trainer check {name}\n  trainer data inspect {name}\n  \
         trainer run {name}",
        text::told(&found, &heads)
    ))
}

/// Makes the file, and never writes over one that has come to be since it was looked for.
fn write(path: &Path, text: &str, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::write(path, text);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn answers(init: &Init) -> Result<Answers, Failure> {
    let asks = ask::can_ask() && !init.yes;
    if !asks && !init.yes {
        missing(init)?;
    }
    let data = match &init.data {
        Some(data) => data.clone(),
        None if asks => ask::data().map_err(Failure::other)?,
        None => PathBuf::from("."),
    };
    let (found, offers) = recognise(&data).map_err(Failure::data)?;
    let labels = match &init.labels {
        Some(labels) => labels.clone(),
        None if asks => ask::labels(&found, &offers).map_err(Failure::other)?,
        None => proposed(&offers),
    };
    let task = init.task.map(|task| match task {
        Task::Multilabel => HeadTask::Multilabel,
        Task::Multiclass => HeadTask::Multiclass,
        Task::Regression => HeadTask::Regression,
    });
    let heads = Heads::new(&found, &offers, &labels, task).map_err(Failure::configuration)?;
    let usual = text::usual_size(&found);
    let size = match init.size {
        Some(size) => size,
        None if asks => ask::size(usual).map_err(Failure::other)?,
        None => usual,
    };
    let budget = match &init.budget {
        Some(budget) => budget.clone(),
        None if asks => ask::budget().map_err(Failure::other)?,
        None => BUDGET.to_owned(),
    };
    Ok(Answers { found, heads, size, budget })
}

/// Refuses to guess where nobody can be asked and nobody said that guesses are wanted.
fn missing(init: &Init) -> Result<(), Failure> {
    let given = [
        ("DIR", init.data.is_some()),
        ("--labels", init.labels.is_some()),
        ("--size", init.size.is_some()),
        ("--budget", init.budget.is_some()),
    ];
    let missing: Vec<&str> =
        given.into_iter().filter(|(_, given)| !given).map(|(flag, _)| flag).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let told = format!(
        "this is no terminal, so no question can be asked; missing: {}",
        missing.join(", ")
    );
    let help = "give them, or --yes to take what is found in the data".to_owned();
    Err(Failure::configuration(told).with_help(Some(help)))
}

fn proposed(offers: &[Offer]) -> Vec<String> {
    offers.iter().filter(|offer| offer.proposed).map(|offer| offer.name.clone()).collect()
}

/// The table of images that lie in a folder for each class.
fn table_of(folders: &ClassFolders) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let lists = folders.images.iter().any(|(_, _, list)| list.is_some());
    let header = ["image", "class", "split"];
    let columns = if lists { 3 } else { 2 };
    writer.write_record(&header[..columns]).map_err(Failure::other)?;
    for (path, class, list) in &folders.images {
        let path = path.to_str().ok_or_else(|| {
            Failure::data(format!("a table cannot name {}, which is not UTF-8", path.display()))
        })?;
        let row = [path, class.as_str(), list.as_deref().unwrap_or_default()];
        writer.write_record(&row[..columns]).map_err(Failure::other)?;
    }
    let bytes = writer.into_inner().map_err(|error| Failure::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(Failure::other)
}
