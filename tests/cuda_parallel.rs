//! What several GPUs of one host do together: `cargo test --features cuda-tests --test cuda_parallel -- --nocapture`.
//! Where there is one card, each test says so and passes.
#![cfg(feature = "cuda-tests")]
#![expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]

#[path = "support/cards.rs"]
mod cards;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{DType, Device, ExecutionError, Tensor, TensorData};
use trainer::build::{Bench, resolve_device};
use trainer::data::Targets;
use trainer::memory::OutOfMemory;
use trainer::memory::fault::strike_rank_after;
use trainer::ops::gpu::{Exchanges, Given, Gpu};
use trainer::parallel::{Failure, GridExchanges, Member, Shard, on_ranks};
use trainer::plan::Plan;
use trainer::run::BegunStep;
use trainer::train::{Images, TrainError};

use cards::{cards, noise};

/// Bytes of the room for what the other cards give one.
const ROOM: u64 = 64 << 20;

/// Devices and what they exchange sums by.
fn open(count: usize) -> (Vec<Device>, [Exchanges; 1]) {
    let device = |index: usize| resolve_device(&format!("cuda:{index}")).expect("a GPU");
    let devices: Vec<Device> = (0..count).map(device).collect();
    let gpus: Vec<Gpu> = devices.iter().filter_map(Gpu::of).collect();
    let exchanges = Exchanges::open(&gpus, ROOM).expect("cards that work together");
    println!("{count} cards, {}", exchanges.warning.as_deref().unwrap_or("which reach each other"));
    (devices, [exchanges])
}

fn at_once<T: Send>(
    devices: &mut [Device],
    exchanges: &[Exchanges],
    work: impl Fn(&Device, &Arc<Member>) -> T + Sync,
) -> Vec<T> {
    exchanges[0].begin("work".to_owned());
    let done = on_ranks(devices, 1, None, GridExchanges::of_row(exchanges), |device, seat| {
        Ok::<_, ExecutionError>(work(device, &seat.row))
    });
    done.expect("is done")
}

