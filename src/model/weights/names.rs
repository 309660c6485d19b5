//! Which tensor of a file goes where in a model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::NamedTensor;

/// What wrappers put before every name.
const PREFIXES: [&str; 3] = ["module.", "model.", "backbone."];

/// How the tensors of a file go with those a model wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matched {
    /// (position among the wanted, position in the file), in the order of the wanted.
    pub assignments: Vec<(usize, usize)>,
    /// Wanted, and not in the file.
    pub missing: Vec<String>,
    /// In the file (under this name), and not wanted.
    pub unexpected: Vec<String>,
    /// In the file, with another shape.
    pub mismatched: Vec<Mismatch>,
}

/// A tensor that has one shape in the file and another in the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Its position in the file.
    #[serde(skip)]
    pub at: usize,
    /// Its name in the model.
    pub name: String,
    /// Its shape in the file.
    pub found: Vec<usize>,
    /// Its shape in the model.
    pub wanted: Vec<usize>,
}

/// Finds for each wanted (name, shape) its tensor in the file.
///
/// A name in the file counts without `module.`, `model.` and `backbone.` when all names begin so;
/// as torchvision renames it, where it is an old name of its DenseNets (`norm.1.weight` for
/// `norm1.weight`); `fc.`, `head.fc.` and `head.` count as `classifier.`; and `classifier.weight` and `.bias` are those of a model's only head
/// (`classifier.<head>.weight`), or the other way round, when that is one linear layer of the same
/// shape.
pub fn match_names(file: &[NamedTensor], wanted: &[(String, Vec<usize>)]) -> Matched {
    let mut names = plain_names(file, wanted);
    rename_classifier(file, &mut names, wanted);
    let mut by_name = BTreeMap::new();
    let mut matched = Matched::default();
    for (position, name) in names.iter().enumerate() {
        // A file may hold an old and a new name of one tensor; the first is as good as the other.
        by_name.entry(name.as_str()).or_insert(position);
    }
    let mut taken = vec![false; file.len()];
    for (place, (name, shape)) in wanted.iter().enumerate() {
        let Some(&position) = by_name.get(name.as_str()) else {
            matched.missing.push(name.clone());
            continue;
        };
        taken[position] = true;
        if file[position].shape == *shape {
            matched.assignments.push((place, position));
        } else {
            matched.mismatched.push(Mismatch {
                at: position,
                name: name.clone(),
                found: file[position].shape.clone(),
                wanted: shape.clone(),
            });
        }
    }
    let left = file.iter().zip(taken).filter(|(_, taken)| !taken);
    matched.unexpected = left.map(|(tensor, _)| tensor.name.clone()).collect();
    matched
}

/// Names without wrappers' prefixes, in today's spelling.
fn plain_names(file: &[NamedTensor], wanted: &[(String, Vec<usize>)]) -> Vec<String> {
    let mut names: Vec<&str> = file.iter().map(|tensor| tensor.name.as_str()).collect();
    let shared = |names: &[&str]| {
        PREFIXES.into_iter().find(|prefix| {
            names.iter().all(|name| name.starts_with(prefix))
                && !wanted.iter().any(|(name, _)| name.starts_with(prefix))
        })
    };
    while !names.is_empty()
        && let Some(prefix) = shared(&names)
    {
        for name in &mut names {
            *name = &name[prefix.len()..];
        }
    }
    let mut names: Vec<String> = names.into_iter().map(modern_name).collect();
    call_classifier(&mut names, wanted);
    names
}

/// torchvision's name for a key of its DenseNets before module names could hold no dots; its
/// pattern is `^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$`.
fn modern_name(name: &str) -> String {
    old_name(name).unwrap_or_else(|| name.to_owned())
}

fn old_name(name: &str) -> Option<String> {
    let (rest, kind) = name.rsplit_once('.')?;
    let (rest, number) = rest.rsplit_once('.')?;
    let (layer, part) = rest.rsplit_once('.')?;
    let (_, digits) = layer.rsplit_once("denselayer")?;
    let is_old = matches!(kind, "weight" | "bias" | "running_mean" | "running_var")
        && matches!(number, "1" | "2")
        && matches!(part, "norm" | "relu" | "conv")
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_old.then(|| format!("{rest}{number}.{kind}"))
}

