//! The data sets of a configuration: one layout, or several as `[[data.sources]]`, each bound to
//! the heads it supplies.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::{DataConfig, LayoutTables, SourceConfig, ValidationList};
use super::error::DataError;
use super::labels::{HeadSource, Offer, bind, nearest};
use super::layout::{
    Column, Layout, List, Vocabulary, check_policies, check_uncertain_labels, key_in,
};
use crate::fault::{Fault, fault};
use crate::model::HeadConfig;

/// One data set and what it supplies.
pub(super) struct Source<'a> {
    /// Its table below `data`, such as `nih` or `sources[1].nih`.
    pub name: String,
    pub layout: &'a dyn Layout,
    pub vocabulary: Vocabulary,
    /// For each head where its labels come from; none for heads that it does not supply.
    pub heads: Vec<Option<HeadSource>>,
    /// What should be told of its table.
    pub warnings: Vec<String>,
}

impl Source<'_> {
    /// Refuses a folder that is not there.
    pub fn check_root(&self) -> Result<(), DataError> {
        let Some(root) = self.layout.configured_root() else { return Ok(()) };
        let (folder, key) = (root.to_owned(), format!("data.{}.root", self.name));
        match (root.is_dir(), root.exists()) {
            (true, _) => Ok(()),
            (false, true) => Err(DataError::NotAFolder { folder, key }),
            (false, false) => {
                let meant = beside(root, Path::is_dir);
                Err(DataError::NoFolder { folder, key, meant })
            }
        }
    }

    /// The places of the columns that the heads need, in order.
    pub fn needed(&self) -> Vec<usize> {
        let mut needed: Vec<usize> =
            self.heads.iter().flatten().flat_map(HeadSource::columns).collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }
}

/// What lies beside `missing`, `is` what it should be, and has the name most like its own.
pub(super) fn beside(missing: &Path, is: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let name = missing.file_name()?.to_str()?;
    let above = missing.parent().filter(|above| !above.as_os_str().is_empty());
    let entries = fs::read_dir(above.unwrap_or(Path::new("."))).ok()?.flatten();
    let entries = entries.filter(|entry| is(&entry.path()));
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let meant = nearest(name, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
    Some(missing.with_file_name(meant))
}

/// A layout table and where it stands.
struct Table<'a> {
    /// Its position in `[[data.sources]]`.
    place: Option<usize>,
    name: &'static str,
    layout: &'a dyn Layout,
    config: Option<&'a SourceConfig>,
}

