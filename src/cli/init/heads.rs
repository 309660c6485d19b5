//! From what is to be predicted to heads.

use std::collections::BTreeMap;

use crate::data::{Found, Offer, OfferValues};
use crate::model::Task;

/// The head that all findings share.
const FINDINGS: &str = "findings";
/// The head that all numbers share.
const NUMBERS: &str = "numbers";

/// The heads of a configuration, and where their targets are.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heads {
    pub heads: Vec<Head>,
    /// Of a table, the columns of `multiclass` heads whose name cannot be the column's.
    pub columns: BTreeMap<String, String>,
    /// The array of each head.
    pub targets: BTreeMap<String, String>,
}

/// A head.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    pub name: String,
    pub task: Task,
    pub labels: Vec<String>,
}

impl Heads {
    /// The heads that predict `labels`, each by its values or all as `task`.
    ///
    /// # Errors
    /// A label that is not on offer, or not for this task.
    pub fn new(
        found: &Found,
        offers: &[Offer],
        labels: &[String],
        task: Option<Task>,
    ) -> Result<Self, String> {
        let mut heads = Self::default();
        let known =
            || offers.iter().map(|offer| offer.name.as_str()).collect::<Vec<_>>().join(", ");
        if labels.is_empty() || offers.is_empty() {
            return Err(format!("nothing is predicted; the data offer: {}", known()));
        }
        for label in labels {
            let offer = offers.iter().find(|offer| offer.name == *label);
            let offer = offer
                .ok_or_else(|| format!("the data have no {label:?}; they offer: {}", known()))?;
            let values = of_task(offer, task)?;
            match found {
                Found::Arrays(_) => heads.add_array(offer, &values),
                _ => heads.add(offer, values),
            }
        }
        for head in &mut heads.heads {
            if head.task == Task::Multilabel && head.labels.len() == 1 {
                head.task = Task::Binary;
            }
        }
        Ok(heads)
    }

    /// Findings share a head, and so do numbers; each column of classes is one of its own.
    fn add(&mut self, offer: &Offer, values: OfferValues) {
        let label = offer.name.clone();
        let (name, task) = match values {
            OfferValues::Findings(_) => (FINDINGS, Task::Multilabel),
            OfferValues::Numbers(_) => (NUMBERS, Task::Regression),
            OfferValues::Classes(labels) => {
                let name = self.free_name(&label, &[FINDINGS, NUMBERS]);
                if name != label {
                    self.columns.insert(name.clone(), label);
                }
                return self.heads.push(Head { name, task: Task::Multiclass, labels });
            }
        };
        match self.heads.iter_mut().find(|head| head.name == name && head.task == task) {
            Some(head) if head.labels.contains(&label) => {}
            Some(head) => head.labels.push(label),
            None => self.heads.push(Head { name: name.to_owned(), task, labels: vec![label] }),
        }
    }

    fn add_array(&mut self, offer: &Offer, values: &OfferValues) {
        let stem = offer.name.trim_end_matches(".npy");
        let name = self.free_name(stem, &[]);
        let labels = |count: usize| match count {
            1 => vec![name.clone()],
            _ => (1..=count).map(|number| format!("{name}_{number}")).collect(),
        };
        let (task, labels) = match values {
            OfferValues::Findings(count) => (Task::Multilabel, labels(*count)),
            OfferValues::Numbers(count) => (Task::Regression, labels(*count)),
            OfferValues::Classes(classes) => (Task::Multiclass, classes.clone()),
        };
        self.targets.insert(name.clone(), offer.name.clone());
        self.heads.push(Head { name, task, labels });
    }

    /// A name for a head that is like `text`, and neither taken nor one of `kept`.
    fn free_name(&self, text: &str, kept: &[&str]) -> String {
        let allowed = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-');
        let plain: String = text.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
        let plain = if plain.is_empty() { "head".to_owned() } else { plain };
        let taken =
            |name: &str| self.heads.iter().any(|head| head.name == name) || kept.contains(&name);
        if !taken(&plain) {
            return plain;
        }
        (2..).map(|number| format!("{plain}_{number}")).find(|name| !taken(name)).unwrap_or(plain)
    }
}

/// What an offer holds, taken for `task` where one is asked for.
fn of_task(offer: &Offer, task: Option<Task>) -> Result<OfferValues, String> {
    let name = &offer.name;
    let count = match &offer.values {
        OfferValues::Findings(count) | OfferValues::Numbers(count) => *count,
        OfferValues::Classes(_) => 1,
    };
    match (task, &offer.values) {
        (None, values) => Ok(values.clone()),
        (Some(Task::Multilabel | Task::Binary), OfferValues::Findings(count)) => {
            Ok(OfferValues::Findings(*count))
        }
        (Some(Task::Multiclass), OfferValues::Classes(classes)) => {
            Ok(OfferValues::Classes(classes.clone()))
        }
        (Some(Task::Multiclass), OfferValues::Findings(1)) => {
            Ok(OfferValues::Classes(vec!["0".to_owned(), "1".to_owned()]))
        }
        (Some(Task::Regression), values) => {
            let classes = match values {
                OfferValues::Classes(classes) => &classes[..],
                _ => &[],
            };
            match classes.iter().find(|class| class.parse::<f64>().is_err()) {
                None => Ok(OfferValues::Numbers(count)),
                Some(text) => Err(format!("{name:?} is not a number: it holds {text:?}")),
            }
        }
        (Some(Task::Multilabel | Task::Binary), _) => {
            Err(format!("{name:?} holds more than 0, 1 and -1, so it is no label"))
        }
        (Some(Task::Multiclass), _) => Err(format!("{name:?} has no classes: it holds numbers")),
    }
}
