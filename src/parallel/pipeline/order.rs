//! In which order a device of a pipeline takes its micro-batches forward and back.

use super::PipelineSchedule;

/// One device of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelinePlace {
    /// Its place among the devices, from 0.
    pub rank: usize,
    /// How many devices there are.
    pub ranks: usize,
    /// The order of micro-batches.
    pub schedule: PipelineSchedule,
}

/// Half of the way of a micro-batch through the stages of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Forward.
    Forward(usize),
    /// Back.
    Backward(usize),
}

impl PipelinePlace {
    /// Whether the images come here.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Whether heads and losses are here.
    pub fn is_last(&self) -> bool {
        self.rank + 1 == self.ranks
    }

    /// What the device does, in order, with `micros` micro-batches.
    pub fn halves(&self, micros: usize) -> Vec<Half> {
        use Half::{Backward, Forward};
        // So many are on their way before the first comes back.
        let ahead = match self.schedule {
            PipelineSchedule::Sequential => 0,
            PipelineSchedule::Gpipe => micros,
            PipelineSchedule::OneForwardOneBackward => self.ranks - self.rank - 1,
            PipelineSchedule::Eager => 2 * (self.ranks - self.rank - 1),
        };
        let ahead = ahead.min(micros);
        let mut halves: Vec<Half> = (0..ahead).map(Forward).collect();
        for micro in ahead..micros {
            halves.extend([Forward(micro), Backward(micro - ahead)]);
        }
        halves.extend((micros - ahead..micros).map(Backward));
        halves
    }

    /// How many of `micros` micro-batches the device keeps something of at once, at most.
    pub fn alive(&self, micros: usize) -> usize {
        match self.schedule {
            PipelineSchedule::Sequential => 1.min(micros),
            PipelineSchedule::Gpipe => micros,
            PipelineSchedule::OneForwardOneBackward => (self.ranks - self.rank).min(micros),
            PipelineSchedule::Eager => (2 * (self.ranks - self.rank) - 1).min(micros),
        }
    }

