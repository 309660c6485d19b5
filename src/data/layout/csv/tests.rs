use std::fs;

use super::*;

const TABLE: &str = "\
file,who,part,Edema present,view,Age
a.png,p1,train,1,PA,31.5
b.png,p1,train,-1,AP,
sub/c.png,p2,VAL,,NA,40
d.png,p3,test,False,PA,50
e.png,p4,train,0.25,,60
";
const SETTINGS: &str = "image = 'file'\npatient = 'who'\nsplit = 'part'\n\
    columns = { Edema = 'Edema present', projection = 'view' }";

fn heads() -> Vec<HeadConfig> {
    let head = |name: &str, task: &str, labels: &[&str]| {
        let text = format!("name = '{name}'\ntask = '{task}'\nlabels = {labels:?}");
        toml::from_str(&text).expect("reads")
    };
    vec![
        head("findings", "multilabel", &["Edema"]),
        head("projection", "multiclass", &["AP", "PA"]),
        head("age", "regression", &["Age"]),
    ]
}

fn read(
    table: &str,
    settings: &str,
    wanted: &[List],
) -> (tempfile::TempDir, Result<BTreeMap<List, Vec<Row>>, DataError>) {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("t.csv");
    fs::write(&path, table).expect("is written");
    let config: CsvConfig =
        toml::from_str(&format!("table = {path:?}\n{settings}")).expect("reads");
    let vocabulary = config.vocabulary(&heads());
    let needed: Vec<usize> = (0..vocabulary.columns.len()).collect();
    let lists = config.read(&vocabulary, &needed, wanted);
    (folder, lists)
}

#[test]
fn rows_are_read_by_the_columns_that_the_configuration_names() {
    let (folder, lists) = read(TABLE, SETTINGS, &[List::Train, List::Validation, List::Test]);
    let lists = lists.expect("reads");
    let found = |list: List| -> Vec<(String, u64, String, Vec<String>)> {
        let rows = lists[&list].iter();
        rows.map(|row| {
            let path = row.path.strip_prefix(folder.path()).expect("is below the table");
            let values = row.values.iter().map(f32::to_string).collect();
            (path.display().to_string(), row.line, row.patient.clone(), values)
        })
        .collect()
    };
    let row = |path: &str, line, patient: &str, values: [&str; 3]| {
        (path.to_owned(), line, patient.to_owned(), values.map(str::to_owned).to_vec())
    };
    assert_eq!(
        found(List::Train),
        [
            row("a.png", 2, "p1", ["1", "1", "31.5"]),
            row("b.png", 3, "p1", ["-1", "0", "NaN"]),
            row("e.png", 6, "p4", ["0.25", "NaN", "60"]),
        ]
    );
    assert_eq!(found(List::Validation), [row("sub/c.png", 4, "p2", ["NaN", "NaN", "40"])]);
    assert_eq!(found(List::Test), [row("d.png", 5, "p3", ["0", "1", "50"])]);
}

#[test]
fn without_a_split_column_all_rows_are_for_training_and_without_patients_each_is_one() {
    let settings = "image = 'file'\nroot = '/images'\n\
        columns = { Edema = 'Edema present', projection = 'view' }";
    let (_folder, lists) = read(TABLE, settings, &[List::Train]);
    let rows = &lists.expect("reads")[&List::Train];
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[2].path, Path::new("/images/sub/c.png"));
    assert_eq!(rows[2].patient, "sub/c.png");
}

#[test]
fn a_class_may_be_called_what_else_means_unknown() {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("t.csv");
    fs::write(&path, "image,grade\na.png,None\nb.png,N/A\nc.png,mild\n").expect("is written");
    let config = format!("table = {path:?}\nimage = 'image'");
    let config: CsvConfig = toml::from_str(&config).expect("reads");
    let head = "name = 'grade'\ntask = 'multiclass'\nlabels = ['None', 'mild', 'severe']";
    let vocabulary = config.vocabulary(&[toml::from_str(head).expect("reads")]);
    let lists = config.read(&vocabulary, &[0], &[List::Train]).expect("reads");
    let classes: Vec<String> =
        lists[&List::Train].iter().map(|row| row.values[0].to_string()).collect();
    assert_eq!(classes, ["0", "NaN", "1"]);
}