fn tensor(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), device)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn read(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

/// The values of all ranks, added in their order.
fn sum_in_order(ranks: usize, values: impl Fn(usize) -> Vec<f32>) -> Vec<f32> {
    let all = (0..ranks).map(values);
    let add = |sum: Vec<f32>, more: Vec<f32>| sum.iter().zip(more).map(|(a, b)| a + b).collect();
    all.reduce(add).expect("there are some")
}

const SIZES: [usize; 12] =
    [1, 3, 4, 5, 63, 1000, 8192, 8193, 40_001, 131_072, 1_048_577, 3 * 1_048_576 + 2];

#[test]
fn sums_over_cards_are_those_of_the_host_in_their_order() {
    let Some((_turn, count)) = cards("sums") else { return };
    for ranks in 2..=count {
        let (mut devices, exchanges) = open(ranks);
        let values = |rank: usize, size: usize| noise(size, (rank * 100 + size) as u64);
        let found = at_once(&mut devices, &exchanges, |device, member| {
            let own = SIZES.map(|size| (size, tensor(values(member.rank(), size), device)));
            let sums = member.sum_all(BTreeMap::from(own));
            sums.into_iter().map(|(size, sum)| (size, bits(&read(sum)))).collect::<Vec<_>>()
        });
        for (rank, found) in found.into_iter().enumerate() {
            for (size, found) in found {
                let exact = sum_in_order(ranks, |rank| values(rank, size));
                assert!(found == bits(&exact), "{size} values on card {rank} of {ranks}");
            }
        }
    }
}

/// Sums go by the same memory in between.
#[test]
fn shards_of_all_cards_are_the_whole_tensor_bit_for_bit() {
    let Some((_turn, count)) = cards("shards") else { return };
    for ranks in 2..=count {
        let (mut devices, exchanges) = open(ranks);
        let whole = |size: usize| {
            let mut values = noise(size, size as u64);
            values[0] = -0.0;
            values
        };
        let found = at_once(&mut devices, &exchanges, |device, member| {
            let shard = Shard::new(member.rank(), ranks);
            let each = SIZES.into_iter().map(|size| {
                let sums = member.sum_all(BTreeMap::from([(0, tensor(vec![1.0; size], device))]));
                let own = shard.of(tensor(whole(size), device));
                let all = shard.whole(member, "weights", own, size, (device, DType::F32));
                (size, bits(&read(all)), read(sums[&0].clone()))
            });
            each.collect::<Vec<_>>()
        });
        for (rank, found) in found.into_iter().enumerate() {
            for (size, found, sums) in found {
                assert!(found == bits(&whole(size)), "{size} values on card {rank} of {ranks}");
                assert!(sums.iter().all(|sum| *sum == ranks as f32), "{size}, {rank} of {ranks}");
            }
        }
    }
}

#[test]
fn a_thousand_sums_in_a_row_are_right_however_far_cards_run_ahead_of_each_other() {
    let Some((_turn, ranks)) = cards("a thousand sums") else { return };
    let (mut devices, exchanges) = open(ranks);
    const SIZE: usize = 20_011;
    let drawn = |rank: usize| {
        let turn = |turn: usize| noise(SIZE, (rank * 10_000 + turn) as u64);
        (0..1000).map(turn).collect::<Vec<_>>()
    };
    let drawn: Vec<Vec<Vec<f32>>> = (0..ranks).map(drawn).collect();
    let values = |rank: usize, turn: usize| drawn[rank][turn].clone();
    let exact = |turn: usize| bits(&sum_in_order(ranks, |rank| values(rank, turn)));
    let exact: Vec<Vec<u32>> = (0..1000).map(exact).collect();
    for round in 0..4 {
        let start = Instant::now();
        let found = at_once(&mut devices, &exchanges, |device, member| {
            let own: Vec<Tensor<1>> =
                (0..1000).map(|turn| tensor(values(member.rank(), turn), device)).collect();
            let sum = |(turn, own): (usize, Tensor<1>)| {
                // Few values and many by turns, and one card or another late.
                if turn % 97 == 31 * member.rank() {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                match turn % 3 {
                    0 => member.sum("few", ranks, own.narrow(0, 0, 300 + turn)),
                    1 => member.sum("many", ranks, own),
                    _ => member.sum_all(BTreeMap::from([(turn, own)])).remove(&turn).expect("it"),
                }
            };
            let sums: Vec<Tensor<1>> = own.into_iter().enumerate().map(sum).collect();
            sums.into_iter().map(|sum| bits(&read(sum))).collect::<Vec<_>>()
        });
        println!("round {round}: {:?}", start.elapsed());
        for (rank, found) in found.iter().enumerate() {
            for (turn, (found, exact)) in found.iter().zip(&exact).enumerate() {
                assert!(*found == exact[..found.len()], "sum {turn} on card {rank}, round {round}");
            }
        }
    }
}

/// Lengths of what cards give each other: the last is too long for the room that they have, the first too short to be given.
const GIVEN: [usize; 5] = [1000, 32_768, 40_001, 1_048_577, 32 << 20];

/// What `member` has of array `place` in step `step`.
fn own(member: usize, step: usize, place: usize) -> Vec<f32> {
    noise(GIVEN[place], (member * 10_000 + step * 100 + place) as u64)
}

/// Gives what a card has of [`GIVEN`] in two parts, and what becomes of those that are given.
fn give(device: &Device, member: &Member, step: usize) -> Vec<(usize, Vec<u32>)> {
    let exchange = member.exchange().expect("of cards");
    let (mut given, mut places) = (Given::default(), Vec::new());
    for part in [0..3, 3..5] {
        let tensors = part.clone().map(|place| tensor(own(member.rank(), step, place), device));
        let gave = exchange.give_of(&mut given, tensors.collect());
        places.extend(part.zip(gave).filter_map(|(place, gave)| gave.then_some(place)));
        // Some are ahead of others.
        std::thread::sleep(std::time::Duration::from_millis((member.rank() as u64 * 7) % 10));
    }
    let sums = exchange.sums_of_given(&given);
    // All others come behind them.
    let rest = member.sum_all(BTreeMap::from([(0, tensor(vec![1.0; 8], device))]));
    assert!(read(rest[&0].clone()).iter().all(|sum| *sum == member.ranks() as f32));
    places.into_iter().zip(sums.into_iter().map(|sum| bits(&read(sum)))).collect()
}

#[test]
fn what_cards_give_each_other_meanwhile_is_added_up_in_their_order() {
    let Some((_turn, count)) = cards("what is given") else { return };
    for ranks in 2..=count {
        let (mut devices, exchanges) = open(ranks);
        let reach = exchanges[0].warning.is_none();
        for step in 0..6 {
            let found =
                at_once(&mut devices, &exchanges, |device, member| give(device, member, step));
            for (rank, found) in found.into_iter().enumerate() {
                let places: Vec<usize> = found.iter().map(|(place, _)| *place).collect();
                assert_eq!(places, if reach { vec![1, 2, 3] } else { vec![] });
                for (place, found) in found {
                    let exact = bits(&sum_in_order(ranks, |rank| own(rank, step, place)));
                    assert!(found == exact, "array {place}, step {step}, card {rank} of {ranks}");
                }
            }
        }
    }
}

/// Long runs stood still where a card waited for what a thread had yet to ask the driver for.
#[test]
fn what_is_given_comes_however_many_launches_wait_for_it() {
    let Some((_turn, ranks)) = cards("what is given far ahead") else { return };
    let (mut devices, exchanges) = open(ranks);
    if exchanges[0].warning.is_some() {
        return;
    }
    for attempt in 0..3 {
        let found = at_once(&mut devices, &exchanges, |device, member| {
            let exchange = member.exchange().expect("of cards");
            let large = tensor(vec![1.0; 16 << 20], device);
            let mut last = tensor(vec![1.0; 1 << 16], device);
            for _ in 0..100 {
                let mut given = Given::default();
                assert_eq!(exchange.give_of(&mut given, vec![last.mul_scalar(0.5)]), [true]);
                // The card is at work for longer than a thread takes to ask for that.
                for _ in 0..30 {
                    drop(large.clone().mul_scalar(2.0));
                }
                last = exchange.sums_of_given(&given).pop().expect("it is given");
                let all = member.sum_all(BTreeMap::from([(0, last.clone().narrow(0, 0, 8))]));
                last = last.mul_scalar(2.0 / ranks as f64)
                    + all[&0].clone().slice(0..1).mul_scalar(0.0);
            }
            read(last)
        });
        for found in found {
            assert!(found.iter().all(|found| *found == 1.0), "attempt {attempt}");
        }
    }
}

#[test]
fn what_a_card_gave_before_another_failed_is_no_part_of_the_next_attempt() {
    let Some((_turn, ranks)) = cards("a failure after giving") else { return };
    let (mut devices, exchanges) = open(ranks);
    let attempt = |devices: &mut [Device], step: usize, fails: bool| {
        exchanges[0].begin("attempt".to_owned());
        on_ranks(devices, 1, None, GridExchanges::of_row(&exchanges), |device, seat| {
            if fails && seat.row.rank() == 1 {
                let exchange = seat.row.exchange().expect("of cards");
                exchange.give_of(&mut Given::default(), vec![tensor(own(1, step, 1), device)]);
                std::thread::sleep(std::time::Duration::from_millis(50));
                OutOfMemory { wanted: Some(77) }.throw();
            }
            Ok::<_, ExecutionError>(give(device, &seat.row, step))
        })
    };
    for step in 0..8 {
        let fails = step % 3 == 1;
        let begin = Instant::now();
        match (fails, attempt(&mut devices, step, fails)) {
            (false, Ok(all)) => {
                for (place, found) in all.into_iter().flatten() {
                    assert!(found == bits(&sum_in_order(ranks, |rank| own(rank, step, place))));
                }
            }
            (true, Err(Failure::OutOfMemory(found))) => assert_eq!(found.wanted, Some(77)),
            (_, outcome) => panic!("step {step}: {:?}", outcome.map(drop)),
        }
        assert!(begin.elapsed().as_secs() < 20);
    }
}

#[test]
fn cards_without_a_part_are_not_waited_for() {
    let Some((_turn, ranks)) = cards("parts of the cards") else { return };
    let (mut devices, exchanges) = open(ranks);
    let values = |rank: usize| noise(777, rank as u64);
    for _ in 0..4 {
        let found = at_once(&mut devices, &exchanges, |device, member| {
            let own = || tensor(values(member.rank()), device);
            let all = member.sum("all", ranks, own());
            let some = (member.rank() < 2).then(|| member.sum("two", 2, own()));
            let again = member.sum("all", ranks, own());
            [Some(all), some, Some(again)].map(|sum| sum.map(|sum| bits(&read(sum))))
        });
        let exact = [ranks, 2, ranks].map(|ranks| bits(&sum_in_order(ranks, values)));
        for (rank, found) in found.into_iter().enumerate() {
            for (place, found) in found.into_iter().enumerate() {
                assert_eq!(found.is_some(), place != 1 || rank < 2);
                assert!(found.is_none_or(|found| found == exact[place]), "{place} on card {rank}");
            }
        }
    }
}

#[test]
fn a_card_that_fails_ends_the_waiting_of_the_others_and_the_next_attempt_works() {
    let Some((_turn, ranks)) = cards("a failure") else { return };
    let (mut devices, exchanges) = open(ranks);
    let values = |rank: usize| noise(5000, rank as u64);
    let exact = bits(&sum_in_order(ranks, values));
    let attempt = |devices: &mut [Device], fails: Option<usize>| {
        exchanges[0].begin("attempt".to_owned());
        on_ranks(devices, 1, None, GridExchanges::of_row(&exchanges), |device, seat| {
            let member = &seat.row;
            let own = tensor(values(member.rank()), device);
            let mut sum = member.sum("before", ranks, own.clone());
            for turn in 0..60 {
                if turn == 30 && fails == Some(member.rank()) {
                    // The others wait in a kernel by then.
                    std::thread::sleep(std::time::Duration::from_millis(300));
                    OutOfMemory { wanted: Some(77) }.throw();
                }
                sum = member.sum("turn", ranks, own.clone());
            }
            Ok::<_, ExecutionError>(bits(&read(sum)))
        })
    };
    for fails in [None, Some(0), Some(1), None, None, Some(ranks - 1), None] {
        let start = Instant::now();
        let outcome = attempt(&mut devices, fails);
        println!("card {fails:?} fails: {:?}", start.elapsed());
        match (fails, outcome) {
            (None, Ok(found)) => assert!(found.iter().all(|found| *found == exact)),
            (Some(_), Err(Failure::OutOfMemory(found))) => assert_eq!(found.wanted, Some(77)),
            (fails, outcome) => panic!("{fails:?}: {:?}", outcome.map(drop)),
        }
        assert!(start.elapsed().as_secs() < 20);
    }
}

const STEPS: usize = 6;

const CONFIG: &str = r#"
[run]
name = "cuda-parallel"
[data]
image = { size = [SIDE, SIDE], channels = 1 }
[data.phantom]
root = "unused"
patients = 8
size = SIDE
MODEL
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion"]
[[heads]]
name = "edema"
task = "binary"
labels = ["Edema"]
[train]
epochs = 1
batch_size = 8
[train.optimizer.sgd]
lr = 0.05
momentum = 0.9
"#;

/// A model, and the height and width of its images.
#[derive(Debug, Clone, Copy)]
struct Model {
    name: &'static str,
    text: &'static str,
    side: usize,
}

const MODELS: [Model; 5] = [
    Model {
        name: "DenseNet",
        text: "[model.densenet]\ngrowth = 16\nblocks = [1, 2, 2]\nstem = 16",
        side: 64,
    },
    // The last maps are 5×5: over maps of 2×2, norms make anything of a rounding.
    Model { name: "ResNet-50", text: "[model.resnet]\ndepth = 50", side: 160 },
    Model {
        name: "ResNet for small images",
        text: "[model.resnet]\nform = \"cifar\"\ndepth = 20",
        side: 64,
    },
    Model {
        name: "DenseNet of odd widths",
        text: "[model.densenet]\ngrowth = 12\nblocks = [1, 2, 2]\nstem = 20",
        side: 64,
    },
    // Cards exchange nothing for its norms.
    Model {
        name: "DenseNet with group norm",
        text: "[model.densenet]\ngrowth = 16\nblocks = [1, 2, 2]\nstem = 16\nnorm = \"group\"",
        side: 64,
    },
];

fn plan(model: Model, devices: usize, memory: &str) -> Plan {
    let names: Vec<String> = (0..devices).map(|number| format!("\"cuda:{number}\"")).collect();
    let text = CONFIG.replace("MODEL", model.text).replace("SIDE", &model.side.to_string());
    let text = format!("{text}\n[device]\nuse = [{}]\n[memory]\n{memory}", names.join(", "));
    trainer::plan::plan(toml::from_str(&text).expect("a configuration")).expect("a plan")
}

/// The images of a step: some batches are uneven, and some have fewer images than there are cards.
fn count(step: usize) -> usize {
    [8, 5, 8, 1, 3, 8][step % 6]
}

/// A batch as it is, or so changed that the numbers of a step differ by roundings alone.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Batch {
    AsItIs,
    /// So many of the first images stand behind the last.
    Turned(usize),
    /// The images are brighter by so many millionths.
    Brighter(i8),
}

/// Changes of a batch by which `roundings` finds how far the roundings of a step carry.
const CHANGES: [Batch; 10] = [
    Batch::Turned(1),
    Batch::Turned(2),
    Batch::Turned(3),
    Batch::Turned(5),
    Batch::Turned(6),
    Batch::Turned(7),
    Batch::Brighter(1),
    Batch::Brighter(2),
    Batch::Brighter(-1),
    Batch::Brighter(-2),
];

/// The images of a step and their targets.
struct Inputs {
    images: Vec<Vec<f32>>,
    shape: [usize; 4],
    targets: [Targets; 2],
}

impl Inputs {
    fn images(&self) -> Images<'_> {
        Images::Host { images: &self.images, shape: self.shape }
    }
}

