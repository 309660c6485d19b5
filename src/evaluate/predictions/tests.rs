use proptest::prelude::*;

use super::*;

use std::path::Path;

use crate::model::HeadConfig;

fn columns(head: &str, label: &str, told: &str) -> PredictionColumns {
    PredictionColumns {
        head: head.to_owned(),
        label: label.to_owned(),
        decision: told.contains('d'),
        truth: told.contains('t'),
        spread: told.contains('s'),
        conformal: told.contains('c'),
    }
}

fn written(header: &PredictionHeader, predictions: &[Prediction]) -> Vec<u8> {
    let mut writer = PredictionWriter::new(Vec::new(), header).expect("writes");
    predictions.iter().for_each(|prediction| writer.write(prediction).expect("writes"));
    writer.finish().expect("writes")
}

fn read(bytes: &[u8]) -> Result<(PredictionHeader, Vec<Prediction>), PredictionError> {
    let reader = PredictionReader::new(bytes, Path::new("p.csv"))?;
    let header = reader.header().clone();
    Ok((header, reader.collect::<Result<_, _>>()?))
}

#[test]
fn the_header_is_the_one_that_scripts_are_written_against() {
    let labels = vec![
        columns("findings", "Edema", "d"),
        columns("findings", "both/and", "dt"),
        columns("age", "Years", ""),
    ];
    let header = PredictionHeader { labels, error: false };
    let label =
        |value, decision, truth| PredictedLabel { value, decision, truth, ..Default::default() };
    let prediction = Prediction {
        path: "a/1.png".to_owned(),
        patient: "p, 1".to_owned(),
        told: Ok(vec![
            label(0.25, Some(false), None),
            label(1e-12, Some(true), Some(1.0)),
            label(61.5, None, None),
        ]),
    };
    let bytes = written(&header, std::slice::from_ref(&prediction));
    insta::assert_snapshot!(String::from_utf8_lossy(&bytes), @r#"
    path,patient,findings/Edema,findings/Edema/decision,findings/both/and,findings/both/and/decision,findings/both/and/truth,age/Years
    a/1.png,"p, 1",0.25,0,0.000000000001,1,1,61.5
    "#);
    assert_eq!(read(&bytes).expect("reads"), (header, vec![prediction]));
}

/// What `trainer predict` tells of one image that could be read and of one that could not.
fn predicted() -> (PredictionHeader, Vec<Prediction>) {
    let labels = vec![
        columns("findings", "Edema", "dsc"),
        columns("findings", "Mass/Nodule", "dsc"),
        columns("view", "PA", "dsc"),
        columns("view", "AP", "dsc"),
        columns("age", "years", "s"),
    ];
    let label = |value, decision, conformal| PredictedLabel {
        value,
        decision,
        truth: None,
        spread: Some(0.125),
        conformal,
    };
    let set =
        |negative, positive| Some(PredictedSet::Decisions(DecisionSet { negative, positive }));
    let told = vec![
        label(0.1 + 0.2, Some(true), set(true, true)),
        label(0.5, None, set(false, false)),
        label(0.75, Some(true), Some(PredictedSet::Class(true))),
        label(0.25, Some(false), Some(PredictedSet::Class(false))),
        label(63.0, None, None),
    ];
    let image =
        |path: &str, told| Prediction { path: path.to_owned(), patient: "p, 1".to_owned(), told };
    let images =
        vec![image("a.png", Ok(told)), image("b.png", Err("the file is empty".to_owned()))];
    (PredictionHeader { labels, error: true }, images)
}

#[test]
fn a_table_has_a_row_for_each_image_that_could_be_read_or_not_and_reads_the_same() {
    let (header, images) = predicted();
    let bytes = written(&header, &images);
    insta::assert_snapshot!(String::from_utf8_lossy(&bytes));
    assert_eq!(read(&bytes).expect("reads"), (header, images));
}

#[test]
fn json_lines_hold_the_same() {
    let head = |name: &str, task: &str, labels: &[&str]| -> HeadConfig {
        let head = serde_json::json!({ "name": name, "task": task, "labels": labels });
        serde_json::from_value(head).expect("reads")
    };
    let heads = [
        head("findings", "multilabel", &["Edema", "Mass/Nodule"]),
        head("view", "multiclass", &["PA", "AP"]),
        head("age", "regression", &["years"]),
    ];
    let (header, images) = predicted();
    let mut bytes = Vec::new();
    let mut lines = PredictionLines::new(&mut bytes, &heads, &header);
    images.iter().for_each(|image| lines.write(image).expect("writes"));
    lines.flush().expect("writes");
    insta::assert_snapshot!(String::from_utf8_lossy(&bytes));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let refused = |text: &[u8]| read(text).expect_err("wrong").to_string();
    let table = |rows: &str| refused(format!("path,patient,h/a,h/a/decision\n{rows}").as_bytes());
    let told = |rows: &str| {
        let header = "path,patient,h/a,h/a/spread,h/a/conformal,error";
        refused(format!("{header}\n{rows}").as_bytes())
    };
    let faults = [
        refused(b""),
        refused(b"path;patient;h/a\n"),
        refused(b"path,name,h/a\n"),
        refused(b"path,patient\n"),
        refused(b"path,patient,h/a,h/a\n"),
        refused(b"path,patient,age\n"),
        refused(b"path,patient,/a\n"),
        refused(b"path,patient,h/a\n1,\xff\xfe,0.5\n"),
        refused(b"path,patient,error\n"),
        refused(b"path,patient,error,h/a\n"),
        refused(b"path,patient,h/a,h/a/spread,h/a/decision\n"),
        told("1,p,0.5,0.1,{0},\n2,p,0.5,wide,{0},\n"),
        told("1,p,0.5,inf,{0},\n"),
        told("1,p,0.5,0.1,{2},\n"),
        told("1,p,0.5,0.1,\"{1,0}\",\n"),
        told("1,p,,,,the file is empty\n2,p,0.5,,,the file is empty\n"),
        told("1,p,,,,\n"),
        told("1,p,0.5,0.1,{0},,\n"),
        told("1,p,0.5,0.1,{0},\n1,p,,,,the file is empty\n"),
        table("1,p,0.5,0\n2,p,nan,0\n"),
        table("1,p,inf,0\n"),
        table("1,p,,0\n"),
        table("1,p,0.5,maybe\n"),
        table("1,p,0.5\n"),
        table("\"1\n\n\",p,0.5,1\n2,p,0.5,1,7\n"),
        table("1,p,0.5,1\n\n1,q,0.5,1\n"),
        table(",p,0.5,1\n"),
        table("1,,0.5,1\n"),
        table(&format!("1,p,{},1\n", "9x".repeat(100_000))),
    ];
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn after_an_error_there_is_nothing_more() {
    let text = &b"path,patient,h/a\n1,p,x\n2,p,0.5\n"[..];
    let mut reader = PredictionReader::new(text, Path::new("p.csv")).expect("a header");
    assert!(reader.next().is_some_and(|row| row.is_err()));
    assert!(reader.next().is_none());
}

/// What is told of a label whose table has these columns.
fn told(columns: &PredictionColumns) -> impl Strategy<Value = PredictedLabel> + use<> {
    let number = || any::<f64>().prop_filter("a finite number", |number| number.is_finite());
    let set = prop_oneof![
        any::<bool>().prop_map(PredictedSet::Class),
        any::<[bool; 2]>().prop_map(|[negative, positive]| {
            PredictedSet::Decisions(DecisionSet { negative, positive })
        }),
    ];
    let of = prop::option::of::<proptest::strategy::BoxedStrategy<f64>>;
    let (truth, spread) = (of(number().boxed()), of(number().boxed()));
    let columns = columns.clone();
    (number(), any::<Option<bool>>(), truth, spread, prop::option::of(set)).prop_map(
        move |(value, decision, truth, spread, conformal)| PredictedLabel {
            value,
            decision: decision.filter(|_| columns.decision),
            truth: truth.filter(|_| columns.truth),
            spread: spread.filter(|_| columns.spread),
            conformal: conformal.filter(|_| columns.conformal),
        },
    )
}

/// A table that tells any of the columns of two labels.
fn tables() -> impl Strategy<Value = (PredictionHeader, Vec<Prediction>)> {
    let header = (any::<[bool; 8]>(), any::<bool>()).prop_map(|(told, error)| {
        let label = |label: &str, told: &[bool]| PredictionColumns {
            head: "h".to_owned(),
            label: label.to_owned(),
            decision: told[0],
            truth: told[1],
            spread: told[2],
            conformal: told[3],
        };
        let labels = vec![label("a", &told[..4]), label("b/c", &told[4..])];
        PredictionHeader { labels, error }
    });
    header.prop_flat_map(|header| {
        let labels: Vec<_> = header.labels.iter().map(told).collect();
        let row = (".{1,12}", labels, prop::option::of(".{1,12}"));
        let rows = prop::collection::vec(row, 0..8);
        rows.prop_map(move |rows| {
            let image =
                |(place, (patient, labels, error)): (usize, (String, _, Option<String>))| {
                    let told = error.filter(|_| header.error).map_or(Ok(labels), Err);
                    Prediction { path: place.to_string(), patient, told }
                };
            (header.clone(), rows.into_iter().enumerate().map(image).collect())
        })
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same((header, predictions) in tables()) {
        let (read_header, read_rows) = read(&written(&header, &predictions)).expect("reads");
        prop_assert_eq!(read_header, header);
        prop_assert_eq!(read_rows, predictions);
    }

    #[test]
    fn no_bytes_whatever_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&bytes));
        drop(read(&[&b"path,patient,h/a\n"[..], &bytes].concat()));
        drop(read(&[&b"path,patient,h/a,h/a/conformal,error\n"[..], &bytes].concat()));
    }
}
