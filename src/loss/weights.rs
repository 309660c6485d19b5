//! Weights of classes and of positives, in numbers.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::{ClassWeights, WeightRule};
use crate::data::LabelCounts;

/// One weight of positives per label. `balanced` is negatives / positives; 1 for a label that is
/// never positive or never negative, where no weight could balance it (and 0 would silence it).
pub(super) fn positive_weights(weights: &ClassWeights, counts: &LabelCounts) -> Vec<f64> {
    match weights {
        ClassWeights::Numbers(numbers) => numbers.clone(),
        ClassWeights::Rule(WeightRule::Balanced) => counts
            .positives
            .iter()
            .zip(&counts.negatives)
            .map(
                |(&positives, &negatives)| {
                    if positives > 0.0 && negatives > 0.0 { negatives / positives } else { 1.0 }
                },
            )
            .collect(),
    }
}

/// One weight per class. `balanced` is images / (classes × images of the class), as scikit-learn's
/// `compute_class_weight`; 1 for a class without images, which never is a target.
pub(super) fn class_weights(weights: &ClassWeights, counts: &LabelCounts) -> Vec<f64> {
    match weights {
        ClassWeights::Numbers(numbers) => numbers.clone(),
        ClassWeights::Rule(WeightRule::Balanced) => {
            let images: f64 = counts.positives.iter().sum();
            let classes = counts.positives.len() as f64;
            let weight = |&count| if count > 0.0 { images / (classes * count) } else { 1.0 };
            counts.positives.iter().map(weight).collect()
        }
    }
}

/// `[1, numbers]`, in 32-bit whatever the device's default type.
pub(super) fn row(numbers: &[f64], device: &Device) -> Tensor<2> {
    let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    let shape = [1, numbers.len()];
    Tensor::from_data(TensorData::new(numbers, shape), (device, DType::F32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BALANCED: ClassWeights = ClassWeights::Rule(WeightRule::Balanced);

    #[derive(serde::Deserialize)]
    struct Fixture {
        class_weights: Balanced,
    }

    #[derive(serde::Deserialize)]
    struct Balanced {
        positives: Vec<f64>,
        weights: Vec<f64>,
    }

    #[test]
    fn balanced_class_weights_are_those_of_scikit_learn() {
        let text = include_str!("../../tests/fixtures/losses.json");
        let Balanced { positives, weights } =
            serde_json::from_str::<Fixture>(text).expect("the fixture reads").class_weights;
        let images: f64 = positives.iter().sum();
        let negatives = positives.iter().map(|count| images - count).collect();
        let ours = class_weights(&BALANCED, &LabelCounts { positives, negatives });
        assert_eq!(ours, weights);
    }

    #[test]
    fn balanced_positives_weigh_as_much_as_the_negatives() {
        let counts = LabelCounts { positives: vec![10.0, 3.5], negatives: vec![30.0, 1.0] };
        let weights = positive_weights(&BALANCED, &counts);
        for (label, weight) in weights.into_iter().enumerate() {
            let weighed = weight * counts.positives[label];
            assert!((weighed - counts.negatives[label]).abs() < 1e-12);
        }
    }

    #[test]
    fn a_label_that_cannot_be_balanced_weighs_1() {
        let counts = LabelCounts { positives: vec![0.0, 5.0, 0.0], negatives: vec![9.0, 0.0, 0.0] };
        assert_eq!(positive_weights(&BALANCED, &counts), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_class_that_never_occurs_weighs_1_and_leaves_the_others_finite() {
        let counts = LabelCounts { positives: vec![4.0, 0.0], negatives: vec![0.0, 4.0] };
        assert_eq!(class_weights(&BALANCED, &counts), [0.5, 1.0]);
    }
}
