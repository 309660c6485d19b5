//! What is predicted of images without a truth, row by row, as CSV or as JSON lines.

use std::io::{self, Write};

use serde_json::json;

use super::DecisionSet;
use super::predictions::DECISION;
use crate::model::{HeadConfig, Task};

const SPREAD: &str = "/spread";
const CONFORMAL: &str = "/conformal";

/// What is told of every image.
#[derive(Debug, Clone)]
pub struct PredictedTable {
    /// The heads, in the order of the configuration.
    pub heads: Vec<HeadConfig>,
    /// Whether it is told how far several predictions of an image lie apart.
    pub spread: bool,
    /// Whether sets of decisions are told.
    pub sets: bool,
}

/// An image and what became of its prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedImage {
    /// The image's name.
    pub path: String,
    /// Whose image it is.
    pub patient: String,
    /// One for each label, head by head; or the reason why nothing is predicted.
    pub labels: Result<Vec<PredictedValue>, String>,
}

/// What is predicted of one label of one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedValue {
    /// The probability, or the number of a `regression` head.
    pub value: f64,
    /// Whether the label is decided to be there; `None` where nothing is decided.
    pub decision: Option<bool>,
    /// The standard deviation of the values of which `value` is the mean.
    pub spread: Option<f64>,
    /// What is not ruled out; for a class of a `multiclass` head `positive` says whether it is not.
    pub set: Option<DecisionSet>,
}

/// How a table of predictions is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Comma-separated, with a header.
    Csv,
    /// A JSON object on each line.
    Jsonl,
}

/// A label with what its columns depend on.
struct Column<'a> {
    head: &'a str,
    label: &'a str,
    task: Task,
}

impl PredictedTable {
    fn columns(&self) -> impl Iterator<Item = Column<'_>> {
        self.heads.iter().flat_map(|head| {
            let column = |label| Column { head: &head.name, label, task: head.task };
            head.labels.iter().map(move |label| column(label))
        })
    }

    /// The columns of a label, the value's first.
    fn names(&self, of: &Column<'_>) -> Vec<String> {
        let decides = of.task != Task::Regression;
        let told = [
            (true, ""),
            (decides, DECISION),
            (self.spread, SPREAD),
            (decides && self.sets, CONFORMAL),
        ];
        let told = told.into_iter().filter(|(told, _)| *told);
        told.map(|(_, ending)| format!("{}/{}{ending}", of.head, of.label)).collect()
    }

    /// The fields of a label, in the order of its columns.
    fn fields(&self, of: &Column<'_>, value: &PredictedValue) -> Vec<String> {
        let mut fields = vec![value.value.to_string()];
        if of.task != Task::Regression {
            fields.push(value.decision.map_or_else(String::new, |is| u8::from(is).to_string()));
        }
        if self.spread {
            fields.push(value.spread.map_or_else(String::new, |spread| spread.to_string()));
        }
        if of.task != Task::Regression && self.sets {
            fields.push(value.set.map_or_else(String::new, |set| match of.task {
                Task::Multiclass => u8::from(set.positive).to_string(),
                _ => set.to_string(),
            }));
        }
        fields
    }

    /// A label as JSON.
    fn object(&self, of: &Column<'_>, value: &PredictedValue) -> String {
        let decides = of.task != Task::Regression;
        let name = if decides { "probability" } else { "value" };
        let mut members = vec![(name, json!(value.value))];
        if decides {
            members.push(("decision", json!(value.decision.map(u8::from))));
        }
        if self.spread {
            members.push(("spread", json!(value.spread)));
        }
        if let (Some(set), true) = (value.set, self.sets) {
            let of_decisions = [(set.negative, 0), (set.positive, 1)].into_iter();
            let set = match of.task {
                Task::Multiclass => json!(u8::from(set.positive)),
                _ => of_decisions.filter(|(is, _)| *is).map(|(_, decision)| decision).collect(),
            };
            members.push(("conformal", set));
        }
        object(members.into_iter().map(|(name, value)| (name, value.to_string())))
    }

    /// An image as JSON, its heads and labels in the order of the configuration.
    fn line(&self, image: &PredictedImage) -> String {
        let (name, told) = match &image.labels {
            Err(reason) => ("error", json!(reason).to_string()),
            Ok(values) => {
                let mut labels = self.columns().zip(values).peekable();
                let mut heads = Vec::new();
                for head in &self.heads {
                    let of_head = std::iter::from_fn(|| {
                        labels.next_if(|(column, _)| column.head == head.name)
                    });
                    let of_head = of_head.map(|(of, value)| (of.label, self.object(&of, value)));
                    heads.push((head.name.as_str(), object(of_head)));
                }
                ("heads", object(heads.into_iter()))
            }
        };
        let [path, patient] = [&image.path, &image.patient].map(|text| json!(text).to_string());
        object([("path", path), ("patient", patient), (name, told)].into_iter())
    }
}

