//! How steps are made to fit in memory may change from one part of a run to the next, and no bit does.

use std::path::PathBuf;

use trainer::build::machine_here;
use trainer::memory::DenseLayers;
use trainer::memory::fault::strike_after;
use trainer::plan::{DevicePlan, Estimator, Machine, MemorySettings, Planner};

use super::*;

/// A folder of runs on the same data.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// The configuration of a run with these settings. Its model has many stages of one size, so that a
    /// policy lowers the peak however much memory the threads take.
    fn config(&self, name: &str, memory: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("is made");
        let data = self.folder.path().join("data");
        let path = support::write_config_with(&folder, &data, memory);
        let text = std::fs::read_to_string(&path).expect("is read");
        let densenet = "[model.densenet]\ngrowth = 4\nblocks = [2, 2]\nstem = 8\ndropout = 0.1\n";
        assert!(text.contains(densenet));
        let resnet =
            "[model.resnet]\nform = \"cifar\"\nblock = \"basic\"\nblocks = [8]\nstem = 16\n";
        std::fs::write(&path, text.replace(densenet, resnet)).expect("is written");
        path
    }

    fn scratch(&self) -> String {
        let folder = self.folder.path().to_str().expect("UTF-8");
        format!("memory.offload={{disk={{path={folder:?}}}}}")
    }
}

fn result(config: &Path) -> Result {
    Result::of(&config.with_file_name("tiny"))
}

/// Runs until it is killed at the batch with this number, counted from 1.
fn kill(mut run: Run, batch: usize) {
    let stop = run.stop.clone();
    run.reports.add(Cutter { here: trains, at: batch, cut: Cut::Kill, stop });
    run.execute().expect_err("is killed");
}

fn finish(mut run: Run) {
    assert!(matches!(run.execute().expect("trains"), Outcome::Ended(_)));
}

/// Kills a run, goes on with `set`, kills it before it saves, and goes on to the end; how it was then
/// planned.
fn go_on_with(config: &Path, set: &[&str], case: &str) -> Planner {
    let again = || open_with(config, FolderMode::Resume, set).expect(case);
    kill(again(), 1);
    let run = again();
    let planner = run.trainer.planner.clone();
    finish(run);
    planner
}

/// The peaks of a step with `micro_batch` images at once: with all kept, and with the least.
fn peaks(run: &Run, micro_batch: usize) -> [u64; 2] {
    let (machine, _): (Machine, _) = machine_here(&[DevicePlan::Cpu(None)]).expect("has memory");
    let settings = |policy: &str| {
        let memory = format!("micro_batch = {micro_batch}\ncheckpointing = {policy:?}");
        let memory = toml::from_str(&memory).expect("settings");
        MemorySettings::configured(&memory, run.plan.train.batch_size)
    };
    let estimator = Estimator::new(&run.plan, machine);
    ["none", "every"].map(|policy| estimator.estimate(&settings(policy)).expect("a policy").peak)
}

fn middle([most, least]: [u64; 2]) -> String {
    assert!(least < most);
    format!("memory.budget=\"{}kB\"", (least + most) / 2000)
}

#[test]
fn a_run_resumed_with_another_policy_is_the_one_that_kept_its_own() {
    let place = Place::new();
    let config = place.config("whole", "");
    let run = open(&config, FolderMode::New);
    let budget = middle(peaks(&run, 4));
    finish(run);
    let expected = result(&config);
    let (scratch, every) = (place.scratch(), "memory.checkpointing=\"every\"");
    let share = "memory.dense_layers=\"share\"";
    let cases: [(&str, &[&str], &str); 5] = [
        ("every", &[every], "every"),
        ("share", &[share], "none"),
        ("on disk", &["memory.checkpointing={sequential={segments=2}}", &scratch], "sequential"),
        ("budget", &["memory.checkpointing=\"budget\"", &budget], "budget"),
        ("optimizer", &["memory.offload_optimizer=true", "memory.offload=\"host\""], "none"),
    ];
    for (name, set, policy) in cases {
        let config = place.config(name, "");
        kill(open(&config, FolderMode::New), 5);
        let planner = go_on_with(&config, set, name);
        assert_eq!(planner.settings().checkpointing.name(), policy);
        let recomputes = planner.estimate().recompute_percent > 0.0;
        assert_eq!(recomputes, policy != "none", "{name}");
        assert_eq!(planner.settings().dense_layers == DenseLayers::Share, set == [share], "{name}");
        let moves = set.iter().any(|key| key.starts_with("memory.offload="));
        assert_eq!(planner.settings().offloads(), moves, "{name}");
        result(&config).assert_equals(&expected, name);
    }
}

