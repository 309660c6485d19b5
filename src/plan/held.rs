//! What a step holds of a GPU's memory.

use super::costs::weight_bytes;
use super::{Estimator, MemorySettings};
use crate::memory::{
    BufferLifetime, DryAllocator, DryStage, DrySteps, FootprintStage, Pages, Placement, Strategy,
};

/// Steps that are gone through. From the second on all take the same at the same places, since new weights are
/// written over the old ones; a batch that is copied ahead lies in one of two places.
pub(super) const STEPS: usize = 3;

/// What steps hold of a GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldMemory {
    /// Where passes of fused stages take their buffers.
    pub passes: Placement,
    /// Where everything else lies.
    pub pages: Pages,
}

impl HeldMemory {
    /// Bytes of all of it.
    pub fn bytes(&self) -> u64 {
        self.passes.bytes + self.pages.bytes()
    }
}

impl Estimator {
    /// What steps with these settings hold, as little as possible. `None` where that is not known: on the CPU, with several
    /// devices, where stages do not run fused, and where something waits off the device.
    pub fn held(&self, settings: &MemorySettings) -> Option<HeldMemory> {
        let [strategy] = <[_; 1]>::try_from(self.strategies(settings).ok()?).ok()?;
        self.held_with(settings, &strategy, STEPS)
    }

    /// The same of so many steps that are taken by `strategy`, either of a benchmark, whose batch stays on the device, or
    /// of a run.
    pub(super) fn held_with(
        &self,
        settings: &MemorySettings,
        strategy: &Strategy,
        steps: usize,
    ) -> Option<HeldMemory> {
        let buffers = |ahead| self.buffers(settings, strategy, steps, ahead);
        let all = [buffers(false)?, buffers(true)?];
        let passes = Placement::of(&all[0]);
        let others = all.map(|mut buffers| {
            buffers.retain(|buffer| buffer.pass.is_none());
            buffers
        });
        let pages = Pages::least(&others, self.machine.largest_tensor())?;
        Some(HeldMemory { passes, pages })
    }

    /// Every buffer of so many steps with these settings, with images that are copied `ahead` or with a batch that
    /// stays on the device.
    fn buffers(
        &self,
        settings: &MemorySettings,
        strategy: &Strategy,
        steps: usize,
        ahead: bool,
    ) -> Option<Vec<BufferLifetime>> {
        // What several devices exchange is not known.
        if !self.machine.cuda || self.plan.devices.len() > 1 || settings.offload_optimizer {
            return None;
        }
        let costs = self.costs(settings);
        let plan = &self.plan;
        let images = settings.micro_batch.min(plan.device_batch());
        let on = self.machine.target(settings.precision, settings.dense_layers);
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

    fn strategy(estimator: &Estimator, settings: &MemorySettings) -> Strategy {
        estimator.strategies(settings).expect("a right policy").swap_remove(0)
    }

    /// As an allocator places buffers in the order in which they are asked for, in pages of the best size, these held 1.00 to 1.23 times
    /// what is in use.
    #[test]
    fn steps_hold_little_more_than_is_in_use() {
        let share = format!("{SIDE};memory.dense_layers=\"share\"");
        let cases = [
            ("densenet121", "", 1.02),
            ("densenet121", "memory.dense_layers=\"share\"", 1.02),
            // Of 300 MiB, 8 are the page of small buffers.
            ("densenet121", "train.batch_size=8", 1.08),
            ("densenet121", "memory.micro_batch=16", 1.05),
            ("densenet121", "memory.checkpointing=\"every\"", 1.03),
            ("densenet121", "memory.precision=\"fp32\"", 1.02),
            ("densenet121", SIDE, 1.01),
            ("densenet121", share.as_str(), 1.01),
            ("resnet50", "", 1.05),
            ("resnet50", "memory.checkpointing=\"sqrt\"", 1.03),
            ("resnet110", "", 1.02),
        ];
        for (model, set, most) in cases {
            let plan = planned(model, set);
            let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
            let estimator = Estimator::new(&plan, Machine::ASSUMED);
            let peak = estimator.estimate(&settings).expect("a right policy").peak;
            let held = estimator.held(&settings).expect("all stages are fused");
            let ratio = held.bytes() as f64 / peak as f64;
            assert!(
                (1.0..most).contains(&ratio),
                "{model} {set}: {ratio} of {peak}, {:?}",
                held.pages
            );
        }
    }

    /// Where new weights were taken before the old ones went, pages that two steps fitted in did not hold the third:
    /// an H100 held 2,352 MiB of DenseNet-121 with 64 images where 2,030 were estimated
    /// (`benches/results/2026-11-23-h100-suites-and-steps.log`).
    #[test]
    fn later_steps_hold_no_more() {
        let sets =
            ["", "memory.dense_layers=\"share\"", "train.batch_size=8", "memory.micro_batch=16"];
        for (model, set) in
            sets.map(|set| ("densenet121", set)).into_iter().chain([("resnet50", "")])
        {
            let plan = planned(model, set);
            let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
            let estimator = Estimator::new(&plan, Machine::ASSUMED);
            let strategy = strategy(&estimator, &settings);
            let held = |steps: usize| {
                let held = estimator.held_with(&settings, &strategy, steps);
                held.expect("all stages are fused")
            };
            assert_eq!(held(STEPS), held(STEPS + 7), "{model} {set}");
        }
    }

    /// Everything that a pass takes is given back before the step ends, so that the next one finds its places free.
    #[test]
    fn passes_leave_nothing_behind() {
        for (model, set) in [
            ("densenet121", ""),
            ("densenet121", "memory.checkpointing=\"every\""),
            ("resnet50", ""),
        ] {
            let plan = planned(model, set);
            let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
            let estimator = Estimator::new(&plan, Machine::ASSUMED);
            let strategy = strategy(&estimator, &settings);
            let buffers = estimator.buffers(&settings, &strategy, STEPS, true);
            let buffers = buffers.expect("all stages are fused");
            let of_step = |step: usize| {
                let taken = buffers
                    .iter()
                    .filter(move |buffer| buffer.pass.is_some_and(|pass| pass.step == step));
                taken.map(|buffer| (buffer.from, buffer.to)).collect::<Vec<_>>()
            };
            for step in 1..STEPS {
                let begin = of_step(step).iter().map(|(from, _)| *from).min();
                let end = of_step(step - 1).iter().map(|(_, to)| *to).max();
                assert!(end < begin, "{model} {set}: step {step}");
                assert_eq!(of_step(step).len(), of_step(step - 1).len());
            }
        }
    }

    /// What an allocation costs the host grows with the number of buffers in use: 380 small ones were half of its
    /// work for a step of DenseNet-121 at 8 images.
    #[test]
    fn small_buffers_are_few() {
        let plan = planned("densenet121", "train.batch_size=8");
        let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
        let estimator = Estimator::new(&plan, Machine::ASSUMED);
        let strategy = strategy(&estimator, &settings);
        let buffers = estimator.buffers(&settings, &strategy, STEPS, true);
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
            let estimator = Estimator::new(&plan, Machine::ASSUMED);
            let peak = estimator.estimate(&settings).expect("a right policy").peak as f64;
            let strategy = strategy(&estimator, &settings);
            let buffers = estimator.buffers(&settings, &strategy, STEPS, true);
            let buffers = buffers.expect("all stages are fused");
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
