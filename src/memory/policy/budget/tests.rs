use proptest::prelude::*;

use super::*;

/// Every tree over `count` stages.
fn trees(count: usize) -> Vec<CheckpointPlan> {
    let mut all: Vec<CheckpointPlan> = match count {
        1 => vec![CheckpointPlan::keep_all(1)],
        _ => trees(count - 1)
            .into_iter()
            .map(|rest| CheckpointPlan::Keep { offload: false, rest: Some(Box::new(rest)) })
            .collect(),
    };
    for run in 1..count {
        for later in trees(count - run) {
            for again in trees(run) {
                let (later, again) = (Box::new(later.clone()), Box::new(again));
                all.push(CheckpointPlan::Checkpoint { count: run, offload: false, later, again });
            }
        }
    }
    all
}

fn footprint() -> impl Strategy<Value = Footprint> {
    let bytes = || 0..12_u64;
    let sizes = (1..12_u64, bytes(), bytes(), bytes(), bytes(), 1..12_u64, bytes());
    let shares = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), bytes());
    (sizes, shares, 1..20_u32, 0..3_u64).prop_map(|(sizes, shares, work, copy)| {
        let (output, saved, forward, saving, backward, gradient, parameters) = sizes;
        let (in_input, saves_input, saves_output, in_gradient, _) = shares;
        Footprint {
            output,
            output_in_input: in_input,
            // What lies in memory with room is copied out of it.
            checkpoint: if in_input { copy + 1 } else { 0 },
            saved,
            saves_input,
            saves_output,
            moves_saved: false,
            forward_workspace: forward,
            saving_workspace: saving,
            gradient,
            gradient_in_gradient: in_gradient,
            // Some of what is kept is let go of before the gradients are made.
            backward_peak: (if in_gradient { 0 } else { gradient } + parameters + backward)
                .saturating_sub(saved),
            parameter_gradients: parameters,
            forward_flops: f64::from(work),
            backward_flops: 2.0 * f64::from(work),
            ..Footprint::default()
        }
    })
}

/// A chain in which what is written into its input has its size.
fn chain(count: usize) -> impl Strategy<Value = Vec<Footprint>> {
    prop::collection::vec(footprint(), count).prop_map(|mut stages| {
        stages[0].output_in_input = false;
        stages[0].checkpoint = 0;
        for stage in 1..stages.len() {
            if stages[stage].output_in_input {
                stages[stage].output = stages[stage - 1].output;
            }
        }
        stages
    })
}

const SPEED: Speed = Speed { flops: 1.0, bandwidth: 1.0, link: 1.0, layer: 0.0 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_schedule_is_faster_within_any_budget(
        stages in (1..6_usize).prop_flat_map(chain),
        micros in 1..3_usize,
        workspace in 0..20_u64,
    ) {
        let surroundings = Surroundings {
            standing: 5,
            input: 3,
            loss_workspace: workspace,
            loss_gradient: 2,
            step_workspace: 0,
            by_copy_engines: false,
        };
        let run = |tree: &CheckpointPlan| {
            let schedule = Schedule::of_plan(tree, stages.len(), micros);
            let result = simulate(&schedule, &stages, &surroundings, &SPEED);
            (result.peak, result.seconds / micros as f64)
        };
        let every: Vec<(u64, f64)> = trees(stages.len()).iter().map(run).collect();
        let trade_off = TradeOff::new(&stages, &surroundings, &SPEED, micros);
        let mut budgets: Vec<u64> = every.iter().map(|(peak, _)| *peak).collect();
        budgets.sort_unstable();
        budgets.dedup();
        prop_assert_eq!(trade_off.least(), budgets[0]);
        prop_assert!(trade_off.within(budgets[0] - 1).is_none());
        for budget in budgets {
            let fit = every.iter().filter(|(peak, _)| *peak <= budget);
            let fastest = fit.map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
            let tree = trade_off.within(budget).expect("something fits");
            let (peak, seconds) = run(&tree);
            prop_assert!(peak <= budget, "{peak} of {budget}: {tree:?}");
            prop_assert_eq!(seconds, fastest);
        }
    }
}

#[test]
fn a_long_chain_is_taken_in_groups_within_its_budget() {
    let stage = |at: usize| Footprint {
        output: 3 + (at as u64 * 7) % 5,
        saved: 2 + (at as u64 * 5) % 11,
        saves_input: at.is_multiple_of(2),
        gradient: 4,
        backward_peak: 5,
        parameter_gradients: 1,
        forward_flops: 1.0 + (at % 3) as f64,
        backward_flops: 2.0,
        ..Footprint::default()
    };
    let stages: Vec<Footprint> = (0..4 * MOST_STAGES).map(stage).collect();
    let surroundings = Surroundings {
        standing: 5,
        input: 3,
        loss_workspace: 1,
        loss_gradient: 2,
        step_workspace: 0,
        by_copy_engines: false,
    };
    let run = |tree: &CheckpointPlan| {
        let schedule = Schedule::of_plan(tree, stages.len(), 1);
        simulate(&schedule, &stages, &surroundings, &SPEED)
    };
    let everything = run(&CheckpointPlan::keep_all(stages.len()));
    let sqrt = run(&CheckpointPlan::segments(&equal(stages.len(), stages.len().isqrt())));
    let trade_off = TradeOff::new(&stages, &surroundings, &SPEED, 1);
    let all = trade_off.within(everything.peak).expect("everything fits");
    assert!(run(&all).seconds <= everything.seconds * 1.02);
    let tree = trade_off.within(sqrt.peak).expect("√n fits");
    let ours = run(&tree);
    assert!(ours.peak <= sqrt.peak && ours.seconds <= sqrt.seconds, "{ours:?}");
    assert!(trade_off.within(sqrt.peak / 8).is_none());
}
