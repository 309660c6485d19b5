//! A comparison of two models as a person reads it in a terminal.

use std::collections::BTreeMap;

use super::HeadLabels;
use super::evaluation::{figure, ordered};
use crate::evaluate::{HeadComparison, MetricComparison};
use crate::screen::{Column, Frame, Table, wrapped};

/// The table of a comparison, in lines of at most `columns`. `names` are those of the two models;
/// `heads` tells the order of heads and labels.
pub fn comparison_text(
    found: &BTreeMap<String, HeadComparison>,
    names: [&str; 2],
    heads: &[HeadLabels],
    frame: Frame,
    columns: usize,
) -> String {
    let titles = titles(names);
    let words = titles[..WORDS].iter().map(|title| Column::words(*title).always());
    let numbers = titles[WORDS..].iter().map(|title| Column::numbers(*title).always());
    let mut table = Table::new(words.chain(numbers).collect(), WORDS);
    let (rows, reasons) = rows(found, heads);
    rows.into_iter().for_each(|row| table.add(row));
    let mut text = table.draw(frame, columns) + "\n";
    for line in reasons {
        text += &format!("{}\n", wrapped(&line, columns, 2));
    }
    text
}

/// The first columns hold words.
pub(super) const WORDS: usize = 3;

/// The titles of the columns; `names` are those of the two models.
pub(super) fn titles(names: [&str; 2]) -> [&str; 7] {
    let [first, second] = names;
    ["head", "metric", "label", first, second, "difference (95%)", "p"]
}

/// The rows of a comparison below [`titles`], and why some have no test, a line each.
pub(super) fn rows(
    found: &BTreeMap<String, HeadComparison>,
    heads: &[HeadLabels],
) -> (Vec<Vec<String>>, Vec<String>) {
    let mut rows = Vec::new();
    let mut undefined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ordered(found.keys(), heads.iter().map(|head| &head.name)) {
        let labels = heads.iter().find(|head| head.name == *name);
        let labels = labels.map_or(&[][..], |head| &head.labels);
        for (metric, of) in &found[name].metrics {
            let mut add = |label: &str, one: &MetricComparison| {
                let row = [name.as_str(), metric, label].map(str::to_owned).into_iter();
                rows.push(row.chain(cells(one)).collect());
                if let Some(reason) = one.undefined {
                    let what = [name.as_str(), metric, label].join("/");
                    let what = what.trim_end_matches('/').to_owned();
                    undefined.entry(reason.to_string()).or_default().push(what);
                }
            };
            // Of a single label the mean is that label's.
            if of.labels.len() != 1 {
                add("", &of.mean);
            }
            for label in ordered(of.labels.keys(), labels.iter()) {
                add(label, &of.labels[label]);
            }
        }
    }
    let undefined = undefined.into_iter();
    let reasons =
        undefined.map(|(reason, names)| format!("no test ({reason}): {}", names.join(", ")));
    (rows, reasons.collect())
}

/// Both values, the difference with its interval, and how likely it is by chance.
fn cells(found: &MetricComparison) -> [String; 4] {
    let shown = |value: Option<f64>| value.map_or_else(|| "undefined".to_owned(), figure);
    let signed = |value: f64| match value > 0.0 {
        true => format!("+{}", figure(value)),
        false => figure(value),
    };
    let difference = match (found.difference, found.low.zip(found.high)) {
        (None, _) => String::new(),
        (Some(value), None) => signed(value),
        (Some(value), Some((low, high))) => {
            format!("{} ({} to {})", signed(value), signed(low), signed(high))
        }
    };
    let p_value = found.p_value.map_or_else(String::new, |p| match p < 0.001 {
        true => "<0.001".to_owned(),
        false => format!("{p:.3}"),
    });
    [shown(found.first), shown(found.second), difference, p_value]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Measured, Settings, compare_heads};
    use crate::model::Task;
    use crate::screen::columns_of;

    fn measured(shift: usize) -> Measured {
        let truth = |place: usize| match place % 3 {
            2 => Some(1.0),
            _ => Some(f64::from(u8::from(place / 3 * 7 % 5 < 2))),
        };
        let value = |place: usize| {
            let noise = ((place + shift) * 7919 % 401) as f64 / 401.0;
            0.7 * noise + 0.3 * truth(place).unwrap_or(0.5)
        };
        Measured {
            task: Task::Multilabel,
            labels: ["Pleural Effusion", "Edema", "Rare"].map(str::to_owned).to_vec(),
            values: (0..150).map(value).collect(),
            truth: (0..150).map(truth).collect(),
        }
    }

    #[test]
    fn the_table_fits_every_width() {
        let patients: Vec<usize> = (0..50).map(|image| image / 2).collect();
        let settings = Settings { resamples: 100, ..Settings::default() };
        let (one, other) = (measured(0), measured(3));
        let found = compare_heads(&one, &other, &patients, &settings).expect("compares");
        let found = BTreeMap::from([("findings".to_owned(), found)]);
        let heads = [HeadLabels { name: "findings".to_owned(), labels: one.labels }];
        for columns in [40, 60, 80, 120] {
            let names = ["checkpoints/adamw", "checkpoints/sgd"];
            let text = comparison_text(&found, names, &heads, Frame::Utf8, columns);
            assert!(text.lines().all(|line| columns_of(line) <= columns), "{columns}\n{text}");
            if columns == 60 || columns == 120 {
                insta::assert_snapshot!(format!("comparison_{columns}"), text);
            }
        }
    }
}
