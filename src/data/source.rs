//! The data sets of a configuration: one layout, or several as `[[data.sources]]`, each bound to
//! the heads it supplies.

use super::config::{DataConfig, SourceConfig, ValidationList};
use super::labels::{HeadSource, Offer, bind};
use super::layout::{
    Fault, FaultPlace, Layout, List, Vocabulary, check_policies, check_uncertain_labels,
};
use crate::model::HeadConfig;

/// One data set and what it supplies.
pub(super) struct Source<'a> {
    /// Its table below `data`, such as `nih` or `sources[1].nih`.
    pub name: String,
    pub layout: &'a dyn Layout,
    pub vocabulary: Vocabulary,
    /// For each head where its labels come from; none for heads that it does not supply.
    pub heads: Vec<Option<HeadSource>>,
}

impl Source<'_> {
    /// The places of the columns that the heads need, in order.
    pub fn needed(&self) -> Vec<usize> {
        let mut needed: Vec<usize> =
            self.heads.iter().flatten().flat_map(HeadSource::columns).collect();
        needed.sort_unstable();
        needed.dedup();
        needed
    }
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
        checked.map_err(|fault| fault.below(table.place, table.name))?;
    }
    let Some(list) = config.validation.list else { return Ok(()) };
    let place = |key: &str| FaultPlace::Setting {
        source: None,
        keys: vec!["validation".to_owned(), key.to_owned()],
        entry: None,
    };
    if config.validation.fraction.is_some() {
        let message = "either a share of the patients or a list is validated on, not both";
        let help = "remove `fraction` or `list`";
        return Err(Fault::new(place("list"), message, help).also(place("fraction")));
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
            Err(Fault::new(place("list"), message, help))
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

/// The data sets of a configuration, bound to the heads.
pub(super) fn sources<'a>(
    config: &'a DataConfig,
    heads: &[HeadConfig],
) -> Result<Vec<Source<'a>>, Fault> {
    let tables = tables(config)?;
    let vocabularies: Vec<Vocabulary> =
        tables.iter().map(|table| table.layout.vocabulary(heads)).collect();
    let offers: Vec<Offer> = tables
        .iter()
        .zip(&vocabularies)
        .map(|(table, vocabulary)| Offer {
            vocabulary,
            heads: table.config.and_then(|config| config.heads.as_deref()),
            renames: table.config.map(|config| &config.labels),
        })
        .collect();
    let bound = bind(&offers, heads)?;
    for (table, vocabulary) in tables.iter().zip(&vocabularies) {
        let Some(uncertain) = table.layout.uncertain() else { continue };
        check_uncertain_labels(uncertain, vocabulary)
            .map_err(|fault| fault.below(table.place, table.name))?;
    }
    let sources = tables.into_iter().zip(vocabularies).zip(bound);
    Ok(sources
        .map(|((table, vocabulary), heads)| Source {
            name: table.name(),
            layout: table.layout,
            vocabulary,
            heads,
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
    let direct = config.layouts();
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
        let place =
            FaultPlace::Setting { source: None, keys: vec![(*name).to_owned()], entry: None };
        let sources =
            FaultPlace::Setting { source: None, keys: vec!["sources".to_owned()], entry: None };
        return Err(Fault::new(place, message, help).also(sources));
    }
    let sources = config.sources.iter().enumerate();
    sources
        .map(|(place, source)| {
            let (name, layout) = only(Some(place), &source.layouts())?;
            Ok(Table { place: Some(place), name, layout, config: Some(source) })
        })
        .collect()
}

/// The one layout that is given.
fn only<'a>(
    source: Option<usize>,
    given: &[(&'static str, &'a dyn Layout)],
) -> Result<(&'static str, &'a dyn Layout), Fault> {
    let place = |table: Option<&str>| FaultPlace::Setting {
        source,
        keys: table.map(str::to_owned).into_iter().collect(),
        entry: None,
    };
    let above = if source.is_some() { "data.sources" } else { "data" };
    match given {
        [one] => Ok(*one),
        [] => {
            let names = SourceConfig::layout_names();
            let names: Vec<String> =
                names.iter().map(|name| format!("`[{above}.{name}]`")).collect();
            let several = match source {
                None => ", or several data sets as `[[data.sources]]`",
                Some(_) => " below it",
            };
            let help = format!("add one of the tables {}{several}", names.join(", "));
            Err(Fault::new(place(None), "no data set is given", help))
        }
        [(first, _), (second, _), ..] => {
            let message =
                format!("two data sets are given: `[{above}.{first}]` and `[{above}.{second}]`");
            let help = "remove one of the two tables, or give each its own `[[data.sources]]`";
            Err(Fault::new(place(Some(second)), message, help).also(place(Some(first))))
        }
    }
}
