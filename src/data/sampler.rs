//! Which images an epoch is made of, and in which order: drawn from (seed, epoch) and nothing else.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::config::{BalancedConfig, SamplerConfig, WeightedConfig};
use super::dataset::Dataset;
use crate::fault::{Fault, fault};
use crate::model::{HeadConfig, Task};
use crate::random::stream;

/// How often each label counts from: soft labels from here on are positive.
const POSITIVE: f32 = 0.5;

/// A sampler over a data set.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampler {
    /// Every image once, in the order of the tables.
    Sequential,
    /// Every image once, in an order of each epoch's own.
    Shuffle,
    /// As many images as there are, drawn with replacement; for each image the sum of the weights
    /// up to and with its own.
    Weighted(Vec<f64>),
}

impl SamplerConfig {
    /// Checks the names of heads and labels, and the weights.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn check(&self, heads: &[HeadConfig]) -> Result<(), Fault> {
        match self {
            Self::Shuffle(_) | Self::Sequential(_) => Ok(()),
            Self::Balanced(BalancedConfig { head }) => {
                let (_, head) = named(heads, head.as_deref(), "balanced")?;
                regression(head, "balanced")
            }
            Self::Weighted(WeightedConfig { head, labels }) => {
                let (_, head) = named(heads, head.as_deref(), "weighted")?;
                regression(head, "weighted")?;
                for (label, weight) in labels {
                    let key = format!("weighted.labels.{label:?}");
                    if !head.labels.contains(label) {
                        let message = format!("the head `{}` has no label {label:?}", head.name);
                        let help = format!("write one of {}", head.labels.join(", "));
                        return Err(fault(key, message, help));
                    }
                    if !(*weight > 0.0 && weight.is_finite()) {
                        let message = format!("an image cannot be drawn {weight} times as often");
                        return Err(fault(key, message, "write a number above 0"));
                    }
                }
                Ok(())
            }
        }
    }

    /// The sampler over `dataset`, whose heads are `heads`. The configuration must have passed
    /// [`SamplerConfig::check`].
    pub fn init(&self, dataset: &Dataset, heads: &[HeadConfig]) -> Sampler {
        let weights = match self {
            Self::Sequential(_) => return Sampler::Sequential,
            Self::Shuffle(_) => return Sampler::Shuffle,
            Self::Balanced(config) => match named(heads, config.head.as_deref(), "balanced") {
                Ok((place, head)) => balanced(dataset, place, head),
                Err(_) => return Sampler::Shuffle,
            },
            Self::Weighted(config) => match named(heads, config.head.as_deref(), "weighted") {
                Ok((place, head)) => weighted(dataset, place, head, config),
                Err(_) => return Sampler::Shuffle,
            },
        };
        let mut sum = 0.0;
        let sums = weights.into_iter().map(|weight| {
            sum += weight;
            sum
        });
        Sampler::Weighted(sums.collect())
    }
}

impl Sampler {
    /// The images of `epoch`, in order, out of `images`.
    pub fn order(&self, images: usize, seed: u64, epoch: u64) -> Vec<usize> {
        match self {
            Self::Sequential => (0..images).collect(),
            Self::Shuffle => {
                let mut order: Vec<usize> = (0..images).collect();
                order.shuffle(&mut stream(seed, "shuffle", &[epoch]));
                order
            }
            Self::Weighted(sums) => {
                let mut random = stream(seed, "sampler", &[epoch]);
                let total = sums.last().copied().unwrap_or_default();
                let mut draw = || {
                    let lot = random.random::<f64>() * total;
                    sums.partition_point(|sum| *sum <= lot).min(images.saturating_sub(1))
                };
                (0..images).map(|_| draw()).collect()
            }
        }
    }
}

fn named<'a>(
    heads: &'a [HeadConfig],
    name: Option<&str>,
    sampler: &str,
) -> Result<(usize, &'a HeadConfig), Fault> {
    let found =
        heads.iter().enumerate().find(|(_, head)| name.is_none_or(|name| name == head.name));
    found.ok_or_else(|| {
        let names: Vec<&str> = heads.iter().map(|head| head.name.as_str()).collect();
        fault(
            format!("{sampler}.head"),
            format!("there is no head {:?}", name.unwrap_or_default()),
            format!("the heads are {}", names.join(", ")),
        )
    })
}

