//! The closing table: what the best and the last epoch reached, and where to go from there.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use comfy_table::presets::{ASCII_FULL_CONDENSED, UTF8_FULL_CONDENSED};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::{End, EpochValues, Event, HeadLabels, Report, ReportError};

/// The characters a table is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// `+-|`: readable everywhere.
    Ascii,
    /// Box-drawing characters.
    Utf8,
}

/// Writes the table at the end of a run.
#[derive(Debug)]
pub struct ClosingTable<W> {
    to: W,
    frame: Frame,
    heads: Vec<HeadLabels>,
}

impl ClosingTable<io::Stdout> {
    /// On standard output; drawn in UTF-8 on a terminal whose locale says so.
    pub fn on_stdout() -> Self {
        let stdout = io::stdout();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .unwrap_or_default()
            .to_lowercase();
        let utf8 = stdout.is_terminal() && (locale.contains("utf-8") || locale.contains("utf8"));
        Self::new(stdout, if utf8 { Frame::Utf8 } else { Frame::Ascii })
    }
}

impl<W: Write> ClosingTable<W> {
    /// Written to `to`.
    pub fn new(to: W, frame: Frame) -> Self {
        Self { to, frame, heads: Vec::new() }
    }
}

impl<W: Write> Report for ClosingTable<W> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        match event {
            Event::Start(start) => self.heads.clone_from(&start.heads),
            Event::End(end) => {
                let text = closing(end, &self.heads, self.frame);
                let written = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
                return match written {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    written => {
                        written.map_err(ReportError::at("write to", "standard output".as_ref()))
                    }
                };
            }
            _ => {}
        }
        Ok(())
    }
}

fn closing(end: &End, heads: &[HeadLabels], frame: Frame) -> String {
    let mut text = table(end, heads, frame).trim_fmt();
    text.push('\n');
    let weights = end.weights.iter().map(|file| ("weights", file.display().to_string()));
    let next = end.next.iter().map(|(what, command)| (what.as_str(), command.clone()));
    for (what, value) in weights.chain(next) {
        text.push_str(&format!("{what:<9} {value}\n"));
    }
    text
}

fn table(end: &End, heads: &[HeadLabels], frame: Frame) -> Table {
    let columns: Vec<(String, &EpochValues)> = end
        .best
        .iter()
        .map(|best| (format!("best (epoch {})", best.values.epoch), &best.values))
        .chain([(format!("last (epoch {})", end.last.epoch), &end.last)])
        .collect();
    let mut table = Table::new();
    table.load_style(match frame {
        Frame::Ascii => ASCII_FULL_CONDENSED,
        Frame::Utf8 => UTF8_FULL_CONDENSED,
    });
    table.set_content_arrangement(ContentArrangement::Disabled);
    let right = |text: &str| Cell::new(text).set_alignment(CellAlignment::Right);
    let titles = columns.iter().map(|(title, _)| right(title));
    table.set_header(["head", "metric", "label"].map(Cell::new).into_iter().chain(titles));
    for row in rows(&columns, heads) {
        let names = [row.head, row.metric, row.label].map(Cell::new);
        let values = columns.iter().map(|(_, values)| {
            let set = if row.train { &values.train } else { &values.val };
            match set.get(&row.key) {
                Some(value) => right(&shown(*value, end.undefined.get(&row.key))),
                None => Cell::new(""),
            }
        });
        table.add_row(names.into_iter().chain(values));
    }
    table
}

/// One line of the table; `key` names its value among those of an epoch.
#[derive(Debug)]
struct Row<'a> {
    train: bool,
    key: String,
    head: &'a str,
    metric: &'a str,
    label: &'a str,
}

