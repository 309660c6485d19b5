//! A table with a row for each image: which column is what, by names and values.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Found, Offer, OfferValues, entries, name};
use crate::data::layout::{list_named, names_patients};
use crate::data::table::Table;

/// Rows whose paths are looked for on the disk.
const LOOKED_AT: usize = 40;
/// A column with more classes than this is no column of classes.
const MOST_CLASSES: usize = 50;

/// A table and its columns, as far as they are no labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTable {
    /// The table.
    pub table: PathBuf,
    /// The folder that images' paths count from, where that is not the table's.
    pub root: Option<PathBuf>,
    /// The column of images' paths.
    pub image: String,
    /// The column that tells patients apart.
    pub patient: Option<String>,
    /// The column that says `train`, `valid` or `test`.
    pub split: Option<String>,
    /// Whether numbers have a decimal comma.
    pub decimal_comma: bool,
    /// The first image that is there.
    pub first: PathBuf,
}

/// The tables in `folder`, in the order of names.
pub(super) fn tables_in(folder: &Path) -> Vec<PathBuf> {
    let is_table = |path: &PathBuf| {
        let name = name(path).to_lowercase();
        let endings = [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet"];
        path.is_file() && endings.iter().any(|ending| name.ends_with(ending))
    };
    entries(folder).into_iter().filter(is_table).collect()
}

/// Reads the table at `path` and says what its columns are.
pub(super) fn read(path: &Path) -> Result<(Found, Vec<Offer>), String> {
    let missing = || "name a table that is there".to_owned();
    let table = Table::read(path, missing).map_err(|error| error.to_string())?;
    let names: Vec<String> = table.names().map(str::to_owned).collect();
    let Some((image, root, first)) = images(&table, &names) else {
        return Err(format!("{}: no column holds paths of images that are there", path.display()));
    };
    let others = (0..names.len()).filter(|place| *place != image);
    let patient = others.clone().find(|place| names_patients(&names[*place]));
    let split = others.clone().find(|place| is_split(&table, *place));
    let others = others.filter(|place| Some(*place) != patient && Some(*place) != split);
    let mut decimal_comma = false;
    let mut offers = Vec::new();
    for place in others {
        let values = values(&table, place).or_else(|| {
            let comma = table.clone().with_decimal_comma(true);
            values(&comma, place).filter(|values| *values == OfferValues::Numbers(1)).inspect(
                |_| {
                    decimal_comma = true;
                },
            )
        });
        let offer = |values| Offer { name: names[place].clone(), values, proposed: false };
        offers.extend(values.map(offer));
    }
    propose(&mut offers);
    let column = |place: usize| names[place].clone();
    let found = FoundTable {
        table: path.to_owned(),
        root,
        image: column(image),
        patient: patient.map(column),
        split: split.map(column),
        decimal_comma,
        first,
    };
    Ok((Found::Table(found), offers))
}

/// The column with the most paths of images that are there, the folder that these count from where it is
/// not the table's, and the first of them.
fn images(table: &Table, names: &[String]) -> Option<(usize, Option<PathBuf>, PathBuf)> {
    let beside = table.path().parent().unwrap_or_else(|| Path::new(""));
    let below = entries(beside).into_iter().filter(|path| path.is_dir());
    let below = below.flat_map(|folder: PathBuf| {
        let inner = entries(&folder).into_iter().filter(|path| path.is_dir()).take(20);
        std::iter::once(folder).chain(inner).collect::<Vec<_>>()
    });
    let roots = std::iter::once(None).chain(below.map(Some));
    let mut best: Option<(usize, usize, Option<PathBuf>, PathBuf)> = None;
    for root in roots {
        for column in 0..names.len() {
            let paths = table.rows().take(LOOKED_AT).map(|row| row.at(column).to_owned());
            let folder = root.as_deref().unwrap_or(beside);
            let paths = paths.filter(|path| !path.is_empty()).map(|path| folder.join(path));
            let there: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
            if there.len() > best.as_ref().map_or(0, |best| best.0) {
                best = Some((there.len(), column, root.clone(), there[0].clone()));
            }
        }
    }
    best.map(|(_, column, root, first)| (column, root, first))
}

fn is_split(table: &Table, column: usize) -> bool {
    let mut lists = BTreeSet::new();
    let known = table.rows().all(|row| match list_named(row.at(column)) {
        Some(list) => {
            lists.insert(list);
            true
        }
        None => false,
    });
    known && lists.len() > 1
}

/// What a column holds, where it can be predicted.
fn values(table: &Table, column: usize) -> Option<OfferValues> {
    const FINDING: [&str; 8] = ["0", "1", "-1", "0.0", "1.0", "-1.0", "true", "false"];
    let known: Vec<_> = table.rows().filter(|row| !row.is_unknown(column)).collect();
    let texts: BTreeSet<&str> = known.iter().map(|row| row.at(column)).collect();
    if texts.is_empty() {
        return None;
    }
    if texts.iter().all(|text| FINDING.contains(&text.to_lowercase().as_str())) {
        return Some(OfferValues::Findings(1));
    }
    let few = texts.len() > 1 && texts.len() <= MOST_CLASSES && texts.len() * 2 <= known.len();
    let classes = || OfferValues::Classes(sorted(&texts));
    let is_number = known.iter().all(|row| row.number(column, "", |_| true).is_ok());
    // Whole numbers from 0 or 1 on are more likely grades than measurements.
    let grade = |text: &&str| text.parse::<usize>().is_ok_and(|grade| grade <= texts.len());
    match is_number {
        true if few && texts.len() <= 10 && texts.iter().all(grade) => Some(classes()),
        true => Some(OfferValues::Numbers(1)),
        false => few.then(classes),
    }
}

fn sorted(texts: &BTreeSet<&str>) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// All findings where there are some, else the first classes, else the first number.
fn propose(offers: &mut [Offer]) {
    let is_finding = |offer: &Offer| matches!(offer.values, OfferValues::Findings(_));
    let is_class = |offer: &Offer| matches!(offer.values, OfferValues::Classes(_));
    if offers.iter().any(is_finding) {
        offers.iter_mut().for_each(|offer| offer.proposed = is_finding(offer));
    } else {
        let first = offers.iter().position(is_class);
        let first = first.or((!offers.is_empty()).then_some(0));
        if let Some(offer) = first.and_then(|place| offers.get_mut(place)) {
            offer.proposed = true;
        }
    }
}