/// A JSON object of members whose values are JSON already, in their order.
fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> =
        members.map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// Writes predictions row by row.
///
/// A CSV table has the columns `path` and `patient`, for each label `<head>/<label>` (the probability, or
/// the number), `<head>/<label>/decision` (1 or 0), `/spread` and `/conformal` where they are told, and at
/// last `error`: why nothing is predicted of the image, whose other fields are empty.
pub struct PredictedWriter<W: Write> {
    to: To<W>,
    table: PredictedTable,
}

enum To<W: Write> {
    Csv(Box<csv::Writer<W>>),
    Jsonl(W),
}

impl<W: Write> PredictedWriter<W> {
    /// Writes the header, where there is one.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn new(into: W, format: TableFormat, table: PredictedTable) -> io::Result<Self> {
        let to = match format {
            TableFormat::Jsonl => To::Jsonl(into),
            TableFormat::Csv => {
                let mut writer = csv::Writer::from_writer(into);
                let labels = table.columns().flat_map(|column| table.names(&column));
                let ends = |name: &str| [name.to_owned()];
                let names = ["path", "patient"].map(str::to_owned).into_iter();
                writer.write_record(names.chain(labels).chain(ends("error")))?;
                To::Csv(Box::new(writer))
            }
        };
        Ok(Self { to, table })
    }

    /// Writes the row of an image. Numbers are written with as many digits as it takes to read the
    /// same number back.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn write(&mut self, image: &PredictedImage) -> io::Result<()> {
        let table = &self.table;
        match &mut self.to {
            To::Csv(writer) => writer.write_record(record(table, image)).map_err(io::Error::from),
            To::Jsonl(to) => writeln!(to, "{}", table.line(image)),
        }
    }

    /// Hands on what was written.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Csv(writer) => writer.flush(),
            To::Jsonl(to) => to.flush(),
        }
    }
}

/// The fields of an image's row.
fn record(table: &PredictedTable, image: &PredictedImage) -> Vec<String> {
    let mut fields = vec![image.path.clone(), image.patient.clone()];
    match &image.labels {
        Ok(values) => {
            let labels = table.columns().zip(values);
            fields.extend(labels.flat_map(|(column, value)| table.fields(&column, value)));
            fields.push(String::new());
        }
        Err(reason) => {
            let empty: usize = table.columns().map(|column| table.names(&column).len()).sum();
            fields.extend(std::iter::repeat_n(String::new(), empty));
            fields.push(reason.clone());
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: TableFormat) -> String {
        let head = |name: &str, task: &str, labels: &[&str]| -> HeadConfig {
            let head = json!({ "name": name, "task": task, "labels": labels });
            serde_json::from_value(head).expect("reads")
        };
        let table = PredictedTable {
            heads: vec![
                head("findings", "multilabel", &["Edema", "Mass/Nodule"]),
                head("view", "multiclass", &["PA", "AP"]),
                head("age", "regression", &["years"]),
            ],
            spread: true,
            sets: true,
        };
        let value = |value, decision, [negative, positive]: [bool; 2]| PredictedValue {
            value,
            decision,
            spread: Some(0.125),
            set: Some(DecisionSet { negative, positive }),
        };
        let labels = vec![
            value(0.1 + 0.2, Some(true), [true, true]),
            value(0.5, None, [false, false]),
            value(0.75, Some(true), [false, true]),
            value(0.25, Some(false), [true, false]),
            PredictedValue { value: 63.0, decision: None, spread: Some(2.0), set: None },
        ];
        let image = |path: &str, labels| PredictedImage {
            path: path.to_owned(),
            patient: "p, 1".to_owned(),
            labels,
        };
        let mut bytes = Vec::new();
        let mut writer = PredictedWriter::new(&mut bytes, format, table).expect("writes");
        writer.write(&image("a.png", Ok(labels))).expect("writes");
        writer.write(&image("b.png", Err("the file is empty".to_owned()))).expect("writes");
        writer.flush().expect("writes");
        drop(writer);
        String::from_utf8(bytes).expect("is text")
    }

    #[test]
    fn a_table_has_a_row_for_each_image_that_could_be_read_or_not() {
        insta::assert_snapshot!(written(TableFormat::Csv));
        let text = written(TableFormat::Csv);
        let columns = csv::Reader::from_reader(text.as_bytes()).headers().expect("reads").len();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> =
            reader.records().collect::<Result<_, _>>().expect("every row is as long");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][2].parse::<f64>().expect("a number"), 0.1 + 0.2);
        assert_eq!(&rows[1][columns - 1], "the file is empty");
    }

    #[test]
    fn json_lines_hold_the_same() {
        insta::assert_snapshot!(written(TableFormat::Jsonl));
    }
}
