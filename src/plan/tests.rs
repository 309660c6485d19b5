//! Strategies predicted, chosen and explained.

use std::path::Path;

use super::{Combination, Machine, NothingFits, Outlook, Plan, Planner, Predictor};
use crate::memory::{Precision, Speed, TradeOff};
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
        ("densenet in fp32", with(DENSENET, &[dense, "memory.precision=\"fp32\""])),
        ("resnet", with(RESNET, &[residual])),
        ("resnet, policy given", with(RESNET, &[residual, "memory.checkpointing=\"sqrt\""])),
    ]
}

#[test]
fn what_is_chosen_is_the_fastest_of_all_that_fit() {
    for (name, plan) in small() {
        let machine = card(8 << 30);
        let ways = plan.eligible(&machine);
        let mut peaks: Vec<u64> = Vec::new();
        let mut predictor = Predictor::new(&plan, machine);
        for way in &ways {
            peaks.push(predictor.predict(way).expect("a right policy").peak);
        }
        peaks.sort_unstable();
        // Between every few of the peaks, and at the ends.
        let budgets = peaks.iter().step_by(5).chain(peaks.last()).map(|peak| peak + 1);
        for budget in budgets.chain([peaks[0] - 1]) {
            let mut memory = plan.memory.clone();
            memory.budget = Some(format!("{}kB", budget.div_ceil(1000)));
            let plan = Plan { memory, ..plan.clone() };
            let mut predictor = Predictor::new(&plan, machine);
            let found = ways.iter().map(|way| predictor.predict(way).expect("a right policy"));
            let fastest = found.filter(|found| found.fits).map(|found| found.seconds);
            let fastest = fastest.fold(f64::INFINITY, f64::min);
            match Planner::choose(&plan, machine) {
                Ok(planner) => {
                    let ours = planner.prediction();
                    assert!(ours.fits && ours.seconds <= fastest * (1.0 + 1e-8), "{name} {budget}");
                    assert!(ways.contains(planner.way()), "{name} {budget}");
                }
                Err(fault) => assert!(fastest.is_infinite(), "{name} {budget}: {fault}"),
            }
        }
    }
}

#[test]
fn what_the_user_writes_stays() {
    let written = ["memory.dense_layers=\"share\"", "memory.offload=\"none\""];
    let plan = planned(DENSENET, &[&SMALL[..], &written[..]].concat());
    for way in plan.eligible(&card(8 << 30)) {
        assert_eq!((way.dense_layers.name(), way.offload.name()), ("share", "none"));
        assert_eq!(way.precision, Precision::Bf16);
    }
}

