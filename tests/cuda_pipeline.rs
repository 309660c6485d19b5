//! Models split over several GPUs of one host: `cargo test --features cuda-tests --test cuda_pipeline -- --nocapture`.
//! Where there is one card, each test says so and passes.
#![cfg(feature = "cuda-tests")]
#![expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]

#[path = "support/cards.rs"]
mod cards;

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::{DType, Tensor};
use trainer::build::{Bench, resolve_device};
use trainer::data::Targets;
use trainer::memory::fault::strike_rank_after;
use trainer::ops::gpu::{Element, Exchanges, Gpu, Kernels, MessageShape, OfChannels, Rows};
use trainer::plan::Plan;
use trainer::train::Images;

use cards::{cards, noise};

const SIDE: usize = 64;
const STEPS: usize = 6;

const CONFIG: &str = r#"
[run]
name = "cuda-pipeline"
[data]
image = { size = [SIDE, SIDE], channels = 1 }
[data.phantom]
root = "unused"
patients = 8
size = 64
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
batch_size = BATCH
clip_norm = 10.0
[train.optimizer.sgd]
lr = 0.05
momentum = 0.9
"#;

const MODELS: [(&str, &str); 6] = [
    ("DenseNet", "[model.densenet]\ngrowth = 16\nblocks = [1, 2, 2]\nstem = 16"),
    ("ResNet-50", "[model.resnet]\ndepth = 50"),
    ("ResNet for small images", "[model.resnet]\nform = \"cifar\"\ndepth = 20"),
    ("DenseNet of odd widths", "[model.densenet]\ngrowth = 12\nblocks = [2, 1]\nstem = 20"),
    (
        "DenseNet with GroupNorm",
        "[model.densenet]\nnorm = \"group\"\ngrowth = 24\nblocks = [1, 3]\nstem = 40",
    ),
    (
        "layer by layer",
        "[model.sequential]\nlayers = [
            { conv = { channels = 12, kernel = 5, stride = 2, padding = 2 } }, 'batch_norm', 'relu',
            { max_pool = { kernel = 3, stride = 2, padding = 1 } },
            { conv = { channels = 20, kernel = 3, padding = 1 } }, 'batch_norm', 'relu',
            { conv = { channels = 24, kernel = 3, padding = 1 } }, 'batch_norm', 'relu', 'global_pool',
        ]",
    ),
];

const SCHEDULES: [&str; 4] = ["sequential", "gpipe", "1f1b", "eager_1f1b"];

/// `schedule` over `cards` cards; one card has the whole model.
fn plan_of(
    [model, memory]: [&str; 2],
    [side, batch]: [usize; 2],
    cards: usize,
    schedule: &str,
) -> Plan {
    let pipeline = match cards {
        1 => String::new(),
        _ => format!("[parallel.pipeline]\nschedule = \"{schedule}\""),
    };
    configured([model, memory], [side, batch], cards, &pipeline)
}

fn configured(
    [model, memory]: [&str; 2],
    [side, batch]: [usize; 2],
    cards: usize,
    pipeline: &str,
) -> Plan {
    let names: Vec<String> = (0..cards).map(|number| format!("\"cuda:{number}\"")).collect();
    let text = CONFIG.replace("MODEL", model).replace("SIDE", &side.to_string());
    let text = text.replace("BATCH", &batch.to_string());
    let devices = format!("[device]\nuse = [{}]", names.join(", "));
    let text = format!("{text}\n{devices}\n{pipeline}\n[memory]\n{memory}");
    trainer::plan::plan(toml::from_str(&text).expect("a configuration")).expect("a plan")
}

fn plan(model: &str, memory: &str, cards: usize, schedule: &str) -> Plan {
    plan_of([model, memory], [SIDE, 8], cards, schedule)
}

/// The images of a step: some batches are uneven.
fn count(step: usize) -> usize {
    [8, 5, 8, 3][step % 4]
}

