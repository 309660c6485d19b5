//! A run goes on on another number of devices as if the number had not changed. The devices are logical
//! ones of the CPU.

use std::collections::BTreeMap;

use serde_json::Value;
use trainer::config::DeviceUse;

use super::*;

/// Plain steps: those of Adam make much of the last bits of gradients near 0.
const OPTIMIZER: &str = "train.optimizer={ sgd = { lr = 0.01, momentum = 0.9 } }";

fn open_on(config: &Path, mode: FolderMode, devices: usize, micro_batch: usize) -> Run {
    let names: Vec<String> = (0..devices).map(|number| format!("\"cpu:{number}\"")).collect();
    let devices = format!("device.use=[{}]", names.join(", "));
    let micro_batch = format!("memory.micro_batch={micro_batch}");
    open_with(config, mode, &[&devices, &micro_batch, OPTIMIZER]).expect("opens")
}

/// Weights, running statistics and averages.
fn state(run: &Run) -> BTreeMap<String, Vec<f32>> {
    let parameters = run.trainer.parameters().into_iter();
    let weights = parameters.map(|p| (p.name, p.value.into_data().iter().collect()));
    let average =
        run.trainer.copy().iter().flat_map(|rank| {
            rank.updater.ema.as_ref().expect("there is one").state().expect("reads")
        });
    weights
        .chain(average.map(|(name, data)| (format!("average/{name}"), data.iter().collect())))
        .collect()
}

/// A run as a pipeline; on one device as it is without.
fn open_pipeline(config: &Path, mode: FolderMode, devices: usize, schedule: &str) -> Run {
    let names: Vec<String> = (0..devices).map(|number| format!("\"cpu:{number}\"")).collect();
    let names = format!("device.use=[{}]", names.join(", "));
    let schedule = format!("parallel.pipeline.schedule=\"{schedule}\"");
    let mut set = vec![names.as_str(), "memory.micro_batch=2"];
    set.extend((devices > 1).then_some(schedule.as_str()));
    open_with(config, mode, &set).expect("opens")
}

#[test]
fn a_pipeline_over_four_devices_goes_on_on_two_and_on_one_with_the_same_bits_and_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let begun = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("is made");
        support::write_config(&place, &data)
    };
    let mut whole = open_pipeline(&begun("whole"), FolderMode::New, 1, "");
    whole.execute().expect("trains");
    let cases =
        [(4, 2, saved_at_end as fn(&Event) -> bool), (4, 1, saved_inside), (1, 3, saved_inside)];
    for (before, after, at) in cases {
        let config = begun(&format!("{before}-{after}"));
        let mut run = open_pipeline(&config, FolderMode::New, before, "1f1b");
        assert_eq!(run.trainer.copy().len(), before);
        let stop = run.stop.clone();
        run.reports.add(Cutter { here: at, at: 1, cut: Cut::Kill, stop });
        run.execute().expect_err("is cut");
        drop(run);
        let mut resumed = open_pipeline(&config, FolderMode::Resume, after, "gpipe");
        resumed.execute().expect("goes on");
        assert!(state(&resumed) == state(&whole), "{before} devices, then {after}");
        for file in ["weights", "average", "optimizer"] {
            let read = |run: &Run| {
                let path = run.folder.join("last").join(format!("{file}.safetensors"));
                std::fs::read(path).expect("is there")
            };
            assert!(read(&resumed) == read(&whole), "{file}: {before} devices, then {after}");
        }
    }
}

fn assert_near(ours: &Run, exact: &Run, what: &str) {
    let (ours, exact) = (state(ours), state(exact));
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>());
    for (name, exact) in exact {
        for (ours, exact) in ours[&name].iter().zip(exact) {
            assert!((ours - exact).abs() < 1e-5, "{what}: {name}: {ours} {exact}");
        }
    }
}

