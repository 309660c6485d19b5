//! Runs any schedule over what stages cost instead of over stages.

use std::collections::BTreeMap;

use super::schedule::{Action, Aside, Operation, Schedule};
use super::{DryAllocator, DryBuffer, Footprint, Keep};
use crate::parallel::Flow;

/// What takes memory and time besides the stages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surroundings {
    /// Bytes in use before and after the step: weights, optimizer, running statistics.
    pub standing: u64,
    /// Bytes of a micro-batch of images; of what comes from the device before, where there is one.
    pub input: u64,
    /// The most bytes in use while the losses are computed, beyond those before and the gradient of
    /// the outputs.
    pub loss_workspace: u64,
    /// Bytes of the gradient of the outputs, of heads or of the last stage of a device.
    pub loss_gradient: u64,
    /// The most bytes in use while the optimizer takes its step, beyond those before.
    pub step_workspace: u64,
    /// Whether copy engines take what is sent to another device, as between cards: it lies where it was until it is known to have left, and there is
    /// memory for the next message when one is received.
    pub by_copy_engines: bool,
}

/// How fast a device is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Floating-point operations a second.
    pub flops: f64,
    /// Bytes a second from and to its memory.
    pub bandwidth: f64,
    /// Bytes a second to where things are moved off the device, in each direction.
    pub link: f64,
    /// Seconds that a layer takes at least.
    pub layer: f64,
}

/// What a schedule takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The most bytes in use at once.
    pub peak: u64,
    /// Bytes in use after each operation, and the most during it.
    pub course: Vec<(u64, u64)>,
    /// When each operation is done, in seconds of work and waiting of this device alone.
    pub times: Vec<f64>,
    /// Seconds of stages' work.
    pub seconds: f64,
    /// Of these, seconds spent on running stages again.
    pub recomputation: f64,
    /// Seconds waited for what is moved on and off the device.
    pub waiting: f64,
    /// The most bytes off the device at once.
    pub away: u64,
}

/// A value: the memory it lies in, and whether that has room for what the next stage writes.
#[derive(Clone)]
struct Value {
    block: DryBuffer,
    roomy: bool,
}

/// What is put aside, by micro-batch and stage.
type AsideKey = (usize, usize, Aside);

/// Memory that is off the device.
struct Away {
    bytes: u64,
    /// How many of what was moved away lie in it.
    users: usize,
    /// There again.
    back: Option<DryBuffer>,
}

/// Notes that what lies in the blocks `numbers` is where it is used.
fn restore(away: &mut BTreeMap<u64, Away>, numbers: &[u64]) {
    for number in numbers {
        if let Some(block) = away.get_mut(number) {
            block.users -= 1;
            if block.users == 0 {
                away.remove(number);
            }
        }
    }
}