fn regression(head: &HeadConfig, sampler: &str) -> Result<(), Fault> {
    if head.task != Task::Regression {
        return Ok(());
    }
    Err(fault(
        format!("{sampler}.head"),
        format!(
            "the head `{}` predicts numbers, and images are weighted by labels that they have or \
             lack",
            head.name
        ),
        "name a head with `multilabel`, `binary` or `multiclass`",
    ))
}

/// For each image the labels (or the class) that it has.
fn positives(dataset: &Dataset, place: usize, head: &HeadConfig) -> Vec<Vec<usize>> {
    let targets = dataset.head_targets(place);
    let rows =
        targets.values.chunks_exact(targets.width).zip(targets.mask.chunks_exact(targets.width));
    rows.map(|(values, mask)| match head.task {
        Task::Multiclass if mask[0] > 0.0 => vec![values[0] as usize],
        Task::Multiclass => Vec::new(),
        _ => (0..targets.width).filter(|at| mask[*at] > 0.0 && values[*at] >= POSITIVE).collect(),
    })
    .collect()
}

/// One over how often each of the image's labels comes up, summed; images with no label are a group
/// of their own.
fn balanced(dataset: &Dataset, place: usize, head: &HeadConfig) -> Vec<f64> {
    let positives = positives(dataset, place, head);
    let mut counts = vec![0_usize; head.labels.len()];
    let mut without = 0_usize;
    for labels in &positives {
        labels.iter().for_each(|label| counts[*label] += 1);
        without += usize::from(labels.is_empty());
    }
    let weight = |labels: &Vec<usize>| match labels.is_empty() {
        true => 1.0 / without as f64,
        false => labels.iter().map(|label| 1.0 / counts[*label] as f64).sum(),
    };
    positives.iter().map(weight).collect()
}

