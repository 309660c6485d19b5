use proptest::prelude::*;

use super::*;

fn columns(named: &[(&str, &str, bool, bool)]) -> Vec<PredictionColumns> {
    let column = |&(head, label, decision, truth): &(&str, &str, bool, bool)| PredictionColumns {
        head: head.to_owned(),
        label: label.to_owned(),
        decision,
        truth,
    };
    named.iter().map(column).collect()
}

fn written(columns: &[PredictionColumns], predictions: &[Prediction]) -> Vec<u8> {
    let mut writer =
        PredictionWriter::new(Vec::new(), columns, Path::new("p.csv")).expect("writes");
    predictions.iter().for_each(|prediction| writer.write(prediction).expect("writes"));
    writer.finish().expect("writes")
}

fn read(bytes: &[u8]) -> Result<(Vec<PredictionColumns>, Vec<Prediction>), PredictionError> {
    let reader = PredictionReader::new(bytes, Path::new("p.csv"))?;
    let columns = reader.columns().to_vec();
    Ok((columns, reader.collect::<Result<_, _>>()?))
}

#[test]
fn the_header_is_the_one_that_scripts_are_written_against() {
    let columns = columns(&[
        ("findings", "Edema", true, false),
        ("findings", "both/and", true, true),
        ("age", "Years", false, false),
    ]);
    let label = |value, decision, truth| PredictedLabel { value, decision, truth };
    let prediction = Prediction {
        path: "a/1.png".to_owned(),
        patient: "p, 1".to_owned(),
        labels: vec![
            label(0.25, Some(false), None),
            label(1e-12, Some(true), Some(1.0)),
            label(61.5, None, None),
        ],
    };
    let bytes = written(&columns, std::slice::from_ref(&prediction));
    insta::assert_snapshot!(String::from_utf8_lossy(&bytes), @r#"
    path,patient,findings/Edema,findings/Edema/decision,findings/both/and,findings/both/and/decision,findings/both/and/truth,age/Years
    a/1.png,"p, 1",0.25,0,0.000000000001,1,1,61.5
    "#);
    assert_eq!(read(&bytes).expect("reads"), (columns, vec![prediction]));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let refused = |text: &[u8]| read(text).expect_err("wrong").to_string();
    let table = |rows: &str| refused(format!("path,patient,h/a,h/a/decision\n{rows}").as_bytes());
    let faults = [
        refused(b""),
        refused(b"path;patient;h/a\n"),
        refused(b"path,name,h/a\n"),
        refused(b"path,patient\n"),
        refused(b"path,patient,h/a,h/a\n"),
        refused(b"path,patient,age\n"),
        refused(b"path,patient,/a\n"),
        refused(b"path,patient,h/a\n1,\xff\xfe,0.5\n"),
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

proptest! {
    #[test]
    fn what_is_written_reads_the_same(
        rows in prop::collection::vec((".{1,12}", any::<f64>(), any::<Option<bool>>()), 0..8),
    ) {
        let columns = columns(&[("h", "a", true, true)]);
        let finite = rows.into_iter().filter(|(_, value, _)| value.is_finite()).enumerate();
        let predictions: Vec<Prediction> = finite
            .map(|(place, (patient, value, decision))| Prediction {
                path: place.to_string(),
                patient,
                labels: vec![PredictedLabel { value, decision, truth: Some(value) }],
            })
            .collect();
        let (read_columns, read_rows) = read(&written(&columns, &predictions)).expect("reads");
        prop_assert_eq!(read_columns, columns);
        prop_assert_eq!(read_rows, predictions);
    }

    #[test]
    fn no_bytes_whatever_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&bytes));
        drop(read(&[&b"path,patient,h/a\n"[..], &bytes].concat()));
    }
}
