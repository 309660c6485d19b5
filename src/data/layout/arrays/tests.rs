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
    insta::assert_snapshot!(said("images = 'u9.npy'\ntargets = {}"), @"there is no `arrays/u9.npy`");
    insta::assert_snapshot!(images("targets = { findings = 'age.npy' }"), @"array `arrays/age.npy`: its shape is [6, 3], and 6 images with 2 labels need [6, 2]");
    insta::assert_snapshot!(images("targets = { kind = 'patients.npy' }"), @"array `arrays/patients.npy`, image 0 (counted from 0): 10 is not the number of one of the head's labels, counted from 0, or NaN (unknown)");
    insta::assert_snapshot!(images("targets = { seen = 'kind.npy' }"), @"array `arrays/kind.npy`, image 1 (counted from 0): 2 is not 0 (negative) to 1 (positive), or NaN (unknown)");
    insta::assert_snapshot!(images("targets = {}\nsplit = 'patients.npy'"), @"array `arrays/patients.npy`, image 0 (counted from 0): 10 is not 0 (train), 1 (validation) or 2 (test)");
    insta::assert_snapshot!(images("targets = {}\npatients = 'age.npy'"), @"array `arrays/age.npy`: its shape is [6, 3], and 6 images need [6]");
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

/// An array of this kind, whose numbers or text are these bytes.
fn array(path: &Path, kind: &str, count: usize, bytes: &[u8]) {
    zeros(path, &[count]);
    let mut all = std::fs::read(path).expect("reads");
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({count},), }}");
    all.truncate(10);
    all.extend(format!("{text:<117}\n").into_bytes());
    all.extend(bytes);
    std::fs::write(path, all).expect("is written");
}

#[test]
fn patients_are_integers_of_any_size_or_text_and_nothing_that_is_rounded() {
    let folder = tempfile::tempdir().expect("is made");
    zeros(&folder.path().join("x.npy"), &[2, 4, 4]);
    let root = folder.path();
    let config = format!("root = {root:?}\nimages = 'x.npy'\ntargets = {{}}\npatients = 'p.npy'");
    let config: ArraysConfig = toml::from_str(&config).expect("reads");
    let patients = |kind: &str, count: usize, bytes: &[u8]| {
        array(&folder.path().join("p.npy"), kind, count, bytes);
        let lists = config.read(&config.vocabulary(&[]), &[], &[List::Train]);
        let lists = lists.map_err(|error| {
            error.to_string().replace(&format!("{}/", folder.path().display()), "")
        })?;
        Ok::<_, String>(
            lists[&List::Train].iter().map(|row| row.patient.clone()).collect::<Vec<_>>(),
        )
    };
    let wide = |text: &str, big: bool| -> Vec<u8> {
        let one = |letter: char| match big {
            true => u32::from(letter).to_be_bytes(),
            false => u32::from(letter).to_le_bytes(),
        };
        text.chars().flat_map(one).collect()
    };
    let names = Ok(vec!["Zoë".to_owned(), "p1".to_owned()]);
    assert_eq!(patients("<U3", 2, &wide("Zoëp1\0", false)), names);
    assert_eq!(patients(">U3", 2, &wide("Zoëp1\0", true)), names);
    assert_eq!(patients("|S2", 2, b"p1p\0"), Ok(vec!["p1".to_owned(), "p".to_owned()]));
    let large = [u64::MAX, u64::MAX - 1];
    let bytes: Vec<u8> = large.iter().flat_map(|one| one.to_le_bytes()).collect();
    assert_eq!(patients("<u8", 2, &bytes), Ok(large.map(|one| one.to_string()).to_vec()));
    let bytes: Vec<u8> = [-1_i64, i64::MIN + 1].iter().flat_map(|one| one.to_le_bytes()).collect();
    assert_eq!(patients("<i8", 2, &bytes), Ok(vec!["-1".into(), (i64::MIN + 1).to_string()]));
    let refused = [
        patients("<f4", 2, &[0; 8]),
        patients("<U1", 2, &[0; 8]),
        patients("|i1", 3, &[0; 3]),
        patients("<c8", 2, &[0; 16]),
    ];
    insta::assert_snapshot!(refused.map(|told| told.expect_err("is refused")).join("\n"));
}

#[test]
fn an_array_that_is_not_there_is_told_with_its_key_and_what_may_be_meant() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/arrays");
    let told = |settings: &str| {
        let text = format!("root = {root:?}\n{settings}");
        let config: ArraysConfig = toml::from_str(&text).expect("reads");
        let read = config.read(&config.vocabulary(&heads()), &[], &[List::Train]);
        let error = read.expect_err("is refused");
        let told = format!("{error}\n{}", error.help().expect("says what to do"));
        told.replace(&format!("{}/", root.display()), "")
    };
    let all = [
        told("images = 'u88.npy'\ntargets = {}"),
        told("images = 'u8.npy'\ntargets = { kind = 'kinds.npy' }"),
        told("images = 'u8.npy'\ntargets = {}\npatients = 'xyz'"),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
