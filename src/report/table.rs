//! The closing table: what the best and the last epoch reached, and where to go from there.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{End, EpochValues, Event, HeadLabels, Report, ReportError, lines};
use crate::screen::{Column, Frame, Table, say, stdout_columns, visible, wrapped};

/// Writes the table at the end of a run.
#[derive(Debug)]
pub struct ClosingTable<W> {
    to: W,
    frame: Frame,
    /// How wide the page is then.
    columns: fn() -> usize,
    heads: Vec<HeadLabels>,
    /// The metric watched.
    watched: Option<String>,
}

impl ClosingTable<io::Stdout> {
    /// On standard output.
    pub fn on_stdout() -> Self {
        Self::new(io::stdout(), Frame::of_stdout(), stdout_columns)
    }
}

impl<W: Write> ClosingTable<W> {
    /// Written to `to`.
    pub fn new(to: W, frame: Frame, columns: fn() -> usize) -> Self {
        Self { to, frame, columns, heads: Vec::new(), watched: None }
    }
}

impl<W: Write> Report for ClosingTable<W> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        match event {
            Event::Start(start) => {
                self.heads.clone_from(&start.heads);
                self.watched = start.watched.as_ref().map(|watched| watched.metric.clone());
            }
            Event::End(end) => {
                let mut text = closing(end, &self.heads, self.frame, (self.columns)());
                if let Some(line) = lines::no_best(end, self.watched.as_deref()) {
                    text += &format!("{}\n", wrapped(&line, (self.columns)(), 2));
                }
                // What the run came to is in its folder; the table is for a person to look at.
                if let Err(error) = write(&mut self.to, &visible(&text)) {
                    say(format_args!(
                        "warning: the closing table cannot be written: {}",
                        error.source
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Writes the last event as JSON, a line as in `metrics.jsonl`.
#[derive(Debug)]
pub struct ClosingJson<W>(pub W);

impl<W: Write> Report for ClosingJson<W> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        let Event::End(_) = event else { return Ok(()) };
        let line = serde_json::to_string(event).map_err(io::Error::from);
        let line = line.map_err(ReportError::at("write to", "standard output".as_ref()))?;
        write(&mut self.0, &format!("{line}\n"))
    }
}

/// Nobody need read it to its end.
fn write(to: &mut impl Write, text: &str) -> Result<(), ReportError> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(ReportError::at("write to", "standard output".as_ref())),
    }
}

fn closing(end: &End, heads: &[HeadLabels], frame: Frame, columns: usize) -> String {
    let mut text = table(end, heads).draw(frame, columns);
    text.push('\n');
    // The same labels are missing under one metric as under another.
    let mut undefined: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &end.undefined {
        undefined.entry(reason).or_default().push(name);
    }
    for (reason, names) in undefined {
        let line = format!("undefined ({reason}): {}", names.join(", "));
        text.push_str(&format!("{}\n", wrapped(&line, columns, 2)));
    }
    let weights = end.weights.iter().map(|file| ("weights", file.display().to_string()));
    let next = end.next.iter().map(|(what, command)| (what.as_str(), command.clone()));
    for (what, value) in weights.chain(next) {
        text.push_str(&format!("{what:<9} {value}\n"));
    }
    text
}

fn table(end: &End, heads: &[HeadLabels]) -> Table {
    let best = end.best.as_ref().map(|best| &best.values);
    let epochs: Vec<(String, &EpochValues)> = match best {
        Some(best) if best.epoch == end.last.epoch => {
            vec![(format!("best and last (epoch {})", best.epoch), best)]
        }
        _ => best
            .map(|best| (format!("best (epoch {})", best.epoch), best))
            .into_iter()
            .chain([(format!("last (epoch {})", end.last.epoch), &end.last)])
            .collect(),
    };
    let names = ["head", "metric", "label"].map(Column::words);
    let values = epochs.iter().map(|(title, _)| Column::numbers(title).always());
    let mut table = Table::new(names.iter().cloned().chain(values).collect(), names.len());
    for row in rows(&epochs, heads) {
        let names = [row.head, row.metric, row.label].map(str::to_owned);
        let values = epochs.iter().map(|(_, values)| {
            let set = if row.train { &values.train } else { &values.val };
            set.get(&row.key).map_or_else(String::new, |value| shown(*value))
        });
        table.add(names.into_iter().chain(values).collect());
    }
    table
}

/// One line of the table; `key` names its value among those of an epoch.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub train: bool,
    pub key: String,
    pub head: &'a str,
    pub metric: &'a str,
    pub label: &'a str,
}

