//! The labels that CheXpert's layout offers, and which of them a head may use. No file is read.

use super::config::{DataConfig, Uncertain, UncertainPolicy};
use crate::model::{HeadConfig, Task};

/// CheXpert's label columns, in its order (Irvin et al. 2019, arXiv:1901.07031).
pub const FINDINGS: [&str; 14] = [
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
];

const AGE: &str = "Age";
/// The key of `uncertain` that stands for all labels not named.
const DEFAULT: &str = "default";

/// A group of classes of which each image has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    View,
    Side,
    Sex,
}

impl Family {
    const ALL: [Self; 3] = [Self::View, Self::Side, Self::Sex];

    pub fn classes(self) -> &'static [&'static str] {
        match self {
            Self::View => &["PA", "AP", "Lateral"],
            Self::Side => &["Frontal", "Lateral"],
            Self::Sex => &["Female", "Male"],
        }
    }

    /// The columns that tell the class.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::View => &["Frontal/Lateral", "AP/PA"],
            Self::Side => &["Frontal/Lateral"],
            Self::Sex => &["Sex"],
        }
    }
}

/// Where one label of a head comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A column of [`FINDINGS`].
    Finding(usize),
    /// 1 for this class of [`Family::Sex`], 0 for the other.
    IsSex(usize),
    Age,
}

/// Where the labels of a head come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeadSource {
    Each(Vec<Source>),
    /// Class c of the head is class `classes[c]` of the family.
    OneOf {
        family: Family,
        classes: Vec<usize>,
    },
}

impl HeadSource {
    /// Labels per image.
    pub fn width(&self) -> usize {
        match self {
            Self::Each(sources) => sources.len(),
            Self::OneOf { .. } => 1,
        }
    }

    /// The columns it needs.
    pub fn columns(&self) -> Vec<&'static str> {
        match self {
            Self::OneOf { family, .. } => family.columns().to_vec(),
            Self::Each(sources) => sources
                .iter()
                .map(|source| match source {
                    Source::Finding(finding) => FINDINGS[*finding],
                    Source::IsSex(_) => "Sex",
                    Source::Age => AGE,
                })
                .collect(),
        }
    }
}

/// Where in the configuration a fault stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultPlace {
    /// `heads[head].labels` as a whole.
    Head {
        /// The position of the head.
        head: usize,
    },
    /// `heads[head].labels[label]`.
    Label {
        /// The position of the head.
        head: usize,
        /// The position of the label.
        label: usize,
    },
    /// `data.<layout>.uncertain`, or its entry of that name.
    Uncertain {
        /// The entry; `None` where one policy stands for all labels.
        key: Option<String>,
    },
}

/// A label that the data does not offer, or not to that head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFault {
    /// What it is about.
    pub place: FaultPlace,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// Checks the heads' labels and the policies for uncertain ones against what the layout offers:
/// `multilabel` and `binary` heads the findings (`binary` also `Female` and `Male`), `multiclass`
/// heads classes of one kind (PA, AP, Lateral; Frontal, Lateral; Female, Male), `regression` heads
/// `Age`.
///
/// # Errors
/// The first fault.
pub fn check_labels(config: &DataConfig, heads: &[HeadConfig]) -> Result<(), LabelFault> {
    sources(heads)?;
    let chexpert = config.chexpert.as_ref().map(|layout| &layout.uncertain);
    let phantom = config.phantom.as_ref().map(|layout| &layout.uncertain);
    chexpert.into_iter().chain(phantom).try_for_each(check_uncertain)
}

/// Where every head's labels come from.
pub(super) fn sources(heads: &[HeadConfig]) -> Result<Vec<HeadSource>, LabelFault> {
    heads.iter().enumerate().map(|(head, config)| source(head, config)).collect()
}

fn source(head: usize, config: &HeadConfig) -> Result<HeadSource, LabelFault> {
    let whole = |message: String, help: &str| LabelFault {
        place: FaultPlace::Head { head },
        message,
        help: Some(help.to_owned()),
    };
    for (label, name) in config.labels.iter().enumerate() {
        if config.labels[..label].contains(name) {
            return Err(LabelFault {
                place: FaultPlace::Label { head, label },
                message: format!("`{name}` stands twice"),
                help: Some("remove one of the two".to_owned()),
            });
        }
    }
    match (config.task, config.labels.len()) {
        (_, 0) => return Err(whole("a head needs a label".to_owned(), offer(config.task))),
        (Task::Binary, count @ 2..) => {
            let message = format!("a `binary` head has one label, not {count}");
            return Err(whole(message, "use `task = \"multilabel\"`, or one head per label"));
        }
        (Task::Multiclass, 1) => {
            let message = "a `multiclass` head needs at least two classes".to_owned();
            return Err(whole(message, offer(config.task)));
        }
        _ => {}
    }
    if config.task == Task::Multiclass {
        return classes(head, &config.labels);
    }
    let each = config.labels.iter().enumerate().map(|(label, name)| {
        single(config.task, name).ok_or_else(|| not_offered(head, label, name, config.task))
    });
    each.collect::<Result<_, _>>().map(HeadSource::Each)
}