    /// The share of the time in which a device waits, where all take equally long and nothing else does:
    /// (p − 1) / (m + p − 1) for p devices and m micro-batches; where they take turns, (p − 1) / p.
    pub fn bubble(&self, micros: usize) -> f64 {
        let (waiting, ranks) = (self.ranks as f64 - 1.0, self.ranks as f64);
        match self.schedule {
            PipelineSchedule::Sequential => waiting / ranks,
            _ => waiting / (micros as f64 + waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [PipelineSchedule; 4] = [
        PipelineSchedule::Sequential,
        PipelineSchedule::Gpipe,
        PipelineSchedule::OneForwardOneBackward,
        PipelineSchedule::Eager,
    ];

    fn places(schedule: PipelineSchedule, ranks: usize) -> Vec<PipelinePlace> {
        (0..ranks).map(|rank| PipelinePlace { rank, ranks, schedule }).collect()
    }

    /// Between cards a message is received before the next one of its flow is sent. Devices that
    /// do what they have to in their order come to the end all the same.
    #[test]
    fn one_message_on_its_way_is_enough_for_every_schedule() {
        #[derive(Clone, Copy)]
        enum Doing {
            Send(usize),
            Receive(usize),
        }
        use Doing::{Receive, Send};
        for (ranks, micros) in (2..6).flat_map(|ranks| (1..12).map(move |micros| (ranks, micros))) {
            for schedule in ALL {
                // Each device's doings, by its neighbour.
                let doings = |place: &PipelinePlace| {
                    let [before, behind] = [place.rank.wrapping_sub(1), place.rank + 1];
                    let of = |half: Half| {
                        let (from, to, stays) = match half {
                            Half::Forward(_) => {
                                (before, behind, [place.is_first(), place.is_last()])
                            }
                            Half::Backward(_) => {
                                (behind, before, [place.is_last(), place.is_first()])
                            }
                        };
                        let receive = (!stays[0]).then_some(Receive(from));
                        receive.into_iter().chain((!stays[1]).then_some(Send(to)))
                    };
                    place.halves(micros).into_iter().flat_map(of).collect::<Vec<_>>()
                };
                let all: Vec<Vec<Doing>> = places(schedule, ranks).iter().map(doings).collect();
                let (mut done, mut under_way) = (vec![0; ranks], vec![vec![0; ranks]; ranks]);
                loop {
                    let before = done.clone();
                    for rank in 0..ranks {
                        match all[rank].get(done[rank]) {
                            Some(Send(to)) if under_way[rank][*to] == 0 => {
                                under_way[rank][*to] += 1
                            }
                            Some(Receive(from)) if under_way[*from][rank] > 0 => {
                                under_way[*from][rank] -= 1;
                            }
                            _ => continue,
                        }
                        done[rank] += 1;
                    }
                    if done == before {
                        break;
                    }
                }
                let ends: Vec<usize> = all.iter().map(Vec::len).collect();
                assert_eq!(done, ends, "{schedule:?} {ranks} {micros}");
            }
        }
    }

    /// When each half of each device begins and ends where a half forward takes 1 and one back 2: each as
    /// soon as the device is free and what it needs has come.
    fn run(places: &[PipelinePlace], micros: usize) -> Vec<Vec<(usize, usize, Half)>> {
        let all: Vec<Vec<Half>> = places.iter().map(|place| place.halves(micros)).collect();
        let mut done: Vec<Vec<(usize, usize, Half)>> = vec![Vec::new(); places.len()];
        loop {
            let before: usize = done.iter().map(Vec::len).sum();
            for rank in 0..places.len() {
                let Some(&half) = all[rank].get(done[rank].len()) else { continue };
                let end_of = |rank: usize, half: Half| {
                    done[rank].iter().find(|(.., found)| *found == half).map(|(_, end, _)| *end)
                };
                let (needed, takes) = match half {
                    Half::Forward(_) if rank == 0 => (Some(0), 1),
                    Half::Forward(micro) => (end_of(rank - 1, Half::Forward(micro)), 1),
                    Half::Backward(micro) if rank + 1 == places.len() => {
                        (end_of(rank, Half::Forward(micro)), 2)
                    }
                    Half::Backward(micro) => (end_of(rank + 1, Half::Backward(micro)), 2),
                };
                let Some(needed) = needed else { continue };
                let free = done[rank].last().map_or(0, |(_, end, _)| *end);
                let begin = free.max(needed);
                done[rank].push((begin, begin + takes, half));
            }
            if done.iter().map(Vec::len).sum::<usize>() == before {
                return done;
            }
        }
    }

    #[test]
    fn every_schedule_comes_to_its_end_in_the_time_that_is_published() {
        for (ranks, micros) in (1..6).flat_map(|ranks| (1..9).map(move |micros| (ranks, micros))) {
            for schedule in ALL {
                let done = run(&places(schedule, ranks), micros);
                let end = done.iter().flatten().map(|(_, end, _)| *end).max();
                // GPipe, section 2.3, and PipeDream-2BW, section 2: (m + p − 1) · (forward + backward).
                let takes = match schedule {
                    PipelineSchedule::Sequential => 3 * micros * ranks,
                    _ => 3 * (micros + ranks - 1),
                };
                assert_eq!(end, Some(takes), "{schedule:?} {ranks} {micros}");
                for (place, done) in places(schedule, ranks).iter().zip(&done) {
                    assert_eq!(
                        done.len(),
                        2 * micros,
                        "{schedule:?} {ranks} {micros} does not end"
                    );
                    let idle = 1.0 - (3 * micros) as f64 / takes as f64;
                    assert!((place.bubble(micros) - idle).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn a_device_keeps_as_many_micro_batches_as_is_published() {
        for (ranks, micros) in (1..6).flat_map(|ranks| (1..9).map(move |micros| (ranks, micros))) {
            for schedule in ALL {
                for place in places(schedule, ranks) {
                    let (mut alive, mut most) = (0_usize, 0);
                    for half in place.halves(micros) {
                        match half {
                            Half::Forward(_) => alive += 1,
                            Half::Backward(_) => alive -= 1,
                        }
                        most = most.max(alive);
                    }
                    // Of PipeDream-Flush: the number of devices from this one to the end, at most.
                    let expected = match schedule {
                        PipelineSchedule::Sequential => 1,
                        PipelineSchedule::Gpipe => micros,
                        PipelineSchedule::OneForwardOneBackward => micros.min(ranks - place.rank),
                        PipelineSchedule::Eager => micros.min(2 * (ranks - place.rank) - 1),
                    };
                    assert_eq!((most, place.alive(micros), alive), (expected, expected, 0));
                }
            }
        }
    }

    /// Gradients are added in the order of the micro-batches, as on one device.
    #[test]
    fn micro_batches_go_forward_and_back_in_their_order() {
        for schedule in ALL {
            for place in places(schedule, 4) {
                let halves = place.halves(6);
                let forward = halves.iter().filter_map(|half| match half {
                    Half::Forward(micro) => Some(*micro),
                    Half::Backward(_) => None,
                });
                assert_eq!(forward.collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
                let back = halves.iter().filter_map(|half| match half {
                    Half::Backward(micro) => Some(*micro),
                    Half::Forward(_) => None,
                });
                assert_eq!(back.collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
            }
        }
    }

    /// Figure 4 of Narayanan et al. 2021 ("Efficient large-scale language model training on GPU clusters
    /// using Megatron-LM"), its upper half but for the interleaving: 4 devices, 8 micro-batches.
    #[test]
    fn one_forward_one_backward_is_as_the_figure_has_it() {
        let words = |rank: usize| {
            let place = places(PipelineSchedule::OneForwardOneBackward, 4)[rank];
            let word = |half: Half| match half {
                Half::Forward(micro) => format!("F{}", micro + 1),
                Half::Backward(micro) => format!("B{}", micro + 1),
            };
            place.halves(8).into_iter().map(word).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(0), "F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8");
        assert_eq!(words(1), "F1 F2 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6 B7 B8");
        assert_eq!(words(3), "F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8");
    }
}
