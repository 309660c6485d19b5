//! A plan for a person to read.

use crate::parallel::{BatchNormOver, OptimizerPlacement};
use crate::plan::{
    AtFirstSummary, ParallelSummary, PipelineDevice, PipelineSummary, PlanSummary, StageSummary,
    StrategySummary,
};
use crate::screen::{Bytes, Column, Frame, Table, counted, wrapped};

/// Stages beyond so many are shown as runs of equal ones, or not at all.
const MOST_STAGES: usize = 24;

/// The best strategies of a precision beyond so many are thinned.
const MOST_BEST: usize = 8;

/// Lines of prose are no longer than this, however wide the terminal is.
const PROSE: usize = 100;

/// Where the text goes: the characters of its tables, and how wide its lines may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub frame: Frame,
    pub columns: usize,
}

/// Bytes, stages, strategies and advice. `known` says how the device's memory is known, `assumed`
/// whether a run on this machine would use another device.
pub(super) fn text(
    summary: &PlanSummary,
    known: &str,
    assumed: bool,
    all: bool,
    page: Page,
) -> String {
    let prose = |text: &str| wrapped(text, page.columns.min(PROSE), 0);
    let PlanSummary { device, memory, budget, bytes, warning, .. } = summary;
    let mut text = prose(&format!(
        "for {}: {} of memory ({known}), {}{} for a run",
        match (*device, devices(summary)) {
            ("cuda", 1) => "a CUDA GPU".to_owned(),
            ("cuda", count) => format!("each of {count} CUDA GPUs"),
            (_, 1) => "the CPU".to_owned(),
            (_, count) => format!("each of {count} devices on the CPU"),
        },
        Bytes(*memory),
        summary.free.map(|free| format!("{} free now, ", Bytes(free))).unwrap_or_default(),
        Bytes(*budget),
    ));
    if let Some(shared) = &summary.parallel {
        text += &prose(&parallel(shared));
        text += &arrangements(shared, page);
        let one = if shared.devices == shared.copies { "device" } else { "copy" };
        text += &prose(&format!("\n\n{} Everything below is of one {one}.", shared.advice));
    }
    text.extend(warning.iter().map(|warning| prose(&format!("\nwarning: {warning}"))));
    text += "\n\n";
    for (what, bytes) in [
        ("weights", bytes.weights),
        ("gradients", bytes.gradients),
        ("optimizer", bytes.optimizer),
        ("largest tensor", summary.largest_tensor),
    ] {
        text += &format!("{what:<15} {:>10}\n", Bytes(bytes));
    }
    let images = counted(summary.micro_batch, "image", "images");
    let precision = summary.precision.name();
    text += &prose(&format!("\nactivations of {images} at once in {precision}:"));
    text += "\n";
    text += &stages(&summary.stages).draw(page.frame, page.columns);
    if let Some(pipeline) = &summary.pipeline {
        text += &prose(&shared_stages(pipeline));
        text += "\n";
        text += &pipeline_devices(pipeline).draw(page.frame, page.columns);
    }
    text += &summary.at_first.as_ref().map(|first| prose(&at_first(first))).unwrap_or_default();
    text += &format!("\n\n{}:\n", if all { "every strategy" } else { "the best strategies" });
    text += &strategies(summary, all).draw(page.frame, page.columns);
    text += "\n";
    let chosen = match summary.chosen {
        Some(_) if assumed => "> what a run would do on that device",
        Some(_) => "> what a run would do",
        None => "a run would not start",
    };
    let other = summary.preferred.filter(|place| summary.chosen != Some(*place));
    let preferred = other.map(|place| match summary.strategies[place].same_numbers {
        true => "; * the fastest that fits and trains with the numbers of whole batches",
        false => {
            "; * the fastest that fits; all that fit train with other results than whole batches"
        }
    });
    text += &prose(&format!("{chosen}{}", preferred.unwrap_or_default()));
    text + &format!("\n\n{}", prose(&summary.advice))
}

fn stages(stages: &[StageSummary]) -> Table {
    let figures = ["kept", "workspace", "GFLOP"].map(|title| Column::numbers(title).always());
    let columns = [Column::words("stage")].into_iter().chain(figures);
    let mut table = Table::new(columns.collect(), 1);
    let row = |name: String, stage: &StageSummary| {
        let bytes = [stage.kept, stage.workspace].map(|bytes| Bytes(bytes).to_string());
        let [kept, workspace] = bytes;
        vec![name, kept, workspace, format!("{:.2}", stage.flops / 1e9)]
    };
    if stages.len() <= MOST_STAGES {
        for stage in stages {
            let mark = if stage.frozen { " (frozen)" } else { "" };
            table.add(row(format!("{}{mark}", stage.name), stage));
        }
    } else {
        let alike = |a: &StageSummary, b: &StageSummary| {
            let key = |s: &StageSummary| (s.frozen, s.kept, s.workspace, s.flops.to_bits());
            key(a) == key(b)
        };
        for run in stages.chunk_by(alike) {
            let name = match run {
                [one] => one.name.clone(),
                run => format!("{} … {}, each", run[0].name, run[run.len() - 1].name),
            };
            let mark = if run[0].frozen { " (frozen)" } else { "" };
            table.add(row(format!("{name}{mark}"), &run[0]));
        }
    }
    let kept = stages.iter().map(|stage| stage.kept).sum();
    let flops = stages.iter().map(|stage| stage.flops).sum();
    let workspace = stages.iter().map(|stage| stage.workspace).max().unwrap_or(0);
    let all = StageSummary { name: String::new(), frozen: false, kept, workspace, flops };
    table.add(row("all".to_owned(), &all));
    table
}