#[test]
fn as_many_images_at_once_stay_when_the_policy_changes() {
    let place = Place::new();
    let begin = |name: &str| {
        let config = place.config(name, "");
        let run = open(&config, FolderMode::New);
        (config, run, strike_after(3))
    };
    let (config, run, armed) = begin("whole");
    finish(run);
    assert!(armed.has_struck());
    let expected = result(&config);
    let (scratch, every) = (place.scratch(), "memory.checkpointing=\"every\"");
    let cases: [(&str, &[&str], &str); 3] = [
        // More is computed again since memory has not sufficed.
        ("unchanged", &[], "budget"),
        ("every", &[every, &scratch], "every"),
        // The budget is less than what has failed.
        ("budget", &["memory.checkpointing=\"budget\""], "budget"),
    ];
    for (name, set, policy) in cases {
        let (config, run, armed) = begin(name);
        kill(run, 5);
        assert!(armed.has_struck());
        drop(armed);
        let planner = go_on_with(&config, set, name);
        let settings = planner.settings();
        assert_eq!((settings.micro_batch, settings.checkpointing.name()), (4, policy), "{name}");
        assert_eq!(settings.offloads(), set.len() == 2, "{name}");
        result(&config).assert_equals(&expected, name);
    }
}

#[test]
fn images_at_once_that_were_chosen_stay_when_the_budget_changes() {
    let place = Place::new();
    let auto = "[memory]\nmicro_batch = \"auto\"\nbudget = \"1GiB\"\n";
    let config = place.config("whole", auto);
    let run = open(&config, FolderMode::New);
    let chosen = run.trainer.planner.settings().micro_batch;
    let peaks = peaks(&run, chosen);
    finish(run);
    let expected = result(&config);

    let config = place.config("tighter", auto);
    kill(open(&config, FolderMode::New), 5);
    let planner = go_on_with(&config, &[&middle(peaks)], "a tighter budget");
    assert_eq!(planner.settings().micro_batch, chosen);
    assert!(planner.estimate().peak <= planner.budget() && planner.budget() < peaks[0]);
    assert!(planner.estimate().recompute_percent > 0.0);
    result(&config).assert_equals(&expected, "a tighter budget");

    let config = place.config("too tight", auto);
    kill(open(&config, FolderMode::New), 5);
    let refused = open_with(&config, FolderMode::Resume, &["memory.budget=\"1kB\""]);
    let refused = refused.map(drop).expect_err("nothing fits");
    assert!(matches!(refused, BuildError::NothingFits(_)), "{refused}");
    finish(open(&config, FolderMode::Resume));
    result(&config).assert_equals(&expected, "after a budget that was refused");
}

#[test]
fn what_decides_about_bits_is_refused_in_the_words_of_the_file() {
    let place = Place::new();
    let config = place.config("run", "");
    kill(open(&config, FolderMode::New), 5);
    let set = [
        "memory.micro_batch=2",
        "memory.precision=\"bf16\"",
        "memory.batch_norm=\"last\"",
        "memory.checkpointing=\"every\"",
        "train.schedule=\"constant\"",
        "train.optimizer={sgd={lr=0.1}}",
    ];
    let refused = open_with(&config, FolderMode::Resume, &set).map(drop).expect_err("is refused");
    let folder = place.folder.path().display().to_string();
    insta::assert_snapshot!(refused.to_string().replace(&folder, "…"), @r#"
    the run in …/run/tiny was started with another configuration:
      memory.batch_norm was "mean", is "last"
      memory.micro_batch was not set, is 2
      memory.precision was "fp32", is "bf16"
      train.optimizer was "adamw", is "sgd"
      train.schedule was "plateau", is "constant"
    Put these keys back to resume it, or start another run with --set run.name=<other>.
    "#);
}
