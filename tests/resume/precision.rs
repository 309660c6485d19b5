//! Runs in 16 bits: steps that overflow leave nothing behind, and resuming is exact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use trainer::optim::LossScale;
use trainer::run::RunError;
use trainer::train::TrainError;

use super::*;

fn write(folder: &Path, data: &Path, precision: &str) -> std::path::PathBuf {
    let path = support::write_config_with(
        folder,
        data,
        &format!("[memory]\nprecision = \"{precision}\"\n"),
    );
    // The default is 0 in fp16.
    let text = std::fs::read_to_string(&path)
        .expect("is there")
        .replace("lr = 3e-3", "lr = 3e-3\neps = 1e-4");
    std::fs::write(&path, text).expect("is written");
    path
}

/// Everything that a step may change, bit for bit.
fn state(run: &Run) -> BTreeMap<String, Vec<u8>> {
    let (chain, updater) =
        (&run.trainer.ranks[0].replica.inference.chain, &run.trainer.ranks[0].updater);
    let mut state = BTreeMap::new();
    for parameter in chain.parameters() {
        state.insert(parameter.name, parameter.value.into_data().bytes().to_vec());
    }
    let optimizer = updater.optimizer.state().expect("reads");
    let average = updater.ema.as_ref().expect("there is one").state().expect("reads");
    state.extend(optimizer.scalars.into_iter().map(|(k, v)| (k, v.to_le_bytes().to_vec())));
    for (kind, tensors) in [("optimizer", optimizer.tensors), ("average", average)] {
        let named = |(name, data): (String, burn::tensor::TensorData)| {
            (format!("{kind}/{name}"), data.bytes().to_vec())
        };
        state.extend(tensors.into_iter().map(named));
    }
    state
}

#[test]
fn a_step_that_overflows_leaves_everything_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write(folder.path(), &folder.path().join("data"), "fp16");
    let mut run = open(&config, FolderMode::New);
    let batches: Vec<_> =
        run.train_loader.epoch(1, 0).collect::<std::result::Result<_, _>>().expect("reads");
    let take = |run: &mut Run, batch: usize, step: usize| {
        let batch = &batches[batch];
        run.trainer.step(batch.into(), &batch.targets, step, 1e-3)
    };
    take(&mut run, 0, 0).expect("the first scale is not too large for this network");
    let before = state(&run);
    let scale = 2f64.powi(40);
    run.trainer.ranks[0].updater.loss_scale = Some(LossScale::starting_at(scale));
    let refused = take(&mut run, 1, 1).expect_err("overflows");
    assert!(matches!(refused, TrainError::Skipped { scale: now, .. } if now == scale / 2.0));
    assert_eq!(
        refused.to_string(),
        "the gradient is not finite in fp16; the loss is scaled by 549755813888 from now on"
    );
    assert!(state(&run) == before, "a step that is left out changes nothing");
    let mut skipped = 1;
    while let Err(error) = take(&mut run, 1, 1) {
        assert!(matches!(error, TrainError::Skipped { .. }), "{error}");
        assert!(state(&run) == before);
        skipped += 1;
    }
    let left = run.trainer.ranks[0].updater.loss_scale.expect("there is one");
    assert_eq!((left.skipped(), left.scale()), (skipped, scale / 2f64.powi(skipped as i32)));
    let after = state(&run);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let unmoved: Vec<_> = before.iter().filter(|(name, value)| after[*name] == **value).collect();
    assert!(unmoved.is_empty(), "the step that is taken moves everything: {unmoved:?}");
    // Another scale would have given the same step but for what is too small for fp16.
    assert!(left.scale() < 2f64.powi(30));
}

#[test]
fn losses_that_no_scale_makes_finite_end_the_run_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write(folder.path(), &folder.path().join("data"), "fp16");
    let mut run = open(&config, FolderMode::New);
    let batch = run.train_loader.epoch(1, 0).next().expect("a batch").expect("reads");
    let huge = trainer::data::Batch {
        images: batch.images.iter().map(|image| vec![1e6; image.len()]).collect(),
        ..batch
    };
    let before = state(&run);
    let error =
        (0..).find_map(|_| match run.trainer.step((&huge).into(), &huge.targets, 0, 1e-3) {
            Err(TrainError::Skipped { .. }) => None,
            other => Some(other.expect_err("is not finite")),
        });
    let error = error.expect("it ends").to_string();
    assert!(error.contains("37 steps") && error.contains("precision = \"bf16\""), "{error}");
    assert!(state(&run) == before);
}

/// Steps that were left out, and how many each epoch tells of.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<(Vec<String>, Vec<usize>)>>);

impl Report for Told {
    fn event(&mut self, event: &Event) -> std::result::Result<(), ReportError> {
        let mut told = self.0.lock().expect("no panic");
        match event {
            Event::SkippedStep { reason, .. } => told.0.push(reason.clone()),
            Event::Epoch(epoch) => told.1.push(epoch.skipped_steps),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_resumed_run_goes_on_with_the_scale_and_counts_of_the_one_that_never_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let start = |name: &str, precision: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("is made");
        let config = write(&place, &data, precision);
        let mut run = open(&config, FolderMode::New);
        // As many halvings away from what fits that the run is cut among them.
        run.trainer.ranks[0].updater.loss_scale =
            run.trainer.ranks[0].updater.loss_scale.map(|_| LossScale::starting_at(2f64.powi(26)));
        (place, config, run)
    };
    for precision in ["fp16", "half", "bf16"] {
        let (place, _, mut run) = start(&format!("{precision}-whole"), precision);
        let told = Told::default();
        run.reports.add(told.clone());
        run.execute().expect("trains");
        let expected = Result::of(&place.join("tiny"));
        let (reasons, counts) = told.0.lock().expect("no panic").clone();
        let scaled = precision == "fp16";
        let skipped = run.trainer.ranks[0].updater.loss_scale.map_or(0, |scale| scale.skipped());
        assert_eq!(counts.iter().sum::<usize>(), reasons.len());
        assert_eq!((reasons.len() as u64, skipped > 1), (skipped, scaled), "{reasons:?}");
        for cut in 1..=2 {
            let (place, config, mut run) = start(&format!("{precision}-{cut}"), precision);
            let (here, stop) = (saved_inside as fn(&Event) -> bool, run.stop.clone());
            run.reports.add(Cutter { here, at: cut, cut: Cut::Kill, stop });
            assert!(matches!(run.execute(), Err(RunError::Report(_))));
            drop(run);
            open(&config, FolderMode::Resume).execute().expect("goes on");
            Result::of(&place.join("tiny")).assert_equals(&expected, precision);
        }
    }
}
