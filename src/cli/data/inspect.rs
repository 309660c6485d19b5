//! `trainer data inspect`.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use super::failure;
use crate::build::{self, while_drawing};
use crate::cli::overrides::Overrides;
use crate::cli::{Failure, output, planned};
use crate::data::{
    self, ClassCounts, Counts, ImageCounts, Inspection, Numbers, SourceCounts, SplitCounts,
};
use crate::model::{HeadConfig, Task};
use crate::plan::Plan;
use crate::screen::{bar_target, counted, stdout_columns, wrapped};

/// Counts what a configuration's data hold, and says what a run sees of them
///
/// It counts patients, the labels of each head in each split (of numbers it shows mean, deviation and
/// quartiles), and the sizes and depths of the images. It lists images that cannot be read, and images
/// that have the same pixels, also across splits. It ends with exit code 3 where an image is missing or
/// cannot be read.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data inspect configs/xray_densenet.toml
  trainer data inspect configs/xray_densenet.toml --tables-only
  trainer data inspect configs/xray_densenet.toml --json > data.json")]
pub struct Inspect {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Reads only the tables, no image
    #[arg(long)]
    tables_only: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overrides: Overrides,
}

/// Images and groups of duplicates that are listed as text; JSON has all.
const LISTED: usize = 20;

/// Looks and prints; fails where an image cannot be read.
pub fn execute(inspect: &Inspect) -> Result<(), Failure> {
    let plan = planned(&inspect.config, &inspect.overrides.set)?;
    let bar = ProgressBar::with_draw_target(Some(0), bar_target());
    let mut refused = None;
    let found = while_drawing(|tell| {
        data::inspect(
            &plan.data,
            &plan.heads,
            plan.run.seed,
            !inspect.tables_only,
            tell,
            |at, all| {
                bar.set_length(all as u64);
                bar.set_position(at as u64);
            },
            |splits| {
                build::data_warnings(&plan, splits).unwrap_or_else(|error| {
                    refused = Some(failure(error));
                    splits.warnings.clone()
                })
            },
        )
    });
    bar.finish_and_clear();
    let found = found.map_err(failure)?;
    let seen = seen(&plan, &found);
    if inspect.json {
        let mut value = serde_json::to_value(&found).map_err(Failure::other)?;
        value["run"] = seen;
        output::print(&serde_json::to_string_pretty(&value).map_err(Failure::other)?)?;
    } else {
        output::print(&text(&found, &plan.heads, &seen))?;
    }
    readable(&found)?;
    refused.map_or(Ok(()), Err)
}

/// Refuses data of which an image cannot be read.
fn readable(found: &Inspection) -> Result<(), Failure> {
    let Some(images) = &found.images else { return Ok(()) };
    let all: usize = found.splits.iter().map(|split| split.images).sum();
    match images.unreadable.len() {
        0 => Ok(()),
        bad => {
            let missing = images.unreadable.iter().map(|image| &image.listed.path);
            let meant =
                missing.filter(|path| !path.exists()).find_map(|path| data::meant_file(path));
            let help = format!(
                "{}correct the table or `root`, or repair the images; `data.on_bad_image = \"skip\"` \
                 lets a run leave them out",
                meant.unwrap_or_default()
            );
            let is = if bad == 1 { "is" } else { "are" };
            let message = format!("{bad} of {all} images {is} missing or cannot be read");
            Err(Failure::data(message).with_help(Some(help)))
        }
    }
}

/// What the run would see.
fn seen(plan: &Plan, found: &Inspection) -> serde_json::Value {
    let images = found.splits.first().map_or(0, |split| split.images);
    let size = plan.train.batch_size;
    let batches = if plan.data.drop_last { images / size } else { images.div_ceil(size) };
    let [height, width] = plan.data.image.size;
    json!({
        "batch": [size, plan.data.image.channels, height, width],
        "batches_per_epoch": batches,
    })
}

