//! How long the devices of a pipeline take together, given what each takes alone.

use std::collections::BTreeMap;

use super::{Action, Operation, Schedule, Simulation};
use crate::parallel::Flow;

/// Seconds until the last of the devices of a pipeline has done its schedule, given the schedule of each
/// and what it takes alone. Each waits for what it receives, which is on its way for the seconds in
/// `between`: of a micro-batch from a device to the one behind, and as long back.
///
/// # Panics
///
/// When a device waits for what no other sends.
pub fn seconds_together(devices: &[(Schedule, Simulation)], between: &[f64]) -> f64 {
    let mut arrives: BTreeMap<(usize, bool, usize), f64> = BTreeMap::new();
    let mut next = vec![0; devices.len()];
    let mut free = vec![0.0_f64; devices.len()];
    loop {
        let before = next.clone();
        for (rank, (schedule, alone)) in devices.iter().enumerate() {
            while let Some(&Operation { micro, action, .. }) = schedule.operations.get(next[rank]) {
                if let Action::Receive(flow) = action {
                    let Some(time) = arrives.get(&(rank, flow == Flow::Value, micro)) else {
                        break;
                    };
                    free[rank] = free[rank].max(*time);
                }
                let place = next[rank];
                let begun = if place == 0 { 0.0 } else { alone.times[place - 1] };
                free[rank] += alone.times[place] - begun;
                match action {
                    Action::Send(Flow::Value) => {
                        arrives.insert((rank + 1, true, micro), free[rank] + between[rank]);
                    }
                    Action::Send(Flow::Gradient) => {
                        arrives.insert((rank - 1, false, micro), free[rank] + between[rank - 1]);
                    }
                    _ => {}
                }
                next[rank] += 1;
            }
        }
        if next == before {
            break;
        }
    }
    let ended =
        devices.iter().zip(&next).all(|((schedule, _), at)| *at == schedule.operations.len());
    assert!(ended, "a device waits for what no other sends");
    free.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{CheckpointPlan, Footprint, PipelinePart, Speed, Surroundings, simulate};
    use crate::parallel::{PipelinePlace, PipelineSchedule};

    const SPEED: Speed = Speed { flops: 1.0, bandwidth: 1.0, link: 1.0, layer: 0.0 };
    const NOTHING: Surroundings = Surroundings {
        standing: 0,
        input: 1,
        loss_workspace: 0,
        loss_gradient: 1,
        step_workspace: 0,
    };

    fn run(
        schedule: PipelineSchedule,
        ranks: usize,
        micros: usize,
        between: f64,
    ) -> (f64, Vec<u64>) {
        let stage = Footprint {
            output: 1,
            saved: 10,
            forward_flops: 1.0,
            backward_flops: 2.0,
            ..Footprint::default()
        };
        let devices: Vec<(Schedule, Simulation)> = (0..ranks)
            .map(|rank| {
                let place = PipelinePlace { rank, ranks, schedule };
                let part = PipelinePart { place, returns: rank > 0 };
                let schedule =
                    Schedule::in_pipeline(part, 0, &CheckpointPlan::keep_all(1), 1, micros);
                let alone = simulate(&schedule, &[stage], &NOTHING, &SPEED);
                (schedule, alone)
            })
            .collect();
        let peaks = devices.iter().map(|(_, alone)| alone.peak).collect();
        (seconds_together(&devices, &vec![between; ranks - 1]), peaks)
    }

    #[test]
    fn devices_of_equal_stages_take_the_time_that_is_published() {
        for (ranks, micros) in (1..5).flat_map(|ranks| (1..9).map(move |micros| (ranks, micros))) {
            let seconds = |schedule| run(schedule, ranks, micros, 0.0).0;
            let (p, m) = (ranks as f64, micros as f64);
            // GPipe, section 2.3, and PipeDream-2BW, section 2; a stage takes 3 forward and back.
            for schedule in [PipelineSchedule::Gpipe, PipelineSchedule::OneForwardOneBackward] {
                assert_eq!(seconds(schedule), 3.0 * (m + p - 1.0), "{schedule:?} {ranks} {micros}");
            }
            assert_eq!(seconds(PipelineSchedule::Sequential), 3.0 * m * p);
        }
    }

    #[test]
    fn a_device_keeps_the_micro_batches_that_its_schedule_has_on_their_way() {
        for (ranks, micros) in (2..5).flat_map(|ranks| (1..9).map(move |micros| (ranks, micros))) {
            for schedule in [PipelineSchedule::Gpipe, PipelineSchedule::OneForwardOneBackward] {
                let (_, peaks) = run(schedule, ranks, micros, 0.0);
                for (rank, peak) in peaks.into_iter().enumerate() {
                    let alive = PipelinePlace { rank, ranks, schedule }.alive(micros) as u64;
                    // Beside what each keeps (10) there are an input, an output and a gradient at most, and
                    // on the last device the outputs of those that wait for their loss.
                    assert!((10 * alive..10 * alive + 4 + micros as u64).contains(&peak), "{peak}");
                }
            }
        }
    }

    #[test]
    fn what_is_on_its_way_is_waited_for() {
        let one = run(PipelineSchedule::Sequential, 3, 1, 5.0).0;
        assert_eq!(one, 9.0 + 4.0 * 5.0);
    }
}