#[test]
fn a_run_on_four_devices_goes_on_on_one_and_on_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let begun = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("is made");
        support::write_config(&place, &data)
    };
    // BatchNorm normalises over the four images that are computed at once, on however many devices.
    let mut whole = open_on(&begun("whole"), FolderMode::New, 1, 4);
    whole.execute().expect("trains");
    for (devices, at) in [(1, saved_at_end as fn(&Event) -> bool), (2, saved_inside)] {
        let config = begun(&format!("on{devices}"));
        let mut run = open_on(&config, FolderMode::New, 4, 1);
        let stop = run.stop.clone();
        run.reports.add(Cutter { here: at, at: 1, cut: Cut::Kill, stop });
        run.execute().expect_err("is cut");
        drop(run);
        let mut resumed = open_on(&config, FolderMode::Resume, devices, 1);
        let strategy = &resumed.trainer.first().replica.strategy;
        assert_eq!(strategy.micro_batch, 4 / devices, "{devices} devices");
        resumed.execute().expect("goes on");
        assert_near(&resumed, &whole, &format!("{devices} devices"));
    }
}

/// Four devices, then one, then two: with shards of the optimizer's state here and there, and without any.
#[test]
fn a_run_goes_on_with_and_without_shards_with_the_same_bits_and_files() {
    const SHARDED: &str = "parallel.data.optimizer=\"sharded\"";
    const REPLICATED: &str = "parallel.data.optimizer=\"replicated\"";
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let course = |name: &str, placements: [&str; 3]| -> BTreeMap<String, Vec<u8>> {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("is made");
        let config = support::write_config(&place, &data);
        let open = |mode, devices: usize, placement: &str| {
            let names: Vec<String> =
                (0..devices).map(|number| format!("\"cpu:{number}\"")).collect();
            let names = format!("device.use=[{}]", names.join(", "));
            open_with(&config, mode, &[&names, "memory.micro_batch=1", placement]).expect("opens")
        };
        let cuts = [saved_inside as fn(&Event) -> bool, saved_at_end];
        let stages = [(FolderMode::New, 4), (FolderMode::Resume, 1)].into_iter().zip(cuts);
        for (((mode, devices), here), placement) in stages.zip(placements) {
            let mut run = open(mode, devices, placement);
            let stop = run.stop.clone();
            run.reports.add(Cutter { here, at: 1, cut: Cut::Kill, stop });
            run.execute().expect_err("is cut");
        }
        let mut last = open(FolderMode::Resume, 2, placements[2]);
        last.execute().expect("goes on");
        let read = |state: &str, file: &str| {
            let name = format!("{state}/{file}.safetensors");
            let bytes = std::fs::read(last.folder.join(&name)).expect("is there");
            (name, bytes)
        };
        let files = ["weights", "average", "optimizer"];
        files.iter().flat_map(|file| [read("last", file), read("best", file)]).collect()
    };
    let expected = course("replicated", [REPLICATED; 3]);
    for (name, placements) in [
        ("sharded", [SHARDED; 3]),
        ("on", [REPLICATED, REPLICATED, SHARDED]),
        ("off", [SHARDED, REPLICATED, REPLICATED]),
    ] {
        let found = course(name, placements);
        for (file, bytes) in &found {
            assert!(*bytes == expected[file], "{name}: {file} differs");
        }
    }
}

