//! `trainer compare`.

mod compared;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::compared::Compared;
use super::{Failure, output};
use crate::build::differences;
use crate::evaluate::{
    HeadComparison, MeasuredTable, PairError, Settings, compare_heads, in_common,
};
use crate::report::{Tested, comparison_text};
use crate::screen::{Frame, counted, say, stdout_columns, wrapped};

/// Compares trained models on the same images
///
/// Each run is compared with the first. A label's AUROCs are compared by DeLong's paired test, in which
/// the images of a patient count together; all other metrics by the paired bootstrap over patients. It
/// reads the predictions that `trainer eval` has written to RUN/eval-<split>/, if they are of the state
/// that eval would take now. Without these it reads, for validation images, what training saved with that
/// state. No model is run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer compare checkpoints/adamw checkpoints/sgd
  trainer eval checkpoints/adamw --split test && trainer eval checkpoints/sgd --split test
  trainer compare checkpoints/adamw checkpoints/sgd --split test --json")]
pub struct Compare {
    /// The folders of runs or of saved states, or those that `trainer eval --out` has written
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    runs: Vec<PathBuf>,
    /// The list of images: the part behind `eval-` in the name of the folder in RUN
    #[arg(long, value_name = "LIST", default_value = "validation")]
    split: String,
    /// Prints JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// What was found, in the form that `--json` prints. Keys may be added, not renamed.
#[derive(Debug, Serialize)]
struct Found {
    split: String,
    images: usize,
    patients: usize,
    runs: Vec<RunTold>,
    /// What a person should know, a sentence each.
    warnings: Vec<String>,
    comparisons: Vec<Comparison>,
}

/// Where a model's predictions are from.
#[derive(Debug, Serialize)]
struct RunTold {
    run: PathBuf,
    predictions: PathBuf,
    /// Images that are left out, since another run lacks them.
    left_out: usize,
}

/// A run beside the first.
#[derive(Debug, Serialize)]
struct Comparison {
    first: PathBuf,
    second: PathBuf,
    heads: BTreeMap<String, HeadComparison>,
    /// The keys that differ between their configurations, with the values of the first and the second.
    configuration: Vec<String>,
}

/// Compares.
pub fn execute(command: &Compare) -> Result<(), Failure> {
    let (found, compared) = found(&command.runs, &command.split)?;
    found.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    match command.json {
        true => output::print(&serde_json::to_string_pretty(&found).map_err(Failure::other)?),
        false => output::print(&text(&found, &compared)),
    }
}

/// What a page shows of the comparison of `runs` on their validation images.
///
/// # Errors
/// When there are no predictions to be compared.
pub(super) fn tested(runs: &[PathBuf]) -> Result<Tested, Failure> {
    let (found, compared) = found(runs, "validation")?;
    let names = short(&found.runs);
    let pairs = found.comparisons.into_iter().zip(&names[1..]);
    let pairs = pairs.map(|(of, second)| ([names[0].clone(), second.clone()], of.heads));
    let images = counted(found.images, "validation image", "validation images");
    let images = format!("{images} of {}", counted(found.patients, "patient", "patients"));
    Ok(Tested { images, heads: compared[0].heads.clone(), pairs: pairs.collect() })
}

/// Compares `runs` on their images `split`.
fn found(runs: &[PathBuf], split: &str) -> Result<(Found, Vec<Compared>), Failure> {
    let compared = runs.iter().map(|run| Compared::open(run, split));
    let compared = compared.collect::<Result<Vec<Compared>, Failure>>()?;
    let paths: Vec<&[String]> = compared.iter().map(|one| &one.table.paths[..]).collect();
    let common = in_common(&paths);
    let images = common.first().map_or(0, Vec::len);
    if images == 0 {
        let message = format!("the runs have no image in common in `{split}`");
        let help = "measure each on the same images with `trainer eval RUN --data DATA --out DIR`, and \
                    compare these folders";
        return Err(Failure::data(message).with_help(Some(help.to_owned())));
    }
    let tables = compared.iter().zip(&common).map(|(one, images)| one.table.part(images));
    let tables: Vec<MeasuredTable> = tables.collect();
    let runs = compared.iter().map(|one| RunTold {
        run: one.run.clone(),
        predictions: one.file.clone(),
        left_out: one.table.paths.len() - images,
    });
    let runs: Vec<RunTold> = runs.collect();
    let left_out = runs.iter().filter(|run| run.left_out > 0).map(|run| {
        let (images, run) = (counted(run.left_out, "image", "images"), run.run.display());
        format!("{images} of {run} are left out, since another run lacks them")
    });
    let warnings = left_out.chain(tables[0].few_patients()).collect();
    let patients = numbers(&tables[0].patients);
    let settings = compared[0].settings;
    let others = (1..tables.len()).map(|place| {
        let heads = heads(&tables[0], &tables[place], &patients, &settings);
        let heads = heads.map_err(|error| {
            let [one, other] = [0, place].map(|place| compared[place].file.display().to_string());
            Failure::data(format!("{one} and {other} cannot be compared: {error}"))
        })?;
        Ok(Comparison {
            first: compared[0].run.clone(),
            second: compared[place].run.clone(),
            heads,
            configuration: configuration(&compared[0], &compared[place]),
        })
    });
    let comparisons = others.collect::<Result<Vec<Comparison>, Failure>>()?;
    let split = split.to_owned();
    let patients = patients.iter().max().map_or(0, |last| last + 1);
    Ok((Found { split, images, patients, runs, warnings, comparisons }, compared))
}

/// The number of each patient, in the order in which they appear.
fn numbers(patients: &[String]) -> Vec<usize> {
    let mut numbers = BTreeMap::new();
    let number = |patient| {
        let next = numbers.len();
        *numbers.entry(patient).or_insert(next)
    };
    patients.iter().map(number).collect()
}

/// The comparisons of the heads that both have.
fn heads(
    first: &MeasuredTable,
    second: &MeasuredTable,
    patients: &[usize],
    settings: &Settings,
) -> Result<BTreeMap<String, HeadComparison>, PairError> {
    let both = first.heads.iter().filter_map(|(name, head)| {
        let other = second.heads.get(name)?;
        Some(compare_heads(head, other, patients, settings).map(|found| (name.clone(), found)))
    });
    let found: BTreeMap<_, _> = both.collect::<Result<_, _>>()?;
    if found.is_empty() { Err(PairError::OtherLabels) } else { Ok(found) }
}

/// What differs between the configurations, where both are known.
fn configuration(first: &Compared, second: &Compared) -> Vec<String> {
    let Some((first, second)) = first.config.as_ref().zip(second.config.as_ref()) else {
        return Vec::new();
    };
    let free = |key: &str| ["run.name", "run.output", "data.validation.fold"].contains(&key);
    let found = differences(first, second, free).into_iter();
    found.map(|line| line.trim().to_owned()).collect()
}

/// The paths of the runs without the folders that all of them are in.
fn short(runs: &[RunTold]) -> Vec<String> {
    let parts = runs.iter().map(|told| told.run.components().collect::<Vec<_>>());
    let parts: Vec<Vec<_>> = parts.collect();
    let most = parts.iter().map(Vec::len).min().unwrap_or_default().saturating_sub(1);
    let is_shared = |place: &usize| parts.iter().all(|path| path[*place] == parts[0][*place]);
    let shared = (0..most).take_while(is_shared).count();
    let rest = parts.into_iter().map(|path| path[shared..].iter().collect::<PathBuf>());
    rest.map(|path| path.display().to_string()).collect()
}

fn text(found: &Found, compared: &[Compared]) -> String {
    let (frame, columns) = (Frame::of_stdout(), stdout_columns());
    let images = counted(found.images, "image", "images");
    let patients = counted(found.patients, "patient", "patients");
    let mut text = format!("{}: {images} of {patients}\n", found.split);
    for run in &found.runs {
        let line = format!("{}: {}", run.run.display(), run.predictions.display());
        text += &format!("{}\n", wrapped(&line, columns, 2));
    }
    let names = short(&found.runs);
    for (comparison, second) in found.comparisons.iter().zip(&names[1..]) {
        let first = &names[0];
        text += &format!("\n{}\n", wrapped(&format!("{second} less {first}"), columns, 2));
        let heads = &compared[0].heads;
        text += &comparison_text(&comparison.heads, [first, second], heads, frame, columns);
        if !comparison.configuration.is_empty() {
            text += "configuration, as it was in the first and is in the second:\n";
        }
        for line in &comparison.configuration {
            text += &format!("{}\n", wrapped(&format!("  {line}"), columns, 4));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(runs: &[&str]) -> Vec<String> {
        let told = |run: &&str| RunTold {
            run: PathBuf::from(run),
            predictions: PathBuf::new(),
            left_out: 0,
        };
        short(&runs.iter().map(told).collect::<Vec<_>>())
    }

    #[test]
    fn runs_are_told_apart_by_as_little_of_their_paths_as_it_takes() {
        assert_eq!(shown(&["runs/a", "runs/b"]), ["a", "b"]);
        assert_eq!(shown(&["runs/a/best", "runs/b/best"]), ["a/best", "b/best"]);
        assert_eq!(shown(&["a", "a/best"]), ["a", "a/best"]);
        assert_eq!(shown(&["/x/a", "y/a"]), ["/x/a", "y/a"]);
        assert_eq!(shown(&["a", "a"]), ["a", "a"]);
    }
}
