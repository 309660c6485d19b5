//! Strategies predicted, chosen and explained.

use std::path::Path;

use super::{BackOff, Estimator, Machine, MemorySettings, NothingFits, Plan, PlanSummary, Planner};
use crate::choice::{Choice, NoSettings};
use crate::config::TrainConfig;
use crate::memory::{CheckpointingConfig, DenseLayers, Precision, Speed, TradeOff};
use crate::model::Norm;

fn planned(path: &str, set: &[&str]) -> Plan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
    let loaded = crate::config::load(&path, &set).expect("a right configuration");
    super::plan(loaded.config).expect("a right plan")
}

fn card(memory: u64) -> Machine {
    Machine { memory, ..Machine::ASSUMED }
}

const DENSENET: &str = "benches/configs/densenet121.toml";
const RESNET: &str = "benches/configs/resnet50.toml";
const SMALL: [&str; 4] = [
    "memory.micro_batch=\"auto\"",
    "train.batch_size=12",
    "data.image.size=[64,64]",
    "memory.precision=\"bf16\"",
];

/// Small networks of each kind, with micro-batches to be chosen.
fn small() -> Vec<(&'static str, Plan)> {
    let with = |path, set: &[&'static str]| planned(path, &[&SMALL[..], set].concat());
    let dense = "model.densenet={growth=8,blocks=[3,4,2],stem=16}";
    let residual = "model.resnet={form=\"cifar\",depth=20}";
    vec![
        ("densenet", with(DENSENET, &[dense])),
        ("short densenet", with(DENSENET, &["model.densenet={growth=8,blocks=[2,2],stem=16}"])),
        ("densenet in fp32", with(DENSENET, &[dense, "memory.precision=\"fp32\""])),
        ("resnet", with(RESNET, &[residual])),
        ("resnet, policy given", with(RESNET, &[residual, "memory.checkpointing=\"sqrt\""])),
        ("group norm", with(RESNET, &["model.resnet={form=\"cifar\",depth=20,norm=\"group\"}"])),
    ]
}

/// Whole batches at once are the reference, and what is not normalised over images does not depend on how
/// many go through at once. Where they do not fit, BatchNorm has as many of 16 images as fit.
#[test]
fn what_is_chosen_keeps_the_numbers_where_that_fits_and_is_the_fastest_of_those() {
    let (mut kept, mut given_up, mut refused) = (0, 0, 0);
    for (name, plan) in small() {
        let machine = card(8 << 30);
        let candidates = plan.eligible(&machine);
        let whole = |settings: &MemorySettings| settings.micro_batch == plan.train.batch_size;
        let batch_norm = plan.model.norm() == Norm::Batch;
        let normalised = |settings: &MemorySettings| match batch_norm {
            true => settings.micro_batch.min(16),
            false => 16,
        };
        assert!(candidates.iter().any(whole) && !candidates.iter().all(whole), "{name}");
        let estimator = Estimator::new(&plan, machine);
        let peaks = candidates.iter().map(|settings| estimator.estimate(settings));
        let mut held: Vec<u64> = peaks.map(|found| found.expect("a right policy").held).collect();
        held.sort_unstable();
        held.dedup();
        // Just above what each holds, and a little more, and below what any does.
        let budgets = held.iter().flat_map(|held| [held + 1, held + (4 << 20)]);
        let budgets = budgets.chain([machine.with_context(0)]);
        for budget in budgets {
            let mut memory = plan.memory.clone();
            memory.budget = Some(format!("{}kB", budget.div_ceil(1000)));
            let plan = Plan { memory, ..plan.clone() };
            let estimator = Estimator::new(&plan, machine);
            let found = candidates.iter().map(|settings| {
                let found = estimator.estimate(settings).expect("a right policy");
                (found.fits, whole(settings) || !batch_norm, normalised(settings), found.seconds)
            });
            let fit: Vec<_> = found.filter(|(fits, ..)| *fits).collect();
            let keeps = fit.iter().any(|(_, same, ..)| *same);
            let alike = || fit.iter().filter(|(_, same, ..)| *same == keeps);
            let most = alike().map(|(_, _, images, _)| *images).max();
            let fastest = alike().filter(|(_, _, images, _)| Some(*images) == most);
            let fastest = fastest.map(|(.., seconds)| *seconds).fold(f64::INFINITY, f64::min);
            match Planner::choose(&plan, machine) {
                Ok(planner) => {
                    let (ours, settings) = (planner.estimate(), planner.settings());
                    assert!(ours.fits && ours.seconds <= fastest * (1.0 + 1e-8), "{name} {budget}");
                    assert!(candidates.contains(settings), "{name} {budget}");
                    assert_eq!(Some(normalised(settings)), most, "{name} {budget}");
                    assert_eq!(whole(settings) || !batch_norm, keeps, "{name} {budget}");
                    let told = planner.fewer_normalised();
                    assert_eq!(told.is_none(), keeps, "{name} {budget}: {told:?}");
                    (kept, given_up) = (kept + usize::from(keeps), given_up + usize::from(!keeps));
                }
                Err(fault) => {
                    assert!(fit.is_empty(), "{name} {budget}: {fault}");
                    refused += 1;
                }
            }
        }
    }
    assert!(kept >= 20 && given_up >= 20 && refused > 0, "{kept} {given_up} {refused}");
}

/// Without it, `trainer bench` on a card with 3,840 MiB left chose steps that left no room for the batch that stays there.
#[test]
fn what_lies_beside_the_steps_is_none_of_the_budget() {
    let machine = card(80 << 30);
    let within = |budget: u64| {
        let memory = format!("precision=\"bf16\",micro_batch=\"auto\",budget=\"{budget}MiB\"");
        planned(LARGE_XRAYS, &[&format!("memory={{{memory}}}")])
    };
    for (budget, others) in [(3_756, 0), (3_756, 122), (3_756, 500), (7_000, 500)] {
        let planner = Planner::choose_beside(&within(budget), machine, others << 20);
        let planner = planner.expect("fits");
        let of_less = Planner::choose(&within(budget - others), machine).expect("fits");
        assert_eq!(planner.settings(), of_less.settings(), "{others} of {budget}");
        assert!(planner.estimate().held + (others << 20) <= budget << 20, "{others} of {budget}");
    }
}

/// `keep` with four images at once is a little faster, and trains with other results.
#[test]
fn all_large_radiographs_go_through_at_once_where_recomputation_lets_them_fit() {
    let set = ["memory={precision=\"bf16\",micro_batch=\"auto\",budget=\"7.2GiB\"}"];
    let plan = planned(LARGE_XRAYS, &set);
    let machine = card(80 << 30);
    let planner = Planner::choose(&plan, machine).expect("fits");
    assert_eq!(planner.settings().micro_batch, 8);
    let summary = PlanSummary::new(&plan, &machine).expect("a right policy");
    let row = &summary.strategies[summary.preferred.expect("one fits")];
    assert!(row.same_numbers && row.fits && row.micro_batch == 8, "{row:?}");
    let fastest = &summary.strategies[summary.fastest.expect("one fits")];
    assert_eq!((fastest.micro_batch, fastest.same_numbers), (4, false));
    assert!(fastest.relative_time < row.relative_time);
    // Where no stage may be computed again, dense layers are.
    let plan = planned(LARGE_XRAYS, &[&set[..], &["memory.checkpointing=\"none\""]].concat());
    let planner = Planner::choose(&plan, machine).expect("fits");
    let MemorySettings { micro_batch, dense_layers, .. } = planner.settings();
    assert_eq!((*micro_batch, *dense_layers), (8, DenseLayers::Share));
    insta::assert_snapshot!(planner.summary());
    // Where all eight fit in no way, four are normalised together: two at once are faster and train worse.
    let set = ["memory={precision=\"bf16\",micro_batch=\"auto\",budget=\"3.6GiB\"}"];
    let planner = Planner::choose(&planned(LARGE_XRAYS, &set), machine).expect("fits");
    assert_eq!(planner.settings().micro_batch, 4);
    // And it is said what all eight would take.
    let set = ["memory={precision=\"bf16\",micro_batch=\"auto\",budget=\"1000MiB\"}"];
    let planner = Planner::choose(&planned(LARGE_XRAYS, &set), machine).expect("fits");
    insta::assert_snapshot!(planner.fewer_normalised().expect("is said"));
}

/// 10.6 GiB are free of 80.
#[test]
fn without_a_budget_what_is_chosen_fits_in_what_is_free() {
    let crowded = Machine { free: Some(106 * (1 << 30) / 10), ..card(80 << 30) };
    let set = ["train.batch_size=32", "memory={precision=\"bf16\",micro_batch=\"auto\"}"];
    let plan = planned(LARGE_XRAYS, &set);
    let alone = Planner::choose(&plan, card(80 << 30)).expect("fits");
    assert!(alone.estimate().peak > 11 << 30 && alone.crowded().is_none());
    let planner = Planner::choose(&plan, crowded).expect("fits");
    assert_eq!(planner.budget() >> 20, (106 * 1024 / 10 + 286) * 98 / 100);
    assert!(planner.estimate().held <= planner.budget());
    // What was saved on an empty card stays, and is said to be too much now.
    let chosen = alone.chosen().expect("something is chosen");
    let resumed = Planner::resumed(&plan, crowded, chosen);
    assert_eq!(resumed.settings(), alone.settings());
    insta::assert_snapshot!(resumed.crowded().expect("is said"));
    // Nothing fits, as little is free.
    let full = Machine { free: Some(300 << 20), ..crowded };
    insta::assert_snapshot!(Planner::choose(&plan, full).expect_err("is too much").to_string());
    // A budget that is written counts as written.
    let set = [set[0], "memory={precision=\"bf16\",micro_batch=\"auto\",budget=\"40GiB\"}"];
    let planner = Planner::choose(&planned(LARGE_XRAYS, &set), crowded).expect("fits");
    assert_eq!(planner.budget(), 40 << 30);
    assert!(planner.crowded().is_some_and(|said| said.contains("10.9 GiB")));
}

#[test]
fn what_the_user_writes_stays() {
    let written = ["memory.dense_layers=\"share\"", "memory.offload=\"none\""];
    let plan = planned(DENSENET, &[&SMALL[..], &written[..]].concat());
    for settings in plan.eligible(&card(8 << 30)) {
        assert_eq!((settings.dense_layers.name(), settings.offload.name()), ("share", "none"));
        assert_eq!(settings.precision, Precision::Bf16);
    }
}

#[test]
fn a_budget_is_never_slower_than_equal_segments_with_the_same_peak() {
    for path in [DENSENET, RESNET] {
        let plan = planned(path, &["memory.precision=\"bf16\""]);
        let on = Machine::ASSUMED.target(plan.memory.precision, plan.memory.dense_layers());
        let costs = plan.costs(&on, plan.train.batch_size, plan.memory.offload_optimizer);
        let speed = Speed::of(&on);
        let candidates = TradeOff::new(&costs.stages, &costs.surroundings, &speed, 1);
        let run = |tree: &crate::memory::CheckpointPlan| {
            let schedule = crate::memory::Schedule::of_plan(tree, costs.stages.len(), 1);
            crate::memory::simulate(&schedule, &costs.stages, &costs.surroundings, &speed)
        };
        let stages = costs.stages.len();
        let (mut budgets, mut segments) = (Vec::new(), Vec::new());
        for count in 1..=stages {
            let config = crate::memory::SequentialConfig { segments: count };
            let policy = crate::memory::CheckpointingConfig::Sequential(config);
            let names: Vec<&str> = costs.names.iter().map(String::as_str).collect();
            let tree = policy.checkpoint_plan(&names).expect("fits").expect("needs no bytes");
            let taken = run(&tree);
            budgets.push(taken.peak);
            segments.push((taken.peak, taken.seconds));
        }
        let (least, most) = (candidates.least(), budgets.iter().max().copied().expect("policies"));
        budgets.extend((0..=40).map(|step| least + (most - least) * step / 40));
        for budget in budgets {
            let ours = run(&candidates.within(budget).expect("something fits"));
            assert!(ours.peak <= budget, "{path} {budget}");
            for (peak, seconds) in segments.iter().filter(|(peak, _)| *peak <= budget) {
                let ours = ours.seconds;
                assert!(ours <= seconds * (1.0 + 1e-9), "{path} {budget} {peak}: {ours} {seconds}");
            }
        }
    }
}

#[test]
fn a_saved_choice_is_made_again_on_another_card() {
    let plan = planned(DENSENET, &[&SMALL[..], &["memory.budget=\"40%\""]].concat());
    let here = Planner::choose(&plan, card(1156 << 20)).expect("fits");
    let chosen = here.chosen().expect("something is chosen");
    let json = serde_json::to_string(&chosen).expect("is written");
    let read = serde_json::from_str(&json).expect("is read");
    assert_eq!(chosen, read, "{json}");
    let there = Planner::resumed(&plan, card(80 << 30), read);
    assert_eq!((here.settings(), here.budget()), (there.settings(), there.budget()));
    assert_eq!(here.strategies()[0].tree, there.strategies()[0].tree);
    // Where the configuration says it all, nothing is remembered.
    let plain = planned(DENSENET, &["memory.checkpointing=\"sqrt\""]);
    assert_eq!(Planner::choose(&plain, card(80 << 30)).expect("is not asked").chosen(), None);
}

#[test]
fn after_running_out_the_same_images_are_taken_as_long_as_they_can_need_less() {
    for norm in ["batch", "group"] {
        let norm = format!("model.densenet={{depth=121,norm=\"{norm}\"}}");
        let plan = planned(DENSENET, &[&norm]);
        let machine = card(80 << 30);
        let mut planner = Planner::choose(&plan, machine).expect("is not asked");
        let mut images = plan.train.batch_size;
        let (mut again, mut fewer) = (0, 0);
        loop {
            let failed = planner.estimate().peak;
            let least = MemorySettings {
                checkpointing: Choice(CheckpointingConfig::Budget(NoSettings {})),
                ..planner.settings().clone()
            };
            let least = Estimator::within(&plan, machine, 0).estimate(&least).expect("predicts");
            let Some(back_off) = planner.back_off(images) else { break };
            let now = planner.settings().micro_batch;
            assert!(planner.estimate().peak < failed, "{norm} {images}");
            assert_eq!(planner.strategies()[0].micro_batch, now);
            match back_off {
                BackOff::Again => {
                    assert_eq!(now, images, "{norm}");
                    again += 1;
                }
                BackOff::Fewer => {
                    assert_eq!(now, images.div_ceil(2), "{norm}");
                    // Under BatchNorm, never while the same images could have done with less.
                    assert!(plan.model.norm() != Norm::Batch || least.peak >= failed, "{images}");
                    fewer += 1;
                }
            }
            images = now;
        }
        assert!(images == 1 && fewer == 6, "{norm}: {images} {fewer}");
        assert!(plan.model.norm() != Norm::Batch || again >= 6, "{norm}: {again}");
        assert!(planner.chosen().is_some());
    }
}

#[test]
fn where_the_optimizers_state_waits_is_told() {
    let told = |set: &[&str]| {
        let plan = planned(DENSENET, set);
        Planner::choose(&plan, card(80 << 30)).expect("fits").summary()
    };
    let place = "optimizer's state in host memory";
    assert!(told(&["memory.offload_optimizer=true"]).contains(place));
    assert!(!told(&[]).contains(place));
}

#[test]
fn what_is_said_to_fit_does() {
    let plan = planned(DENSENET, &["memory.precision=\"fp32\"", "train.batch_size=8"]);
    let settings = MemorySettings { micro_batch: 1, ..MemorySettings::configured(&plan.memory, 8) };
    let machine = card(600 << 20);
    let budget = machine.held_at_most(140 << 20);
    let text = super::limits::what_would_fit(&Estimator::within(&plan, machine, budget), &settings);
    insta::assert_snapshot!(text);
    let side = text.split("images of ").nth(1).and_then(|rest| rest.split('×').next());
    let side: usize = side.and_then(|side| side.parse().ok()).expect("a side");
    let fits = |side: usize| {
        let smaller = planned(
            DENSENET,
            &[
                "memory.precision=\"fp32\"",
                "train.batch_size=8",
                &format!("data.image.size=[{side},{side}]"),
            ],
        );
        Estimator::within(&smaller, machine, budget).estimate(&settings).expect("predicts").fits
    };
    assert!(fits(side) && !fits(side + 32), "{side}");
}

#[test]
fn where_nothing_fits_the_least_peak_and_what_would_fit_are_told() {
    let set =
        ["memory.checkpointing=\"budget\"", "memory.budget=\"500MiB\"", "memory.micro_batch=32"];
    let plan = planned(DENSENET, &set);
    let fault: NothingFits = Planner::choose(&plan, card(80 << 30)).expect_err("is too much");
    let settings = MemorySettings::configured(&plan.memory, plan.train.batch_size);
    let within = |held: u64| {
        let estimator = Estimator::within(&plan, card(80 << 30), held);
        estimator.estimate(&settings).expect("predicts")
    };
    let least = within(fault.least);
    assert!(least.fits && !within(card(80 << 30).with_context(least.peak) - 1).fits);
    insta::assert_snapshot!(fault.to_string());
}

#[test]
fn checkpointing_is_not_advised_for_a_model_that_is_all_weights() {
    let plan = planned("configs/experiments/11_cnn_regression.toml", &[]);
    let summary = PlanSummary::new(&plan, &card(2 << 30)).expect("a right policy");
    insta::assert_snapshot!(summary.advice);
    let large = planned("configs/experiments/11_cnn_regression_large.toml", &[]);
    let summary = PlanSummary::new(&large, &card(32 << 30)).expect("a right policy");
    insta::assert_snapshot!(summary.advice);
}

const LARGE_XRAYS: &str = "configs/experiments/01_large_xrays.toml";

/// Of every change, once: that it lowers the peak, does nothing or raises it.
#[test]
fn what_is_said_of_a_change_is_what_it_does() {
    for path in [
        LARGE_XRAYS,
        "configs/quickstart.toml",
        "configs/xray_densenet.toml",
        "configs/experiments/07_resnet18_memory.toml",
        "configs/experiments/10_resnet_swapping.toml",
        "configs/experiments/11_cnn_regression.toml",
    ] {
        let plan = planned(path, &[]);
        for machine in [card(80 << 30), Machine { cuda: false, hopper: false, ..Machine::ASSUMED }]
        {
            let settings = MemorySettings::configured(&plan.memory, plan.train.batch_size);
            let estimator = Estimator::new(&plan, machine);
            let now = estimator.estimate(&settings).expect("predicts");
            let advice = super::advice::advice(&estimator, &settings);
            for tried in super::changes::try_each(&estimator, &settings) {
                let name = format!("`{}`", tried.change.written());
                let said: Vec<&str> = advice.split(". ").filter(|s| s.contains(&name)).collect();
                let wanted = match tried.then.peak as f64 / now.peak as f64 {
                    ..=0.95 => "What lowers it",
                    ..=0.98 => continue,
                    ..1.02 => "would do nothing",
                    _ => "would raise the peak",
                };
                assert_eq!(advice.matches(&name).count(), 1, "{path} {name}: {advice}");
                assert!(said[0].contains(wanted), "{path} {name}: {advice}");
                let images = tried.change.written().starts_with("micro_batch");
                if images && wanted == "What lowers it" && plan.model.norm() == Norm::Batch {
                    let after = advice.split(&name).nth(1).and_then(|rest| rest.split(')').next());
                    assert!(
                        after.is_some_and(|mark| mark.ends_with(", other results")),
                        "{advice}"
                    );
                }
            }
        }
    }
}

#[test]
fn half_is_said_to_raise_the_peak_where_it_is_not_fused() {
    let summary = |set: &[&str]| {
        let plan = planned(LARGE_XRAYS, set);
        PlanSummary::new(&plan, &card(80 << 30)).expect("a right policy")
    };
    insta::assert_snapshot!(summary(&[]).advice);
    let half = ["memory.precision=\"half\"", "train.optimizer.adamw.eps=1e-4"];
    let peak =
        |summary: PlanSummary| summary.strategies[summary.chosen.expect("starts")].peak as f64;
    let ratio = peak(summary(&half)) / peak(summary(&[]));
    let said = format!("`precision = \"half\" with eps = 1e-4` would raise the peak ×{ratio:.0}");
    assert!(summary(&[]).advice.contains(&said), "{said}");
}

#[test]
fn a_step_that_is_predicted_above_a_budget_that_is_written_is_refused() {
    let of = |set: &[&str], machine| Planner::choose(&planned(DENSENET, set), machine);
    let fault = of(&["memory.budget=\"500MiB\""], card(80 << 30)).expect_err("is too much");
    let held = of(&[], card(80 << 30)).expect("fits").estimate().held;
    assert_eq!((fault.least, fault.budget), (held, 500 << 20));
    let said = fault.fault().expect("is written");
    assert_eq!(said.key, "memory.budget");
    insta::assert_snapshot!(fault.to_string());
    // What fits is taken, and without a budget so is what is predicted not to.
    let budget = format!("memory.budget=\"{}kB\"", held.div_ceil(1000));
    of(&[&budget], card(80 << 30)).expect("fits");
    let planner = of(&[], card(1 << 30)).expect("is not asked");
    assert!(!planner.estimate().fits);
}

#[test]
fn a_budget_above_the_device_s_memory_is_warned_of_and_the_memory_counts() {
    let plan = planned(DENSENET, &["memory.budget=\"100GiB\""]);
    let summary = PlanSummary::new(&plan, &card(80 << 30)).expect("a right policy");
    assert_eq!(summary.budget, 80 << 30);
    insta::assert_snapshot!(summary.warning.expect("is warned of"));
    let summary = PlanSummary::new(&plan, &card(100 << 30)).expect("a right policy");
    assert_eq!((summary.budget, summary.warning), (100 << 30, None));
    let tight = Planner::choose(&plan, card(1 << 30)).expect_err("is too much");
    assert_eq!(tight.budget, 1 << 30);
}

#[test]
fn batch_norm_is_never_left_with_one_number() {
    // Four blocks leave one pixel of 32×32.
    let set = [
        "memory.micro_batch=\"auto\"",
        "memory.checkpointing=\"none\"",
        "data.image.size=[32,32]",
        "train.batch_size=9",
    ];
    let plan = planned(DENSENET, &set);
    let machine = card(8 << 30);
    for settings in plan.eligible(&machine).into_iter().chain(plan.candidates(&machine)) {
        // Of 9 images, parts of 2, 4 or 8 leave one.
        assert_eq!(settings.micro_batch, 9);
    }
    let plan = Plan { train: TrainConfig { batch_size: 6, ..plan.train.clone() }, ..plan };
    let images: Vec<usize> =
        plan.eligible(&machine).iter().map(|settings| settings.micro_batch).collect();
    assert!(images.contains(&2) && images.contains(&4) && !images.contains(&1), "{images:?}");
    let mut planner = Planner::choose(&plan, machine).expect("fits");
    let fewer = |planner: &mut Planner, images| {
        std::iter::from_fn(|| planner.back_off(images)).find(|back_off| *back_off == BackOff::Fewer)
    };
    assert_eq!(fewer(&mut planner, 3), Some(BackOff::Fewer));
    assert_eq!(planner.strategies()[0].micro_batch, 2);
    assert_eq!(fewer(&mut planner, 2), None);
    // Of larger images more is left.
    let large = planned(DENSENET, &["memory.micro_batch=\"auto\"", "data.image.size=[64,64]"]);
    assert!(large.eligible(&machine).iter().any(|settings| settings.micro_batch == 1));
}

#[test]
fn the_plan_of_a_densenet_as_json() {
    let plan = planned(DENSENET, &["memory.budget=\"1GiB\""]);
    let mut summary = PlanSummary::new(&plan, &card(80 << 30)).expect("a right policy");
    assert_eq!(summary.chosen, None);
    let fastest = summary.fastest.map(|place| &summary.strategies[place]);
    assert!(fastest.is_some_and(|row| row.fits && row.precision == Precision::Bf16));
    for row in &summary.strategies {
        assert_eq!(row.fits, row.held.is_some_and(|held| held <= 1 << 30));
    }
    summary.strategies.retain(|row| {
        row.precision == Precision::Bf16
            && [16, 64].contains(&row.micro_batch)
            && row.offload == "none"
    });
    for stage in &mut summary.stages {
        stage.flops = stage.flops.round();
    }
    for row in &mut summary.strategies {
        row.recompute_percent = (row.recompute_percent * 10.0).round() / 10.0;
        row.relative_time = (row.relative_time * 100.0).round() / 100.0;
    }
    let json = serde_json::to_string_pretty(&summary).expect("is written");
    insta::assert_snapshot!(json);
}

/// Frozen stages keep nothing and are not taken back: a step takes less memory and time.
#[test]
fn a_step_with_frozen_stages_takes_less_than_one_with_all_trained() {
    const FREEZE: &str = "model.freeze=[\"stem\",\"denseblock1\"]";
    const AT_FIRST: &str = "model.freeze={stages=[\"stem\",\"denseblock1\"],epochs=2}";
    let machine = card(80 << 30);
    let summary =
        |set: &[&str]| PlanSummary::new(&planned(DENSENET, set), &machine).expect("a right policy");
    let estimate = |set: &[&str]| {
        let planner = Planner::choose(&planned(DENSENET, set), machine).expect("fits");
        planner.estimate().clone()
    };
    for memory in ["memory.checkpointing=\"none\"", "memory.checkpointing=\"sqrt\""] {
        let (all, some) = (estimate(&[memory]), estimate(&[memory, FREEZE]));
        assert!(some.peak < all.peak && some.seconds < all.seconds, "{memory}: {some:?} {all:?}");
    }
    const ADAMW: &str = "train.optimizer=\"adamw\"";
    let (all, some) = (summary(&[ADAMW]), summary(&[ADAMW, FREEZE]));
    assert_eq!(some.bytes.weights, all.bytes.weights);
    assert!(some.bytes.gradients < all.bytes.gradients);
    assert!(some.bytes.optimizer < all.bytes.optimizer);
    for (stage, before) in some.stages.iter().zip(&all.stages) {
        let frozen = ["stem", "denseblock1"].contains(&stage.name.as_str());
        assert_eq!(stage.frozen, frozen, "{}", stage.name);
        assert_eq!(stage.kept, if frozen { 0 } else { before.kept }, "{}", stage.name);
        assert_eq!(stage.flops < before.flops, frozen, "{}", stage.name);
    }
    // Where they thaw, what is told is of all stages, and of the first epochs beside it.
    let first = summary(&[ADAMW, AT_FIRST]);
    assert_eq!((&first.bytes, &first.stages), (&all.bytes, &all.stages));
    let at_first = first.at_first.expect("is told");
    assert_eq!((at_first.epochs, at_first.frozen.len()), (2, 2));
    assert!(at_first.peak < at_first.peak_later && at_first.relative_time < 1.0, "{at_first:?}");
    let mut planner =
        Planner::choose(&planned(DENSENET, &[ADAMW, AT_FIRST]), machine).expect("fits");
    planner.begin_epoch(2);
    assert_eq!((planner.estimate().peak, planner.strategies()[0].frozen), (at_first.peak, 2));
    planner.begin_epoch(3);
    assert_eq!((planner.estimate().peak, planner.strategies()[0].frozen), (at_first.peak_later, 0));
}

#[test]
fn a_budget_is_kept_within_behind_frozen_stages() {
    let set = ["memory.precision=\"bf16\"", "model.freeze=[\"stem\",\"denseblock1\"]"];
    let plan = planned(DENSENET, &set);
    let machine = card(80 << 30);
    let mut settings = MemorySettings::configured(&plan.memory, plan.train.batch_size);
    let estimator = Estimator::new(&plan, machine);
    let most = estimator.estimate(&settings).expect("predicts").peak;
    settings.checkpointing = Choice(CheckpointingConfig::Every(NoSettings {}));
    let least = estimator.estimate(&settings).expect("predicts").peak;
    settings.checkpointing = Choice(CheckpointingConfig::Budget(NoSettings {}));
    assert!(least < most);
    for step in 0..=8 {
        let budget = least + (most - least) * step / 8;
        let held = machine.held_at_most(budget);
        let found = Estimator::within(&plan, machine, held).estimate(&settings);
        let found = found.expect("predicts");
        assert!(found.fits && found.peak <= budget, "{budget}: {found:?}");
    }
}

#[test]
fn on_the_cpu_a_step_of_more_than_the_machines_memory_is_refused_without_a_budget_too() {
    let plan = planned(DENSENET, &["train.batch_size=64"]);
    let machine = |memory, cuda| Machine { memory, cuda, hopper: cuda, ..Machine::ASSUMED };
    let peak = |cuda| Planner::choose(&plan, machine(1 << 50, cuda)).expect("fits").estimate().peak;
    let cpu = peak(false);
    // The least that it fits in is what it takes.
    assert_eq!(Planner::choose(&plan, machine(cpu, false)).expect("fits").estimate().peak, cpu);
    let refused = Planner::choose(&plan, machine(cpu - 1, false)).expect_err("is too much");
    assert!(refused.fixed && refused.fault().is_none(), "{refused}");
    assert_eq!((refused.budget, refused.least), (cpu - 1, cpu));
    assert!(!refused.advice.is_empty());
    // A card takes the step again with fewer images.
    Planner::choose(&plan, machine(peak(true) / 2, true)).expect("is tried");
}
