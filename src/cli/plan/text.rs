//! A plan for a person to read.

use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::plan::{Bytes, Outlook, StageOutlook, StrategyOutlook};

/// Stages beyond so many are shown as runs of equal ones, or not at all.
const MOST_STAGES: usize = 24;

/// The best strategies of a precision beyond so many are thinned.
const MOST_BEST: usize = 8;

/// Bytes, stages, strategies and advice. `known` says how the device's memory is known, `assumed`
/// whether a run on this machine would use another device.
pub(super) fn text(outlook: &Outlook, known: &str, assumed: bool, all: bool) -> String {
    let Outlook { device, memory, budget, bytes, warning, .. } = outlook;
    let mut text = format!(
        "for {}: {} of memory ({known}), {} for a step\n",
        if *device == "cuda" { "a CUDA GPU" } else { "the CPU" },
        Bytes(*memory),
        Bytes(*budget),
    );
    text += &warning.iter().map(|warning| format!("warning: {warning}\n")).collect::<String>();
    text += "\n";
    for (what, bytes) in [
        ("weights", bytes.weights),
        ("gradients", bytes.gradients),
        ("optimizer", bytes.optimizer),
        ("largest tensor", outlook.largest_tensor),
    ] {
        text += &format!("{what:<15} {:>10}\n", Bytes(bytes));
    }
    let (precision, images) = (outlook.precision.name(), outlook.micro_batch);
    text += &format!("\nactivations of {images} images at once in {precision}:\n");
    text += &stages(&outlook.stages);
    text += &format!("\n\n{}:\n", if all { "every strategy" } else { "the best strategies" });
    text += &strategies(outlook, all);
    text += "\n";
    let chosen = match outlook.chosen {
        Some(_) if assumed => "> what a run would do on that device",
        Some(_) => "> what a run would do",
        None => "a run would not start",
    };
    text += chosen;
    text += if outlook.fastest.is_some() { "; * the fastest that fits\n" } else { "\n" };
    text + &format!("\n{}", wrapped(&outlook.advice))
}

fn table(titles: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(Cell::new));
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn stages(stages: &[StageOutlook]) -> String {
    let mut table = table(&["stage", "kept", "workspace", "GFLOP"]);
    let row = |name: String, stage: &StageOutlook| {
        let flops = format!("{:.2}", stage.flops / 1e9);
        [Cell::new(name), right(Bytes(stage.kept)), right(Bytes(stage.workspace)), right(flops)]
    };
    if stages.len() <= MOST_STAGES {
        for stage in stages {
            table.add_row(row(stage.name.clone(), stage));
        }
    } else {
        let alike = |a: &StageOutlook, b: &StageOutlook| {
            (a.kept, a.workspace, a.flops.to_bits()) == (b.kept, b.workspace, b.flops.to_bits())
        };
        for run in stages.chunk_by(alike) {
            let name = match run {
                [one] => one.name.clone(),
                run => format!("{} … {}, each", run[0].name, run[run.len() - 1].name),
            };
            table.add_row(row(name, &run[0]));
        }
    }
    let kept = stages.iter().map(|stage| stage.kept).sum();
    let flops = stages.iter().map(|stage| stage.flops).sum();
    let workspace = stages.iter().map(|stage| stage.workspace).max().unwrap_or(0);
    let all = StageOutlook { name: String::new(), kept, workspace, flops };
    table.add_row(row("all".to_owned(), &all));
    table.trim_fmt()
}

fn strategies(outlook: &Outlook, all: bool) -> String {
    let mut table = table(&[
        "",
        "checkpointing",
        "precision",
        "images",
        "dense layers",
        "offload",
        "peak",
        "recomputed",
        "time",
        "fits",
    ]);
    let places: Vec<usize> = match all {
        true => (0..outlook.strategies.len()).collect(),
        false => best(outlook),
    };
    for place in places {
        let row = &outlook.strategies[place];
        let mark = match place {
            _ if outlook.chosen == Some(place) => ">",
            _ if outlook.fastest == Some(place) => "*",
            _ => "",
        };
        let policy = match row.segments {
            Some(segments) => format!("{} {segments}", row.checkpointing),
            None => row.checkpointing.to_owned(),
        };
        table.add_row([
            Cell::new(mark),
            Cell::new(policy),
            Cell::new(row.precision.name()),
            right(row.micro_batch),
            Cell::new(row.dense_layers.name()),
            Cell::new(row.offload),
            right(Bytes(row.peak)),
            right(format!("{:.0}%", row.recompute_percent)),
            right(format!("{:.2}", row.relative_time)),
            Cell::new(if row.fits { "yes" } else { "no" }),
        ]);
    }
    table.trim_fmt()
}

/// The places of strategies than which none is faster and takes no more memory, of all and of those
/// in the precision of the configuration; and of those that are marked.
fn best(outlook: &Outlook) -> Vec<usize> {
    let all = &outlook.strategies;
    let every = (0..all.len()).collect();
    let same = (0..all.len()).filter(|place| all[*place].precision == outlook.precision).collect();
    let marked = outlook.chosen.into_iter().chain(outlook.fastest);
    let mut shown: Vec<usize> =
        marked.chain(frontier(all, every)).chain(frontier(all, same)).collect();
    shown.sort_by(|a, b| {
        let key = |place: usize| (all[place].precision, std::cmp::Reverse(all[place].peak), place);
        key(*a).cmp(&key(*b))
    });
    shown.dedup();
    shown
}

/// Of `places`, those that take less memory than all that are as fast.
fn frontier(all: &[StrategyOutlook], mut places: Vec<usize>) -> Vec<usize> {
    places.sort_by(|a, b| {
        let (a, b) = (&all[*a], &all[*b]);
        a.relative_time.total_cmp(&b.relative_time).then(a.peak.cmp(&b.peak))
    });
    let mut best: Vec<usize> = Vec::new();
    for place in places {
        // Less than a fiftieth is not worth a line.
        let less = |last: &usize| (all[place].peak as f64) < 0.98 * all[*last].peak as f64;
        if best.last().is_none_or(less) {
            best.push(place);
        }
    }
    let last = best.len().saturating_sub(1);
    let steps = last.clamp(1, MOST_BEST - 1);
    (0..=steps).filter_map(|step| best.get(step * last / steps)).copied().collect()
}

/// Text in lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