fn inputs(side: usize, step: usize, batch: Batch) -> Inputs {
    let count = count(step);
    let turned = |mut values: Vec<f32>| {
        let each = values.len() / count;
        if let Batch::Turned(images) = batch {
            values.rotate_left(images % count * each);
        }
        values
    };
    let factor = if let Batch::Brighter(millionths) = batch {
        1.0 + 1e-6 * f32::from(millionths)
    } else {
        1.0
    };
    let values = turned(noise(count * side * side, step as u64));
    let values: Vec<f32> = values.into_iter().map(|value| value * factor).collect();
    let targets = |width: usize| {
        let values = (0..count * width).map(|at| ((at + step) % 2) as f32).collect();
        let mask = (0..count * width)
            .map(|at| f32::from(u8::from(!(at + step).is_multiple_of(5))))
            .collect();
        Targets { values: turned(values), mask: turned(mask), width }
    };
    let images: Vec<Vec<f32>> = values.chunks_exact(side * side).map(<[f32]>::to_vec).collect();
    Inputs { images, shape: [count, 1, side, side], targets: [targets(2), targets(1)] }
}

fn step(bench: &mut Bench, side: usize, step: usize, batch: Batch) -> Vec<f64> {
    let inputs = inputs(side, step, batch);
    let losses = bench.trainer.step(inputs.images(), &inputs.targets, step, 0.05);
    losses.expect("a step").into_iter().map(|loss| loss.sum).collect()
}

