//! How long the devices of a pipeline take together, given what each takes alone.

use std::collections::BTreeMap;

use super::{Action, Operation, Schedule, Simulation};
use crate::parallel::Flow;

/// A device of a pipeline, and the thread that drives it: it starts work, which the device does behind it.
#[derive(Debug, Clone)]
pub struct DrivenDevice {
    /// What the device does.
    pub schedule: Schedule,
    /// What it takes alone.
    pub alone: Simulation,
    /// Seconds in which its thread starts the work of each stage forward; twice as many are those back.
    pub starts: Vec<f64>,
}

/// Seconds that a message between two devices of a pipeline takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct MessageTime {
    /// From one device to the other, beside what both compute.
    pub travelling: f64,
    /// By which the work of each of the two takes longer.
    pub of_work: f64,
}

/// Where a device and its thread are in time.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    /// When the thread has started all that it has come to.
    thread: f64,
    /// When the device has done all that was started.
    device: f64,
}

/// A message that has come.
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    /// When the device that received it had got so far as to wait for it.
    awaited: f64,
    /// When it was there.
    at: f64,
}

impl DrivenDevice {
    /// Seconds in which the thread starts an operation.
    fn start(&self, operation: &Operation) -> f64 {
        let forward = self.starts[operation.stage];
        match operation.action {
            Action::Forward(_) | Action::Recompute(_) => forward,
            Action::Backward => 2.0 * forward,
            _ => 0.0,
        }
    }

    /// Seconds that the device takes for the operation at `place`.
    fn work(&self, place: usize) -> f64 {
        let begun = if place == 0 { 0.0 } else { self.alone.times[place - 1] };
        self.alone.times[place] - begun
    }
}

