//! What a training step costs, before it runs and before any device is opened.

use super::Plan;
use crate::memory::{
    ActivationShape, Footprint, MemoryConfig, PolicyFault, Simulation, Speed, Strategy,
    Surroundings, Target, simulate,
};

/// What the stages of a plan cost for a micro-batch, and what is in use besides.
#[derive(Debug, Clone)]
pub struct Costs {
    /// The stages' names, first to last.
    pub names: Vec<String>,
    /// What each stage costs.
    pub stages: Vec<Footprint>,
    /// What is in use besides.
    pub surroundings: Surroundings,
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of the optimizer's state.
    pub optimizer: u64,
}

/// Bytes of a weight, a gradient or a number of the optimizer's state.
const WEIGHT: u64 = 4;

/// Each thread that multiplies matrices keeps a buffer of about the size of its cache.
fn product_buffers() -> u64 {
    std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64) << 20
}

impl Plan {
    /// What its stages cost, run as `memory` has it on `on`, for `images` images at once.
    pub fn costs(&self, memory: &MemoryConfig, on: &Target, images: usize) -> Costs {
        let specs = self.stages_with(memory);
        let image = &self.data.image;
        let [height, width] = image.size;
        let mut shape = ActivationShape::Map([images, image.channels, height, width]);
        let mut stages = Vec::with_capacity(specs.len());
        for spec in &specs {
            stages.push(spec.footprint(&shape, on));
            shape = spec.output(&shape);
        }
        let counts: Vec<u64> = specs.iter().map(|spec| spec.parameter_count() as u64).collect();
        let weights = WEIGHT * counts.iter().sum::<u64>();
        // The parameters of a stage are replaced together: their new values are there beside the old
        // ones, and what the optimizer works the last of them out with.
        let step = counts.iter().zip(&stages);
        let step = step.map(|(count, stage)| WEIGHT * count + 2 * stage.largest_parameter);
        let optimizer = self.train.optimizer.kept() as u64 * weights;
        let average = if self.train.ema.is_some() { weights } else { 0 };
        let one = WEIGHT * (image.channels * height * width) as u64;
        // On the CPU the batch lies in the same memory, and so do the buffers of products.
        let host = match on.cuda {
            true => 0,
            false => one * self.train.batch_size as u64 + product_buffers(),
        };
        let outputs = match &shape {
            ActivationShape::Outputs(heads) => {
                WEIGHT
                    * heads.iter().map(|[images, outputs]| images * outputs).sum::<usize>() as u64
            }
            other => panic!("the chain ends in {other:?} instead of outputs"),
        };
        let of_stages: u64 = stages.iter().map(|stage| stage.standing).sum();
        let surroundings = Surroundings {
            standing: weights + optimizer + average + of_stages + host,
            input: one * images as u64,
            // Labels, mask, and a handful of temporary tensors of their size.
            loss_workspace: 8 * outputs,
            loss_gradient: outputs,
            step_workspace: step.max().unwrap_or(0),
        };
        let names = specs.iter().map(|spec| spec.name().to_owned()).collect();
        Costs { names, stages, surroundings, weights, optimizer }
    }

    /// What a training step takes, run as `memory` has it.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn simulate(
        &self,
        memory: &MemoryConfig,
        cuda: bool,
        speed: &Speed,
    ) -> Result<Simulation, PolicyFault> {
        let specs = self.stages_with(memory);
        let names: Vec<&str> = specs.iter().map(|spec| spec.name()).collect();
        let batch = self.train.batch_size;
        let strategy = Strategy::new(memory, &names, batch)?;
        let (precision, dense_layers) = (memory.precision, memory.dense_layers());
        let on = Target { cuda, precision, dense_layers };
        let costs = self.costs(memory, &on, strategy.micro_batch.min(batch));
        let schedule = strategy.schedule(strategy.parts(batch).len());
        Ok(simulate(&schedule, &costs.stages, &costs.surroundings, speed))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// What `trainer bench` measured on an H100, and what is predicted for the same commands.
    #[test]
    fn fused_steps_are_predicted_as_they_were_measured() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let recorded = include_str!("../../benches/results/2026-11-21-h100-steps.json");
        let recorded: Vec<Value> = serde_json::from_str(recorded).expect("JSON");
        assert_eq!(recorded.len(), 4);
        for case in recorded {
            let command = case["command"].as_str().expect("a command");
            let set: Vec<String> =
                command.split(" --set ").skip(1).map(|set| set.trim().to_owned()).collect();
            let path = root.join("benches/configs/densenet121.toml");
            let loaded = crate::config::load(&path, &set).expect("a right configuration");
            let plan = crate::plan::plan(loaded.config).expect("a right plan");
            let speed = Speed { flops: 1e14, bandwidth: 2e12, link: 5e10, layer: 0.0 };
            let found = plan.simulate(&plan.memory, true, &speed).expect("a right policy");
            let measured = case["ours"]["peak"].as_f64().expect("a peak");
            let off = found.peak as f64 / measured - 1.0;
            assert!(off.abs() < 0.1, "{command}: {} of {measured}, {off:+.3}", found.peak);
            let (peak, ms) = (found.peak, case["ours"]["ms"].as_f64().expect("ms"));
            eprintln!("{command}: {peak} of {measured} {off:+.4}; {:.1} of {ms:.1} ms", found.seconds * 1e3);
        }
    }
}
