//! A first try of a configuration: one epoch, a small batch, nothing else changed.

use trainer::choice::names_of;
use trainer::optim::ScheduleConfig;

use crate::resolved::committed;
use crate::{BASE, resolve};

/// Every schedule with its defaults, and some with settings for long trainings.
fn schedules() -> Vec<String> {
    let settings = [
        "{ linear = { warmup_epochs = 1 } }",
        "{ cosine = { warmup_epochs = 5 } }",
        "{ step = { every_epochs = 30 } }",
    ];
    names_of::<ScheduleConfig>().into_iter().chain(settings.map(str::to_owned)).collect()
}

#[test]
fn every_configuration_can_be_tried_for_one_epoch_in_batches_of_two() {
    let base = BASE.replace("patience = 5", "patience = 5\nstart_epoch = 3");
    for (name, text) in committed().into_iter().chain([("base".to_owned(), base)]) {
        for tried in [&["epochs=1"][..], &["batch_size=2"], &["epochs=1", "batch_size=2"]] {
            let schedules = schedules().into_iter().map(|one| Some(format!("schedule={one}")));
            for schedule in std::iter::once(None).chain(schedules) {
                let set = tried.iter().map(|one| (*one).to_owned()).chain(schedule);
                let set: Vec<String> = set.map(|one| format!("train.{one}")).collect();
                resolve(&text, &set).unwrap_or_else(|error| panic!("{name} {set:?}: {error}"));
            }
        }
    }
}

#[test]
fn what_an_epoch_is_too_short_for_is_warned_of_and_what_it_is_not_is_not() {
    let late = BASE.replace("patience = 5", "patience = 5\nstart_epoch = 3");
    let warnings = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|one| (*one).to_owned()).collect();
        resolve(&late, &set).unwrap().warnings()
    };
    assert_eq!(warnings(&[]), Vec::<String>::new());
    assert_eq!(warnings(&["train.epochs=3"]), Vec::<String>::new());
    insta::assert_snapshot!(warnings(&["train.epochs=1"]).join("\n"), @r"
    the training of 1 epoch is all warm-up (`warmup_epochs = 1` under [train.schedule.cosine]): the learning rate rises to its full value at the last step and never falls
    early stopping never ends this training: it begins in epoch 3 (`start_epoch` under [train.early_stopping]), and there is no more than 1 epoch
    ");
    let shorter = warnings(&["train.epochs=2", "train.schedule.linear.warmup_epochs=2.5"]);
    insta::assert_snapshot!(shorter.join("\n"), @r"
    the training of 2 epochs is all warm-up (`warmup_epochs = 2.5` under [train.schedule.linear]): the learning rate rises to its full value at the last step and never falls
    early stopping never ends this training: it begins in epoch 3 (`start_epoch` under [train.early_stopping]), and there is no more than 2 epochs
    ");
}

#[test]
fn a_warm_up_that_is_longer_than_the_training_stays_as_written() {
    let set = ["train.epochs=1", "train.schedule.cosine.warmup_epochs=5"].map(str::to_owned);
    let text = resolve(BASE, &set).unwrap().to_toml().unwrap();
    assert!(text.contains("warmup_epochs = 5.0"), "{text}");
}
