//! What a step holds of a GPU's memory: the pages that its buffers lie in.

use super::costs::weight_bytes;
use super::{Estimator, MemorySettings};
use crate::memory::{BufferLifetime, DryAllocator, DryStage, DrySteps, FootprintStage, Pages};

/// Steps that are gone through. From the second on all take the same at the same places, since new weights are
/// written over the old ones; a batch that is copied ahead lies in one of two places.
const STEPS: usize = 3;

impl Estimator {
    /// The pages that steps with these settings fit in and that hold least. `None` where that is not known:
    /// on the CPU, in a pipeline, where stages do not run fused, where something waits off the device, and where the
    /// optimizer's state is shared out.
    pub fn pages(&mut self, settings: &MemorySettings) -> Option<Pages> {
        Pages::least(&self.all_buffers(settings, STEPS)?, self.machine().largest_tensor())
    }

    /// Every buffer of so many steps of a benchmark, whose batch stays on the device, and of a run.
    fn all_buffers(
        &mut self,
        settings: &MemorySettings,
        steps: usize,
    ) -> Option<[Vec<BufferLifetime>; 2]> {
        Some([self.buffers(settings, steps, false)?, self.buffers(settings, steps, true)?])
    }

    /// Every buffer of so many steps with these settings, with images that are copied `ahead` or with a batch that
    /// stays on the device.
    fn buffers(
        &mut self,
        settings: &MemorySettings,
        steps: usize,
        ahead: bool,
    ) -> Option<Vec<BufferLifetime>> {
        let [strategy] = <[_; 1]>::try_from(self.strategies(settings).ok()?).ok()?;
        if !self.machine().cuda || strategy.part.is_some() || settings.offload_optimizer {
            return None;
        }
        if self.plan().optimizer_shards() > 1 {
            return None;
        }
        let costs = self.costs(settings);
        let plan = self.plan();
        let images = settings.micro_batch.min(plan.device_batch());
        let on = self.machine().target(settings.precision, settings.dense_layers);
        let memory = DryAllocator::recording();
        let mut stages: Vec<Box<dyn DryStage>> = Vec::with_capacity(costs.stages.len());
        let mut shape = plan.input(images);
        let mut before = costs.surroundings.input;
        let specs = plan.stages_with(settings.precision, settings.dense_layers);
        let weight = weight_bytes(settings.precision);
        for (place, (spec, footprint)) in specs.iter().zip(&costs.stages).enumerate() {
            // The heads are small.
            let stage = || {
                let (footprint, memory) = (*footprint, memory.clone());
                let parameters = memory.take(weight * spec.parameter_count() as u64);
                let stage = FootprintStage { footprint, input: before, parameters, memory };
                (place + 1 == specs.len()).then(|| Box::new(stage) as Box<dyn DryStage>)
            };
            stages.push(spec.dry(&shape, &on, &memory).or_else(stage)?);
            before = footprint.output;
            shape = spec.output(&shape);
        }
        // From the second micro-batch on all are alike too.
        let micros = strategy.parts(plan.device_batch()).len().min(2);
        let surroundings = &costs.surroundings;
        let of_stages: u64 = costs.stages.iter().map(|stage| stage.standing).sum();
        let sent = plan.ahead_on_gpu(settings.precision, images);
        let others = surroundings.standing - costs.weights - costs.optimizer - of_stages - sent;
        let chain = DrySteps {
            memory,
            stages,
            schedule: &strategy.schedule(micros),
            kept: plan.train.optimizer.kept(),
            others,
            ahead: ahead.then_some(sent),
            loss: [surroundings.loss_gradient, surroundings.loss_workspace],
        };
        chain.buffers(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Machine, Plan};

    const SIDE: &str = "data.image={size=[2000,2000],channels=1};model.densenet.depth=169;\
                        train.batch_size=8;train.optimizer={adamw={lr=1e-3}}";

    fn planned(model: &str, set: &str) -> Plan {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join(format!("benches/configs/{model}.toml"));
        let set: Vec<String> = set.split_terminator(';').map(str::to_owned).collect();
        let loaded = crate::config::load(&path, &set).expect("a right configuration");
        crate::plan::plan(loaded.config).expect("a right plan")
    }

    /// Where pages grew with the largest buffer, the first, experiment 1, held 6,128 MiB of an H100, the second
    /// 9,914, the third 2,109 and the fourth 1,437 (`benches/results/2026-11-23-h100-held.log`).
    #[test]
    fn pages_hold_little_more_than_is_in_use() {
        let share = format!("{SIDE};memory.dense_layers=\"share\"");
        let cases = [
            // 5,173 MiB, as with images in 32 bits, when 61 MiB more were in use.
            ("densenet121", share.as_str(), 1.14),
            ("densenet121", SIDE, 1.04),
            ("densenet121", "", 1.06),
            ("densenet121", "memory.micro_batch=16", 1.11),
            ("resnet50", "", 1.11),
            ("resnet50", "memory.precision=\"fp32\"", 1.10),
        ];
        for (model, set, most) in cases {
            let plan = planned(model, set);
            let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
            let mut estimator = Estimator::new(&plan, Machine::ASSUMED);
            let peak = estimator.estimate(&settings).expect("a right policy").peak;
            let pages = estimator.pages(&settings).expect("all stages are fused");
            let ratio = pages.bytes() as f64 / peak as f64;
            assert!((1.0..most).contains(&ratio), "{model} {set}: {pages:?} for {peak}");
        }
    }

    /// Where new weights were taken before the old ones went, pages that two steps fitted in did not hold the third:
    /// an H100 held 2,352 MiB of DenseNet-121 with 64 images where 2,030 were estimated
    /// (`benches/results/2026-11-23-h100-suites-and-steps.log`).
    #[test]
    fn later_steps_need_no_more_pages() {
        let sets =
            ["", "memory.dense_layers=\"share\"", "train.batch_size=8", "memory.micro_batch=16"];
        for (model, set) in
            sets.map(|set| ("densenet121", set)).into_iter().chain([("resnet50", "")])
        {
            let plan = planned(model, set);
            let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
            let mut estimator = Estimator::new(&plan, Machine::ASSUMED);
            let mut needed = |steps: usize, size: u64| {
                let all = estimator.all_buffers(&settings, steps).expect("all stages are fused");
                Pages::needed(&all, size << 20)
            };
            for size in [54, 101, 232, 322, 640] {
                assert_eq!(
                    needed(STEPS, size),
                    needed(STEPS + 7, size),
                    "{model} {set} {size} MiB"
                );
            }
        }
    }

    /// What an allocation costs the host grows with the number of buffers in use: 380 small ones were half of its
    /// work for a step of DenseNet-121 at 8 images.
    #[test]
    fn small_buffers_are_few() {
        let plan = planned("densenet121", "train.batch_size=8");
        let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
        let buffers = Estimator::new(&plan, Machine::ASSUMED).buffers(&settings, STEPS, true);
        let buffers = buffers.expect("all stages are fused");
        let small: Vec<&BufferLifetime> =
            buffers.iter().filter(|buffer| buffer.bytes <= 64 << 10).collect();
        let (found, most) =
            (small.len() / STEPS, small.iter().map(|buffer| at_once(buffer, &small)).max());
        assert!(
            found < 250 && most < Some(120),
            "{found} small buffers in a step, {most:?} at once"
        );
    }

    fn at_once(buffer: &BufferLifetime, all: &[&BufferLifetime]) -> usize {
        all.iter().filter(|other| other.from < buffer.from && buffer.from < other.to).count()
    }

    /// Steps of whole chains and footprints put together come to the same peak.
    #[test]
    fn whole_steps_take_what_their_stages_are_estimated_to_take() {
        for (model, set) in [
            ("densenet121", ""),
            ("densenet121", "memory.dense_layers=\"share\""),
            ("densenet121", "memory.checkpointing=\"sqrt\""),
            ("densenet121", "memory.micro_batch=16"),
            ("resnet50", ""),
            ("resnet50", "memory.checkpointing=\"sqrt\""),
            ("resnet110", ""),
        ] {
            let plan = planned(model, set);
            let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
            let mut estimator = Estimator::new(&plan, Machine::ASSUMED);
            let peak = estimator.estimate(&settings).expect("a right policy").peak as f64;
            let buffers = estimator.buffers(&settings, STEPS, true).expect("all stages are fused");
            let mut live: Vec<(u64, bool, u64)> = Vec::new();
            for BufferLifetime { bytes, from, to, .. } in buffers {
                live.extend([(from, true, bytes), (to, false, bytes)]);
            }
            live.sort_unstable();
            let (mut now, mut most) = (0, 0);
            for (_, taken, bytes) in live {
                if taken {
                    now += bytes
                } else {
                    now -= bytes
                }
                most = most.max(now);
            }
            let off = most as f64 / peak - 1.0;
            assert!(off.abs() < 2e-3, "{model} {set}: {most} for {peak}, {off:+.4}");
        }
    }
}
