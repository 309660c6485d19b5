//! The rows of a sweep as tables: Markdown, CSV, and drawn as wide as the page.

use super::row::{Row, Status};
use crate::metric::higher_is_better;
use crate::screen::{self, Bytes, Frame, Table, wrapped};

/// A column of figures: its title and its text.
pub(super) type Column = (&'static str, fn(&Row) -> Option<String>);

const FIGURES: [Column; 19] = [
    ("status", |row| Some(row.status.name().to_owned())),
    ("metric", |row| row.metric.clone()),
    ("best", |row| row.best.map(|value| format!("{value:.4}"))),
    ("best epoch", |row| row.best_epoch.map(|epoch| epoch.to_string())),
    ("last", |row| row.last.map(|value| format!("{value:.4}"))),
    ("epochs", |row| row.epochs.map(|epochs| epochs.to_string())),
    ("seconds", |row| row.seconds.map(|seconds| format!("{seconds:.1}"))),
    ("live MiB", |row| row.live.map(mib)),
    ("peak MiB", |row| row.peak.map(mib)),
    ("predicted MiB", |row| row.predicted_peak.map(mib)),
    ("reserved MiB", |row| row.reserved.map(mib)),
    ("SMI MiB", |row| row.smi.map(mib)),
    ("out by MiB", |row| row.oversubscribed.map(mib)),
    ("peak %", |row| row.percent.map(|percent| format!("{percent:.1}"))),
    ("SMI %", |row| row.smi_percent.map(|percent| format!("{percent:.1}"))),
    ("recomputed %", |row| row.recomputed_percent.map(|percent| format!("{percent:.1}"))),
    ("ms/step", |row| row.ms_per_step.map(|ms| format!("{ms:.2}"))),
    ("images/s", |row| row.images_per_second.map(|rate| format!("{rate:.1}"))),
    ("loss", |row| row.loss.map(|loss| format!("{loss:.4}"))),
];

/// The figures that are words.
const WORDS: [&str; 2] = ["status", "metric"];

fn mib(bytes: u64) -> String {
    format!("{:.1}", Bytes(bytes).mebibytes())
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> =
        cells.map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A swept value as it is written, without the quotes of a string.
pub(super) fn value(row: &Row, key: &str) -> String {
    match row.set.get(key) {
        Some(toml::Value::String(text)) => text.clone(),
        // TOML's own form writes 1e38 with all its zeros.
        Some(toml::Value::Float(number)) => format!("{number:?}"),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// The columns of figures that some row has.
pub(super) fn figures(rows: &[Row]) -> Vec<&'static Column> {
    let has = |column: &&Column| rows.iter().any(|row| column.1(row).is_some());
    FIGURES.iter().filter(has).collect()
}

/// The rows as a Markdown table with the columns that some row has, then what the percentages are of
/// and why rows were not measured.
pub fn markdown(keys: &[String], rows: &[Row]) -> String {
    let figures = figures(rows);
    let titles = keys.iter().map(String::as_str).chain(figures.iter().map(|column| column.0));
    let rule = |column: &&Column| if WORDS.contains(&column.0) { "---" } else { "---:" };
    let rules = keys.iter().map(|_| "---").chain(figures.iter().map(rule));
    let mut text = line(titles.map(str::to_owned)) + &line(rules.map(str::to_owned));
    for row in rows {
        let values = keys.iter().map(|key| value(row, key));
        let figures = figures.iter().map(|column| column.1(row).unwrap_or_default());
        text += &line(values.chain(figures));
    }
    text + &notes(keys, rows)
}

/// The rows as a table in lines of at most `columns`, then what the percentages are of and why rows
/// were not measured.
pub fn drawn(keys: &[String], rows: &[Row], frame: Frame, columns: usize) -> String {
    let titles = short(keys).into_iter().map(screen::Column::words);
    let figures = FIGURES.iter().map(|(title, _)| match WORDS.contains(title) {
        true => screen::Column::words(*title),
        false => screen::Column::numbers(*title),
    });
    let mut table = Table::new(titles.chain(figures).collect(), keys.len());
    for row in rows {
        let values = keys.iter().map(|key| value(row, key));
        let figures = FIGURES.iter().map(|column| column.1(row).unwrap_or_default());
        table.add(values.chain(figures).collect());
    }
    format!("{}\n{}", table.draw(frame, columns), wrapped(&notes(keys, rows), columns, 2))
}

/// The last part of each key, and as many before it as tell the keys apart.
pub(super) fn short(keys: &[String]) -> Vec<String> {
    let ends = |parts: usize| -> Vec<String> {
        let end = |key: &String| {
            let all: Vec<&str> = key.split('.').collect();
            all[all.len().saturating_sub(parts)..].join(".")
        };
        keys.iter().map(end).collect()
    };
    let differ = |titles: &Vec<String>| {
        titles.iter().enumerate().all(|(place, title)| !titles[..place].contains(title))
    };
    let most = keys.iter().map(|key| key.split('.').count()).max().unwrap_or(1);
    (1..=most).map(ends).find(differ).unwrap_or_else(|| keys.to_vec())
}

/// What the percentages are of, which row is best and why rows were not measured, a paragraph each.
fn notes(keys: &[String], rows: &[Row]) -> String {
    let remarks = remarks(keys, rows).into_iter().map(|remark| format!("\n{remark}\n"));
    let reason = |reason: String| format!("\n- {}\n", reason.replace('\n', "\n  "));
    remarks.chain(reasons(keys, rows).into_iter().map(reason)).collect()
}

/// The keys with their values in a row.
fn name(keys: &[String], row: &Row) -> String {
    let values = keys.iter().map(|key| format!("{key}={}", value(row, key)));
    values.collect::<Vec<_>>().join(", ")
}

/// What the percentages are of, and which row is best, a sentence each.
pub(super) fn remarks(keys: &[String], rows: &[Row]) -> Vec<String> {
    let reference = rows.iter().find(|row| row.reference);
    let percentages = reference.map(|row| match row.status {
        Status::Ok => format!("Percentages are of {}.", name(keys, row)),
        status => {
            format!("No percentages: the reference is {}: {}.", name(keys, row), status.name())
        }
    });
    let best = best(rows).map(|(row, metric, value)| {
        let epoch = row.best_epoch.map(|epoch| format!(" in epoch {epoch}")).unwrap_or_default();
        format!("The best {metric} is {value:.4}, of {}{epoch}.", name(keys, row))
    });
    percentages.into_iter().chain(best).collect()
}

/// Why rows were not measured.
pub(super) fn reasons(keys: &[String], rows: &[Row]) -> Vec<String> {
    let reason = |row: &Row| {
        let (status, message) = (row.status.name(), row.message.as_ref()?);
        // The error of a combination that runs out of memory begins with that.
        let message = message.strip_prefix(&format!("{status}: ")).unwrap_or(message);
        Some(format!("{}: {status}: {message}", name(keys, row)))
    };
    rows.iter().filter_map(reason).collect()
}

/// The row with the best value, the metric and the value, where all rows were watched by one metric.
fn best(rows: &[Row]) -> Option<(&Row, &str, f64)> {
    let metric = rows.iter().find_map(|row| row.metric.as_deref())?;
    let higher = higher_is_better(metric)?;
    if rows.iter().any(|row| row.metric.as_deref().is_some_and(|other| other != metric)) {
        return None;
    }
    let values = rows.iter().filter_map(|row| Some((row, metric, row.best?)));
    values.reduce(|best, next| {
        let better = if higher { next.2 > best.2 } else { next.2 < best.2 };
        if better { next } else { best }
    })
}

/// One row in one line.
pub fn summary(row: &Row) -> String {
    let trained = row.metric.as_ref().map(|metric| {
        let number =
            |value: Option<f64>| value.map_or("undefined".to_owned(), |v| format!("{v:.4}"));
        let epoch = row.best_epoch.map(|epoch| format!(" (epoch {epoch})")).unwrap_or_default();
        format!("{metric} best {}{epoch}, last {}", number(row.best), number(row.last))
    });
    let figures = [
        trained,
        row.seconds.map(|seconds| format!("{seconds:.1} s")),
        row.peak.map(|bytes| format!("peak {} MiB", mib(bytes))),
        row.percent.map(|percent| format!("{percent:.1}%")),
        row.ms_per_step.map(|ms| format!("{ms:.2} ms/step")),
        row.images_per_second.map(|rate| format!("{rate:.1} images/s")),
        row.loss.map(|loss| format!("loss {loss:.4}")),
        row.oversubscribed.map(|bytes| format!("by {} MiB", mib(bytes))),
    ];
    let status = (row.status != Status::Ok).then(|| row.status.name().to_owned());
    let first = row.message.as_ref().and_then(|text| text.lines().next()).map(str::to_owned);
    let reason = first.filter(|_| row.status == Status::Failed);
    status
        .into_iter()
        .chain(figures.into_iter().flatten())
        .chain(reason)
        .collect::<Vec<_>>()
        .join("  ")
}

/// The rows as CSV, bytes as bytes.
pub fn csv(keys: &[String], rows: &[Row]) -> String {
    const NAMES: [&str; 24] = [
        "status",
        "live",
        "peak",
        "predicted_peak",
        "reserved",
        "smi",
        "oversubscribed",
        "percent",
        "smi_percent",
        "reference",
        "recomputed_percent",
        "ms_per_step",
        "images_per_second",
        "loss",
        "device",
        "message",
        "exit_code",
        "metric",
        "best",
        "best_epoch",
        "last",
        "epochs",
        "seconds",
        "run",
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(keys.iter().map(String::as_str).chain(NAMES));
    for row in rows {
        let json = serde_json::to_value(row).unwrap_or_default();
        let figure = |name: &&str| match &json[*name] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let figures = NAMES.iter().map(figure);
        let _ = writer.write_record(keys.iter().map(|key| value(row, key)).chain(figures));
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::columns_of;
    use crate::sweep::row::{Set, relate};

    fn keys() -> Vec<String> {
        ["train.batch_size", "train.optimizer.adamw.lr"].map(str::to_owned).to_vec()
    }

    fn row(batch: i64, lr: f64, status: Status) -> Row {
        let values: [toml::Value; 2] = [batch.into(), lr.into()];
        Row::new(keys().into_iter().zip(values).collect::<Set>(), status)
    }

    /// Two rows that were measured and one that ran out of memory.
    fn measured() -> Vec<Row> {
        let mut rows: Vec<Row> = [(8, 3e-4), (16, 3e-4), (1024, 3e-3)]
            .map(|(batch, lr)| row(batch, lr, Status::Ok))
            .to_vec();
        for (row, peak) in rows.iter_mut().zip([635_000_000, 1_200_000_000]) {
            (row.peak, row.predicted_peak, row.live) = (Some(peak), Some(peak), Some(90_000_000));
            (row.ms_per_step, row.images_per_second) = (Some(83.2), Some(96.1));
            (row.loss, row.recomputed_percent) = (Some(0.5), Some(0.0));
        }
        rows[2].status = Status::OutOfMemory;
        rows[2].oversubscribed = Some(40_000_000_000);
        rows[2].message = Some("out of memory: 37.3 GiB asked for\n  in a convolution".to_owned());
        relate(&mut rows, &mut [], None);
        rows
    }

    fn trained() -> Vec<Row> {
        let mut rows = measured();
        for (row, best) in rows.iter_mut().zip([0.8712, 0.9023]) {
            (row.ms_per_step, row.loss, row.recomputed_percent) = (None, None, None);
            (row.metric, row.best) = (Some("val/findings/auroc".to_owned()), Some(best));
            (row.best_epoch, row.last) = (Some(2), Some(best - 0.01));
            (row.epochs, row.seconds) = (Some(3), Some(12.34));
        }
        rows
    }

    #[test]
    fn the_table_fits_every_width() {
        for (name, rows) in [("measured", measured()), ("trained", trained())] {
            for columns in [40, 80, 120, 200] {
                let text = drawn(&keys(), &rows, Frame::Ascii, columns);
                assert!(text.lines().all(|line| columns_of(line) <= columns), "{columns}\n{text}");
                insta::assert_snapshot!(format!("{name}_{columns}"), text);
            }
        }
    }

    #[test]
    fn the_best_row_is_by_the_direction_of_the_metric() {
        let mut rows = trained();
        assert_eq!(best(&rows).map(|(_, _, value)| value), Some(0.9023));
        rows.iter_mut().for_each(|row| row.metric = Some("val/loss".to_owned()));
        assert_eq!(best(&rows).map(|(_, _, value)| value), Some(0.8712));
        rows[0].metric = Some("val/findings/auroc".to_owned());
        assert_eq!(best(&rows), None);
    }

    #[test]
    fn titles_are_as_short_as_they_can_be_told_apart() {
        let titles =
            |keys: &[&str]| short(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        assert_eq!(titles(&["train.batch_size", "train.optimizer.adamw.lr"]), ["batch_size", "lr"]);
        assert_eq!(
            titles(&["train.optimizer.sgd.lr", "train.optimizer.adamw.lr"]),
            ["sgd.lr", "adamw.lr"]
        );
        assert_eq!(titles(&["run", "other.run"]), ["run", "other.run"]);
    }

    #[test]
    fn a_markdown_table_has_no_empty_column() {
        let text = markdown(&keys(), &measured());
        let head = text.lines().next().expect("a head");
        assert!(!head.contains("SMI") && !head.contains("reserved"), "{head}");
        assert!(head.contains("out by MiB") && head.contains("status"), "{head}");
    }
}
