//! Protects a run from what it saves while it goes on.

use super::*;

/// Bytes in use at most in the first epoch of a model that is nearly all weights: eight megabytes of them, and 32 in a
/// saved state.
fn peak(saving: &str) -> u64 {
    let experiment = Experiment::new();
    let labels = "labels = [\"Edema\", \"Mass\"]";
    let text = CONFIG.replace(labels, &format!("{labels}\nhidden = [4000, 500]"));
    fs::write(experiment.path("a.toml"), text).expect("is written");
    let set = ["train.batch_size=1", "train.ema={decay=0.9}", "train.optimizer={adamw={lr=0.001}}"];
    let set = set.iter().chain([&saving]).flat_map(|set| ["--set", *set]);
    experiment.trained(&set.collect::<Vec<_>>());
    experiment.events("epoch")[0]["memory"]["peak"].as_u64().expect("is measured")
}

#[test]
fn what_a_save_takes_beside_steps_is_none_of_the_models_memory() {
    let [never, always] = ["run.save.every_steps=0", "run.save.every_steps=1"].map(peak);
    assert!(never > 32 << 20, "{never}");
    assert!(always.abs_diff(never) < 4 << 20, "{always} instead of {never}");
}
