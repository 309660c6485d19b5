//! Rows to labels: unknown ones, uncertain ones, and those of several sources.

use super::*;
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
    open(&toml::from_str(&text).expect("reads"), &heads(), 3, |_, _| {})
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
        open(&config, &heads(), 3, |_, _| {}).expect("opens").train.labels[3].values.clone()
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
    open(&toml::from_str(&text).expect("reads"), &heads, 3, |_, _| {})
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
    let error = open(&toml::from_str(&text).expect("reads"), &heads, 3, |_, _| {});
    let error = error.expect_err("is refused").to_string();
    assert!(error.contains("is trained on and validated on"), "{error}");
    assert!(error.contains("train.csv`, line 4, and"), "{error}");
}