fn single(task: Task, name: &str) -> Option<Source> {
    let place = |names: &[&str]| names.iter().position(|known| *known == name);
    match task {
        Task::Regression => (name == AGE).then_some(Source::Age),
        Task::Multilabel => place(&FINDINGS).map(Source::Finding),
        Task::Binary => place(&FINDINGS)
            .map(Source::Finding)
            .or_else(|| place(Family::Sex.classes()).map(Source::IsSex)),
        Task::Multiclass => None,
    }
}

fn classes(head: usize, names: &[String]) -> Result<HeadSource, LabelFault> {
    let place = |family: Family, name: &str| family.classes().iter().position(|c| *c == name);
    for family in Family::ALL {
        if let Some(classes) = names.iter().map(|name| place(family, name)).collect() {
            return Ok(HeadSource::OneOf { family, classes });
        }
    }
    let known = |name: &str| Family::ALL.iter().any(|family| place(*family, name).is_some());
    match names.iter().position(|name| !known(name)) {
        Some(label) => Err(not_offered(head, label, &names[label], Task::Multiclass)),
        None => Err(LabelFault {
            place: FaultPlace::Head { head },
            message: format!("`{}` are not classes of one kind", names.join("`, `")),
            help: Some(offer(Task::Multiclass).to_owned()),
        }),
    }
}

fn not_offered(head: usize, label: usize, name: &str, task: Task) -> LabelFault {
    let mut everything = FINDINGS.to_vec();
    everything.extend(Family::ALL.iter().flat_map(|family| family.classes()));
    everything.push(AGE);
    let (message, help) = if everything.contains(&name) {
        let kind = match name {
            AGE => "a number, for a head with `task = \"regression\"`",
            _ if FINDINGS.contains(&name) => {
                "a finding, for a head with `task = \"multilabel\"` or `\"binary\"`"
            }
            _ => "a class, for a head with `task = \"multiclass\"`",
        };
        (format!("`{name}` is {kind}"), offer(task).to_owned())
    } else {
        let nearest = nearest(name, &everything);
        let meant = nearest.map(|known| format!("did you mean `{known}`? "));
        let help = format!("{}{}", meant.unwrap_or_default(), offer(task));
        (format!("the data has no label `{name}`"), help)
    };
    LabelFault { place: FaultPlace::Label { head, label }, message, help: Some(help) }
}

fn offer(task: Task) -> &'static str {
    match task {
        Task::Multilabel => FINDINGS_OFFERED,
        Task::Binary => {
            "a `binary` head takes one finding (such as \"Pneumothorax\"), \"Female\" or \"Male\""
        }
        Task::Multiclass => {
            "a `multiclass` head takes classes of one kind: \"PA\", \"AP\", \"Lateral\"; or \
             \"Frontal\", \"Lateral\"; or \"Female\", \"Male\""
        }
        Task::Regression => "a `regression` head takes \"Age\"",
    }
}

const FINDINGS_OFFERED: &str = "the findings are: No Finding, Enlarged Cardiomediastinum, \
    Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, \
    Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices";

/// The known name most like `name`, if one is like it at all.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(*best)
}

fn check_uncertain(uncertain: &Uncertain) -> Result<(), LabelFault> {
    let fault = |key: Option<&String>, message: String, help: String| LabelFault {
        place: FaultPlace::Uncertain { key: key.cloned() },
        message,
        help: Some(help),
    };
    let check_policy = |key: Option<&String>, policy: &UncertainPolicy| match policy {
        UncertainPolicy::Smooth([low, high]) if !(0.0 <= *low && low <= high && *high <= 1.0) => {
            let message = format!("`smooth` is drawn from {low} to {high}");
            let help = "write two numbers from 0 to 1, the lower first, such as [0.55, 0.85]";
            Err(fault(key, message, help.to_owned()))
        }
        _ => Ok(()),
    };
    let policies = match uncertain {
        Uncertain::All(policy) => return check_policy(None, policy),
        Uncertain::PerLabel(policies) => policies,
    };
    for (key, policy) in policies {
        if key != DEFAULT && !FINDINGS.contains(&key.as_str()) {
            let mut known = FINDINGS.to_vec();
            known.push(DEFAULT);
            let meant = nearest(key, &known).map(|known| format!("did you mean `{known}`? "));
            let help = format!(
                "{}write a finding, or `default` for those not named; {FINDINGS_OFFERED}",
                meant.unwrap_or_default()
            );
            return Err(fault(Some(key), format!("there is no finding `{key}`"), help));
        }
        check_policy(Some(key), policy)?;
    }
    Ok(())
}

