//! Labels that are not known, and metrics that are not defined for it.

use super::*;

/// The table with these labels of training and validation images.
fn with_labels(labels: impl Fn(usize) -> &'static str) -> Experiment {
    let experiment = Experiment::new();
    let row = |number: usize| {
        let list = if number < 6 { "train" } else { "valid" };
        format!("images/{number}.png,p{number},{list},{}", labels(number))
    };
    experiment.write_rows(&(0..10).map(row).collect::<Vec<_>>());
    experiment
}

#[test]
fn a_head_without_a_known_training_label_is_refused() {
    let experiment = with_labels(|number| if number < 6 { "," } else { "1,0" });
    insta::assert_snapshot!(experiment.refused(3, &[]));
    assert!(!experiment.path("runs").exists());
}

#[test]
fn labels_with_one_class_and_heads_without_labels_are_said_at_the_start() {
    let one_class = with_labels(|number| if number % 2 == 0 { "1,0" } else { "1,1" });
    insta::assert_snapshot!(one_class.trained(&[]).warnings());
    let unknown = with_labels(|number| match number {
        6.. => ",",
        number if number % 2 == 0 => "1,0",
        _ => "0,1",
    });
    insta::assert_snapshot!(unknown.trained(&[]).warnings());
}

#[test]
fn a_metric_that_is_undefined_does_not_end_training_and_is_said_once() {
    let experiment = with_labels(|number| match number {
        6.. => "1,0",
        number if number % 2 == 0 => "1,0",
        _ => "0,1",
    });
    let stop = "train.early_stopping={metric=\"val/findings/auroc\",patience=1}";
    let plateau = "train.schedule={plateau={metric=\"val/findings/auroc\",patience=0}}";
    let set = ["--set", stop, "--set", plateau, "--set", "train.epochs=4"];
    let told = experiment.trained(&set);
    insta::assert_snapshot!(told.warnings());
    let epochs = experiment.events("epoch");
    assert_eq!(epochs.len(), 4, "patience is of epochs in which the metric is defined");
    let rates: Vec<&Value> = epochs.iter().map(|epoch| &epoch["learning_rate"]).collect();
    assert!(rates.iter().all(|rate| **rate == 0.01), "{rates:?}");
    assert_eq!(experiment.events("early_stopped"), [Value::Null; 0]);
    let undefined = experiment.events("warning").into_iter().filter(|event| {
        event["message"].as_str().is_some_and(|message| message.contains("is undefined in"))
    });
    assert_eq!(undefined.count(), 1, "it is known before the first epoch, and said then");
}