/// A step on images as they are, or brighter by a millionth: the numbers then differ by roundings alone.
fn step(bench: &mut Bench, step: usize, brighter: bool) -> Vec<f64> {
    let count = count(step);
    let factor = if brighter { 1.0 + 1e-6 } else { 1.0 };
    let values = noise(count * SIDE * SIDE, step as u64).into_iter().map(|value| value * factor);
    let values: Vec<f32> = values.collect();
    let targets = |width: usize| {
        let values = (0..count * width).map(|at| ((at + step) % 2) as f32).collect();
        let mask = (0..count * width)
            .map(|at| f32::from(u8::from(!(at + step).is_multiple_of(5))))
            .collect();
        Targets { values, mask, width }
    };
    let images: Vec<Vec<f32>> = values.chunks_exact(SIDE * SIDE).map(<[f32]>::to_vec).collect();
    let images = Images::Host { images: &images, shape: [count, 1, SIDE, SIDE] };
    let losses = bench.trainer.step(images, &[targets(2), targets(1)], step, 0.05);
    losses.expect("a step").into_iter().map(|loss| loss.sum).collect()
}

type Values = BTreeMap<String, Vec<f32>>;

/// Weights, running statistics and the optimizer's state of all cards.
fn state(bench: &Bench) -> Values {
    let mut all = Values::new();
    for rank in bench.trainer.copy() {
        let parameters = rank.replica.inference.chain.parameters().into_iter();
        all.extend(parameters.map(|p| (p.name, p.value.into_data().iter().collect())));
        let kept = rank.updater.optimizer.state().expect("is read").tensors.into_iter();
        let buckets = rank.replica.inference.chain.buckets().into_iter();
        let members: Vec<_> = buckets.map(|bucket| bucket.members).collect();
        let kept = trainer::memory::split_tensors(&members, kept.collect());
        let kept = kept.into_iter();
        all.extend(kept.map(|(name, data)| (format!("optimizer/{name}"), data.iter().collect())));
    }
    all
}

fn bits(values: &Values) -> BTreeMap<&str, Vec<u32>> {
    let of = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect();
    values.iter().map(|(name, values)| (name.as_str(), of(values))).collect()
}

/// What `steps` steps lead to, and their losses.
fn train(plan: &Plan, steps: usize, brighter: bool) -> (Values, Vec<f64>) {
    let mut bench = Bench::new(plan).expect("opens");
    let losses = (0..steps).flat_map(|number| step(&mut bench, number, brighter)).collect();
    (state(&bench), losses)
}

/// ‖ours − theirs‖ / ‖theirs‖ of what has `part` in its name.
fn error(ours: &Values, exact: &Values, part: &str) -> f64 {
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>());
    let (mut far, mut size) = (0.0, 0.0);
    for (name, exact) in exact.iter().filter(|(name, _)| name.contains(part)) {
        for (ours, exact) in ours[name].iter().zip(exact) {
            far += f64::from(ours - exact).powi(2);
            size += f64::from(*exact).powi(2);
        }
    }
    (far / size.max(1e-20)).sqrt()
}

