//! The page of an evaluation: what a trained model, or an ensemble, is worth on a list of images.

use askama::Template;

use super::figure::Table;
use super::head::{JudgedHead, estimate};
use super::listed::{Listed, skipped_images};
use super::record::SkippedImage;
use crate::data::BadImage;
use crate::evaluate::{Evaluation, Fitted, HeadEvaluation, PredictionTable};
use crate::report::HeadLabels;
use crate::report::evaluation::ordered;
use crate::screen::thousands;

/// What an evaluation found, and of what.
#[derive(Debug, Clone, Copy)]
pub struct EvaluationPage<'a> {
    /// The images in words, such as `test`.
    pub images: &'a str,
    /// The models, each in words.
    pub models: &'a [String],
    /// Whether the mean of several models is measured.
    pub is_ensemble: bool,
    /// How many patients the images are of.
    pub patients: usize,
    /// What a person should know, a sentence each.
    pub warnings: &'a [String],
    /// What was found.
    pub evaluation: &'a Evaluation,
    /// The heads and their labels, in the order of the configuration.
    pub heads: &'a [HeadLabels],
    /// The outputs for the images.
    pub predictions: &'a PredictionTable,
    /// Calibration and thresholds.
    pub fitted: Option<&'a Fitted>,
    /// Images that could not be read.
    pub skipped: &'a [BadImage],
    /// Each of several models by itself, by its name.
    pub each: &'a [(String, &'a Evaluation)],
}

/// What the template shows.
#[derive(Template)]
#[template(path = "evaluation.html")]
struct EvaluationTemplate<'a> {
    title: String,
    warnings: &'a [String],
    facts: Vec<(&'static str, String)>,
    models: &'a [String],
    is_ensemble: bool,
    heads: Vec<JudgedHead>,
    groups: Vec<(String, Vec<Table>)>,
    each: Vec<Table>,
    skipped: Option<Listed>,
}

/// The page of an evaluation, as an HTML file.
pub fn evaluation_page(of: &EvaluationPage) -> String {
    let EvaluationPage { evaluation, predictions, fitted, .. } = *of;
    let names = || ordered(evaluation.heads.keys(), of.heads.iter().map(|head| &head.name));
    let head = |name: &String| {
        JudgedHead::new(name, predictions, evaluation.heads.get(name)?, fitted, None)
    };
    let groups = evaluation.subgroups.iter().map(|(by, groups)| {
        let table = |name: &String| {
            let columns = groups.iter().filter_map(|group| {
                Some((format!("{} (n={})", group.group, group.images), group.heads.get(name)?))
            });
            side_by_side(name, &format!("by {by}"), &columns.collect::<Vec<_>>(), of.heads)
        };
        (format!("By {by}"), names().into_iter().filter_map(table).collect())
    });
    let each = |name: &String| {
        let columns = of.each.iter();
        let columns = columns.filter_map(|(model, of)| Some((model.clone(), of.heads.get(name)?)));
        side_by_side(name, "of each model", &columns.collect::<Vec<_>>(), of.heads)
    };
    let skipped: Vec<SkippedImage> = of.skipped.iter().map(SkippedImage::from).collect();
    let template = EvaluationTemplate {
        title: format!("Evaluation: {}", of.images),
        warnings: of.warnings,
        facts: facts(of),
        models: of.models,
        is_ensemble: of.is_ensemble,
        heads: names().into_iter().filter_map(head).collect(),
        groups: groups.collect(),
        each: names().into_iter().filter_map(each).collect(),
        skipped: skipped_images(&skipped),
    };
    template.render().expect("memory takes what is written")
}

fn facts(of: &EvaluationPage) -> Vec<(&'static str, String)> {
    let fitted = if of.fitted.is_some() { "the validation images" } else { "nothing" };
    vec![
        ("Images", thousands(of.predictions.images())),
        ("Patients", thousands(of.patients)),
        ("Could not be read", thousands(of.skipped.len())),
        ("Calibration and thresholds from", fitted.to_owned()),
    ]
}

/// The first metric of a head, label by label, beside itself for each of `columns`.
fn side_by_side(
    name: &str,
    what: &str,
    columns: &[(String, &HeadEvaluation)],
    heads: &[HeadLabels],
) -> Option<Table> {
    let found = columns.iter().filter_map(|(column, head)| {
        let (measure, table) = head.measures().next()?;
        Some((column, measure.title, table))
    });
    let found: Vec<_> = found.collect();
    let (_, metric, first) = found.first()?;
    let titles = ["label"].into_iter().chain(found.iter().map(|(column, ..)| column.as_str()));
    let mut table = Table::new(format!("{name}: {metric} {what}, with 95% intervals"), titles, 1);
    let order = heads.iter().find(|head| head.name == name);
    let labels = ordered(first.labels.keys(), order.into_iter().flat_map(|head| &head.labels));
    if labels.len() > 1 {
        let cells = found.iter().map(|(_, _, of)| estimate(&of.mean()));
        table.rows.push(["mean".to_owned()].into_iter().chain(cells).collect());
    }
    for label in labels {
        let cells =
            found.iter().map(|(_, _, of)| of.labels.get(label).map(estimate).unwrap_or_default());
        table.rows.push([label.clone()].into_iter().chain(cells).collect());
    }
    Some(table)
}