impl Table<'_> {
    fn name(&self) -> String {
        match self.place {
            Some(place) => format!("sources[{place}].{}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// The heads with their labels as this data set calls them.
    fn renamed(&self, heads: &[HeadConfig]) -> Vec<HeadConfig> {
        let mut heads = heads.to_vec();
        let Some(config) = self.config else { return heads };
        for label in heads.iter_mut().flat_map(|head| &mut head.labels) {
            if let Some(theirs) = config.labels.get(label) {
                label.clone_from(theirs);
            }
        }
        heads
    }

    /// What it offers, as far as that is known without a file.
    fn vocabulary(&self, heads: &[HeadConfig]) -> Vocabulary {
        let renames = self.config.iter().flat_map(|config| &config.labels);
        Vocabulary {
            place: format!("data.{}", self.name()),
            renamed: renames.map(|(ours, theirs)| (theirs.clone(), ours.clone())).collect(),
            ..self.layout.vocabulary(&self.renamed(heads))
        }
    }

    /// What it offers. Of several data sets each supplies the labels that it has, so that columns
    /// which its table lacks are left out, unless the configuration names them. What is to be told is
    /// which of them are there under much the same name.
    fn vocabulary_in_file(
        &self,
        heads: &[HeadConfig],
    ) -> Result<(Vocabulary, Vec<String>), DataError> {
        let (mut vocabulary, mut warnings) = (self.vocabulary(heads), Vec::new());
        let Some(config) = self.config else { return Ok((vocabulary, warnings)) };
        let Some(header) = self.layout.label_columns() else { return Ok((vocabulary, warnings)) };
        let header = header?;
        let read: Vec<&String> =
            vocabulary.columns.iter().flat_map(|column| &column.sources).collect();
        vocabulary.unread = header.iter().filter(|name| !read.contains(name)).cloned().collect();
        let unread: Vec<&str> = vocabulary.unread.iter().map(String::as_str).collect();
        let is_named = |column: &Column| {
            column.sources[0] != column.label
                || config.labels.values().any(|theirs| *theirs == column.label)
        };
        let is_for = |column: &Column| match (&config.heads, &column.head) {
            (Some(heads), Some(head)) => heads.contains(head),
            _ => true,
        };
        vocabulary.columns.retain(|column| {
            let name = &column.sources[0];
            let offers = header.contains(name) || is_named(column);
            if !offers && is_for(column) && let Some(meant) = nearest(name, &unread) {
                warnings.push(format!(
                    "the table of `data.{}` has no column `{name}`, so that label is unknown for its \
                     images; it has `{meant}`: if that is meant, write `columns = {{ {name:?} = \
                     {meant:?} }}` there",
                    self.name()
                ));
            }
            offers
        });
        Ok((vocabulary, warnings))
    }
}

/// Checks the layouts' settings: that there is exactly one or several sources with one each, that
/// each can be read so and has the list that is validated on.
///
/// # Errors
/// The first fault.
pub fn check_layouts(config: &DataConfig) -> Result<(), Fault> {
    let tables = tables(config)?;
    for table in &tables {
        let policies = table.layout.uncertain().map_or(Ok(()), check_policies);
        let checked = table.layout.check().and(policies);
        checked.map_err(|fault| fault.below(&format!("data.{}", table.name())))?;
    }
    let Some(list) = config.validation.list else { return Ok(()) };
    let key = "data.validation.list";
    if config.validation.fraction.is_some() {
        let message = "either a share of the patients or a list is validated on, not both";
        let help = "remove `fraction` or `list`";
        return Err(fault(key, message, help).also("data.validation.fraction"));
    }
    match tables.iter().find(|table| !table.layout.lists().contains(&list.into())) {
        None => Ok(()),
        Some(table) => {
            let message =
                format!("`[data.{}]` has no {} list", table.name(), List::from(list).name());
            let others = table.layout.lists().iter().filter(|list| **list != List::Train);
            let others: Vec<String> = others.map(|list| format!("{:?}", list.name())).collect();
            let instead = match others.is_empty() {
                true => String::new(),
                false => format!("write {}, or ", others.join(" or ")),
            };
            let help = format!("{instead}set `fraction` in place of `list`");
            Err(fault(key, message, help))
        }
    }
}

/// Checks the heads' labels and the policies for uncertain ones against what the layouts offer:
/// `multilabel` and `binary` heads take findings (`binary` also one class of two), `multiclass`
/// heads classes of one kind, `regression` heads numbers.
///
/// # Errors
/// The first fault.
pub fn check_labels(config: &DataConfig, heads: &[HeadConfig]) -> Result<(), Fault> {
    sources(config, heads).map(drop)
}

/// The data sets of a configuration, bound to the heads as far as that is known without a file.
pub(super) fn sources<'a>(
    config: &'a DataConfig,
    heads: &[HeadConfig],
) -> Result<Vec<Source<'a>>, Fault> {
    let tables = tables(config)?;
    let vocabularies = tables.iter().map(|table| table.vocabulary(heads)).collect();
    bound(tables, vocabularies, heads, false)
}

/// The same by what the headers of their tables say. Where they `may_lack_labels`, labels that no
/// data set supplies are unknown for all images, and this is told.
///
/// # Errors
/// Also a header that cannot be read.
pub(super) fn open_sources<'a>(
    config: &'a DataConfig,
    heads: &[HeadConfig],
    may_lack_labels: bool,
) -> Result<Vec<Source<'a>>, DataError> {
    let tables = tables(config)?;
    let found = tables.iter().map(|table| table.vocabulary_in_file(heads));
    let (vocabularies, warnings): (Vec<_>, Vec<_>) =
        found.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let mut sources = bound(tables, vocabularies, heads, may_lack_labels)?;
    for (source, warnings) in sources.iter_mut().zip(warnings) {
        source.warnings = warnings;
    }
    let lacking = lacking(&sources, heads);
    if let Some(first) = sources.first_mut() {
        first.warnings.extend(lacking);
    }
    Ok(sources)
}

