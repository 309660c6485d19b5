//! Rows to labels: unknown ones, uncertain ones, and those of several sources.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const TABLE: &str = "\
Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture
train/patient1/study1/view1_frontal.png,Female,61,Frontal,AP,1.0,
train/patient1/study1/view2_lateral.png,Female,61,Lateral,,1.0,-1.0
train/patient2/study1/view1_frontal.png,Male,30,Frontal,PA,-1.0,0.0
train/patient3/study1/view1_frontal.png,Unknown,,Frontal,PA,0.0,-1.0
";
const VALID: &str = "\
Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture
valid/patient9/study1/view1_frontal.png,Male,50,Frontal,PA,-1.0,1.0
";

fn heads() -> Vec<HeadConfig> {
    let head = |task: &str, labels: &[&str]| {
        let text = format!("name = 'h'\ntask = '{task}'\nlabels = {labels:?}");
        toml::from_str(&text).expect("reads")
    };
    vec![
        head("multilabel", &["Edema", "Fracture"]),
        head("multiclass", &["PA", "Lateral"]),
        head("binary", &["Male"]),
        head("regression", &["Age"]),
    ]
}

fn open_with(settings: &str) -> Result<Splits, DataError> {
    let folder = tempfile::tempdir().expect("is made");
    fs::write(folder.path().join("train.csv"), TABLE).expect("is written");
    fs::write(folder.path().join("valid.csv"), VALID).expect("is written");
    let (data, layout) = settings.split_once('|').expect("has two parts");
    let text = format!(
        "image = {{ size = [32, 32] }}\n{data}\n[chexpert]\nroot = {:?}\n{layout}",
        folder.path()
    );
    open(&toml::from_str(&text).expect("reads"), &heads(), 3, crate::data::untold)
}

