use super::*;

fn heads() -> Vec<HeadConfig> {
    let head = |name: &str, task: &str, labels: &[&str]| {
        let text = format!("name = '{name}'\ntask = '{task}'\nlabels = {labels:?}");
        toml::from_str(&text).expect("reads")
    };
    vec![
        head("findings", "multilabel", &["A", "B"]),
        head("kind", "multiclass", &["x", "y", "z"]),
        head("ages", "regression", &["1", "2", "3"]),
        head("seen", "binary", &["Seen"]),
        head("other", "binary", &["Other"]),
    ]
}

const SETTINGS: &str = "images = 'data.npz:images'\npatients = 'patients.npy'\nsplit = 'split.npy'\n\
    targets = { findings = 'findings.npy', kind = 'kind.npy', ages = 'age.npy', seen = 'seen.npy' }";

fn read(settings: &str, wanted: &[List]) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/arrays");
    let config: ArraysConfig =
        toml::from_str(&format!("root = {root:?}\n{settings}")).expect("reads");
    let vocabulary = config.vocabulary(&heads());
    config.read(&vocabulary, &[], wanted)
}

#[test]
fn rows_hold_the_targets_of_every_head_that_has_an_array() {
    let lists = read(SETTINGS, &[List::Train, List::Validation, List::Test]).expect("reads");
    let items =
        |list: List| -> Vec<usize> { lists[&list].iter().filter_map(|row| row.item).collect() };
    assert_eq!(items(List::Train), [0, 1, 3, 5]);
    assert_eq!((items(List::Validation), items(List::Test)), (vec![2], vec![4]));
    let second = &lists[&List::Train][1];
    assert_eq!((second.patient.as_str(), second.line), ("10", 2));
    assert_eq!(second.values.len(), 2 + 1 + 3 + 1);
    assert_eq!((second.values[0], second.values[2], second.values[6]), (0.0, 2.0, 0.0));
    assert!(second.values[1].is_nan(), "NaN is unknown");
    let image =
        Array::open(&second.path).expect("opens").image(second.item.expect("is an array's"));
    assert_eq!(image.map(|image| (image.width, image.height)), Ok((5, 4)));
}

#[test]
fn without_a_split_all_images_are_for_training_and_each_is_a_patient() {
    let rows = read("images = 'u8.npy'\ntargets = { kind = 'kind.npy' }", &[List::Train]);
    let rows = &rows.expect("reads")[&List::Train];
    let patients: Vec<&str> = rows.iter().map(|row| row.patient.as_str()).collect();
    assert_eq!(patients, ["0", "1", "2", "3", "4", "5"]);
}