type Values = BTreeMap<String, Vec<f32>>;

/// Weights, running statistics and the optimizer's state on a device.
fn state(bench: &Bench, rank: usize) -> Values {
    let rank = &bench.trainer.ranks[rank];
    let parameters = rank.replica.inference.chain.parameters().into_iter();
    let weights = parameters.map(|p| (p.name, p.value.into_data().iter().collect()));
    let optimizer = rank.updater.optimizer.state().expect("is read").tensors.into_iter();
    let kept = optimizer.map(|(name, data)| (format!("optimizer/{name}"), data.iter().collect()));
    weights.chain(kept).collect()
}

fn all_bits(values: &Values) -> BTreeMap<&str, Vec<u32>> {
    values.iter().map(|(name, values)| (name.as_str(), bits(values))).collect()
}

/// What `steps` steps lead to, and their losses. All cards end with the same bits.
fn train(plan: &Plan, steps: usize) -> (Values, Vec<f64>) {
    train_on(plan, steps, Batch::AsItIs)
}

fn train_on(plan: &Plan, steps: usize, batch: Batch) -> (Values, Vec<f64>) {
    let mut bench = Bench::new(plan).expect("opens");
    let [side, _] = plan.data.image.size;
    let losses = (0..steps).flat_map(|number| step(&mut bench, side, number, batch)).collect();
    let first = state(&bench, 0);
    for rank in 1..plan.devices.len() {
        assert!(all_bits(&state(&bench, rank)) == all_bits(&first), "card {rank} has other bits");
    }
    (first, losses)
}

