use std::collections::BTreeMap;
use std::fs;

use rand::{Rng, RngExt};
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Expected {
    shape: Vec<u64>,
    numbers: Vec<Option<f64>>,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/arrays").join(name)
}

fn expected() -> BTreeMap<String, Expected> {
    let text = include_str!("../../../tests/fixtures/arrays/expected.json");
    serde_json::from_str(text).expect("reads")
}

#[test]
fn arrays_hold_what_numpy_wrote() {
    let expected = expected();
    assert!(expected.len() >= 12);
    for (name, expected) in expected {
        let array = Array::open(&fixture(&format!("{name}.npy"))).expect("opens");
        assert_eq!(array.shape(), expected.shape, "{name}");
        let numbers = array.numbers().expect("reads");
        let known = numbers.into_iter().map(|number| (!number.is_nan()).then_some(number));
        assert_eq!(known.collect::<Vec<_>>(), expected.numbers, "{name}");
    }
}

#[test]
fn an_image_keeps_its_numbers_and_depth() {
    let expected = expected();
    for (name, depth) in
        [("u8", 8), ("u16", 16), ("u16_big", 16), ("i16", 16), ("f32", 32), ("f64_big", 64)]
    {
        let array = Array::open(&fixture(&format!("{name}.npy"))).expect("opens");
        let expected = &expected[name];
        let each: u64 = expected.shape[1..].iter().product();
        for index in 0..6 {
            let image = array.image(index).expect("reads");
            assert_eq!(image.depth, depth);
            assert_eq!((image.planes * image.height * image.width) as u64, each);
            let values: Vec<f64> = match image.samples {
                Samples::U8(values) => values.into_iter().map(f64::from).collect(),
                Samples::U16(values) => values.into_iter().map(f64::from).collect(),
                Samples::F32(values) => values.into_iter().map(f64::from).collect(),
            };
            let start = index * each as usize;
            for (ours, theirs) in values.iter().zip(&expected.numbers[start..]) {
                let theirs = theirs.expect("is known");
                assert!((ours - theirs).abs() <= theirs.abs() * 1e-7, "{name}: {ours} {theirs}");
            }
        }
        assert!(array.image(6).is_err());
        assert!(array.image(usize::MAX).is_err());
    }
}

#[test]
fn members_of_archives_are_read_in_place() {
    let numbers =
        |name: &str| Array::open(&fixture(name)).expect("opens").numbers().expect("reads");
    assert_eq!(numbers("data.npz:images"), numbers("u16.npy"));
    assert_eq!(numbers("one.npz"), numbers("u8.npy"));
}

#[test]
fn what_cannot_be_read_says_why_and_what_to_do() {
    let said = |name: &str| Array::open(&fixture(name)).expect_err("is refused");
    insta::assert_snapshot!(said("nowhere.npy"), @"the file does not exist");
    insta::assert_snapshot!(said("expected.json"), @"it is no NumPy array (magic not found for NPY file)");
    insta::assert_snapshot!(said("data.npz"), @"it holds the arrays `images`, `findings`: write `….npz:NAME`");
    insta::assert_snapshot!(said("data.npz:labels"), @"it holds no array `labels`, but the arrays `images`, `findings`");
    insta::assert_snapshot!(said("packed.npz"), @"it is compressed, so images cannot be read one by one; save it with numpy.savez instead of numpy.savez_compressed");
    insta::assert_snapshot!(said("fortran.npy"), @"it is in Fortran order; save numpy.ascontiguousarray(…) of it");
    insta::assert_snapshot!(said("complex.npy"), @"it holds numbers of the type <c8; save it as float32");
    let folder = tempfile::tempdir().expect("is made");
    let whole = fs::read(fixture("u16.npy")).expect("reads");
    let cut = folder.path().join("cut.npy");
    fs::write(&cut, &whole[..whole.len() - 1]).expect("is written");
    insta::assert_snapshot!(Array::open(&cut).expect_err("is refused"), @"it is cut off: its header claims the shape [6, 4, 5]");
    let headed = |length: [u8; 4], text: &str| {
        let path = folder.path().join("headed.npy");
        let bytes = [b"\x93NUMPY\x02\x00", &length[..], text.as_bytes()].concat();
        fs::write(&path, bytes).expect("is written");
        Array::open(&path).expect_err("is refused")
    };
    insta::assert_snapshot!(headed([0xFF; 4], "{}"), @"its header claims 4294967295 bytes; 10000 are read");
    insta::assert_snapshot!(headed([200, 0, 0, 0], &"{".repeat(200)), @"its header has more than 4 brackets in each other");
    insta::assert_snapshot!(Array::open(&fixture("age.npy")).expect("opens").image(0).expect_err("is no image"), @"its shape [6, 3] is not [images, height, width]");
}

#[test]
fn damaged_arrays_are_errors_or_arrays_and_never_panics() {
    for name in ["u16.npy", "f32.npy", "data.npz", "one.npz"] {
        let whole = fs::read(fixture(name)).expect("reads");
        let folder = tempfile::tempdir().expect("is made");
        let path = folder.path().join(name);
        let mut refused = 0;
        for trial in 0..300 {
            let mut random = crate::random::stream(4, name, &[trial]);
            let mut bytes = whole.clone();
            for _ in 0..random.random_range(1..4) {
                // Headers are where lies do harm.
                let place = random.random_range(0..bytes.len().min(200));
                match random.next_u32() % 6 {
                    0 => bytes.truncate(place.max(1)),
                    _ => bytes[place] = random.random(),
                }
            }
            fs::write(&path, bytes).expect("is written");
            match Array::open(&path) {
                Ok(array) => {
                    let _ = array.image(0);
                    let _ = array.numbers();
                }
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 50, "{name}: {refused}");
    }
}
