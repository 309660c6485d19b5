use super::*;
use crate::model::weights::write;

#[derive(serde::Deserialize)]
struct Fixture {
    side: usize,
    image: Vec<f32>,
    cases: Vec<Case>,
}

/// A weight for some channels, what timm makes of it for others, and what it gives for a grey image
/// (tests/fixtures/input_conv.py).
#[derive(serde::Deserialize)]
struct Case {
    shape: Vec<usize>,
    weight: Vec<f32>,
    timm: BTreeMap<usize, Vec<f32>>,
    outputs: Vec<f64>,
}

fn fixture() -> Fixture {
    let text = include_str!("../../../../tests/fixtures/input_conv.json");
    serde_json::from_str(text).expect("the fixture reads")
}

impl Case {
    fn adapted(&self, channels: usize) -> Vec<f32> {
        let (shape, data) = (self.shape.clone(), self.weight.clone());
        adapt(&NamedTensor { name: "conv".to_owned(), shape, data }, channels)
    }
}

fn assert_close(ours: impl IntoIterator<Item = f64>, theirs: impl IntoIterator<Item = f64>) {
    let (ours, theirs): (Vec<f64>, Vec<f64>) =
        (ours.into_iter().collect(), theirs.into_iter().collect());
    assert_eq!(ours.len(), theirs.len());
    for (one, other) in ours.iter().zip(&theirs) {
        let ulps = 4.0 * f64::from(f32::EPSILON) * (1.0 + other.abs());
        assert!((one - other).abs() <= ulps, "{one} {other}");
    }
}

#[test]
fn colour_weights_become_what_timm_makes_of_them() {
    let mut compared = 0;
    for case in fixture().cases {
        for (&channels, theirs) in &case.timm {
            let ours = case.adapted(channels).into_iter().map(f64::from);
            assert_close(ours, theirs.iter().copied().map(f64::from));
            compared += 1;
        }
    }
    assert_eq!(compared, 5);
}

/// What a convolution gives for a grey image with its grey in every channel.
fn convolved(weight: &[f32], shape: &[usize], side: usize, grey: &[f32]) -> Vec<f64> {
    let [outputs, channels, height, width] = shape else { panic!("{shape:?}") };
    let mut sums = Vec::new();
    for output in 0..*outputs {
        for (row, column) in
            (0..=side - height).flat_map(|row| (0..=side - width).map(move |column| (row, column)))
        {
            let mut sum = 0.0;
            for place in 0..channels * height * width {
                let (y, x) = (place / width % height, place % width);
                let weight = weight[output * channels * height * width + place];
                sum += f64::from(weight) * f64::from(grey[(row + y) * side + column + x]);
            }
            sums.push(sum);
        }
    }
    sums
}

#[test]
fn a_grey_image_gives_the_same_with_one_channel_as_with_three_equal_ones() {
    let Fixture { side, image, cases } = fixture();
    for case in cases {
        for channels in [1, 3] {
            let shape = [case.shape[0], channels, case.shape[2], case.shape[3]];
            let ours = convolved(&case.adapted(channels), &shape, side, &image);
            assert_close(ours, case.outputs.iter().copied());
        }
    }
}

/// A file with tensors of these names and shapes.
fn file(folder: &tempfile::TempDir, tensors: &[(&str, &[usize])]) -> PathBuf {
    let tensor = |(number, (name, shape)): (usize, &(&str, &[usize]))| NamedTensor {
        name: (*name).to_owned(),
        shape: shape.to_vec(),
        data: vec![number as f32 + 1.0; shape.iter().product()],
    };
    let tensors: Vec<NamedTensor> = tensors.iter().enumerate().map(tensor).collect();
    let path = folder.path().join("w.safetensors");
    std::fs::write(&path, write(&tensors).expect("a file")).expect("is written");
    path
}

/// What is said of a model of these tensors that starts from a file of those.
fn told(tensors: &[(&str, &[usize])], wanted: &[(&str, &[usize])]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, tensors);
    let wanted: Vec<(String, Vec<usize>)> =
        wanted.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect();
    let said = match initial(&path, &wanted, &[]) {
        Ok((initial, values)) => {
            assert_eq!(initial.tensors, values.len());
            for (name, shape) in wanted {
                let drawn = initial.random().contains(&name);
                let numbers = values.get(&name).map(Vec::len);
                assert_eq!(numbers, (!drawn).then(|| shape.iter().product()), "{name}");
            }
            [vec![initial.to_string()], initial.warnings()].concat().join("\n")
        }
        Err(error) => error.to_string(),
    };
    said.replace(&format!("{}/", folder.path().display()), "")
}

const COLOUR: (&str, &[usize]) = ("features.conv0.weight", &[8, 3, 7, 7]);
const GREY: (&str, &[usize]) = ("features.conv0.weight", &[8, 1, 7, 7]);
const NORM: (&str, &[usize]) = ("features.norm0.weight", &[8]);
const HEAD: [(&str, &[usize]); 2] =
    [("classifier.findings.weight", &[2, 8]), ("classifier.findings.bias", &[2])];
const LARGER: [(&str, &[usize]); 2] =
    [("classifier.findings.weight", &[5, 8]), ("classifier.findings.bias", &[5])];
const TORCHVISION: [(&str, &[usize]); 2] =
    [("classifier.weight", &[1000, 8]), ("classifier.bias", &[1000])];

#[test]
fn what_was_taken_and_what_was_not_is_always_said() {
    let of = |first, head: [(&'static str, &'static [usize]); 2]| [first, NORM, head[0], head[1]];
    insta::assert_snapshot!(told(&of(GREY, HEAD), &of(GREY, HEAD)));
    insta::assert_snapshot!(told(&of(GREY, LARGER), &of(GREY, HEAD)));
    insta::assert_snapshot!(told(&of(COLOUR, TORCHVISION), &of(GREY, HEAD)));
    insta::assert_snapshot!(told(&of(GREY, HEAD), &of(COLOUR, HEAD)));
}

#[test]
fn weights_of_another_network_are_refused() {
    let wider: (&str, &[usize]) = ("features.norm0.weight", &[16]);
    insta::assert_snapshot!(told(&[COLOUR, wider], &[COLOUR, NORM]));
    insta::assert_snapshot!(told(&[COLOUR], &[COLOUR, NORM]));
    let smaller: (&str, &[usize]) = ("features.conv0.weight", &[8, 3, 3, 3]);
    insta::assert_snapshot!(told(&[smaller, NORM], &[GREY, NORM]));
}

#[test]
fn only_the_first_convolution_is_adapted() {
    let second = |channels: &'static [usize]| ("features.conv1.weight", channels);
    let said = told(&[COLOUR, second(&[8, 3, 1, 1])], &[GREY, second(&[8, 1, 1, 1])]);
    assert!(said.contains("its `features.conv1.weight` is [8, 3, 1, 1]"), "{said}");
}

#[test]
fn many_names_are_counted() {
    let names: Vec<String> = (0..7).map(|number| format!("extra{number}")).collect();
    let shape: &[usize] = &[1];
    let tensors: Vec<(&str, &[usize])> =
        names.iter().map(|name| (name.as_str(), shape)).chain([GREY]).collect();
    insta::assert_snapshot!(told(&tensors, &[GREY]));
}
