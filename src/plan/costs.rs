//! What a training step costs, before it runs and before any device is opened.

use std::ops::Range;

use super::Plan;
use super::estimate::SHARD_BANDWIDTH;
use crate::memory::{
    ActivationShape, Footprint, Precision, Speed, Surroundings, Target, bytes_in_rows,
};
use crate::ops::gpu::MOST_ROOM;

/// What the stages of a plan cost for a micro-batch, and what is in use besides.
#[derive(Debug, Clone)]
pub struct Costs {
    /// The stages' names, first to last.
    pub names: Vec<String>,
    /// What each stage costs; of a frozen one, what it costs forward.
    pub stages: Vec<Footprint>,
    /// How many stages, from the first on, are frozen.
    pub frozen: usize,
    /// What is in use besides.
    pub surroundings: Surroundings,
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of the optimizer's state that the device has.
    pub optimizer: u64,
    /// Of these, bytes that wait off the device between steps.
    pub optimizer_away: u64,
    /// Bytes of the room for gradients that other cards give while this one computes.
    pub gradient_room: u64,
    /// Bytes of new weights that other devices send in a step, where these share out the optimizer's work.
    pub weights_received: u64,
    /// Seconds that sending and receiving them takes.
    pub weights_seconds: f64,
    /// Seconds that the optimizer's step takes, with these.
    pub optimizer_seconds: f64,
    /// Bytes of the largest tensor.
    pub largest_tensor: u64,
}

impl Costs {
    /// The names of the stages that are trained.
    pub fn trained(&self) -> Vec<&str> {
        self.names[self.frozen..].iter().map(String::as_str).collect()
    }

    /// Bytes of the weights' gradients.
    pub fn gradients(&self) -> u64 {
        self.stages.iter().map(|stage| stage.parameter_gradients).sum()
    }
}

/// What each stage of a plan costs for a micro-batch, first to last.
#[derive(Debug, Clone, Default)]
pub(super) struct EachStage {
    pub names: Vec<String>,
    /// Of a frozen one, what it costs forward.
    pub stages: Vec<Footprint>,
    /// How many, from the first on, are frozen.
    pub frozen: usize,
    /// Trained numbers.
    pub counts: Vec<u64>,
    /// Numbers that it puts out.
    pub outputs: Vec<u64>,
    /// Bytes of the largest tensor.
    pub largest: Vec<u64>,
}

/// How many numbers there are.
fn numbers(shape: &ActivationShape) -> u64 {
    let count: usize = match shape {
        ActivationShape::Map(shape) => shape.iter().product(),
        ActivationShape::Features(shape) => shape.iter().product(),
        ActivationShape::Outputs(heads) => heads.iter().map(|[images, of]| images * of).sum(),
    };
    count as u64
}

/// Bytes of a number of an image, or of an output.
const NUMBER: u64 = 4;
/// Beside the gradients in the room for them: each array begins at a multiple of 32 KiB.
const PADDING: u64 = 1 << 20;

/// Bytes of a weight, a gradient of one, or a number of the optimizer's state.
pub(super) fn weight_bytes(precision: Precision) -> u64 {
    precision.parameters().size() as u64
}

impl Plan {
    /// The shape of this many images.
    pub fn input(&self, images: usize) -> ActivationShape {
        let [height, width] = self.data.image.size;
        ActivationShape::Map([images, self.data.image.channels, height, width])
    }

    /// The costs of the stages on `on`, for `images` images at once. With `offload_optimizer` the
    /// optimizer's state waits in host memory.
    pub fn costs(&self, on: &Target, images: usize, offload_optimizer: bool) -> Costs {
        let each = self.each_stage(on, images);
        let all = 0..each.stages.len();
        self.costs_of(&each, all, on, images, offload_optimizer)
    }