/// Seconds until the last of the devices of a pipeline has done its schedule. Each waits for what it receives.
///
/// `messages` are those of a micro-batch between a device and the one behind; what comes back takes as long. The thread of the device
/// that receives waits until the other thread has started that. A message leaves when the one before has come, and the device that
/// receives it has got so far as to wait for that one.
///
/// # Panics
///
/// When a device waits for what no other sends.
pub fn seconds_together(devices: &[DrivenDevice], messages: &[MessageTime]) -> f64 {
    // When a message was there, by where it goes; and the last one of each direction to come.
    let mut sent: BTreeMap<(usize, bool, usize), Clock> = BTreeMap::new();
    let mut came: BTreeMap<(usize, bool), Came> = BTreeMap::new();
    let mut next = vec![0; devices.len()];
    let mut clocks = vec![Clock::default(); devices.len()];
    loop {
        let before = next.clone();
        for (rank, driven) in devices.iter().enumerate() {
            while let Some(operation) = driven.schedule.operations.get(next[rank]) {
                let clock = &mut clocks[rank];
                let Operation { micro, action, .. } = *operation;
                match action {
                    Action::Receive(flow) => {
                        let is_value = flow == Flow::Value;
                        let Some(sent) = sent.get(&(rank, is_value, micro)) else { break };
                        clock.thread = clock.thread.max(sent.thread);
                        clock.device = clock.device.max(clock.thread);
                        let before = came.get(&(rank, is_value)).copied().unwrap_or_default();
                        let leaves = sent.device.max(before.awaited).max(before.at);
                        let message = messages[if is_value { rank - 1 } else { rank }];
                        let at = leaves + message.travelling;
                        came.insert((rank, is_value), Came { awaited: clock.device, at });
                        clock.device = clock.device.max(at) + message.of_work;
                    }
                    Action::Send(flow) => {
                        let is_value = flow == Flow::Value;
                        let (to, message) = match is_value {
                            true => (rank + 1, messages[rank]),
                            false => (rank - 1, messages[rank - 1]),
                        };
                        clock.device = clock.device.max(clock.thread) + message.of_work;
                        sent.insert((to, is_value, micro), *clock);
                    }
                    _ => {
                        clock.thread += driven.start(operation);
                        // The last of its kernels does not begin before it is started.
                        let done = clock.device + driven.work(next[rank]);
                        clock.device = done.max(clock.thread);
                    }
                }
                next[rank] += 1;
            }
        }
        if next == before {
            break;
        }
    }
    let ended =
        devices.iter().zip(&next).all(|(driven, at)| *at == driven.schedule.operations.len());
    assert!(ended, "a device waits for what no other sends");
    clocks.iter().map(|clock| clock.thread.max(clock.device)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{CheckpointPlan, Footprint, PipelinePart, Speed, Surroundings, simulate};
    use crate::parallel::{PipelinePlace, PipelineSchedule};

    const AT_ONCE: [PipelineSchedule; 3] =
        [PipelineSchedule::Gpipe, PipelineSchedule::OneForwardOneBackward, PipelineSchedule::Eager];
    const SPEED: Speed = Speed { flops: 1.0, bandwidth: 1.0, link: 1.0, layer: 0.0 };
    const NOTHING: Surroundings = Surroundings {
        standing: 0,
        input: 1,
        loss_workspace: 0,
        loss_gradient: 1,
        step_workspace: 0,
        by_copy_engines: false,
    };

    fn run(
        schedule: PipelineSchedule,
        ranks: usize,
        micros: usize,
        start: f64,
        message: MessageTime,
    ) -> (f64, Vec<u64>) {
        let stage = Footprint {
            output: 1,
            saved: 10,
            forward_flops: 1.0,
            backward_flops: 2.0,
            ..Footprint::default()
        };
        let devices: Vec<DrivenDevice> = (0..ranks)
            .map(|rank| {
                let place = PipelinePlace { rank, ranks, schedule };
                let part = PipelinePart { place, returns: rank > 0 };
                let schedule =
                    Schedule::in_pipeline(part, 0, &CheckpointPlan::keep_all(1), 1, micros);
                let alone = simulate(&schedule, &[stage], &NOTHING, &SPEED);
                DrivenDevice { schedule, alone, starts: vec![start] }
            })
            .collect();
        let peaks = devices.iter().map(|driven| driven.alone.peak).collect();
        (seconds_together(&devices, &vec![message; ranks - 1]), peaks)
    }

    #[test]
    fn devices_of_equal_stages_take_the_time_that_is_published() {
        for (ranks, micros) in (1..5).flat_map(|ranks| (1..9).map(move |micros| (ranks, micros))) {
            let seconds = |schedule| run(schedule, ranks, micros, 0.0, MessageTime::default()).0;
            let (p, m) = (ranks as f64, micros as f64);
            // GPipe, section 2.3, and PipeDream-2BW, section 2; a stage takes 3 forward and back.
            for schedule in AT_ONCE {
                assert_eq!(seconds(schedule), 3.0 * (m + p - 1.0), "{schedule:?} {ranks} {micros}");
            }
            assert_eq!(seconds(PipelineSchedule::Sequential), 3.0 * m * p);
        }
    }

    #[test]
    fn a_device_keeps_the_micro_batches_that_its_schedule_has_on_their_way() {
        for (ranks, micros) in (2..5).flat_map(|ranks| (1..9).map(move |micros| (ranks, micros))) {
            for schedule in AT_ONCE {
                let (_, peaks) = run(schedule, ranks, micros, 0.0, MessageTime::default());
                for (rank, peak) in peaks.into_iter().enumerate() {
                    let alive = PipelinePlace { rank, ranks, schedule }.alive(micros) as u64;
                    // Beside what each keeps (10) there are an input, an output and a gradient at most, and
                    // on the last device the outputs of those that wait for their loss.
                    assert!((10 * alive..10 * alive + 4 + micros as u64).contains(&peak), "{peak}");
                }
            }
        }
    }

    /// There are four messages, each with work at both ends.
    #[test]
    fn what_is_on_its_way_is_waited_for() {
        let message = MessageTime { travelling: 2.5, of_work: 0.5 };
        let one = run(PipelineSchedule::Sequential, 3, 1, 0.0, message).0;
        assert_eq!(one, 9.0 + 4.0 * (2.5 + 2.0 * 0.5));
    }

    /// The first device waits for the last message there and back alone.
    #[test]
    fn messages_travel_beside_work() {
        let seconds = |travelling| {
            let message = MessageTime { travelling, of_work: 0.0 };
            run(PipelineSchedule::Gpipe, 2, 4, 0.0, message).0
        };
        assert_eq!(seconds(0.25) - seconds(0.0), 0.5, "there and back once");
    }

    /// A stage takes 1 forward and 2 back; with 4 and 8 for its start the thread decides.
    #[test]
    fn devices_that_are_started_more_slowly_than_they_compute_take_the_time_of_their_threads() {
        for schedule in AT_ONCE {
            for (ranks, micros) in (2..5).flat_map(|ranks| (1..9).map(move |m| (ranks, m))) {
                let (p, m) = (ranks as f64, micros as f64);
                let found = run(schedule, ranks, micros, 4.0, MessageTime::default()).0;
                assert_eq!(found, 12.0 * (m + p - 1.0), "{schedule:?} {ranks} {micros}");
                // Where work takes as long as its start it is done as soon.
                let found = run(schedule, ranks, micros, 1.0, MessageTime::default()).0;
                assert_eq!(found, 3.0 * (m + p - 1.0));
            }
        }
    }
}