/// After the first step the momentum is the gradient. Statistics of what comes from another card are summed
/// anew, so bits may be others than on one card.
#[test]
fn cards_give_the_gradients_and_statistics_of_one_that_takes_the_same_micro_batches() {
    let Some((_turn, count)) = cards("gradients") else { return };
    let mut failures = Vec::new();
    for (name, model) in MODELS {
        for precision in ["fp32", "bf16"] {
            let memory = format!("precision = \"{precision}\"\nmicro_batch = 4");
            let of = |cards: usize, schedule: &str, brighter: bool| {
                train(&plan(model, &memory, cards, schedule), 1, brighter)
            };
            let (one, one_losses) = of(1, "", false);
            let (other, _) = of(1, "", true);
            let most = |part: &str| 1e-6 + 4.0 * error(&other, &one, part);
            // Of dense blocks that are cut, too.
            let cut = match name {
                "DenseNet" | "DenseNet with GroupNorm" => Some("denseblock2.denselayer2"),
                "DenseNet of odd widths" => Some("denseblock1.denselayer2"),
                _ => None,
            };
            let cut = cut.map(|layer| ("1f1b", 2, format!("split = [{layer:?}]")));
            let each = SCHEDULES.iter().flat_map(|one| (2..=count).map(move |n| (*one, n)));
            let each = each.map(|(schedule, cards)| (schedule, cards, String::new()));
            for (schedule, cards, split) in each.chain(cut) {
                let pipeline = format!("[parallel.pipeline]\nschedule = \"{schedule}\"\n{split}");
                let plan = configured([model, &memory], [SIDE, 8], cards, &pipeline);
                let (ours, losses) = train(&plan, 1, false);
                let found =
                    ["optimizer/", "running_"].map(|part| (error(&ours, &one, part), most(part)));
                println!(
                    "{name}, {precision}, {schedule} over {cards} cards {split}: gradients and statistics \
                     (found, at most) {found:?}, losses {losses:?} {one_losses:?}"
                );
                if !found.iter().all(|(found, most)| found < most) {
                    failures.push(format!("{name}, {precision}, {schedule}, {cards} cards"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Two copies of a pipeline of two cards, beside two cards that have the whole model and share the batch in the
/// same way. Cards with the same stages exchange gradients and BatchNorm's sums in their kernels.
#[test]
fn a_grid_of_four_cards_gives_the_gradients_and_statistics_of_two_that_share_the_batch() {
    let Some((_turn, count)) = cards("a grid") else { return };
    if count < 4 {
        println!("a grid: left out, there are {count} cards");
        return;
    }
    let sizes = [SIDE, 8];
    for (name, model) in MODELS {
        for precision in ["fp32", "bf16"] {
            let memory = format!("precision = \"{precision}\"\nmicro_batch = 2");
            let row = configured([model, &memory], sizes, 2, "");
            let (exact, losses) = train(&row, 1, false);
            let (other, _) = train(&row, 1, true);
            for schedule in SCHEDULES {
                let pipeline =
                    format!("[parallel.pipeline]\nschedule = \"{schedule}\"\ncopies = 2");
                let grid = configured([model, &memory], sizes, 4, &pipeline);
                let (found, found_losses) = train(&grid, 1, false);
                let again = train(&grid, 1, false).0;
                assert!(bits(&again) == bits(&found), "{name}, {precision}, {schedule}: again");
                let each = ["optimizer/", "running_"].map(|part| {
                    let most = 1e-6 + 4.0 * error(&other, &exact, part);
                    (error(&found, &exact, part), most)
                });
                println!(
                    "{name}, {precision}, {schedule}, 2 × 2: (found, at most) {each:?}, losses \
                     {found_losses:?} {losses:?}"
                );
                let near = each.iter().all(|(found, most)| found < most);
                assert!(near, "{name}, {precision}, {schedule}: {each:?}");
            }
        }
    }
}

const WAYS: [&str; 4] =
    ["", "checkpointing = \"every\"", "checkpointing = \"sqrt\"", "offload = \"host\""];

#[test]
fn every_schedule_and_strategy_gives_the_same_bits_and_so_does_another_run() {
    let Some((_turn, count)) = cards("strategies") else { return };
    for (name, model) in &MODELS[..3] {
        for precision in ["fp32", "bf16"] {
            let memory = format!("precision = \"{precision}\"\nmicro_batch = 4\n");
            let of = |way: &str, schedule: &str| {
                train(&plan(model, &format!("{memory}{way}"), count, schedule), STEPS, false)
            };
            // Where several cards work at once, dense blocks may be cut, which sums statistics anew.
            // Schedules with other splits add up gradients in other parts.
            let plain = ["sequential", "1f1b", "eager_1f1b"];
            let plain = plain.map(|schedule| (schedule, of("", schedule)));
            for (way, schedule) in WAYS.iter().flat_map(|way| SCHEDULES.map(|one| (way, one))) {
                let alike = if schedule == "gpipe" { "1f1b" } else { schedule };
                let (_, plain) = plain.iter().find(|(of, _)| *of == alike).expect("one of them");
                let found = of(way, schedule);
                assert_eq!(found.1, plain.1, "{name}, {precision}, {way}, {schedule}: losses");
                let same = bits(&found.0) == bits(&plain.0);
                assert!(same, "{name}, {precision}, {way}, {schedule}");
            }
        }
    }
}

/// CubeCL's thread seeks memory for what was asked for when it comes to that, and what a message leaves from must not seem free by then.
#[test]
fn a_message_that_leaves_late_comes_as_it_was_sent() {
    const LENGTH: usize = 1 << 28;
    let Some(_turn) = cards("late messages") else { return };
    let card = |index: usize| resolve_device(&format!("cuda:{index}")).expect("a GPU");
    let gpus = [0, 1].map(|index| Gpu::of(&card(index)).expect("a GPU"));
    let exchanges = Exchanges::between(&gpus).expect("cards that work together");
    let [from, to] = [0, 1].map(|rank| exchanges.side(rank));
    let kernels = Kernels::shared(gpus[0].clone(), Element::F32);
    let shape = |length: usize| MessageShape {
        rows: Rows { rows: 1, length, storage: DType::F32 },
        of_channels: OfChannels::default(),
    };
    let (long, short) = (shape(LENGTH), shape(64));
    let mut held = Vec::new();
    // The first two times each message leaves before anything else is done.
    for turn in 0..4 {
        exchanges.begin("messages".to_owned());
        assert!(from.send(1, &long, LENGTH, &kernels.filled(LENGTH, 1.0), &[]));
        let (came, _) = to.receive(0, &long, 0, Some(short));
        // The thread has much to launch, and then seeks memory for as much as is leaving.
        for _ in 0..300 {
            drop(kernels.filled(64, 0.0));
        }
        held.push(kernels.filled(LENGTH, 2.0));
        assert!(from.send(1, &short, 64, &kernels.filled(64, 3.0), &[]));
        drop(to.receive(0, &short, 0, None));
        from.all_sent();
        exchanges.end(false).expect("all have come");
        let came: Tensor<1> = gpus[1].tensor(&came, [LENGTH]);
        let right = came.into_data().iter::<f32>().filter(|value| *value == 1.0).count();
        assert_eq!(right, LENGTH, "turn {turn}");
    }
}

#[test]
fn where_one_card_has_no_memory_all_compute_more_again_with_the_same_micro_batches() {
    let Some((_turn, count)) = cards("memory") else { return };
    let (_, model) = MODELS[0];
    for rank in 0..count {
        let mut bench = Bench::new(&plan(model, "micro_batch = 4", count, "1f1b")).expect("opens");
        step(&mut bench, 0, false);
        let armed = strike_rank_after(rank, 3);
        let start = Instant::now();
        step(&mut bench, 2, false);
        assert!(armed.has_struck() && start.elapsed().as_secs() < 20, "card {rank}");
        let backoffs = &bench.trainer.backoffs;
        assert_eq!((backoffs[0].from, backoffs[0].to, backoffs.len()), (4, 4, 1));
    }
}

/// Seconds of steps of DenseNet-121 at 320×320 beside what was planned; figures to read, no limits.
#[test]
fn steps_are_timed_beside_the_plan() {
    let Some((_turn, count)) = cards("times") else { return };
    let model = "[model.densenet]\ndepth = 121";
    let time = |cards: usize, schedule: &str| {
        let memory = "precision = \"bf16\"\nmicro_batch = 16";
        let plan = plan_of([model, memory], [320, 128], cards, schedule);
        let mut bench = Bench::new(&plan).expect("opens");
        (0..4).for_each(|_| _ = bench.step().expect("a step"));
        bench.wait();
        let start = Instant::now();
        (0..8).for_each(|_| _ = bench.step().expect("a step"));
        bench.wait();
        let (seconds, estimate) = (start.elapsed().as_secs_f64() / 8.0, bench.estimate(&plan));
        println!(
            "{schedule} over {cards} cards: {:.1} ms a step, planned {:.1} ms; {:?}",
            1e3 * seconds,
            1e3 * estimate.seconds,
            estimate.devices
        );
    };
    time(1, "one");
    for (schedule, cards) in SCHEDULES.iter().flat_map(|one| (2..=count).map(move |n| (one, n))) {
        time(cards, schedule);
    }
}
