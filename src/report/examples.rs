//! Events that the tests of several formats share.

use std::collections::BTreeMap;

use super::*;
use crate::data::BadImage;
use crate::model::weights::{Adapted, Initial, Mismatch};

fn values(pairs: &[(&str, Option<f64>)]) -> Values {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn findings(loss: f64, auroc: f64, edema: Option<f64>) -> Values {
    values(&[
        ("loss", Some(loss)),
        ("findings/loss", Some(loss / 2.0)),
        ("findings/auroc", Some(auroc)),
        ("findings/auroc/Cardiomegaly", Some(auroc)),
        ("findings/auroc/Edema", edema),
        ("view/accuracy", Some(0.9375)),
    ])
}

pub fn start() -> Event {
    let head = |name: &str, labels: &[&str]| HeadLabels {
        name: name.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let edema = [("Edema".to_owned(), LabelCount { positives: 12.0, known: 900.0 })];
    Event::Start(Start {
        parallel: None,
        pipeline: None,
        name: "xray".to_owned(),
        device: "CPU".to_owned(),
        parameters: 6_956_298,
        train_images: 1000,
        validation_images: 100,
        epochs: 20,
        steps_per_epoch: 140,
        resumed_from: None,
        memory: None,
        heads: vec![head("view", &["PA", "AP"]), head("findings", &["Edema", "Cardiomegaly"])],
        watched: None,
        version: "0.1.0".to_owned(),
        data: None,
        labels: [("train".to_owned(), [("findings".to_owned(), edema.into())].into())].into(),
        may_stop_early: true,
        config: "[run]\nname = \"xray\"\n".to_owned(),
    })
}

pub fn initialized() -> Event {
    let name = |part: &str| format!("classifier.{part}");
    Event::Initialized(Initial {
        file: "densenet121.pth".into(),
        tensors: 604,
        adapted: vec![Adapted { name: "features.conv0.weight".to_owned(), from: 3, to: 1 }],
        torchxrayvision: false,
        by_label: Vec::new(),
        unknown_labels: Vec::new(),
        unused: vec![name("bias"), name("weight")],
        missing: vec![name("view.weight"), name("view.bias")],
        mismatched: vec![Mismatch {
            at: 0,
            name: name("findings.weight"),
            found: vec![14, 1024],
            wanted: vec![5, 1024],
        }],
    })
}

pub fn begin() -> Event {
    let phase = Phase::Train;
    Event::EpochBegin(EpochBegin { epoch: 3, first_step_in_epoch: 0, steps: 140, phase })
}

/// `share` of the training pass of epoch 3.
pub fn progress(share: f64) -> Event {
    Event::Progress(Progress {
        phase: Phase::Train,
        done_images: (share * 1000.0).round() as usize,
        total_images: 1000,
        loss: 0.34567,
        images_per_second: 12.5,
        devices: 1,
        waited: None,
    })
}

pub fn epoch() -> Event {
    epoch_at(3, 420)
}

pub fn epoch_at(epoch: usize, step: usize) -> Event {
    let memory = Memory { live: Some(1 << 20), peak: Some(3 << 30), ..Memory::default() };
    Event::Epoch(Epoch {
        epoch,
        step,
        train: values(&[("loss", Some(0.3125)), ("findings/loss", Some(0.25))]),
        val: findings(0.298, 0.871, None),
        learning_rate: 3e-4,
        seconds: 62.6,
        images_per_second: 412.25,
        devices: Vec::new(),
        memory,
        best: true,
        skipped_steps: 0,
        loss_scale: None,
        watched: Some(Watched {
            metric: "val/findings/auroc".to_owned(),
            value: Some(0.871),
            best: Some(0.871),
            best_epoch: Some(epoch),
        }),
        undefined: BTreeMap::from([(
            "findings/auroc/Edema".to_owned(),
            "one class only".to_owned(),
        )]),
    })
}

pub fn learning_rate(learning_rate: f64) -> Event {
    Event::Epoch(Epoch { learning_rate, ..Epoch::default() })
}

pub fn step() -> Event {
    step_at(450)
}

pub fn step_at(step: usize) -> Event {
    Event::Step { epoch: 4, step, loss: Some(0.3125), learning_rate: 3e-4 }
}

pub fn skipped_step() -> Event {
    let reason = "the gradient is not finite".to_owned();
    Event::SkippedStep { epoch: 4, step: 431, reason }
}

pub fn bad_image(number: u64) -> BadImage {
    BadImage {
        path: format!("data/patient{number}.png").into(),
        table: "data/train.csv".into(),
        line: number + 1,
        reason: "not a PNG, \"JPEG\" or other image".to_owned(),
    }
}

pub fn end() -> Event {
    let best = EpochValues {
        epoch: 7,
        train: values(&[("loss", Some(0.3))]),
        val: findings(0.281, 0.8941, None),
    };
    let last = EpochValues {
        epoch: 12,
        train: values(&[("loss", Some(0.2))]),
        val: findings(0.3412, 0.8817, Some(0.75)),
    };
    Event::End(End {
        epochs: 12,
        step: 1680,
        seconds: 3723.4,
        reason: EndReason::EarlyStopping,
        best: Some(Best { metric: "val/findings/auroc".to_owned(), value: 0.8941, values: best }),
        last,
        undefined: BTreeMap::from([(
            "findings/auroc/Edema".to_owned(),
            "one class only".to_owned(),
        )]),
        weights: Some("checkpoints/xray/best/weights.safetensors".into()),
        next: vec![(
            "resume".to_owned(),
            "trainer run checkpoints/xray/config.toml --resume".to_owned(),
        )],
    })
}

pub fn all_but_epoch() -> Vec<Event> {
    let folder = || PathBuf::from("checkpoints/xray/last");
    vec![
        start(),
        initialized(),
        Event::DamagedState { folder: folder(), reason: "weights.safetensors differs".to_owned() },
        Event::Resumed { folder: folder(), epoch: 3, step: 420 },
        Event::Saved { folder: folder(), epoch: 3, step: 420, reason: SaveReason::EpochEnd },
        Event::Saved { folder: folder(), epoch: 4, step: 500, reason: SaveReason::Interval },
        step(),
        skipped_step(),
        Event::SkippedImages { images: vec![bad_image(1), bad_image(2)] },
        Event::OutOfMemory(OutOfMemory {
            epoch: 4,
            step: 431,
            requested: Some(1 << 30),
            memory: Memory { reserved: Some(79 << 30), ..Memory::default() },
            advice: "set memory.checkpointing = \"sqrt\"".to_owned(),
        }),
        Event::Warning { message: "the disk is nearly full".to_owned() },
        Event::EarlyStopped {
            epoch: 12,
            metric: "val/findings/auroc".to_owned(),
            best: Some(0.8941),
            best_epoch: Some(7),
            patience: 5,
        },
        Event::Interrupted { signal: "SIGINT".to_owned() },
        Event::Saved { folder: folder(), epoch: 4, step: 510, reason: SaveReason::Interrupted },
        end(),
    ]
}
