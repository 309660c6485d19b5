//! Which published data set a folder holds, by the files that mark it.

use std::path::{Path, PathBuf};

use super::{Kind, Layout, List, chexpert, mimic, mura, nih, padchest, vindr};
use crate::data::config::{
    ChexpertConfig, MimicConfig, MimicFormat, MimicLabeler, MuraConfig, NihConfig, PadchestConfig,
    Uncertain, VindrAgreement, VindrConfig,
};

/// Findings of a data set that names many more are those that most images have.
const MOST_FINDINGS: usize = 20;

/// The name of the published layout that `root` has, and the findings to begin with: all that it tells,
/// or where these are very many, those that most of its images have.
pub(in crate::data) fn published(root: &Path) -> Option<(&'static str, Vec<String>)> {
    let (name, layout) = layout(root)?;
    let columns = layout.vocabulary(&[]).columns;
    let findings = columns.iter().filter(|column| column.kind == Kind::Finding);
    let labels: Vec<String> = findings.map(|column| column.label.clone()).collect();
    Some(match name {
        // The others are the same for one part each.
        "mura" => (name, labels.into_iter().take(1).collect()),
        "padchest" => (name, most_frequent(&*layout).unwrap_or(labels)),
        _ => (name, labels),
    })
}

fn layout(root: &Path) -> Option<(&'static str, Box<dyn Layout>)> {
    let (root, uncertain) = (PathBuf::from(root), Uncertain::default());
    Some(match &root {
        at if nih::is_in(at) => ("nih", Box::new(NihConfig { root, views: None })),
        at if mimic::is_in(at) => {
            let (labeler, format) = (MimicLabeler::default(), MimicFormat::default());
            ("mimic", Box::new(MimicConfig { root, labeler, format, uncertain, views: None }))
        }
        at if padchest::is_in(at) => {
            let physicians_only = false;
            ("padchest", Box::new(PadchestConfig { root, physicians_only, views: None }))
        }
        at if vindr::is_in(at) => {
            ("vindr", Box::new(VindrConfig { root, agreement: VindrAgreement::default() }))
        }
        at if mura::is_in(at) => ("mura", Box::new(MuraConfig { root, parts: None })),
        at if chexpert::is_in(at) => {
            ("chexpert", Box::new(ChexpertConfig { root, uncertain, views: None }))
        }
        _ => return None,
    })
}

/// The findings that most training images have, in the order of the vocabulary; `None` where the
/// tables cannot be read.
fn most_frequent(layout: &dyn Layout) -> Option<Vec<String>> {
    let vocabulary = layout.vocabulary(&[]);
    let findings: Vec<usize> = (0..vocabulary.columns.len())
        .filter(|place| vocabulary.columns[*place].kind == Kind::Finding)
        .collect();
    let rows = layout.read(&vocabulary, &findings, &[List::Train]).ok()?.remove(&List::Train)?;
    let positive = |place: usize| rows.iter().filter(|row| row.values[place] == 1.0).count();
    let mut counted: Vec<(usize, usize)> =
        findings.into_iter().map(|place| (positive(place), place)).collect();
    counted.retain(|(count, _)| *count > 0);
    counted.sort_by_key(|(count, place)| (std::cmp::Reverse(*count), *place));
    counted.truncate(MOST_FINDINGS);
    counted.sort_by_key(|(_, place)| *place);
    let label = |(_, place): (usize, usize)| vocabulary.columns[place].label.clone();
    Some(counted.into_iter().map(label).collect())
}