/// Gives the file's only linear classifier the name of the model's, when one of them is
/// torchvision's, without a head's name.
fn rename_classifier(file: &[NamedTensor], names: &mut [String], wanted: &[(String, Vec<usize>)]) {
    let found = names.iter().zip(file).map(|(name, tensor)| (name.as_str(), &tensor.shape[..]));
    let found = Classifier::only(found);
    let model = Classifier::only(wanted.iter().map(|(name, shape)| (name.as_str(), &shape[..])));
    if let (Some(found), Some(model)) = (found, model)
        && found.shape == model.shape
        && (found.name == TORCHVISION || model.name == TORCHVISION)
    {
        for name in names {
            if let Some((_, kind)) = linear_part(name).filter(|(of, _)| *of == found.name) {
                *name = format!("{}.{kind}", model.name);
            }
        }
    }
}

/// What a file may call its classifier: torchvision's and timm's ResNets, timm's other networks.
const OTHER_CLASSIFIERS: [&str; 3] = ["fc.", "head.fc.", "head."];

/// Calls the file's classifier `classifier.`, as the models do, unless they have such a name themselves.
fn call_classifier(names: &mut [String], wanted: &[(String, Vec<usize>)]) {
    let begins = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
    let Some(other) = OTHER_CLASSIFIERS.into_iter().find(|other| begins(other)) else { return };
    let classifier = format!("{TORCHVISION}.");
    if begins(&classifier) || wanted.iter().any(|(name, _)| name.starts_with(other)) {
        return;
    }
    for name in names {
        if let Some(rest) = name.strip_prefix(other) {
            *name = format!("{classifier}{rest}");
        }
    }
}

const TORCHVISION: &str = "classifier";

/// A model's only head, when it is one linear layer.
struct Classifier {
    /// `classifier` or `classifier.<head>`.
    name: String,
    /// `[outputs, features]`.
    shape: Vec<usize>,
}

impl Classifier {
    fn only<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> Option<Self> {
        let mut only: Option<Self> = None;
        for (name, shape) in tensors.filter(|(name, _)| name.starts_with("classifier.")) {
            // Anything deeper than `classifier.<head>.weight` belongs to a head with hidden layers.
            let (of, kind) = linear_part(name)?;
            let first = || Self { name: of.to_owned(), shape: Vec::new() };
            let known = only.get_or_insert_with(first);
            if known.name != of {
                return None;
            }
            if kind == "weight" {
                known.shape = shape.to_vec();
            }
        }
        only
    }
}