/// What `schedule` takes over stages that cost `stages`.
///
/// # Panics
///
/// When the schedule asks for what is not there, as the executor does.
pub fn simulate(
    schedule: &Schedule,
    stages: &[Footprint],
    surroundings: &Surroundings,
    speed: &Speed,
) -> Simulation {
    let memory = DryAllocator::default();
    let _standing = memory.take(surroundings.standing);
    let mut forward: BTreeMap<usize, Value> = BTreeMap::new();
    let mut back: BTreeMap<usize, DryBuffer> = BTreeMap::new();
    let mut inputs: BTreeMap<(usize, usize), Option<Value>> = BTreeMap::new();
    let mut saved: BTreeMap<(usize, usize), Vec<DryBuffer>> = BTreeMap::new();
    // What was moved away, by block, and in which blocks each of it lies.
    let mut away: BTreeMap<u64, Away> = BTreeMap::new();
    let mut tickets: BTreeMap<AsideKey, Vec<u64>> = BTreeMap::new();
    // What was sent last still takes its memory.
    let mut leaving: Option<(AsideKey, Vec<DryBuffer>)> = None;
    // The same of the last values and gradients for other devices, and of which micro-batch.
    let mut sent: [Option<(usize, DryBuffer)>; 2] = [None, None];
    // Memory for the next ones of other devices.
    let mut expected: [Option<DryBuffer>; 2] = [None, None];
    let micros = schedule.operations.iter().map(|operation| operation.micro + 1).max();
    let mut gradients: BTreeMap<usize, DryBuffer> = BTreeMap::new();
    let (mut work, mut recomputation, mut waiting) = (0.0, 0.0, 0.0);
    // When the device has done its work and each direction of the link is free.
    let (mut out_free, mut in_free) = (0.0_f64, 0.0_f64);
    let (mut outside, mut most_away) = (0, 0);
    let mut arrives: BTreeMap<AsideKey, f64> = BTreeMap::new();
    let mut course = Vec::with_capacity(schedule.operations.len());
    let mut times = Vec::with_capacity(schedule.operations.len());
    for operation in &schedule.operations {
        memory.restart();
        let now = work + waiting;
        let Operation { stage, micro, action } = *operation;
        let footprint = &stages[stage];
        let given = |forward: &mut BTreeMap<usize, Value>| {
            forward.remove(&micro).unwrap_or_else(|| {
                assert_eq!(stage, 0, "nothing is on its way");
                Value { block: memory.take(surroundings.input), roomy: false }
            })
        };
        match action {
            Action::Forward(keep) | Action::Recompute(keep) => {
                let given = given(&mut forward);
                let output = match footprint.output_in_input && given.roomy {
                    true => Value { block: given.block.clone(), roomy: true },
                    false => Value { block: memory.take(footprint.output), roomy: true },
                };
                if keep == Keep::All {
                    let own = memory.take(footprint.saved);
                    memory.touch(footprint.saving_workspace);
                    let kept = [
                        Some(own),
                        footprint.saves_input.then(|| given.block.clone()),
                        footprint.saves_output.then(|| output.block.clone()),
                    ];
                    saved.insert((micro, stage), kept.into_iter().flatten().collect());
                } else {
                    memory.touch(footprint.forward_workspace);
                }
                forward.insert(micro, output);
                let taken = footprint.forward_seconds(speed);
                work += taken;
                if matches!(action, Action::Recompute(_)) {
                    recomputation += taken;
                }
            }
            Action::Checkpoint => {
                let given = given(&mut forward);
                let aside = match footprint.checkpoint {
                    0 => given.clone(),
                    bytes => Value { block: memory.take(bytes), roomy: false },
                };
                inputs.insert((micro, stage), Some(aside));
                forward.insert(micro, given);
            }
            Action::Restore => {
                let key = (micro, stage, Aside::Input);
                if let Some(time) = arrives.remove(&key) {
                    waiting += (time - now).max(0.0);
                    restore(&mut away, &tickets.remove(&key).unwrap_or_default());
                }
                let value = inputs.remove(&(micro, stage)).flatten();
                forward.insert(micro, value.expect("the input is there"));
            }
            Action::Offload(what) => {
                let blocks = match what {
                    Aside::Input => {
                        let place = inputs.get_mut(&(micro, stage)).expect("is put aside");
                        vec![place.take().expect("is there").block]
                    }
                    Aside::Saved => saved.remove(&(micro, stage)).expect("is kept"),
                };
                // The one before must have left.
                drop(leaving.take());
                waiting += (out_free - now).max(0.0);
                let mut moved = 0;
                for block in &blocks {
                    let bytes = block.bytes();
                    let new = || {
                        moved += bytes;
                        Away { bytes, users: 0, back: None }
                    };
                    away.entry(block.number()).or_insert_with(new).users += 1;
                }
                outside += moved;
                most_away = most_away.max(outside);
                out_free = out_free.max(now) + moved as f64 / speed.link;
                let key = (micro, stage, what);
                tickets.insert(key, blocks.iter().map(DryBuffer::number).collect());
                leaving = Some((key, blocks));
            }
            Action::Prefetch(what) => {
                let key = (micro, stage, what);
                leaving = leaving.filter(|(left, _)| *left != key);
                let mut moved = 0;
                let mut bring = |number: &u64| {
                    let block = away.get_mut(number).expect("was moved away");
                    let bytes = block.bytes;
                    let back = block.back.get_or_insert_with(|| {
                        moved += bytes;
                        memory.take(bytes)
                    });
                    back.clone()
                };
                let mut blocks: Vec<_> = tickets[&key].iter().map(&mut bring).collect();
                outside -= moved;
                in_free = in_free.max(now).max(out_free) + moved as f64 / speed.link;
                arrives.insert(key, in_free);
                match what {
                    Aside::Input => {
                        let block = blocks.remove(0);
                        inputs.insert((micro, stage), Some(Value { block, roomy: false }));
                    }
                    Aside::Saved => {
                        saved.insert((micro, stage), blocks);
                    }
                }
            }
            Action::Loss => {
                let outputs = forward.remove(&micro).expect("the last stage has run");
                let gradient = memory.take(surroundings.loss_gradient);
                memory.touch(surroundings.loss_workspace);
                drop(outputs);
                back.insert(micro, gradient);
            }
            Action::Backward => {
                let key = (micro, stage, Aside::Saved);
                if let Some(time) = arrives.remove(&key) {
                    waiting += (time - now).max(0.0);
                    restore(&mut away, &tickets.remove(&key).unwrap_or_default());
                }
                forward.remove(&micro);
                let gradient = back.remove(&micro).expect("a gradient has come this far");
                let kept = saved.remove(&(micro, stage)).expect("the stage has kept");
                memory.touch(footprint.backward_peak);
                drop(kept);
                let given = match footprint.gradient_in_gradient {
                    true => gradient,
                    false => {
                        drop(gradient);
                        memory.take(footprint.gradient)
                    }
                };
                // A second gradient is added to the first in its memory.
                let parameters = || memory.take(footprint.parameter_gradients);
                gradients.entry(stage).or_insert_with(parameters);
                if stage > schedule.frozen || schedule.returns {
                    back.insert(micro, given);
                }
                work += footprint.backward_seconds(speed);
            }
            Action::Send(flow) => {
                let block = match flow {
                    Flow::Value => forward.remove(&micro).map(|value| value.block),
                    Flow::Gradient => back.remove(&micro),
                };
                let held = block.filter(|_| surroundings.by_copy_engines);
                sent[flow as usize] = held.map(|block| (micro, block));
            }
            Action::Receive(flow) => {
                // A dense block takes values where they come.
                let roomy = surroundings.by_copy_engines && footprint.output_in_input;
                let bytes = match flow {
                    Flow::Value if roomy => footprint.output,
                    Flow::Value => surroundings.input,
                    Flow::Gradient => surroundings.loss_gradient,
                };
                let expected = &mut expected[flow as usize];
                let block = expected.take().unwrap_or_else(|| memory.take(bytes));
                let follows = surroundings.by_copy_engines && Some(micro + 1) < micros;
                *expected = follows.then(|| memory.take(bytes));
                match flow {
                    Flow::Value => drop(forward.insert(micro, Value { block, roomy })),
                    Flow::Gradient => {
                        back.insert(micro, block);
                        // The values that it is of have left.
                        let values = &mut sent[Flow::Value as usize];
                        *values = values.take().filter(|(sent, _)| *sent > micro);
                    }
                }
            }
        }
        course.push((memory.live(), memory.peak()));
        times.push(work + waiting);
    }
    drop((forward, back, inputs, saved, leaving));
    let at_step = memory.live() + surroundings.step_workspace;
    let peak = course.iter().map(|(_, most)| *most).fold(at_step, u64::max);
    Simulation { peak, course, times, seconds: work, recomputation, waiting, away: most_away }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::CheckpointPlan;

    const NOTHING: Surroundings = Surroundings {
        standing: 0,
        input: 1,
        loss_workspace: 0,
        loss_gradient: 1,
        step_workspace: 0,
        by_copy_engines: false,
    };
    const SPEED: Speed = Speed { flops: 1.0, bandwidth: 1.0, link: 1.0, layer: 0.0 };

    fn stage(saved: u64) -> Footprint {
        Footprint {
            output: 1,
            saved,
            saves_input: true,
            gradient: 1,
            backward_peak: 1,
            forward_flops: 1.0,
            backward_flops: 2.0,
            ..Footprint::default()
        }
    }

    fn run(tree: &CheckpointPlan, stages: &[Footprint]) -> Simulation {
        let schedule = Schedule::of_plan(tree, stages.len(), 1);
        simulate(&schedule, stages, &NOTHING, &SPEED)
    }

    #[test]
    fn segments_trade_time_for_memory() {
        let stages = [stage(10); 9];
        let all = run(&CheckpointPlan::keep_all(9), &stages);
        // Everything kept, the last output, the gradient.
        assert_eq!(all.peak, 9 * 10 + 9 + 2);
        assert_eq!((all.seconds, all.recomputation), (27.0, 0.0));
        let three = run(&CheckpointPlan::segments(&[3, 3, 3]), &stages);
        assert!(three.peak < 9 * 10 / 2, "{}", three.peak);
        assert_eq!((three.seconds, three.recomputation), (33.0, 6.0));
        let every = run(&CheckpointPlan::segments(&[1; 9]), &stages);
        assert_eq!(every.peak, 10 + 9 + 2);
    }

    #[test]
    fn memory_in_the_input_is_not_counted_twice() {
        let maker = Footprint { output: 8, ..stage(0) };
        let block = Footprint {
            output: 8,
            output_in_input: true,
            checkpoint: 3,
            saves_output: true,
            ..stage(5)
        };
        let all = run(&CheckpointPlan::keep_all(2), &[maker, block]);
        assert_eq!(all.peak, 1 + 8 + 5 + 2);
        // The block's input is put aside without the room; its second run makes the memory anew.
        let tree = CheckpointPlan::Keep {
            offload: false,
            rest: Some(Box::new(CheckpointPlan::segments(&[1, 1]))),
        };
        let again = run(&tree, &[maker, block, stage(0)]);
        assert_eq!(again.course[2].0, 1 + 3 + 8);
    }

    /// A card's output is there until the next one has been offered, or its gradient has come. There is memory for the second gradient from the
    /// first on.
    #[test]
    fn what_a_card_sends_takes_its_memory_until_it_has_left() {
        use crate::memory::PipelinePart;
        use crate::parallel::{PipelinePlace, PipelineSchedule};
        let place = PipelinePlace { rank: 0, ranks: 2, schedule: PipelineSchedule::Gpipe };
        let part = PipelinePart { place, returns: false };
        let schedule = Schedule::in_pipeline(part, 0, &CheckpointPlan::keep_all(1), 1, 2);
        let stage = Footprint { output: 100, saved: 1, ..Footprint::default() };
        let in_use = |by_copy_engines: bool| {
            let surroundings = Surroundings { by_copy_engines, ..NOTHING };
            let course = simulate(&schedule, &[stage], &surroundings, &SPEED).course;
            let of_messages = schedule.operations.iter().zip(course).filter(|(operation, _)| {
                matches!(operation.action, Action::Send(_) | Action::Receive(_))
            });
            of_messages.map(|(_, (live, _))| live).collect::<Vec<_>>()
        };
        // Two are sent, and two gradients come, each of one byte.
        assert_eq!(in_use(false), [1, 2, 3, 2]);
        assert_eq!(in_use(true), [101, 102, 104, 2]);
    }

    #[test]
    fn after_a_step_only_gradients_are_left() {
        let with = Footprint { parameter_gradients: 7, ..stage(3) };
        let schedule = Schedule::of_plan(&CheckpointPlan::keep_all(2), 2, 3);
        let result = simulate(&schedule, &[with; 2], &NOTHING, &SPEED);
        assert_eq!(result.course.last().expect("operations").0, 14);
    }

    #[test]
    fn what_is_away_is_waited_for_where_the_link_is_slow() {
        let stages = [stage(10); 4];
        let tree = CheckpointPlan::keep_all(4).offloaded(&[true; 4]);
        let schedule = Schedule::of_plan(&tree, 4, 1);
        let fast = simulate(&schedule, &stages, &NOTHING, &Speed { link: 1e9, ..SPEED });
        assert!(fast.waiting < 1e-6);
        let slow = simulate(&schedule, &stages, &NOTHING, &Speed { link: 1.0, ..SPEED });
        assert!(slow.waiting > 10.0);
        assert_eq!(slow.away, 3 * 11);
        assert!(slow.peak < run(&CheckpointPlan::keep_all(4), &stages).peak);
    }
}