/// What is said of labels that no data set supplies.
fn lacking(sources: &[Source], heads: &[HeadConfig]) -> Option<String> {
    let supplied = |head: usize, label: usize| {
        let origins = sources.iter().filter_map(|source| source.heads[head].as_ref());
        origins.into_iter().any(|origin| origin.supplies(label))
    };
    let heads = heads.iter().enumerate();
    let lacking = heads.flat_map(|(place, head)| {
        let labels = head.labels.iter().enumerate();
        let lacking = labels.filter(move |(label, _)| !supplied(place, *label));
        lacking.map(|(_, label)| format!("`{label}` of the head `{}`", head.name))
    });
    let lacking: Vec<String> = lacking.collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "the data have no label {}, so nothing is measured of it; where they call it otherwise, \
             say how under `labels` of the data set",
            lacking.join(", ")
        )
    })
}

fn bound<'a>(
    tables: Vec<Table<'a>>,
    vocabularies: Vec<Vocabulary>,
    heads: &[HeadConfig],
    may_lack_labels: bool,
) -> Result<Vec<Source<'a>>, Fault> {
    for table in &tables {
        let checked = table.layout.check_heads(&table.renamed(heads));
        checked.map_err(|fault| fault.below(&format!("data.{}", table.name())))?;
    }
    let offers: Vec<Offer> = tables
        .iter()
        .zip(&vocabularies)
        .map(|(table, vocabulary)| Offer {
            place: table.place,
            table: table.name,
            vocabulary,
            heads: table.config.and_then(|config| config.heads.as_deref()),
            renames: table.config.map(|config| &config.labels),
        })
        .collect();
    let bound = bind(&offers, heads, may_lack_labels)?;
    for (table, vocabulary) in tables.iter().zip(&vocabularies) {
        let Some(uncertain) = table.layout.uncertain() else { continue };
        check_uncertain_labels(uncertain, vocabulary)
            .map_err(|fault| fault.below(&format!("data.{}", table.name())))?;
    }
    let sources = tables.into_iter().zip(vocabularies).zip(bound);
    Ok(sources
        .map(|((table, vocabulary), heads)| Source {
            name: table.name(),
            layout: table.layout,
            vocabulary,
            heads,
            warnings: Vec::new(),
        })
        .collect())
}

impl DataConfig {
    /// Whether one of the data sets has a validation list of its own.
    pub fn has_validation_list(&self) -> bool {
        let tables = tables(self).unwrap_or_default();
        tables.iter().any(|table| table.layout.lists().contains(&List::Validation))
    }
}

impl From<ValidationList> for List {
    fn from(list: ValidationList) -> Self {
        match list {
            ValidationList::Validation => Self::Validation,
            ValidationList::Test => Self::Test,
        }
    }
}

/// The layout tables of a configuration: one below `data`, or one in each of its sources.
fn tables(config: &DataConfig) -> Result<Vec<Table<'_>>, Fault> {
    let direct = config.layout.given();
    if config.sources.is_empty() {
        let (name, layout) = only(None, &direct)?;
        return Ok(vec![Table { place: None, name, layout, config: None }]);
    }
    if let Some((name, _)) = direct.first() {
        let message = format!("a data set is given beside `[[data.sources]]`: `[data.{name}]`");
        let help = format!(
            "write it as one of them: `[[data.sources]]` and below it \
                            `[data.sources.{name}]`"
        );
        return Err(fault(key_in(None, &[name]), message, help).also("data.sources"));
    }
    let sources = config.sources.iter().enumerate();
    sources
        .map(|(place, source)| {
            let (name, layout) = only(Some(place), &source.layout.given())?;
            Ok(Table { place: Some(place), name, layout, config: Some(source) })
        })
        .collect()
}

/// The one layout that is given.
fn only<'a>(
    source: Option<usize>,
    given: &[(&'static str, &'a dyn Layout)],
) -> Result<(&'static str, &'a dyn Layout), Fault> {
    let above = if source.is_some() { "data.sources" } else { "data" };
    match given {
        [one] => Ok(*one),
        [] => {
            let names = LayoutTables::names();
            let names: Vec<String> =
                names.iter().map(|name| format!("`[{above}.{name}]`")).collect();
            let several = match source {
                None => ", or several data sets as `[[data.sources]]`",
                Some(_) => " below it",
            };
            let help = format!("add one of the tables {}{several}", names.join(", "));
            Err(fault(key_in(source, &[]), "no data set is given", help))
        }
        [(first, _), (second, _), ..] => {
            let message =
                format!("two data sets are given: `[{above}.{first}]` and `[{above}.{second}]`");
            let help = "remove one of the two tables, or give each its own `[[data.sources]]`";
            Err(fault(key_in(source, &[second]), message, help).also(key_in(source, &[first])))
        }
    }
}
