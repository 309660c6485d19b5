//! Labels on offer and labels that are not, of one data set and of several.

use super::*;
use crate::data::config::{DataConfig, UncertainPolicy};
use crate::data::layout::FINDINGS;
use crate::data::{check_labels, check_layouts};

fn config(uncertain: &str) -> DataConfig {
    let text =
        format!("image = {{ size = [32, 32] }}\n[chexpert]\nroot = 'x'\nuncertain = {uncertain}");
    toml::from_str(&text).expect("reads")
}

fn check(task: &str, labels: &[&str]) -> Result<(), Fault> {
    let text = format!("name = 'h'\ntask = '{task}'\nlabels = {labels:?}");
    check_labels(&config("'ones'"), &[toml::from_str(&text).expect("reads")])
}

fn said(outcome: Result<(), Fault>) -> String {
    let fault = outcome.expect_err("is refused");
    format!("{}: {}\n{}", fault.key, fault.message, fault.help.unwrap_or_default())
}

#[test]
fn every_task_takes_what_is_offered_to_it() {
    assert_eq!(check("multilabel", &FINDINGS), Ok(()));
    for label in ["Female", "Male", "Frontal", "Edema"] {
        assert_eq!(check("binary", &[label]), Ok(()));
    }
    for classes in [&["PA", "AP", "Lateral"][..], &["Frontal", "Lateral"], &["Female", "Male"]] {
        assert_eq!(check("multiclass", classes), Ok(()));
    }
    assert_eq!(check("multiclass", &["Lateral", "PA"]), Ok(()));
    assert_eq!(check("regression", &["Age"]), Ok(()));
}