/// Two copies of a pipeline of two devices, then one device, one copy of the pipeline, and two devices that each
/// have the whole model.
#[test]
fn a_grid_of_four_devices_goes_on_on_one_and_on_two() {
    const GRID: [&str; 2] = ["parallel.pipeline.copies=2", "parallel.pipeline.schedule=\"1f1b\""];
    const COLUMN: [&str; 1] = ["parallel.pipeline.schedule=\"gpipe\""];
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let begun = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("is made");
        support::write_config(&place, &data)
    };
    let open = |config: &Path, mode, devices: usize, more: &[&str]| {
        let names: Vec<String> = (0..devices).map(|number| format!("\"cpu:{number}\"")).collect();
        let names = format!("device.use=[{}]", names.join(", "));
        let set = [&[names.as_str(), "memory.micro_batch=2", OPTIMIZER], more].concat();
        open_with(config, mode, &set).expect("opens")
    };
    let mut whole = open_on(&begun("whole"), FolderMode::New, 1, 4);
    whole.execute().expect("trains");
    let cases: [(&str, usize, &[&str], usize); 3] =
        [("one", 1, &[], 4), ("column", 2, &COLUMN, 4), ("row", 2, &[], 2)];
    for (name, devices, more, micro_batch) in cases {
        let cuts = [("end", saved_at_end as fn(&Event) -> bool), ("inside", saved_inside)];
        for (cut, at) in cuts {
            let config = begun(&format!("{name}-{cut}"));
            let mut run = open(&config, FolderMode::New, 4, &GRID);
            assert_eq!((run.trainer.copy().len(), run.trainer.ranks.len()), (2, 4));
            let stop = run.stop.clone();
            run.reports.add(Cutter { here: at, at: 1, cut: Cut::Kill, stop });
            run.execute().expect_err("is cut");
            drop(run);
            let mut resumed = open(&config, FolderMode::Resume, devices, more);
            let strategy = &resumed.trainer.first().replica.strategy;
            assert_eq!(strategy.micro_batch, micro_batch, "{name}");
            resumed.execute().expect("goes on");
            assert_near(&resumed, &whole, name);
        }
    }
}

/// The warnings that the run of `config` has told.
fn warnings(config: &Path) -> Vec<String> {
    let metrics = config.with_file_name("tiny").join("metrics.jsonl");
    let text = std::fs::read_to_string(metrics).expect("is written");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let warnings = events.filter(|event| event["event"] == "warning");
    warnings.map(|event| event["message"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn batch_norm_over_each_device_is_said_to_change_with_the_number_of_devices() {
    const LOCAL: &str = "parallel.data.batch_norm=\"local\"";
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let others = "since the devices differ: the model trains with other results";
    for (place, (devices, more, said)) in [
        (
            "cpu:0",
            LOCAL,
            Some("over 2 images at once on each of 2 devices, and does over 4 images"),
        ),
        ("cpu:1,cpu:0", LOCAL, None),
        (
            "cpu:0,cpu:1,cpu:2,cpu:3",
            LOCAL,
            Some("and does over 1 image at once on each of 4 devices"),
        ),
        // Nothing is normalised over images.
        ("cpu:0", "model.densenet.norm=\"group\"", None),
    ]
    .into_iter()
    .enumerate()
    {
        let home = folder.path().join(place.to_string());
        std::fs::create_dir(&home).expect("is made");
        let config = support::write_config(&home, &data);
        let open = |mode, devices: &str| {
            let names: Vec<String> = devices.split(',').map(|name| format!("{name:?}")).collect();
            let devices = format!("device.use=[{}]", names.join(", "));
            open_with(&config, mode, &[&devices, LOCAL, more]).expect("opens")
        };
        let mut run = open(FolderMode::New, "cpu:0,cpu:1");
        let stop = run.stop.clone();
        run.reports.add(Cutter { here: saved_inside, at: 1, cut: Cut::Kill, stop });
        run.execute().expect_err("is cut");
        drop(run);
        drop(open(FolderMode::Resume, devices));
        let told = warnings(&config);
        let told: Vec<&String> = told.iter().filter(|told| told.contains(others)).collect();
        match said {
            Some(said) => assert!(told.len() == 1 && told[0].contains(said), "{devices}: {told:?}"),
            None => assert!(told.is_empty(), "{devices}: {told:?}"),
        }
    }
}

#[test]
fn the_resolved_configuration_names_every_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    let run = open_on(&config, FolderMode::New, 2, 4);
    let written = run.plan.to_config().device.device;
    assert_eq!(written, DeviceUse::Several(vec!["cpu:0".to_owned(), "cpu:1".to_owned()]));
}