fn weighted(
    dataset: &Dataset,
    place: usize,
    head: &HeadConfig,
    config: &WeightedConfig,
) -> Vec<f64> {
    let of_label: Vec<Option<f64>> =
        head.labels.iter().map(|label| config.labels.get(label).copied()).collect();
    let weight = |labels: &Vec<usize>| {
        let named = labels.iter().filter_map(|label| of_label[*label]);
        named.fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))))
    };
    positives(dataset, place, head).iter().map(|labels| weight(labels).unwrap_or(1.0)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::open;

    fn heads() -> Vec<HeadConfig> {
        let head = |name: &str, task: &str, labels: &[&str]| {
            let text = format!("name = '{name}'\ntask = '{task}'\nlabels = {labels:?}");
            toml::from_str(&text).expect("reads")
        };
        vec![
            head("findings", "multilabel", &["Edema", "Fracture"]),
            head("view", "multiclass", &["PA", "Lateral"]),
            head("age", "regression", &["Age"]),
        ]
    }

    /// 200 images: Edema in every 10th, Fracture in every 40th, lateral in every 4th.
    fn dataset() -> Dataset {
        let folder = tempfile::tempdir().expect("is made");
        let mut table = "Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture".to_owned();
        for patient in 0..400 {
            let label = |every: usize| f64::from(u8::from(patient % every == 0));
            let view = if patient % 4 == 0 { "Lateral," } else { "Frontal,PA" };
            table += &format!(
                "\ntrain/patient{patient}/s/v.png,Male,5,{view},{},{}",
                label(10),
                label(40)
            );
        }
        fs::write(folder.path().join("train.csv"), table).expect("is written");
        let text = format!(
            "image = {{ size = [32, 32] }}\nvalidation = {{ fraction = 0.5 }}\n[chexpert]\nroot = {:?}",
            folder.path()
        );
        open(&toml::from_str(&text).expect("reads"), &heads(), 3, crate::data::untold)
            .expect("opens")
            .train
    }

    fn sampler(dataset: &Dataset, text: &str) -> Sampler {
        #[derive(serde::Deserialize)]
        struct Table {
            sampler: crate::choice::Choice<SamplerConfig>,
        }
        let table: Table = toml::from_str(text).expect("reads");
        table.sampler.0.check(&heads()).expect("is right");
        table.sampler.0.init(dataset, &heads())
    }

    /// How often images with each label are drawn, of all draws of 300 epochs.
    fn shares(dataset: &Dataset, sampler: &Sampler, head: usize) -> Vec<f64> {
        let labels = positives(dataset, head, &heads()[head]);
        let mut counts = vec![0.0; heads()[head].labels.len() + 1];
        let mut draws = 0.0;
        for epoch in 0..300 {
            for image in sampler.order(dataset.len(), 7, epoch) {
                labels[image].iter().for_each(|label| counts[*label] += 1.0);
                counts[heads()[head].labels.len()] += f64::from(u8::from(labels[image].is_empty()));
                draws += 1.0;
            }
        }
        counts.iter().map(|count| count / draws).collect()
    }

    #[test]
    fn balanced_classes_come_up_equally_often() {
        let dataset = dataset();
        let sampler = sampler(&dataset, "sampler = { balanced = { head = 'view' } }");
        let shares = shares(&dataset, &sampler, 1);
        assert!((shares[0] - 0.5).abs() < 0.01 && (shares[1] - 0.5).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn balanced_labels_and_images_without_any_are_drawn_as_their_weights_say() {
        let dataset = dataset();
        let sampler = sampler(&dataset, "sampler = 'balanced'");
        let labels = positives(&dataset, 0, &heads()[0]);
        let count = |wanted: &[usize]| labels.iter().filter(|one| **one == wanted).count() as f64;
        let (edema, both, none) = (count(&[0]), count(&[0, 1]), count(&[]));
        assert_eq!(edema + both + none, dataset.len() as f64, "a fracture comes with an edema");
        // Each of the three groups weighs 1 in all.
        let expected = [
            (edema / (edema + both) + both / (edema + both) + 1.0) / 3.0,
            (both / (edema + both) + 1.0) / 3.0,
            1.0 / 3.0,
        ];
        for (share, expected) in shares(&dataset, &sampler, 0).iter().zip(expected) {
            assert!((share - expected).abs() < 0.01, "{share} {expected}");
        }
    }

    #[test]
    fn an_image_is_drawn_as_many_times_as_often_as_its_label_weighs() {
        let dataset = dataset();
        let sampler = sampler(
            &dataset,
            "sampler = { weighted = { labels = { Edema = 4.0, Fracture = 9.0 } } }",
        );
        let labels = positives(&dataset, 0, &heads()[0]);
        let with = |wanted: &[usize]| labels.iter().filter(|one| **one == wanted).count() as f64;
        let (edema, both, none) = (with(&[0]), with(&[0, 1]), with(&[]));
        let total = 4.0 * edema + 9.0 * both + none;
        let shares = shares(&dataset, &sampler, 0);
        assert!((shares[1] - 9.0 * both / total).abs() < 0.01, "{shares:?}");
        assert!((shares[2] - none / total).abs() < 0.01, "{shares:?}");
    }

    #[test]
    fn an_order_follows_from_seed_and_epoch_alone() {
        let dataset = dataset();
        for text in ["sampler = 'shuffle'", "sampler = 'balanced'"] {
            let sampler = sampler(&dataset, text);
            let order = |seed, epoch| sampler.order(dataset.len(), seed, epoch);
            assert_eq!(order(1, 2), order(1, 2));
            assert_ne!(order(1, 2), order(1, 3));
            assert_ne!(order(1, 2), order(2, 2));
            assert_eq!(order(1, 2).len(), dataset.len());
        }
        assert!(sampler(&dataset, "sampler = 'sequential'").order(9, 1, 2).is_sorted());
    }

    #[test]
    fn heads_and_labels_that_are_not_there_are_refused_at_their_key() {
        let check = |text: &str| {
            let config: SamplerConfig = toml::from_str(text).expect("reads");
            let fault = config.check(&heads()).expect_err("is refused");
            format!("{}: {}\n{}", fault.key, fault.message, fault.help.unwrap_or_default())
        };
        insta::assert_snapshot!(check("balanced = { head = 'views' }"), @r#"
        balanced.head: there is no head "views"
        the heads are findings, view, age
        "#);
        insta::assert_snapshot!(check("balanced = { head = 'age' }"), @r#"
        balanced.head: the head `age` predicts numbers, and images are weighted by labels that they have or lack
        name a head with `multilabel`, `binary` or `multiclass`
        "#);
        insta::assert_snapshot!(check("weighted = { labels = { Edem = 2.0 } }"), @r#"
        weighted.labels."Edem": the head `findings` has no label "Edem"
        write one of Edema, Fracture
        "#);
        insta::assert_snapshot!(check("weighted = { labels = { Edema = 0.0 } }"), @r#"
        weighted.labels."Edema": an image cannot be drawn 0 times as often
        write a number above 0
        "#);
    }
}
