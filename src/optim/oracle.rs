//! What PyTorch computes, from `tests/fixtures/optimizers.py`.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::OptimizerConfig;

/// A section of the fixture.
pub(super) fn section<T: DeserializeOwned>(name: &str) -> T {
    let text = include_str!("../../tests/fixtures/optimizers.json");
    let mut fixture: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(text).expect("the fixture is JSON");
    let section = fixture.remove(name).expect("the fixture has the section");
    serde_json::from_value(section).expect("the section has the shape asked for")
}

/// The optimizers' section.
#[derive(Deserialize)]
pub(super) struct Course {
    pub(super) start: Vec<f32>,
    pub(super) gradients: Vec<Vec<f32>>,
    /// What the learning rate is multiplied by at each step.
    pub(super) factors: Vec<f64>,
    pub(super) cases: Vec<Case>,
}

/// One optimizer with one choice of settings.
#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) config: OptimizerConfig,
    /// Values by the number of steps taken.
    after: BTreeMap<usize, Vec<f32>>,
    /// What the optimizer keeps after the last step.
    state: BTreeMap<String, Vec<f32>>,
}

/// A vector on the CPU.
pub(super) fn vector(values: &[f32]) -> Tensor<1> {
    Tensor::from_floats(values, &Device::flex())
}

/// The values of a vector.
pub(super) fn values(vector: &Tensor<1>) -> Vec<f32> {
    vector.to_data().try_to_vec().expect("holds f32")
}

/// Holds every case of the optimizer `name` to the fixture: values and state within 1e-6.
pub(super) fn follow(name: &str) {
    follow_course(&section("optimizers"), name);
}

/// The same of another fixture's course.
pub(super) fn follow_course(course: &Course, name: &str) {
    let mut followed = 0;
    for case in &course.cases {
        let written = serde_json::to_value(&case.config).expect("a config is JSON");
        if written.get(name).is_none() {
            continue;
        }
        let mut optimizer = case.config.init([("p".to_owned(), course.start.len())]);
        let mut value = vector(&course.start);
        for (index, (gradient, factor)) in course.gradients.iter().zip(&course.factors).enumerate()
        {
            let lr = case.config.lr() * factor;
            value = optimizer.step("p", lr, true, value, vector(gradient));
            if let Some(expected) = case.after.get(&(index + 1)) {
                agree(&values(&value), expected, &format!("{written} after {} steps", index + 1));
            }
        }
        let state = optimizer.state().expect("reads");
        assert_eq!(state.scalars, BTreeMap::from([("p/step".to_owned(), 20)]));
        assert_eq!(state.tensors.len(), case.state.len(), "{written}");
        for (leaf, data) in state.tensors {
            let expected = &case.state[leaf.trim_start_matches("p/")];
            let found = data.try_to_vec::<f32>().expect("holds f32");
            agree(&found, expected, &format!("{leaf} of {written}"));
        }
        followed += 1;
    }
    assert!(followed >= 2, "the fixture has {followed} cases of {name}");
}

/// Asserts that each number is within 1e-6 of the expected one, relative to it.
pub(super) fn agree(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - f64::from(*expected)).abs();
        assert!(
            error <= 1e-6 * f64::from(expected.abs()),
            "{what}: element {index} is {found}, PyTorch has {expected}"
        );
    }
}