#[test]
fn wrong_labels_are_named_with_what_to_write_instead() {
    insta::assert_snapshot!(said(check("multilabel", &["Edema", "Pneumotorax"])), @r#"
    heads[0].labels[1]: the data have no label `Pneumotorax`
    did you mean `Pneumothorax`? the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
    "#);
    insta::assert_snapshot!(said(check("multilabel", &["Edema", "Age"])), @r#"
    heads[0].labels[1]: `Age` is a number, for a head with `task = "regression"`
    the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
    "#);
    insta::assert_snapshot!(said(check("multilabel", &["Edema", "Edema"])), @r#"
    heads[0].labels[1]: `Edema` stands twice
    remove one of the two
    "#);
    insta::assert_snapshot!(said(check("multilabel", &[])), @r#"
    heads[0].labels: a head needs a label
    the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
    "#);
    insta::assert_snapshot!(said(check("binary", &["Edema", "Fracture"])), @r#"
    heads[0].labels: a `binary` head has one label, not 2
    use `task = "multilabel"`, or one head per label
    "#);
    insta::assert_snapshot!(said(check("multiclass", &["PA", "Female"])), @r#"
    heads[0].labels: `PA`, `Female` are not classes of one kind
    a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
    "#);
    insta::assert_snapshot!(said(check("multiclass", &["PA", "Latral"])), @r#"
    heads[0].labels[1]: the data have no label `Latral`
    did you mean `Lateral`? a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
    "#);
    insta::assert_snapshot!(said(check("multiclass", &["PA"])), @r#"
    heads[0].labels: a `multiclass` head needs at least two classes
    a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
    "#);
    insta::assert_snapshot!(said(check("regression", &["Weight"])), @r#"
    heads[0].labels[0]: the data have no label `Weight`
    a `regression` head takes "Age"
    "#);
}

#[test]
fn wrong_policies_are_named_by_their_key() {
    let policies = |uncertain| {
        let config = config(uncertain);
        said(check_layouts(&config).and_then(|()| check_labels(&config, &[])))
    };
    insta::assert_snapshot!(policies("{ Edma = 'ones' }"), @r#"
    data.chexpert.uncertain.Edma: there is no finding `Edma`
    did you mean `Edema`? write a finding, or `default` for those not named; the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
    "#);
    insta::assert_snapshot!(policies("{ Edema = { smooth = [0.8, 0.5] } }"), @r#"
    data.chexpert.uncertain.Edema.smooth: a soft label cannot be drawn between 0.8 and 0.5
    write two numbers from 0 to 1, the smaller first: `smooth = [0.55, 0.85]`
    "#);
    insta::assert_snapshot!(policies("{ smooth = [0.5, 1.5] }"), @r#"
    data.chexpert.uncertain.smooth: a soft label cannot be drawn between 0.5 and 1.5
    write two numbers from 0 to 1, the smaller first: `smooth = [0.55, 0.85]`
    "#);
    let fine = "{ default = 'zeros', Edema = { smooth = [0.5, 0.8] } }";
    assert_eq!(check_labels(&config(fine), &[]), Ok(()));
}

#[test]
fn labels_without_a_policy_of_their_own_take_the_default() {
    let named = config("{ default = 'zeros', Edema = 'ones' }").layout.chexpert.expect("is given");
    assert_eq!(named.uncertain.policy("Edema"), UncertainPolicy::Ones);
    assert_eq!(named.uncertain.policy("Fracture"), UncertainPolicy::Zeros);
    let bare = config("{ Edema = 'ones' }").layout.chexpert.expect("is given");
    assert_eq!(bare.uncertain.policy("Fracture"), UncertainPolicy::Ignore);
}

fn head(name: &str, task: &str, labels: &[&str]) -> HeadConfig {
    let text = format!("name = {name:?}\ntask = {task:?}\nlabels = {labels:?}");
    toml::from_str(&text).expect("reads")
}

/// CheXpert's and the NIH's labels together, with more keys for each source.
fn sources(chexpert: &str, nih: &str) -> DataConfig {
    let text = format!(
        "image = {{ size = [32, 32] }}\n[[sources]]\n{chexpert}\nchexpert = {{ root = 'x' }}\n\
         [[sources]]\n{nih}\nnih = {{ root = 'y' }}"
    );
    toml::from_str(&text).expect("reads")
}

#[test]
fn heads_may_have_labels_of_several_sources() {
    let heads = [
        head("findings", "multilabel", &["Pleural Effusion", "Mass", "Edema"]),
        head("view", "multiclass", &["Lateral", "PA"]),
        head("side", "multiclass", &["Frontal", "Lateral"]),
        head("woman", "binary", &["Female"]),
    ];
    let config = sources("", "labels = { 'Pleural Effusion' = 'Effusion' }");
    let bound = crate::data::source::sources(&config, &heads).expect("binds");
    assert_eq!([&bound[0].name, &bound[1].name], ["sources[0].chexpert", "sources[1].nih"]);
    let place = |source: usize, label: &str| {
        let columns = &bound[source].vocabulary.columns;
        columns.iter().position(|column| column.label == label).expect("is offered")
    };
    let finding = |source, label| Some(Origin::Column(place(source, label)));
    let each = |origins: [Option<Origin>; 3]| Some(HeadSource::Each(origins.into()));
    let (effusion, edema) = (finding(0, "Pleural Effusion"), finding(0, "Edema"));
    assert_eq!(bound[0].heads[0], each([effusion, None, edema]));
    let all = ["Effusion", "Mass", "Edema"].map(|label| finding(1, label));
    assert_eq!(bound[1].heads[0], each(all));
    let classes = |source, label, classes: &[Option<usize>]| {
        Some(HeadSource::OneOf { column: place(source, label), classes: classes.to_vec() })
    };
    assert_eq!(bound[0].heads[1], classes(0, "view", &[Some(1), None, Some(0)]));
    assert_eq!(bound[1].heads[1], classes(1, "view", &[Some(1), None]));
    assert_eq!(bound[0].heads[2], classes(0, "side", &[Some(0), Some(1)]));
    assert_eq!(bound[1].heads[2], None);
    let woman = Origin::IsClass { column: place(1, "sex"), class: 0 };
    assert_eq!(bound[1].heads[3], Some(HeadSource::Each(vec![Some(woman)])));
}

#[test]
fn a_source_supplies_only_the_heads_that_it_names() {
    let heads = [head("a", "multilabel", &["Edema"]), head("b", "multilabel", &["Edema", "Mass"])];
    let config = sources("heads = ['a']", "heads = ['b']");
    let bound = crate::data::source::sources(&config, &heads).expect("binds");
    let supplied = |source: usize| bound[source].heads.iter().map(Option::is_some);
    assert_eq!(supplied(0).collect::<Vec<_>>(), [true, false]);
    assert_eq!(supplied(1).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn wrong_bindings_of_sources_are_named() {
    let heads = [head("a", "multilabel", &["Edema"]), head("b", "multiclass", &["PA", "AP"])];
    let fault = |chexpert: &str, nih: &str, heads: &[HeadConfig]| {
        said(check_labels(&sources(chexpert, nih), heads))
    };
    insta::assert_snapshot!(fault("heads = ['a', 'c']", "", &heads), @r#"
    data.sources[0].heads[1]: there is no head `c`
    the heads are: a, b
    "#);
    insta::assert_snapshot!(fault("", "labels = { Oedema = 'Edema' }", &heads), @r#"
    data.sources[1].labels.Oedema: no head that this source supplies has a label `Oedema`
    did you mean `Edema`? on the left stands the head's label, on the right what this data set calls it
    "#);
    insta::assert_snapshot!(fault("", "labels = { Edema = 'Oedema' }", &heads), @r#"
    data.sources[1].labels.Edema: this data set has no label `Oedema`
    did you mean `Edema`? the findings are: No Finding, Atelectasis, Cardiomegaly, Effusion, Infiltration, Mass, Nodule, Pneumonia, Pneumothorax, Consolidation, Edema, Emphysema, Fibrosis, Pleural_Thickening, Hernia
    "#);
    insta::assert_snapshot!(fault("", "labels = { PA = 'AP' }", &heads), @r#"
    data.sources[1].labels.PA: `AP` would be two classes of one head
    rename one label to it at most
    "#);
    insta::assert_snapshot!(fault("heads = ['a']", "heads = ['a']", &heads), @r"
    heads[1].labels: no source is for the head `b`
    add it to `heads` of one of the `[[data.sources]]`
    ");
    let fracture = [head("a", "multilabel", &["Edema", "Fracture"])];
    insta::assert_snapshot!(fault("heads = []", "", &fracture), @r"
    heads[0].labels[1]: the data have no label `Fracture`
    the findings are: No Finding, Atelectasis, Cardiomegaly, Effusion, Infiltration, Mass, Nodule, Pneumonia, Pneumothorax, Consolidation, Edema, Emphysema, Fibrosis, Pleural_Thickening, Hernia
    ");
    insta::assert_snapshot!(fault("", "", &[head("a", "multilabel", &["Fracture"])]), @r"
    data.sources[1]: this data set has no label of any head
    remove the source, or say under `labels` what it calls the heads' labels
    ");
    let heads = [heads[0].clone(), head("c", "multilabel", &["Fracture"])];
    insta::assert_snapshot!(fault("", "heads = ['a', 'c']", &heads), @r#"
    data.sources[1].heads[1]: this data set has no label of the head `c`
    take the head out of `heads`, or say under `labels` what this data set calls its labels
    "#);
    insta::assert_snapshot!(fault("", "", &[head("a", "multilabel", &["Effusio"])]), @r"
    heads[0].labels[0]: the data have no label `Effusio`
    did you mean `Effusion`? the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices, Effusion, Infiltration, Mass, Nodule, Emphysema, Fibrosis, Pleural_Thickening, Hernia
    ");
    insta::assert_snapshot!(fault("", "", &[head("a", "multiclass", &["PA", "Female"])]), @r#"
    heads[0].labels: `PA`, `Female` are not classes of one kind
    a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"; or "PA", "AP"
    "#);
}

/// Arrays with targets for these heads.
fn arrays(sources: &str, targets: &str) -> DataConfig {
    let text = match sources {
        "" => format!("[arrays]\nimages = 'x.npy'\ntargets = {{ {targets} }}"),
        nih => format!(
            "[[sources]]\nnih = {{ root = 'y' }}\n{nih}\n[[sources]]\n\
             arrays = {{ images = 'x.npy', targets = {{ {targets} }} }}"
        ),
    };
    toml::from_str(&format!("image = {{ size = [32, 32] }}\n{text}")).expect("reads")
}

#[test]
fn a_head_without_a_target_is_told_which_targets_there_are() {
    let heads = [head("pressure", "regression", &["p"]), head("kind", "multiclass", &["a", "b"])];
    let said = |sources, targets| said(check_labels(&arrays(sources, targets), &heads));
    insta::assert_snapshot!(said("", "presure = 'p.npy', kind = 'k.npy'"), @r#"
    data.arrays.targets: there is no target for the head `pressure`
    did you mean to call `presure` `pressure`? a target has the name of its head; the targets are: kind, presure
    "#);
    insta::assert_snapshot!(said("", "kind = 'k.npy'"), @r#"
    data.arrays.targets: there is no target for the head `pressure`
    a target has the name of its head; the targets are: kind
    "#);
    insta::assert_snapshot!(said("", ""), @r#"
    data.arrays.targets: there is no target for the head `pressure`
    a target has the name of its head; there are no targets
    "#);
    insta::assert_snapshot!(said("heads = ['kind']", "kind = 'k.npy'"), @r#"
    data.sources[1].arrays.targets: there is no target for the head `pressure`
    a target has the name of its head; the targets are: kind
    "#);
    // A target that no head is called like does no harm beside those that are needed.
    let more = "pressure = 'p.npy', kind = 'k.npy', volume = 'v.npy'";
    assert_eq!(check_labels(&arrays("", more), &heads), Ok(()));
}

#[test]
fn arrays_have_no_names_that_labels_could_be_renamed_to() {
    let heads = [head("kind", "multiclass", &["a", "b"])];
    let text = "image = { size = [32, 32] }\n[[sources]]\nlabels = { a = 'first' }\n\
                arrays = { images = 'x.npy', targets = { kind = 'k.npy' } }";
    insta::assert_snapshot!(said(check_labels(&toml::from_str(text).expect("reads"), &heads)), @r#"
    data.sources[0].labels.a: arrays have no names of labels
    remove it: the columns of a target are the labels of its head, in their order
    "#);
}