/// How several devices share a batch.
fn parallel(shared: &ParallelSummary) -> String {
    let (each, all) = match shared.devices == shared.copies {
        true => ("device", format!("{} devices", shared.devices)),
        false => ("copy", format!("{} copies of the pipeline", shared.copies)),
    };
    let norm = match (shared.has_batch_norm, shared.batch_norm) {
        (false, _) => String::new(),
        (true, BatchNormOver::Sync) if each == "copy" => {
            "; BatchNorm normalises over the images that all copies compute at once".to_owned()
        }
        (true, BatchNormOver::Sync) => {
            "; BatchNorm normalises over the images of all devices".to_owned()
        }
        (true, BatchNormOver::Local) => {
            format!("; BatchNorm normalises over the images of each {each}")
        }
    };
    let optimizer = match shared.optimizer {
        OptimizerPlacement::Replicated => String::new(),
        OptimizerPlacement::Sharded => format!(
            ", keeps 1/{} of the optimizer's state and gets {} of new weights from the others",
            shared.copies,
            Bytes(shared.weight_bytes)
        ),
    };
    format!(
        "\na batch of {} is shared over {all}, {} each; in a step each adds {} of gradients to those of the \
         others{optimizer}{norm}.",
        counted(shared.batch_size, "image", "images"),
        counted(shared.device_batch_size, "image", "images"),
        Bytes(shared.gradient_bytes),
    )
}

/// What so many devices come to, each row a number of them; nothing where no times are estimated.
fn arrangements(shared: &ParallelSummary, page: Page) -> String {
    if shared.arrangements.is_empty() {
        return String::new();
    }
    let numbers = ["devices", "images each", "peak", "ms", "images/s", "of linear", "received"];
    let columns = numbers.map(|title| Column::numbers(title).always());
    let columns = columns.into_iter().chain([Column::words("fits")]);
    let mut table = Table::new(columns.collect(), 1);
    for row in &shared.arrangements {
        let received = row.gradient_bytes + row.weight_bytes + row.statistics_bytes;
        table.add(vec![
            row.devices.to_string(),
            row.device_batch_size.to_string(),
            Bytes(row.peak).to_string(),
            format!("{:.1}", 1e3 * row.seconds),
            format!("{:.0}", row.images_per_second),
            format!("{:.0}%", 100.0 * row.of_linear),
            Bytes(received).to_string(),
            if row.fits { "yes" } else { "no" }.to_owned(),
        ]);
    }
    format!("\n\n{}", table.draw(page.frame, page.columns))
}

/// How many devices a step is shared over.
fn devices(summary: &PlanSummary) -> usize {
    let of_batch = summary.parallel.as_ref().map(|shared| shared.devices);
    let of_stages = summary.pipeline.as_ref().map(|pipeline| pipeline.devices.len());
    of_batch.or(of_stages).unwrap_or(1)
}

/// How the stages are shared out in a pipeline.
fn shared_stages(pipeline: &PipelineSummary) -> String {
    let PipelineSummary { schedule, micro_batches, bubble, idle, copies, seconds, devices } =
        pipeline;
    let of_copy = if *copies > 1 { " of each copy" } else { "" };
    format!(
        "\n\nThe stages are shared over {} devices{of_copy}, which {} go through by `{}`. Where all devices took \
         equally long, each would wait for {:.0}% of the time; as they do not, it is {:.0}%. A step takes about \
         {:.1} ms.",
        devices.len(),
        counted(*micro_batches, "micro-batch", "micro-batches"),
        schedule.name(),
        100.0 * bubble,
        100.0 * idle,
        1e3 * seconds,
    )
}

fn pipeline_devices(pipeline: &PipelineSummary) -> Table {
    let columns = vec![
        Column::words("device"),
        Column::words("stages"),
        Column::numbers("micro-batches"),
        Column::numbers("sends"),
        Column::numbers("works, ms"),
        Column::numbers("peak").always(),
    ];
    let mut table = Table::new(columns, 2);
    for device in &pipeline.devices {
        let PipelineDevice { name, stages: [first, last], alive, peak, seconds, .. } = device;
        let stages = if first == last { first.clone() } else { format!("{first} … {last}") };
        table.add(vec![
            name.clone(),
            stages,
            alive.to_string(),
            Bytes(device.sends_in_step).to_string(),
            format!("{:.1}", 1e3 * seconds),
            Bytes(*peak).to_string(),
        ]);
    }
    table
}