fn text(found: &Inspection, heads: &[HeadConfig], seen: &serde_json::Value) -> String {
    let mut text = String::new();
    for split in &found.splits {
        text += &format!("{}: {}\n", split.split, images_of(split.images, split.patients));
        split.sources.iter().for_each(|source| text += &source_line(source, heads));
        heads.iter().for_each(|head| text += &table(&head_rows(split, head)));
        text += "\n";
    }
    if !found.folds.is_empty() {
        text += "folds, each validated on in its turn:\n";
        text += &table(&fold_rows(&found.folds, heads));
        text += "\n";
    }
    let decided = |head: &HeadConfig| matches!(head.task, Task::Multilabel | Task::Binary);
    if heads.iter().any(decided) {
        text += "* as the loss counts them, uncertain labels by their policy\n\n";
    }
    if let Some(images) = &found.images {
        text += &image_lines(images);
    }
    for warning in &found.warnings {
        text += &wrapped(&format!("warning: {warning}"), stdout_columns(), 2);
        text += "\n";
    }
    let batches = seen["batches_per_epoch"].as_u64().unwrap_or_default() as usize;
    let smaller = if batches == 1 { "it may be smaller" } else { "the last may be smaller" };
    let validation = found.splits.get(1).map_or(0, |split| split.images);
    let sees = format!(
        "A run sees {} an epoch, each {} ({smaller}), and {}.",
        counted(batches, "training batch", "training batches"),
        seen["batch"],
        counted(validation, "validation image", "validation images"),
    );
    format!("{text}\n{}\n", wrapped(&sees, stdout_columns(), 0))
}

fn images_of(images: usize, patients: usize) -> String {
    let patients = counted(patients, "patient", "patients");
    format!("{} of {patients}", counted(images, "image", "images"))
}

/// What a split has of a source, with the labels of which it knows nothing.
fn source_line(source: &SourceCounts, heads: &[HeadConfig]) -> String {
    let unknown = heads.iter().filter_map(|head| {
        let known = source.heads.get(&head.name)?;
        let labels = head.labels.iter().filter(|label| known.get(*label) == Some(&0));
        let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        match labels.len() {
            0 => None,
            all if all == head.labels.len() => Some(format!("`{}`", head.name)),
            _ => Some(labels.join(", ")),
        }
    });
    let unknown: Vec<String> = unknown.collect();
    let unknown = match unknown.is_empty() || source.images == 0 {
        true => String::new(),
        false => format!("; nothing known of {}", unknown.join(", ")),
    };
    let of = images_of(source.images, source.patients);
    wrapped(&format!("  data.{}: {of}{unknown}", source.source), stdout_columns(), 4) + "\n"
}

/// A head's labels or classes, row by row, below a row of titles.
fn head_rows(split: &SplitCounts, head: &HeadConfig) -> Vec<Vec<String>> {
    let labels = split.heads.get(&head.name);
    let of = |label: &String| labels.and_then(|labels| labels.get(label)).copied();
    let labels = || head.labels.iter().filter_map(|label| Some((label, of(label)?)));
    let classes = || {
        labels().filter_map(|(label, counts)| match counts {
            Counts::Class(counts) => Some((label, counts)),
            Counts::Number { .. } => None,
        })
    };
    let title = format!("[{}]", head.name);
    let mut rows: Vec<Vec<String>> = Vec::new();
    match head.task {
        Task::Multilabel | Task::Binary => {
            rows.push(row(&title, ["positive", "negative", "uncertain", "missing", "positive*"]));
            rows.extend(classes().map(|(label, counts)| {
                let ClassCounts { positive, negative, uncertain, missing, .. } = counts;
                let counted =
                    [positive, negative, uncertain, missing].map(|count| count.to_string());
                let used = format!("{:.1}", counts.used_positive);
                row(label, counted.into_iter().chain([used]))
            }));
        }
        Task::Multiclass => {
            rows.push(row(&title, ["images", "share"]));
            let known: usize = classes().map(|(_, counts)| counts.positive).sum();
            rows.extend(classes().map(|(label, ClassCounts { positive, .. })| {
                let share = 100.0 * positive as f64 / known.max(1) as f64;
                row(label, [positive.to_string(), format!("{share:.1}%")])
            }));
            rows.push(row("(missing)", [split.images.saturating_sub(known).to_string()]));
        }
        Task::Regression => {
            let spread = ["mean", "std", "min", "25%", "50%", "75%", "max"];
            rows.push(row(&title, ["known", "missing"].into_iter().chain(spread)));
            rows.extend(labels().filter_map(|(label, counts)| {
                let Counts::Number { known, missing, numbers } = counts else { return None };
                let counted = [known, missing].map(|count| count.to_string());
                Some(row(label, counted.into_iter().chain(numbers.iter().flat_map(shown))))
            }));
        }
    }
    rows
}

