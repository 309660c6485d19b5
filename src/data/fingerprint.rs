//! What a run learns from: which image is in which list, and a fingerprint that tells a resumed run
//! whether that is still so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::dataset::{Dataset, Splits};
use super::opened::TableSeal;

/// Images and labels of a run in so few numbers that every saved state holds them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// BLAKE3 of the images with their patients and lists, in order.
    pub split: String,
    /// BLAKE3 of the images' labels, in the same order.
    pub labels: String,
    /// The tables that both came from.
    pub tables: Vec<TableSeal>,
}

/// Every image of a run with its patient and list, in the order that the run has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SplitList {
    images: Vec<Image>,
    /// The first bytes of BLAKE3 of each image's labels.
    labels: Vec<[u8; LABELS]>,
}

/// Bytes that stand for the labels of an image.
const LABELS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Image {
    /// Its data set, where there are several.
    source: String,
    /// Its path below the data set's folder, and its number where the file is an array.
    name: String,
    patient: String,
    /// `train` or `validation`.
    list: String,
}

impl SplitList {
    /// The images of both sides of `splits`.
    pub fn of(splits: &Splits) -> Self {
        let mut list = Self::default();
        list.add(splits, "train", &splits.train);
        list.add(splits, "validation", &splits.validation);
        list
    }

    fn add(&mut self, splits: &Splits, list: &str, dataset: &Dataset) {
        let several = splits.sources.len() > 1;
        for (index, sample) in dataset.samples().iter().enumerate() {
            let below = sample.path.strip_prefix(&splits.roots[sample.source]);
            let path = below.unwrap_or(&sample.path).display();
            let name = match sample.item {
                Some(item) => format!("{path}[{item}]"),
                None => path.to_string(),
            };
            let source =
                if several { splits.sources[sample.source].clone() } else { String::new() };
            let patient = sample.patient.clone();
            self.images.push(Image { source, name, patient, list: list.to_owned() });
            let mut hasher = blake3::Hasher::new();
            for targets in dataset.targets(&[index]) {
                for number in targets.values.iter().chain(&targets.mask) {
                    hasher.update(&number.to_le_bytes());
                }
            }
            let mut labels = [0; LABELS];
            hasher.finalize_xof().fill(&mut labels);
            self.labels.push(labels);
        }
    }

    /// The fingerprint of a run on these images, read from `tables`.
    pub fn fingerprint(&self, tables: &[TableSeal]) -> Fingerprint {
        let mut split = blake3::Hasher::new();
        for Image { source, name, patient, list } in &self.images {
            for field in [source, name, patient, list] {
                split.update(&(field.len() as u64).to_le_bytes());
                split.update(field.as_bytes());
            }
        }
        Fingerprint {
            split: split.finalize().to_hex().to_string(),
            labels: blake3::hash(&self.label_bytes()).to_hex().to_string(),
            tables: tables.to_vec(),
        }
    }