#[test]
fn a_budget_is_never_slower_than_equal_segments_with_the_same_peak() {
    for path in [DENSENET, RESNET] {
        let plan = planned(path, &["memory.precision=\"bf16\""]);
        let on = Machine::ASSUMED.target(plan.memory.precision, plan.memory.dense_layers());
        let costs = plan.costs(&on, plan.train.batch_size, plan.memory.offload_optimizer);
        let speed = Speed::of(&on);
        let ways = TradeOff::new(&costs.stages, &costs.surroundings, &speed, 1);
        let run = |tree: &crate::memory::Tree| {
            let schedule = crate::memory::Schedule::of_tree(tree, costs.stages.len(), 1);
            crate::memory::simulate(&schedule, &costs.stages, &costs.surroundings, &speed)
        };
        let stages = costs.stages.len();
        let (mut budgets, mut segments) = (Vec::new(), Vec::new());
        for count in 1..=stages {
            let config = crate::memory::SequentialConfig { segments: count };
            let policy = crate::memory::CheckpointingConfig::Sequential(config);
            let names: Vec<&str> = costs.names.iter().map(String::as_str).collect();
            let tree = policy.tree(&names).expect("fits").expect("needs no bytes");
            let taken = run(&tree);
            budgets.push(taken.peak);
            segments.push((taken.peak, taken.seconds));
        }
        let (least, most) = (ways.least(), budgets.iter().max().copied().expect("policies"));
        budgets.extend((0..=40).map(|step| least + (most - least) * step / 40));
        for budget in budgets {
            let ours = run(&ways.within(budget).expect("something fits"));
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
    let here = Planner::choose(&plan, card(400 << 20)).expect("fits");
    let chosen = here.chosen().expect("something is chosen");
    let json = serde_json::to_string(&chosen).expect("is written");
    let read = serde_json::from_str(&json).expect("is read");
    assert_eq!(chosen, read, "{json}");
    let there = Planner::resumed(&plan, card(80 << 30), read);
    assert_eq!((here.way(), here.budget()), (there.way(), there.budget()));
    assert_eq!(here.strategy().tree, there.strategy().tree);
    // Where the configuration says it all, nothing is remembered.
    let plain = planned(DENSENET, &["memory.checkpointing=\"sqrt\""]);
    assert_eq!(Planner::choose(&plain, card(80 << 30)).expect("is not asked").chosen(), None);
}

#[test]
fn after_running_out_fewer_images_need_less_than_has_failed() {
    let set = ["memory.checkpointing=\"budget\"", "memory.budget=\"1350MiB\""];
    let plan = planned(DENSENET, &set);
    let mut planner = Planner::choose(&plan, card(80 << 30)).expect("fits");
    let mut images = plan.train.batch_size;
    let mut backoffs = 0;
    loop {
        let failed = planner.prediction().peak;
        let Some(strategy) = planner.back_off(images).cloned() else { break };
        assert_eq!(strategy.micro_batch, images.div_ceil(2).max(1));
        assert!(planner.prediction().peak < failed, "{images}");
        assert_eq!(planner.way().micro_batch, strategy.micro_batch);
        images = strategy.micro_batch;
        backoffs += 1;
    }
    assert!(images == 1 && backoffs >= 6, "{images} {backoffs}");
    assert!(planner.chosen().is_some());
}

#[test]
fn where_the_optimizers_state_waits_is_told() {
    let told = |set: &[&str]| {
        let plan = planned(DENSENET, set);
        Planner::choose(&plan, card(80 << 30)).expect("fits").told()
    };
    let place = "optimizer's state in host memory";
    assert!(told(&["memory.offload_optimizer=true"]).contains(place));
    assert!(!told(&[]).contains(place));
}

#[test]
fn what_is_said_to_fit_does() {
    let plan = planned(DENSENET, &["memory.precision=\"fp32\"", "train.batch_size=8"]);
    let way = Combination { micro_batch: 1, ..Combination::configured(&plan.memory, 8) };
    let machine = card(150 << 20);
    let text = super::limits::what_would_fit(&plan, machine, 140 << 20, &way);
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
        Predictor::within(&smaller, machine, 140 << 20).predict(&way).expect("predicts").fits
    };
    assert!(fits(side) && !fits(side + 32), "{side}");
}

#[test]
fn where_nothing_fits_the_least_peak_and_what_would_fit_are_told() {
    let set =
        ["memory.checkpointing=\"budget\"", "memory.budget=\"200MiB\"", "memory.micro_batch=32"];
    let plan = planned(DENSENET, &set);
    let fault: NothingFits = Planner::choose(&plan, card(80 << 30)).expect_err("is too much");
    let mut predictor = Predictor::within(&plan, card(80 << 30), fault.least);
    let way = Combination::configured(&plan.memory, plan.train.batch_size);
    assert_eq!(predictor.predict(&way).expect("predicts").peak, fault.least);
    insta::assert_snapshot!(fault.to_string());
}

#[test]
fn checkpointing_is_not_advised_for_a_model_that_is_all_weights() {
    let plan = planned("configs/experiments/11_cnn_regression.toml", &[]);
    let outlook = Outlook::new(&plan, &card(2 << 30)).expect("a right policy");
    insta::assert_snapshot!(outlook.advice);
    let large = planned("configs/experiments/11_cnn_regression_large.toml", &[]);
    let outlook = Outlook::new(&large, &card(32 << 30)).expect("a right policy");
    insta::assert_snapshot!(outlook.advice);
}

const LARGE_XRAYS: &str = "configs/experiments/01_large_xrays.toml";

/// Of every lever, once: that it lowers the peak, does nothing or raises it.
#[test]
fn what_is_said_of_a_lever_is_what_it_does() {
    for path in [
        LARGE_XRAYS,
        "configs/quickstart.toml",
        "configs/xray_densenet.toml",
        "configs/experiments/07_resnet18_memory.toml",
        "configs/experiments/10_resnet_swapping.toml",
        "configs/experiments/11_cnn_regression.toml",
    ] {
        let plan = planned(path, &[]);
        for machine in [card(80 << 30), Machine { cuda: false, ..Machine::ASSUMED }] {
            let way = Combination::configured(&plan.memory, plan.train.batch_size);
            let mut predictor = Predictor::new(&plan, machine);
            let (budget, now) = (predictor.budget(), predictor.predict(&way).expect("predicts"));
            let advice = super::advice::advice(&plan, &machine, budget, &way);
            for pulled in super::levers::pull(&plan, &machine, budget, &way) {
                let name = format!("`{}`", pulled.lever.written());
                let said: Vec<&str> = advice.split(". ").filter(|s| s.contains(&name)).collect();
                let wanted = match pulled.peak as f64 / now.peak as f64 {
                    ..=0.95 => "What lowers it",
                    ..=0.98 => continue,
                    ..1.02 => "would do nothing",
                    _ => "would raise the peak",
                };
                assert_eq!(advice.matches(&name).count(), 1, "{path} {name}: {advice}");
                assert!(said[0].contains(wanted), "{path} {name}: {advice}");
                let images = pulled.lever.written().starts_with("micro_batch");
                if images && wanted == "What lowers it" && plan.model.norm() == Norm::Batch {
                    let after = advice.split(&name).nth(1).and_then(|rest| rest.split(')').next());
                    assert!(
                        after.is_some_and(|mark| mark.ends_with(", other numbers")),
                        "{advice}"
                    );
                }
            }
        }
    }
}

#[test]
fn half_is_said_to_raise_the_peak_where_it_is_not_fused() {
    let outlook = |set: &[&str]| {
        let plan = planned(LARGE_XRAYS, set);
        Outlook::new(&plan, &card(80 << 30)).expect("a right policy")
    };
    insta::assert_snapshot!(outlook(&[]).advice);
    let half = ["memory.precision=\"half\"", "train.optimizer.adamw.eps=1e-4"];
    let peak = |outlook: Outlook| outlook.strategies[outlook.chosen.expect("starts")].peak as f64;
    let ratio = peak(outlook(&half)) / peak(outlook(&[]));
    let said = format!("`precision = \"half\" with eps = 1e-4` would raise the peak ×{ratio:.0}");
    assert!(outlook(&[]).advice.contains(&said), "{said}");
}

#[test]
fn a_step_that_is_predicted_above_a_budget_that_is_written_is_refused() {
    let of = |set: &[&str], machine| Planner::choose(&planned(DENSENET, set), machine);
    let fault = of(&["memory.budget=\"200MiB\""], card(80 << 30)).expect_err("is too much");
    let way_peak = of(&[], card(80 << 30)).expect("fits").prediction().peak;
    assert_eq!((fault.least, fault.budget), (way_peak, 200 << 20));
    let said = fault.fault().expect("is written");
    assert_eq!(said.key, "memory.budget");
    insta::assert_snapshot!(fault.to_string());
    // What fits is taken, and without a budget so is what is predicted not to.
    let budget = format!("memory.budget=\"{}kB\"", way_peak.div_ceil(1000));
    of(&[&budget], card(80 << 30)).expect("fits");
    let planner = of(&[], card(1 << 30)).expect("is not asked");
    assert!(!planner.prediction().fits);
}

#[test]
fn a_budget_above_the_device_s_memory_is_warned_of_and_the_memory_counts() {
    let plan = planned(DENSENET, &["memory.budget=\"100GiB\""]);
    let outlook = Outlook::new(&plan, &card(80 << 30)).expect("a right policy");
    assert_eq!(outlook.budget, 80 << 30);
    insta::assert_snapshot!(outlook.warning.expect("is warned of"));
    let outlook = Outlook::new(&plan, &card(100 << 30)).expect("a right policy");
    assert_eq!((outlook.budget, outlook.warning), (100 << 30, None));
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
    for way in plan.eligible(&machine).into_iter().chain(plan.combinations(&machine)) {
        // Of 9 images, parts of 2, 4 or 8 leave one.
        assert_eq!(way.micro_batch, 9);
    }
    let plan = Plan { train: super::TrainPlan { batch_size: 6, ..plan.train.clone() }, ..plan };
    let images: Vec<usize> = plan.eligible(&machine).iter().map(|way| way.micro_batch).collect();
    assert!(images.contains(&2) && images.contains(&4) && !images.contains(&1), "{images:?}");
    let mut planner = Planner::choose(&plan, machine).expect("fits");
    assert_eq!(planner.back_off(3).map(|strategy| strategy.micro_batch), Some(2));
    assert!(planner.back_off(2).is_none());
    // Of larger images more is left.
    let large = planned(DENSENET, &["memory.micro_batch=\"auto\"", "data.image.size=[64,64]"]);
    assert!(large.eligible(&machine).iter().any(|way| way.micro_batch == 1));
}

#[test]
fn the_plan_of_a_densenet_as_json() {
    let plan = planned(DENSENET, &["memory.budget=\"1GiB\""]);
    let mut outlook = Outlook::new(&plan, &card(80 << 30)).expect("a right policy");
    assert_eq!(outlook.chosen, None);
    let fastest = outlook.fastest.map(|place| &outlook.strategies[place]);
    assert!(fastest.is_some_and(|row| row.fits && row.precision == Precision::Bf16));
    for row in &outlook.strategies {
        assert_eq!(row.fits, row.peak <= 1 << 30);
    }
    outlook.strategies.retain(|row| {
        row.precision == Precision::Bf16
            && [16, 64].contains(&row.micro_batch)
            && row.offload == "none"
    });
    for stage in &mut outlook.stages {
        stage.flops = stage.flops.round();
    }
    for row in &mut outlook.strategies {
        row.recompute_percent = (row.recompute_percent * 10.0).round() / 10.0;
        row.relative_time = (row.relative_time * 100.0).round() / 100.0;
    }
    let json = serde_json::to_string_pretty(&outlook).expect("is written");
    insta::assert_snapshot!(json);
}