/// Images and patients of the smallest and of the largest fold; then for each label or class the least and
/// the greatest share of images that have it.
fn fold_rows(folds: &[SplitCounts], heads: &[HeadConfig]) -> Vec<Vec<String>> {
    let ends = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        [least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
    };
    let sizes = |size: fn(&SplitCounts) -> usize| {
        ends(folds.iter().map(|fold| size(fold) as f64).collect()).map(|size| size.to_string())
    };
    let title = format!("[{}]", counted(folds.len(), "fold", "folds"));
    let mut rows = vec![
        row(&title, ["least", "most"]),
        row("images", sizes(|fold| fold.images)),
        row("patients", sizes(|fold| fold.patients)),
    ];
    for head in heads.iter().filter(|head| head.task != Task::Regression) {
        rows.push(row(&format!("[{}]", head.name), ["", ""]));
        for label in &head.labels {
            let counts = folds.iter().map(|fold| fold.heads.get(&head.name)?.get(label));
            let share = |counts: &Counts| match counts {
                Counts::Class(ClassCounts { positive, negative, .. }) => {
                    100.0 * *positive as f64 / (positive + negative).max(1) as f64
                }
                Counts::Number { .. } => 0.0,
            };
            let shares = ends(counts.flatten().map(share).collect());
            rows.push(row(label, shares.map(|share| format!("{share:.1}%"))));
        }
    }
    rows
}

fn row<T: ToString>(first: &str, others: impl IntoIterator<Item = T>) -> Vec<String> {
    let others = others.into_iter().map(|cell| cell.to_string());
    std::iter::once(first.to_owned()).chain(others).collect()
}

/// The spread of numbers, to four digits.
fn shown(numbers: &Numbers) -> [String; 7] {
    let Numbers { mean, std, min, lower_quartile, median, upper_quartile, max, .. } = *numbers;
    [mean, std, min, lower_quartile, median, upper_quartile, max].map(four_digits)
}

fn four_digits(number: f64) -> String {
    let scientific = format!("{number:.3e}");
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    match exponent.unwrap_or(0_i32) {
        exponent @ -3..=5 => format!("{number:.0$}", (3 - exponent).max(0) as usize),
        _ => scientific,
    }
}

/// The first column to the left, the others to the right, each as wide as its widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = format!("  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line += &format!("  {cell:>width$}");
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn image_lines(images: &ImageCounts) -> String {
    let mut text = String::from("sizes (height × width):");
    for size in images.sizes.iter().take(8) {
        text += &format!(" {}×{} ({})", size.height, size.width, size.images);
    }
    let more = images.sizes.len().saturating_sub(8);
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text += "\ndepths:";
    for depth in &images.depths {
        text += &format!(" {} bits ({})", depth.bits, depth.images);
    }
    if let Some([low, high]) = images.range {
        text += &format!("\nvalues that are not scaled: {low} to {high}");
    }
    let unreadable = images.unreadable.iter().map(|image| {
        let data::Listed { split, path, table, line, .. } = &image.listed;
        let (path, table) = (path.display(), table.display());
        format!("{path} ({split}: {table}, line {line}): {}", image.reason)
    });
    text += &format!("\nmissing or unreadable: {}\n", images.unreadable.len());
    text += &listed(unreadable);
    let across = images.duplicates.iter().filter(|group| group.across_splits).count();
    text += &format!(
        "same pixels more than once: {} ({across} across splits)\n",
        images.duplicates.len()
    );
    text + &listed(images.duplicates.iter().map(|group| {
        let file = |image: &data::Listed| {
            let data::Listed { split, path, line, patient, .. } = image;
            format!("{} ({split}, line {line}, patient {patient})", path.display())
        };
        let files: Vec<String> = group.images.iter().map(file).collect();
        let differ = if group.labels_differ { ": their labels differ" } else { "" };
        format!("{}{differ}", files.join(" = "))
    }))
}

/// The first lines, and how many more there are.
fn listed(lines: impl ExactSizeIterator<Item = String>) -> String {
    let more = lines.len().saturating_sub(LISTED);
    let line = |line: String| wrapped(&format!("  {line}"), stdout_columns(), 4) + "\n";
    let mut text: String = lines.take(LISTED).map(line).collect();
    if more > 0 {
        text += &format!("  and {more} more (`--json` lists all)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_four_digits_whatever_their_size() {
        let shown = [0.0, 55.2364, -3.0, 1234.5, 123_456.7, 0.012_345, 1.5e-7, -2.5e12, 999_999.9];
        let shown = shown.map(four_digits).join(" ");
        insta::assert_snapshot!(shown, @"0.000 55.24 -3.000 1234 123457 0.01235 1.500e-7 -2.500e12 1.000e6");
    }

    #[test]
    fn long_lists_say_how_many_more_there_are() {
        let lines = |count: usize| {
            listed((0..count).map(|line| line.to_string()).collect::<Vec<_>>().into_iter())
        };
        assert_eq!(lines(0), "");
        assert_eq!(lines(LISTED).lines().count(), LISTED);
        let more = lines(LISTED + 5);
        assert_eq!(more.lines().count(), LISTED + 1);
        assert!(more.ends_with("  and 5 more (`--json` lists all)\n"), "{more}");
    }
}