impl Uncertain {
    /// What a −1 of that finding becomes.
    pub(super) fn policy(&self, finding: &str) -> UncertainPolicy {
        match self {
            Self::All(policy) => *policy,
            Self::PerLabel(policies) => {
                policies.get(finding).or_else(|| policies.get(DEFAULT)).copied().unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(uncertain: &str) -> DataConfig {
        let text = format!(
            "image = {{ size = [32, 32] }}\n[chexpert]\nroot = 'x'\nuncertain = {uncertain}"
        );
        toml::from_str(&text).expect("reads")
    }

    fn check(task: &str, labels: &[&str]) -> Result<(), LabelFault> {
        let text = format!("name = 'h'\ntask = '{task}'\nlabels = {labels:?}");
        check_labels(&config("'ones'"), &[toml::from_str(&text).expect("reads")])
    }

    fn said(outcome: Result<(), LabelFault>) -> String {
        let fault = outcome.expect_err("is refused");
        format!("{:?}: {}\n{}", fault.place, fault.message, fault.help.unwrap_or_default())
    }

    #[test]
    fn every_task_takes_what_is_offered_to_it() {
        assert_eq!(check("multilabel", &FINDINGS), Ok(()));
        for label in ["Female", "Male", "Edema"] {
            assert_eq!(check("binary", &[label]), Ok(()));
        }
        for family in Family::ALL {
            assert_eq!(check("multiclass", family.classes()), Ok(()));
        }
        assert_eq!(check("multiclass", &["Lateral", "PA"]), Ok(()));
        assert_eq!(check("regression", &["Age"]), Ok(()));
    }

    #[test]
    fn wrong_labels_are_named_with_what_to_write_instead() {
        insta::assert_snapshot!(said(check("multilabel", &["Edema", "Pneumotorax"])), @r#"
        Label { head: 0, label: 1 }: the data has no label `Pneumotorax`
        did you mean `Pneumothorax`? the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(said(check("multilabel", &["Edema", "Age"])), @r#"
        Label { head: 0, label: 1 }: `Age` is a number, for a head with `task = "regression"`
        the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(said(check("multilabel", &["Edema", "Edema"])), @r#"
        Label { head: 0, label: 1 }: `Edema` stands twice
        remove one of the two
        "#);
        insta::assert_snapshot!(said(check("multilabel", &[])), @r#"
        Head { head: 0 }: a head needs a label
        the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(said(check("binary", &["Edema", "Fracture"])), @r#"
        Head { head: 0 }: a `binary` head has one label, not 2
        use `task = "multilabel"`, or one head per label
        "#);
        insta::assert_snapshot!(said(check("multiclass", &["PA", "Female"])), @r#"
        Head { head: 0 }: `PA`, `Female` are not classes of one kind
        a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
        "#);
        insta::assert_snapshot!(said(check("multiclass", &["PA", "Latral"])), @r#"
        Label { head: 0, label: 1 }: the data has no label `Latral`
        did you mean `Lateral`? a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
        "#);
        insta::assert_snapshot!(said(check("multiclass", &["PA"])), @r#"
        Head { head: 0 }: a `multiclass` head needs at least two classes
        a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
        "#);
        insta::assert_snapshot!(said(check("regression", &["Weight"])), @r#"
        Label { head: 0, label: 0 }: the data has no label `Weight`
        a `regression` head takes "Age"
        "#);
    }

    #[test]
    fn wrong_policies_are_named_by_their_key() {
        let policies = |uncertain| said(check_labels(&config(uncertain), &[]));
        insta::assert_snapshot!(policies("{ Edma = 'ones' }"), @r#"
        Uncertain { key: Some("Edma") }: there is no finding `Edma`
        did you mean `Edema`? write a finding, or `default` for those not named; the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(policies("{ Edema = { smooth = [0.8, 0.5] } }"), @r#"
        Uncertain { key: Some("Edema") }: `smooth` is drawn from 0.8 to 0.5
        write two numbers from 0 to 1, the lower first, such as [0.55, 0.85]
        "#);
        insta::assert_snapshot!(policies("{ smooth = [0.5, 1.5] }"), @r#"
        Uncertain { key: None }: `smooth` is drawn from 0.5 to 1.5
        write two numbers from 0 to 1, the lower first, such as [0.55, 0.85]
        "#);
        let fine = "{ default = 'zeros', Edema = { smooth = [0.5, 0.8] } }";
        assert_eq!(check_labels(&config(fine), &[]), Ok(()));
    }

    #[test]
    fn labels_without_a_policy_of_their_own_take_the_default() {
        let named = config("{ default = 'zeros', Edema = 'ones' }").chexpert.expect("is given");
        assert_eq!(named.uncertain.policy("Edema"), UncertainPolicy::Ones);
        assert_eq!(named.uncertain.policy("Fracture"), UncertainPolicy::Zeros);
        let bare = config("{ Edema = 'ones' }").chexpert.expect("is given");
        assert_eq!(bare.uncertain.policy("Fracture"), UncertainPolicy::Ignore);
    }
}
