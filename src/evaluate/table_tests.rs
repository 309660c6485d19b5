use proptest::prelude::*;

use super::*;

fn heads() -> Vec<HeadConfig> {
    let text = r#"
        [[heads]]
        name = "findings"
        task = "multilabel"
        labels = ["Edema", "both/and", "Mass"]
        [[heads]]
        name = "age"
        task = "regression"
        labels = ["Years"]
        [[heads]]
        name = "view"
        task = "multiclass"
        labels = ["PA", "AP", "Lateral"]
    "#;
    #[derive(serde::Deserialize)]
    struct Table {
        heads: Vec<HeadConfig>,
    }
    toml::from_str::<Table>(text).expect("heads").heads
}

/// One image: outputs of the three heads, then targets where they are known.
type Row = ([f32; 3], f32, [f32; 3], [Option<f32>; 3], Option<f32>, Option<usize>);

fn table(rows: &[Row]) -> PredictionTable {
    let mut table = PredictionTable::new(&heads());
    for (image, (findings, age, view, labels, years, class)) in rows.iter().enumerate() {
        table.paths.push(format!("images/{image}, \"a\".png"));
        table.patients.push(format!("patient {}", image / 2));
        let known = |of: Option<f32>| f32::from(u8::from(of.is_some()));
        let targets = |of: &[Option<f32>]| Targets {
            values: of.iter().map(|value| value.unwrap_or(0.0)).collect(),
            mask: of.iter().map(|value| known(*value)).collect(),
            width: of.len(),
        };
        let class = class.map(|class| class as f32);
        for (name, outputs, targets) in [
            ("findings", findings.as_slice(), targets(labels)),
            ("age", &[*age], targets(&[*years])),
            ("view", view, targets(&[class])),
        ] {
            table.heads.get_mut(name).expect("the head").extend(outputs, &targets);
        }
    }
    table
}

fn read(bytes: &[u8]) -> Result<PredictionTable, PredictionError> {
    PredictionTable::from_csv(bytes, &heads(), Path::new("validation.csv"))
}

fn finite() -> impl Strategy<Value = f32> {
    any::<f32>().prop_filter("a finite number", |number| number.is_finite())
}

proptest! {
    #[test]
    fn a_table_is_read_back_bit_for_bit(
        rows in prop::collection::vec(
            (
                [finite(), finite(), finite()],
                finite(),
                [finite(), finite(), finite()],
                prop::array::uniform3(prop::option::of(0.0_f32..=1.0)),
                prop::option::of(finite()),
                prop::option::of(0_usize..3),
            ),
            0..8,
        )
    ) {
        let table = table(&rows);
        let bytes = table.to_csv().expect("writes");
        let again = read(&bytes).expect("reads");
        prop_assert_eq!(&again, &table);
        for (name, head) in &again.heads {
            let bits = |of: &[f32]| of.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&head.outputs), bits(&table.heads[name].outputs));
        }
    }
}

#[test]
fn a_table_of_another_model_is_refused() {
    let bytes = table(&[]).to_csv().expect("writes");
    let text = String::from_utf8(bytes).expect("text");
    let others = [text.replace("Mass", "Nodule"), text.replace("age/Years,age/Years/truth,", "")];
    let said = others.map(|text| read(text.as_bytes()).expect_err("refused").to_string());
    insta::assert_snapshot!(said.join("\n"), @r"
    `validation.csv`, line 1, column `Nodule`: `findings/Mass` with its truth is expected, and `findings/Nodule` is there
    `validation.csv`, line 1, column `Edema`: `age/Years` with its truth is expected, and `findings/Edema` is there
    ");
}

#[test]
fn patients_are_numbered_in_their_order() {
    let row = ([0.0; 3], 0.0, [0.0; 3], [None; 3], None, None);
    let mut table = table(&[row; 4]);
    table.patients = ["b", "a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(table.patient_numbers(), [0, 1, 0, 2]);
}