/// The losses, then the heads in their order with their metrics; of the metrics of single labels,
/// AUROC only (`metrics.jsonl` holds all).
fn rows<'a>(columns: &[(String, &'a EpochValues)], heads: &'a [HeadLabels]) -> Vec<Row<'a>> {
    let loss = |train, metric| Row { train, key: "loss".to_owned(), head: "", metric, label: "" };
    let has_loss = |train: bool| {
        columns
            .iter()
            .any(|(_, values)| if train { &values.train } else { &values.val }.contains_key("loss"))
    };
    let losses = [loss(true, "train loss"), loss(false, "val loss")];
    let mut rows: Vec<Row> = losses.into_iter().filter(|row| has_loss(row.train)).collect();

    let mut others = BTreeMap::new();
    for key in columns.iter().flat_map(|(_, values)| values.val.keys()) {
        let mut parts = key.splitn(3, '/');
        let (Some(head), Some(metric)) = (parts.next(), parts.next()) else { continue };
        let label = parts.next().unwrap_or_default();
        if !label.is_empty() && metric != "auroc" {
            continue;
        }
        let known = heads.iter().find(|known| known.name == head);
        let labels = known.map_or(&[][..], |known| &known.labels);
        // Absent ones come last, in the order of their names.
        let head_place = heads.iter().position(|known| known.name == head).unwrap_or(heads.len());
        let label_place = labels.iter().position(|known| known == label).unwrap_or(labels.len());
        let order = (
            (head_place, head),
            (metric != "loss", metric),
            (!label.is_empty(), label_place, label),
        );
        others.insert(order, Row { train: false, key: key.clone(), head, metric, label });
    }
    rows.extend(others.into_values());
    rows
}

fn shown(value: Option<f64>, reason: Option<&String>) -> String {
    match (value, reason) {
        (Some(value), _) => format!("{value:.4}"),
        (None, Some(reason)) => format!("undefined ({reason})"),
        (None, None) => "undefined".to_owned(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::examples;
    use super::*;

    fn told(frame: Frame, events: &[Event]) -> String {
        let mut table = ClosingTable::new(Vec::new(), frame);
        events.iter().for_each(|event| table.event(event).unwrap());
        String::from_utf8(table.to).unwrap()
    }

    #[test]
    fn the_table_shows_best_and_last_for_each_head_and_the_way_on() {
        let text = told(Frame::Utf8, &[examples::start(), examples::epoch(), examples::end()]);
        insta::assert_snapshot!(text, @r#"
        ┌──────────┬────────────┬──────────────┬────────────────────────────┬─────────────────┐
        │ head     ┆ metric     ┆ label        ┆             best (epoch 7) ┆ last (epoch 12) │
        ╞══════════╪════════════╪══════════════╪════════════════════════════╪═════════════════╡
        │          ┆ train loss ┆              ┆                     0.3000 ┆          0.2000 │
        │          ┆ val loss   ┆              ┆                     0.2810 ┆          0.3412 │
        │ view     ┆ accuracy   ┆              ┆                     0.9375 ┆          0.9375 │
        │ findings ┆ loss       ┆              ┆                     0.1405 ┆          0.1706 │
        │ findings ┆ auroc      ┆              ┆                     0.8941 ┆          0.8817 │
        │ findings ┆ auroc      ┆ Edema        ┆ undefined (one class only) ┆          0.7500 │
        │ findings ┆ auroc      ┆ Cardiomegaly ┆                     0.8941 ┆          0.8817 │
        └──────────┴────────────┴──────────────┴────────────────────────────┴─────────────────┘
        weights   checkpoints/xray/best/weights.safetensors
        resume    trainer run checkpoints/xray/config.toml --resume
        "#);
    }

    #[test]
    fn without_utf8_and_a_best_epoch_there_is_an_ascii_table_of_the_last() {
        let Event::End(mut end) = examples::end() else { panic!("an end") };
        end.best = None;
        end.weights = None;
        end.next.clear();
        let text = told(Frame::Ascii, &[Event::End(end)]);
        assert!(text.is_ascii());
        insta::assert_snapshot!(text, @r#"
        +----------+------------+--------------+-----------------+
        | head     | metric     | label        | last (epoch 12) |
        +========================================================+
        |          | train loss |              |          0.2000 |
        |          | val loss   |              |          0.3412 |
        | findings | loss       |              |          0.1706 |
        | findings | auroc      |              |          0.8817 |
        | findings | auroc      | Cardiomegaly |          0.8817 |
        | findings | auroc      | Edema        |          0.7500 |
        | view     | accuracy   |              |          0.9375 |
        +----------+------------+--------------+-----------------+
        "#);
    }

    #[test]
    fn a_run_that_does_not_end_prints_no_table() {
        assert_eq!(told(Frame::Ascii, &[examples::start(), examples::epoch()]), "");
    }
}