/// ‖ours − theirs‖ / ‖theirs‖ of what `part` chooses, and the largest of single tensors.
fn error(ours: &Values, exact: &Values, part: impl Fn(&str) -> bool) -> (f64, (f64, String)) {
    let square = |values: &[f32]| values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
    let (mut far, mut size, mut worst) = (0.0, 0.0, (0.0, String::new()));
    for (name, exact) in exact.iter().filter(|(name, _)| part(name)) {
        let difference: Vec<f32> = ours[name].iter().zip(exact).map(|(a, b)| a - b).collect();
        let (d, s) = (square(&difference), square(exact));
        (far, size) = (far + d, size + s);
        let own = (d / s.max(1e-20)).sqrt();
        if own > worst.0 {
            worst = (own, name.clone());
        }
    }
    ((far / size.max(1e-20)).sqrt(), worst)
}

/// After the first step the momentum is the gradient.
#[test]
fn cards_with_synchronised_batch_norm_give_the_gradients_and_statistics_of_one() {
    let Some((_turn, count)) = cards("gradients") else { return };
    let mut failures = Vec::new();
    for model in MODELS {
        let name = model.name;
        for precision in ["fp32", "bf16"] {
            let memory = format!("precision = \"{precision}\"");
            let (one, one_losses) = train(&plan(model, 1, &memory), 1);
            let parts: [fn(&str) -> bool; 2] =
                [|name| name.contains("optimizer/"), |name| name.contains("running_")];
            let [most_gradients, most_statistics] = roundings(model, &memory, 1, &one, parts);
            for cards in 2..=count {
                let (ours, losses) = train(&plan(model, cards, &memory), 1);
                let [(gradients, worst), (statistics, _)] =
                    parts.map(|part| error(&ours, &one, part));
                println!(
                    "{name}, {precision}, {cards} cards: gradients {gradients:.1e} of at most \
                     {most_gradients:.1e} (worst {:.1e} {}), statistics {statistics:.1e} of \
                     {most_statistics:.1e}, losses {losses:?} {one_losses:?}",
                    worst.0, worst.1
                );
                if !(gradients < most_gradients && statistics < most_statistics) {
                    failures.push(format!("{name}, {precision}, {cards} cards"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn cards_train_as_one_does_uneven_batches_and_single_images_included() {
    let Some((_turn, count)) = cards("steps") else { return };
    for model in MODELS {
        let (name, memory) = (model.name, "precision = \"fp32\"");
        let (one, _) = train(&plan(model, 1, memory), STEPS);
        let kept: fn(&str) -> bool = |name| !name.starts_with("optimizer/");
        let [most] = roundings(model, memory, STEPS, &one, [kept]);
        for cards in 2..=count {
            let (ours, _) = train(&plan(model, cards, memory), STEPS);
            let (found, worst) = error(&ours, &one, kept);
            println!(
                "{name}, {cards} cards: after {STEPS} steps {found:.1e} of {most:.1e}, {worst:?}"
            );
            assert!(found < most, "{name}, {cards} cards");
        }
    }
}

/// How far the numbers that each of `parts` chooses may be from those of `one` card after so many steps: four
/// times as far as one card is from itself where it rounds otherwise, in the farthest of [`CHANGES`]. A norm over few numbers makes much of a rounding.
fn roundings<const PARTS: usize>(
    model: Model,
    memory: &str,
    steps: usize,
    one: &Values,
    parts: [fn(&str) -> bool; PARTS],
) -> [f64; PARTS] {
    let far = CHANGES.map(|batch| {
        let (changed, _) = train_on(&plan(model, 1, memory), steps, batch);
        parts.map(|part| error(&changed, one, part).0)
    });
    std::array::from_fn(|part| 1e-6 + 4.0 * far.iter().map(|far| far[part]).fold(0.0, f64::max))
}

const WAYS: [&str; 4] = [
    "checkpointing = \"every\"",
    "[memory.checkpointing.sequential]\nsegments = 2",
    "checkpointing = \"sqrt\"",
    "offload = \"host\"",
];

#[test]
fn on_several_cards_every_strategy_gives_the_same_bits_and_so_does_another_run() {
    let Some((_turn, _)) = cards("strategies") else { return };
    for model in MODELS {
        let name = model.name;
        for precision in ["precision = \"fp32\"\n", "precision = \"bf16\"\n"] {
            let plain = train(&plan(model, 2, precision), STEPS);
            for way in WAYS.iter().copied().chain([""]) {
                let found = train(&plan(model, 2, &format!("{precision}{way}")), STEPS);
                assert_eq!(found.1, plain.1, "{name}, {precision}{way}: losses");
                assert!(all_bits(&found.0) == all_bits(&plain.0), "{name}, {precision}{way}");
            }
        }
    }
}

#[test]
fn cards_that_update_shards_of_the_weights_have_the_bits_of_those_that_update_all() {
    let Some((_turn, count)) = cards("shards of the weights") else { return };
    for model in MODELS {
        for memory in ["precision = \"fp32\"", "precision = \"bf16\"\noffload_optimizer = true"] {
            let [replicated, sharded] = ["replicated", "sharded"].map(|optimizer| {
                let more = "[train.ema]\ndecay = 0.5\n[parallel.data]\noptimizer =";
                let plan = plan(model, count, &format!("{memory}\n{more} \"{optimizer}\""));
                let mut bench = Bench::new(&plan).expect("opens");
                let run = |number: usize| step(&mut bench, model.side, number, Batch::AsItIs);
                let losses: Vec<f64> = (0..STEPS).flat_map(run).collect();
                let weights = on_all(&bench, count, |name| !name.starts_with("optimizer/"));
                bench.trainer.swap_average().expect("there is an average");
                let averages = on_all(&bench, count, |name| !name.starts_with("optimizer/"));
                (losses, weights, averages)
            });
            let name = model.name;
            assert_eq!(sharded.0, replicated.0, "{name}, {memory}: losses");
            assert!(sharded.1 == replicated.1, "{name}, {memory}: weights");
            assert!(sharded.2 == replicated.2, "{name}, {memory}: averages");
            assert!(sharded.1 != sharded.2, "{name}, {memory}: the average is another one");
        }
    }
}

#[test]
fn parts_of_a_share_give_the_same_bits_when_they_are_computed_again() {
    let Some((_turn, count)) = cards("parts") else { return };
    let model = MODELS[0];
    let parts = "precision = \"bf16\"\nmicro_batch = 2\n";
    let plain = train(&plan(model, count, parts), STEPS);
    let again = train(&plan(model, count, &format!("{parts}checkpointing = \"every\"")), STEPS);
    assert_eq!(again.1, plain.1);
    assert!(all_bits(&again.0) == all_bits(&plain.0));
}

/// What only some cards compute fused, and what none does.
#[test]
fn layers_without_fused_kernels_are_synchronised_too() {
    let Some((_turn, count)) = cards("layers") else { return };
    let text = "[model.sequential]\nlayers = [
        { conv = { channels = 12, kernel = 5, stride = 2, padding = 2 } }, 'batch_norm', 'relu',
        { max_pool = { kernel = 3, stride = 2, padding = 1 } },
        { conv = { channels = 20, kernel = 3, padding = 1 } }, 'batch_norm', 'relu', 'global_pool',
    ]";
    let model = Model { text, ..MODELS[0] };
    let memory = "precision = \"fp32\"";
    let (one, _) = train(&plan(model, 1, memory), 1);
    let (ours, _) = train(&plan(model, count, memory), 1);
    let (gradients, worst) = error(&ours, &one, |name| name.starts_with("optimizer/"));
    println!("{count} cards, layer by layer: gradients {gradients:.1e}, {worst:?}");
    assert!(gradients < 1e-5);
    let again = train(&plan(model, count, memory), 1);
    assert!(all_bits(&again.0) == all_bits(&ours));
}

/// Who decides about steps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Decides {
    /// The host, which waits for each step.
    Host,
    /// The cards, while the next step has begun.
    Cards,
}

/// A bench whose steps are decided so.
fn deciding(plan: &Plan, decides: Decides) -> Bench {
    let mut bench = Bench::new(plan).expect("opens");
    if decides == Decides::Host {
        bench.trainer.courses = Some(Vec::new());
    }
    assert_eq!(bench.trainer.runs_ahead(), decides == Decides::Cards);
    bench
}

/// Takes the steps `inputs`, each of which begins before the one before it has ended where cards decide; at `fails` the card
/// of that rank runs out of memory after so many operations. The losses of the steps, or the first error.
fn run(
    bench: &mut Bench,
    all: &[Inputs],
    fails: Option<(usize, usize, usize)>,
) -> Result<Vec<f64>, TrainError> {
    let mut losses = Vec::new();
    let mut end = |bench: &mut Bench, (begun, inputs): (BegunStep, &Inputs)| {
        let ended = bench.trainer.end_step(begun, inputs.images(), &inputs.targets);
        ended.map(|found| losses.extend(found.into_iter().map(|loss| loss.sum)))
    };
    let mut before: Option<(BegunStep, &Inputs)> = None;
    for (number, inputs) in all.iter().enumerate() {
        let armed = fails.filter(|(at, ..)| *at == number);
        let armed = armed.map(|(_, rank, operations)| strike_rank_after(rank, operations));
        let earlier = before.as_ref().map(|(begun, _)| begun);
        let trainer = &mut bench.trainer;
        let begun = trainer.begin_step(inputs.images(), &inputs.targets, number, 0.05, earlier);
        drop(armed);
        before.take().map_or(Ok(()), |before| end(bench, before))?;
        before = Some((begun?, inputs));
        if !bench.trainer.runs_ahead() {
            before.take().map_or(Ok(()), |before| end(bench, before))?;
        }
    }
    before.map_or(Ok(()), |before| end(bench, before))?;
    Ok(losses)
}

/// What is on all cards, bit by bit, of what has these names.
fn on_all(
    bench: &Bench,
    count: usize,
    of: impl Fn(&str) -> bool,
) -> Vec<BTreeMap<String, Vec<u32>>> {
    let owned = |rank: usize| {
        let values = state(bench, rank);
        let all = all_bits(&values).into_iter().filter(|(name, _)| of(name));
        all.map(|(name, bits)| (name.to_owned(), bits)).collect()
    };
    (0..count).map(owned).collect()
}

const DECIDED: [&str; 3] = [
    "precision = \"fp32\"",
    "precision = \"bf16\"\ncheckpointing = \"every\"",
    "precision = \"bf16\"\nmicro_batch = 2",
];

#[test]
fn steps_that_cards_decide_about_are_those_of_the_host() {
    let Some((_turn, count)) = cards("decided") else { return };
    for model in [MODELS[0], MODELS[2]] {
        let all: Vec<Inputs> =
            (0..40).map(|step| inputs(model.side, step, Batch::AsItIs)).collect();
        for memory in DECIDED {
            for over in ["sync", "local"] {
                let local = format!("{memory}\n[parallel.data]\nbatch_norm = \"{over}\"");
                let [host, cards] = [Decides::Host, Decides::Cards].map(|decides| {
                    let mut bench = deciding(&plan(model, count, &local), decides);
                    let losses = run(&mut bench, &all, None).expect("trains");
                    (losses, on_all(&bench, count, |_| true))
                });
                assert_eq!(cards.0, host.0, "{}, {local}: losses", model.name);
                assert!(cards.1 == host.1, "{}, {local}", model.name);
            }
        }
    }
}

#[test]
fn a_step_that_is_not_finite_is_told_as_the_host_tells_it_and_changes_no_card() {
    let Some((_turn, count)) = cards("not finite") else { return };
    let model = MODELS[0];
    const BROKEN: usize = 2;
    let mut all: Vec<Inputs> =
        (0..BROKEN + 2).map(|step| inputs(model.side, step, Batch::AsItIs)).collect();
    let images = all[BROKEN].images.len();
    // The last card has it.
    all[BROKEN].images[images - 1][17] = f32::NAN;
    let [host, cards] = [Decides::Host, Decides::Cards].map(|decides| {
        let mut bench = deciding(&plan(model, count, DECIDED[1]), decides);
        let told = run(&mut bench, &all, None).expect_err("is refused").to_string();
        (told, on_all(&bench, count, |_| true))
    });
    assert!(host.0.contains("image"), "{}", host.0);
    assert_eq!(cards.0, host.0);
    assert!(cards.1 == host.1);
}

/// The step before it goes on on all cards: what comes of both is what comes of them where the host decides.
#[test]
fn a_card_without_memory_for_a_step_leaves_the_step_before_it_alone() {
    let Some((_turn, count)) = cards("memory for a step") else { return };
    let model = MODELS[0];
    let all: Vec<Inputs> = (0..8).map(|step| inputs(model.side, step, Batch::AsItIs)).collect();
    for (rank, operations) in (0..count).flat_map(|rank| [0, 3, 7].map(|at| (rank, at))) {
        let [host, cards] = [Decides::Host, Decides::Cards].map(|decides| {
            let mut bench = deciding(&plan(model, count, DECIDED[0]), decides);
            let losses = run(&mut bench, &all, Some((5, rank, operations))).expect("goes on");
            assert_eq!(bench.trainer.backoffs.len(), 1, "card {rank}, operation {operations}");
            (losses, on_all(&bench, count, |_| true))
        });
        assert_eq!(cards.0, host.0, "card {rank}, operation {operations}");
        assert!(cards.1 == host.1, "card {rank}, operation {operations}");
    }
}
