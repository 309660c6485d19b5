use super::*;
use crate::choice::NoSettings;
use crate::memory::OffloadConfig;
use crate::optim::oracle::{self, Course};

const NAMES: [&str; 2] = ["stem/weight", "bias"];

fn parameters() -> Vec<(String, usize)> {
    NAMES.map(|name| (name.to_owned(), 6)).to_vec()
}

/// Takes the steps `from..to` of the fixture's course with both parameters.
fn walk(
    optimizer: &mut Optimizer,
    course: &Course,
    values: &mut [Tensor<1>; 2],
    steps: std::ops::Range<usize>,
) {
    for gradient in &course.gradients[steps] {
        for (name, value) in NAMES.iter().zip(values.iter_mut()) {
            let gradient = oracle::vector(gradient);
            *value = optimizer.step(name, 0.01, *name != "bias", value.clone(), gradient);
        }
    }
}

#[test]
fn an_optimizer_loaded_after_any_step_goes_on_bit_for_bit() {
    let course: Course = oracle::section("optimizers");
    let start = || [oracle::vector(&course.start), oracle::vector(&course.start[..])];
    for case in &course.cases {
        let mut whole = case.config.init(parameters());
        let mut values = start();
        walk(&mut whole, &course, &mut values, 0..8);
        for cut in [0, 1, 5] {
            let mut first = case.config.init(parameters());
            let mut halfway = start();
            walk(&mut first, &course, &mut halfway, 0..cut);
            let mut second = case.config.init(parameters());
            second.load(first.state().expect("reads"), &Device::flex()).expect("loads");
            walk(&mut second, &course, &mut halfway, cut..8);
            for (resumed, uninterrupted) in halfway.iter().zip(&values) {
                let bits = |tensor| oracle::values(tensor).into_iter().map(f32::to_bits);
                assert!(bits(resumed).eq(bits(uninterrupted)), "{:?}, cut {cut}", case.config);
            }
            let (ours, theirs) = (second.state().expect("reads"), whole.state().expect("reads"));
            assert_eq!(ours.tensors, theirs.tensors);
            assert_eq!(ours.scalars, theirs.scalars);
        }
    }
}

#[test]
fn a_state_that_waits_in_host_memory_changes_no_bit() {
    let course: Course = oracle::section("optimizers");
    let host = || Store::open(&OffloadConfig::Host(NoSettings {})).expect("opens");
    for case in &course.cases {
        let mut whole = case.config.init(parameters());
        let mut values = [oracle::vector(&course.start), oracle::vector(&course.start)];
        walk(&mut whole, &course, &mut values, 0..8);
        let mut ours = case.config.init(parameters()).wait_in(host());
        let mut theirs = [oracle::vector(&course.start), oracle::vector(&course.start)];
        for (number, gradient) in course.gradients[..8].iter().enumerate() {
            for (name, value) in NAMES.iter().zip(theirs.iter_mut()) {
                let gradient = oracle::vector(gradient);
                ours.fetch(name).expect("comes");
                *value = ours.step(name, 0.01, *name != "bias", value.clone(), gradient);
                ours.park(name).expect("leaves");
            }
            if number == 4 {
                let state = ours.state().expect("reads");
                ours = case.config.init(parameters()).wait_in(host());
                ours.load(state, &Device::flex()).expect("loads");
            }
        }
        for (ours, theirs) in theirs.iter().zip(&values) {
            assert_eq!(oracle::values(ours), oracle::values(theirs), "{:?}", case.config);
        }
        let (ours, theirs) = (ours.state().expect("reads"), whole.state().expect("reads"));
        assert_eq!(ours.tensors, theirs.tensors);
        assert_eq!(ours.scalars, theirs.scalars);
    }
}