/// An array of zeros of that shape, 8 bits a number.
fn zeros(path: &Path, shape: &[usize]) {
    let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({sides}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((118_u16).to_le_bytes());
    bytes.extend(format!("{text:<117}\n").into_bytes());
    bytes.resize(bytes.len() + shape.iter().product::<usize>(), 0);
    std::fs::write(path, bytes).expect("is written");
}

#[test]
fn channels_that_are_not_those_of_the_configuration_are_seen_without_reading_an_image() {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("x.npy");
    let config: ArraysConfig =
        toml::from_str(&format!("images = {path:?}\ntargets = {{}}")).expect("reads");
    let check = |shape: &[usize], channels: usize| {
        zeros(&path, shape);
        let image = format!("size = [32, 32]\nchannels = {channels}");
        let checked = config.check_images(&toml::from_str(&image).expect("reads"));
        let said = checked.map_err(|error| error.to_string());
        said.map_err(|said| said.replace(&format!("{}/", folder.path().display()), ""))
    };
    for (shape, channels) in [
        (&[5, 8, 9][..], 1),
        (&[5, 8, 9], 3),
        (&[5, 1, 8, 9], 1),
        (&[5, 1, 8, 9], 3),
        (&[5, 3, 8, 9], 3),
        (&[5, 2, 8, 2], 2),
    ] {
        assert_eq!(check(shape, channels), Ok(()), "{shape:?}");
    }
    let said = |shape, channels| check(shape, channels).expect_err("is refused");
    insta::assert_snapshot!(said(&[5, 8, 9, 1], 1), @"array `x.npy`: its shape [5, 8, 9, 1] looks like [images, height, width, channels], and channels come second here: save numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))");
    insta::assert_snapshot!(said(&[5, 8, 9, 3], 3), @"array `x.npy`: its shape [5, 8, 9, 3] looks like [images, height, width, channels], and channels come second here: save numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))");
    insta::assert_snapshot!(said(&[5, 8, 9, 7], 7), @"array `x.npy`: its shape [5, 8, 9, 7] looks like [images, height, width, channels], and channels come second here: save numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))");
    insta::assert_snapshot!(said(&[5, 3, 8, 9], 1), @"array `x.npy`: its shape is [5, 3, 8, 9], so its images have 3 channels, and `data.image.channels` is 1");
    insta::assert_snapshot!(said(&[5, 2, 8, 9], 3), @"array `x.npy`: its shape is [5, 2, 8, 9], so its images have 2 channels, and `data.image.channels` is 3");
}

#[test]
fn arrays_that_do_not_fit_say_which_and_why() {
    let said = |settings: &str| {
        let message = read(settings, &[List::Train]).expect_err("is refused").to_string();
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
        message.replace(root, "")
    };
    let images = |rest: &str| said(&format!("images = 'u8.npy'\n{rest}"));
    insta::assert_snapshot!(said("images = 'age.npy'\ntargets = {}"), @"array `arrays/age.npy`: its shape is [6, 3], not [images, height, width] or [images, channels, height, width]");
    insta::assert_snapshot!(said("images = 'u9.npy'\ntargets = {}"), @"array `arrays/u9.npy`: the file does not exist");
    insta::assert_snapshot!(images("targets = { findings = 'age.npy' }"), @"array `arrays/age.npy`: its shape is [6, 3], and 6 images with 2 labels need [6, 2]");
    insta::assert_snapshot!(images("targets = { kind = 'patients.npy' }"), @"array `arrays/patients.npy`, image 0 (counted from 0): 10 is not the number of one of the head's labels, counted from 0, or NaN (unknown)");
    insta::assert_snapshot!(images("targets = { seen = 'kind.npy' }"), @"array `arrays/kind.npy`, image 1 (counted from 0): 2 is not 0 (negative) to 1 (positive), or NaN (unknown)");
    insta::assert_snapshot!(images("targets = {}\nsplit = 'patients.npy'"), @"array `arrays/patients.npy`, image 0 (counted from 0): 10 is not 0 (train), 1 (validation) or 2 (test)");
    insta::assert_snapshot!(images("targets = {}\npatients = 'age.npy'"), @"array `arrays/age.npy`: its shape is [6, 3], and 6 images with 1 label need [6]");
}

/// An array of 32-bit numbers of that shape.
fn floats(path: &Path, shape: &[usize], numbers: &[f32]) {
    zeros(path, shape);
    let bytes = std::fs::read(path).expect("reads");
    let header = String::from_utf8_lossy(&bytes[..128]).replace("|u1", "<f4").into_bytes();
    // The sign of the version is no text.
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    let all: Vec<u8> = bytes[..10]
        .iter()
        .copied()
        .chain(header[header.len() - 118..].to_vec())
        .chain(numbers)
        .collect();
    std::fs::write(path, all).expect("is written");
}

#[test]
fn numbers_far_from_black_and_white_are_told_where_they_are_taken_as_they_are() {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("x.npy");
    let config: ArraysConfig =
        toml::from_str(&format!("images = {path:?}\ntargets = {{}}")).expect("reads");
    let odd = |normalize: &str| {
        let image = format!("size = [2, 2]\nnormalize = {normalize}");
        config.odd_images(&toml::from_str(&image).expect("reads"))
    };
    let mut numbers = vec![0.5; 40];
    floats(&path, &[10, 2, 2], &numbers);
    assert_eq!(odd("'unit'"), None);
    // In the last image.
    (numbers[38], numbers[39]) = (-3.0, 65535.0);
    floats(&path, &[10, 2, 2], &numbers);
    insta::assert_snapshot!(odd("'unit'").expect("is told"));
    assert!(odd("'xrv'").is_some());
    assert_eq!(odd("'per_image'"), None);
    assert_eq!(odd("{ mean = 30000, std = 9000 }"), None);
    zeros(&path, &[10, 2, 2]);
    assert_eq!(odd("'unit'"), None);
}