    /// `split.csv`: `image,patient,list` and, where there are several data sets, `source`.
    pub fn to_csv(&self) -> Vec<u8> {
        const IN_MEMORY: &str = "memory takes what is written";
        let several = self.images.iter().any(|image| !image.source.is_empty());
        let columns = if several { COLUMNS.len() } else { COLUMNS.len() - 1 };
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&COLUMNS[..columns]).expect(IN_MEMORY);
        for Image { source, name, patient, list } in &self.images {
            writer.write_record(&[name, patient, list, source][..columns]).expect(IN_MEMORY);
        }
        writer.into_inner().expect(IN_MEMORY)
    }

    /// What stands for the labels of each image, in the order of `split.csv`.
    pub fn label_bytes(&self) -> Vec<u8> {
        self.labels.concat()
    }

    /// The images that were written as `csv`, with what stood for their labels, if the two are as
    /// `fingerprint` knows them; without labels, if these are missing or others.
    pub fn read(csv: &[u8], labels: &[u8], fingerprint: &Fingerprint) -> Option<Self> {
        let mut reader = csv::Reader::from_reader(csv);
        let mut list = Self::default();
        for record in reader.records() {
            let record = record.ok()?;
            let at = |column: usize| record.get(column).map(str::to_owned);
            let (name, patient, of) = (at(0)?, at(1)?, at(2)?);
            let source = at(3).unwrap_or_default();
            list.images.push(Image { source, name, patient, list: of });
        }
        list.labels = labels.as_chunks().0.to_vec();
        let Fingerprint { split, labels, .. } = list.fingerprint(&[]);
        if labels != fingerprint.labels || list.labels.len() != list.images.len() {
            list.labels.clear();
        }
        (split == fingerprint.split).then_some(list)
    }

    /// What differs in `now`, a sentence each; nothing where it is the same.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let (before, after) = (self.by_name(), now.by_name());
        let mut changes = Changes::default();
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let of =
                |images: &BTreeMap<_, Vec<usize>>| images.get(key).cloned().unwrap_or_default();
            let (before, after) = (of(&before), of(&after));
            for (&old, &new) in before.iter().zip(&after) {
                let (one, other) = (&self.images[old], &now.images[new]);
                if one.list != other.list {
                    let name = format!("{} ({} → {})", shown(key), one.list, other.list);
                    changes.note(Change::Moved, name);
                }
                if one.patient != other.patient {
                    let name = format!("{} ({} → {})", shown(key), one.patient, other.patient);
                    changes.note(Change::Patient, name);
                }
                if self.labels.get(old).is_some_and(|labels| *labels != now.labels[new]) {
                    changes.note(Change::Labels, shown(key));
                }
            }
            (after.len()..before.len()).for_each(|_| changes.note(Change::Gone, shown(key)));
            (before.len()..after.len()).for_each(|_| changes.note(Change::New, shown(key)));
        }
        let mut told = changes.told();
        if self.labels.is_empty() && self.label_bytes() != now.label_bytes() {
            // What is left of the run does not say which.
            told.push("labels of the images may be others".to_owned());
        } else if told.is_empty() && self != now {
            told.push("the images are the same, but in another order".to_owned());
        }
        told
    }

    /// The places of the images of each source and name: several where rows name one twice.
    fn by_name(&self) -> BTreeMap<(&str, &str), Vec<usize>> {
        let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, image) in self.images.iter().enumerate() {
            let key = (image.source.as_str(), image.name.as_str());
            places.entry(key).or_default().push(place);
        }
        places
    }
}

/// The columns of `split.csv`.
const COLUMNS: [&str; 4] = ["image", "patient", "list", "source"];

fn shown((source, name): &(&str, &str)) -> String {
    match source.is_empty() {
        true => format!("`{name}`"),
        false => format!("`{name}` of `data.{source}`"),
    }
}

/// What may have become of an image, in the order in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Gone,
    New,
    Moved,
    Patient,
    Labels,
}

/// How many images have changed how, with the first of each.
#[derive(Debug, Default)]
struct Changes(BTreeMap<Change, (usize, String)>);

impl Changes {
    fn note(&mut self, change: Change, name: String) {
        self.0.entry(change).or_insert((0, name)).0 += 1;
    }

    fn told(&self) -> Vec<String> {
        let told = |(change, (count, name)): (&Change, &(usize, String))| {
            let one = *count == 1;
            let (is, has) = if one { ("is", "has") } else { ("are", "have") };
            let what = match (change, one) {
                (Change::Gone, _) => format!("{is} gone"),
                (Change::New, _) => format!("{is} new"),
                (Change::Moved, true) => "has moved to another list".to_owned(),
                (Change::Moved, false) => "have moved to another list".to_owned(),
                (Change::Patient, true) => "has another patient".to_owned(),
                (Change::Patient, false) => "have other patients".to_owned(),
                (Change::Labels, _) => format!("{has} other labels"),
            };
            match one {
                true => format!("1 image {what}: {name}"),
                false => format!("{count} images {what}, such as {name}"),
            }
        };
        self.0.iter().map(told).collect()
    }
}

impl Fingerprint {
    /// Whether a run on `other` is a run on this: the same images in the same order, lists, patients
    /// and labels, whatever became of the tables otherwise.
    pub fn is_same(&self, other: &Self) -> bool {
        self.split == other.split && self.labels == other.labels
    }

    /// Which tables differ in `now`, a sentence each.
    pub fn changed_tables(&self, now: &Self) -> Vec<String> {
        let known = |seal: &TableSeal, tables: &[TableSeal]| {
            tables.iter().any(|other| other.blake3 == seal.blake3)
        };
        let changed = now.tables.iter().filter(|seal| !known(seal, &self.tables));
        changed.map(|seal| format!("`{}` has changed", seal.path)).collect()
    }
}

#[cfg(test)]
mod tests;