#[test]
fn the_state_holds_exactly_the_tensors_each_rule_declares() {
    let course: Course = oracle::section("optimizers");
    for case in &course.cases {
        let mut optimizer = case.config.init(parameters());
        assert!(optimizer.state().expect("reads").tensors.is_empty());
        let mut values = [oracle::vector(&course.start), oracle::vector(&course.start)];
        for step in 0..2 {
            walk(&mut optimizer, &course, &mut values, step..step + 1);
            let state = optimizer.state().expect("reads");
            let saved: BTreeSet<String> = state.tensors.into_iter().map(|(name, _)| name).collect();
            let leaves = optimizer.rule.leaves();
            let declared =
                leaves.iter().flat_map(|leaf| NAMES.map(|name| format!("{name}/{leaf}"))).collect();
            assert_eq!(saved, declared, "{:?}", case.config);
        }
    }
}

#[test]
fn weight_decay_spares_the_parameters_it_is_told_to() {
    let course: Course = oracle::section("optimizers");
    let zeros = vec![0.0; 6];
    for case in &course.cases {
        let mut optimizer = case.config.init(parameters());
        let start = oracle::vector(&course.start);
        let spared = optimizer.step("bias", 0.01, false, start.clone(), oracle::vector(&zeros));
        assert_eq!(oracle::values(&spared), course.start, "{:?}", case.config);
    }
}

/// A state of Adam after one step, to be damaged.
fn saved() -> (Optimizer, OptimizerState) {
    let config = OptimizerConfig::Adam(Default::default());
    let mut optimizer = config.init(parameters());
    let course: Course = oracle::section("optimizers");
    let mut values = [oracle::vector(&course.start), oracle::vector(&course.start)];
    walk(&mut optimizer, &course, &mut values, 0..1);
    let state = optimizer.state().expect("reads");
    (config.init(parameters()), state)
}

#[test]
fn a_state_that_lacks_or_adds_a_name_is_refused_by_that_name() {
    let refusal = |damage: fn(&mut OptimizerState)| {
        let (mut optimizer, mut state) = saved();
        damage(&mut state);
        let error = optimizer.load(state, &Device::flex()).expect_err("is refused");
        assert!(optimizer.state().expect("reads").tensors.is_empty(), "nothing changed");
        error.to_string()
    };
    let lacks = refusal(|state| state.tensors.retain(|(name, _)| name != "bias/exp_avg_sq"));
    assert!(lacks.contains("lacks `bias/exp_avg_sq`;"), "{lacks}");
    let lacks = refusal(|state| {
        state.scalars.remove("stem/weight/step");
    });
    assert!(lacks.contains("lacks `stem/weight/step`;"), "{lacks}");
    let holds = refusal(|state| {
        let data = state.tensors[0].1.clone();
        state.tensors.push(("head/exp_avg".to_owned(), data));
    });
    assert!(holds.contains("holds `head/exp_avg`,"), "{holds}");
    let holds = refusal(|state| {
        state.scalars.insert("head/step".to_owned(), 1);
    });
    assert!(holds.contains("holds `head/step`,"), "{holds}");
}

#[test]
fn a_state_of_another_length_or_type_is_refused() {
    let (mut optimizer, mut state) = saved();
    state.tensors[0].1 = TensorData::from([1.0_f32, 2.0]);
    let error = optimizer.load(state, &Device::flex()).expect_err("is refused");
    assert!(matches!(error, OptimError::Length { found: 2, expected: 6, .. }), "{error}");
    let (mut optimizer, mut state) = saved();
    state.tensors[0].1 = TensorData::from([1_i32; 6]);
    let error = optimizer.load(state, &Device::flex()).expect_err("is refused");
    assert!(matches!(error, OptimError::Type { .. }), "{error}");
}

#[test]
fn a_state_of_another_optimizer_is_refused() {
    let (_, state) = saved();
    let mut lion = OptimizerConfig::Lion(Default::default()).init(parameters());
    let error = lion.load(state, &Device::flex()).expect_err("is refused");
    assert!(matches!(error, OptimError::Foreign { .. }), "{error}");
}