/// The losses, then the heads in their order with their metrics, each of the head and of its labels.
pub(super) fn rows<'a>(
    columns: &[(String, &'a EpochValues)],
    heads: &'a [HeadLabels],
) -> Vec<Row<'a>> {
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

pub(super) fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "undefined".to_owned(), |value| format!("{value:.4}"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::{Watched, examples};
    use super::*;
    use crate::screen::columns_of;

    fn told(frame: Frame, events: &[Event]) -> String {
        let mut table = ClosingTable::new(Vec::new(), frame, || 80);
        events.iter().for_each(|event| table.event(event).unwrap());
        String::from_utf8(table.to).unwrap()
    }

    #[test]
    fn the_table_shows_best_and_last_for_each_head_and_the_way_on() {
        let text = told(Frame::Utf8, &[examples::start(), examples::epoch(), examples::end()]);
        insta::assert_snapshot!(text, @r"
        ┌──────────┬────────────┬──────────────┬────────────────┬─────────────────┐
        │ head     ┆ metric     ┆ label        ┆ best (epoch 7) ┆ last (epoch 12) │
        ╞══════════╪════════════╪══════════════╪════════════════╪═════════════════╡
        │          ┆ train loss ┆              ┆         0.3000 ┆          0.2000 │
        │          ┆ val loss   ┆              ┆         0.2810 ┆          0.3412 │
        │ view     ┆ accuracy   ┆              ┆         0.9375 ┆          0.9375 │
        │ findings ┆ loss       ┆              ┆         0.1405 ┆          0.1706 │
        │ findings ┆ auroc      ┆              ┆         0.8941 ┆          0.8817 │
        │ findings ┆ auroc      ┆ Edema        ┆      undefined ┆          0.7500 │
        │ findings ┆ auroc      ┆ Cardiomegaly ┆         0.8941 ┆          0.8817 │
        └──────────┴────────────┴──────────────┴────────────────┴─────────────────┘
        undefined (one class only): findings/auroc/Edema
        weights   checkpoints/xray/best/weights.safetensors
        resume    trainer run checkpoints/xray/config.toml --resume
        ");
    }

    #[test]
    fn without_utf8_and_a_best_epoch_there_is_an_ascii_table_of_the_last() {
        let Event::End(mut end) = examples::end() else { panic!("an end") };
        end.best = None;
        end.weights = None;
        end.next.clear();
        let text = told(Frame::Ascii, &[Event::End(end)]);
        assert!(text.is_ascii());
        insta::assert_snapshot!(text, @r"
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
        undefined (one class only): findings/auroc/Edema
        ");
    }

    #[test]
    fn that_no_best_state_was_written_is_said_with_its_reason() {
        let (Event::Start(mut start), Event::End(mut end)) = (examples::start(), examples::end())
        else {
            panic!("a start and an end")
        };
        let (metric, value) = ("val/findings/auroc".to_owned(), None);
        start.watched = Some(Watched { metric, value, best: None, best_epoch: None });
        let said = "no best state: val/findings/auroc had no value in any epoch";
        let told =
            |end: &End| told(Frame::Ascii, &[Event::Start(start.clone()), Event::End(end.clone())]);
        assert!(!told(&end).contains(said), "{}", told(&end));
        end.best = None;
        assert!(told(&end).contains(said), "{}", told(&end));
    }

    #[test]
    fn a_script_gets_the_last_event_alone() {
        let mut json = ClosingJson(Vec::new());
        for event in [examples::start(), examples::epoch(), examples::end()] {
            json.event(&event).unwrap();
        }
        let written: serde_json::Value = serde_json::from_slice(&json.0).unwrap();
        assert_eq!(written, serde_json::to_value(examples::end()).unwrap());
    }

    #[test]
    fn a_best_epoch_that_is_the_last_is_one_column() {
        let Event::End(mut end) = examples::end() else { panic!("an end") };
        end.last = end.best.as_ref().expect("a best epoch").values.clone();
        let text = told(Frame::Ascii, &[examples::start(), Event::End(end)]);
        let title = text.lines().nth(1).unwrap();
        assert!(title.ends_with("| best and last (epoch 7) |"), "{text}");
    }

    #[test]
    fn the_table_fits_every_width() {
        let (Event::Start(start), Event::End(mut end)) = (examples::start(), examples::end())
        else {
            panic!("a start and an end")
        };
        let reason = "one class only: 0 positives of 120";
        end.undefined.insert("findings/auprc/Enlarged Cardiomediastinum".into(), reason.into());
        end.undefined.insert("findings/auroc/Enlarged Cardiomediastinum".into(), reason.into());
        for values in [&mut end.last, &mut end.best.as_mut().unwrap().values] {
            for metric in ["auroc", "auprc"] {
                values.val.insert(format!("findings/{metric}/Enlarged Cardiomediastinum"), None);
            }
        }
        for columns in [40, 80, 120, 200] {
            let text = closing(&end, &start.heads, Frame::Utf8, columns);
            // Paths and commands stay whole.
            let mut lines = text.lines().filter(|line| !line.contains("checkpoints/"));
            assert!(lines.all(|line| columns_of(line) <= columns), "{columns}\n{text}");
            insta::assert_snapshot!(format!("closing_{columns}"), text);
        }
    }

    #[test]
    fn a_run_that_does_not_end_prints_no_table() {
        assert_eq!(told(Frame::Ascii, &[examples::start(), examples::epoch()]), "");
    }
}
