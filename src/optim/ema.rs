//! The exponential moving average of the weights.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "cuda")]
use burn::tensor::DType;
use burn::tensor::{Device, Tensor, TensorData, Transaction};

use super::lerp::lerp;
use super::restore::{complete, take};
use super::{EmaConfig, OptimError};
use crate::memory::{OutOfMemory, check_allocated};
use crate::ops::gpu::Buffer;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Gpu, Moving};

/// An exponential moving average of each weight, as `torch.optim.swa_utils.get_ema_multi_avg_fn`
/// computes it: `decay · average + (1 − decay) · weight` after each step.
pub struct Ema {
    decay: f64,
    averages: BTreeMap<String, Tensor<1>>,
    /// Those that lie in the memory of the weights that they started as.
    in_weights: BTreeSet<String>,
}

impl EmaConfig {
    /// An average that starts as `weights`, by name and flattened (`[n]`, no autodiff).
    pub fn init(&self, weights: impl IntoIterator<Item = (String, Tensor<1>)>) -> Ema {
        let averages: BTreeMap<_, _> = weights.into_iter().collect();
        Ema { decay: self.decay, in_weights: averages.keys().cloned().collect(), averages }
    }
}

impl Ema {
    /// What its state is called.
    pub const WHAT: &str = "average of the weights";

    /// Gives the averages of the weights `names`, which are about to take a step, memory of their own where they have none.
    ///
    /// # Errors
    /// When there is not so much memory. Nothing has changed then.
    pub fn make_ready<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(), OutOfMemory> {
        let shared = names.filter_map(|name| self.in_weights.get(name));
        let copied = shared.map(|name| (name.clone(), self.averages[name].clone().mul_scalar(1.0)));
        let copied: Vec<(String, Tensor<1>)> = copied.collect();
        check_allocated(copied.iter().map(|(_, copy)| copy.clone()))?;
        for (name, copy) in copied {
            self.in_weights.remove(&name);
            self.averages.insert(name, copy);
        }
        Ok(())
    }

    /// Moves the average of `name` towards `weight`; to be called once a step for each weight. A
    /// weight not seen before starts its average.
    pub fn update(&mut self, name: &str, weight: Tensor<1>) {
        let average = match self.averages.remove(name) {
            Some(average) => lerp(average, weight, 1.0 - self.decay),
            None => weight,
        };
        self.averages.insert(name.to_owned(), average);
    }

    /// [`Ema::update`] of several weights. On a GPU one kernel moves the averages that it can, and leaves them as they are
    /// where the step that was `decided` about ([`Factor::OnGpu`](crate::ops::gpu::Factor)) is left out.
    pub fn update_all(
        &mut self,
        weights: impl IntoIterator<Item = (String, Tensor<1>)>,
        decided: Option<&Buffer>,
    ) {
        #[cfg(feature = "cuda")]
        let weights = self.update_on_gpu(weights, decided);
        let _ = decided;
        weights.into_iter().for_each(|(name, weight)| self.update(&name, weight));
    }