/// `(classifier or classifier.<head>, weight or bias)`.
fn linear_part(name: &str) -> Option<(&str, &str)> {
    let (of, kind) = name.rsplit_once('.')?;
    let is_one =
        of == TORCHVISION || of.strip_prefix("classifier.").is_some_and(|head| !head.contains('.'));
    (is_one && matches!(kind, "weight" | "bias")).then_some((of, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize]) -> NamedTensor {
        let data = vec![0.0; shape.iter().product()];
        NamedTensor { name: name.to_owned(), shape: shape.to_vec(), data }
    }

    fn wanted(names: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
        names.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
    }

    #[test]
    fn old_keys_are_renamed_as_torchvision_renames_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/weights.json");
        let text = std::fs::read_to_string(path).expect("reads");
        let fixture: serde_json::Value = serde_json::from_str(&text).expect("is JSON");
        let pairs: Vec<(String, String)> =
            serde_json::from_value(fixture["renamed"].clone()).expect("are pairs");
        assert!(pairs.iter().filter(|(old, new)| old != new).count() > 5);
        for (old, new) in pairs {
            assert_eq!(modern_name(&old), new);
        }
    }

    #[test]
    fn prefixes_are_left_out_only_when_all_names_have_them() {
        let model = wanted(&[("features.a", &[1]), ("features.b", &[2])]);
        let wrapped =
            [tensor("module.model.features.b", &[2]), tensor("module.model.features.a", &[1])];
        let matched = match_names(&wrapped, &model);
        assert_eq!(matched.assignments, [(0, 1), (1, 0)]);
        assert_eq!((matched.missing, matched.unexpected), (vec![], vec![]));

        let mixed = [tensor("module.features.a", &[1]), tensor("features.b", &[2])];
        let matched = match_names(&mixed, &model);
        assert_eq!(matched.assignments, [(1, 1)]);
        assert_eq!(matched.missing, ["features.a"]);
        assert_eq!(matched.unexpected, ["module.features.a"]);
    }

    #[test]
    fn a_prefix_that_the_model_has_too_stays() {
        let model = wanted(&[("model.a", &[1])]);
        assert_eq!(match_names(&[tensor("model.a", &[1])], &model).assignments, [(0, 0)]);
    }

    #[test]
    fn another_shape_is_a_mismatch_and_not_an_assignment() {
        let matched = match_names(&[tensor("a", &[2, 3])], &wanted(&[("a", &[3, 2])]));
        assert_eq!(matched.assignments, []);
        assert_eq!(matched.unexpected, Vec::<String>::new());
        let mismatch = Mismatch { at: 0, name: "a".into(), found: vec![2, 3], wanted: vec![3, 2] };
        assert_eq!(matched.mismatched, [mismatch]);
    }

    #[test]
    fn torchvisions_classifier_is_the_only_linear_head_of_the_same_shape() {
        let file = [tensor("classifier.bias", &[5]), tensor("classifier.weight", &[5, 8])];
        let one =
            wanted(&[("classifier.findings.weight", &[5, 8]), ("classifier.findings.bias", &[5])]);
        assert_eq!(match_names(&file, &one).assignments, [(0, 1), (1, 0)]);
        let back: Vec<NamedTensor> = one.iter().map(|(name, shape)| tensor(name, shape)).collect();
        let torchvision = wanted(&[("classifier.weight", &[5, 8]), ("classifier.bias", &[5])]);
        assert_eq!(match_names(&back, &torchvision).assignments, [(0, 0), (1, 1)]);

        for other in [
            wanted(&[("classifier.findings.weight", &[4, 8]), ("classifier.findings.bias", &[4])]),
            wanted(&[
                ("classifier.findings.weight", &[5, 8]),
                ("classifier.findings.bias", &[5]),
                ("classifier.view.weight", &[5, 8]),
                ("classifier.view.bias", &[5]),
            ]),
            wanted(&[
                ("classifier.findings.0.weight", &[5, 8]),
                ("classifier.findings.0.bias", &[5]),
            ]),
        ] {
            let matched = match_names(&file, &other);
            assert_eq!(matched.assignments, [], "{other:?}");
            assert_eq!(matched.missing.len(), other.len());
            assert_eq!(matched.unexpected, ["classifier.bias", "classifier.weight"]);
        }
    }

    #[test]
    fn the_classifiers_of_resnets_and_of_timm_are_classifiers() {
        let model =
            wanted(&[("classifier.findings.weight", &[5, 8]), ("classifier.findings.bias", &[5])]);
        for called in ["fc", "head.fc", "head", "module.fc"] {
            let file = [("bias", &[5][..]), ("weight", &[5, 8])]
                .map(|(of, shape)| tensor(&format!("{called}.{of}"), shape));
            assert_eq!(match_names(&file, &model).assignments, [(0, 1), (1, 0)], "{called}");
        }
        let several = wanted(&[("classifier.a.weight", &[5, 8]), ("classifier.b.weight", &[5, 8])]);
        let file = [tensor("fc.b.weight", &[5, 8]), tensor("fc.a.weight", &[5, 8])];
        assert_eq!(match_names(&file, &several).assignments, [(0, 1), (1, 0)]);
        let own = wanted(&[("fc.weight", &[5, 8])]);
        assert_eq!(match_names(&[tensor("fc.weight", &[5, 8])], &own).assignments, [(0, 0)]);
    }

    #[test]
    fn a_head_is_not_taken_for_one_of_another_name() {
        let file = [tensor("classifier.view.weight", &[5, 8])];
        let matched = match_names(&file, &wanted(&[("classifier.findings.weight", &[5, 8])]));
        assert_eq!(matched.assignments, []);
    }
}
