//! Losses that kernels compute.

use burn::tensor::{Device, Tensor, TensorData};
use trainer::data::LabelCounts;
use trainer::loss::{BceConfig, ClassWeights, LossConfig};
use trainer::model::Task;

use super::noise;

/// Logits, targets and mask: some labels are missing, whose numbers are none, and some logits are extreme.
fn labels(shape: [usize; 2]) -> [Vec<f32>; 3] {
    let draw = |seed| noise::<2>(shape, seed, &Device::flex()).into_data().try_to_vec::<f32>();
    let [mut logits, targets, known] = [1, 2, 3].map(|seed| draw(seed).expect("are 32 bits"));
    let mask: Vec<f32> = known.iter().map(|value| f32::from(*value < 0.5)).collect();
    for (place, logit) in logits.iter_mut().enumerate() {
        *logit *= 8.0;
        for (every, value) in [(17, 100.0), (19, -100.0), (23, 0.0), (29, -0.0), (31, 1e4)] {
            if place % every == every - 1 {
                *logit = value;
            }
        }
    }
    let mut targets: Vec<f32> = targets.iter().map(|value| f32::from(*value > 0.3)).collect();
    for (place, known) in mask.iter().enumerate() {
        if *known == 0.0 {
            (logits[place], targets[place]) = (f32::NAN, f32::NAN);
        }
    }
    [logits, targets, mask]
}

#[test]
fn binary_cross_entropy_and_its_gradient_are_those_of_the_cpu() {
    let gpu = trainer::build::resolve_device("cuda").expect("a GPU");
    for shape in [[64, 14], [3, 1], [700, 9]] {
        let numbers = labels(shape);
        let weights = (0..shape[1]).map(|label| 0.25 + label as f64).collect();
        let weighted = Some(ClassWeights::Numbers(weights));
        for (pos_weight, label_smoothing) in
            [(None, 0.0), (None, 0.1), (weighted.clone(), 0.0), (weighted, 0.1)]
        {
            let config = BceConfig { pos_weight, label_smoothing };
            let loss = LossConfig::Bce(config.clone());
            let counts = vec![1.0; shape[1]];
            let counts = LabelCounts { positives: counts.clone(), negatives: counts };
            let loss = loss.init(Task::Multilabel, shape[1], &counts);
            let taken = |device: &Device| {
                let on = |numbers: &Vec<f32>| {
                    Tensor::<2>::from_data(TensorData::new(numbers.clone(), shape), device)
                };
                let [logits, targets, mask] = [&numbers[0], &numbers[1], &numbers[2]].map(on);
                let (sum, gradient) = loss.sum_and_gradient(logits, targets, mask, 0.37);
                let sum = sum.into_data().try_to_vec::<f32>().expect("are 32 bits");
                let gradient = gradient.into_data().try_to_vec::<f32>().expect("are 32 bits");
                (sum[0], gradient)
            };
            let ((expected, slopes), (found, gradient)) = (taken(&Device::flex()), taken(&gpu));
            let off = (found / expected - 1.0).abs();
            assert!(off < 2e-6, "{shape:?}, {config:?}: {found} for {expected}");
            for (place, (found, expected)) in gradient.iter().zip(&slopes).enumerate() {
                let off = (found - expected).abs();
                assert!(
                    off <= 1e-6 * expected.abs().max(0.37),
                    "{shape:?}, {config:?}, {place}: {found} for {expected}"
                );
            }
            let missing = numbers[2].iter().zip(&gradient).filter(|(known, _)| **known == 0.0);
            assert!(missing.map(|(_, given)| given.to_bits()).all(|bits| bits == 0));
            assert_eq!(taken(&gpu), (found, gradient), "another run has the same bits");
        }
    }
}