#[test]
fn labels_are_encoded_per_head_and_unknown_ones_masked() {
    let splits = open_with("|uncertain = 'ones'").expect("opens");
    assert_eq!((splits.train.len(), splits.validation.len()), (4, 1));
    let [findings, views, male, age] = &splits.train.labels[..] else { panic!("four heads") };
    assert_eq!(findings.values, [1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    assert_eq!(findings.mask, [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(
        (&views.values[..], &views.mask[..]),
        (&[0.0, 1.0, 0.0, 0.0][..], &[0.0, 1.0, 1.0, 1.0][..])
    );
    assert_eq!(
        (&male.values[..], &male.mask[..]),
        (&[0.0, 0.0, 1.0, 0.0][..], &[1.0, 1.0, 1.0, 0.0][..])
    );
    assert_eq!(
        (&age.values[..], &age.mask[..]),
        (&[61.0, 61.0, 30.0, 0.0][..], &[1.0, 1.0, 1.0, 0.0][..])
    );
}

#[test]
fn uncertain_labels_follow_their_policy_in_training_and_are_missing_in_validation() {
    let edema = |policy: &str| {
        let splits = open_with(&format!("|uncertain = {policy}")).expect("opens");
        assert_eq!(splits.validation.labels[0].mask, [0.0, 1.0]);
        let head = &splits.train.labels[0];
        (head.values[4], head.mask[4])
    };
    assert_eq!(edema("'ignore'"), (0.0, 0.0));
    assert_eq!(edema("'zeros'"), (0.0, 1.0));
    assert_eq!(edema("{ default = 'zeros', Edema = 'ones' }"), (1.0, 1.0));
    let (value, mask) = edema("{ smooth = [0.55, 0.85] }");
    assert!((0.55..=0.85).contains(&value) && mask == 1.0);
    assert_eq!(edema("{ smooth = [0.55, 0.85] }"), (value, mask));
    let splits = open_with("|uncertain = { smooth = [0.55, 0.85] }").expect("opens");
    let fractures = [splits.train.labels[0].values[3], splits.train.labels[0].values[7]];
    assert_ne!(fractures[0], fractures[1], "each row draws its own");
}

#[test]
fn views_leave_only_their_images() {
    let splits = open_with("|views = ['PA']").expect("opens");
    assert_eq!(splits.train.samples().iter().map(|s| s.line).collect::<Vec<_>>(), [4, 5]);
    let error = open_with("|views = ['Lateral']").expect_err("is refused").to_string();
    assert!(error.contains("valid.csv` leaves no image: no row has one of the `views`"), "{error}");
}

#[test]
fn counts_are_of_known_labels() {
    let counts = |head| open_with("|uncertain = 'ones'").expect("opens").train.label_counts(head);
    assert_eq!(counts(0), LabelCounts { positives: vec![3.0, 2.0], negatives: vec![1.0, 1.0] });
    assert_eq!(counts(1), LabelCounts { positives: vec![2.0, 1.0], negatives: vec![1.0, 2.0] });
    assert_eq!(counts(2), LabelCounts { positives: vec![1.0], negatives: vec![2.0] });
    assert_eq!(counts(3), LabelCounts { positives: vec![3.0], negatives: vec![0.0] });
}

#[test]
fn a_fraction_splits_the_training_list_by_patient() {
    let splits = open_with("validation = { fraction = 0.34 }|").expect("opens");
    let patients = |side: &Dataset| -> std::collections::BTreeSet<String> {
        side.samples().iter().map(|sample| sample.patient.clone()).collect()
    };
    assert_eq!(splits.train.len() + splits.validation.len(), 4);
    assert_eq!(patients(&splits.validation).len(), 1);
    assert!(patients(&splits.train).is_disjoint(&patients(&splits.validation)));
}

#[test]
fn shuffled_labels_are_the_same_rows_in_another_order() {
    let folder = tempfile::tempdir().expect("is made");
    let mut table = TABLE.lines().next().expect("has a header").to_owned();
    for patient in 0..60 {
        table += &format!("\ntrain/patient{patient}/s/v.png,Male,{patient},Frontal,PA,1,0");
    }
    fs::write(folder.path().join("train.csv"), table).expect("is written");
    let ages = |shuffle| {
        let text = format!(
            "image = {{ size = [32, 32] }}\nvalidation = {{ fraction = 0.5 }}\n\
             shuffle_labels = {shuffle}\n[chexpert]\nroot = {:?}",
            folder.path()
        );
        let config = toml::from_str(&text).expect("reads");
        open(&config, &heads(), 3, crate::data::untold).expect("opens").train.labels[3]
            .values
            .clone()
    };
    let (plain, shuffled) = (ages(false), ages(true));
    assert_ne!(plain, shuffled);
    assert_eq!(shuffled, ages(true));
    let sorted = |mut ages: Vec<f32>| {
        ages.sort_by(f32::total_cmp);
        ages
    };
    assert_eq!(sorted(plain), sorted(shuffled));
}

/// The CheXpert and NIH examples as two sources.
fn two_sources(settings: &str) -> Result<Splits, DataError> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts");
    let (chexpert, nih) = (examples.join("chexpert"), examples.join("nih"));
    let text = format!(
        "image = {{ size = [32, 32] }}\nvalidation = {{ fraction = 0.4 }}\n{settings}\n\
         [[sources]]\nchexpert = {{ root = {chexpert:?} }}\n\
         [[sources]]\nnih = {{ root = {nih:?} }}\nlabels = {{ 'Pleural Effusion' = 'Effusion' }}"
    );
    let heads = [
        "name = 'f'\ntask = 'multilabel'\nlabels = ['Pleural Effusion', 'Mass', 'Edema']",
        "name = 's'\ntask = 'multiclass'\nlabels = ['Frontal', 'Lateral']",
    ];
    let heads = heads.map(|head| toml::from_str(head).expect("reads"));
    open(&toml::from_str(&text).expect("reads"), &heads, 3, crate::data::untold)
}

#[test]
fn sources_are_put_together_and_what_they_lack_is_masked() {
    let splits = two_sources("").expect("opens");
    assert_eq!(splits.sources, ["sources[0].chexpert", "sources[1].nih"]);
    assert_eq!(splits.train.len() + splits.validation.len(), 11);
    let mut seen = [0; 2];
    for side in [&splits.train, &splits.validation] {
        let [findings, sides] = &side.labels[..] else { panic!("two heads") };
        for (place, sample) in side.samples().iter().enumerate() {
            seen[sample.source] += 1;
            let mask = &findings.mask[place * 3..][..3];
            let known = if sample.source == 1 { [1.0; 3] } else { [mask[0], 0.0, mask[2]] };
            assert_eq!(mask, known, "{sample:?}");
            assert_eq!(sides.mask[place], f32::from(u8::from(sample.source == 0)));
            let values = &findings.values[place * 3..][..3];
            match sample.path.file_name().and_then(|name| name.to_str()) {
                Some("00000003_000.png") => assert_eq!(values, [0.0, 1.0, 0.0]),
                Some("00000004_000.png") => assert_eq!(values, [1.0, 0.0, 0.0]),
                Some("00000005_000.png") => assert_eq!(values, [0.0, 0.0, 1.0]),
                _ => {}
            }
        }
    }
    assert_eq!(seen, [5, 6]);
    let uncertain: Vec<usize> = [&splits.train, &splits.validation]
        .into_iter()
        .flat_map(|side| side.uncertain_counts(0).to_vec())
        .collect();
    assert_eq!(uncertain.iter().sum::<usize>(), 2, "one effusion and one edema of CheXpert");
}

#[test]
fn every_source_has_patients_on_both_sides() {
    let splits = two_sources("").expect("opens");
    for side in [&splits.train, &splits.validation] {
        for source in [0, 1] {
            assert!(side.samples().iter().any(|sample| sample.source == source));
        }
    }
}

#[test]
fn an_image_that_one_source_trains_on_and_another_validates_on_is_refused() {
    let folder = tempfile::tempdir().expect("is made");
    fs::write(folder.path().join("train.csv"), TABLE).expect("is written");
    let image = "train/patient2/study1/view1_frontal.png";
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).expect("is made");
    let text = "Path,Edema\ntrain/patient8/s/v.png,1\n";
    fs::write(inner.join("train.csv"), text).expect("is written");
    let leak = format!("Path,Edema\n../{image},1\n");
    fs::write(inner.join("valid.csv"), leak).expect("is written");
    fs::write(folder.path().join("valid.csv"), VALID).expect("is written");
    let text = format!(
        "image = {{ size = [32, 32] }}\n[[sources]]\nchexpert = {{ root = {:?} }}\n\
         [[sources]]\nchexpert = {{ root = {inner:?} }}",
        folder.path()
    );
    let head = "name = 'h'\ntask = 'multilabel'\nlabels = ['Edema']";
    let heads = [toml::from_str(head).expect("reads")];
    let error = open(&toml::from_str(&text).expect("reads"), &heads, 3, crate::data::untold);
    let error = error.expect_err("is refused").to_string();
    assert!(error.contains("is trained on and validated on"), "{error}");
    assert!(error.contains("train.csv`, line 4, and"), "{error}");
}

/// Two tables, `a.csv` and `b.csv`, as sources with these keys before their tables; what is wrong with
/// them, and what to do.
fn two_tables(a: [&str; 3], b: [&str; 3], heads: &[HeadConfig]) -> Result<Splits, String> {
    let folder = tempfile::tempdir().expect("is made");
    let mut text = "image = { size = [32, 32] }\nvalidation = { fraction = 0.34 }\n".to_owned();
    for (name, [table, source, layout]) in [("a.csv", a), ("b.csv", b)] {
        let path = folder.path().join(name);
        fs::write(&path, table).expect("is written");
        text += &format!("[[sources]]\n{source}\n[sources.csv]\ntable = {path:?}\n{layout}\n");
    }
    open(&toml::from_str(&text).expect("reads"), heads, 3, crate::data::untold).map_err(|error| {
        let said = format!("{error}\n{}", error.help().unwrap_or_default());
        said.replace(&format!("{}/", folder.path().display()), "")
    })
}

fn named(name: &str, task: &str, labels: &[&str]) -> HeadConfig {
    let text = format!("name = {name:?}\ntask = {task:?}\nlabels = {labels:?}");
    toml::from_str(&text).expect("reads")
}

const ONE: &str = "image,Edema,Mass,view\na1,1,0,PA\na2,0,,AP\na3,1,1,PA\n";
const OTHER: &str = "image;oedema;projection;years\nb1;0;front;31\nb2;1;back;\nb3;0;front;60\n";

fn heads_of_two() -> Vec<HeadConfig> {
    vec![
        named("findings", "multilabel", &["Edema", "Mass"]),
        named("view", "multiclass", &["PA", "AP"]),
        named("age", "regression", &["Age"]),
    ]
}

/// For each image by its name the values and masks of all heads' labels.
fn known(splits: &Splits) -> BTreeMap<String, Vec<Option<f32>>> {
    let mut known = BTreeMap::new();
    for side in [&splits.train, &splits.validation] {
        for (place, sample) in side.samples().iter().enumerate() {
            let of = side.targets(&[place]).into_iter().flat_map(|targets| {
                let labels = targets.values.into_iter().zip(targets.mask);
                labels.map(|(value, mask)| (mask > 0.0).then_some(value)).collect::<Vec<_>>()
            });
            let name = sample.path.file_name().expect("has one").to_string_lossy().into_owned();
            known.insert(name, of.collect());
        }
    }
    known
}

#[test]
fn two_tables_supply_the_labels_that_they_have_without_being_told_which() {
    let rename = "labels = { Edema = 'oedema', PA = 'front', AP = 'back' }";
    let columns =
        "image = 'image'\npatient = 'image'\ncolumns = { view = 'projection', Age = 'years' }";
    let splits = two_tables(
        [ONE, "", "image = 'image'\npatient = 'image'"],
        [OTHER, rename, columns],
        &heads_of_two(),
    );
    let splits = splits.expect("opens");
    assert_eq!(splits.warnings, Vec::<String>::new());
    let expected = [
        ("a1", [Some(1.0), Some(0.0), Some(0.0), None]),
        ("a2", [Some(0.0), None, Some(1.0), None]),
        ("a3", [Some(1.0), Some(1.0), Some(0.0), None]),
        ("b1", [Some(0.0), None, Some(0.0), Some(31.0)]),
        ("b2", [Some(1.0), None, Some(1.0), None]),
        ("b3", [Some(0.0), None, Some(0.0), Some(60.0)]),
    ];
    let expected = expected.map(|(name, labels)| (name.to_owned(), labels.to_vec()));
    assert_eq!(known(&splits), BTreeMap::from(expected));
}

#[test]
fn uncertain_labels_of_a_renamed_column_go_by_the_name_that_the_table_has() {
    let other = OTHER.replace("b1;0", "b1;-1").replace("b3;0", "b3;-1");
    let layout = "image = 'image'\nuncertain = { oedema = 'ones', default = 'zeros' }";
    let rename = "labels = { Edema = 'oedema' }";
    let heads = &heads_of_two()[..1];
    let splits = two_tables([ONE, "", "image = 'image'"], [&other, rename, layout], heads);
    let splits = splits.expect("opens");
    let train = splits.train.samples().iter().zip(splits.train.labels[0].values.chunks(2));
    let edema = train.filter(|(sample, _)| sample.source == 1).map(|(_, labels)| labels[0]);
    assert_eq!(edema.collect::<Vec<_>>(), [1.0, 1.0]);
}

#[test]
fn what_two_tables_lack_is_named() {
    let plain = "image = 'image'";
    let said = |a, b, heads: &[HeadConfig]| two_tables(a, b, heads).expect_err("is refused");
    let findings = &heads_of_two()[..1];
    // No table has it.
    let typo = [named("findings", "multilabel", &["Edema", "Mas"])];
    insta::assert_snapshot!(said([ONE, "", plain], [ONE, "", plain], &typo), @r"
    the data have no label `Mas` (`heads[0].labels[1]`)
    did you mean `Mass`? the findings are: Edema; columns that no head reads: Mass, view
    ");
    // One table has nothing.
    insta::assert_snapshot!(said([ONE, "", plain], [OTHER, "", plain], findings), @r"
    this data set has no label of any head (`data.sources[1]`)
    remove the source, or say under `labels` what it calls the heads' labels; its columns are: oedema, projection, years
    ");
    // A head that a source is said to be for.
    let for_age = "heads = ['findings', 'age']";
    let age = "image = 'image'\ncolumns = { Edema = 'oedema', Age = 'years' }";
    let heads = [findings[0].clone(), named("age", "regression", &["Age"])];
    insta::assert_snapshot!(said([ONE, for_age, plain], [OTHER, "", age], &heads), @r"
    this data set has no label of the head `age` (`data.sources[0].heads[1]`)
    take the head out of `heads`, or say under `labels` what this data set calls its labels
    ");
    // A column that the configuration names.
    let rename = "labels = { Edema = 'swelling' }";
    insta::assert_snapshot!(said([ONE, "", plain], [OTHER, rename, plain], findings), @r"
    `b.csv`, line 1: the column `swelling` is missing (found: image, oedema, projection, years)
    `data.sources[1].labels` names `swelling` for `Edema`
    ");
    // Classes that are called otherwise.
    let classes = "image,view\nb1,frontal_pa\nb2,frontal_ap\n";
    let view = &heads_of_two()[1..2];
    insta::assert_snapshot!(
        "a_class_of_a_source",
        said([ONE, "", plain], [classes, "", plain], view)
    );
    let rename = "labels = { PA = 'frontal_pa' }";
    let told = said([ONE, "", plain], [classes, rename, plain], view);
    insta::assert_snapshot!("another_class_of_a_source", told);
}

#[test]
fn a_column_of_a_similar_name_is_told_of() {
    let similar = OTHER.replace("oedema", "edema");
    let columns = "image = 'image'\npatient = 'image'\ncolumns = { Age = 'years' }";
    let plain = "image = 'image'\npatient = 'image'";
    let splits = two_tables([ONE, "", plain], [&similar, "", columns], &heads_of_two());
    let splits = splits.expect("opens");
    insta::assert_snapshot!(splits.warnings.join("\n"), @r#"the table of `data.sources[1].csv` has no column `Edema`, so that label is unknown for its images; it has `edema`: if that is meant, write `columns = { "Edema" = "edema" }` there"#);
}

#[test]
fn a_folder_that_is_not_there_is_named_with_its_key() {
    let folder = tempfile::tempdir().expect("is made");
    fs::create_dir(folder.path().join("images")).expect("is made");
    fs::write(folder.path().join("a.csv"), ONE).expect("is written");
    let said = |root: &str| {
        let text = format!(
            "image = {{ size = [32, 32] }}\n[csv]\nimage = 'image'\ntable = {:?}\nroot = {:?}",
            folder.path().join("a.csv"),
            folder.path().join(root)
        );
        let config = toml::from_str(&text).expect("reads");
        let error =
            open(&config, &heads_of_two()[..1], 3, crate::data::untold).expect_err("is refused");
        let said = format!("{error}\n{}", error.help().unwrap_or_default());
        said.replace(&format!("{}/", folder.path().display()), "")
    };
    insta::assert_snapshot!(said("imges"), @r"
    there is no folder `imges`
    did you mean `images`? correct `data.csv.root`, which names it
    ");
    insta::assert_snapshot!(said("elsewhere"), @r"
    there is no folder `elsewhere`
    correct `data.csv.root`, which names it
    ");
    insta::assert_snapshot!(said("a.csv"), @"`a.csv` is a file, and `data.csv.root` names a folder");
    let relative = DataError::NoFolder {
        folder: "scans/imges".into(),
        key: "data.sources[1].csv.root".to_owned(),
        meant: None,
    };
    let here = std::env::current_dir().expect("is there").display().to_string();
    insta::assert_snapshot!(relative.to_string().replace(&here, "[here]"), @"there is no folder `scans/imges` (looked in [here])");
}

#[test]
fn patients_of_the_same_name_in_two_sources_are_two() {
    let table = |image: &str| {
        let rows = (1..=4).map(|row| format!("{image}{row},patient{row},1\n"));
        format!("image,patient,Edema\n{}", rows.collect::<String>())
    };
    let columns = "image = 'image'\npatient = 'patient'";
    let (a, b) = (table("a"), table("b"));
    let heads = [named("findings", "multilabel", &["Edema"])];
    let splits = two_tables([&a, "", columns], [&b, "", columns], &heads).expect("opens");
    let both = [&splits.train, &splits.validation].into_iter();
    let patients: BTreeSet<String> = both.flat_map(Dataset::patients).collect();
    assert_eq!(patients.len(), 8, "{patients:?}");
}

#[test]
fn a_column_is_found_whatever_its_case_and_a_missing_one_is_answered_with_the_nearest() {
    let folder = tempfile::tempdir().expect("is made");
    fs::write(folder.path().join("train.csv"), TABLE).expect("is written");
    fs::write(folder.path().join("valid.csv"), VALID).expect("is written");
    let text = format!("image = {{ size = [32, 32] }}\n[chexpert]\nroot = {:?}", folder.path());
    let config: DataConfig = toml::from_str(&text).expect("reads");
    let splits = open(&config, &heads(), 3, crate::data::untold).expect("opens");
    let fields = |name| super::super::column(&splits.train, name);
    assert_eq!(fields("age").expect("is there"), ["61", "61", "30", ""]);
    assert_eq!(fields("Sex").expect("is there"), ["Female", "Female", "Male", "Unknown"]);
    let error = fields("Sexe").expect_err("is not there");
    let help = error.help().expect("has one");
    assert!(help.starts_with("did you mean `Sex`? "), "{help}");
}

/// For evaluation nothing is measured on a label that a policy made up.
#[test]
fn uncertain_labels_are_missing_in_every_list_that_a_model_is_measured_on() {
    let folder = tempfile::tempdir().expect("is made");
    fs::write(folder.path().join("train.csv"), TABLE).expect("is written");
    fs::write(folder.path().join("valid.csv"), VALID).expect("is written");
    let text = format!(
        "image = {{ size = [32, 32] }}\n[chexpert]\nroot = {:?}\nuncertain = 'ones'",
        folder.path()
    );
    let config: DataConfig = toml::from_str(&text).expect("reads");
    let trained = open(&config, &heads(), 3, crate::data::untold).expect("opens");
    let measured = open_for_evaluation(&config, &heads(), 3, crate::data::untold).expect("opens");
    assert_eq!(measured.validation, trained.validation);
    assert_eq!(measured.train.samples, trained.train.samples);
    assert_eq!(trained.train.labels[0].mask, [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(measured.train.labels[0].mask, [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn other_data_are_opened_whole_with_their_own_names_and_without_what_they_lack() {
    let folder = tempfile::tempdir().expect("is made");
    let table = folder.path().join("t.csv");
    fs::write(&table, "file,oedema,list\na.png,1,train\nb.png,0,test\nc.png,-1,valid\n")
        .expect("is written");
    let text = format!(
        "image = {{ size = [32, 32] }}\n[csv]\ntable = {table:?}\nimage = 'file'\nsplit = 'list'"
    );
    let config: DataConfig = toml::from_str(&text).expect("reads");
    let names = BTreeMap::from([("Edema".to_owned(), "oedema".to_owned())]);
    let config = config.with_labels(names).expect("one data set");
    let heads = &heads()[..1];
    let splits = open_in_full(&config, heads, 3, crate::data::untold).expect("opens");
    assert!(splits.train.is_empty() && splits.test.is_none());
    let labels = &splits.validation.labels[0];
    assert_eq!(labels.mask, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!((labels.values[0], labels.values[4]), (1.0, 0.0));
    assert_eq!(splits.warnings.len(), 1, "{:?}", splits.warnings);
    let said = "the data have no label `Fracture` of the head `h`";
    assert!(splits.warnings[0].starts_with(said), "{:?}", splits.warnings);
    let wrong = BTreeMap::from([("Oedema".to_owned(), "oedema".to_owned())]);
    let config: DataConfig = toml::from_str(&text).expect("reads");
    let config = config.with_labels(wrong).expect("one data set");
    let error = open_in_full(&config, heads, 3, crate::data::untold).expect_err("is refused");
    assert!(error.to_string().contains("`Oedema`"), "{error}");
}
