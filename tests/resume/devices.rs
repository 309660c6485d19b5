//! A run goes on on another number of devices as if the number had not changed. The devices are logical
//! ones of the CPU.

use std::collections::BTreeMap;

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
    let rank = run.trainer.first();
    let parameters = rank.replica.inference.chain.parameters().into_iter();
    let weights = parameters.map(|p| (p.name, p.value.into_data().iter().collect()));
    let average = rank.updater.ema.as_ref().expect("there is one").state().expect("reads");
    let average = average.into_iter();
    weights
        .chain(average.map(|(name, data)| (format!("average/{name}"), data.iter().collect())))
        .collect()
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

#[test]
fn the_resolved_configuration_names_every_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    let run = open_on(&config, FolderMode::New, 2, 4);
    let written = run.plan.to_config().device.device;
    assert_eq!(written, DeviceUse::Several(vec!["cpu:0".to_owned(), "cpu:1".to_owned()]));
}