/// What the first epochs take, in which stages are frozen that are trained later.
fn at_first(first: &AtFirstSummary) -> String {
    let AtFirstSummary { epochs, frozen, peak, peak_later, relative_time } = first;
    format!(
        "\n\nIn the first {}, with {} frozen, a step takes {} and {:.2} of the time: all else here is \
         of the epochs after them, where it takes {}.",
        if *epochs == 1 { "epoch".to_owned() } else { format!("{epochs} epochs") },
        frozen.join(", "),
        Bytes(*peak),
        relative_time,
        Bytes(*peak_later),
    )
}

fn strategies(summary: &PlanSummary, all: bool) -> Table {
    let is_card = summary.strategies.iter().any(|row| row.held.is_some());
    let mut columns = vec![
        Column::words(""),
        Column::words("checkpointing"),
        Column::words("precision"),
        Column::numbers("images"),
        Column::words("dense layers"),
        Column::words("offload"),
        Column::numbers("peak").always(),
    ];
    columns.extend(is_card.then(|| Column::numbers("held").always()));
    columns.extend([
        Column::numbers("recomputed"),
        Column::numbers("time").always(),
        Column::words("numbers"),
        Column::words("fits"),
    ]);
    let mut table = Table::new(columns, 4);
    let mut places: Vec<usize> = match all {
        true => (0..summary.strategies.len()).collect(),
        false => best(summary),
    };
    // The preferred first, in the precision of the configuration.
    places.sort_by(|a, b| {
        let (a, b) = (&summary.strategies[*a], &summary.strategies[*b]);
        let other = |row: &StrategySummary| (row.precision != summary.precision, row.precision);
        other(a).cmp(&other(b)).then(a.order(b))
    });
    for place in places {
        let row = &summary.strategies[place];
        let mark = match place {
            _ if summary.chosen == Some(place) => ">",
            _ if summary.preferred == Some(place) => "*",
            _ => "",
        };
        let policy = match row.segments {
            Some(segments) => format!("{} {segments}", row.checkpointing),
            None => row.checkpointing.to_owned(),
        };
        let mut cells = vec![
            mark.to_owned(),
            policy,
            row.precision.name().to_owned(),
            row.micro_batch.to_string(),
            row.dense_layers.name().to_owned(),
            row.offload.to_owned(),
            Bytes(row.peak).to_string(),
        ];
        cells.extend(row.held.map(|held| Bytes(held).to_string()));
        cells.extend([
            format!("{:.0}%", row.recompute_percent),
            format!("{:.2}", row.relative_time),
            if row.same_numbers { "same" } else { "other" }.to_owned(),
            if row.fits { "yes" } else { "no" }.to_owned(),
        ]);
        table.add(cells);
    }
    table
}

/// The places of strategies than which none is faster and takes no more memory, of all, of those in the
/// precision of the configuration and of those with the same numbers; and of those that are marked.
fn best(summary: &PlanSummary) -> Vec<usize> {
    let all = &summary.strategies;
    let every = (0..all.len()).collect();
    let same = |place: &usize| all[*place].precision == summary.precision;
    let precise = (0..all.len()).filter(same).collect();
    let exact = (0..all.len()).filter(|place| all[*place].same_numbers).collect();
    let marked = summary.chosen.into_iter().chain(summary.preferred);
    let best = [every, precise, exact].map(|places| frontier(all, places));
    let mut shown: Vec<usize> = marked.chain(best.into_iter().flatten()).collect();
    shown.sort_unstable();
    shown.dedup();
    shown
}

/// Of `places`, those that take less memory than all that are as fast.
fn frontier(all: &[StrategySummary], mut places: Vec<usize>) -> Vec<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Machine, plan};
    use crate::screen::columns_of;

    #[test]
    fn a_plan_fits_every_width() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/xray_densenet.toml");
        let loaded = crate::config::load(file.as_ref(), &[]).expect("a configuration");
        let plan = plan(loaded.config).expect("a plan");
        let summary =
            PlanSummary::new(&plan, &Machine { cuda: true, memory: 24 << 30, ..Machine::ASSUMED });
        let summary = summary.expect("the policy fits");
        for columns in [40, 80, 120, 200] {
            for all in [false, true] {
                let page = Page { frame: Frame::Ascii, columns };
                let text = text(&summary, "as --memory says", true, all, page);
                let wide = text.lines().find(|line| columns_of(line) > columns);
                assert_eq!(wide, None, "{columns}\n{text}");
            }
        }
    }
}