    /// Moves the averages that a kernel moves; returns the other weights.
    #[cfg(feature = "cuda")]
    fn update_on_gpu(
        &mut self,
        weights: impl IntoIterator<Item = (String, Tensor<1>)>,
        decided: Option<&Buffer>,
    ) -> Vec<(String, Tensor<1>)> {
        let (mut names, mut averages, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut gpu = None;
        for (name, weight) in weights {
            let on = Gpu::of(&weight.device()).filter(|_| weight.dtype() == DType::F32);
            let same = self.averages.extract_if(name.clone()..=name.clone(), |_, average| {
                on.is_some() && average.dtype() == DType::F32 && average.device() == weight.device()
            });
            match same.map(|(_, average)| average).next() {
                Some(average) => {
                    averages.push([average, weight].map(Buffer::of_tensor));
                    names.push(name);
                    gpu = gpu.or(on);
                }
                None => others.push((name, weight)),
            }
        }
        let Some(gpu) = gpu else { return others };
        let moved = gpu.moving_average(Moving::Lerp, 1.0 - self.decay, averages, decided);
        let moved = moved.into_iter().map(|average| gpu.tensor(&average, [average.len()]));
        self.averages.extend(names.into_iter().zip(moved));
        others
    }

    /// Takes `value` as the average of `name` and returns the average it had; `value` itself where
    /// `name` has none.
    pub fn exchange(&mut self, name: &str, value: Tensor<1>) -> Tensor<1> {
        match self.averages.get_mut(name) {
            Some(average) => std::mem::replace(average, value),
            None => value,
        }
    }

    /// The average of `name`, `[n]`.
    pub fn get(&self, name: &str) -> Option<&Tensor<1>> {
        self.averages.get(name)
    }

    /// Every average by its weight's name, read from the device at once, bit for bit.
    pub fn state(&self) -> Result<Vec<(String, TensorData)>, OptimError> {
        let transaction = self
            .averages
            .values()
            .fold(Transaction::default(), |all, average| all.register(average.clone()));
        Ok(self.averages.keys().cloned().zip(transaction.try_execute()?).collect())
    }

    /// Goes on from `state`, which must hold exactly the names of the weights; on an error nothing
    /// changes.
    pub fn load(
        &mut self,
        state: Vec<(String, TensorData)>,
        device: &Device,
    ) -> Result<(), OptimError> {
        let mut state: BTreeMap<String, TensorData> = state.into_iter().collect();
        let mut loaded = BTreeMap::new();
        let mut missing = Vec::new();
        for (name, average) in &self.averages {
            match take(Self::WHAT, &mut state, name, average.dims()[0], device)? {
                Some(tensor) => {
                    loaded.insert(name.clone(), tensor);
                }
                None => missing.push(name.clone()),
            }
        }
        complete(Self::WHAT, missing, state.into_keys().collect())?;
        self.averages = loaded;
        self.in_weights.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::optim::oracle;

    #[derive(Deserialize)]
    struct Averaging {
        weights: Vec<Vec<f32>>,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        decay: f64,
        average: Vec<f32>,
    }

    fn start(decay: f64, weights: &[f32]) -> Ema {
        EmaConfig { decay }.init([("w".to_owned(), oracle::vector(weights))])
    }

    fn average(ema: &Ema) -> Vec<f32> {
        oracle::values(ema.get("w").expect("is averaged"))
    }

    #[test]
    fn weights_are_averaged_as_pytorch_averages_them() {
        let fixture: Averaging = oracle::section("averaging");
        for case in &fixture.cases {
            let mut ema = start(case.decay, &fixture.weights[0]);
            for weights in &fixture.weights[1..] {
                ema.update("w", oracle::vector(weights));
            }
            oracle::agree(&average(&ema), &case.average, &format!("decay {}", case.decay));
        }
    }

    #[test]
    fn an_average_with_memory_of_its_own_is_the_same() {
        let mut apart = start(0.99, &[0.1, -0.7]);
        let mut shared = start(0.99, &[0.1, -0.7]);
        for names in [vec!["v"], vec!["w", "v"], vec!["w"]] {
            apart.make_ready(names.into_iter()).expect("has memory");
        }
        assert!(apart.in_weights.is_empty() && shared.in_weights.len() == 1);
        for ema in [&mut apart, &mut shared] {
            ema.update("w", oracle::vector(&[1.0 / 3.0, 0.3]));
        }
        assert_eq!(average(&apart), average(&shared));
    }

    #[test]
    fn a_loaded_average_goes_on_bit_for_bit() {
        let mut whole = start(0.99, &[0.1, -0.7]);
        whole.update("w", oracle::vector(&[1.0 / 3.0, 0.3]));
        let mut resumed = start(0.99, &[0.0, 0.0]);
        resumed.load(whole.state().expect("reads"), &Device::flex()).expect("loads");
        for ema in [&mut whole, &mut resumed] {
            ema.update("w", oracle::vector(&[0.9, 1e-8]));
        }
        assert_eq!(average(&whole), average(&resumed));
    }

    #[test]
    fn an_average_of_other_weights_is_refused() {
        let mut ema = start(0.9, &[1.0, 2.0]);
        let other = EmaConfig { decay: 0.9 }.init([("v".to_owned(), oracle::vector(&[1.0]))]);
        let error = ema.load(other.state().expect("reads"), &Device::flex()).expect_err("refused");
        assert!(error.to_string().contains("lacks `w`"), "{error}");
        let shorter = start(0.9, &[1.0]).state().expect("reads");
        let error = ema.load(shorter, &Device::flex()).expect_err("refused");
        assert!(error.to_string().contains("holds 1 numbers"), "{error}");
        assert_eq!(average(&ema), [1.0, 2.0]);
    }
}