#[test]
fn columns_for_labels_that_no_head_has_are_refused() {
    let said = |columns: &str| {
        let config = format!("table = 't.csv'\nimage = 'file'\ncolumns = {{ {columns} }}");
        let config: CsvConfig = toml::from_str(&config).expect("reads");
        let fault = config.check_heads(&heads()).expect_err("is refused");
        format!("{}: {}\n{}", fault.key, fault.message, fault.help.unwrap_or_default())
    };
    insta::assert_snapshot!(said("Edma = 'x'"), @r#"
    columns.Edma: no head has a label `Edma` here
    did you mean `Edema`? write `columns = { LABEL = "column" }`; for a `multiclass` head its name stands in place of a label
    "#);
    insta::assert_snapshot!(said("PA = 'x'"), @r#"
    columns.PA: `PA` is a class of the head `projection`, whose classes stand in one column: write `projection`
    write `columns = { LABEL = "column" }`; for a `multiclass` head its name stands in place of a label
    "#);
}

fn said(table: &str, settings: &str) -> String {
    let (folder, lists) = read(table, settings, &[List::Train, List::Validation]);
    let message = lists.expect_err("is refused").to_string();
    message.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn wrong_columns_and_values_are_named_where_they_stand() {
    let with = |from: &str, to: &str| said(&TABLE.replacen(from, to, 1), SETTINGS);
    insta::assert_snapshot!(with("Edema present", "Edema"), @"`t.csv`, line 1: the column `Edema present` is missing (found: file, who, part, Edema, view, Age)");
    insta::assert_snapshot!(with("file,who", "path,patient"), @"`t.csv`, line 1: the columns `file`, `who` are missing (found: path, patient, part, Edema present, view, Age)");
    insta::assert_snapshot!(with("1,PA", "2,PA"), @"`t.csv`, line 2, column `Edema present`: `2` is not 1 or true (positive), 0 or false (negative), a number between, -1 (uncertain) or nothing");
    insta::assert_snapshot!(with("1,PA", "maybe,PA"), @"`t.csv`, line 2, column `Edema present`: `maybe` is not 1 or true (positive), 0 or false (negative), a number between, -1 (uncertain) or nothing");
    insta::assert_snapshot!(with("1,PA", "1,PAX"), @"`t.csv`, line 2, column `view`: `PAX` is not one of the head's labels (`AP`, `PA`) or nothing; did you mean `PA`?");
    insta::assert_snapshot!(with("1,PA", "1,pa"), @"`t.csv`, line 2, column `view`: `pa` is not one of the head's labels (`AP`, `PA`) or nothing; did you mean `PA`?");
    insta::assert_snapshot!(with("1,PA", "1,oblique"), @"`t.csv`, line 2, column `view`: `oblique` is not one of the head's labels (`AP`, `PA`) or nothing");
    insta::assert_snapshot!(with("31.5", "\"31,5\""), @"`t.csv`, line 2, column `Age`: `31,5` is not a number or nothing; numbers are written with a decimal point: `31.5`");
    insta::assert_snapshot!(with("31.5", "inf"), @"`t.csv`, line 2, column `Age`: `inf` is not a number or nothing");
    insta::assert_snapshot!(with("VAL", "later"), @"`t.csv`, line 4, column `part`: `later` is not train (or training), valid (or validation, val, validate, dev) or test");
    insta::assert_snapshot!(with("a.png", ""), @"`t.csv`, line 2, column `file`: `` is not the path of an image");
    insta::assert_snapshot!(with("p4", ""), @"`t.csv`, line 6, column `who`: `` is not a patient's name or number");
}

/// The message and what to do, of a table with these heads.
fn told(table: &str, settings: &str, heads: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("t.csv");
    fs::write(&path, table).expect("is written");
    let config: CsvConfig =
        toml::from_str(&format!("table = {path:?}\n{settings}")).expect("reads");
    let heads: Vec<HeadConfig> =
        heads.iter().map(|head| toml::from_str(head).expect("reads")).collect();
    let vocabulary = config.vocabulary(&heads);
    let needed: Vec<usize> = (0..vocabulary.columns.len()).collect();
    let error = config.read(&vocabulary, &needed, &[List::Train]).expect_err("is refused");
    let help = error.help().unwrap_or_else(|| panic!("no help: {error}"));
    format!("{error}\n{help}").replace(&format!("{}/", folder.path().display()), "")
}

const CLASSES: &str = "file,patient_id,diagnosis\na.png,p1,normal\nb.png,p2,effusion\n\
    c.png,p2,mass\nd.png,p3,normal\n";
const DIAGNOSIS: &str = "name = 'diagnosis'\ntask = 'multiclass'\nlabels = ['normal', 'pneumonia']";

#[test]
fn a_column_that_is_missing_is_told_with_who_asks_for_it_and_what_may_be_meant() {
    let of = |settings: &str, head: &str| told(CLASSES, settings, &[head]);
    let all = [
        of("image = 'files'", DIAGNOSIS),
        of("image = 'file'\npatient = 'patient'", DIAGNOSIS),
        of("image = 'file'\nsplit = 'use'", DIAGNOSIS),
        of("image = 'file'", &DIAGNOSIS.replace("'diagnosis'", "'diagnose'")),
        of("image = 'file'", &DIAGNOSIS.replace("'diagnosis'", "'what'")),
        of("image = 'file'\ncolumns = { diagnosis = 'diagnoses' }", DIAGNOSIS),
        of("image = 'file'", "name = 'f'\ntask = 'multilabel'\nlabels = ['Edema']"),
        of("image = 'file'", "name = 'f'\ntask = 'multilabel'\nlabels = ['a', 'normal', 'mass']"),
    ];
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_field_that_means_nothing_is_told_with_what_to_do() {
    let grade = "name = 'grade'\ntask = 'multiclass'\nlabels = ['0', '1', '2']";
    let effusion = "name = 'effusion'\ntask = 'binary'\nlabels = ['effusion']";
    let of = |table: &str, settings: &str, head: &str| {
        told(table, &format!("image = 'file'\n{settings}"), &[head])
    };
    let all = [
        of(CLASSES, "", DIAGNOSIS),
        of("file,grade\na.png,1.0\nb.png,\n", "", grade),
        of("file,effusion\na.png,1\nb.png,WAHR\n", "", effusion),
        of("file,effusion\na.png,1\nb.png,nein\n", "", effusion),
        of("file,who,effusion\na.png,,1\n", "patient = 'who'", effusion),
        of("file,use,effusion\na.png,,1\n", "split = 'use'", effusion),
        of("file,effusion\n,1\n", "", effusion),
        of("file;effusion\na;0,5\n", "", effusion),
        of("file,effusion\na\n", "", effusion),
    ];
    insta::assert_snapshot!(all.join("\n\n"));
}