    /// What each stage costs on `on`, for `images` images at once.
    pub(super) fn each_stage(&self, on: &Target, images: usize) -> EachStage {
        let specs = self.stages_with(on.precision, on.dense_layers);
        let frozen = self.frozen();
        let mut shape = self.input(images);
        let weight = weight_bytes(on.precision);
        let mut each = EachStage { frozen, ..EachStage::default() };
        for spec in &specs {
            let gradients = weight * spec.parameter_count() as u64;
            let found = spec.footprint(&shape, on);
            // They are held as the weights are, whatever activations are held in.
            let parameter_gradients = found.parameter_gradients.max(gradients);
            each.largest.push(found.largest_array.max(found.largest_parameter));
            let layers = spec.layers() as f64;
            let found = Footprint { parameter_gradients, layers, ..found };
            let is_frozen = each.stages.len() < frozen;
            each.stages.push(if is_frozen { found.forward_only() } else { found });
            each.counts.push(spec.parameter_count() as u64);
            each.names.push(spec.name().to_owned());
            shape = spec.output(&shape);
            each.outputs.push(numbers(&shape));
        }
        each
    }

    /// The costs of some of the stages that cost `each`: of all, or of those that a device of a pipeline
    /// has.
    pub(super) fn costs_of(
        &self,
        each: &EachStage,
        range: Range<usize>,
        on: &Target,
        images: usize,
        offload_optimizer: bool,
    ) -> Costs {
        let weight = weight_bytes(on.precision);
        let (is_first, is_last) = (range.start == 0, range.end == each.stages.len());
        let stages = each.stages[range.clone()].to_vec();
        let counts = &each.counts[range.clone()];
        let frozen = each.frozen.saturating_sub(range.start).min(stages.len());
        let largest_tensor = each.largest[range.clone()].iter().max().copied().unwrap_or(0);
        let weights = weight * counts.iter().sum::<u64>();
        let (counts, of_trained) = (&counts[frozen..], &stages[frozen..]);
        let trained = weight * counts.iter().sum::<u64>();
        // What a device has of so many bytes of weights, of which it updates a part.
        let shards = self.optimizer_shards() as u64;
        let own = |bytes: u64| weight * (bytes / weight).div_ceil(shards);
        let kept = self.train.optimizer.kept() as u64;
        let optimizer = kept * own(trained);
        let largest = of_trained.iter().map(|stage| stage.largest_parameter).max().unwrap_or(0);
        let optimizer_away = if offload_optimizer && on.cuda { optimizer } else { 0 };
        // On a GPU the usual optimizers write new values over the old ones, and so does the average of the weights unless
        // the optimizer's state comes and goes. Else parameters are replaced one after the other: the new values of one
        // are there beside the old ones, and what they are worked out with, unless threads work it out part by part.
        let in_parts = !on.cuda && weight == 4;
        let in_place = on.cuda && weight == 4 && self.train.optimizer.has_kernel();
        let step = match (in_place, shards) {
            (true, 1) if self.train.ema.is_some() && optimizer_away > 0 => largest,
            (true, 1) => 0,
            (false, 1) if in_parts => largest,
            (false, 1) => 2 * largest,
            // Its parts of weights and gradients are copied out, and the whole weights are given back. Then the new weights
            // of one parameter after the other are put together from all parts.
            _ => own(largest) + largest,
        };
        // Before it, cards that share batches have the sums of the gradients beside the gradients.
        let step = if on.cuda && self.copies() > 1 { step.max(trained) } else { step };
        let weights_received = trained - own(trained).min(trained);
        // What waits off the device comes back a parameter at a time.
        let back = (kept * own(largest)).min(optimizer_away);
        let speed = Speed::of(on);
        let passes = (3 * own(trained) + 2 * optimizer) as f64 / speed.bandwidth;
        // Of the CPU's devices it is the same memory.
        let weights_seconds = if on.cuda { weights_received as f64 / SHARD_BANDWIDTH } else { 0.0 };
        let optimizer_seconds = passes + weights_seconds + 2.0 * optimizer_away as f64 / speed.link;
        let average = if self.train.ema.is_some() { own(trained) } else { 0 };
        let one = numbers(&self.input(1));
        // On the CPU the batch lies in the same memory, and so do the buffers of products.
        let batch = match on.cuda {
            true if is_first => self.ahead_on_gpu(on.precision, images),
            false if is_first => {
                NUMBER * one * self.train.batch_size as u64 + on.cpu.packing_buffers
            }
            true => 0,
            false => on.cpu.packing_buffers,
        };
        // What goes from device to device is in the numbers of activations.
        let activation = on.precision.activations().size() as u64;
        let between = |stage: usize| activation * each.outputs[stage];
        let input =
            if is_first { activation * one * images as u64 } else { between(range.start - 1) };
        // Cards have room for the gradients that the other cards of a batch give them while they compute.
        let others = self.copies() as u64 - 1;
        let gives = on.cuda && others > 0 && weight == NUMBER && self.depth() == 1;
        let gradient_room = if gives { (others * (trained + PADDING)).min(MOST_ROOM) } else { 0 };
        let of_heads = NUMBER * each.outputs[range.end - 1];
        // Of the outputs: labels, mask, and a handful of temporary tensors of their size.
        let (loss_workspace, loss_gradient) =
            if is_last { (8 * of_heads, of_heads) } else { (0, between(range.end - 1)) };
        let of_stages: u64 = stages.iter().map(|stage| stage.standing).sum();
        let surroundings = Surroundings {
            standing: weights + optimizer - optimizer_away
                + average
                + of_stages
                + batch
                + gradient_room,
            input,
            loss_workspace,
            loss_gradient,
            step_workspace: step + back,
            by_copy_engines: on.cuda,
        };
        Costs {
            names: each.names[range].to_vec(),
            stages,
            frozen,
            surroundings,
            weights,
            optimizer,
            optimizer_away,
            gradient_room,
            weights_received,
            weights_seconds,
            optimizer_seconds,
            largest_tensor,
        }
    }

    /// Bytes of the next `images` images, which are copied to a GPU while it computes those before them.
    pub fn ahead_on_gpu(&self, precision: Precision, images: usize) -> u64 {
        let bytes = if precision == Precision::Bf16 { 2 } else { NUMBER };
        bytes * numbers(&self.input(images))
    }

    /// Bytes of a whole batch of images on a GPU.
    pub fn batch_on_gpu(&self) -> u64 {
        let image = &self.data.image;
        let [height, width] = image.size;
        let shape = [self.train.batch_size, image.channels, height, width];
        bytes_in_rows(shape, NUMBER as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::plan::{Estimator, Machine, MemorySettings};

    const ANY_SIZE: u64 = u64::MAX;
    const GPU: Machine = Machine { memory: ANY_SIZE, ..Machine::ASSUMED };
    const CPU: Machine = Machine { cuda: false, hopper: false, ..GPU };

    /// Milliseconds of the recorded steps with later kernels (`benches/results/2026-11-28-h200x4-rows-in-place.log`).
    const MILLISECONDS: [f64; 18] = [
        12.733, 14.352, 43.061, 70.595, 15.735, 19.426, 12.900, 14.423, 41.471, 46.608, 4.670,
        10.436, 9.735, 15.051, 12.625, 14.130, 49.422, 55.976,
    ];

    /// What `trainer bench` measured on an H100, and what is predicted for the same commands. Bytes: to a
    /// thousandth. Seconds: to 7%.
    #[test]
    fn fused_steps_are_predicted_as_they_were_measured() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let recorded = include_str!("../../benches/results/2026-11-26-h100-steps.json");
        let recorded: Vec<Value> = serde_json::from_str(recorded).expect("JSON");
        let mut faults = Vec::new();
        assert_eq!(recorded.len(), MILLISECONDS.len());
        for (case, measured_ms) in recorded.iter().zip(MILLISECONDS) {
            let command = case["command"].as_str().expect("a command");
            let path = root.join(command.split(' ').nth(2).expect("a configuration"));
            let set: Vec<String> =
                command.split(" --set ").skip(1).map(|set| set.replace('\'', "")).collect();
            let loaded = crate::config::load(&path, &set).expect("a right configuration");
            let plan = crate::plan::plan(loaded.config).expect("a right plan");
            let found = plan.simulate(&plan.memory, GPU).expect("a right policy");
            // The batch stays on the device, and a step computes on a copy; none is copied ahead.
            let settings = MemorySettings::configured(&plan.memory, plan.train.batch_size);
            let ahead = plan.ahead_on_gpu(settings.precision, settings.micro_batch);
            let peak = found.peak - ahead + plan.batch_on_gpu();
            let measured = case["ours"]["peak"].as_f64().expect("a peak");
            let off = peak as f64 / measured - 1.0;
            if off.abs() >= 1e-3 {
                faults.push(format!("{command}: {peak} of {measured}, {off:+.4}"));
            }
            let ms = found.seconds * 1e3;
            if (ms / measured_ms - 1.0).abs() >= 0.07 {
                faults.push(format!("{command}: {ms:.2} of {measured_ms:.2} ms"));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }

    fn planned(model: &str, set: &str) -> Plan {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join(format!("benches/configs/{model}.toml"));
        let set: Vec<String> = set.split_terminator(';').map(str::to_owned).collect();
        let loaded = crate::config::load(&path, &set).expect("a right configuration");
        crate::plan::plan(loaded.config).expect("a right plan")
    }

    /// conv1 of ResNet-18 puts out four times what any stage does.
    #[test]
    fn the_largest_tensor_may_be_inside_a_stage() {
        const DEPTH: &str = "memory.precision=\"fp32\";model.resnet.depth=18";
        for (set, on) in [("", GPU), ("", CPU), ("model.resnet.norm=\"group\"", GPU)] {
            let plan = planned("resnet50", &format!("{DEPTH};{set}"));
            let images = plan.train.batch_size;
            let [height, width] = plan.data.image.size;
            let conv1 = (4 * images * 64 * height.div_ceil(2) * width.div_ceil(2)) as u64;
            let settings = MemorySettings::configured(&plan.memory, images);
            let fits = |memory| {
                let machine = Machine { memory, ..GPU };
                let estimator = Estimator::within(&plan, machine, u64::MAX);
                estimator.estimate(&settings).expect("a right policy").fits
            };
            let target = on.target(plan.memory.precision, plan.memory.dense_layers());
            let largest = plan.costs(&target, images, false).largest_tensor;
            assert!(largest >= conv1, "{set} {}: {largest} of {conv1}", on.cuda);
            if on.cuda {
                assert!(fits(4 * largest) && !fits(4 * largest - 4), "{set}");
            }
        }
    }

    #[test]
    fn a_stronger_policy_takes_less_memory_and_more_time() {
        for (model, machine) in [("densenet121", GPU), ("resnet110", GPU), ("resnet110", CPU)] {
            let plan = planned(model, "train.batch_size=64");
            let under = |set: &str| {
                let Plan { memory, .. } = planned(model, &format!("train.batch_size=64;{set}"));
                plan.simulate(&memory, machine).expect("a right policy")
            };
            let plain = under("");
            for set in ["memory.checkpointing=\"sqrt\"", "memory.checkpointing=\"every\""] {
                let less = under(set);
                assert!(less.peak < plain.peak, "{model} {set}: {} {}", less.peak, plain.peak);
                assert!(less.seconds > plain.seconds && less.recomputation > 0.0, "{model} {set}");
            }
            assert!(under("memory.micro_batch=16").peak < plain.peak, "{model}");
        }
    }
}
